//! `pool`: one vector of unit length a sequence, from its first, its last or all of its rows.

use super::{Crew, norm};
use crate::simd::{Kernel, Lanes};
use gannet_ops::PoolKind;
use std::ops::Range;

/// x `[tokens, width]`, the rows of each sequence -> out `[sequences, width]`.
pub(crate) fn pool(
    crew: &mut Crew<'_>,
    kind: PoolKind,
    (x, width): (&[f32], usize),
    sequences: &[Range<usize>],
    out: &mut [f32],
) {
    let isa = crew.isa;
    crew.rows(out, width, 1, |sequence, out, _| {
        let rows = sequences[sequence].clone();
        let counted = match kind {
            PoolKind::First => rows.start..rows.start + 1,
            PoolKind::Last => rows.end - 1..rows.end,
            PoolKind::Mean => rows,
        };
        isa.run(Mean { rows: &x[counted.start * width..counted.end * width], out });
    });
}

/// The mean of rows, divided by its length.
struct Mean<'a> {
    rows: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for Mean<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let width = self.out.len();
        self.out.fill(0.0);
        for row in self.rows.chunks_exact(width) {
            self.out.iter_mut().zip(row).for_each(|(out, x)| *out += x);
        }
        let count = (self.rows.len() / width) as f32;
        self.out.iter_mut().for_each(|out| *out /= count);
        let length = norm::dot::<L>(self.out, self.out).sqrt().max(f32::MIN_POSITIVE);
        self.out.iter_mut().for_each(|out| *out /= length);
    }
}
