//! Lanes for AVX2 with FMA and F16C: two registers, lanes 0 to 7 and 8 to 15.

use super::{Kernel, Lanes, REGISTER};
use gannet_ops::numerics::LANES;
use std::arch::x86_64::*;

pub(super) fn is_available() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("lzcnt")
        && is_x86_feature_detected!("popcnt")
}

/// Runs a kernel as AVX2 code.
///
/// # Safety
/// The processor has the features named here, which [`is_available`] checks.
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
pub(super) unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<F32x16>()
}

#[derive(Clone, Copy)]
pub(super) struct F32x16(__m256, __m256);

impl F32x16 {
    #[inline(always)]
    pub(super) fn new(low: __m256, high: __m256) -> Self {
        Self(low, high)
    }
}

impl Lanes for F32x16 {
    const HOLDS_SIXTEEN: bool = false;

    #[inline(always)]
    fn half(bits: u16) -> f32 {
        // SAFETY: as in `splat`; all works on registers.
        unsafe { _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(i32::from(bits)))) }
    }

    #[inline(always)]
    fn splat(x: f32) -> Self {
        // SAFETY: `Lanes` are used inside `run` alone, whose caller vouches for AVX2.
        let half = unsafe { _mm256_set1_ps(x) };
        Self(half, half)
    }

    #[inline(always)]
    fn load(from: &[f32; LANES]) -> Self {
        // SAFETY: as in `splat`; unaligned loads of the two halves of the 64 bytes behind the reference.
        unsafe { Self(_mm256_loadu_ps(from.as_ptr()), _mm256_loadu_ps(from.as_ptr().add(8))) }
    }

    #[inline(always)]
    fn load_f16(from: &[u16; LANES]) -> Self {
        // SAFETY: as in `splat`; unaligned loads of the two halves of the 32 bytes behind the reference.
        unsafe {
            let (low, high) =
                (_mm_loadu_si128(from.as_ptr().cast()), _mm_loadu_si128(from.as_ptr().add(8).cast()));
            Self(_mm256_cvtph_ps(low), _mm256_cvtph_ps(high))
        }
    }

    #[inline(always)]
    fn load_bf16(from: &[u16; LANES]) -> Self {
        // SAFETY: as in `splat`; unaligned loads of the two halves of the 32 bytes behind the reference.
        unsafe {
            let low = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.as_ptr().cast()));
            let high = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.as_ptr().add(8).cast()));
            Self(
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(low)),
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(high)),
            )
        }
    }

    #[inline(always)]
    fn load_pairs(from: &[u8; REGISTER]) -> (Self, Self) {
        // SAFETY: as in `splat`; unaligned loads of the two halves of the 64 bytes behind the reference.
        unsafe {
            let (low, high) =
                (_mm256_loadu_si256(from.as_ptr().cast()), _mm256_loadu_si256(from.as_ptr().add(32).cast()));
            let upper = _mm256_set1_epi32(0xffff_0000_u32 as i32);
            let even = |pairs| _mm256_castsi256_ps(_mm256_slli_epi32::<16>(pairs));
            let odd = |pairs| _mm256_castsi256_ps(_mm256_and_si256(pairs, upper));
            (Self(even(low), even(high)), Self(odd(low), odd(high)))
        }
    }

    #[inline(always)]
    fn store(self, to: &mut [f32; LANES]) {
        // SAFETY: as in `splat`; unaligned stores to the two halves of the 64 bytes behind the reference.
        unsafe {
            _mm256_storeu_ps(to.as_mut_ptr(), self.0);
            _mm256_storeu_ps(to.as_mut_ptr().add(8), self.1);
        }
    }

    #[inline(always)]
    fn store_f16(self, to: &mut [u16; LANES]) {
        // SAFETY: as in `splat`; unaligned stores to the two halves of the 32 bytes behind the reference.
        unsafe {
            let low = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.0);
            let high = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.1);
            _mm_storeu_si128(to.as_mut_ptr().cast(), low);
            _mm_storeu_si128(to.as_mut_ptr().add(8).cast(), high);
        }
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        // SAFETY: as in `splat`.
        unsafe { Self(_mm256_mul_ps(self.0, other.0), _mm256_mul_ps(self.1, other.1)) }
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        // SAFETY: as in `splat`.
        unsafe { Self(_mm256_add_ps(self.0, other.0), _mm256_add_ps(self.1, other.1)) }
    }

    #[inline(always)]
    fn mul_add(self, factor: Self, added: Self) -> Self {
        // SAFETY: as in `splat`.
        unsafe {
            Self(_mm256_fmadd_ps(self.0, factor.0, added.0), _mm256_fmadd_ps(self.1, factor.1, added.1))
        }
    }

    #[inline(always)]
    fn larger(self, other: Self) -> Self {
        // SAFETY: as in `splat`.
        unsafe { Self(_mm256_max_ps(self.0, other.0), _mm256_max_ps(self.1, other.1)) }
    }

    #[inline(always)]
    fn fold(self) -> f32 {
        // SAFETY: as in `splat`; the rest works on registers.
        unsafe {
            let eight = _mm256_add_ps(self.0, self.1);
            let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        }
    }

    #[inline(always)]
    fn largest(self) -> f32 {
        // SAFETY: as in `splat`.
        largest_of_eight(unsafe { _mm256_max_ps(self.1, self.0) })
    }

    #[inline(always)]
    fn fold_each(lanes: [Self; LANES]) -> Self {
        Self(fold_eight(&lanes, 0), fold_eight(&lanes, 8))
    }

    #[inline(always)]
    fn from_i8(codes: &[u8; LANES]) -> Self {
        // SAFETY: as in `splat`; an unaligned load of the 16 bytes behind the reference.
        unsafe {
            let bytes = _mm_loadu_si128(codes.as_ptr().cast());
            let (low, high) = (_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128::<8>(bytes)));
            Self(_mm256_cvtepi32_ps(low), _mm256_cvtepi32_ps(high))
        }
    }

    #[inline(always)]
    fn low_nibbles(packed: &[u8; LANES], value: impl Fn(Self) -> Self) -> Self {
        // SAFETY: as in `splat`; an unaligned load of the 16 bytes behind the reference.
        let codes = unsafe { _mm_and_si128(_mm_loadu_si128(packed.as_ptr().cast()), _mm_set1_epi8(15)) };
        value(from_u8(codes))
    }

    #[inline(always)]
    fn high_nibbles(packed: &[u8; LANES], value: impl Fn(Self) -> Self) -> Self {
        // SAFETY: as in `splat`; an unaligned load of the 16 bytes behind the reference.
        let codes = unsafe {
            _mm_and_si128(_mm_srli_epi16::<4>(_mm_loadu_si128(packed.as_ptr().cast())), _mm_set1_epi8(15))
        };
        value(from_u8(codes))
    }
}

#[inline(always)]
fn from_u8(bytes: __m128i) -> F32x16 {
    // SAFETY: called by `Lanes` alone, so inside `run`.
    unsafe {
        let (low, high) = (_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128::<8>(bytes)));
        F32x16(_mm256_cvtepi32_ps(low), _mm256_cvtepi32_ps(high))
    }
}

/// The largest lane, each beside the one half as far as the time before.
#[inline(always)]
pub(super) fn largest_of_eight(eight: __m256) -> f32 {
    // SAFETY: called by `Lanes` alone, so inside `run`.
    unsafe {
        let four = _mm_max_ps(_mm256_extractf128_ps::<1>(eight), _mm256_castps256_ps128(eight));
        let two = _mm_max_ps(_mm_movehl_ps(four, four), four);
        _mm_cvtss_f32(_mm_max_ss(_mm_movehdup_ps(two), two))
    }
}

/// The folds of `lanes[first .. first + 8]`. A lane of 128 bits holds one of sums 0 and 4 after two steps,
/// and the last two put its neighbours in between.
#[inline(always)]
fn fold_eight(lanes: &[F32x16; LANES], first: usize) -> __m256 {
    let four = &lanes[first..first + 8];
    let even = fold_pairs(fold_to_four(four[0], four[4]), fold_to_four(four[1], four[5]));
    let odd = fold_pairs(fold_to_four(four[2], four[6]), fold_to_four(four[3], four[7]));
    // SAFETY: called by `Lanes` alone, so inside `run`.
    unsafe {
        let low = _mm256_shuffle_ps::<0b10_00_10_00>(even, odd);
        _mm256_add_ps(low, _mm256_shuffle_ps::<0b11_01_11_01>(even, odd))
    }
}

/// Lane i plus lane i + 8, then plus lane i + 4, of two sums: `[a, b]`, each of four lanes.
#[inline(always)]
fn fold_to_four(a: F32x16, b: F32x16) -> __m256 {
    // SAFETY: called by `Lanes` alone, so inside `run`.
    unsafe {
        let (a, b) = (_mm256_add_ps(a.0, a.1), _mm256_add_ps(b.0, b.1));
        _mm256_add_ps(_mm256_permute2f128_ps::<0x20>(a, b), _mm256_permute2f128_ps::<0x31>(a, b))
    }
}

/// Lane i plus lane i + 2 of four sums: `[a 0..2, c 0..2, b 0..2, d 0..2]`.
#[inline(always)]
fn fold_pairs(ab: __m256, cd: __m256) -> __m256 {
    // SAFETY: called by `Lanes` alone, so inside `run`.
    unsafe {
        let low = _mm256_shuffle_ps::<0b01_00_01_00>(ab, cd);
        _mm256_add_ps(low, _mm256_shuffle_ps::<0b11_10_11_10>(ab, cd))
    }
}
