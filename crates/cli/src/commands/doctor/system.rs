//! The files in which a system describes itself, below a folder that tests replace.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Bytes of a file that are read.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Numbers in a list of processors.
const NUMBER_MAX: usize = 1 << 16;

/// A system's tree of files.
pub(super) struct System {
    root: PathBuf,
}

impl System {
    /// The one that we run on.
    pub(super) fn here() -> Self {
        Self::below("/")
    }

    pub(super) fn below(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Where an absolute path lies.
    pub(super) fn place(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// A file's bytes; none where it can't be read.
    pub(super) fn bytes(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(self.place(path)).ok()?.take(FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// A file's text without the white space around it.
    pub(super) fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        let text = String::from_utf8(self.bytes(path)?).ok()?;
        Some(text.trim().to_owned())
    }

    /// The names in a folder, ascending.
    pub(super) fn names(&self, folder: impl AsRef<Path>) -> Vec<String> {
        let entries = fs::read_dir(self.place(folder)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// What follows `key` and a colon on the first line that begins so.
    pub(super) fn entry(&self, path: impl AsRef<Path>, key: &str) -> Option<String> {
        let text = self.text(path)?;
        let mut values = text.lines().filter_map(|line| line.split_once(':'));
        values.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim().to_owned())
    }

    /// A number of kibibytes of /proc/meminfo, in bytes.
    pub(super) fn memory(&self, key: &str) -> Option<u64> {
        let kibibytes: u64 = self.entry("/proc/meminfo", key)?.strip_suffix(" kB")?.parse().ok()?;
        kibibytes.checked_mul(1024)
    }
}

/// The numbers of a list such as `0-3,8`.
pub(super) fn numbers(list: &str) -> Option<BTreeSet<usize>> {
    let mut numbers = BTreeSet::new();
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if last > NUMBER_MAX {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A system of these files.
    pub(crate) fn system(files: &[(&str, &str)]) -> (tempfile::TempDir, System) {
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
    fn lists_of_processors_are_ranges_and_numbers() {
        let check = |list: &str, expected: Option<&[usize]>| {
            let expected = expected.map(|numbers| numbers.iter().copied().collect());
            assert_eq!(numbers(list), expected, "{list:?}");
        };
        check("0-3,8\n", Some(&[0, 1, 2, 3, 8]));
        check("5", Some(&[5]));
        check("3-1", Some(&[]));
        check("", None);
        check("0-x", None);
        check("0-99999999999", None);
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
