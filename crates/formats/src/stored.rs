//! The tensors that lie in the files of a checkpoint, by name and in the order of the files.

use std::collections::HashMap;

use gannet_tensor::Format;

use crate::FormatError;
use crate::mmap::MappedFile;
use crate::tensor::{Data, Encoding, Tensor, TensorRecord, UnsupportedTensor};

/// Mapped files and what is in them.
#[derive(Debug, Default)]
pub(crate) struct StoredTensors {
    files: Vec<MappedFile>,
    // Invariant: each record belongs to the file of its index, whose reader has checked its range.
    records: Vec<(usize, TensorRecord)>,
    places: HashMap<String, usize>,
}

impl StoredTensors {
    /// Adds a file and its tensors, none of which may have a name that was there before.
    pub(crate) fn push(&mut self, file: MappedFile, records: Vec<TensorRecord>) -> Result<(), FormatError> {
        for record in records {
            if self.places.insert(record.name.clone(), self.records.len()).is_some() {
                let file = file.path().to_path_buf();
                return Err(FormatError::DuplicateTensor { file, tensor: record.name });
            }
            self.records.push((self.files.len(), record));
        }
        self.files.push(file);
        Ok(())
    }

    pub(crate) fn files(&self) -> &[MappedFile] {
        &self.files
    }

    /// The number of tensors; they are counted from 0 in the order of the files.
    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    pub(crate) fn place(&self, name: &str) -> Option<usize> {
        self.places.get(name).copied()
    }

    pub(crate) fn name(&self, place: usize) -> &str {
        &self.records[place].1.name
    }

    /// The file that holds the tensor at `place`.
    pub(crate) fn file_of(&self, place: usize) -> &MappedFile {
        &self.files[self.records[place].0]
    }

    /// The bytes of the tensor at `place` as they lie in the file.
    pub(crate) fn bytes(&self, place: usize) -> &[u8] {
        &self.file_of(place).bytes()[self.records[place].1.range.clone()]
    }

    /// Tells the system that the bytes of the tensor at `place` were read.
    pub(crate) fn give_back(&self, place: usize) {
        self.file_of(place).give_back(self.records[place].1.range.clone());
    }

    /// The tensor at `place`, or what is known of it where its type has no format.
    pub(crate) fn tensor(&self, place: usize) -> Result<Tensor<'_>, UnsupportedTensor<'_>> {
        let record = &self.records[place].1;
        let TensorRecord { name, shape, encoding, .. } = record;
        let (format, data): (Format, fn(_) -> _) = match encoding {
            Encoding::Known(format) => (*format, Data::Mapped),
            Encoding::BigEndian(format) => (*format, Data::BigEndian),
            Encoding::Unsupported(kind) => return Err(UnsupportedTensor { name, kind, shape }),
        };
        Ok(Tensor { name, format, shape, data: data(self.bytes(place)), stored: self })
    }
}
