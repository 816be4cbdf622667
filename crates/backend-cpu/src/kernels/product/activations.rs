//! Rows as codes: what a product with a matrix of codes multiplies, made once a value.
//!
//! ```text
//! scale = max |x| / 127,   code[i] = round(x[i] * (127 / max |x|)),   over 32 columns; to even where in the middle
//! ```
//!
//! A value whose codes would lose too much has two terms: numbers of 16 bits, `round(x[i] * (32512 / max |x|))`, as an upper
//! code that counts 256 and a lower one. See [`Terms`].
//!
//! A block whose largest number is below [`SMALLEST`] is zero. One with a number that is not finite has a scale
//! that is none, so that every product with the row shows it.
//!
//! A block depends on its own 32 numbers alone, so a row has the same codes whatever stands beside it.

use crate::kernels::Crew;
use crate::panels::SUB_BLOCK;
use crate::simd::{Kernel, Lanes};
use crate::threads::Columns;
use bytemuck::{Pod, Zeroable};

/// Below this the scale of a block would be no normal number. Products with such numbers vanish beside any others.
const SMALLEST: f32 = 1e-33;
/// The largest code.
const LARGEST_CODE: i32 = 127;
/// What a code of the upper of two terms counts.
const UPPER: i32 = 256;
/// Added to a number of magnitude below 2^22, rounds it to an integer, which its lowest bits then are.
const ROUNDER: f32 = 12_582_912.0;
/// Blocks of a part of the work; less isn't worth a second thread.
const BLOCKS_PER_PART: usize = 256;

/// 32 numbers of a row as codes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Block {
    /// Four signed codes a word, the first in the lowest byte.
    pub(super) codes: [i32; 8],
    /// What one counts; of an upper term nothing is asked but codes and sums.
    pub(super) scale: f32,
    /// The sum of the numbers that all terms stand for.
    pub(super) scaled_sum: f32,
    /// The negative sum of the codes.
    pub(super) minus_sum: i32,
    /// Those of the first sixteen and of the second.
    pub(super) minus_sums: [i32; 2],
}

/// How closely codes stand for numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Terms {
    /// To a 254th of the largest of a block.
    #[default]
    One,
    /// To a 65,024th, but to a 32,512th where a lower code would be -128, which not every level can multiply.
    Two,
}

impl Terms {
    pub(super) fn count(self) -> usize {
        match self {
            Terms::One => 1,
            Terms::Two => 2,
        }
    }
}

/// Rows of a value as codes, `[blocks, rows, terms]`, so that a product finds what it needs of several rows side by side.
#[derive(Default)]
pub(crate) struct Activations {
    rows: usize,
    terms: Terms,
    blocks: Vec<Block>,
}

impl Activations {
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(super) fn terms(&self) -> Terms {
        self.terms
    }

    pub(super) fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Replaces the rows by those of x `[rows, width]`; the width is whole blocks.
    pub(crate) fn fill(&mut self, crew: &mut Crew<'_>, x: &[f32], width: usize, terms: Terms) {
        self.resize(x.len() / width, width / SUB_BLOCK, terms);
        if self.rows == 0 {
            return;
        }
        let (isa, count) = (crew.isa, terms.count());
        let step = BLOCKS_PER_PART.div_ceil(width / SUB_BLOCK) * count;
        crew.columns(&mut self.blocks, self.rows * count, step, |out, _| {
            let range = out.range();
            let x = &x[range.start / count * width..range.end / count * width];
            isa.run(Encode { x, width, terms, out });
        });
    }

    /// Replaces the rows by rows of others, in this order.
    pub(crate) fn gather(&mut self, from: &Activations, rows: impl ExactSizeIterator<Item = usize> + Clone) {
        let count = from.terms.count();
        self.resize(rows.len(), from.blocks.len() / (from.rows * count).max(1), from.terms);
        let (from_run, to_run) = ((from.rows * count).max(1), (self.rows * count).max(1));
        for (from, to) in from.blocks.chunks_exact(from_run).zip(self.blocks.chunks_exact_mut(to_run)) {
            for (to, row) in to.chunks_exact_mut(count).zip(rows.clone()) {
                to.copy_from_slice(&from[row * count..][..count]);
            }
        }
    }

    fn resize(&mut self, rows: usize, blocks: usize, terms: Terms) {
        (self.rows, self.terms) = (rows, terms);
        self.blocks.resize(rows * blocks * terms.count(), Block::default());
    }
}

/// Some rows to their columns of the blocks.
struct Encode<'a, 'b> {
    x: &'a [f32],
    width: usize,
    terms: Terms,
    out: Columns<'b, Block>,
}

impl Kernel for Encode<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        for (row, x) in self.x.chunks_exact(self.width).enumerate() {
            for (number, x) in x.as_chunks::<SUB_BLOCK>().0.iter().enumerate() {
                let out = self.out.row(number);
                match self.terms {
                    Terms::One => out[row] = encode(x),
                    Terms::Two => [out[2 * row], out[2 * row + 1]] = encode_twice(x),
                }
            }
        }
    }
}

/// 32 numbers as one term.
#[inline(always)]
fn encode(x: &[f32; SUB_BLOCK]) -> Block {
    let Some((codes, scale)) = integers(x, LARGEST_CODE) else { return none() };
    let block = block(&codes);
    Block { scale, scaled_sum: scale * -block.minus_sum as f32, ..block }
}

/// 32 numbers as an upper and a lower term.
#[inline(always)]
fn encode_twice(x: &[f32; SUB_BLOCK]) -> [Block; 2] {
    let Some((numbers, scale)) = integers(x, UPPER * LARGEST_CODE) else { return [none(); 2] };
    let (mut upper, mut lower) = ([0; SUB_BLOCK], [0; SUB_BLOCK]);
    for i in 0..SUB_BLOCK {
        upper[i] = (numbers[i] + UPPER / 2) >> 8;
        lower[i] = (numbers[i] - UPPER * upper[i]).max(-LARGEST_CODE);
    }
    let (upper, lower) = (block(&upper), block(&lower));
    let sum = -(UPPER * upper.minus_sum + lower.minus_sum);
    [upper, Block { scale, scaled_sum: scale * sum as f32, ..lower }]
}

/// Of numbers that aren't finite.
#[inline(always)]
fn none() -> Block {
    Block { scale: f32::NAN, scaled_sum: f32::NAN, ..Block::default() }
}

/// Numbers as multiples of a scale, the largest of which is `most`; `None` where one is not finite.
#[inline(always)]
fn integers(x: &[f32; SUB_BLOCK], most: i32) -> Option<([i32; SUB_BLOCK], f32)> {
    // As integers, the bits of magnitudes are ordered as these are, and what is no number comes last.
    let mut largest = 0;
    for x in x {
        largest = largest.max(x.abs().to_bits() as i32);
    }
    let largest = f32::from_bits(largest as u32);
    if !largest.is_finite() {
        return None;
    }
    if largest < SMALLEST {
        return Some(([0; SUB_BLOCK], 0.0));
    }
    let factor = most as f32 / largest;
    let mut integers = [0; SUB_BLOCK];
    for i in 0..SUB_BLOCK {
        integers[i] = x[i].mul_add(factor, ROUNDER).to_bits() as i32 - ROUNDER.to_bits() as i32;
    }
    Some((integers, largest / most as f32))
}

/// Codes and their sums.
#[inline(always)]
fn block(codes: &[i32; SUB_BLOCK]) -> Block {
    let (mut first, mut second) = (0, 0);
    let mut bytes = [0u8; SUB_BLOCK];
    for i in 0..SUB_BLOCK / 2 {
        first += codes[i];
        second += codes[i + SUB_BLOCK / 2];
    }
    for i in 0..SUB_BLOCK {
        bytes[i] = codes[i] as u8;
    }
    let mut words: [i32; SUB_BLOCK / 4] = bytemuck::cast(bytes);
    for word in &mut words {
        *word = i32::from_le(*word);
    }
    Block {
        codes: words,
        minus_sum: -(first + second),
        minus_sums: [-first, -second],
        ..Block::default()
    }
}
