//! How keys and values are encoded in pages, sixteen at a time.

use super::Lanes;
use gannet_ops::numerics::LANES;

/// An encoding of one number in so many bits.
pub(crate) trait Element {
    type Bits: Copy + Default;

    fn load<L: Lanes>(from: &[Self::Bits; LANES]) -> L;
}

/// One that a number has by itself.
pub(crate) trait Stored: Element {
    /// The nearest numbers, to even where in the middle.
    fn store<L: Lanes>(lanes: L, to: &mut [Self::Bits; LANES]);
}

/// Half precision.
pub(crate) struct F16;

/// The upper half of single precision.
pub(crate) struct Bf16;

/// The bits of the nearest bf16 number, to even where in the middle; what is no number stays none.
//
// Without a branch, so that a loop of it becomes code of the level.
#[inline(always)]
pub(crate) fn nearest_bf16(x: f32) -> u32 {
    let bits = x.to_bits();
    let nearest = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    if x.is_nan() { bits >> 16 | 0x40 } else { nearest }
}

/// A signed byte, still to be scaled.
pub(crate) struct Code;

impl Element for f32 {
    type Bits = f32;

    #[inline(always)]
    fn load<L: Lanes>(from: &[f32; LANES]) -> L {
        L::load(from)
    }
}

impl Stored for f32 {
    #[inline(always)]
    fn store<L: Lanes>(lanes: L, to: &mut [f32; LANES]) {
        lanes.store(to);
    }
}

impl Element for F16 {
    type Bits = u16;

    #[inline(always)]
    fn load<L: Lanes>(from: &[u16; LANES]) -> L {
        L::load_f16(from)
    }
}

impl Stored for F16 {
    #[inline(always)]
    fn store<L: Lanes>(lanes: L, to: &mut [u16; LANES]) {
        lanes.store_f16(to);
    }
}

impl Element for Bf16 {
    type Bits = u16;

    #[inline(always)]
    fn load<L: Lanes>(from: &[u16; LANES]) -> L {
        L::load_bf16(from)
    }
}

impl Stored for Bf16 {
    #[inline(always)]
    fn store<L: Lanes>(lanes: L, to: &mut [u16; LANES]) {
        lanes.store_bf16(to);
    }
}

impl Element for Code {
    type Bits = u8;

    #[inline(always)]
    fn load<L: Lanes>(from: &[u8; LANES]) -> L {
        L::from_i8(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_bf16_is_that_of_the_library() {
        let bits = (0..1u32 << 20).map(|i| i.wrapping_mul(2_654_435_761));
        let special =
            [0, 1, 0x7f7f_ffff, 0x7f7f_8000, 0x7f80_0000, 0x7f80_0001, 0xffff_ffff, 0x3f80_8000, 0x3f81_8000];
        for x in bits.chain(special).map(f32::from_bits) {
            assert_eq!(nearest_bf16(x), u32::from(half::bf16::from_f32(x).to_bits()), "{:x}", x.to_bits());
        }
    }
}
