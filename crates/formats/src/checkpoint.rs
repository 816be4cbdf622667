//! A model on disk: a GGUF file, or a Hugging Face directory with safetensors. The way into this crate.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use gannet_tensor::Format;

use crate::gguf::{self, Metadata};
use crate::hugging_face::{HuggingFaceFiles, TextFile, listing};
use crate::mmap::MappedFile;
use crate::safetensors;
use crate::tensor::{Encoding, Tensor, TensorRecord, UnsupportedTensor};
use crate::{FormatError, limits};

/// An open model: what describes it, and its tensors as mapped memory.
///
/// A tensor of a type that has no [`Format`] doesn't keep a checkpoint from being opened, as it may not be needed; it
/// is listed by [`Checkpoint::unsupported`], and asking for it is an error that names the type.
#[derive(Debug)]
pub struct Checkpoint {
    /// What describes the model.
    pub source: Source,
    path: PathBuf,
    files: Vec<MappedFile>,
    // Invariant: each record belongs to the file of its index, whose reader has checked its range.
    tensors: Vec<(usize, TensorRecord)>,
    places: HashMap<String, usize>,
}

/// Where the description of a model comes from.
#[derive(Clone, Debug)]
pub enum Source {
    /// The metadata of a GGUF file.
    Gguf(Metadata),
    /// The JSON and text files of a Hugging Face directory.
    HuggingFace(HuggingFaceFiles),
}

impl Checkpoint {
    /// Opens the GGUF file or the Hugging Face directory at `path`.
    pub fn open(path: &Path) -> Result<Self, FormatError> {
        let metadata = fs::metadata(path).map_err(|source| FormatError::unreadable(path, source))?;
        if metadata.is_dir() { Self::open_directory(path) } else { Self::open_gguf(path) }
    }

    fn open_gguf(path: &Path) -> Result<Self, FormatError> {
        let file = MappedFile::open(path)?;
        if !file.bytes().starts_with(gguf::MAGIC) {
            return Err(not_a_model(&file));
        }
        let (metadata, records) = gguf::read(path, file.bytes())?;
        let mut checkpoint = Self::without_tensors(path, Source::Gguf(metadata));
        checkpoint.push_file(file, records)?;
        Ok(checkpoint)
    }

    fn open_directory(path: &Path) -> Result<Self, FormatError> {
        let description = HuggingFaceFiles::read(path)?;
        let mut checkpoint = Self::without_tensors(path, Source::HuggingFace(description));
        let single = path.join("model.safetensors");
        let index = path.join("model.safetensors.index.json");
        if single.exists() {
            checkpoint.push_safetensors(&single)?;
        } else if index.is_file() {
            let index = TextFile::new(index, limits::INDEX_BYTES, "INDEX_BYTES");
            checkpoint.push_shards(path, &index)?;
        } else {
            let (directory, found) = (path.to_path_buf(), listing(path));
            return Err(FormatError::NoWeights { directory, found });
        }
        Ok(checkpoint)
    }

    fn without_tensors(path: &Path, source: Source) -> Self {
        let path = path.to_path_buf();
        Self { source, path, files: Vec::new(), tensors: Vec::new(), places: HashMap::new() }
    }

    fn push_shards(&mut self, directory: &Path, index: &TextFile) -> Result<(), FormatError> {
        for (shard, expected) in safetensors::read_index(index)? {
            self.push_safetensors(&directory.join(&shard))?;
            let file = self.files.len() - 1;
            let holds =
                |tensor: &String| self.places.get(tensor).is_some_and(|&at| self.tensors[at].0 == file);
            if let Some(tensor) = expected.into_iter().find(|tensor| !holds(tensor)) {
                return Err(FormatError::NotInShard { file: index.path.clone(), tensor, shard });
            }
        }
        Ok(())
    }

    fn push_safetensors(&mut self, path: &Path) -> Result<(), FormatError> {
        let file = MappedFile::open(path)?;
        let records = safetensors::read(path, file.bytes())?;
        self.push_file(file, records)
    }

    fn push_file(&mut self, file: MappedFile, records: Vec<TensorRecord>) -> Result<(), FormatError> {
        for record in records {
            if self.places.insert(record.name.clone(), self.tensors.len()).is_some() {
                let file = file.path().to_path_buf();
                return Err(FormatError::DuplicateTensor { file, tensor: record.name });
            }
            self.tensors.push((self.files.len(), record));
        }
        self.files.push(file);
        Ok(())
    }

    /// The path that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The tensor `name`, or `None` where there is none. An error where its type is not supported.
    pub fn tensor(&self, name: &str) -> Result<Option<Tensor<'_>>, FormatError> {
        let Some(&place) = self.places.get(name) else { return Ok(None) };
        let (file, record) = &self.tensors[place];
        match &record.encoding {
            Encoding::Known(format) => Ok(Some(self.known(*file, record, *format))),
            Encoding::Unsupported(kind) => Err(FormatError::UnsupportedTensor {
                file: self.files[*file].path().to_path_buf(),
                tensor: name.to_owned(),
                kind: kind.clone(),
                supported: Format::ALL.map(Format::name).join(", "),
            }),
        }
    }

    /// All tensors of supported types, in the order of the files.
    pub fn tensors(&self) -> impl Iterator<Item = Tensor<'_>> {
        self.tensors.iter().filter_map(|(file, record)| match &record.encoding {
            Encoding::Known(format) => Some(self.known(*file, record, *format)),
            Encoding::Unsupported(_) => None,
        })
    }

    /// All tensors of other types, in the order of the files.
    pub fn unsupported(&self) -> impl Iterator<Item = UnsupportedTensor<'_>> {
        self.tensors.iter().filter_map(|(_, record)| match &record.encoding {
            Encoding::Known(_) => None,
            Encoding::Unsupported(kind) => {
                Some(UnsupportedTensor { name: &record.name, kind, shape: &record.shape })
            }
        })
    }

    /// The bytes of all files with tensors.
    pub fn file_bytes(&self) -> usize {
        self.files.iter().map(|file| file.bytes().len()).sum()
    }

    /// The bytes of all tensors.
    pub fn tensor_bytes(&self) -> usize {
        self.tensors.iter().map(|(_, record)| record.range.len()).sum()
    }

    /// Asks the system to read all files ahead, for a caller that is about to read every tensor. A hint.
    pub fn prefetch(&self) {
        for file in &self.files {
            file.prefetch();
        }
    }

    fn known<'a>(&'a self, file: usize, record: &'a TensorRecord, format: Format) -> Tensor<'a> {
        let bytes = &self.files[file].bytes()[record.range.clone()];
        Tensor { name: &record.name, format, shape: &record.shape, bytes }
    }
}

/// The error for a file that doesn't begin as a GGUF file does.
fn not_a_model(file: &MappedFile) -> FormatError {
    const SHOWN: usize = 8;
    let bytes = file.bytes();
    let safetensors = file.path().extension().is_some_and(|extension| extension == "safetensors");
    FormatError::NotAModel {
        file: file.path().to_path_buf(),
        found: format!("`{}`", bytes[..bytes.len().min(SHOWN)].escape_ascii()),
        advice: if safetensors {
            "give the directory that holds this file and config.json"
        } else {
            "give a GGUF file or a directory with config.json and model.safetensors"
        },
    }
}
