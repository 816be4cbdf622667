//! `write_kv`: the keys and values of a batch's rows, at their indices in the pages of their sequences.

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
    let value_start = offset + value_offset(layout);
    for sequence in sequences {
        for row in sequence.rows.clone() {
            let index = sequence.index_of(row);
            let page = &mut pages[sequence.page(index) * page_bytes..][..page_bytes];
            let heads =
                |x: &mut [u8], dim, format, row: &[f32]| write_row(x, dim, format, index % PAGE_TOKENS, row);
            let (keys, values) = (layout.kv_heads * layout.key_dim, layout.kv_heads * layout.value_dim);
            heads(&mut page[offset..], layout.key_dim, layout.key_format, &k[row * keys..][..keys]);
            heads(
                &mut page[value_start..],
                layout.value_dim,
                layout.value_format,
                &v[row * values..][..values],
            );
        }
    }
}

/// One row's heads, each `[PAGE_TOKENS, dim]` after the other.
fn write_row(out: &mut [u8], dim: usize, format: KvFormat, token: usize, row: &[f32]) {
    let bytes = dim * format.bytes();
    for (head, values) in row.chunks_exact(dim).enumerate() {
        let out = &mut out[(head * PAGE_TOKENS + token) * bytes..][..bytes];
        match format {
            KvFormat::F32 => out.copy_from_slice(bytemuck::cast_slice(values)),
            KvFormat::F16 => {
                let halves: &mut [u16] = bytemuck::cast_slice_mut(out);
                halves.iter_mut().zip(values).for_each(|(out, x)| *out = half::f16::from_f32(*x).to_bits());
            }
        }
    }
}
