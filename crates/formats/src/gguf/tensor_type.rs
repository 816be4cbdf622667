//! The tensor types of GGUF by number: the field's name, the size of a block, and our format where there is one.

use gannet_tensor::Format;

use crate::tensor::Block;

/// A tensor type that the field knows.
pub(crate) struct TensorType {
    /// The number in the file.
    pub(crate) id: u32,
    /// The field's name.
    pub(crate) name: &'static str,
    /// The block; `None` for types that were withdrawn or whose layout we don't know.
    pub(crate) block: Option<Block>,
    /// How to decode it, where we can.
    pub(crate) format: Option<Format>,
}

/// The type with this number.
pub(crate) fn find(id: u32) -> Option<&'static TensorType> {
    TENSOR_TYPES.iter().find(|kind| kind.id == id)
}

/// The number of a format in a file.
pub(crate) fn id_of(format: Format) -> u32 {
    let found = TENSOR_TYPES.iter().find(|kind| kind.format == Some(format));
    found.expect("every format has a row in the table").id
}

const fn known(id: u32, format: Format) -> TensorType {
    TensorType { id, name: format.name(), block: Some(Block::of(format)), format: Some(format) }
}

const fn listed(id: u32, name: &'static str, elements: usize, bytes: usize) -> TensorType {
    TensorType { id, name, block: Some(Block { kind: name, elements, bytes }), format: None }
}

const fn named(id: u32, name: &'static str) -> TensorType {
    TensorType { id, name, block: None, format: None }
}

/// Source: `enum ggml_type` of the ggml project and the block sizes of the Python package `gguf`.
const TENSOR_TYPES: [TensorType; 43] = [
    known(0, Format::F32),
    known(1, Format::F16),
    known(2, Format::Q4_0),
    known(3, Format::Q4_1),
    named(4, "q4_2"),
    named(5, "q4_3"),
    known(6, Format::Q5_0),
    known(7, Format::Q5_1),
    known(8, Format::Q8_0),
    listed(9, "q8_1", 32, 40),
    listed(10, "q2_k", 256, 84),
    listed(11, "q3_k", 256, 110),
    known(12, Format::Q4K),
    known(13, Format::Q5K),
    known(14, Format::Q6K),
    listed(15, "q8_k", 256, 292),
    listed(16, "iq2_xxs", 256, 66),
    listed(17, "iq2_xs", 256, 74),
    listed(18, "iq3_xxs", 256, 98),
    listed(19, "iq1_s", 256, 50),
    listed(20, "iq4_nl", 32, 18),
    listed(21, "iq3_s", 256, 110),
    listed(22, "iq2_s", 256, 82),
    listed(23, "iq4_xs", 256, 136),
    listed(24, "i8", 1, 1),
    listed(25, "i16", 1, 2),
    listed(26, "i32", 1, 4),
    listed(27, "i64", 1, 8),
    listed(28, "f64", 1, 8),
    listed(29, "iq1_m", 256, 56),
    known(30, Format::Bf16),
    named(31, "q4_0_4_4"),
    named(32, "q4_0_4_8"),
    named(33, "q4_0_8_8"),
    listed(34, "tq1_0", 256, 54),
    listed(35, "tq2_0", 256, 66),
    named(36, "iq4_nl_4_4"),
    named(37, "iq4_nl_4_8"),
    named(38, "iq4_nl_8_8"),
    listed(39, "mxfp4", 32, 17),
    listed(40, "nvfp4", 64, 36),
    listed(41, "q1_0", 128, 18),
    named(42, "q2_0"),
];
