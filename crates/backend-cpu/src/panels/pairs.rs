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

/// Registers of a panel that are filled together: they stay in the first cache level while each row brings its lane.
const NEAR: usize = 64;

/// Fills a zeroed panel with up to sixteen rows, each of `row_bytes`.
pub(super) fn pack(rows: &[u8], row_bytes: usize, panel: &mut [u8]) {
    for (part, registers) in panel.chunks_mut(NEAR * REGISTER).enumerate() {
        let start = part * NEAR * 2 * NUMBER;
        for (lane, row) in rows.chunks_exact(row_bytes).enumerate() {
            let row = &row[start..row_bytes.min(start + NEAR * 2 * NUMBER)];
            let (pairs, last) = row.as_chunks::<{ 2 * NUMBER }>();
            let mut places = registers.chunks_exact_mut(REGISTER).map(|to| &mut to[2 * NUMBER * lane..]);
            pairs.iter().zip(&mut places).for_each(|(pair, to)| to[..2 * NUMBER].copy_from_slice(pair));
            places.take(1).for_each(|to| to[..last.len()].copy_from_slice(last));
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
