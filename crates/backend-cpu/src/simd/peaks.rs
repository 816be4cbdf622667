//! Loops that do nothing but multiply and add: what a level of instructions can do at most.
//!
//! A loop keeps [`CHAINS`] sums in registers, so that neighbours don't wait for each other, and reads no memory. Int8
//! takes a dot product where the level has one, else products of pairs, widened.

use super::IsaLevel;
use std::hint::black_box;

/// Sums that are worked on at once: with the operands they fit sixteen registers, and cover every latency.
const CHAINS: usize = 12;

/// One kind of arithmetic on one processor.
#[derive(Clone, Copy)]
pub(crate) struct Peak {
    /// The instruction that is repeated.
    pub(crate) instruction: &'static str,
    /// Operations of a round; a multiply-add is two.
    pub(crate) operations: usize,
    /// Does so many rounds. Only for processors on which this peak was found.
    run: unsafe fn(usize),
}

impl Peak {
    const fn new(instruction: &'static str, multiply_adds: usize, run: unsafe fn(usize)) -> Self {
        Self { instruction, operations: 2 * multiply_adds * CHAINS, run }
    }

    /// Does so many rounds.
    pub(crate) fn run(&self, rounds: usize) {
        // SAFETY: the functions below give a peak out only where the processor has what its loop needs.
        unsafe { (self.run)(rounds) };
    }
}

/// Each sum becomes `$step` of itself, `$rounds` times.
macro_rules! repeat {
    ($rounds:expr, $zero:expr, |$sum:ident| $step:expr) => {{
        let mut sums = [$zero; CHAINS];
        for _ in 0..$rounds {
            for place in 0..CHAINS {
                let $sum = sums[place];
                sums[place] = $step;
            }
        }
        black_box(sums);
    }};
}

/// Float32 multiply-adds.
pub(crate) fn float32(level: IsaLevel) -> Peak {
    assert!(level.is_available(), "a peak is that of a level that the processor has");
    match level {
        IsaLevel::Scalar => Peak::new("multiply, add", 1, scalar_float32),
        #[cfg(target_arch = "aarch64")]
        IsaLevel::Neon | IsaLevel::NeonDots => Peak::new("fmla", 4, neon::float32),
        #[cfg(not(target_arch = "aarch64"))]
        IsaLevel::Neon | IsaLevel::NeonDots => unreachable!("the level is available"),
        #[cfg(target_arch = "x86_64")]
        IsaLevel::Avx2 | IsaLevel::AvxVnni => Peak::new("vfmadd ymm", 8, x86::float32_256),
        #[cfg(target_arch = "x86_64")]
        IsaLevel::Avx512 | IsaLevel::Avx512Vnni | IsaLevel::Avx512Bf16 => {
            Peak::new("vfmadd zmm", 16, x86::float32_512)
        }
        #[cfg(not(target_arch = "x86_64"))]
        IsaLevel::Avx2
        | IsaLevel::AvxVnni
        | IsaLevel::Avx512
        | IsaLevel::Avx512Vnni
        | IsaLevel::Avx512Bf16 => unreachable!("the level is available"),
    }
}

/// Products of bytes, summed in 32 bits.
pub(crate) fn int8(level: IsaLevel) -> Peak {
    assert!(level.is_available(), "a peak is that of a level that the processor has");
    match level {
        IsaLevel::Scalar => Peak::new("multiply, add", 1, scalar_int8),
        #[cfg(target_arch = "aarch64")]
        IsaLevel::Neon => Peak::new("smull, sadalp", 8, neon::widened_int8),
        #[cfg(target_arch = "aarch64")]
        IsaLevel::NeonDots if std::arch::is_aarch64_feature_detected!("i8mm") => {
            Peak::new("smmla", 32, neon::matrix_int8)
        }
        #[cfg(target_arch = "aarch64")]
        IsaLevel::NeonDots => Peak::new("sdot", 16, neon::dot_int8),
        #[cfg(not(target_arch = "aarch64"))]
        IsaLevel::Neon | IsaLevel::NeonDots => unreachable!("the level is available"),
        #[cfg(target_arch = "x86_64")]
        IsaLevel::Avx2 => Peak::new("vpmaddubsw, vpmaddwd, vpaddd ymm", 32, x86::widened_int8_256),
        #[cfg(target_arch = "x86_64")]
        IsaLevel::AvxVnni => Peak::new("vpdpbusd ymm", 32, x86::dot_int8_256),
        #[cfg(target_arch = "x86_64")]
        IsaLevel::Avx512 => Peak::new("vpmaddubsw, vpmaddwd, vpaddd zmm", 64, x86::widened_int8_512),
        #[cfg(target_arch = "x86_64")]
        IsaLevel::Avx512Vnni | IsaLevel::Avx512Bf16 => Peak::new("vpdpbusd zmm", 64, x86::dot_int8_512),
        #[cfg(not(target_arch = "x86_64"))]
        IsaLevel::Avx2
        | IsaLevel::AvxVnni
        | IsaLevel::Avx512
        | IsaLevel::Avx512Vnni
        | IsaLevel::Avx512Bf16 => unreachable!("the level is available"),
    }
}

/// Products of bf16 numbers, summed in float32; `None` where the level's kernels widen them.
pub(crate) fn bf16(level: IsaLevel) -> Option<Peak> {
    assert!(level.is_available(), "a peak is that of a level that the processor has");
    match level {
        #[cfg(target_arch = "x86_64")]
        IsaLevel::Avx512Bf16 => Some(Peak::new("vdpbf16ps zmm", 32, x86::dot_bf16_512)),
        #[cfg(not(target_arch = "x86_64"))]
        IsaLevel::Avx512Bf16 => unreachable!("the level is available"),
        IsaLevel::Scalar
        | IsaLevel::Neon
        | IsaLevel::NeonDots
        | IsaLevel::Avx2
        | IsaLevel::AvxVnni
        | IsaLevel::Avx512
        | IsaLevel::Avx512Vnni => None,
    }
}

fn scalar_float32(rounds: usize) {
    let (factor, added) = black_box((0.5f32, 0.25f32));
    repeat!(rounds, 1.0f32, |sum| sum * factor + added);
}

fn scalar_int8(rounds: usize) {
    let (factor, added) = black_box((3i32, 5i32));
    repeat!(rounds, 1i32, |sum| sum.wrapping_mul(factor).wrapping_add(added));
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::CHAINS;
    use std::arch::x86_64::*;
    use std::hint::black_box;

    #[target_feature(enable = "avx2,fma")]
    pub(super) fn float32_256(rounds: usize) {
        let half = black_box(_mm256_set1_ps(0.5));
        repeat!(rounds, half, |sum| _mm256_fmadd_ps(sum, half, half));
    }

    #[target_feature(enable = "avx512f")]
    pub(super) fn float32_512(rounds: usize) {
        let half = black_box(_mm512_set1_ps(0.5));
        repeat!(rounds, half, |sum| _mm512_fmadd_ps(sum, half, half));
    }

    #[target_feature(enable = "avx2,avxvnni")]
    pub(super) fn dot_int8_256(rounds: usize) {
        let codes = black_box(_mm256_set1_epi8(3));
        repeat!(rounds, codes, |sum| _mm256_dpbusd_avx_epi32(sum, codes, codes));
    }

    #[target_feature(enable = "avx512f,avx512vnni")]
    pub(super) fn dot_int8_512(rounds: usize) {
        let codes = black_box(_mm512_set1_epi8(3));
        repeat!(rounds, codes, |sum| _mm512_dpbusd_epi32(sum, codes, codes));
    }

    // A sum is an operand here, since the product of two constants would be taken out of the loop.
    #[target_feature(enable = "avx2")]
    pub(super) fn widened_int8_256(rounds: usize) {
        let codes = black_box(_mm256_set1_epi8(3));
        let ones = black_box(_mm256_set1_epi16(1));
        repeat!(rounds, codes, |sum| {
            _mm256_add_epi32(codes, _mm256_madd_epi16(_mm256_maddubs_epi16(sum, codes), ones))
        });
    }

    #[target_feature(enable = "avx512f,avx512bw")]
    pub(super) fn widened_int8_512(rounds: usize) {
        let codes = black_box(_mm512_set1_epi8(3));
        let ones = black_box(_mm512_set1_epi16(1));
        repeat!(rounds, codes, |sum| {
            _mm512_add_epi32(codes, _mm512_madd_epi16(_mm512_maddubs_epi16(sum, codes), ones))
        });
    }

    #[target_feature(enable = "avx512f,avx512bf16")]
    pub(super) fn dot_bf16_512(rounds: usize) {
        let half = black_box(_mm512_set1_ps(0.5));
        let halves = black_box(_mm512_cvtne2ps_pbh(half, half));
        repeat!(rounds, half, |sum| _mm512_dpbf16_ps(sum, halves, halves));
    }
}

#[cfg(target_arch = "aarch64")]
mod neon {
    use super::CHAINS;
    use std::arch::aarch64::*;
    use std::arch::asm;
    use std::hint::black_box;

    #[target_feature(enable = "neon")]
    pub(super) fn float32(rounds: usize) {
        let half = black_box(vdupq_n_f32(0.5));
        repeat!(rounds, half, |sum| vfmaq_f32(half, sum, half));
    }

    // A sum is an operand here, since the product of two constants would be taken out of the loop.
    #[target_feature(enable = "neon")]
    pub(super) fn widened_int8(rounds: usize) {
        let codes = black_box(vdup_n_s8(3));
        repeat!(rounds, vdupq_n_s32(1), |sum| {
            vpadalq_s16(sum, vmull_s8(vget_low_s8(vreinterpretq_s8_s32(sum)), codes))
        });
    }

    /// One instruction that adds products of two registers to a third.
    macro_rules! product {
        ($name:ident, $feature:literal, $instruction:literal) => {
            #[target_feature(enable = $feature)]
            pub(super) fn $name(rounds: usize) {
                let codes = black_box(vdupq_n_s8(3));
                repeat!(rounds, codes, |sum| {
                    let mut sum: int8x16_t = sum;
                    // SAFETY: the instruction changes one register, and the caller vouches for the feature.
                    unsafe {
                        asm!($instruction, sum = inout(vreg) sum, codes = in(vreg) codes,
                             options(pure, nomem, nostack, preserves_flags));
                    }
                    sum
                });
            }
        };
    }

    product!(dot_int8, "neon,dotprod", "sdot {sum:v}.4s, {codes:v}.16b, {codes:v}.16b");
    product!(matrix_int8, "neon,i8mm", "smmla {sum:v}.4s, {codes:v}.16b, {codes:v}.16b");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_has_its_loops() {
        for level in IsaLevel::available() {
            for peak in [Some(float32(level)), Some(int8(level)), bf16(level)].into_iter().flatten() {
                peak.run(3);
                assert!(peak.operations >= 2 * CHAINS && !peak.instruction.is_empty(), "{level}");
            }
        }
    }
}
