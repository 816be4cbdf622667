//! `write_kv`: the keys and values of a batch's rows, at their indices in the pages of their sequences.
//!
//! A key's channels go to as many lines of its page as there are channels; the lines stay in a cache until the
//! tokens beside it come. Keys in int8 go to an open page in half precision, and the row that fills a page makes
//! the codes of all 64: once a page, so a token's cost doesn't grow with what the page holds.

use super::pages::{Sequence, key_scales_offset, value_offset, value_scales_offset};
use crate::simd::{Isa, Kernel, Lanes};
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
    mut target: Target<'_>,
    mut open: Option<Target<'_>>,
) {
    let (keys, values) = (layout.kv_heads * layout.key_dim, layout.kv_heads * layout.value_dim);
    for (number, sequence) in target.sequences.iter().enumerate() {
        for row in sequence.rows.clone() {
            let (index, k, v) =
                (sequence.index_of(row), &k[row * keys..][..keys], &v[row * values..][..values]);
            let page = target.page(number, index, layout.page_bytes());
            write_values(layout, page, index % PAGE_TOKENS, v);
            let Some(open) = &mut open else {
                write_keys(layout.key_format, &mut page[..value_offset(layout)], index % PAGE_TOKENS, k);
                continue;
            };
            let exact = open.page(number, index, layout.open_page_bytes());
            write_keys(KvFormat::F16, exact, index % PAGE_TOKENS, k);
            if index % PAGE_TOKENS == PAGE_TOKENS - 1 {
                let (codes, rest) = page.split_at_mut(value_offset(layout));
                let scales = &mut rest[key_scales_offset(layout) - value_offset(layout)..];
                let scales = bytemuck::cast_slice_mut(&mut scales[..keys * size_of::<u16>()]);
                isa.run(Quantise { exact: bytemuck::cast_slice(exact), codes, scales });
            }
        }
    }
}

/// The keys of a full page in half precision, `[kv_heads * dim][64]`, to codes alike and a scale a channel.
struct Quantise<'a> {
    exact: &'a [u16],
    codes: &'a mut [u8],
    scales: &'a mut [u16],
}

impl Kernel for Quantise<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let channels = self.exact.as_chunks::<PAGE_TOKENS>().0.iter().zip(self.scales);
        for ((exact, scale), codes) in channels.zip(self.codes.as_chunks_mut::<PAGE_TOKENS>().0) {
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
}

/// Writes a token's keys: channel by channel.
fn write_keys(format: KvFormat, page: &mut [u8], token: usize, row: &[f32]) {
    write(page, format, row, |element| element * PAGE_TOKENS + token);
}

/// Writes a token's values, head by head.
fn write_values(layout: &PagedLayout, page: &mut [u8], token: usize, row: &[f32]) {
    let dim = layout.value_dim;
    let scales_start = value_scales_offset(layout);
    if layout.value_format != KvFormat::Int8 {
        return write(&mut page[value_offset(layout)..scales_start], layout.value_format, row, |element| {
            (element / dim * PAGE_TOKENS + token) * dim + element % dim
        });
    }
    let (elements, scales) = page.split_at_mut(scales_start);
    let scales: &mut [u16] =
        bytemuck::cast_slice_mut(&mut scales[..layout.kv_heads * PAGE_TOKENS * size_of::<u16>()]);
    for (head, row) in row.chunks_exact(dim).enumerate() {
        let scale = int8::scale(int8::largest(row.iter().copied()));
        scales[head * PAGE_TOKENS + token] = scale.to_bits();
        let codes = &mut elements[value_offset(layout) + (head * PAGE_TOKENS + token) * dim..][..dim];
        codes.iter_mut().zip(row).for_each(|(code, x)| *code = int8::code(*x, scale.to_f32()) as u8);
    }
}

/// Writes each element of a row to its place.
fn write(out: &mut [u8], format: KvFormat, row: &[f32], place: impl Fn(usize) -> usize) {
    let elements = row.iter().enumerate();
    match format {
        KvFormat::F32 => {
            let out: &mut [f32] = bytemuck::cast_slice_mut(out);
            elements.for_each(|(element, x)| out[place(element)] = *x);
        }
        KvFormat::F16 => {
            let out: &mut [u16] = bytemuck::cast_slice_mut(out);
            elements.for_each(|(element, x)| out[place(element)] = half::f16::from_f32(*x).to_bits());
        }
        KvFormat::Bf16 => {
            let out: &mut [u16] = bytemuck::cast_slice_mut(out);
            elements.for_each(|(element, x)| out[place(element)] = half::bf16::from_f32(*x).to_bits());
        }
        KvFormat::Int8 => unreachable!("what is in int8 has scales and is written above"),
    }
}
