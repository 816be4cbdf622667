//! `rope`: pairs `(i, i + pairs)` of each head, rotated by the angles of the row's position.
//!
//! ```text
//! y[i] = x[i] cos - x[i + pairs] sin,   y[i + pairs] = x[i + pairs] cos + x[i] sin,   angle = position * frequency
//! ```

use super::Crew;
use crate::simd::{Kernel, Lanes};
use gannet_ops::RopeTable;

/// Cosines and sines of the rows of a batch, shared by all layers: `[tokens, 2, pairs]`.
#[derive(Default)]
pub(crate) struct Angles {
    pairs: usize,
    cos_sin: Vec<f32>,
}

impl Angles {
    /// The angles of rows at these positions on the three axes.
    pub(crate) fn fill(&mut self, table: &RopeTable, positions: impl Iterator<Item = [u32; 3]>) {
        self.pairs = table.inverse_frequencies.len();
        self.cos_sin.clear();
        for position in positions {
            let angle = |(axis, frequency): (&u8, &f32)| position[usize::from(*axis)] as f32 * frequency;
            let angles = || table.axes.iter().zip(&table.inverse_frequencies).map(angle);
            self.cos_sin.extend(angles().map(|angle| angle.cos() * table.attention_scale));
            self.cos_sin.extend(angles().map(|angle| angle.sin() * table.attention_scale));
        }
    }

    /// Cosines and sines of a row.
    fn row(&self, row: usize) -> (&[f32], &[f32]) {
        self.cos_sin[row * 2 * self.pairs..][..2 * self.pairs].split_at(self.pairs)
    }
}

/// x `[tokens, width]` of heads of `head_dim` -> out as x.
pub(crate) fn rope(
    crew: &mut Crew<'_>,
    angles: &Angles,
    (width, head_dim): (usize, usize),
    x: &[f32],
    out: &mut [f32],
) {
    let isa = crew.isa;
    crew.light_rows(out, width, |first, out| {
        for (row, out) in out.chunks_exact_mut(width).enumerate() {
            let row = first + row;
            let (cos, sin) = angles.row(row);
            isa.run(Row { x: &x[row * width..][..width], head_dim, cos, sin, out });
        }
    });
}

struct Row<'a> {
    x: &'a [f32],
    head_dim: usize,
    cos: &'a [f32],
    sin: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for Row<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let pairs = self.cos.len();
        for (x, out) in self.x.chunks_exact(self.head_dim).zip(self.out.chunks_exact_mut(self.head_dim)) {
            let (a, b, passed) = (&x[..pairs], &x[pairs..2 * pairs], &x[2 * pairs..]);
            let (first, rest) = out.split_at_mut(pairs);
            let (second, beyond) = rest.split_at_mut(pairs);
            for i in 0..pairs {
                first[i] = a[i] * self.cos[i] - b[i] * self.sin[i];
                second[i] = b[i] * self.cos[i] + a[i] * self.sin[i];
            }
            beyond.copy_from_slice(passed);
        }
    }
}
