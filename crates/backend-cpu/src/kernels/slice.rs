//! `slice`: columns `start .. start + width` of each group of columns.

/// x `[n, columns]` -> out `[n, width]`, where n counts the groups of all rows.
pub(crate) fn slice(x: &[f32], columns: usize, start: usize, width: usize, out: &mut [f32]) {
    for (out, group) in out.chunks_exact_mut(width).zip(x.chunks_exact(columns)) {
        out.copy_from_slice(&group[start..start + width]);
    }
}
