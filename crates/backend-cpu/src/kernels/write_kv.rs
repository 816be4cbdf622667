//! `write_kv`: the keys and values of a batch's rows, at their indices in the pages of their sequences.
//!
//! A key's channels go to as many lines of its page as there are channels; the lines stay in a cache until the
//! tokens beside it come.

use super::pages::{Sequence, value_offset};
use gannet_ops::{KvFormat, PAGE_TOKENS, PagedLayout};

/// k `[tokens, kv_heads * key_dim]`, v `[tokens, kv_heads * value_dim]` -> the layer's part, `offset` bytes
/// into each page of `page_bytes`. A copy bound by memory, so the caller's thread does all.
pub(crate) fn write_kv(
    layout: &PagedLayout,
    [k, v]: [&[f32]; 2],
    sequences: &[Sequence<'_>],
    (page_bytes, offset): (usize, usize),
    pages: &mut [u8],
) {
    let (keys, values) = (layout.kv_heads * layout.key_dim, layout.kv_heads * layout.value_dim);
    for sequence in sequences {
        for row in sequence.rows.clone() {
            let index = sequence.index_of(row);
            let page = &mut pages[sequence.page(index) * page_bytes + offset..][..layout.page_bytes()];
            let (page_keys, page_values) = page.split_at_mut(value_offset(layout));
            let token = index % PAGE_TOKENS;
            write(page_keys, layout.key_format, &k[row * keys..][..keys], |element| {
                element * PAGE_TOKENS + token
            });
            let dim = layout.value_dim;
            write(page_values, layout.value_format, &v[row * values..][..values], |element| {
                (element / dim * PAGE_TOKENS + token) * dim + element % dim
            });
        }
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
    }
}
