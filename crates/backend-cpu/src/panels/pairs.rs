//! Panels of bf16 numbers: pairs of columns of sixteen rows.
//!
//! ```text
//! panel  16 rows of the matrix, one a lane; its registers follow each other by ascending pair of columns
//! register  of each lane after another, the number of the even column and that of the odd one
//! ```
//!
//! An odd number of columns has a zero beyond its last.

use crate::simd::REGISTER;

/// Bytes of a number.
const NUMBER: usize = 2;

/// Bytes of a panel of a matrix with so many columns.
pub(super) const fn panel_bytes(columns: usize) -> usize {
    columns.div_ceil(2) * REGISTER
}

/// Fills a zeroed panel with up to sixteen rows, each of `row_bytes`.
pub(super) fn pack(rows: &[u8], row_bytes: usize, panel: &mut [u8]) {
    for (lane, row) in rows.chunks_exact(row_bytes).enumerate() {
        for (pair, register) in row.chunks(2 * NUMBER).zip(panel.chunks_exact_mut(REGISTER)) {
            register[2 * NUMBER * lane..][..pair.len()].copy_from_slice(pair);
        }
    }
}

/// Decodes the row of a lane.
pub(super) fn decode_row(panel: &[u8], lane: usize, out: &mut [f32]) {
    for (out, register) in out.chunks_mut(2).zip(panel.chunks_exact(REGISTER)) {
        let pair = register[2 * NUMBER * lane..].as_chunks::<NUMBER>().0;
        out.iter_mut().zip(pair).for_each(|(out, bits)| *out = half::bf16::from_le_bytes(*bits).to_f32());
    }
}
