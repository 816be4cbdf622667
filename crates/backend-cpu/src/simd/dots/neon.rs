//! Dot products for 64-bit Arm: four registers of four outputs, with the instruction that adds four products at
//! once or without it.
//!
//! Both multiply signed bytes. Codes below 64 are the same signed and unsigned; of any other, 128 is taken away
//! first, which is what [`Dots::dot_wide`] asks for.

use super::super::neon::F32x16;
use super::{CodeKernel, Dots, Lanes, REGISTER, half_power};
use gannet_ops::numerics::LANES;
use std::arch::aarch64::*;
use std::marker::PhantomData;

pub(in super::super) fn has_dots() -> bool {
    std::arch::is_aarch64_feature_detected!("dotprod")
}

/// Runs a kernel with the instruction that adds four products.
///
/// # Safety
/// The processor has the feature, which [`has_dots`] checks.
#[target_feature(enable = "neon,dotprod")]
pub(super) unsafe fn run<K: CodeKernel>(kernel: K) -> K::Output {
    kernel.run::<Registers<Fours>>()
}

/// The level that every processor has.
pub(super) type Widening = Registers<Pairs>;

/// What differs with and without the instruction.
pub(super) trait Multiply {
    /// Adds to each of four sums its four products of signed bytes.
    fn dot(sums: int32x4_t, codes: int8x16_t, x: int8x16_t) -> int32x4_t;
}

/// Adds four products a lane at once.
pub(super) struct Fours;

impl Multiply for Fours {
    #[inline(always)]
    fn dot(sums: int32x4_t, codes: int8x16_t, x: int8x16_t) -> int32x4_t {
        let result: int32x4_t;
        // SAFETY: `Dots` are used inside of `run` alone, whose caller vouches for the instruction; it works on
        // registers alone.
        unsafe {
            std::arch::asm!(
                ".arch_extension dotprod",
                "sdot {sums:v}.4s, {codes:v}.16b, {x:v}.16b",
                sums = inlateout(vreg) sums => result,
                codes = in(vreg) codes,
                x = in(vreg) x,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        result
    }
}

/// Multiplies to 16 bits and adds pairs twice.
pub(super) struct Pairs;

impl Multiply for Pairs {
    #[inline(always)]
    fn dot(sums: int32x4_t, codes: int8x16_t, x: int8x16_t) -> int32x4_t {
        // SAFETY: the architecture has NEON; all works on registers.
        unsafe {
            let low = vpaddlq_s16(vmull_s8(vget_low_s8(codes), vget_low_s8(x)));
            let high = vpaddlq_s16(vmull_high_s8(codes, x));
            vaddq_s32(sums, vpaddq_s32(low, high))
        }
    }
}

pub(super) struct Registers<M>(PhantomData<M>);

#[inline(always)]
fn each(register: impl FnMut(usize) -> uint8x16_t) -> [uint8x16_t; 4] {
    std::array::from_fn(register)
}

impl<M: Multiply> Dots for Registers<M> {
    type Floats = F32x16;
    type Bytes = [uint8x16_t; 4];
    type Sums = [int32x4_t; 4];
    const MOST_ROWS: usize = 4;

    #[inline(always)]
    fn load(from: &[u8; REGISTER]) -> Self::Bytes {
        // SAFETY: the architecture has NEON; four loads of 16 bytes cover the 64 bytes behind the reference.
        each(|i| unsafe { vld1q_u8(from.as_ptr().add(16 * i)) })
    }

    #[inline(always)]
    fn store(codes: Self::Bytes, to: &mut [u8; REGISTER]) {
        for (i, codes) in codes.into_iter().enumerate() {
            // SAFETY: the architecture has NEON; four stores of 16 bytes cover the 64 bytes behind the reference.
            unsafe { vst1q_u8(to.as_mut_ptr().add(16 * i), codes) }
        }
    }

    #[inline(always)]
    fn low_nibbles(packed: Self::Bytes) -> Self::Bytes {
        // SAFETY: the architecture has NEON.
        each(|i| unsafe { vandq_u8(packed[i], vdupq_n_u8(15)) })
    }

    #[inline(always)]
    fn high_nibbles(packed: Self::Bytes) -> Self::Bytes {
        // SAFETY: the architecture has NEON.
        each(|i| unsafe { vshrq_n_u8::<4>(packed[i]) })
    }

    #[inline(always)]
    fn with_two_bits<const PLACE: u32>(low: Self::Bytes, packed: Self::Bytes) -> Self::Bytes {
        // SAFETY: the architecture has NEON.
        each(|i| unsafe {
            let moved = vshlq_u8(packed[i], vdupq_n_s8(4 - 2 * PLACE as i8));
            vorrq_u8(low[i], vandq_u8(moved, vdupq_n_u8(0x30)))
        })
    }

    #[inline(always)]
    fn with_bit<const PLACE: u32>(low: Self::Bytes, packed: Self::Bytes) -> Self::Bytes {
        // SAFETY: the architecture has NEON.
        each(|i| unsafe {
            let moved = vshlq_u8(packed[i], vdupq_n_s8(4 - PLACE as i8));
            vorrq_u8(low[i], vandq_u8(moved, vdupq_n_u8(0x10)))
        })
    }

    #[inline(always)]
    fn look_up(table: &[u8; 16], codes: Self::Bytes) -> Self::Bytes {
        // SAFETY: the architecture has NEON; a load of the 16 bytes behind the reference.
        each(|i| unsafe { vqtbl1q_u8(vld1q_u8(table.as_ptr()), codes[i]) })
    }

    #[inline(always)]
    fn start<const SHIFT: u32>(number: i32) -> Self::Sums {
        // SAFETY: the architecture has NEON.
        [unsafe { vdupq_n_s32(number << SHIFT) }; 4]
    }

    #[inline(always)]
    fn dot(sums: Self::Sums, codes: Self::Bytes, x: i32) -> Self::Sums {
        // SAFETY: the architecture has NEON.
        let x = unsafe { vreinterpretq_s8_s32(vdupq_n_s32(x)) };
        // SAFETY: the architecture has NEON.
        std::array::from_fn(|i| M::dot(sums[i], unsafe { vreinterpretq_s8_u8(codes[i]) }, x))
    }

    #[inline(always)]
    fn start_wide(_: i32) -> Self::Sums {
        Self::start::<0>(0)
    }

    #[inline(always)]
    fn dot_wide(sums: Self::Sums, codes: Self::Bytes, x: i32) -> Self::Sums {
        // SAFETY: the architecture has NEON.
        Self::dot(sums, each(|i| unsafe { veorq_u8(codes[i], vdupq_n_u8(0x80)) }), x)
    }

    #[inline(always)]
    fn next_term(sums: Self::Sums, start: Self::Sums) -> Self::Sums {
        // SAFETY: the architecture has NEON.
        std::array::from_fn(|i| unsafe { vaddq_s32(vshlq_n_s32::<8>(sums[i]), start[i]) })
    }

    #[inline(always)]
    fn floats(sums: Self::Sums) -> Self::Floats {
        // SAFETY: the architecture has NEON.
        F32x16::each(|i| unsafe { vcvtq_f32_s32(sums[i]) })
    }

    #[inline(always)]
    fn from_u8(bytes: &[u8; LANES]) -> Self::Floats {
        F32x16::load(&bytes.map(f32::from))
    }

    #[inline(always)]
    fn half_powers(bytes: &[u8; LANES]) -> Self::Floats {
        F32x16::load(&bytes.map(half_power))
    }
}
