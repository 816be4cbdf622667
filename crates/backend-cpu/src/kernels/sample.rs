//! `sample`: the passes of a draw over all scores of a row, by the team. The draw itself is the host's.

use super::Crew;
use crate::simd::{Kernel, Lanes};
use gannet_ops::numerics::VOCABULARY_PARTITION;
use gannet_ops::sampling::passes::{GROUP, MaskedRow, Passes, Scale, exponentials, masses, maxima};
use std::sync::atomic::{AtomicBool, Ordering};

/// Groups of a part of the work: 16,384 tokens.
const GROUPS_PER_PART: usize = 256;
/// Partitions of a part of the work.
const PARTITIONS_PER_PART: usize = 4;

impl Passes for Crew<'_> {
    fn maxima(&mut self, row: MaskedRow<'_>, largest: &mut [f32]) -> bool {
        let isa = self.isa;
        let is_finite = AtomicBool::new(true);
        self.rows(largest, 1, GROUPS_PER_PART, |first, largest, _| {
            let row = row.part(first * GROUP, largest.len() * GROUP);
            if !isa.run(Maxima { row, largest }) {
                is_finite.store(false, Ordering::Relaxed);
            }
        });
        is_finite.into_inner()
    }

    fn exponentials(&mut self, row: MaskedRow<'_>, scale: Scale, sums: &mut [f32]) {
        let isa = self.isa;
        self.rows(sums, 1, PARTITIONS_PER_PART, |first, sums, _| {
            let row = row.part(first * VOCABULARY_PARTITION, sums.len() * VOCABULARY_PARTITION);
            isa.run(Exponentials { row, scale, sums });
        });
    }

    fn masses(&mut self, row: MaskedRow<'_>, scale: Scale, sums: &mut [f64]) {
        let isa = self.isa;
        self.rows(sums, 1, PARTITIONS_PER_PART, |first, sums, _| {
            let row = row.part(first * VOCABULARY_PARTITION, sums.len() * VOCABULARY_PARTITION);
            isa.run(Masses { row, scale, sums });
        });
    }
}

struct Maxima<'a> {
    row: MaskedRow<'a>,
    largest: &'a mut [f32],
}

impl Kernel for Maxima<'_> {
    type Output = bool;

    #[inline(always)]
    fn run<L: Lanes>(self) -> bool {
        maxima(self.row, self.largest)
    }
}

struct Exponentials<'a> {
    row: MaskedRow<'a>,
    scale: Scale,
    sums: &'a mut [f32],
}

impl Kernel for Exponentials<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        exponentials(self.row, self.scale, self.sums);
    }
}

struct Masses<'a> {
    row: MaskedRow<'a>,
    scale: Scale,
    sums: &'a mut [f64],
}

impl Kernel for Masses<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        masses(self.row, self.scale, self.sums);
    }
}
