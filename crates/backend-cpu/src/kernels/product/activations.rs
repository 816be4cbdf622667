//! Rows as codes: what a product with a matrix of codes multiplies, made once a value.
//!
//! ```text
//! scale = max |x| / 127,   code[i] = round(x[i] * (127 / max |x|)),   over 32 columns; to even where in the middle
//! ```
//!
//! A value whose codes would lose too much has two terms: what the codes leave over is made codes once more, and its blocks
//! follow those of the whole row. See [`Terms`].
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

/// Below this the factor of a block would not be finite. Products with such numbers vanish beside any others.
const SMALLEST: f32 = 1e-35;
/// The largest code.
const LARGEST_CODE: f32 = 127.0;
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
    pub(super) scale: f32,
    /// The scale times the sum of the codes.
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
    /// To a 254th of that.
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

/// Rows of a value as codes, `[terms, blocks, rows]`, so that a product finds what it needs of several rows side by side.
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
        self.terms = terms;
        self.resize(x.len() / width, width / SUB_BLOCK * terms.count());
        if self.rows == 0 {
            return;
        }
        let (isa, rows) = (crew.isa, self.rows);
        let rows_per_part = BLOCKS_PER_PART.div_ceil(width / SUB_BLOCK);
        crew.columns(&mut self.blocks, rows, rows_per_part, |out, _| {
            let range = out.range();
            isa.run(Encode { x: &x[range.start * width..range.end * width], width, terms, out });
        });
    }

    /// Replaces the rows by rows of others, in this order.
    pub(crate) fn gather(&mut self, from: &Activations, rows: impl ExactSizeIterator<Item = usize> + Clone) {
        let blocks = from.blocks.len() / from.rows.max(1);
        self.terms = from.terms;
        self.resize(rows.len(), blocks);
        let pairs =
            from.blocks.chunks_exact(from.rows.max(1)).zip(self.blocks.chunks_exact_mut(self.rows.max(1)));
        for (from, to) in pairs {
            to.iter_mut().zip(rows.clone()).for_each(|(to, row)| *to = from[row]);
        }
    }

    fn resize(&mut self, rows: usize, blocks: usize) {
        self.rows = rows;
        self.blocks.resize(rows * blocks, Block::default());
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
        let blocks = self.width / SUB_BLOCK;
        for (row, x) in self.x.chunks_exact(self.width).enumerate() {
            for (number, x) in x.as_chunks::<SUB_BLOCK>().0.iter().enumerate() {
                let block = encode(x);
                self.out.row(number)[row] = block;
                if self.terms == Terms::Two {
                    self.out.row(blocks + number)[row] = encode(&rest(x, &block));
                }
            }
        }
    }
}

/// What the codes of a block leave over; nothing where it is no number.
#[inline(always)]
fn rest(x: &[f32; SUB_BLOCK], block: &Block) -> [f32; SUB_BLOCK] {
    if block.scale.is_nan() {
        return [0.0; SUB_BLOCK];
    }
    let bytes: &[i8; SUB_BLOCK] = bytemuck::cast_ref(&block.codes);
    std::array::from_fn(|i| f32::from(bytes[i]).mul_add(-block.scale, x[i]))
}

#[inline(always)]
fn encode(x: &[f32; SUB_BLOCK]) -> Block {
    // As integers, the bits of magnitudes are ordered as these are, and what is no number comes last.
    let mut largest = 0;
    for x in x {
        largest = largest.max(x.abs().to_bits() as i32);
    }
    let largest = f32::from_bits(largest as u32);
    if !largest.is_finite() {
        return Block { scale: f32::NAN, scaled_sum: f32::NAN, ..Block::default() };
    }
    if largest < SMALLEST {
        return Block::default();
    }
    let factor = LARGEST_CODE / largest;
    let mut codes = [0i32; SUB_BLOCK];
    for i in 0..SUB_BLOCK {
        codes[i] = (x[i].mul_add(factor, ROUNDER)).to_bits() as i32 - ROUNDER.to_bits() as i32;
    }
    let (mut first, mut second) = (0, 0);
    let mut bytes = [0u8; SUB_BLOCK];
    for i in 0..SUB_BLOCK / 2 {
        first += codes[i];
        second += codes[i + SUB_BLOCK / 2];
    }
    for i in 0..SUB_BLOCK {
        bytes[i] = codes[i] as u8;
    }
    let scale = largest / LARGEST_CODE;
    let words = bytes.as_chunks::<4>().0;
    Block {
        codes: std::array::from_fn(|i| i32::from_le_bytes(words[i])),
        scale,
        scaled_sum: scale * (first + second) as f32,
        minus_sum: -(first + second),
        minus_sums: [-first, -second],
    }
}
