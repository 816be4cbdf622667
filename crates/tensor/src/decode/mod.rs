//! Scalar decoders: blocks of every format to float32, bit for bit as the Python package `gguf` decodes them.
//!
//! Each format is a type that implements [`BlockFormat`], so that a kernel is written once over `B: BlockFormat` and
//! the format is matched once a matrix, by [`Format::visit`]. Every decoder is a straight loop over arrays of a fixed
//! size and is always inlined: inside a function with `#[target_feature]` the compiler makes vector code of it.
//!
//! Each value is rounded as the formula in [`Format`] is written, one multiplication and one addition after the
//! other, never fused: that is what the reference does.

/// Defines the type of a format, and decodes its blocks by a function over arrays.
macro_rules! block_format {
    ($name:ident, $decode:ident) => {
        #[doc = concat!("[`Format::", stringify!($name), "`](crate::Format) as a type.")]
        #[derive(Clone, Copy, Debug)]
        pub struct $name;

        impl crate::decode::BlockFormat for $name {
            const FORMAT: crate::Format = crate::Format::$name;

            #[inline(always)]
            fn decode(block: &[u8], out: &mut [f32]) {
                let block = block.try_into().expect("a block has the bytes of its format");
                let out = out.try_into().expect("a block has the elements of its format");
                $decode(block, out);
            }
        }
    };
}

mod blocks_of_256;
mod blocks_of_32;
pub mod codes;
mod half_precision;
mod integers;
mod lattice;
mod plain;
mod random_blocks;
mod scaled;
mod small_floats;
mod ternary;

pub use blocks_of_32::{Iq4Nl, Mxfp4, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q8_1};
pub use blocks_of_256::{Q2K, Q3K, Q4K, Q5K, Q6K, Q8K, scales_and_minima};
pub use half_precision::{f16_bits, f16_to_f32};
pub use integers::integers;
pub use lattice::{Iq1M, Iq1S, Iq2S, Iq2Xs, Iq2Xxs, Iq3S, Iq3Xxs, Iq4Xs};
pub use plain::{Bf16, F4E2M1, F8E4M3, F8E5M2, F8E8M0, F16, F32, F64, I8, I16, I32, I64, U8};
pub use random_blocks::{RandomBlocks, random_blocks};
pub use scaled::{F8Scaled, Nvfp4, Nvfp4Scaled, Q4Z, Q8Z};
pub use ternary::{Q1_0, Q2_0, Tq1_0, Tq2_0};

use crate::Format;

/// A format as a type, for code that is compiled once a format.
///
/// 256 is a multiple of every `ELEMENTS`, so a kernel may go through a row in runs of 256 elements; only a row of
/// smaller blocks can end in a shorter run.
pub trait BlockFormat: Copy + Send + Sync + 'static {
    /// The format as a value.
    const FORMAT: Format;
    /// Elements in one block.
    const ELEMENTS: usize = Self::FORMAT.block_elements();
    /// Bytes of one block.
    const BYTES: usize = Self::FORMAT.block_bytes();

    /// Decodes one block: `block` has `BYTES` bytes and `out` has `ELEMENTS` elements, or this panics.
    fn decode(block: &[u8], out: &mut [f32]);

    /// Decodes a run of blocks: `blocks` has `BYTES` bytes for each `ELEMENTS` elements of `out`, or this panics.
    #[inline(always)]
    fn decode_blocks(blocks: &[u8], out: &mut [f32]) {
        let count = out.len() / Self::ELEMENTS;
        assert!(
            blocks.len() == count * Self::BYTES && out.len() == count * Self::ELEMENTS,
            "a run of blocks fills its output"
        );
        for (block, out) in blocks.chunks_exact(Self::BYTES).zip(out.chunks_exact_mut(Self::ELEMENTS)) {
            Self::decode(block, out);
        }
    }
}

/// What is to be done for a format that is known only at run time; see [`Format::visit`].
pub trait FormatVisitor {
    /// What comes out.
    type Output;
    /// Called once, with the type of the format.
    fn visit<B: BlockFormat>(self) -> Self::Output;
}

impl Format {
    /// Calls `visitor` with the type that stands for this format: the one place where formats become types.
    pub fn visit<V: FormatVisitor>(self, visitor: V) -> V::Output {
        match self {
            Format::F32 => visitor.visit::<F32>(),
            Format::F16 => visitor.visit::<F16>(),
            Format::Bf16 => visitor.visit::<Bf16>(),
            Format::F64 => visitor.visit::<F64>(),
            Format::U8 => visitor.visit::<U8>(),
            Format::I8 => visitor.visit::<I8>(),
            Format::I16 => visitor.visit::<I16>(),
            Format::I32 => visitor.visit::<I32>(),
            Format::I64 => visitor.visit::<I64>(),
            Format::F8E4M3 => visitor.visit::<F8E4M3>(),
            Format::F8E5M2 => visitor.visit::<F8E5M2>(),
            Format::F8E8M0 => visitor.visit::<F8E8M0>(),
            Format::F4E2M1 => visitor.visit::<F4E2M1>(),
            Format::Q1_0 => visitor.visit::<Q1_0>(),
            Format::Q2_0 => visitor.visit::<Q2_0>(),
            Format::Q4_0 => visitor.visit::<Q4_0>(),
            Format::Q4_1 => visitor.visit::<Q4_1>(),
            Format::Q5_0 => visitor.visit::<Q5_0>(),
            Format::Q5_1 => visitor.visit::<Q5_1>(),
            Format::Q8_0 => visitor.visit::<Q8_0>(),
            Format::Q8_1 => visitor.visit::<Q8_1>(),
            Format::Q2K => visitor.visit::<Q2K>(),
            Format::Q3K => visitor.visit::<Q3K>(),
            Format::Q4K => visitor.visit::<Q4K>(),
            Format::Q5K => visitor.visit::<Q5K>(),
            Format::Q6K => visitor.visit::<Q6K>(),
            Format::Q8K => visitor.visit::<Q8K>(),
            Format::Iq1S => visitor.visit::<Iq1S>(),
            Format::Iq1M => visitor.visit::<Iq1M>(),
            Format::Iq2Xxs => visitor.visit::<Iq2Xxs>(),
            Format::Iq2Xs => visitor.visit::<Iq2Xs>(),
            Format::Iq2S => visitor.visit::<Iq2S>(),
            Format::Iq3Xxs => visitor.visit::<Iq3Xxs>(),
            Format::Iq3S => visitor.visit::<Iq3S>(),
            Format::Iq4Nl => visitor.visit::<Iq4Nl>(),
            Format::Iq4Xs => visitor.visit::<Iq4Xs>(),
            Format::Tq1_0 => visitor.visit::<Tq1_0>(),
            Format::Tq2_0 => visitor.visit::<Tq2_0>(),
            Format::Mxfp4 => visitor.visit::<Mxfp4>(),
            Format::Nvfp4 => visitor.visit::<Nvfp4>(),
            Format::Q4Z => visitor.visit::<Q4Z>(),
            Format::Q8Z => visitor.visit::<Q8Z>(),
            Format::F8Scaled => visitor.visit::<F8Scaled>(),
            Format::Nvfp4Scaled => visitor.visit::<Nvfp4Scaled>(),
        }
    }

    /// Decodes a whole number of blocks: `bytes` has as many as the elements of `out` need, or this panics.
    pub fn decode(self, bytes: &[u8], out: &mut [f32]) {
        self.visit(Decode { bytes, out });
    }
}

struct Decode<'a> {
    bytes: &'a [u8],
    out: &'a mut [f32],
}

impl FormatVisitor for Decode<'_> {
    type Output = ();

    fn visit<B: BlockFormat>(self) {
        B::decode_blocks(self.bytes, self.out);
    }
}

/// The `N` bytes of `block` from `start` on. Folds to nothing where block and place are constants.
#[inline(always)]
fn part<const N: usize>(block: &[u8], start: usize) -> &[u8; N] {
    block[start..].first_chunk().expect("the layout of a block lies within its bytes")
}

/// The half-precision number at `start`.
#[inline(always)]
fn scale_at(block: &[u8], start: usize) -> f32 {
    f16_to_f32(u16::from_le_bytes(*part(block, start)))
}
