//! A matrix or vector as bytes in somebody else's memory.

use crate::Format;

/// A row-major tensor over borrowed bytes. `shape` lists the outermost dimension first.
#[derive(Clone, Copy, Debug)]
pub struct TensorView<'a> {
    format: Format,
    shape: &'a [usize],
    bytes: &'a [u8],
}

// Invariant: `bytes.len()` is exactly what `format` and `shape` need, so `row` can't be out of bounds.
impl<'a> TensorView<'a> {
    /// A view of `bytes`, which must be exactly as long as `format` and `shape` say.
    pub fn new(format: Format, shape: &'a [usize], bytes: &'a [u8]) -> Result<Self, ViewError> {
        let expected = byte_length(format, shape)
            .ok_or_else(|| ViewError::Misshapen { format, shape: shape.to_vec() })?;
        if expected != bytes.len() {
            return Err(ViewError::WrongLength {
                format,
                shape: shape.to_vec(),
                expected,
                found: bytes.len(),
            });
        }
        Ok(Self { format, shape, bytes })
    }

    /// The numeric encoding.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The dimensions, outermost first.
    pub fn shape(&self) -> &'a [usize] {
        self.shape
    }

    /// All bytes, row after row.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Elements of the innermost dimension.
    pub fn columns(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }

    /// Rows of the innermost dimension: the product of all others.
    pub fn rows(&self) -> usize {
        self.shape.iter().rev().skip(1).product()
    }

    /// The bytes of row `index`.
    pub fn row(&self, index: usize) -> &'a [u8] {
        let row_bytes = self.bytes.len() / self.rows().max(1);
        &self.bytes[index * row_bytes..(index + 1) * row_bytes]
    }

    /// Decodes row `index` into `out`, which has `columns()` elements.
    pub fn decode_row(&self, index: usize, out: &mut [f32]) {
        self.format.decode(self.row(index), out);
    }
}

/// The bytes that a tensor of this shape has, or `None` where a row is no whole number of blocks or too long.
fn byte_length(format: Format, shape: &[usize]) -> Option<usize> {
    let (columns, outer) = shape.split_last().map_or((1, &[][..]), |(last, outer)| (*last, outer));
    let rows = outer.iter().try_fold(1usize, |product, &n| product.checked_mul(n))?;
    format.row_bytes(columns)?.checked_mul(rows)
}

/// What is wrong with a view's bytes.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ViewError {
    /// The shape is no whole number of blocks, or its size overflows.
    #[error("shape {shape:?} is no whole number of `{format}` blocks of {} elements", .format.block_elements())]
    Misshapen {
        /// The encoding asked for.
        format: Format,
        /// The shape asked for, outermost first.
        shape: Vec<usize>,
    },
    /// There are more or fewer bytes than the shape needs.
    #[error("shape {shape:?} in `{format}` needs {expected} bytes, found {found}")]
    WrongLength {
        /// The encoding asked for.
        format: Format,
        /// The shape asked for, outermost first.
        shape: Vec<usize>,
        /// Bytes that the shape needs.
        expected: usize,
        /// Bytes that are there.
        found: usize,
    },
}
