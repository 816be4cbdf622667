//! The numeric encodings of weights and state: how many elements a block holds, and in how many bytes.
//!
//! A row of a matrix is a whole number of blocks, so a row can be moved without decoding it.

use std::fmt;

/// A numeric encoding. Block formats are GGUF's, named in lower case as the field names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Format {
    /// IEEE 754 single precision, little endian.
    F32,
    /// IEEE 754 half precision, little endian.
    F16,
    /// The upper half of a single, little endian.
    Bf16,
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
    /// 256 codes of 4 bits in 8 sub-blocks with 6-bit scales and minima; value = d s q - dmin m.
    Q4K,
    /// 256 codes of 5 bits in 8 sub-blocks with 6-bit scales and minima; value = d s q - dmin m.
    Q5K,
    /// 256 codes of 6 bits in 16 sub-blocks with 8-bit scales; value = d s (q - 32).
    Q6K,
}

impl Format {
    /// Every format, in the order of the enum.
    pub const ALL: [Format; 11] = [
        Format::F32,
        Format::F16,
        Format::Bf16,
        Format::Q4_0,
        Format::Q4_1,
        Format::Q5_0,
        Format::Q5_1,
        Format::Q8_0,
        Format::Q4K,
        Format::Q5K,
        Format::Q6K,
    ];

    /// Elements in one block; 1 for plain numbers.
    pub const fn block_elements(self) -> usize {
        match self {
            Format::F32 | Format::F16 | Format::Bf16 => 1,
            Format::Q4_0 | Format::Q4_1 | Format::Q5_0 | Format::Q5_1 | Format::Q8_0 => 32,
            Format::Q4K | Format::Q5K | Format::Q6K => 256,
        }
    }

    /// Bytes of one block.
    pub const fn block_bytes(self) -> usize {
        match self {
            Format::F32 => 4,
            Format::F16 | Format::Bf16 => 2,
            Format::Q4_0 => 2 + 16,
            Format::Q4_1 => 4 + 16,
            Format::Q5_0 => 2 + 4 + 16,
            Format::Q5_1 => 4 + 4 + 16,
            Format::Q8_0 => 2 + 32,
            Format::Q4K => 4 + 12 + 128,
            Format::Q5K => 4 + 12 + 32 + 128,
            Format::Q6K => 128 + 64 + 16 + 2,
        }
    }

    /// Bytes of a row of `elements`, or `None` where the row is not a whole number of blocks or too long.
    pub const fn row_bytes(self, elements: usize) -> Option<usize> {
        if !elements.is_multiple_of(self.block_elements()) {
            return None;
        }
        (elements / self.block_elements()).checked_mul(self.block_bytes())
    }

    /// Whether several elements share a scale.
    pub const fn is_quantised(self) -> bool {
        self.block_elements() > 1
    }

    /// The field's name of the format, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Format::F32 => "f32",
            Format::F16 => "f16",
            Format::Bf16 => "bf16",
            Format::Q4_0 => "q4_0",
            Format::Q4_1 => "q4_1",
            Format::Q5_0 => "q5_0",
            Format::Q5_1 => "q5_1",
            Format::Q8_0 => "q8_0",
            Format::Q4K => "q4_k",
            Format::Q5K => "q5_k",
            Format::Q6K => "q6_k",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
