//! The keys and the values of one block, as they lie in a page or brought together in float32.
//!
//! They are brought together where a block has keys of the batch itself, and where so many queries share them
//! that converting each number once pays. Both ways give the products the same numbers.

use super::super::pages::Elements;
use super::products::{Bf16, Element, F16};
use super::rows::RowHeads;
use crate::simd::Lanes;
use gannet_ops::PAGE_TOKENS;
use gannet_ops::numerics::{KEY_BLOCK, LANES};
use std::ops::Range;

/// Rows that make it worth to convert a page first.
const ROWS_TO_CONVERT: usize = 3;

/// The keys of a block, channel by channel: `[dim][64]`.
pub(super) enum KeyTile<'a> {
    Page(Elements<'a>),
    Tile(&'a [[f32; KEY_BLOCK]]),
}

/// The values of a block, token by token: `[64][stride]`.
pub(super) enum ValueTile<'a> {
    Page(Elements<'a>),
    Tile(&'a [f32]),
}

impl<'a> KeyTile<'a> {
    #[inline(always)]
    pub(super) fn new<L: Lanes>(part: &RowHeads<'a>, block: usize, tile: &'a mut [[f32; KEY_BLOCK]]) -> Self {
        let (in_page, in_batch) = part.sources(block);
        let layout = part.context.pages.layout;
        if !in_page.is_empty() {
            let page = part.context.pages.keys(part.sequence, part.kv_head, in_page.start);
            if in_batch.is_empty() && part.rows.len() < ROWS_TO_CONVERT {
                return KeyTile::Page(page);
            }
            match page {
                Elements::F32(keys) => convert::<L, f32>(keys, tile.as_flattened_mut()),
                Elements::F16(keys) => convert::<L, F16>(keys, tile.as_flattened_mut()),
                Elements::Bf16(keys) => convert::<L, Bf16>(keys, tile.as_flattened_mut()),
            }
        }
        let [keys, _] = part.context.unwritten.unwrap_or([&[], &[]]);
        for index in in_batch {
            let row = part.sequence.row_of(index) * layout.kv_heads + part.kv_head;
            for (channel, x) in tile.iter_mut().zip(&keys[row * layout.key_dim..][..layout.key_dim]) {
                channel[index % PAGE_TOKENS] = *x;
            }
        }
        KeyTile::Tile(tile)
    }
}

impl<'a> ValueTile<'a> {
    #[inline(always)]
    pub(super) fn new<L: Lanes>(part: &RowHeads<'a>, block: usize, tile: &'a mut [f32]) -> Self {
        let (in_page, in_batch) = part.sources(block);
        let layout = part.context.pages.layout;
        let dim = layout.value_dim;
        if !in_page.is_empty() {
            let page = part.context.pages.values(part.sequence, part.kv_head, in_page.start);
            let is_padded = !dim.is_multiple_of(LANES);
            if in_batch.is_empty() && part.rows.len() < ROWS_TO_CONVERT && !is_padded {
                return ValueTile::Page(page);
            }
            match page {
                Elements::F32(values) => convert_rows::<L, f32>(values, dim, tile),
                Elements::F16(values) => convert_rows::<L, F16>(values, dim, tile),
                Elements::Bf16(values) => convert_rows::<L, Bf16>(values, dim, tile),
            }
        }
        let [_, values] = part.context.unwritten.unwrap_or([&[], &[]]);
        let stride = dim.next_multiple_of(LANES);
        for index in in_batch {
            let row = part.sequence.row_of(index) * layout.kv_heads + part.kv_head;
            let out = &mut tile[index % PAGE_TOKENS * stride..][..stride];
            out[..dim].copy_from_slice(&values[row * dim..][..dim]);
            out[dim..].fill(0.0);
        }
        ValueTile::Tile(tile)
    }
}

impl RowHeads<'_> {
    /// The indices of a block that are in a page, and those in the batch.
    #[inline(always)]
    fn sources(&self, block: usize) -> (Range<usize>, Range<usize>) {
        let (start, end) = (block * KEY_BLOCK, ((block + 1) * KEY_BLOCK).min(self.sequence.end()));
        let first = if self.context.unwritten.is_some() { self.sequence.first_index } else { end };
        let written = first.clamp(start, end);
        (start..written, written..end)
    }
}

#[inline(always)]
fn convert<L: Lanes, T: Element>(from: &[T::Bits], to: &mut [f32]) {
    for (from, to) in from.as_chunks::<LANES>().0.iter().zip(to.as_chunks_mut::<LANES>().0) {
        T::load::<L>(from).store(to);
    }
}

/// Rows of `dim` elements to rows padded with zeros.
#[inline(always)]
fn convert_rows<L: Lanes, T: Element>(from: &[T::Bits], dim: usize, to: &mut [f32]) {
    if dim.is_multiple_of(LANES) {
        return convert::<L, T>(from, to);
    }
    for (from, to) in from.chunks_exact(dim).zip(to.chunks_exact_mut(dim.next_multiple_of(LANES))) {
        for (from, to) in from.chunks(LANES).zip(to.as_chunks_mut::<LANES>().0) {
            let mut bits = [T::Bits::default(); LANES];
            bits[..from.len()].copy_from_slice(from);
            T::load::<L>(&bits).store(to);
        }
    }
}
