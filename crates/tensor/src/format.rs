//! The numeric encodings of weights and state: how many elements a block holds, and in how many bytes.
//!
//! A row of a matrix is a whole number of blocks, so a row can be moved without decoding it. The order of the bytes in
//! a block is said where it is decoded.

use std::fmt;

/// A numeric encoding. Block formats are GGUF's, named in lower case as the field names them, where not said otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Format {
    /// IEEE 754 single precision, little endian, as all numbers of more than a byte here.
    F32,
    /// IEEE 754 half precision.
    F16,
    /// The upper half of a single.
    Bf16,
    /// IEEE 754 double precision, rounded to single where it is decoded.
    F64,
    /// An unsigned byte.
    U8,
    /// A signed byte.
    I8,
    /// A signed integer of 16 bits.
    I16,
    /// A signed integer of 32 bits, rounded to single where it is decoded.
    I32,
    /// A signed integer of 64 bits, rounded to single where it is decoded.
    I64,
    /// A float of 8 bits: sign, 4 bits of exponent, 3 of mantissa; no infinities (OCP 8-bit floats, "FN").
    F8E4M3,
    /// A float of 8 bits: sign, 5 bits of exponent, 2 of mantissa; the upper half of an f16.
    F8E5M2,
    /// A power of two from 2^-127 to 2^127, the scale of the OCP microscaling formats.
    F8E8M0,
    /// A float of 4 bits: sign, 2 bits of exponent, 1 of mantissa; the first of a pair in the low half.
    F4E2M1,
    /// 128 signs, one f16 scale; value = d or -d.
    Q1_0,
    /// 64 codes of 2 bits, one f16 scale; value = d (q - 1).
    Q2_0,
    /// 32 codes of 4 bits, one f16 scale; value = d (q - 8).
    Q4_0,
    /// 32 codes of 4 bits, f16 scale and minimum; value = d q + m.
    Q4_1,
    /// 32 codes of 5 bits, one f16 scale; value = d (q - 16).
    Q5_0,
    /// 32 codes of 5 bits, f16 scale and minimum; value = d q + m.
    Q5_1,
    /// 32 codes of 8 bits, one f16 scale; value = d q.
    Q8_0,
    /// 32 codes of 8 bits, f16 scale, and an f16 sum that decoding needs not; value = d q.
    Q8_1,
    /// 256 codes of 2 bits in 16 sub-blocks with 4-bit scales and minima; value = d s q - dmin m.
    Q2K,
    /// 256 codes of 3 bits in 16 sub-blocks with 6-bit scales; value = d s (q - 4).
    Q3K,
    /// 256 codes of 4 bits in 8 sub-blocks with 6-bit scales and minima; value = d s q - dmin m.
    Q4K,
    /// 256 codes of 5 bits in 8 sub-blocks with 6-bit scales and minima; value = d s q - dmin m.
    Q5K,
    /// 256 codes of 6 bits in 16 sub-blocks with 8-bit scales; value = d s (q - 32).
    Q6K,
    /// 256 codes of 8 bits, f32 scale, and 16 sums that decoding needs not; value = d q.
    Q8K,
    /// Points of 8 numbers of -1, 0, 1 among 2,048, shifted by an eighth; 3-bit scales for 32.
    Iq1S,
    /// As `Iq1S`, the shift for 8 numbers and 3-bit scales for 16.
    Iq1M,
    /// Points of 8 magnitudes among 256, and 7 of their 8 signs; 4-bit scales for 32.
    Iq2Xxs,
    /// Points of 8 magnitudes among 512, and 7 of their 8 signs; 4-bit scales for 16.
    Iq2Xs,
    /// Points of 8 magnitudes among 1,024, and their signs; 4-bit scales for 16.
    Iq2S,
    /// Points of 4 magnitudes among 256, and 7 of 8 signs; 4-bit scales for 32.
    Iq3Xxs,
    /// Points of 4 magnitudes among 512, and their signs; 4-bit scales for 32.
    Iq3S,
    /// 32 codes of 4 bits into a table of 16 unevenly spaced values, one f16 scale.
    Iq4Nl,
    /// 256 codes as in `Iq4Nl` in 8 sub-blocks with 6-bit scales.
    Iq4Xs,
    /// 256 numbers of -1, 0, 1, five a byte, one f16 scale.
    Tq1_0,
    /// 256 codes of 2 bits, one f16 scale; value = d (q - 1).
    Tq2_0,
    /// 32 floats of 4 bits, one scale that is a power of two.
    Mxfp4,
    /// 64 floats of 4 bits, an 8-bit float as scale for each 16.
    Nvfp4,
    /// 32 codes of 4 bits, a scale and an integer zero; value = d (q - z). No GGUF type.
    Q4Z,
    /// 32 codes of 8 bits, a scale and an integer zero; value = d (q - z). No GGUF type.
    Q8Z,
    /// 32 floats of 8 bits as in `F8E4M3`, one f32 scale; value = d q. No GGUF type.
    F8Scaled,
    /// 64 floats of 4 bits, an f32 scale, an 8-bit float for each 16; value = (d s) q. No GGUF type.
    Nvfp4Scaled,
}

/// What is fixed for a format.
struct Layout {
    /// The field's name, in lower case.
    name: &'static str,
    block_elements: usize,
    block_bytes: usize,
}

const fn layout(name: &'static str, block_elements: usize, block_bytes: usize) -> Layout {
    Layout { name, block_elements, block_bytes }
}

impl Format {
    /// Every format, in the order of the enum.
    pub const ALL: [Format; 44] = [
        Format::F32,
        Format::F16,
        Format::Bf16,
        Format::F64,
        Format::U8,
        Format::I8,
        Format::I16,
        Format::I32,
        Format::I64,
        Format::F8E4M3,
        Format::F8E5M2,
        Format::F8E8M0,
        Format::F4E2M1,
        Format::Q1_0,
        Format::Q2_0,
        Format::Q4_0,
        Format::Q4_1,
        Format::Q5_0,
        Format::Q5_1,
        Format::Q8_0,
        Format::Q8_1,
        Format::Q2K,
        Format::Q3K,
        Format::Q4K,
        Format::Q5K,
        Format::Q6K,
        Format::Q8K,
        Format::Iq1S,
        Format::Iq1M,
        Format::Iq2Xxs,
        Format::Iq2Xs,
        Format::Iq2S,
        Format::Iq3Xxs,
        Format::Iq3S,
        Format::Iq4Nl,
        Format::Iq4Xs,
        Format::Tq1_0,
        Format::Tq2_0,
        Format::Mxfp4,
        Format::Nvfp4,
        Format::Q4Z,
        Format::Q8Z,
        Format::F8Scaled,
        Format::Nvfp4Scaled,
    ];

    const fn layout(self) -> Layout {
        match self {
            Format::F32 => layout("f32", 1, 4),
            Format::F16 => layout("f16", 1, 2),
            Format::Bf16 => layout("bf16", 1, 2),
            Format::F64 => layout("f64", 1, 8),
            Format::U8 => layout("u8", 1, 1),
            Format::I8 => layout("i8", 1, 1),
            Format::I16 => layout("i16", 1, 2),
            Format::I32 => layout("i32", 1, 4),
            Format::I64 => layout("i64", 1, 8),
            Format::F8E4M3 => layout("f8_e4m3", 1, 1),
            Format::F8E5M2 => layout("f8_e5m2", 1, 1),
            Format::F8E8M0 => layout("f8_e8m0", 1, 1),
            Format::F4E2M1 => layout("f4_e2m1", 2, 1),
            Format::Q1_0 => layout("q1_0", 128, 2 + 16),
            Format::Q2_0 => layout("q2_0", 64, 2 + 16),
            Format::Q4_0 => layout("q4_0", 32, 2 + 16),
            Format::Q4_1 => layout("q4_1", 32, 4 + 16),
            Format::Q5_0 => layout("q5_0", 32, 2 + 4 + 16),
            Format::Q5_1 => layout("q5_1", 32, 4 + 4 + 16),
            Format::Q8_0 => layout("q8_0", 32, 2 + 32),
            Format::Q8_1 => layout("q8_1", 32, 4 + 32),
            Format::Q2K => layout("q2_k", 256, 16 + 64 + 4),
            Format::Q3K => layout("q3_k", 256, 32 + 64 + 12 + 2),
            Format::Q4K => layout("q4_k", 256, 4 + 12 + 128),
            Format::Q5K => layout("q5_k", 256, 4 + 12 + 32 + 128),
            Format::Q6K => layout("q6_k", 256, 128 + 64 + 16 + 2),
            Format::Q8K => layout("q8_k", 256, 4 + 256 + 32),
            Format::Iq1S => layout("iq1_s", 256, 2 + 32 + 16),
            Format::Iq1M => layout("iq1_m", 256, 32 + 16 + 8),
            Format::Iq2Xxs => layout("iq2_xxs", 256, 2 + 64),
            Format::Iq2Xs => layout("iq2_xs", 256, 2 + 64 + 8),
            Format::Iq2S => layout("iq2_s", 256, 2 + 32 + 32 + 8 + 8),
            Format::Iq3Xxs => layout("iq3_xxs", 256, 2 + 64 + 32),
            Format::Iq3S => layout("iq3_s", 256, 2 + 64 + 8 + 32 + 4),
            Format::Iq4Nl => layout("iq4_nl", 32, 2 + 16),
            Format::Iq4Xs => layout("iq4_xs", 256, 4 + 4 + 128),
            Format::Tq1_0 => layout("tq1_0", 256, 48 + 4 + 2),
            Format::Tq2_0 => layout("tq2_0", 256, 64 + 2),
            Format::Mxfp4 => layout("mxfp4", 32, 1 + 16),
            Format::Nvfp4 => layout("nvfp4", 64, 4 + 32),
            Format::Q4Z => layout("q4_z", 32, 4 + 16),
            Format::Q8Z => layout("q8_z", 32, 4 + 32),
            Format::F8Scaled => layout("f8_scaled", 32, 4 + 32),
            Format::Nvfp4Scaled => layout("nvfp4_scaled", 64, 4 + 4 + 32),
        }
    }

    /// Elements in one block; 1 for plain numbers.
    pub const fn block_elements(self) -> usize {
        self.layout().block_elements
    }

    /// Bytes of one block.
    pub const fn block_bytes(self) -> usize {
        self.layout().block_bytes
    }

    /// Bytes of a row of `elements`, or `None` where the row is not a whole number of blocks or too long.
    pub const fn row_bytes(self, elements: usize) -> Option<usize> {
        if !elements.is_multiple_of(self.block_elements()) {
            return None;
        }
        (elements / self.block_elements()).checked_mul(self.block_bytes())
    }

    /// Whether several elements share a block, so that one of them alone has no bytes.
    pub const fn is_quantised(self) -> bool {
        self.block_elements() > 1
    }

    /// Whether the elements are integers: indices and codes, which small tables hold and no weight is made of.
    pub const fn is_integer(self) -> bool {
        matches!(self, Format::U8 | Format::I8 | Format::I16 | Format::I32 | Format::I64)
    }

    /// The field's name of the format, in lower case.
    pub const fn name(self) -> &'static str {
        self.layout().name
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
