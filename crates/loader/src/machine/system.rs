//! The files in which a system describes itself, below a folder that tests replace.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Bytes of a file that are read.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// A system's tree of files.
pub struct System {
    root: PathBuf,
}

impl System {
    /// The one that we run on.
    pub fn here() -> Self {
        Self::below("/")
    }

    /// One whose files lie below a folder.
    pub fn below(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Where an absolute path lies.
    pub fn place(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// A file's bytes; none where it can't be read.
    pub fn bytes(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(self.place(path)).ok()?.take(FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// A file's text without the white space around it.
    pub fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        let text = String::from_utf8(self.bytes(path)?).ok()?;
        Some(text.trim().to_owned())
    }

    /// The names in a folder, ascending.
    pub fn names(&self, folder: impl AsRef<Path>) -> Vec<String> {
        let entries = fs::read_dir(self.place(folder)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// What follows `key` and a colon on the first line that begins so.
    pub fn entry(&self, path: impl AsRef<Path>, key: &str) -> Option<String> {
        let text = self.text(path)?;
        let mut values = text.lines().filter_map(|line| line.split_once(':'));
        values.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim().to_owned())
    }

    /// A number of kibibytes of /proc/meminfo, in bytes.
    pub fn memory(&self, key: &str) -> Option<u64> {
        let kibibytes: u64 = self.entry("/proc/meminfo", key)?.strip_suffix(" kB")?.parse().ok()?;
        kibibytes.checked_mul(1024)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A system of these files.
    pub(in crate::machine) fn system(files: &[(&str, &str)]) -> (tempfile::TempDir, System) {
        let folder = tempfile::tempdir().unwrap();
        let system = System::below(folder.path());
        for (path, text) in files {
            let place = system.place(path);
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            fs::write(place, text).unwrap();
        }
        (folder, system)
    }

    #[test]
    fn entries_are_found_by_their_key() {
        let (_folder, system) =
            system(&[("/proc/meminfo", "MemTotal:   10 kB\nMemAvailable: 3 kB\nOdd: 5\n")]);
        assert_eq!(system.memory("MemTotal"), Some(10 * 1024));
        assert_eq!(system.memory("MemAvailable"), Some(3 * 1024));
        assert_eq!(system.memory("Odd"), None);
        assert_eq!(system.memory("SwapTotal"), None);
        assert_eq!(system.entry("/absent", "MemTotal"), None);
    }
}
