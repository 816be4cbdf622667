//! The arithmetic that shows a processor's float32 peak: `x = x * factor + factor` in more chains than a multiply-add
//! has cycles, all in registers, compiled for each set of vector instructions.
//!
//! Ten chains of sixteen lanes fill two 512-bit units of four or five cycles' latency. Sixteen registers of 256 bits hold
//! only six, which are enough for them; so both are tried, and the faster one is the peak.

use multiversion::multiversion;

const LANES: usize = 16;
/// Operations of one round of either.
pub(super) const OPERATIONS: usize = 2 * LANES * 30;

/// `rounds` rounds in ten chains; the sum makes sure that all of it is done.
#[multiversion(targets("x86_64+avx512f+avx512vl", "x86_64+avx2+fma", "aarch64+neon"))]
pub(super) fn ten_chains(rounds: usize, factor: f32) -> f32 {
    chains::<10>(3 * rounds, factor)
}

/// The same in six chains.
#[multiversion(targets("x86_64+avx512f+avx512vl", "x86_64+avx2+fma", "aarch64+neon"))]
pub(super) fn six_chains(rounds: usize, factor: f32) -> f32 {
    chains::<6>(5 * rounds, factor)
}

#[inline(always)]
fn chains<const COUNT: usize>(rounds: usize, factor: f32) -> f32 {
    let mut lanes = [[1.0f32; LANES]; COUNT];
    for _ in 0..rounds {
        for chain in &mut lanes {
            for lane in chain {
                *lane = lane.mul_add(factor, factor);
            }
        }
    }
    lanes.iter().flatten().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_do_as_many_operations() {
        // Each operation adds a half to a lane that begins with 1, and half of them are multiplications by 1.
        let counted = |sum: f32, chains: usize| 2.0 * (sum - (LANES * chains) as f32);
        assert_eq!(counted(ten_chains(7, 1.0), 10), (7 * OPERATIONS) as f32);
        assert_eq!(counted(six_chains(7, 1.0), 6), (7 * OPERATIONS) as f32);
    }
}
