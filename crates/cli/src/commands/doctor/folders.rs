//! The folders that Gannet writes to, and how much room they have.

use crate::commands::run::history;
use crate::download;
use crate::failure::Failure;
use crate::quantity::{bytes, entry};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// One folder.
#[derive(Debug, Serialize)]
pub(super) struct FolderFacts {
    what: &'static str,
    /// Null where no place is named for it.
    path: Option<PathBuf>,
    exists: bool,
    /// Bytes that this user may still write; null where the system doesn't say.
    free_bytes: Option<u64>,
    problem: Option<String>,
}

/// All of them.
pub(super) fn find() -> Vec<FolderFacts> {
    let models = download::hub().map(|hub| Some(hub.cache().to_path_buf()));
    let history = Ok(history::place());
    vec![FolderFacts::new("model cache", models), FolderFacts::new("chat history", history)]
}

impl FolderFacts {
    fn new(what: &'static str, path: Result<Option<PathBuf>, Failure>) -> Self {
        let (path, problem) = match path {
            Ok(Some(path)) => (Some(path), None),
            Ok(None) => (None, Some("no variable names a place for it".to_owned())),
            Err(Failure::Failed(error)) => (None, Some(error.to_string())),
            Err(other) => (None, Some(format!("{other:?}"))),
        };
        let exists = path.as_ref().is_some_and(|path| path.is_dir());
        let free_bytes = path.as_ref().and_then(|path| path.ancestors().find_map(free_bytes));
        Self { what, path, exists, free_bytes, problem }
    }

    pub(super) fn line(&self) -> String {
        let path = self.path.as_ref().map(|path| path.display().to_string());
        let absent = if self.exists { "" } else { " (doesn't exist yet)" };
        let free =
            self.free_bytes.map_or("free space unknown".to_owned(), |count| format!("{} free", bytes(count)));
        entry(
            self.what,
            &match (path, &self.problem) {
                (Some(path), None) => format!("{path}{absent}, {free}"),
                (_, problem) => format!("none: {}", problem.as_deref().unwrap_or("unknown")),
            },
        )
    }
}

/// Bytes that are free for this user in the file system of a folder; none where it isn't there.
#[cfg(unix)]
fn free_bytes(folder: &Path) -> Option<u64> {
    let facts = rustix::fs::statvfs(folder).ok()?;
    facts.f_bavail.checked_mul(facts.f_frsize)
}

#[cfg(not(unix))]
fn free_bytes(_folder: &Path) -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_not_there_yet_has_the_room_of_the_one_above() {
        let folder = tempfile::tempdir().unwrap();
        let facts = FolderFacts::new("x", Ok(Some(folder.path().join("a/b"))));
        assert!(!facts.exists);
        assert_eq!(facts.free_bytes.is_some(), cfg!(unix));
        assert!(facts.line().contains("(doesn't exist yet)"), "{}", facts.line());
    }
}
