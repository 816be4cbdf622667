//! Where libraries of graphics processors lie, and what could be opened of them.

use crate::quantity::entry;
use gannet_backend_cuda::libraries::{DRIVER, NCCL, NVRTC, Places};
use serde::Serialize;

/// One library.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct LibraryFacts {
    name: &'static str,
    /// The first place; null where it wasn't found.
    path: Option<String>,
}

/// The libraries, and where they were looked for.
#[derive(Debug, Serialize)]
pub(super) struct Libraries {
    found: Vec<LibraryFacts>,
    looked_in: Vec<String>,
}

impl Libraries {
    pub(super) fn find(places: &Places) -> Self {
        let find = |name: &'static str| {
            let path = places.find(name).first().map(|path| path.display().to_string());
            LibraryFacts { name, path }
        };
        Self { found: [DRIVER, NVRTC, NCCL].map(find).into(), looked_in: places.looked_in() }
    }

    pub(super) fn lines(&self) -> Vec<String> {
        let text =
            |library: &LibraryFacts| entry(library.name, library.path.as_deref().unwrap_or("not found"));
        let mut lines: Vec<String> = self.found.iter().map(text).collect();
        if self.found.iter().any(|library| library.path.is_none()) {
            lines.push(entry("looked in", &self.looked_in.join(", ")));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_one_is_missing_it_says_where_it_was_looked_for() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("usr/local/cuda")).unwrap();
        let lines = Libraries::find(&Places::below(folder.path(), &|_| None)).lines();
        assert_eq!(lines[0], entry("libcuda.so.1", "not found"));
        let last = lines.last().unwrap();
        assert!(last.contains("/etc/ld.so.cache, ") && last.contains("/usr/local/cuda/lib64"), "{last}");
    }
}
