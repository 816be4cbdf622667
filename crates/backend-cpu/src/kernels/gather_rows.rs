//! `select_outputs` and `gather_rows`: rows of a value in another order.

/// x `[rows, width]` -> out `[picked.len(), width]`. The caller has checked that x has these rows.
pub(crate) fn pick(x: &[f32], width: usize, picked: impl Iterator<Item = usize>, out: &mut [f32]) {
    for (out, row) in out.chunks_exact_mut(width).zip(picked) {
        out.copy_from_slice(&x[row * width..][..width]);
    }
}
