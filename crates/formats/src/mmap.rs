//! A file as memory: opened once, checked for its length, mapped read-only, paged in on demand.
//!
//! Unsafe code of this crate is here and in `shrunk`.

#![allow(unsafe_code)]

use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};

use memmap2::{Mmap, MmapOptions};

use crate::FormatError;
use crate::shrunk::Registered;

/// A multiple of the size of the system's pages, on all usual ones.
#[cfg(unix)]
const PAGE: usize = 64 * 1024;

/// A whole file, mapped read-only for as long as this lives.
#[derive(Debug)]
pub(crate) struct MappedFile {
    path: PathBuf,
    map: Mmap,
    _registered: Registered,
    // Keeps the file from being replaced in place on systems that lock open files.
    _file: File,
}

impl MappedFile {
    /// Maps the regular file at `path`, which must not be empty.
    pub(crate) fn open(path: &Path) -> Result<Self, FormatError> {
        let unreadable = |source| FormatError::unreadable(path, source);
        // Asked before opening: to open a pipe would wait for its writer.
        if !fs::metadata(path).map_err(unreadable)?.is_file() {
            return Err(FormatError::NotAFile { file: path.to_path_buf() });
        }
        let file = File::open(path).map_err(unreadable)?;
        let length = file.metadata().map_err(unreadable)?.len();
        if length == 0 {
            return Err(FormatError::Empty { file: path.to_path_buf() });
        }
        let length = usize::try_from(length).map_err(|_| FormatError::OverLimit {
            file: path.to_path_buf(),
            what: "the length of the file".to_owned(),
            found: length,
            limit: usize::MAX,
            name: "the address space",
        })?;
        // SAFETY: the mapping is private to this process and read-only, and covers bytes that the file has now. What
        // remains is that somebody shortens or rewrites the file while it is mapped. No program that maps files can
        // rule that out: all code here treats the bytes as untrusted after every read, and `shrunk` explains the end
        // of a process that reads what is gone.
        let map = unsafe { MmapOptions::new().len(length).map(&file) }.map_err(|source| FormatError::Io {
            file: path.to_path_buf(),
            action: "map",
            source,
        })?;
        let registered = Registered::new(path, &map);
        Ok(Self { path: path.to_path_buf(), map, _registered: registered, _file: file })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// Asks the system to read the whole file ahead. A hint: where it isn't taken, pages come on demand.
    pub(crate) fn prefetch(&self) {
        #[cfg(unix)]
        let _ = self.map.advise(memmap2::Advice::WillNeed);
    }

    /// Tells the system that these bytes were read: their whole pages no longer count as this process's memory, and come
    /// from the file again where they are read after all. A hint.
    pub(crate) fn give_back(&self, bytes: Range<usize>) {
        #[cfg(unix)]
        {
            // The pages at both ends may have bytes of neighbours.
            let (start, end) = (bytes.start.next_multiple_of(PAGE), bytes.end / PAGE * PAGE);
            if start < end {
                // SAFETY: the mapping is read-only and of a file, so what is given back is read from the file again, the same
                // bytes for everybody who has a reference to them.
                let _ = unsafe {
                    self.map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, end - start)
                };
            }
        }
        #[cfg(not(unix))]
        let _ = bytes;
    }
}
