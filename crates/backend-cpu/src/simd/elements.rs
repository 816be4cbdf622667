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
