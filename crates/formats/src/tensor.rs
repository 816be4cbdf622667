//! A tensor of a file: its name, format, shape and bytes.

use std::ops::Range;
use std::path::Path;

use gannet_tensor::{Format, TensorView};

use crate::FormatError;

/// A tensor of a checkpoint, as bytes of the mapped file.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'a> {
    /// The name in the file.
    pub name: &'a str,
    /// The numeric encoding.
    pub format: Format,
    /// The dimensions, outermost first (as in Hugging Face; the reverse of GGUF's `ne`).
    pub shape: &'a [usize],
    /// All bytes, exactly as many as `format` and `shape` need.
    pub bytes: &'a [u8],
}

impl<'a> Tensor<'a> {
    /// The same as a view that decodes rows.
    pub fn view(&self) -> TensorView<'a> {
        TensorView::new(self.format, self.shape, self.bytes)
            .expect("the reader checked bytes against shape and format")
    }

    /// The number of elements.
    pub fn elements(&self) -> usize {
        self.bytes.len() / self.format.block_bytes() * self.format.block_elements()
    }
}

/// A tensor of a checkpoint whose type has no [`Format`]: it can be listed, not read.
#[derive(Clone, Copy, Debug)]
pub struct UnsupportedTensor<'a> {
    /// The name in the file.
    pub name: &'a str,
    /// The field's name of the type and its number, such as `iq2_xs (17)`.
    pub kind: &'a str,
    /// The dimensions, outermost first.
    pub shape: &'a [usize],
}

/// How a tensor's numbers are encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Known(Format),
    /// The name of a type that can't be decoded.
    Unsupported(String),
}

/// Where a tensor is in its file.
///
/// Invariant, kept by the readers: `range` lies within the file, and where the encoding is known it has exactly the
/// bytes of `shape`.
#[derive(Clone, Debug)]
pub(crate) struct TensorRecord {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) encoding: Encoding,
    pub(crate) range: Range<usize>,
}

/// The block of a type: its name, and what a row is a whole number of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub(crate) kind: &'static str,
    pub(crate) elements: usize,
    pub(crate) bytes: usize,
}

impl Block {
    pub(crate) const fn of(format: Format) -> Self {
        Self { kind: format.name(), elements: format.block_elements(), bytes: format.block_bytes() }
    }
}

/// The bytes of a tensor of `shape`, whose rows must be whole numbers of blocks.
pub(crate) fn byte_length(
    file: &Path,
    tensor: &str,
    shape: &[usize],
    block: Block,
) -> Result<usize, FormatError> {
    let (columns, outer) = shape.split_last().map_or((1, &[][..]), |(last, outer)| (*last, outer));
    if !columns.is_multiple_of(block.elements) {
        return Err(FormatError::NotWholeBlocks {
            file: file.to_path_buf(),
            tensor: tensor.to_owned(),
            kind: block.kind,
            columns,
            block: block.elements,
        });
    }
    let rows = outer.iter().try_fold(1usize, |product, &n| product.checked_mul(n));
    let row_bytes = (columns / block.elements).checked_mul(block.bytes);
    let bytes = rows.zip(row_bytes).and_then(|(rows, bytes)| rows.checked_mul(bytes));
    bytes.ok_or_else(|| FormatError::SizeOverflow {
        file: file.to_path_buf(),
        tensor: tensor.to_owned(),
        shape: shape.iter().map(|&n| n as u64).collect(),
    })
}
