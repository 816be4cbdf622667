//! Single precision to the two half precisions, rounded to the nearest, ties to even.

/// The half-precision number nearest to `value`, whose magnitude is below 65,520.
pub(super) fn f16_bits(value: f32) -> u16 {
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

/// The upper half of the single-precision number, rounded.
pub(super) fn bf16_bits(value: f32) -> u16 {
    let bits = value.to_bits();
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use gannet_tensor::decode::f16_to_f32;

    #[test]
    fn every_half_and_the_point_between_two_round_to_the_nearest_even() {
        for bits in 0..0x7bff_u16 {
            let (this, next) = (f16_to_f32(bits), f16_to_f32(bits + 1));
            assert_eq!((f16_bits(this), f16_bits(-this)), (bits, bits | 0x8000));
            let even = bits + (bits & 1);
            assert_eq!(f16_bits((this + next) / 2.0), even, "between {bits:#x} and the next");
        }
    }

    #[test]
    fn a_bf16_rounds_to_the_nearest_even() {
        let check =
            |bits: u32, expected: u16| assert_eq!(bf16_bits(f32::from_bits(bits)), expected, "{bits:#x}");
        check(0x3f80_0000, 0x3f80);
        check(0x3f80_8000, 0x3f80);
        check(0x3f80_8001, 0x3f81);
        check(0x3f81_8000, 0x3f82);
        check(0xbf81_8000, 0xbf82);
    }
}
