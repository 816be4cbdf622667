//! The keys and the values of one block, as they lie in a page or brought together in float32.
//!
//! They are brought together where a block has keys of the batch itself, and where values don't fill whole sixteens.
//! Both ways give the products the same numbers. Converting each number once for many queries doesn't pay: the first-level
//! cache holds a block in 16 bits and not in 32.

use super::super::pages::{Elements, OpenPages};
use super::rows::RowHeads;
use crate::simd::{Bf16, Code, Element, F16, Lanes};
use gannet_ops::PAGE_TOKENS;
use gannet_ops::numerics::{KEY_BLOCK, LANES};
use std::ops::Range;

/// The keys of a block, channel by channel `[dim][64]`, or its values, token by token `[64][stride]`.
pub(super) struct Tile<'a> {
    pub(super) elements: Elements<'a>,
    /// Of codes: by channel of keys, by token of values.
    pub(super) scales: Option<&'a [u16]>,
}

impl<'a> Tile<'a> {
    fn page(elements: Elements<'a>) -> Self {
        let scales = match elements {
            Elements::Int8(codes) => Some(codes.scales),
            Elements::F32(_) | Elements::F16(_) | Elements::Bf16(_) => None,
        };
        Self { elements, scales }
    }
}

#[inline(always)]
pub(super) fn key_tile<'a, L: Lanes>(
    part: &RowHeads<'a>,
    block: usize,
    tile: &'a mut [[f32; KEY_BLOCK]],
) -> Tile<'a> {
    if let Some(open) = part.context.open
        && block >= part.own_block()
    {
        return open_tile::<L>(part, open, block, tile);
    }
    let (_, in_batch) = part.sources(block);
    let mut scales = None;
    if let Some(keys) = part.keys_in_page(block) {
        let page = Tile::page(keys);
        if in_batch.is_empty() {
            return page;
        }
        scales = page.scales;
        convert::<L>(page.elements, KEY_BLOCK, tile.as_flattened_mut());
    }
    let [keys, _] = part.context.unwritten.unwrap_or([&[], &[]]);
    part.batch_keys(keys, in_batch, tile, |x| x);
    Tile { elements: Elements::F32(tile.as_flattened()), scales }
}

/// The keys of the rows' own page, or of a later one, where earlier pages have them as codes.
#[inline(always)]
fn open_tile<'a, L: Lanes>(
    part: &RowHeads<'a>,
    open: OpenPages<'a>,
    block: usize,
    tile: &'a mut [[f32; KEY_BLOCK]],
) -> Tile<'a> {
    let (start, end) = (block * KEY_BLOCK, ((block + 1) * KEY_BLOCK).min(part.sequence.end()));
    let first = part.sequence.first_index.clamp(start, end);
    if start < first {
        let head = (part.kv_head, part.context.pages.layout.key_dim);
        let keys = Elements::F16(open.keys(part.sequence_number, head, start));
        convert::<L>(keys, KEY_BLOCK, tile.as_flattened_mut());
    }
    match (part.context.unwritten, part.context.written) {
        (Some([keys, _]), _) => part.batch_keys(keys, first..end, tile, |x| x),
        (None, Some(keys)) => part.batch_keys(keys, first..end, tile, |x| half::f16::from_f32(x).to_f32()),
        (None, None) => unreachable!("the verifier saw the keys that were written"),
    }
    Tile { elements: Elements::F32(tile.as_flattened()), scales: None }
}

#[inline(always)]
pub(super) fn value_tile<'a, L: Lanes>(part: &RowHeads<'a>, block: usize, tile: &'a mut [f32]) -> Tile<'a> {
    let (_, in_batch) = part.sources(block);
    let dim = part.context.pages.layout.value_dim;
    let stride = dim.next_multiple_of(LANES);
    let mut scales = None;
    if let Some(values) = part.values_in_page(block) {
        let page = Tile::page(values);
        if in_batch.is_empty() && dim == stride {
            return page;
        }
        scales = page.scales;
        convert::<L>(page.elements, dim, tile);
    }
    if let Some(scales) = scales.take_if(|_| !in_batch.is_empty()) {
        // Beside numbers of the batch, which have no scale.
        for (values, scale) in tile.chunks_exact_mut(stride).zip(scales) {
            values.iter_mut().for_each(|x| *x *= L::half(*scale));
        }
    }
    let [_, values] = part.context.unwritten.unwrap_or([&[], &[]]);
    for index in in_batch {
        let row = part.sequence.row_of(index) * part.context.pages.layout.kv_heads + part.kv_head;
        let out = &mut tile[index % PAGE_TOKENS * stride..][..stride];
        out[..dim].copy_from_slice(&values[row * dim..][..dim]);
        out[dim..].fill(0.0);
    }
    Tile { elements: Elements::F32(tile), scales }
}

impl<'a> RowHeads<'a> {
    /// The keys of a block that are in a page.
    #[inline(always)]
    pub(super) fn keys_in_page(&self, block: usize) -> Option<Elements<'a>> {
        let (in_page, _) = self.sources(block);
        (!in_page.is_empty()).then(|| self.context.pages.keys(self.sequence, self.kv_head, in_page.start))
    }

    /// The values of a block that are in a page.
    #[inline(always)]
    pub(super) fn values_in_page(&self, block: usize) -> Option<Elements<'a>> {
        let (in_page, _) = self.sources(block);
        (!in_page.is_empty()).then(|| self.context.pages.values(self.sequence, self.kv_head, in_page.start))
    }

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

/// Rows of `dim` elements to float32 in rows padded with zeros to whole sixteens.
#[inline(always)]
fn convert<L: Lanes>(from: Elements<'_>, dim: usize, to: &mut [f32]) {
    match from {
        Elements::F32(from) => convert_from::<L, f32>(from, dim, to),
        Elements::F16(from) => convert_from::<L, F16>(from, dim, to),
        Elements::Bf16(from) => convert_from::<L, Bf16>(from, dim, to),
        Elements::Int8(from) => convert_from::<L, Code>(from.codes, dim, to),
    }
}

#[inline(always)]
fn convert_from<L: Lanes, T: Element>(from: &[T::Bits], dim: usize, to: &mut [f32]) {
    for (from, to) in from.chunks_exact(dim).zip(to.chunks_exact_mut(dim.next_multiple_of(LANES))) {
        let (sixteens, rest) = from.as_chunks::<LANES>();
        let (to, _) = to.as_chunks_mut::<LANES>();
        for (from, to) in sixteens.iter().zip(&mut *to) {
            T::load::<L>(from).store(to);
        }
        if let (false, Some(to)) = (rest.is_empty(), to.last_mut()) {
            let mut bits = [T::Bits::default(); LANES];
            bits[..rest.len()].copy_from_slice(rest);
            T::load::<L>(&bits).store(to);
        }
    }
}
