//! The tensor types of GGUF by number: the field's name, and our format where there is one.

use gannet_tensor::Format;

/// A tensor type that the field knows.
pub(crate) struct TensorType {
    /// The number in the file.
    pub(crate) id: u32,
    /// The field's name.
    pub(crate) name: &'static str,
    /// What it is; `None` for types that were withdrawn.
    pub(crate) format: Option<Format>,
}

/// The type with this number.
pub(crate) fn find(id: u32) -> Option<&'static TensorType> {
    TENSOR_TYPES.iter().find(|kind| kind.id == id)
}

/// The number of a format in a file; `None` where GGUF has no such type.
pub(crate) fn id_of(format: Format) -> Option<u32> {
    TENSOR_TYPES.iter().find(|kind| kind.format == Some(format)).map(|kind| kind.id)
}

const fn known(id: u32, format: Format) -> TensorType {
    TensorType { id, name: format.name(), format: Some(format) }
}

const fn named(id: u32, name: &'static str) -> TensorType {
    TensorType { id, name, format: None }
}

/// Source: `enum ggml_type` of the ggml project.
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
    known(9, Format::Q8_1),
    known(10, Format::Q2K),
    known(11, Format::Q3K),
    known(12, Format::Q4K),
    known(13, Format::Q5K),
    known(14, Format::Q6K),
    known(15, Format::Q8K),
    known(16, Format::Iq2Xxs),
    known(17, Format::Iq2Xs),
    known(18, Format::Iq3Xxs),
    known(19, Format::Iq1S),
    known(20, Format::Iq4Nl),
    known(21, Format::Iq3S),
    known(22, Format::Iq2S),
    known(23, Format::Iq4Xs),
    known(24, Format::I8),
    known(25, Format::I16),
    known(26, Format::I32),
    known(27, Format::I64),
    known(28, Format::F64),
    known(29, Format::Iq1M),
    known(30, Format::Bf16),
    named(31, "q4_0_4_4"),
    named(32, "q4_0_4_8"),
    named(33, "q4_0_8_8"),
    known(34, Format::Tq1_0),
    known(35, Format::Tq2_0),
    named(36, "iq4_nl_4_4"),
    named(37, "iq4_nl_4_8"),
    named(38, "iq4_nl_8_8"),
    known(39, Format::Mxfp4),
    known(40, Format::Nvfp4),
    known(41, Format::Q1_0),
    known(42, Format::Q2_0),
];
