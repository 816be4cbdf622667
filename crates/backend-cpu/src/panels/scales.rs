//! How the scales of a run lie in memory, and what they come to.
//!
//! A head is a vector of f16, a byte of scales one of bytes, one element a lane. Products of a head and a byte are
//! exact in float32, so a scale is the number that the format means, kept in no more bits than it came with, but
//! for those of q4_k and q5_k, which take 8 bits for 6.

use crate::simd::{Dots, Lanes};
use gannet_ops::numerics::LANES;
use gannet_tensor::decode::f16_to_f32;

/// The scales of one sub-block, and its minimum where the format has one.
#[derive(Clone, Copy)]
pub(crate) struct BlockScales<L> {
    /// Of the first sixteen columns and of the second; of all in the first where [`Scales::COUNT`] is 1.
    pub(crate) scales: [L; 2],
    pub(crate) minimum: L,
}

/// An arrangement of scales.
pub(crate) trait Scales {
    /// Of a run.
    const SUB_BLOCKS: usize;
    /// Numbers of a lane a run.
    const HEADS: usize;
    /// Bytes of a lane a sub-block.
    const BYTES: usize;
    /// Scales of a sub-block.
    const COUNT: usize;
    const HAS_MINIMUM: bool;

    /// The scales of all lanes, from the run's heads and the sub-block's bytes.
    fn read<D: Dots>(heads: &[u8], bytes: &[u8]) -> BlockScales<D::Floats>;
    /// Those of one lane.
    fn lane(heads: &[u8], bytes: &[u8], lane: usize) -> BlockScales<f32>;
}

/// A scale for 32 columns.
pub(crate) struct Scale;
/// A scale and a minimum for 32 columns.
pub(crate) struct ScaleAndMinimum;
/// A scale that is a power of two for 32 columns.
pub(crate) struct PowerOfTwo;
/// A scale for 256 columns, times signed bytes for 16.
pub(crate) struct Sixteens;
/// A scale for 256 columns, times signed bytes for 32.
pub(crate) struct ThirtyTwos;
/// A scale and a negative minimum for 256 columns, each times unsigned bytes for 32.
pub(crate) struct ScalesAndMinima;

impl Scales for Scale {
    const SUB_BLOCKS: usize = 1;
    const HEADS: usize = 1;
    const BYTES: usize = 0;
    const COUNT: usize = 1;
    const HAS_MINIMUM: bool = false;

    #[inline(always)]
    fn read<D: Dots>(heads: &[u8], _: &[u8]) -> BlockScales<D::Floats> {
        let scale = halves::<D>(heads, 0);
        BlockScales { scales: [scale; 2], minimum: scale }
    }

    fn lane(heads: &[u8], _: &[u8], lane: usize) -> BlockScales<f32> {
        BlockScales { scales: [half(heads, 0, lane); 2], minimum: 0.0 }
    }
}

impl Scales for ScaleAndMinimum {
    const SUB_BLOCKS: usize = 1;
    const HEADS: usize = 2;
    const BYTES: usize = 0;
    const COUNT: usize = 1;
    const HAS_MINIMUM: bool = true;

    #[inline(always)]
    fn read<D: Dots>(heads: &[u8], _: &[u8]) -> BlockScales<D::Floats> {
        BlockScales { scales: [halves::<D>(heads, 0); 2], minimum: halves::<D>(heads, 1) }
    }

    fn lane(heads: &[u8], _: &[u8], lane: usize) -> BlockScales<f32> {
        BlockScales { scales: [half(heads, 0, lane); 2], minimum: half(heads, 1, lane) }
    }
}

impl Scales for PowerOfTwo {
    const SUB_BLOCKS: usize = 1;
    const HEADS: usize = 0;
    const BYTES: usize = 1;
    const COUNT: usize = 1;
    const HAS_MINIMUM: bool = false;

    #[inline(always)]
    fn read<D: Dots>(_: &[u8], bytes: &[u8]) -> BlockScales<D::Floats> {
        let scale = D::half_powers(sixteen(bytes, 0));
        BlockScales { scales: [scale; 2], minimum: scale }
    }

    fn lane(_: &[u8], bytes: &[u8], lane: usize) -> BlockScales<f32> {
        BlockScales { scales: [crate::simd::half_power(bytes[lane]); 2], minimum: 0.0 }
    }
}

impl Scales for Sixteens {
    const SUB_BLOCKS: usize = 8;
    const HEADS: usize = 1;
    const BYTES: usize = 2;
    const COUNT: usize = 2;
    const HAS_MINIMUM: bool = false;

    #[inline(always)]
    fn read<D: Dots>(heads: &[u8], bytes: &[u8]) -> BlockScales<D::Floats> {
        let scale = halves::<D>(heads, 0);
        let first = D::Floats::from_i8(sixteen(bytes, 0)).mul(scale);
        let second = D::Floats::from_i8(sixteen(bytes, 1)).mul(scale);
        BlockScales { scales: [first, second], minimum: scale }
    }

    fn lane(heads: &[u8], bytes: &[u8], lane: usize) -> BlockScales<f32> {
        let scale = |place: usize| half(heads, 0, lane) * f32::from(bytes[place * LANES + lane] as i8);
        BlockScales { scales: [scale(0), scale(1)], minimum: 0.0 }
    }
}

impl Scales for ThirtyTwos {
    const SUB_BLOCKS: usize = 8;
    const HEADS: usize = 1;
    const BYTES: usize = 1;
    const COUNT: usize = 1;
    const HAS_MINIMUM: bool = false;

    #[inline(always)]
    fn read<D: Dots>(heads: &[u8], bytes: &[u8]) -> BlockScales<D::Floats> {
        let scale = D::Floats::from_i8(sixteen(bytes, 0)).mul(halves::<D>(heads, 0));
        BlockScales { scales: [scale; 2], minimum: scale }
    }

    fn lane(heads: &[u8], bytes: &[u8], lane: usize) -> BlockScales<f32> {
        BlockScales { scales: [half(heads, 0, lane) * f32::from(bytes[lane] as i8); 2], minimum: 0.0 }
    }
}

impl Scales for ScalesAndMinima {
    const SUB_BLOCKS: usize = 8;
    const HEADS: usize = 2;
    const BYTES: usize = 2;
    const COUNT: usize = 1;
    const HAS_MINIMUM: bool = true;

    #[inline(always)]
    fn read<D: Dots>(heads: &[u8], bytes: &[u8]) -> BlockScales<D::Floats> {
        let scale = D::from_u8(sixteen(bytes, 0)).mul(halves::<D>(heads, 0));
        // A product with the negative of a number is the negative of the product.
        let minimum = D::from_u8(sixteen(bytes, 1)).mul(halves::<D>(heads, 1));
        BlockScales { scales: [scale; 2], minimum }
    }

    fn lane(heads: &[u8], bytes: &[u8], lane: usize) -> BlockScales<f32> {
        let byte = |place: usize| f32::from(bytes[place * LANES + lane]);
        let scale = half(heads, 0, lane) * byte(0);
        BlockScales { scales: [scale; 2], minimum: half(heads, 1, lane) * byte(1) }
    }
}

#[inline(always)]
fn halves<D: Dots>(heads: &[u8], number: usize) -> D::Floats {
    let bytes: &[u8; 2 * LANES] = heads[number * 2 * LANES..].first_chunk().expect("a run has its heads");
    let mut halves = [0; LANES];
    for lane in 0..LANES {
        halves[lane] = u16::from_le_bytes([bytes[2 * lane], bytes[2 * lane + 1]]);
    }
    D::Floats::load_f16(&halves)
}

#[inline(always)]
fn sixteen(bytes: &[u8], number: usize) -> &[u8; LANES] {
    bytes[number * LANES..].first_chunk().expect("a sub-block has its bytes of scales")
}

fn half(heads: &[u8], number: usize, lane: usize) -> f32 {
    let place = (number * LANES + lane) * size_of::<u16>();
    f16_to_f32(u16::from_le_bytes(*heads[place..].first_chunk().expect("a run has its heads")))
}
