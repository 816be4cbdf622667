//! A model on disk: a GGUF file, or a Hugging Face directory with safetensors. The way into this crate.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use gannet_tensor::Format;

use crate::gguf::{self, Metadata};
use crate::hugging_face::{HuggingFaceFiles, TextFile, listing};
use crate::mmap::MappedFile;
use crate::packed::{self, PackedTensor};
use crate::safetensors;
use crate::stored::StoredTensors;
use crate::tensor::{Data, Tensor, UnsupportedTensor};
use crate::{FormatError, limits};

/// An open model: what describes it, and its tensors as mapped memory.
///
/// A weight that the files hold in parts, as quantised checkpoints of Hugging Face do, is one tensor here.
///
/// A tensor of a type that has no [`Format`] doesn't keep a checkpoint from being opened, as it may not be needed; it
/// is listed by [`Checkpoint::unsupported`], and asking for it is an error that names the type.
#[derive(Debug)]
pub struct Checkpoint {
    /// What describes the model.
    pub source: Source,
    path: PathBuf,
    stored: StoredTensors,
    packed: Vec<PackedTensor>,
    packed_places: HashMap<String, usize>,
    // What becomes of each stored tensor.
    roles: Vec<Role>,
}

/// Where the description of a model comes from.
#[derive(Clone, Debug)]
pub enum Source {
    /// The metadata of a GGUF file; of a split one, that of its first part.
    Gguf(Metadata),
    /// The JSON and text files of a Hugging Face directory.
    HuggingFace(HuggingFaceFiles),
}

/// What a stored tensor is to those who ask for tensors.
#[derive(Clone, Copy, Debug)]
enum Role {
    /// A tensor as it is.
    Itself,
    /// The first part of this packed tensor, which is listed in its place.
    First(usize),
    /// Another part of a packed tensor, not listed.
    Part,
}

impl Checkpoint {
    /// Opens the GGUF file, any part of a split GGUF model, or the Hugging Face directory at `path`.
    pub fn open(path: &Path) -> Result<Self, FormatError> {
        let metadata = fs::metadata(path).map_err(|source| FormatError::unreadable(path, source))?;
        if metadata.is_dir() { Self::open_directory(path) } else { Self::open_gguf(path) }
    }

    /// Reads what describes the model in the Hugging Face directory at `path`; its weights need not be there, and none are
    /// found in it.
    pub fn describe(path: &Path) -> Result<Self, FormatError> {
        let description = HuggingFaceFiles::read(path)?;
        Ok(Self::new(path, Source::HuggingFace(description), StoredTensors::default(), Vec::new()))
    }

    fn open_gguf(path: &Path) -> Result<Self, FormatError> {
        let (metadata, parts) = gguf::open(path)?;
        let mut stored = StoredTensors::default();
        for (file, records) in parts {
            stored.push(file, records)?;
        }
        let packed = packed::find_in_gguf(&stored)?;
        Ok(Self::new(path, Source::Gguf(metadata), stored, packed))
    }

    fn open_directory(path: &Path) -> Result<Self, FormatError> {
        let description = HuggingFaceFiles::read(path)?;
        let stored = read_safetensors(path)?;
        let packed = packed::find(&path.join("config.json"), &description.config, &stored)?;
        Ok(Self::new(path, Source::HuggingFace(description), stored, packed))
    }

    fn new(path: &Path, source: Source, stored: StoredTensors, packed: Vec<PackedTensor>) -> Self {
        let mut roles = vec![Role::Itself; stored.len()];
        for (index, tensor) in packed.iter().enumerate() {
            for &part in &tensor.parts {
                roles[part] = Role::Part;
            }
            roles[tensor.parts[0]] = Role::First(index);
        }
        let packed_places =
            packed.iter().enumerate().map(|(index, tensor)| (tensor.name.clone(), index)).collect();
        Self { source, path: path.to_path_buf(), stored, packed, packed_places, roles }
    }

    /// The path that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The tensor `name`, or `None` where there is none. An error where its type is not supported.
    pub fn tensor(&self, name: &str) -> Result<Option<Tensor<'_>>, FormatError> {
        if let Some(&index) = self.packed_places.get(name) {
            return Ok(Some(self.packed(index)));
        }
        let Some(place) = self.stored.place(name) else { return Ok(None) };
        let Role::Itself = self.roles[place] else { return Ok(None) };
        self.stored.tensor(place).map(Some).map_err(|unsupported| FormatError::UnsupportedTensor {
            file: self.stored.file_of(place).path().to_path_buf(),
            tensor: name.to_owned(),
            kind: unsupported.kind.to_owned(),
            supported: Format::ALL.map(Format::name).join(", "),
        })
    }

    /// All tensors of supported types, in the order of the files.
    pub fn tensors(&self) -> impl Iterator<Item = Tensor<'_>> {
        self.roles.iter().enumerate().filter_map(|(place, role)| match role {
            Role::Itself => self.stored.tensor(place).ok(),
            Role::First(index) => Some(self.packed(*index)),
            Role::Part => None,
        })
    }

    /// All tensors of other types, in the order of the files.
    pub fn unsupported(&self) -> impl Iterator<Item = UnsupportedTensor<'_>> {
        (0..self.stored.len()).filter_map(|place| self.stored.tensor(place).err())
    }

    /// The bytes of all files with tensors.
    pub fn file_bytes(&self) -> usize {
        self.stored.files().iter().map(|file| file.bytes().len()).sum()
    }

    /// The bytes of all tensors of supported types, in the form in which they are handed out.
    pub fn tensor_bytes(&self) -> usize {
        self.tensors().map(|tensor| tensor.byte_length()).sum()
    }

    /// Asks the system to read all files ahead, for a caller that is about to read every tensor. A hint.
    pub fn prefetch(&self) {
        for file in self.stored.files() {
            file.prefetch();
        }
    }

    fn packed(&self, index: usize) -> Tensor<'_> {
        let packed = &self.packed[index];
        let PackedTensor { name, shape, format, .. } = packed;
        Tensor { name, format: *format, shape, data: Data::Packed(packed), stored: &self.stored }
    }
}

/// The tensors of a directory: of model.safetensors, or of the shards that its index lists.
fn read_safetensors(directory: &Path) -> Result<StoredTensors, FormatError> {
    let mut stored = StoredTensors::default();
    let single = directory.join("model.safetensors");
    let index = directory.join("model.safetensors.index.json");
    if single.exists() {
        push_safetensors(&mut stored, &single)?;
    } else if index.is_file() {
        push_shards(&mut stored, directory, &TextFile::new(index, limits::INDEX_BYTES, "INDEX_BYTES"))?;
    } else {
        let (directory, found) = (directory.to_path_buf(), listing(directory));
        return Err(FormatError::NoWeights { directory, found });
    }
    Ok(stored)
}

fn push_shards(stored: &mut StoredTensors, directory: &Path, index: &TextFile) -> Result<(), FormatError> {
    for (shard, expected) in safetensors::read_index(index)? {
        let path = directory.join(&shard);
        push_safetensors(stored, &path)?;
        let holds =
            |tensor: &String| stored.place(tensor).is_some_and(|place| stored.file_of(place).path() == path);
        if let Some(tensor) = expected.into_iter().find(|tensor| !holds(tensor)) {
            return Err(FormatError::NotInShard { file: index.path.clone(), tensor, shard });
        }
    }
    Ok(())
}

fn push_safetensors(stored: &mut StoredTensors, path: &Path) -> Result<(), FormatError> {
    let file = MappedFile::open(path)?;
    let records = safetensors::read(path, file.bytes())?;
    stored.push(file, records)
}
