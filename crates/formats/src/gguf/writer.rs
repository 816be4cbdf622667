//! Writes GGUF files of version 3, little endian.
//!
//! Entries and tensors come out in the order in which they were pushed, so that a file that was read and is written
//! again has the same bytes.

use std::collections::HashSet;
use std::io::{self, Write};
use std::path::Path;

use gannet_tensor::Format;

use super::metadata::Metadata;
use super::reader::{MAGIC, alignment};
use super::tensor_type;
use super::value::{Array, Value};
use crate::tensor::byte_length;
use crate::{FormatError, limits};

/// A GGUF file in the making. Tensor data is borrowed until it is written.
#[derive(Debug)]
pub struct GgufWriter<'a> {
    metadata: Metadata,
    tensors: Vec<PushedTensor<'a>>,
    names: HashSet<String>,
}

#[derive(Debug)]
struct PushedTensor<'a> {
    name: String,
    // The number of the format.
    kind: u32,
    shape: Vec<usize>,
    bytes: &'a [u8],
}

impl<'a> GgufWriter<'a> {
    /// A file without entries and tensors; `file` is only what errors name.
    pub fn new(file: &Path) -> Self {
        let metadata = Metadata::new(file, []).expect("no entry is no duplicate");
        Self { metadata, tensors: Vec::new(), names: HashSet::new() }
    }

    /// Adds a metadata entry. An error where the key was pushed before or is too long.
    pub fn push_entry(&mut self, key: &str, value: impl Into<Value>) -> Result<(), FormatError> {
        self.limited("the length of a metadata key", key.len(), limits::KEY_BYTES, "KEY_BYTES")?;
        self.metadata.insert(key.to_owned(), value.into())
    }

    /// Adds a tensor of `shape`, outermost dimension first. An error where the name was pushed before, the name or the
    /// shape is too long, GGUF has no such type, a row is no whole number of blocks, or `bytes` is not as long as
    /// `format` and `shape` say.
    pub fn push_tensor(
        &mut self,
        name: &str,
        format: Format,
        shape: &[usize],
        bytes: &'a [u8],
    ) -> Result<(), FormatError> {
        let file = self.metadata.file();
        self.limited(
            "the length of a tensor name",
            name.len(),
            limits::TENSOR_NAME_BYTES,
            "TENSOR_NAME_BYTES",
        )?;
        self.limited("the number of dimensions", shape.len(), limits::DIMENSIONS, "DIMENSIONS")?;
        let expected = byte_length(file, name, shape, format)?;
        let (file, tensor) = (file.to_path_buf(), name.to_owned());
        if expected != bytes.len() {
            return Err(FormatError::TensorBytes { file, tensor, expected, found: bytes.len() });
        }
        let Some(kind) = tensor_type::id_of(format) else {
            return Err(FormatError::NoTensorType { file, tensor, format: format.name() });
        };
        if !self.names.insert(tensor.clone()) {
            return Err(FormatError::DuplicateTensor { file, tensor });
        }
        self.tensors.push(PushedTensor { name: tensor, kind, shape: shape.to_vec(), bytes });
        Ok(())
    }

    /// Writes the file. An error where writing fails or `general.alignment` is no alignment.
    pub fn write(&self, out: impl Write) -> Result<(), FormatError> {
        let alignment = alignment(&self.metadata)?;
        self.write_aligned(out, alignment).map_err(|source| FormatError::Io {
            file: self.metadata.file().to_path_buf(),
            action: "write",
            source,
        })
    }

    fn write_aligned(&self, mut out: impl Write, alignment: usize) -> io::Result<()> {
        let header = self.header(alignment);
        out.write_all(&header)?;
        write_padding(&mut out, header.len(), alignment)?;
        for tensor in &self.tensors {
            out.write_all(tensor.bytes)?;
            write_padding(&mut out, tensor.bytes.len(), alignment)?;
        }
        out.flush()
    }

    /// All before the padding that comes before the data.
    fn header(&self, alignment: usize) -> Vec<u8> {
        let mut header = MAGIC.to_vec();
        header.extend(3u32.to_le_bytes());
        header.extend((self.tensors.len() as u64).to_le_bytes());
        header.extend((self.metadata.entries().len() as u64).to_le_bytes());
        for (key, value) in self.metadata.entries() {
            push_string(&mut header, key);
            header.extend(value.value_type().id().to_le_bytes());
            push_value(&mut header, value);
        }
        let mut offset = 0;
        for tensor in &self.tensors {
            push_string(&mut header, &tensor.name);
            header.extend((tensor.shape.len() as u32).to_le_bytes());
            header.extend(tensor.shape.iter().rev().flat_map(|&n| (n as u64).to_le_bytes()));
            header.extend(tensor.kind.to_le_bytes());
            header.extend((offset as u64).to_le_bytes());
            offset += tensor.bytes.len().next_multiple_of(alignment);
        }
        header
    }

    fn limited(&self, what: &str, found: usize, limit: usize, name: &'static str) -> Result<(), FormatError> {
        if found <= limit {
            return Ok(());
        }
        let file = self.metadata.file().to_path_buf();
        Err(FormatError::OverLimit { file, what: what.to_owned(), found: found as u64, limit, name })
    }
}

fn push_string(header: &mut Vec<u8>, text: &str) {
    header.extend((text.len() as u64).to_le_bytes());
    header.extend(text.as_bytes());
}

fn push_value(header: &mut Vec<u8>, value: &Value) {
    match value {
        Value::U8(number) => header.extend(number.to_le_bytes()),
        Value::I8(number) => header.extend(number.to_le_bytes()),
        Value::U16(number) => header.extend(number.to_le_bytes()),
        Value::I16(number) => header.extend(number.to_le_bytes()),
        Value::U32(number) => header.extend(number.to_le_bytes()),
        Value::I32(number) => header.extend(number.to_le_bytes()),
        Value::U64(number) => header.extend(number.to_le_bytes()),
        Value::I64(number) => header.extend(number.to_le_bytes()),
        Value::F32(number) => header.extend(number.to_le_bytes()),
        Value::F64(number) => header.extend(number.to_le_bytes()),
        Value::Bool(truth) => header.push(u8::from(*truth)),
        Value::String(text) => push_string(header, text),
        Value::Array(array) => push_array(header, array),
    }
}

fn push_array(header: &mut Vec<u8>, array: &Array) {
    header.extend(array.element_type().id().to_le_bytes());
    header.extend((array.len() as u64).to_le_bytes());
    match array {
        Array::U8(numbers) => header.extend(numbers),
        Array::I8(numbers) => header.extend(numbers.iter().flat_map(|number| number.to_le_bytes())),
        Array::U16(numbers) => header.extend(numbers.iter().flat_map(|number| number.to_le_bytes())),
        Array::I16(numbers) => header.extend(numbers.iter().flat_map(|number| number.to_le_bytes())),
        Array::U32(numbers) => header.extend(numbers.iter().flat_map(|number| number.to_le_bytes())),
        Array::I32(numbers) => header.extend(numbers.iter().flat_map(|number| number.to_le_bytes())),
        Array::U64(numbers) => header.extend(numbers.iter().flat_map(|number| number.to_le_bytes())),
        Array::I64(numbers) => header.extend(numbers.iter().flat_map(|number| number.to_le_bytes())),
        Array::F32(numbers) => header.extend(numbers.iter().flat_map(|number| number.to_le_bytes())),
        Array::F64(numbers) => header.extend(numbers.iter().flat_map(|number| number.to_le_bytes())),
        Array::Bool(bools) => header.extend(bools.iter().map(|&truth| u8::from(truth))),
        Array::String(strings) => strings.iter().for_each(|text| push_string(header, text)),
    }
}

/// Zeros from `length` to the next multiple of `alignment`.
fn write_padding(out: &mut impl Write, length: usize, alignment: usize) -> io::Result<()> {
    let padding = length.next_multiple_of(alignment) - length;
    io::copy(&mut io::Read::take(io::repeat(0), padding as u64), out).map(drop)
}
