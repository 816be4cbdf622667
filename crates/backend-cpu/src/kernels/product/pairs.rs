//! Products of rows with matrices of bf16 numbers, two columns at a time.
//!
//! ```text
//! x'[r, k] = the bf16 number next to x[r, k], to even where in the middle
//! for each pair of columns k, k + 1, ascending:
//!     y[r,o] = fma(weight[o, k], x'[r, k], fma(weight[o, k + 1], x'[r, k + 1], y[r,o]))
//! at the end: y[r,o] += bias[o]
//! ```
//!
//! An odd number of columns has a zero beyond its last. See `simd::pairs` for what the levels do with numbers below the
//! least normal one.
//!
//! One row is bound by memory; many rows by the instruction that multiplies pairs, beside which a register of weights is
//! read once for sixteen rows.

use super::groups::{Groups, group_of};
use super::tiles::{PanelRows, Part, Tiles, Walk, each_row};
use crate::kernels::Crew;
use crate::simd::{AHEAD, Kernel, Lanes, PairKernel, Pairs, REGISTER, nearest_bf16, prefetch};
use std::marker::PhantomData;

/// Pairs of a part of the work; less isn't worth a second thread.
const PAIRS_PER_PART: usize = 4096;
/// Pairs that become bf16 numbers together.
const RUN: usize = 16;

/// Rows of a value as pairs of bf16 numbers, the even one in the lower half.
#[derive(Default)]
pub(crate) struct PairRows {
    pairs: Groups<u32>,
}

impl PairRows {
    /// Replaces the rows by those of x `[rows, width]`.
    pub(crate) fn fill(&mut self, crew: &mut Crew<'_>, x: &[f32], width: usize) {
        let rows = x.len() / width;
        self.pairs.resize(rows, group_of(rows), width.div_ceil(2));
        let (isa, group, length) = (crew.isa, self.pairs.group(), self.pairs.length());
        let groups = PAIRS_PER_PART.div_ceil(length);
        crew.turn.runs_of_both(&mut self.pairs.items, &mut [(); 0], groups * length, |start, pairs, _| {
            let x = x[start / length * group * width..].chunks(group * width);
            for (x, pairs) in x.zip(pairs.chunks_exact_mut(length)) {
                isa.run(Encode { x, width, group, pairs });
            }
        });
    }
}

/// The rows of a group to its pairs.
struct Encode<'a> {
    /// As many rows as the group has, or fewer.
    x: &'a [f32],
    width: usize,
    group: usize,
    pairs: &'a mut [u32],
}

impl Kernel for Encode<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        for (row, x) in self.x.chunks_exact(self.width).enumerate() {
            let (runs, rest) = x.as_chunks::<{ 2 * RUN }>();
            let mut places = self.pairs.chunks_exact_mut(self.group);
            for numbers in runs {
                let pairs = pairs_of(numbers);
                for (pair, place) in pairs.into_iter().zip(&mut places) {
                    place[row] = pair;
                }
            }
            let mut last = [0.0; 2 * RUN];
            last[..rest.len()].copy_from_slice(rest);
            for (pair, place) in pairs_of(&last).into_iter().zip(places) {
                place[row] = pair;
            }
        }
    }
}

#[inline(always)]
fn pairs_of(numbers: &[f32; 2 * RUN]) -> [u32; RUN] {
    let mut nearest = [0; 2 * RUN];
    for i in 0..2 * RUN {
        nearest[i] = nearest_bf16(numbers[i]);
    }
    let mut pairs = [0; RUN];
    for i in 0..RUN {
        pairs[i] = nearest[2 * i] | nearest[2 * i + 1] << 16;
    }
    pairs
}

impl PanelRows for PairRows {
    fn rows(&self) -> usize {
        self.pairs.rows()
    }

    fn group(&self) -> usize {
        self.pairs.group()
    }

    fn gather<'r>(&mut self, from: &Self, runs: impl Iterator<Item = &'r [(u32, u32)]> + Clone) {
        self.pairs.gather(&from.pairs, runs);
    }

    fn multiply(part: Part<'_, '_, Self>) {
        part.isa.run_pairs(Multiply { x: &part.x.pairs, walk: part.walk });
    }
}

struct Multiply<'a, 'b> {
    x: &'a Groups<u32>,
    walk: Walk<'a, 'b>,
}

impl PairKernel for Multiply<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<P: Pairs>(self) {
        let row_bytes = self.x.length() / self.x.group() * size_of::<u32>();
        self.walk.run(&PairTiles::<P> { x: self.x, level: PhantomData }, row_bytes, self.x.group());
    }
}

struct PairTiles<'a, P> {
    x: &'a Groups<u32>,
    level: PhantomData<P>,
}

impl<P: Pairs> Tiles for PairTiles<'_, P> {
    type Floats = P::Floats;
    const MOST_ROWS: usize = P::MOST_ROWS;

    #[inline(always)]
    fn sums<const ROWS: usize>(&self, panel: &[u8], row: usize, rows: usize) -> Option<[P::Floats; ROWS]> {
        let mut sums = [P::Floats::splat(0.0); ROWS];
        for (weights, x) in panel.as_chunks::<REGISTER>().0.iter().zip(self.x.tile(row)) {
            let x = x.first_chunk::<ROWS>()?;
            if ROWS > 1 {
                // Some rows keep the processor too busy to see in time that it will need what follows.
                prefetch(weights.as_ptr().wrapping_add(AHEAD));
            }
            let weights = P::load(weights);
            each_row!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 of ROWS, rows: r => {
                sums[r] = P::add(sums[r], weights, x[r]);
            });
        }
        Some(sums)
    }
}
