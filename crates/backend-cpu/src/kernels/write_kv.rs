//! `write_kv`: the keys and values of a batch's rows, at their indices in the pages of their sequences.
//!
//! A key's channels go to as many lines of its page as there are channels; the lines stay in a cache until the
//! tokens beside it come. Keys in int8 go to an open page in half precision, and the row that fills a page makes
//! the codes of all 64: once a page, so a token's cost doesn't grow with what the page holds.

use super::pages::{Sequence, key_scales_offset, value_offset, value_scales_offset};
use crate::simd::{Bf16, F16, Isa, Kernel, Lanes, Stored};
use gannet_ops::numerics::LANES;
use gannet_ops::{KvFormat, PAGE_TOKENS, PagedLayout, int8};

/// Pages of a group to be written, and the sequences with their tables of it.
pub(crate) struct Target<'a> {
    pub(crate) sequences: &'a [Sequence<'a>],
    /// All pages.
    pub(crate) pages: &'a mut [u8],
    pub(crate) page_bytes: usize,
    /// Where the layer's part starts in a page, in bytes.
    pub(crate) offset: usize,
}

impl Target<'_> {
    fn page(&mut self, sequence: usize, index: usize, bytes: usize) -> &mut [u8] {
        let start = self.sequences[sequence].page(index) * self.page_bytes + self.offset;
        &mut self.pages[start..start + bytes]
    }
}

/// k `[tokens, kv_heads * key_dim]`, v `[tokens, kv_heads * value_dim]` -> the layer's part of the pages, and of the
/// open pages where it has any. A copy bound by memory, so the caller's thread does all.
pub(crate) fn write_kv(
    isa: Isa,
    layout: &PagedLayout,
    [k, v]: [&[f32]; 2],
    target: Target<'_>,
    open: Option<Target<'_>>,
) {
    isa.run(Write { layout, k, v, target, open });
}

struct Write<'a> {
    layout: &'a PagedLayout,
    k: &'a [f32],
    v: &'a [f32],
    target: Target<'a>,
    open: Option<Target<'a>>,
}

impl Kernel for Write<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { layout, k, v, mut target, mut open } = self;
        let (keys, values) = (layout.kv_heads * layout.key_dim, layout.kv_heads * layout.value_dim);
        for (number, sequence) in target.sequences.iter().enumerate() {
            for row in sequence.rows.clone() {
                let (index, k, v) =
                    (sequence.index_of(row), &k[row * keys..][..keys], &v[row * values..][..values]);
                let token = index % PAGE_TOKENS;
                let page = target.page(number, index, layout.page_bytes());
                write_values::<L>(layout, page, token, v);
                let Some(open) = &mut open else {
                    write_keys::<L>(layout.key_format, &mut page[..value_offset(layout)], token, k);
                    continue;
                };
                let exact = open.page(number, index, layout.open_page_bytes());
                write_keys::<L>(KvFormat::F16, exact, token, k);
                if token == PAGE_TOKENS - 1 {
                    let (codes, rest) = page.split_at_mut(value_offset(layout));
                    let scales = &mut rest[key_scales_offset(layout) - value_offset(layout)..];
                    let scales = bytemuck::cast_slice_mut(&mut scales[..keys * size_of::<u16>()]);
                    quantise::<L>(bytemuck::cast_slice(exact), codes, scales);
                }
            }
        }
    }
}

/// The keys of a full page in half precision, `[kv_heads * dim][64]`, to codes alike and a scale a channel.
#[inline(always)]
fn quantise<L: Lanes>(exact: &[u16], codes: &mut [u8], scales: &mut [u16]) {
    let channels = exact.as_chunks::<PAGE_TOKENS>().0.iter().zip(scales);
    for ((exact, scale), codes) in channels.zip(codes.as_chunks_mut::<PAGE_TOKENS>().0) {
        let mut keys = [0.0; PAGE_TOKENS];
        for (exact, keys) in exact.as_chunks::<LANES>().0.iter().zip(keys.as_chunks_mut::<LANES>().0) {
            L::load_f16(exact).store(keys);
        }
        let found = int8::scale(int8::largest(keys.iter().copied()));
        *scale = found.to_bits();
        for (code, key) in codes.iter_mut().zip(keys) {
            *code = int8::code(key, found.to_f32()) as u8;
        }
    }
}

/// Writes a token's keys: channel by channel.
#[inline(always)]
fn write_keys<L: Lanes>(format: KvFormat, page: &mut [u8], token: usize, row: &[f32]) {
    match format {
        KvFormat::F32 => scatter::<L, f32>(bytemuck::cast_slice_mut(page), token, row),
        KvFormat::F16 => scatter::<L, F16>(bytemuck::cast_slice_mut(page), token, row),
        KvFormat::Bf16 => scatter::<L, Bf16>(bytemuck::cast_slice_mut(page), token, row),
        KvFormat::Int8 => unreachable!("keys in int8 are made of an open page's"),
    }
}

/// A row to the places of a token, `[row][64]`.
#[inline(always)]
fn scatter<L: Lanes, T: Stored>(out: &mut [T::Bits], token: usize, row: &[f32]) {
    for (x, out) in row.chunks(LANES).zip(out.chunks_mut(LANES * PAGE_TOKENS)) {
        let mut bits = [T::Bits::default(); LANES];
        T::store(L::load_part(x), &mut bits);
        for (out, bits) in out.as_chunks_mut::<PAGE_TOKENS>().0.iter_mut().zip(bits) {
            out[token] = bits;
        }
    }
}

/// Writes a token's values, head by head.
#[inline(always)]
fn write_values<L: Lanes>(layout: &PagedLayout, page: &mut [u8], token: usize, row: &[f32]) {
    let dim = layout.value_dim;
    let (elements, scales) = page.split_at_mut(value_scales_offset(layout));
    let elements = &mut elements[value_offset(layout)..];
    match layout.value_format {
        KvFormat::F32 => copy::<L, f32>(bytemuck::cast_slice_mut(elements), token, row, dim),
        KvFormat::F16 => copy::<L, F16>(bytemuck::cast_slice_mut(elements), token, row, dim),
        KvFormat::Bf16 => copy::<L, Bf16>(bytemuck::cast_slice_mut(elements), token, row, dim),
        KvFormat::Int8 => {
            let scales = &mut scales[..layout.kv_heads * PAGE_TOKENS * size_of::<u16>()];
            let heads = elements.chunks_exact_mut(PAGE_TOKENS * dim).zip(row.chunks_exact(dim));
            let scales = bytemuck::cast_slice_mut::<_, [u16; PAGE_TOKENS]>(scales);
            for ((codes, row), scales) in heads.zip(scales) {
                let scale = int8::scale(int8::largest(row.iter().copied()));
                scales[token] = scale.to_bits();
                for (code, x) in codes[token * dim..][..dim].iter_mut().zip(row) {
                    *code = int8::code(*x, scale.to_f32()) as u8;
                }
            }
        }
    }
}

/// The heads of a row, `[heads][dim]`, to their places of a token, `[heads][64][dim]`.
#[inline(always)]
fn copy<L: Lanes, T: Stored>(out: &mut [T::Bits], token: usize, row: &[f32], dim: usize) {
    for (row, out) in row.chunks_exact(dim).zip(out.chunks_exact_mut(PAGE_TOKENS * dim)) {
        for (x, out) in row.chunks(LANES).zip(out[token * dim..][..dim].chunks_mut(LANES)) {
            let mut bits = [T::Bits::default(); LANES];
            T::store(L::load_part(x), &mut bits);
            out.copy_from_slice(&bits[..out.len()]);
        }
    }
}
