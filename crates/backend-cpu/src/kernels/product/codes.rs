//! Products of rows with matrices of codes, by integers: for every format of 4 bits and more.
//!
//! ```text
//! for each block of 32 columns, ascending; for each of its scales (one, or two of 16 columns):
//!     i      = sum of (code[o, k] - zero) * x_code[r, k]                     in 32-bit integers
//!     y[r,o] = fma(f32(i), scale[o] * x_scale[r], y[r,o])
//! and then, where the format has minima:
//!     y[r,o] = fma(minimum[o], x_scale[r] * f32(sum of x_code[r, k]), y[r,o])
//! at the end: y[r,o] += bias[o]
//! ```
//!
//! Where x has two terms, `i` is 256 times the sum over the codes of the second and that over those of the first: still an
//! exact integer, and all that follows is done once. The second has two words of a block, which meet the matrix's codes
//! in a copy in memory, by number.
//!
//! Each `*` rounds once, each fma once, the conversion of an integer once. `scale` is the number that the format
//! means, a float32 without loss. Sixteen outputs are the lanes of a register and nothing is summed across lanes, so
//! the bits of one (row, output) follow from this formula alone: they are the same beside any other rows, at every
//! level of instructions and for any number of threads.
//!
//! `code - zero` is never formed: `zero` times the row's negative sum is where the integer starts from.
//!
//! A panel's codes of 32 columns are unpacked into eight registers, once for as many rows as have room for their
//! sums and for all their terms. One row is bound by memory; many rows by the instruction that multiplies codes, of which there are eight
//! for 3 to 6 others that take the same units.

use super::activations::{Activations, Block, Far, Terms, WORDS};
use super::tiles::{PanelRows, Part, Tiles, Walk, each_row};
use crate::panels::{
    BlockScales, Offset, PanelFormat, PanelVisitor, Planes, SUB_BLOCK, Scales, head_bytes, run_bytes,
    sub_block_bytes, visit,
};
use crate::simd::{AHEAD, CodeKernel, Dots, Isa, LINE, Lanes, REGISTER, prefetch};
use gannet_ops::numerics::LANES;
use std::marker::PhantomData;

impl PanelRows for Activations {
    fn rows(&self) -> usize {
        self.blocks.rows()
    }

    fn group(&self) -> usize {
        self.blocks.group()
    }

    fn gather<'r>(&mut self, from: &Self, runs: impl Iterator<Item = &'r [(u32, u32)]> + Clone) {
        self.blocks.gather(&from.blocks, runs.clone());
        match from.terms() {
            Terms::One => self.far.resize(0, 1, 0),
            Terms::Two => self.far.gather(&from.far, runs),
        }
    }

    fn multiply(part: Part<'_, '_, Self>) {
        let Part { isa, x, format, width, walk } = part;
        let Ok(()) = visit(format, OfFormat { isa, x, width, walk }) else {
            unreachable!("panels are made of formats that have them")
        };
    }
}

/// Some panels with some rows.
struct OfFormat<'a, 'b> {
    isa: Isa,
    x: &'a Activations,
    width: usize,
    walk: Walk<'a, 'b>,
}

impl PanelVisitor for OfFormat<'_, '_> {
    type Output = ();

    fn visit<F: PanelFormat>(self) {
        let Self { isa, x, width, walk } = self;
        isa.run_codes(Multiply::<F> { x, width, walk, format: PhantomData });
    }
}

struct Multiply<'a, 'b, F> {
    x: &'a Activations,
    width: usize,
    walk: Walk<'a, 'b>,
    format: PhantomData<F>,
}

impl<F: PanelFormat> CodeKernel for Multiply<'_, '_, F> {
    type Output = ();

    #[inline(always)]
    fn run<D: Dots>(self) {
        let Self { x, width, walk, .. } = self;
        let (blocks, group) = (width / SUB_BLOCK, x.group());
        match x.terms() {
            Terms::One => {
                let tiles = CodeTiles::<F, D, false> { x, kinds: PhantomData };
                walk.run(&tiles, blocks * size_of::<Block>(), group);
            }
            Terms::Two => {
                let tiles = CodeTiles::<F, D, true> { x, kinds: PhantomData };
                walk.run(&tiles, blocks * (size_of::<Block>() + size_of::<Far>()), group);
            }
        }
    }
}

/// Tiles of rows that have a second term where `FAR`.
struct CodeTiles<'a, F, D, const FAR: bool> {
    x: &'a Activations,
    kinds: PhantomData<(F, D)>,
}

impl<F: PanelFormat, D: Dots, const FAR: bool> Tiles for CodeTiles<'_, F, D, FAR> {
    type Floats = D::Floats;
    const MOST_ROWS: usize = D::MOST_ROWS;

    #[inline(always)]
    fn sums<const ROWS: usize>(&self, panel: &[u8], row: usize, rows: usize) -> Option<[D::Floats; ROWS]> {
        let mut sums = [D::Floats::splat(0.0); ROWS];
        let (mut x, mut far) = (self.x.blocks.tile(row), self.x.far.tile(row));
        for run in panel.chunks_exact(run_bytes::<F>()) {
            let (heads, sub_blocks) = run.split_at(head_bytes::<F>());
            for sub_block in sub_blocks.chunks_exact(sub_block_bytes::<F>()) {
                let x = x.next()?.first_chunk::<ROWS>()?;
                let far = if FAR {
                    // Known to be there, so that no row looks.
                    Some(far.next()?.first_chunk::<ROWS>()?)
                } else {
                    None
                };
                if ROWS > 1 {
                    // Some rows keep the processor too busy to see in time that it will need what follows.
                    for line in sub_block.chunks(LINE) {
                        prefetch(line.as_ptr().wrapping_add(AHEAD));
                    }
                }
                let (bytes, planes) = sub_block.split_at(F::Scales::BYTES * LANES);
                let scales = F::Scales::read::<D>(heads, bytes);
                let codes = codes::<F, D>(planes);
                let mut copy = [[0; REGISTER]; WORDS];
                if FAR {
                    for i in 0..WORDS {
                        D::store(codes[i], &mut copy[i]);
                    }
                }
                // Written out, because the compiler leaves a loop of so long a body with its sums in memory.
                each_row!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 of ROWS, rows: r => {
                    let far = far.map(|far| (&far[r], &copy));
                    sums[r] = step::<F, D>(&codes, &scales, (&x[r], far), sums[r]);
                });
            }
        }
        Some(sums)
    }
}

/// The codes of a sub-block of a panel.
#[inline(always)]
fn codes<F: PanelFormat, D: Dots>(planes: &[u8]) -> [D::Bytes; WORDS] {
    let mut codes = F::Planes::unpack::<D>(planes);
    if let Some(table) = F::TABLE {
        for codes in &mut codes {
            *codes = D::look_up(table, *codes);
        }
    }
    codes
}

/// A row's, and the codes that it is to meet.
type SecondTerm<'a> = (&'a Far, &'a [[u8; REGISTER]; WORDS]);

/// Adds 32 columns of a row: its first term, and its second with a copy of the codes.
#[inline(always)]
#[expect(
    clippy::needless_range_loop,
    reason = "chains of iterators over halves were left as loops through memory"
)]
fn step<F: PanelFormat, D: Dots>(
    codes: &[D::Bytes; WORDS],
    scales: &BlockScales<D::Floats>,
    (x, far): (&Block, Option<SecondTerm<'_>>),
    sum: D::Floats,
) -> D::Floats {
    let x_scale = D::Floats::splat(x.scale);
    let mut sum = sum;
    let parts = if F::Scales::COUNT == 1 { 1 } else { 2 };
    for part in 0..parts {
        let mut dots = F::Offset::start::<D>(if parts == 1 { x.minus_sum } else { x.minus_sums[part] });
        for i in part * WORDS / parts..(part + 1) * WORDS / parts {
            dots = F::Offset::dot::<D>(dots, codes[i], x.codes[i]);
        }
        if let Some((far, copy)) = far {
            let halves = if parts == 1 { 0..2 } else { part..part + 1 };
            let minus_sum =
                if parts == 1 { far.minus_sums[0] + far.minus_sums[1] } else { far.minus_sums[part] };
            let mut far_dots = F::Offset::start::<D>(minus_sum);
            for half in halves {
                let codes = D::load(&copy[far.places[half] as usize % WORDS]);
                far_dots = F::Offset::dot::<D>(far_dots, codes, far.words[half]);
            }
            dots = D::next_term(far_dots, dots);
        }
        sum = D::floats(dots).mul_add(scales.scales[part].mul(x_scale), sum);
    }
    if F::Scales::HAS_MINIMUM {
        sum = scales.minimum.mul_add(D::Floats::splat(x.scaled_sum), sum);
    }
    sum
}
