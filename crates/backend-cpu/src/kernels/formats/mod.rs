//! Unpackers: a block of a matrix to float lanes, one format a type.
//!
//! `tensor` defines what a block means, value by value. An unpacker gives the same bits sixteen at a time, in
//! registers where the level has instructions for it; others go through the decoder of `tensor` and an array
//! in the first cache level.

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

/// Lists the formats that have an unpacker.
macro_rules! unpackers {
    ($($format:ident => $unpacker:ty),* $(,)?) => {
        /// Calls `visitor` with the unpacker of this format, or gives it back where the format has none.
        pub(crate) fn visit<V: UnpackVisitor>(format: Format, visitor: V) -> Result<V::Output, V> {
            $(if format == Format::$format {
                return Ok(visitor.visit::<$unpacker>());
            })*
            Err(visitor)
        }
    };
}

// A format is compiled once a level and kernel, so only what many checkpoints hold is listed. The others are
// decoded by `tensor` into the tile that many rows use.
unpackers! {
    F32 => Plain<F32>,
    F16 => Plain<F16>,
    Bf16 => Plain<Bf16>,
    Q4_0 => blocks_of_32::Q4_0,
    Q4_1 => blocks_of_32::Q4_1,
    Q5_0 => ByDecoder<Q5_0, 2>,
    Q5_1 => ByDecoder<Q5_1, 2>,
    Q8_0 => blocks_of_32::Q8_0,
    Q4K => blocks_of_256::Q4K,
    Q5K => ByDecoder<Q5K, 16>,
    Q6K => blocks_of_256::Q6K,
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

/// Numbers that lanes are loaded from as they stand.
#[derive(Clone, Copy)]
pub(crate) struct Plain<B>(PhantomData<B>);

impl Unpack for Plain<F32> {
    type Block = F32;
    const ELEMENTS: usize = LANES;

    #[inline(always)]
    fn unpack<L: Lanes>(run: &[u8], mut take: impl FnMut(usize, L)) {
        take(0, L::load(&numbers(run, f32::from_le_bytes)));
    }
}

impl Unpack for Plain<F16> {
    type Block = F16;
    const ELEMENTS: usize = LANES;

    #[inline(always)]
    fn unpack<L: Lanes>(run: &[u8], mut take: impl FnMut(usize, L)) {
        take(0, L::load_f16(&numbers(run, u16::from_le_bytes)));
    }
}

impl Unpack for Plain<Bf16> {
    type Block = Bf16;
    const ELEMENTS: usize = LANES;

    #[inline(always)]
    fn unpack<L: Lanes>(run: &[u8], mut take: impl FnMut(usize, L)) {
        take(0, L::load_bf16(&numbers(run, u16::from_le_bytes)));
    }
}

/// The sixteen numbers of a run.
#[inline(always)]
fn numbers<T: Copy + Default, const N: usize>(run: &[u8], number: impl Fn([u8; N]) -> T) -> [T; LANES] {
    let run: &[[u8; N]; LANES] = run.as_chunks().0.first_chunk().expect("a run has sixteen numbers");
    let mut numbers = [T::default(); LANES];
    for i in 0..LANES {
        numbers[i] = number(run[i]);
    }
    numbers
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
                .unwrap_or_else(|_| Vec::new())
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

    struct HasUnpacker;

    impl UnpackVisitor for HasUnpacker {
        type Output = ();

        fn visit<U: Unpack>(self) {}
    }

    #[test]
    fn every_unpacker_gives_the_bits_of_the_decoder() {
        for format in Format::ALL {
            let elements = 4 * 256;
            let length = format.row_bytes(elements).expect("whole blocks");
            let bytes: Vec<u8> =
                (0..length as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
            if visit(format, HasUnpacker).is_err() {
                continue;
            }
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
