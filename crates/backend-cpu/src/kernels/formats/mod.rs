//! Unpackers: a block of a matrix to float lanes, one format a type.
//!
//! `tensor` defines what a block means, value by value. An unpacker gives the same bits sixteen at a time, in
//! registers where the level has instructions for it; a format without one of its own goes through the decoder of
//! `tensor` and an array in the first cache level.

mod blocks_of_256;
mod blocks_of_32;

use crate::simd::Lanes;
use gannet_ops::numerics::LANES;
use gannet_tensor::Format;
use gannet_tensor::decode::{Bf16, BlockFormat, F16, F32, Q5_0, Q5_1, Q5K};
use std::marker::PhantomData;

/// A format as a type that kernels are compiled for.
pub(crate) trait Unpack: Copy + Send + Sync {
    /// The decoder that says what the bytes mean.
    type Block: BlockFormat;
    /// Elements of a run that is unpacked at once: a multiple of both [`LANES`] and the block.
    const ELEMENTS: usize;
    /// Bytes of such a run.
    const BYTES: usize = Self::ELEMENTS / Self::Block::ELEMENTS * Self::Block::BYTES;

    /// Hands over the elements of a run in ascending order: which sixteen, and their values.
    fn unpack<L: Lanes>(run: &[u8], take: impl FnMut(usize, L));
}

/// What is to be done for a format that is known only at run time.
pub(crate) trait UnpackVisitor {
    type Output;

    fn visit<U: Unpack>(self) -> Self::Output;
}

/// Calls `visitor` with the unpacker of this format.
pub(crate) fn visit<V: UnpackVisitor>(format: Format, visitor: V) -> V::Output {
    match format {
        Format::F32 => visitor.visit::<ByDecoder<F32, 1>>(),
        Format::F16 => visitor.visit::<ByDecoder<F16, 1>>(),
        Format::Bf16 => visitor.visit::<ByDecoder<Bf16, 1>>(),
        Format::Q4_0 => visitor.visit::<blocks_of_32::Q4_0>(),
        Format::Q4_1 => visitor.visit::<blocks_of_32::Q4_1>(),
        Format::Q5_0 => visitor.visit::<ByDecoder<Q5_0, 2>>(),
        Format::Q5_1 => visitor.visit::<ByDecoder<Q5_1, 2>>(),
        Format::Q8_0 => visitor.visit::<blocks_of_32::Q8_0>(),
        Format::Q4K => visitor.visit::<blocks_of_256::Q4K>(),
        Format::Q5K => visitor.visit::<ByDecoder<Q5K, 16>>(),
        Format::Q6K => visitor.visit::<blocks_of_256::Q6K>(),
    }
}

/// Unpacks by the decoder of `tensor`, `SIXTEENS` times sixteen elements at once.
#[derive(Clone, Copy)]
pub(crate) struct ByDecoder<B, const SIXTEENS: usize>(PhantomData<B>);

impl<B: BlockFormat, const SIXTEENS: usize> Unpack for ByDecoder<B, SIXTEENS> {
    type Block = B;
    const ELEMENTS: usize = SIXTEENS * LANES;

    #[inline(always)]
    fn unpack<L: Lanes>(run: &[u8], mut take: impl FnMut(usize, L)) {
        let mut values = [[0.0; LANES]; SIXTEENS];
        B::decode_blocks(run, values.as_flattened_mut());
        for (sixteen, values) in values.iter().enumerate() {
            take(sixteen, L::load(values));
        }
    }
}

/// The `N` bytes of a run from `start` on. Folds to nothing where run and place are constants.
#[inline(always)]
fn part<const N: usize>(run: &[u8], start: usize) -> &[u8; N] {
    run[start..].first_chunk().expect("the layout of a block lies within its bytes")
}

/// The half-precision number at `start`.
#[inline(always)]
fn half_at<L: Lanes>(run: &[u8], start: usize) -> f32 {
    L::half(u16::from_le_bytes(*part(run, start)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::{Isa, IsaLevel, Kernel};

    struct UnpackAll<'a> {
        format: Format,
        bytes: &'a [u8],
    }

    impl Kernel for UnpackAll<'_> {
        type Output = Vec<f32>;

        #[inline(always)]
        fn run<L: Lanes>(self) -> Vec<f32> {
            visit(self.format, Runs::<L> { bytes: self.bytes, lanes: PhantomData })
        }
    }

    struct Runs<'a, L> {
        bytes: &'a [u8],
        lanes: PhantomData<L>,
    }

    impl<L: Lanes> UnpackVisitor for Runs<'_, L> {
        type Output = Vec<f32>;

        #[inline(always)]
        fn visit<U: Unpack>(self) -> Vec<f32> {
            let mut out = Vec::new();
            for run in self.bytes.chunks_exact(U::BYTES) {
                U::unpack::<L>(run, |sixteen, lanes| {
                    assert_eq!(sixteen, out.len() % U::ELEMENTS / LANES, "sixteens ascend");
                    let mut values = [0.0; LANES];
                    lanes.store(&mut values);
                    out.extend(values);
                });
            }
            out
        }
    }

    #[test]
    fn every_unpacker_gives_the_bits_of_the_decoder() {
        for format in Format::ALL {
            let elements = 4 * 256;
            let length = format.row_bytes(elements).expect("whole blocks");
            let bytes: Vec<u8> =
                (0..length as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
            let mut expected = vec![0.0f32; elements];
            format.decode(&bytes, &mut expected);
            for level in IsaLevel::available() {
                let isa = Isa::new(level).expect("the level is available");
                let found = isa.run(UnpackAll { format, bytes: &bytes });
                let differs =
                    |(a, b): (&f32, &f32)| a.to_bits() != b.to_bits() && !(a.is_nan() && b.is_nan());
                let first = found.iter().zip(&expected).position(differs);
                assert_eq!((found.len(), first), (elements, None), "{format} at {level}");
            }
        }
    }
}
