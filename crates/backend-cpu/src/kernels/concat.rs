//! `concat`: columns side by side.

/// The parts, each with its width -> out `[rows, sum of the widths]`.
pub(crate) fn concat<'a>(parts: impl Iterator<Item = (&'a [f32], usize)> + Clone, out: &mut [f32]) {
    let width = parts.clone().map(|(_, width)| width).sum();
    let mut start = 0;
    for (part, part_width) in parts {
        for (out, row) in out.chunks_exact_mut(width).zip(part.chunks_exact(part_width)) {
            out[start..start + part_width].copy_from_slice(row);
        }
        start += part_width;
    }
}
