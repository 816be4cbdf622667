//! Lanes for AVX-512: one register.

use super::avx2::largest_of_eight;
use super::{Kernel, Lanes, REGISTER};
use gannet_ops::numerics::LANES;
use std::arch::x86_64::*;

pub(super) fn is_available() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
}

/// Runs a kernel as AVX-512 code.
///
/// # Safety
/// The processor has the features named here, which [`is_available`] and `avx2::is_available` check.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
pub(super) unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<F32x16>()
}

#[derive(Clone, Copy)]
pub(super) struct F32x16(__m512);

impl F32x16 {
    #[inline(always)]
    pub(super) fn new(lanes: __m512) -> Self {
        Self(lanes)
    }

    #[inline(always)]
    pub(super) fn register(self) -> __m512 {
        self.0
    }
}

impl Lanes for F32x16 {
    const HOLDS_SIXTEEN: bool = true;

    #[inline(always)]
    fn half(bits: u16) -> f32 {
        // SAFETY: as in `splat`; all works on registers.
        unsafe { _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(i32::from(bits)))) }
    }

    #[inline(always)]
    fn splat(x: f32) -> Self {
        // SAFETY: `Lanes` are used inside `run` alone, whose caller vouches for AVX-512.
        Self(unsafe { _mm512_set1_ps(x) })
    }

    #[inline(always)]
    fn load(from: &[f32; LANES]) -> Self {
        // SAFETY: as in `splat`; an unaligned load of the 64 bytes behind the reference.
        Self(unsafe { _mm512_loadu_ps(from.as_ptr()) })
    }

    #[inline(always)]
    fn load_f16(from: &[u16; LANES]) -> Self {
        // SAFETY: as in `splat`; an unaligned load of the 32 bytes behind the reference.
        Self(unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.as_ptr().cast())) })
    }

    #[inline(always)]
    fn load_bf16(from: &[u16; LANES]) -> Self {
        // SAFETY: as in `splat`; an unaligned load of the 32 bytes behind the reference.
        unsafe {
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.as_ptr().cast()));
            Self(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide)))
        }
    }

    #[inline(always)]
    fn load_pairs(from: &[u8; REGISTER]) -> (Self, Self) {
        // SAFETY: as in `splat`; an unaligned load of the 64 bytes behind the reference.
        unsafe {
            let pairs = _mm512_loadu_si512(from.as_ptr().cast());
            let odd = _mm512_and_si512(pairs, _mm512_set1_epi32(0xffff_0000_u32 as i32));
            let even = _mm512_slli_epi32::<16>(pairs);
            (Self(_mm512_castsi512_ps(even)), Self(_mm512_castsi512_ps(odd)))
        }
    }

    #[inline(always)]
    fn store(self, to: &mut [f32; LANES]) {
        // SAFETY: as in `splat`; an unaligned store to the 64 bytes behind the reference.
        unsafe { _mm512_storeu_ps(to.as_mut_ptr(), self.0) }
    }

    #[inline(always)]
    fn store_f16(self, to: &mut [u16; LANES]) {
        // SAFETY: as in `splat`; an unaligned store to the 32 bytes behind the reference.
        unsafe {
            let halves = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.0);
            _mm256_storeu_si256(to.as_mut_ptr().cast(), halves);
        }
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        // SAFETY: as in `splat`.
        Self(unsafe { _mm512_mul_ps(self.0, other.0) })
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        // SAFETY: as in `splat`.
        Self(unsafe { _mm512_add_ps(self.0, other.0) })
    }

    #[inline(always)]
    fn mul_add(self, factor: Self, added: Self) -> Self {
        // SAFETY: as in `splat`.
        Self(unsafe { _mm512_fmadd_ps(self.0, factor.0, added.0) })
    }

    #[inline(always)]
    fn larger(self, other: Self) -> Self {
        // SAFETY: as in `splat`.
        Self(unsafe { _mm512_max_ps(self.0, other.0) })
    }

    #[inline(always)]
    fn fold(self) -> f32 {
        // SAFETY: as in `splat`; the rest works on registers.
        unsafe {
            let eight = _mm256_add_ps(_mm512_castps512_ps256(self.0), _mm512_extractf32x8_ps::<1>(self.0));
            let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        }
    }

    #[inline(always)]
    fn largest(self) -> f32 {
        // SAFETY: as in `splat`; the rest works on registers.
        unsafe {
            let eight = _mm256_max_ps(_mm512_extractf32x8_ps::<1>(self.0), _mm512_castps512_ps256(self.0));
            largest_of_eight(eight)
        }
    }

    // Each step halves the lanes of all sums at once: 15 additions and 30 shuffles for 16 folds. A lane of
    // 128 bits holds one of sums 0, 4, 8, 12 after two steps, and the last two put its neighbours in between.
    #[inline(always)]
    fn fold_each(lanes: [Self; LANES]) -> Self {
        let even = fold_pairs(fold_four(&lanes, 0), fold_four(&lanes, 1));
        let odd = fold_pairs(fold_four(&lanes, 2), fold_four(&lanes, 3));
        // SAFETY: as in `splat`.
        unsafe {
            let first = _mm512_shuffle_ps::<0b10_00_10_00>(even.0, odd.0);
            let second = _mm512_shuffle_ps::<0b11_01_11_01>(even.0, odd.0);
            Self(_mm512_add_ps(first, second))
        }
    }

    #[inline(always)]
    fn from_i8(codes: &[u8; LANES]) -> Self {
        // SAFETY: as in `splat`; an unaligned load of the 16 bytes behind the reference.
        unsafe {
            let bytes = _mm_loadu_si128(codes.as_ptr().cast());
            Self(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)))
        }
    }

    // Sixteen codes fill a register as a table, so `value` runs once a table and a lookup, which reads the
    // low four bits of an index alone, replaces mask, conversion and arithmetic.
    #[inline(always)]
    fn low_nibbles(packed: &[u8; LANES], value: impl Fn(Self) -> Self) -> Self {
        let table = value(every_code());
        // SAFETY: as in `splat`.
        Self(unsafe { _mm512_permutexvar_ps(widened(packed), table.0) })
    }

    #[inline(always)]
    fn high_nibbles(packed: &[u8; LANES], value: impl Fn(Self) -> Self) -> Self {
        let table = value(every_code());
        // A rotation, because the compiler would move a shift before the widening and widen twice.
        // SAFETY: as in `splat`.
        Self(unsafe { _mm512_permutexvar_ps(_mm512_ror_epi32::<4>(widened(packed)), table.0) })
    }
}

/// 0 to 15.
#[inline(always)]
fn every_code() -> F32x16 {
    F32x16::load(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0])
}

/// Bytes as 32-bit numbers.
#[inline(always)]
fn widened(bytes: &[u8; LANES]) -> __m512i {
    // SAFETY: called by `Lanes` alone, so inside `run`; an unaligned load of the 16 bytes behind the
    // reference.
    unsafe { _mm512_cvtepu8_epi32(_mm_loadu_si128(bytes.as_ptr().cast())) }
}

/// Sums `first`, `first + 4`, `first + 8` and `first + 12`, each of four lanes.
#[inline(always)]
fn fold_four(lanes: &[F32x16; LANES], first: usize) -> F32x16 {
    let low = fold_halves(lanes[first], lanes[first + 4]);
    fold_quarters(low, fold_halves(lanes[first + 8], lanes[first + 12]))
}

/// Lane i plus lane i + 8 of `a`, then of `b`: `[a 0..4, a 4..8, b 0..4, b 4..8]`.
#[inline(always)]
fn fold_halves(a: F32x16, b: F32x16) -> F32x16 {
    // SAFETY: called by `Lanes` alone, so inside `run`.
    unsafe {
        let low = _mm512_shuffle_f32x4::<0b01_00_01_00>(a.0, b.0);
        let high = _mm512_shuffle_f32x4::<0b11_10_11_10>(a.0, b.0);
        F32x16(_mm512_add_ps(low, high))
    }
}

/// Lane i plus lane i + 4 of four sums: `[a, b, c, d]`, each of four lanes.
#[inline(always)]
fn fold_quarters(ab: F32x16, cd: F32x16) -> F32x16 {
    // SAFETY: called by `Lanes` alone, so inside `run`.
    unsafe {
        let low = _mm512_shuffle_f32x4::<0b10_00_10_00>(ab.0, cd.0);
        let high = _mm512_shuffle_f32x4::<0b11_01_11_01>(ab.0, cd.0);
        F32x16(_mm512_add_ps(low, high))
    }
}

/// Lane i plus lane i + 2 of eight sums: `[a 0..2, e 0..2, b 0..2, f 0..2, ...]`.
#[inline(always)]
fn fold_pairs(abcd: F32x16, efgh: F32x16) -> F32x16 {
    // SAFETY: called by `Lanes` alone, so inside `run`.
    unsafe {
        let low = _mm512_shuffle_ps::<0b01_00_01_00>(abcd.0, efgh.0);
        let high = _mm512_shuffle_ps::<0b11_10_11_10>(abcd.0, efgh.0);
        F32x16(_mm512_add_ps(low, high))
    }
}
