//! A tensor of a checkpoint: its name, format, shape and bytes.

use std::borrow::Cow;
use std::ops::Range;
use std::path::Path;

use gannet_tensor::Format;

use crate::FormatError;
use crate::gguf::to_little_endian;
use crate::packed::PackedTensor;
use crate::stored::StoredTensors;

/// A tensor of a checkpoint. What it is, is known; its bytes are had by [`Tensor::bytes`].
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'a> {
    /// The name in the file; for a weight that is stored in parts, the name that it would have in one.
    pub name: &'a str,
    /// The numeric encoding.
    pub format: Format,
    /// The dimensions, outermost first (as in Hugging Face; the reverse of GGUF's `ne`).
    pub shape: &'a [usize],
    pub(crate) data: Data<'a>,
    pub(crate) stored: &'a StoredTensors,
}

/// Where the bytes of a tensor come from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Data<'a> {
    /// The mapped file as it is; exactly the bytes of format and shape.
    Mapped(&'a [u8]),
    /// The mapped file in the byte order of big-endian machines; as many bytes.
    BigEndian(&'a [u8]),
    /// Several tensors of the files.
    Packed(&'a PackedTensor),
}

impl<'a> Tensor<'a> {
    /// All bytes, exactly [`byte_length`](Self::byte_length) of them.
    ///
    /// They are the mapped file's where it holds them in this form. Else they are put together anew at each call, in
    /// memory of their own: for tensors of big-endian files, and for weights that are stored in parts. An error where
    /// there is no memory for them.
    pub fn bytes(&self) -> Result<Cow<'a, [u8]>, FormatError> {
        match self.data {
            Data::Mapped(bytes) => Ok(Cow::Borrowed(bytes)),
            Data::BigEndian(bytes) => {
                let mut copy = self.buffer(bytes.len())?;
                copy.copy_from_slice(bytes);
                to_little_endian(self.format, &mut copy);
                Ok(Cow::Owned(copy))
            }
            Data::Packed(packed) => {
                let mut bytes = self.buffer(self.byte_length())?;
                packed.fill(self.stored, &mut bytes);
                Ok(Cow::Owned(bytes))
            }
        }
    }

    /// Tells the system that the bytes were read, so that they no longer take memory of this process; whoever reads them
    /// again has them from the file. A hint.
    pub fn give_back(&self) {
        match self.data {
            Data::Mapped(_) | Data::BigEndian(_) => {
                if let Some(place) = self.stored.place(self.name) {
                    self.stored.give_back(place);
                }
            }
            Data::Packed(packed) => packed.parts.iter().for_each(|place| self.stored.give_back(*place)),
        }
    }

    /// All elements as single-precision numbers. An error as of [`bytes`](Self::bytes).
    pub fn decode(&self) -> Result<Vec<f32>, FormatError> {
        let mut values = vec![0.0; self.elements()];
        self.format.decode(&self.bytes()?, &mut values);
        Ok(values)
    }

    /// The number of bytes.
    pub fn byte_length(&self) -> usize {
        match self.data {
            Data::Mapped(bytes) | Data::BigEndian(bytes) => bytes.len(),
            Data::Packed(packed) => packed.byte_length,
        }
    }

    /// The number of elements.
    pub fn elements(&self) -> usize {
        self.byte_length() / self.format.block_bytes() * self.format.block_elements()
    }

    /// Zeroed memory for the bytes, unless there is none left.
    fn buffer(&self, bytes: usize) -> Result<Vec<u8>, FormatError> {
        let mut buffer = Vec::new();
        let reserved = buffer.try_reserve_exact(bytes);
        reserved.map_err(|_| FormatError::OutOfMemory { tensor: self.name.to_owned(), bytes })?;
        buffer.resize(bytes, 0);
        Ok(buffer)
    }
}

/// A tensor of a checkpoint whose type has no [`Format`]: it can be listed, not read.
#[derive(Clone, Copy, Debug)]
pub struct UnsupportedTensor<'a> {
    /// The name in the file.
    pub name: &'a str,
    /// The field's name of the type and its number, such as `iq4_nl_4_4 (36)`.
    pub kind: &'a str,
    /// The dimensions, outermost first.
    pub shape: &'a [usize],
}

/// How a tensor's numbers are encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Known(Format),
    /// The same, in the byte order of big-endian machines.
    BigEndian(Format),
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

/// The bytes of a tensor of `shape`, whose rows must be whole numbers of blocks.
pub(crate) fn byte_length(
    file: &Path,
    tensor: &str,
    shape: &[usize],
    format: Format,
) -> Result<usize, FormatError> {
    let (columns, outer) = shape.split_last().map_or((1, &[][..]), |(last, outer)| (*last, outer));
    if !columns.is_multiple_of(format.block_elements()) {
        return Err(FormatError::NotWholeBlocks {
            file: file.to_path_buf(),
            tensor: tensor.to_owned(),
            kind: format.name(),
            columns,
            block: format.block_elements(),
        });
    }
    let rows = outer.iter().try_fold(1usize, |product, &n| product.checked_mul(n));
    let row_bytes = (columns / format.block_elements()).checked_mul(format.block_bytes());
    let bytes = rows.zip(row_bytes).and_then(|(rows, bytes)| rows.checked_mul(bytes));
    bytes.ok_or_else(|| FormatError::SizeOverflow {
        file: file.to_path_buf(),
        tensor: tensor.to_owned(),
        shape: shape.iter().map(|&n| n as u64).collect(),
    })
}
