//! Floats of 8 and 4 bits to single precision, by selects alone, so that they inline and vectorise.
//!
//! Source: the OCP specifications "8-bit Floating Point" and "Microscaling Formats (MX)", versions 1.0.

use super::f16_to_f32;

/// E4M3 without infinities: exponent bias 7, and no number where all but the sign is set.
#[inline(always)]
pub(super) fn e4m3_to_f32(bits: u8) -> f32 {
    /// The value of the last bit of a subnormal number.
    const SUBNORMAL_UNIT: f32 = 1.0 / 512.0;
    /// From the exponent bias 7 to that of single precision.
    const REBIAS: u32 = (127 - 7) << 23;
    let magnitude = u32::from(bits & 0x7f);
    let sign = u32::from(bits & 0x80) << 24;
    let normal = (magnitude << 20) + REBIAS;
    let subnormal = (magnitude as f32 * SUBNORMAL_UNIT).to_bits();
    let finite = if magnitude < 8 { subnormal } else { normal };
    f32::from_bits(sign | if magnitude == 0x7f { f32::NAN.to_bits() } else { finite })
}

/// E5M2: a half-precision number without its lower byte.
#[inline(always)]
pub(super) fn e5m2_to_f32(bits: u8) -> f32 {
    f16_to_f32(u16::from(bits) << 8)
}

/// E8M0: 2^(bits - 127); no number at 255.
#[inline(always)]
pub(super) fn e8m0_to_f32(bits: u8) -> f32 {
    match bits {
        0 => f32::from_bits(1 << 22),
        255 => f32::NAN,
        _ => f32::from_bits(u32::from(bits) << 23),
    }
}

/// Half of E8M0, for codes that are twice their value: 2^(bits - 128), at 255 too, as GGUF has it.
#[inline(always)]
pub(super) fn half_of_e8m0(bits: u8) -> f32 {
    match bits {
        0 | 1 => f32::from_bits((1 << 21) << bits),
        _ => f32::from_bits((u32::from(bits) - 1) << 23),
    }
}

/// Half of an E4M3 scale without its sign, for codes that are twice their value; 0 where it is no number, as GGUF has
/// it.
#[inline(always)]
pub(super) fn half_of_unsigned_e4m3(bits: u8) -> f32 {
    let magnitude = bits & 0x7f;
    match bits {
        0x7f => 0.0,
        // The same exponent and mantissa with the sign set: GGUF takes it for the number that E4M3 leaves out.
        0xff => 240.0,
        _ => 0.5 * e4m3_to_f32(magnitude),
    }
}

/// The value of an E2M1 code of 4 bits; negative zero is kept.
#[inline(always)]
pub(super) fn e2m1_to_f32(code: u8) -> f32 {
    const VALUES: [f32; 16] =
        [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];
    VALUES[usize::from(code & 15)]
}

/// Twice the values of E2M1 codes; negative zero is zero, as GGUF has it.
pub(super) const TWICE_E2M1: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Twice the value of an E2M1 code of 4 bits; negative zero is zero, as GGUF has it.
#[inline(always)]
pub(super) fn twice_e2m1(code: u8) -> f32 {
    f32::from(TWICE_E2M1[usize::from(code & 15)])
}
