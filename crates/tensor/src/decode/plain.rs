//! The formats without blocks: single precision, half precision and bfloat16, one number at a time.

use super::{BlockFormat, f16_to_f32, part};
use crate::Format;

/// [`Format::F32`] as a type.
#[derive(Clone, Copy, Debug)]
pub struct F32;

impl BlockFormat for F32 {
    const FORMAT: Format = Format::F32;

    #[inline(always)]
    fn decode(block: &[u8], out: &mut [f32]) {
        out[0] = f32::from_le_bytes(*part(block, 0));
    }
}

/// [`Format::F16`] as a type.
#[derive(Clone, Copy, Debug)]
pub struct F16;

impl BlockFormat for F16 {
    const FORMAT: Format = Format::F16;

    #[inline(always)]
    fn decode(block: &[u8], out: &mut [f32]) {
        out[0] = f16_to_f32(u16::from_le_bytes(*part(block, 0)));
    }
}

/// [`Format::Bf16`] as a type.
#[derive(Clone, Copy, Debug)]
pub struct Bf16;

impl BlockFormat for Bf16 {
    const FORMAT: Format = Format::Bf16;

    #[inline(always)]
    fn decode(block: &[u8], out: &mut [f32]) {
        out[0] = f32::from_bits(u32::from(u16::from_le_bytes(*part(block, 0))) << 16);
    }
}
