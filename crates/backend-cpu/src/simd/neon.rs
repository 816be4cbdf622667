//! Lanes for 64-bit Arm: four registers of four lanes. Every such processor has these instructions.

use super::Lanes;
use gannet_ops::numerics::{LANES, largest};
use gannet_tensor::decode::f16_to_f32;
use std::arch::aarch64::*;

#[derive(Clone, Copy)]
pub(super) struct F32x16([float32x4_t; 4]);

impl F32x16 {
    #[inline(always)]
    pub(super) fn each(register: impl FnMut(usize) -> float32x4_t) -> Self {
        Self(std::array::from_fn(register))
    }
}

impl Lanes for F32x16 {
    const HOLDS_SIXTEEN: bool = false;

    #[inline(always)]
    fn half(bits: u16) -> f32 {
        f16_to_f32(bits)
    }

    #[inline(always)]
    fn splat(x: f32) -> Self {
        // SAFETY: the architecture has NEON.
        Self([unsafe { vdupq_n_f32(x) }; 4])
    }

    #[inline(always)]
    fn load(from: &[f32; LANES]) -> Self {
        // SAFETY: the architecture has NEON; four loads of 16 bytes cover the 64 bytes behind the reference.
        Self::each(|i| unsafe { vld1q_f32(from.as_ptr().add(4 * i)) })
    }

    #[inline(always)]
    fn load_f16(from: &[u16; LANES]) -> Self {
        Self::load(&from.map(f16_to_f32))
    }

    #[inline(always)]
    fn load_bf16(from: &[u16; LANES]) -> Self {
        Self::load(&from.map(|bits| f32::from_bits(u32::from(bits) << 16)))
    }

    #[inline(always)]
    fn store(self, to: &mut [f32; LANES]) {
        for (i, register) in self.0.into_iter().enumerate() {
            // SAFETY: the architecture has NEON; four stores of 16 bytes cover the 64 bytes behind the
            // reference.
            unsafe { vst1q_f32(to.as_mut_ptr().add(4 * i), register) }
        }
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        // SAFETY: the architecture has NEON.
        Self::each(|i| unsafe { vmulq_f32(self.0[i], other.0[i]) })
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        // SAFETY: the architecture has NEON.
        Self::each(|i| unsafe { vaddq_f32(self.0[i], other.0[i]) })
    }

    #[inline(always)]
    fn mul_add(self, factor: Self, added: Self) -> Self {
        // SAFETY: the architecture has NEON.
        Self::each(|i| unsafe { vfmaq_f32(added.0[i], self.0[i], factor.0[i]) })
    }

    #[inline(always)]
    fn larger(self, other: Self) -> Self {
        // SAFETY: the architecture has NEON.
        Self::each(|i| unsafe { vbslq_f32(vcgtq_f32(self.0[i], other.0[i]), self.0[i], other.0[i]) })
    }

    #[inline(always)]
    fn largest(self) -> f32 {
        let mut lanes = [0.0; LANES];
        self.store(&mut lanes);
        largest(lanes)
    }

    #[inline(always)]
    fn fold(self) -> f32 {
        // SAFETY: the architecture has NEON; all works on registers.
        unsafe {
            let four = vaddq_f32(vaddq_f32(self.0[0], self.0[2]), vaddq_f32(self.0[1], self.0[3]));
            let two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
            vget_lane_f32::<0>(two) + vget_lane_f32::<1>(two)
        }
    }

    #[inline(always)]
    fn from_i8(codes: &[u8; LANES]) -> Self {
        Self::load(&codes.map(|code| f32::from(code as i8)))
    }

    #[inline(always)]
    fn low_nibbles(packed: &[u8; LANES], value: impl Fn(Self) -> Self) -> Self {
        value(Self::load(&packed.map(|byte| f32::from(byte & 15))))
    }

    #[inline(always)]
    fn high_nibbles(packed: &[u8; LANES], value: impl Fn(Self) -> Self) -> Self {
        value(Self::load(&packed.map(|byte| f32::from(byte >> 4))))
    }
}
