//! Lanes for any processor: an array, one fused multiply-add a lane.

use super::Lanes;
use gannet_ops::numerics::{LANES, fold, largest};
use gannet_tensor::decode::f16_to_f32;

#[derive(Clone, Copy)]
pub(super) struct F32x16([f32; LANES]);

impl F32x16 {
    #[inline(always)]
    fn each(lane: impl FnMut(usize) -> f32) -> Self {
        Self(std::array::from_fn(lane))
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
        Self([x; LANES])
    }

    #[inline(always)]
    fn load(from: &[f32; LANES]) -> Self {
        Self(*from)
    }

    #[inline(always)]
    fn load_f16(from: &[u16; LANES]) -> Self {
        Self::each(|i| f16_to_f32(from[i]))
    }

    #[inline(always)]
    fn load_bf16(from: &[u16; LANES]) -> Self {
        Self::each(|i| f32::from_bits(u32::from(from[i]) << 16))
    }

    #[inline(always)]
    fn store(self, to: &mut [f32; LANES]) {
        *to = self.0;
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        Self::each(|i| self.0[i] * other.0[i])
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Self::each(|i| self.0[i] + other.0[i])
    }

    #[inline(always)]
    fn mul_add(self, factor: Self, added: Self) -> Self {
        Self::each(|i| self.0[i].mul_add(factor.0[i], added.0[i]))
    }

    #[inline(always)]
    fn larger(self, other: Self) -> Self {
        Self::each(|i| if self.0[i] > other.0[i] { self.0[i] } else { other.0[i] })
    }

    #[inline(always)]
    fn largest(self) -> f32 {
        largest(self.0)
    }

    #[inline(always)]
    fn fold(self) -> f32 {
        fold(self.0)
    }

    #[inline(always)]
    fn from_i8(codes: &[u8; LANES]) -> Self {
        Self::each(|i| f32::from(codes[i] as i8))
    }

    #[inline(always)]
    fn low_nibbles(packed: &[u8; LANES], value: impl Fn(Self) -> Self) -> Self {
        value(Self::each(|i| f32::from(packed[i] & 15)))
    }

    #[inline(always)]
    fn high_nibbles(packed: &[u8; LANES], value: impl Fn(Self) -> Self) -> Self {
        value(Self::each(|i| f32::from(packed[i] >> 4)))
    }
}
