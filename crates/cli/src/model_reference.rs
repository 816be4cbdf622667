//! What a person writes for a model: a path, or a name on the hub.
//!
//! A path that exists goes first; any other text that has the form of a name is looked up in the cache, then on the
//! hub.

use crate::download;
use crate::failure::Failure;
use gannet_hub::ModelName;
use std::ffi::OsString;
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Endings of files, which a name of a repository may have as well.
const FILE_ENDINGS: [&str; 2] = [".gguf", ".safetensors"];

/// A model as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModelReference(OsString);

/// What a reference means here and now.
#[derive(Debug, PartialEq, Eq)]
enum Meaning {
    Path(PathBuf),
    Name(ModelName),
    Nothing,
}

impl From<OsString> for ModelReference {
    fn from(text: OsString) -> Self {
        Self(text)
    }
}

impl fmt::Display for ModelReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.to_string_lossy())
    }
}

impl ModelReference {
    /// A model written as a part of an argument.
    pub(crate) fn from_text(text: &str) -> Self {
        Self(text.into())
    }

    /// The file or folder to open, fetched from the hub if need be.
    pub(crate) fn locate(&self) -> Result<PathBuf, Failure> {
        match self.meaning() {
            Meaning::Path(path) => Ok(path),
            Meaning::Name(name) => download::obtain(&name),
            Meaning::Nothing => Err(anyhow::anyhow!(
                "`{}` doesn't exist; expected a .gguf file, a folder, or a name on the hub such as ORG/REPO or \
                 ORG/REPO:Q4_K_M",
                Path::new(&self.0).display()
            )
            .into()),
        }
    }

    fn meaning(&self) -> Meaning {
        let path = Path::new(&self.0);
        match path.metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            // What can't be read is opened all the same, since that says why.
            Ok(_) | Err(_) => return Meaning::Path(path.to_path_buf()),
        }
        let name = self.0.to_str().filter(|text| !names_a_file(text));
        match name.map(ModelName::parse) {
            Some(Ok(name)) => Meaning::Name(name),
            Some(Err(_)) | None => Meaning::Nothing,
        }
    }
}

/// Whether the text is rather the path of a file that is missing in a folder that is there.
fn names_a_file(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let parent_is_there = || Path::new(text).parent().is_some_and(Path::is_dir);
    FILE_ENDINGS.iter().any(|ending| lower.ends_with(ending)) && parent_is_there()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_goes_before_a_name_and_a_missing_file_is_no_name() {
        let meaning = |text: &str| ModelReference(text.into()).meaning();
        let name = |text: &str| Meaning::Name(ModelName::parse(text).unwrap());
        // The tests run in the folder of this crate.
        assert_eq!(meaning("src/main.rs"), Meaning::Path("src/main.rs".into()));
        assert_eq!(meaning("src/commands"), Meaning::Path("src/commands".into()));
        assert_eq!(meaning("org/repo"), name("org/repo"));
        assert_eq!(meaning("org/repo:Q4_K_M@main"), name("org/repo:Q4_K_M@main"));
        assert_eq!(meaning("org/a-gguf"), name("org/a-gguf"));
        assert_eq!(meaning("org/a.gguf"), name("org/a.gguf"));
        for text in ["src/absent.gguf", "absent.gguf", "./org/repo", "/org/repo", "a/b/c", "org/", ""] {
            assert_eq!(meaning(text), Meaning::Nothing, "{text:?}");
        }
    }
}
