//! Half precision to single precision and back, by selects alone.
//!
//! `half::f16::to_f32` asks at run time which instructions there are, which costs a call a scale and keeps a decoder
//! from becoming vector code. This form inlines and vectorises, and doesn't depend on how the processor is set to
//! treat subnormal numbers.

/// The single-precision number with the value of the half-precision `bits`; a NaN becomes quiet, as by the instruction.
#[inline(always)]
pub fn f16_to_f32(bits: u16) -> f32 {
    /// From the exponent bias of half precision (15) to that of single precision (127).
    const REBIAS: u32 = (127 - 15) << 23;
    /// The value of the last bit of a subnormal half.
    const SUBNORMAL_UNIT: f32 = 1.0 / (1 << 24) as f32;
    let magnitude = u32::from(bits & 0x7fff);
    let sign = u32::from(bits & 0x8000) << 16;
    let normal = (magnitude << 13) + REBIAS;
    let subnormal = (magnitude as f32 * SUBNORMAL_UNIT).to_bits();
    let infinite = normal + REBIAS;
    let quiet = if magnitude > 0x7c00 { 1 << 22 } else { 0 };
    let finite = if magnitude < 0x0400 { subnormal } else { normal };
    let magnitude = if magnitude < 0x7c00 { finite } else { infinite | quiet };
    f32::from_bits(sign | magnitude)
}

/// The half-precision number nearest to `value`, whose magnitude is below 65,520.
pub fn f16_bits(value: f32) -> u16 {
    /// The smallest normal half.
    const SMALLEST_NORMAL: f32 = 1.0 / (1 << 14) as f32;
    /// From the exponent bias of single precision (127) to that of half precision (15).
    const REBIAS: u32 = (127 - 15) << 10;
    let sign = (value.to_bits() >> 16) as u16 & 0x8000;
    let magnitude = value.abs();
    let bits = magnitude.to_bits();
    let normal = ((bits + 0xfff + (bits >> 13 & 1)) >> 13).wrapping_sub(REBIAS) as u16;
    let subnormal = (magnitude * (1 << 24) as f32).round_ties_even() as u16;
    sign | if magnitude < SMALLEST_NORMAL { subnormal } else { normal }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_converts_as_the_half_crate_does() {
        for bits in 0..=u16::MAX {
            let expected = half::f16::from_bits(bits).to_f32();
            assert_eq!(f16_to_f32(bits).to_bits(), expected.to_bits(), "bits {bits:#06x}");
        }
    }

    #[test]
    fn every_half_and_the_point_between_two_round_to_the_nearest_even() {
        for bits in 0..0x7bff_u16 {
            let (this, next) = (f16_to_f32(bits), f16_to_f32(bits + 1));
            assert_eq!((f16_bits(this), f16_bits(-this)), (bits, bits | 0x8000));
            let even = bits + (bits & 1);
            assert_eq!(f16_bits((this + next) / 2.0), even, "between {bits:#x} and the next");
        }
    }
}
