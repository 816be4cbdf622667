//! Dot products for AVX2: two registers, outputs 0 to 7 and 8 to 15, with AVX-VNNI or without it.

use super::super::avx2::F32x16;
use super::{CodeKernel, Dots, REGISTER};
use gannet_ops::numerics::LANES;
use std::arch::x86_64::*;

pub(in super::super) fn has_vnni() -> bool {
    is_x86_feature_detected!("avxvnni")
}

/// Runs a kernel as AVX2 code with AVX-VNNI.
///
/// # Safety
/// The processor has the features named here, which [`has_vnni`] and `is_available` of AVX2 check.
#[target_feature(enable = "avxvnni,avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
pub(super) unsafe fn run_vnni<K: CodeKernel>(kernel: K) -> K::Output {
    kernel.run::<Registers<Fours>>()
}

/// Runs a kernel as AVX2 code.
///
/// # Safety
/// As for [`run_vnni`], of which it needs all features but the first.
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
pub(super) unsafe fn run_pairs<K: CodeKernel>(kernel: K) -> K::Output {
    kernel.run::<Registers<Pairs>>()
}

/// What differs with and without AVX-VNNI.
pub(super) trait Multiply {
    fn dot(sums: __m256i, codes: __m256i, x: __m256i) -> __m256i;
    fn start_wide(minus_sum: i32) -> __m256i;
    fn dot_wide(sums: __m256i, codes: __m256i, x: __m256i) -> __m256i;
}

/// Adds four products a lane at once.
pub(super) struct Fours;

impl Multiply for Fours {
    #[inline(always)]
    fn dot(sums: __m256i, codes: __m256i, x: __m256i) -> __m256i {
        // SAFETY: `Dots` are used inside of `run_vnni` alone, whose caller vouches for the instruction.
        unsafe { _mm256_dpbusd_avx_epi32(sums, codes, x) }
    }

    #[inline(always)]
    fn start_wide(minus_sum: i32) -> __m256i {
        // SAFETY: as in `dot`.
        unsafe { _mm256_slli_epi32::<7>(_mm256_set1_epi32(minus_sum)) }
    }

    #[inline(always)]
    fn dot_wide(sums: __m256i, codes: __m256i, x: __m256i) -> __m256i {
        Self::dot(sums, codes, x)
    }
}

/// Adds two products in 16 bits, then the pairs. Two products of a code below 64, or of a signed code's
/// magnitude of at most 128, with a byte of magnitude 127 fit 16 bits.
pub(super) struct Pairs;

impl Multiply for Pairs {
    #[inline(always)]
    fn dot(sums: __m256i, codes: __m256i, x: __m256i) -> __m256i {
        // SAFETY: `Dots` are used inside of `run_pairs` alone, whose caller vouches for AVX2.
        unsafe {
            let pairs = _mm256_maddubs_epi16(codes, x);
            _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
        }
    }

    #[inline(always)]
    fn start_wide(_: i32) -> __m256i {
        // SAFETY: as in `dot`.
        unsafe { _mm256_setzero_si256() }
    }

    #[inline(always)]
    fn dot_wide(sums: __m256i, codes: __m256i, x: __m256i) -> __m256i {
        // SAFETY: as in `dot`.
        unsafe {
            let signed = _mm256_xor_si256(codes, _mm256_set1_epi8(-128));
            Self::dot(sums, _mm256_abs_epi8(signed), _mm256_sign_epi8(x, signed))
        }
    }
}

pub(super) struct Registers<M>(M);

impl<M: Multiply> Dots for Registers<M> {
    type Floats = F32x16;
    type Bytes = [__m256i; 2];
    type Sums = [__m256i; 2];
    const MOST_ROWS: usize = 4;

    #[inline(always)]
    fn load(from: &[u8; REGISTER]) -> Self::Bytes {
        // SAFETY: `Dots` are used inside of `run_*` alone, whose callers vouch for AVX2; unaligned loads of the two
        // halves of the 64 bytes behind the reference.
        unsafe {
            [_mm256_loadu_si256(from.as_ptr().cast()), _mm256_loadu_si256(from.as_ptr().add(32).cast())]
        }
    }

    #[inline(always)]
    fn store(codes: Self::Bytes, to: &mut [u8; REGISTER]) {
        // SAFETY: as in `load`; unaligned stores to the two halves of the 64 bytes behind the reference.
        unsafe {
            _mm256_storeu_si256(to.as_mut_ptr().cast(), codes[0]);
            _mm256_storeu_si256(to.as_mut_ptr().add(32).cast(), codes[1]);
        }
    }

    #[inline(always)]
    fn low_nibbles(packed: Self::Bytes) -> Self::Bytes {
        and(packed, 15)
    }

    #[inline(always)]
    fn high_nibbles(packed: Self::Bytes) -> Self::Bytes {
        and(right::<4>(packed), 15)
    }

    #[inline(always)]
    fn with_two_bits<const PLACE: u32>(low: Self::Bytes, packed: Self::Bytes) -> Self::Bytes {
        let moved = match PLACE {
            0 => left::<4>(packed),
            1 => left::<2>(packed),
            2 => packed,
            _ => right::<2>(packed),
        };
        or(and(moved, 0x30), low)
    }

    #[inline(always)]
    fn with_bit<const PLACE: u32>(low: Self::Bytes, packed: Self::Bytes) -> Self::Bytes {
        let moved = match PLACE {
            0 => left::<4>(packed),
            1 => left::<3>(packed),
            2 => left::<2>(packed),
            3 => left::<1>(packed),
            4 => packed,
            5 => right::<1>(packed),
            6 => right::<2>(packed),
            _ => right::<3>(packed),
        };
        or(and(moved, 0x10), low)
    }

    #[inline(always)]
    fn look_up(table: &[u8; 16], codes: Self::Bytes) -> Self::Bytes {
        // SAFETY: as in `load`; an unaligned load of the 16 bytes behind the reference.
        unsafe {
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            [_mm256_shuffle_epi8(table, codes[0]), _mm256_shuffle_epi8(table, codes[1])]
        }
    }

    #[inline(always)]
    fn start<const SHIFT: u32>(number: i32) -> Self::Sums {
        // SAFETY: as in `load`.
        [unsafe { _mm256_set1_epi32(number << SHIFT) }; 2]
    }

    #[inline(always)]
    fn dot(sums: Self::Sums, codes: Self::Bytes, x: i32) -> Self::Sums {
        // SAFETY: as in `load`.
        let x = unsafe { _mm256_set1_epi32(x) };
        [M::dot(sums[0], codes[0], x), M::dot(sums[1], codes[1], x)]
    }

    #[inline(always)]
    fn start_wide(minus_sum: i32) -> Self::Sums {
        [M::start_wide(minus_sum); 2]
    }

    #[inline(always)]
    fn dot_wide(sums: Self::Sums, codes: Self::Bytes, x: i32) -> Self::Sums {
        // SAFETY: as in `load`.
        let x = unsafe { _mm256_set1_epi32(x) };
        [M::dot_wide(sums[0], codes[0], x), M::dot_wide(sums[1], codes[1], x)]
    }

    #[inline(always)]
    fn next_term(sums: Self::Sums, start: Self::Sums) -> Self::Sums {
        // SAFETY: as in `load`.
        std::array::from_fn(|i| unsafe { _mm256_add_epi32(_mm256_slli_epi32::<8>(sums[i]), start[i]) })
    }

    #[inline(always)]
    fn floats(sums: Self::Sums) -> Self::Floats {
        // SAFETY: as in `load`.
        unsafe { F32x16::new(_mm256_cvtepi32_ps(sums[0]), _mm256_cvtepi32_ps(sums[1])) }
    }

    #[inline(always)]
    fn from_u8(bytes: &[u8; LANES]) -> Self::Floats {
        Self::floats(widened(bytes))
    }

    #[inline(always)]
    fn half_powers(bytes: &[u8; LANES]) -> Self::Floats {
        let [low, high] = widened(bytes);
        F32x16::new(half_power(low), half_power(high))
    }
}

/// A byte is an exponent; what is below the least normal one is half of it, and the product with a half rounds
/// nothing.
#[inline(always)]
fn half_power(bytes: __m256i) -> __m256 {
    // SAFETY: called by `Dots` alone, so inside of `run_*`.
    unsafe {
        let power = _mm256_max_epi32(_mm256_slli_epi32::<23>(bytes), _mm256_set1_epi32(1 << 22));
        _mm256_mul_ps(_mm256_castsi256_ps(power), _mm256_set1_ps(0.5))
    }
}

#[inline(always)]
fn widened(bytes: &[u8; LANES]) -> [__m256i; 2] {
    // SAFETY: called by `Dots` alone, so inside of `run_*`; an unaligned load of the 16 bytes behind the reference.
    unsafe {
        let bytes = _mm_loadu_si128(bytes.as_ptr().cast());
        [_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128::<8>(bytes))]
    }
}

#[inline(always)]
fn and(bytes: [__m256i; 2], mask: i8) -> [__m256i; 2] {
    // SAFETY: called by `Dots` alone, so inside of `run_*`.
    unsafe {
        let mask = _mm256_set1_epi8(mask);
        [_mm256_and_si256(bytes[0], mask), _mm256_and_si256(bytes[1], mask)]
    }
}

#[inline(always)]
fn or(a: [__m256i; 2], b: [__m256i; 2]) -> [__m256i; 2] {
    // SAFETY: called by `Dots` alone, so inside of `run_*`.
    unsafe { [_mm256_or_si256(a[0], b[0]), _mm256_or_si256(a[1], b[1])] }
}

#[inline(always)]
fn left<const BITS: i32>(bytes: [__m256i; 2]) -> [__m256i; 2] {
    // SAFETY: called by `Dots` alone, so inside of `run_*`.
    unsafe { [_mm256_slli_epi16::<BITS>(bytes[0]), _mm256_slli_epi16::<BITS>(bytes[1])] }
}

#[inline(always)]
fn right<const BITS: i32>(bytes: [__m256i; 2]) -> [__m256i; 2] {
    // SAFETY: called by `Dots` alone, so inside of `run_*`.
    unsafe { [_mm256_srli_epi16::<BITS>(bytes[0]), _mm256_srli_epi16::<BITS>(bytes[1])] }
}
