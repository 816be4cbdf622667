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
    layout: GgufLayout,
    // Invariant: the bytes of each tensor of the layout.
    data: Vec<&'a [u8]>,
}

impl<'a> GgufWriter<'a> {
    /// A file without entries and tensors; `file` is only what errors name.
    pub fn new(file: &Path) -> Self {
        Self { layout: GgufLayout::new(file), data: Vec::new() }
    }

    /// Adds a metadata entry. An error where the key was pushed before or is too long.
    pub fn push_entry(&mut self, key: &str, value: impl Into<Value>) -> Result<(), FormatError> {
        self.layout.push_entry(key, value)
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
        let file = self.layout.metadata.file();
        let expected = byte_length(file, name, shape, format)?;
        if expected != bytes.len() {
            let (file, tensor) = (file.to_path_buf(), name.to_owned());
            return Err(FormatError::TensorBytes { file, tensor, expected, found: bytes.len() });
        }
        self.layout.declare_tensor(name, format, shape)?;
        self.data.push(bytes);
        Ok(())
    }

    /// Writes the file. An error where writing fails or `general.alignment` is no alignment.
    pub fn write(&self, out: impl Write) -> Result<(), FormatError> {
        let mut stream = self.layout.begin(out)?;
        for bytes in &self.data {
            stream.write(bytes)?;
        }
        stream.finish()
    }
}

/// A GGUF file before its data: entries, and tensors by name, format and shape.
///
/// For files that are larger than the memory: once all is declared, [`GgufLayout::begin`] takes the data in pieces.
#[derive(Debug)]
pub struct GgufLayout {
    metadata: Metadata,
    tensors: Vec<DeclaredTensor>,
    names: HashSet<String>,
}

#[derive(Debug)]
struct DeclaredTensor {
    name: String,
    // The number of the format.
    kind: u32,
    shape: Vec<usize>,
    bytes: usize,
}

impl GgufLayout {
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

    /// Adds a tensor of `shape`, outermost dimension first. An error where the name was declared before, the name or
    /// the shape is too long, GGUF has no such type, or a row is no whole number of blocks.
    pub fn declare_tensor(&mut self, name: &str, format: Format, shape: &[usize]) -> Result<(), FormatError> {
        let file = self.metadata.file();
        self.limited(
            "the length of a tensor name",
            name.len(),
            limits::TENSOR_NAME_BYTES,
            "TENSOR_NAME_BYTES",
        )?;
        self.limited("the number of dimensions", shape.len(), limits::DIMENSIONS, "DIMENSIONS")?;
        let bytes = byte_length(file, name, shape, format)?;
        let (file, tensor) = (file.to_path_buf(), name.to_owned());
        let Some(kind) = tensor_type::id_of(format) else {
            return Err(FormatError::NoTensorType { file, tensor, format: format.name() });
        };
        if !self.names.insert(tensor.clone()) {
            return Err(FormatError::DuplicateTensor { file, tensor });
        }
        self.tensors.push(DeclaredTensor { name: tensor, kind, shape: shape.to_vec(), bytes });
        Ok(())
    }

    /// Writes all that comes before the data. An error where writing fails or `general.alignment` is no alignment.
    pub fn begin<W: Write>(&self, out: W) -> Result<GgufStream<'_, W>, FormatError> {
        let alignment = alignment(&self.metadata)?;
        let mut stream = GgufStream { layout: self, alignment, out, tensor: 0, written: 0 };
        let header = self.header(alignment);
        let written = stream.out.write_all(&header);
        written.map_err(|source| self.unwritable(source))?;
        stream.pad(header.len())?;
        stream.skip_empty();
        Ok(stream)
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
            offset += tensor.bytes.next_multiple_of(alignment);
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

    fn unwritable(&self, source: io::Error) -> FormatError {
        FormatError::Io { file: self.metadata.file().to_path_buf(), action: "write", source }
    }
}

/// The data of a GGUF file on its way out, tensor after tensor in the order of their declaration.
#[derive(Debug)]
pub struct GgufStream<'a, W: Write> {
    layout: &'a GgufLayout,
    alignment: usize,
    out: W,
    // The tensor that the next bytes belong to, and how many of its bytes are written.
    // Invariant: fewer than it has.
    tensor: usize,
    written: usize,
}

impl<W: Write> GgufStream<'_, W> {
    /// Writes the next bytes of the present tensor; when it has all, the next one begins. An error where writing fails
    /// or where there are more bytes than the tensor still needs.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), FormatError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let needed = self.layout.tensors.get(self.tensor).map_or(0, |tensor| tensor.bytes);
        if bytes.len() > needed - self.written {
            return Err(self.wrong_length(self.written + bytes.len()));
        }
        self.out.write_all(bytes).map_err(|source| self.layout.unwritable(source))?;
        self.written += bytes.len();
        if self.written == needed {
            self.pad(needed)?;
            (self.tensor, self.written) = (self.tensor + 1, 0);
            self.skip_empty();
        }
        Ok(())
    }

    /// Ends the file. An error where a tensor lacks bytes or where writing fails.
    pub fn finish(mut self) -> Result<(), FormatError> {
        if self.tensor < self.layout.tensors.len() {
            return Err(self.wrong_length(self.written));
        }
        self.out.flush().map_err(|source| self.layout.unwritable(source))
    }

    /// Steps over tensors without elements, which have no bytes to wait for.
    fn skip_empty(&mut self) {
        let rest = self.layout.tensors[self.tensor..].iter();
        self.tensor += rest.take_while(|tensor| tensor.bytes == 0).count();
    }

    /// Zeros from `length` to the next multiple of the alignment.
    fn pad(&mut self, length: usize) -> Result<(), FormatError> {
        let padding = length.next_multiple_of(self.alignment) - length;
        let written = io::copy(&mut io::Read::take(io::repeat(0), padding as u64), &mut self.out);
        written.map(drop).map_err(|source| self.layout.unwritable(source))
    }

    fn wrong_length(&self, found: usize) -> FormatError {
        let file = self.layout.metadata.file().to_path_buf();
        let tensor = self.layout.tensors.get(self.tensor).or(self.layout.tensors.last());
        let (tensor, expected) =
            tensor.map_or((String::new(), 0), |tensor| (tensor.name.clone(), tensor.bytes));
        // Bytes beyond the last tensor count as more of it.
        let found = if self.tensor < self.layout.tensors.len() { found } else { expected + found };
        FormatError::TensorBytes { file, tensor, expected, found }
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
