//! The arithmetic that shows a processor's float32 peak: `x = x * factor + factor`, several times over numbers that the
//! first cache holds, compiled for each set of vector instructions.
//!
//! A number is loaded once for [`DEPTH`] multiply-adds, and neighbours don't wait for each other, so that nothing but the
//! multiply-adds counts. Keeping all numbers in registers instead was as fast where the compiler made vector code of it,
//! which it often didn't. Processors with the first AVX-512 alone take the AVX2 version: the macro leaves them out.

use multiversion::multiversion;

/// Numbers that are worked on: 8 KiB.
pub(super) const NUMBERS: usize = 2048;
/// Multiply-adds of each.
const DEPTH: usize = 16;
/// Operations of one call.
pub(super) const OPERATIONS: usize = 2 * DEPTH * NUMBERS;

/// Works on the numbers once.
#[multiversion(targets("x86_64+avx512f+avx512vl", "x86_64+avx2+fma", "aarch64+neon"))]
pub(super) fn multiply_add(numbers: &mut [f32; NUMBERS], factor: f32) {
    for number in numbers {
        let mut sum = *number;
        for _ in 0..DEPTH {
            sum = sum.mul_add(factor, factor);
        }
        *number = sum;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_takes_its_multiply_adds() {
        let mut numbers = [1.0; NUMBERS];
        multiply_add(&mut numbers, 1.0);
        assert_eq!(numbers, [1.0 + DEPTH as f32; NUMBERS]);
    }
}
