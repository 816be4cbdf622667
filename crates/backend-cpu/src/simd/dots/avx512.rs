//! Dot products for AVX-512: one register, with the instruction that adds four products at once or without it.

use super::super::avx512::F32x16;
use super::{CodeKernel, Dots, REGISTER};
use gannet_ops::numerics::LANES;
use std::arch::x86_64::*;

pub(in super::super) fn has_vnni() -> bool {
    is_x86_feature_detected!("avx512vnni")
}

/// Runs a kernel as AVX-512 code with VNNI.
///
/// # Safety
/// The processor has the features named here, which [`has_vnni`] and `is_available` of both levels below check.
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt"
)]
pub(super) unsafe fn run_vnni<K: CodeKernel>(kernel: K) -> K::Output {
    kernel.run::<Registers<Fours>>()
}

/// Runs a kernel as AVX-512 code without VNNI.
///
/// # Safety
/// As for [`run_vnni`], of which it needs all features but the named one.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
pub(super) unsafe fn run_pairs<K: CodeKernel>(kernel: K) -> K::Output {
    kernel.run::<Registers<Pairs>>()
}

/// What differs with and without VNNI.
pub(super) trait Multiply {
    fn dot(sums: __m512i, codes: __m512i, x: __m512i) -> __m512i;
    fn start_wide(minus_sum: i32) -> __m512i;
    fn dot_wide(sums: __m512i, codes: __m512i, x: __m512i) -> __m512i;
}

/// Adds four products a lane at once.
pub(super) struct Fours;

impl Multiply for Fours {
    #[inline(always)]
    fn dot(sums: __m512i, codes: __m512i, x: __m512i) -> __m512i {
        // SAFETY: `Dots` are used inside of `run_vnni` alone, whose caller vouches for the instruction.
        unsafe { _mm512_dpbusd_epi32(sums, codes, x) }
    }

    #[inline(always)]
    fn start_wide(minus_sum: i32) -> __m512i {
        // SAFETY: as in `dot`.
        unsafe { _mm512_slli_epi32::<7>(_mm512_set1_epi32(minus_sum)) }
    }

    #[inline(always)]
    fn dot_wide(sums: __m512i, codes: __m512i, x: __m512i) -> __m512i {
        Self::dot(sums, codes, x)
    }
}

/// Adds two products in 16 bits, then the pairs. Two products of a code below 64, or of a signed code's
/// magnitude of at most 128, with a byte of magnitude 127 fit 16 bits.
pub(super) struct Pairs;

impl Multiply for Pairs {
    #[inline(always)]
    fn dot(sums: __m512i, codes: __m512i, x: __m512i) -> __m512i {
        // SAFETY: `Dots` are used inside of `run_pairs` alone, whose caller vouches for AVX-512.
        unsafe {
            let pairs = _mm512_maddubs_epi16(codes, x);
            _mm512_add_epi32(sums, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)))
        }
    }

    #[inline(always)]
    fn start_wide(_: i32) -> __m512i {
        // SAFETY: as in `dot`.
        unsafe { _mm512_setzero_si512() }
    }

    #[inline(always)]
    fn dot_wide(sums: __m512i, codes: __m512i, x: __m512i) -> __m512i {
        // SAFETY: as in `dot`.
        unsafe {
            let signed = _mm512_xor_si512(codes, _mm512_set1_epi8(-128));
            let is_negative = _mm512_movepi8_mask(signed);
            let x = _mm512_mask_sub_epi8(x, is_negative, _mm512_setzero_si512(), x);
            Self::dot(sums, _mm512_abs_epi8(signed), x)
        }
    }
}

pub(super) struct Registers<M>(M);

impl<M: Multiply> Dots for Registers<M> {
    type Floats = F32x16;
    type Bytes = __m512i;
    type Sums = __m512i;
    const MOST_ROWS: usize = 16;

    #[inline(always)]
    fn load(from: &[u8; REGISTER]) -> Self::Bytes {
        // SAFETY: `Dots` are used inside of `run_*` alone, whose callers vouch for AVX-512; an unaligned load of
        // the 64 bytes behind the reference.
        unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(codes: Self::Bytes, to: &mut [u8; REGISTER]) {
        // SAFETY: as in `load`; an unaligned store to the 64 bytes behind the reference.
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), codes) }
    }

    #[inline(always)]
    fn low_nibbles(packed: Self::Bytes) -> Self::Bytes {
        // SAFETY: as in `load`.
        unsafe { _mm512_and_si512(packed, _mm512_set1_epi8(15)) }
    }

    #[inline(always)]
    fn high_nibbles(packed: Self::Bytes) -> Self::Bytes {
        // SAFETY: as in `load`.
        unsafe { _mm512_and_si512(_mm512_srli_epi16::<4>(packed), _mm512_set1_epi8(15)) }
    }

    #[inline(always)]
    fn with_two_bits<const PLACE: u32>(low: Self::Bytes, packed: Self::Bytes) -> Self::Bytes {
        // SAFETY: as in `load`. The table of the last is `(a & b) | c`.
        unsafe {
            let moved = match PLACE {
                0 => _mm512_slli_epi16::<4>(packed),
                1 => _mm512_slli_epi16::<2>(packed),
                2 => packed,
                _ => _mm512_srli_epi16::<2>(packed),
            };
            _mm512_ternarylogic_epi32::<0xea>(moved, _mm512_set1_epi8(0x30), low)
        }
    }

    #[inline(always)]
    fn with_bit<const PLACE: u32>(low: Self::Bytes, packed: Self::Bytes) -> Self::Bytes {
        // SAFETY: as in `load`. The table of the last is `(a & b) | c`.
        unsafe {
            let moved = match PLACE {
                0 => _mm512_slli_epi16::<4>(packed),
                1 => _mm512_slli_epi16::<3>(packed),
                2 => _mm512_slli_epi16::<2>(packed),
                3 => _mm512_slli_epi16::<1>(packed),
                4 => packed,
                5 => _mm512_srli_epi16::<1>(packed),
                6 => _mm512_srli_epi16::<2>(packed),
                _ => _mm512_srli_epi16::<3>(packed),
            };
            _mm512_ternarylogic_epi32::<0xea>(moved, _mm512_set1_epi8(0x10), low)
        }
    }

    #[inline(always)]
    fn look_up(table: &[u8; 16], codes: Self::Bytes) -> Self::Bytes {
        // SAFETY: as in `load`; an unaligned load of the 16 bytes behind the reference.
        unsafe {
            let table = _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast()));
            _mm512_shuffle_epi8(table, codes)
        }
    }

    #[inline(always)]
    fn start<const SHIFT: u32>(number: i32) -> Self::Sums {
        // SAFETY: as in `load`.
        unsafe { _mm512_slli_epi32::<SHIFT>(_mm512_set1_epi32(number)) }
    }

    #[inline(always)]
    fn dot(sums: Self::Sums, codes: Self::Bytes, x: i32) -> Self::Sums {
        // SAFETY: as in `load`.
        M::dot(sums, codes, unsafe { _mm512_set1_epi32(x) })
    }

    #[inline(always)]
    fn start_wide(minus_sum: i32) -> Self::Sums {
        M::start_wide(minus_sum)
    }

    #[inline(always)]
    fn dot_wide(sums: Self::Sums, codes: Self::Bytes, x: i32) -> Self::Sums {
        // SAFETY: as in `load`.
        M::dot_wide(sums, codes, unsafe { _mm512_set1_epi32(x) })
    }

    #[inline(always)]
    fn next_term(sums: Self::Sums, start: Self::Sums) -> Self::Sums {
        // SAFETY: as in `load`.
        unsafe { _mm512_add_epi32(_mm512_slli_epi32::<8>(sums), start) }
    }

    #[inline(always)]
    fn floats(sums: Self::Sums) -> Self::Floats {
        // SAFETY: as in `load`.
        F32x16::new(unsafe { _mm512_cvtepi32_ps(sums) })
    }

    #[inline(always)]
    fn from_u8(bytes: &[u8; LANES]) -> Self::Floats {
        Self::floats(widened(bytes))
    }

    #[inline(always)]
    fn half_powers(bytes: &[u8; LANES]) -> Self::Floats {
        // SAFETY: as in `load`. A byte is an exponent; what is below the least normal one is half of it, and the
        // product with a half rounds nothing.
        unsafe {
            let exponent = _mm512_slli_epi32::<23>(widened(bytes));
            let power = _mm512_max_epi32(exponent, _mm512_set1_epi32(1 << 22));
            F32x16::new(_mm512_mul_ps(_mm512_castsi512_ps(power), _mm512_set1_ps(0.5)))
        }
    }
}

#[inline(always)]
fn widened(bytes: &[u8; LANES]) -> __m512i {
    // SAFETY: called by `Dots` alone, so inside of `run_*`; an unaligned load of the 16 bytes behind the reference.
    unsafe { _mm512_cvtepu8_epi32(_mm_loadu_si128(bytes.as_ptr().cast())) }
}
