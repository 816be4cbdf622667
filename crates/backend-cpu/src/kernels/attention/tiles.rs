//! The keys and the values of one block, as they lie in a page or brought together in float32.
//!
//! They are brought together where a block has keys of the batch itself, and where so many queries share them
//! that converting each number once pays. Both ways give the products the same numbers.

use super::super::pages::{Elements, OpenPages};
use super::products::{Bf16, Code, Element, F16};
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
    /// Numbers, or codes with their scales by channel.
    Tile {
        keys: &'a [[f32; KEY_BLOCK]],
        scales: Option<&'a [u16]>,
    },
}

/// The values of a block, token by token: `[64][stride]`.
pub(super) enum ValueTile<'a> {
    Page(Elements<'a>),
    /// Numbers, or codes with their scales by token.
    Tile {
        values: &'a [f32],
        scales: Option<&'a [u16]>,
    },
}

impl<'a> KeyTile<'a> {
    #[inline(always)]
    pub(super) fn new<L: Lanes>(part: &RowHeads<'a>, block: usize, tile: &'a mut [[f32; KEY_BLOCK]]) -> Self {
        if let Some(open) = part.context.open
            && block >= part.own_block()
        {
            return Self::open::<L>(part, open, block, tile);
        }
        let (in_page, in_batch) = part.sources(block);
        let mut scales = None;
        if !in_page.is_empty() {
            let page = part.context.pages.keys(part.sequence, part.kv_head, in_page.start);
            if in_batch.is_empty() && part.rows.len() < ROWS_TO_CONVERT {
                return KeyTile::Page(page);
            }
            let tile = tile.as_flattened_mut();
            match page {
                Elements::F32(keys) => convert::<L, f32>(keys, tile),
                Elements::F16(keys) => convert::<L, F16>(keys, tile),
                Elements::Bf16(keys) => convert::<L, Bf16>(keys, tile),
                Elements::Int8(keys) => {
                    convert::<L, Code>(keys.codes, tile);
                    scales = Some(keys.scales);
                }
            }
        }
        let [keys, _] = part.context.unwritten.unwrap_or([&[], &[]]);
        part.batch_keys(keys, in_batch, tile, |x| x);
        KeyTile::Tile { keys: tile, scales }
    }

    /// The keys of the rows' own page, or of a later one.
    #[inline(always)]
    fn open<L: Lanes>(
        part: &RowHeads<'a>,
        open: OpenPages<'a>,
        block: usize,
        tile: &'a mut [[f32; KEY_BLOCK]],
    ) -> Self {
        let (start, end) = (block * KEY_BLOCK, ((block + 1) * KEY_BLOCK).min(part.sequence.end()));
        let first = part.sequence.first_index.clamp(start, end);
        if start < first {
            let head = (part.kv_head, part.context.pages.layout.key_dim);
            convert::<L, F16>(open.keys(part.sequence_number, head, start), tile.as_flattened_mut());
        }
        match (part.context.unwritten, part.context.written) {
            (Some([keys, _]), _) => part.batch_keys(keys, first..end, tile, |x| x),
            (None, Some(keys)) => {
                part.batch_keys(keys, first..end, tile, |x| L::half(half::f16::from_f32(x).to_bits()))
            }
            (None, None) => unreachable!("the verifier saw the keys that were written"),
        }
        KeyTile::Tile { keys: tile, scales: None }
    }
}

impl<'a> ValueTile<'a> {
    #[inline(always)]
    pub(super) fn new<L: Lanes>(part: &RowHeads<'a>, block: usize, tile: &'a mut [f32]) -> Self {
        let (in_page, in_batch) = part.sources(block);
        let layout = part.context.pages.layout;
        let dim = layout.value_dim;
        let stride = dim.next_multiple_of(LANES);
        let mut scales = None;
        if !in_page.is_empty() {
            let page = part.context.pages.values(part.sequence, part.kv_head, in_page.start);
            if in_batch.is_empty() && part.rows.len() < ROWS_TO_CONVERT && dim == stride {
                return ValueTile::Page(page);
            }
            match page {
                Elements::F32(values) => convert_rows::<L, f32>(values, dim, tile),
                Elements::F16(values) => convert_rows::<L, F16>(values, dim, tile),
                Elements::Bf16(values) => convert_rows::<L, Bf16>(values, dim, tile),
                Elements::Int8(values) => {
                    convert_rows::<L, Code>(values.codes, dim, tile);
                    scales = Some(values.scales);
                }
            }
        }
        if let Some(scales) = scales.take_if(|_| !in_batch.is_empty()) {
            // Beside numbers of the batch, which have no scale.
            for (values, scale) in tile.chunks_exact_mut(stride).zip(scales) {
                values.iter_mut().for_each(|x| *x *= L::half(*scale));
            }
        }
        let [_, values] = part.context.unwritten.unwrap_or([&[], &[]]);
        for index in in_batch {
            let row = part.sequence.row_of(index) * layout.kv_heads + part.kv_head;
            let out = &mut tile[index % PAGE_TOKENS * stride..][..stride];
            out[..dim].copy_from_slice(&values[row * dim..][..dim]);
            out[dim..].fill(0.0);
        }
        ValueTile::Tile { values: tile, scales }
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

    /// Puts the keys of some of the batch's rows, `[tokens, kv_heads * dim]`, into their places of a tile.
    #[inline(always)]
    fn batch_keys(
        &self,
        keys: &[f32],
        indices: Range<usize>,
        tile: &mut [[f32; KEY_BLOCK]],
        rounded: impl Fn(f32) -> f32,
    ) {
        let layout = self.context.pages.layout;
        for index in indices {
            let row = self.sequence.row_of(index) * layout.kv_heads + self.kv_head;
            for (channel, x) in tile.iter_mut().zip(&keys[row * layout.key_dim..][..layout.key_dim]) {
                channel[index % PAGE_TOKENS] = rounded(*x);
            }
        }
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
