//! The byte order of a GGUF file: numbers of its header, and numbers inside of tensor data.
//!
//! A file of a big-endian machine holds its numbers the other way round, those of tensor data included. Which bytes of
//! a block make up numbers follows from the structures of the ggml project; for `f32`, `f16`, `bf16`, `q4_0`, `q8_0`,
//! `q4_k`, `q6_k`, `mxfp4` and `nvfp4` the converter of the Python package `gguf` says it too. Where a block's codes
//! are words that the project reads in more than one width (`iq2_xxs`, `iq3_xxs`), no order is agreed on.

use gannet_tensor::Format;

/// The order of the bytes of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    /// The bytes of a number of this order, in little-endian order.
    pub(crate) fn to_little<const N: usize>(self, mut bytes: [u8; N]) -> [u8; N] {
        if self == ByteOrder::Big {
            bytes.reverse();
        }
        bytes
    }
}

/// Equal numbers side by side in a block.
struct Numbers {
    start: usize,
    bytes: usize,
    count: usize,
}

const fn numbers(start: usize, bytes: usize, count: usize) -> Numbers {
    Numbers { start, bytes, count }
}

/// Whether it is known how tensor data of this format looks in a big-endian file.
pub(crate) fn has_big_endian(format: Format) -> bool {
    numbers_of(format).is_some()
}

/// Turns blocks of a big-endian file into those of the format.
///
/// Invariant: `has_big_endian(format)`, which the reader checks.
pub(crate) fn to_little_endian(format: Format, bytes: &mut [u8]) {
    let places = numbers_of(format).expect("the reader refuses big-endian data of other formats");
    for block in bytes.chunks_exact_mut(format.block_bytes()) {
        for place in places {
            let numbers = &mut block[place.start..place.start + place.bytes * place.count];
            numbers.chunks_exact_mut(place.bytes).for_each(<[u8]>::reverse);
        }
    }
}

/// The numbers of more than a byte in a block.
fn numbers_of(format: Format) -> Option<&'static [Numbers]> {
    const NONE: &[Numbers] = &[];
    const TWO_AT_0: &[Numbers] = &[numbers(0, 2, 1)];
    const TWO_TWOS_AT_0: &[Numbers] = &[numbers(0, 2, 2)];
    Some(match format {
        Format::U8 | Format::I8 | Format::F8E4M3 | Format::F8E5M2 | Format::F8E8M0 | Format::F4E2M1 => NONE,
        Format::Mxfp4 | Format::Nvfp4 => NONE,
        Format::F16 | Format::Bf16 | Format::I16 => TWO_AT_0,
        Format::F32 | Format::I32 => &const { [numbers(0, 4, 1)] },
        Format::F64 | Format::I64 => &const { [numbers(0, 8, 1)] },
        Format::Q1_0 | Format::Q2_0 | Format::Q4_0 | Format::Q8_0 | Format::Iq4Nl => TWO_AT_0,
        Format::Q4_1 | Format::Q8_1 | Format::Q4K | Format::Q5K | Format::Iq4Xs => TWO_TWOS_AT_0,
        Format::Q5_0 => &const { [numbers(0, 2, 1), numbers(2, 4, 1)] },
        Format::Q5_1 => &const { [numbers(0, 2, 2), numbers(4, 4, 1)] },
        Format::Q2K => &const { [numbers(80, 2, 2)] },
        Format::Q3K => &const { [numbers(108, 2, 1)] },
        Format::Q6K => &const { [numbers(208, 2, 1)] },
        Format::Q8K => &const { [numbers(0, 4, 1), numbers(260, 2, 16)] },
        Format::Tq1_0 => &const { [numbers(52, 2, 1)] },
        Format::Tq2_0 => &const { [numbers(64, 2, 1)] },
        Format::Iq1S | Format::Iq1M | Format::Iq2Xxs | Format::Iq2Xs => return None,
        Format::Iq2S | Format::Iq3Xxs | Format::Iq3S => return None,
        Format::Q4Z | Format::Q8Z | Format::F8Scaled | Format::Nvfp4Scaled => return None,
    })
}
