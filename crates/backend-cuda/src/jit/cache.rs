//! Machine code on disk: a file a variant, whose name has all that the code depends on.
//!
//! A file begins with a checksum of what follows, so a torn or changed one counts as absent and is written again. It is
//! written beside its place and moved there, so that processes that start together disturb nobody. A folder that can't
//! be written keeps nothing, which costs time and no answer.

use super::Variant;
use crate::driver::Architecture;
use crate::options::KernelFolders;
use sha2::{Digest, Sha256};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Bytes of the checksum.
const CHECKSUM_BYTES: usize = 32;
/// Bytes of a file that are read, at most.
const CODE_BYTES_MAX: u64 = 64 << 20;
/// How the names of files that were brought along say which compiler made them.
const CARRIED: &str = "carried";

/// The folders.
pub(super) struct Cache {
    folders: KernelFolders,
}

impl Cache {
    pub(super) fn new(folders: &KernelFolders) -> Self {
        Self { folders: folders.clone() }
    }

    /// Code that was brought along.
    pub(super) fn carried(&self, variant: &Variant, architecture: Architecture) -> Option<Vec<u8>> {
        read(&place(self.folders.carried.as_ref()?, variant, architecture, CARRIED))
    }

    /// Code of this compiler.
    pub(super) fn get(
        &self,
        variant: &Variant,
        architecture: Architecture,
        version: &str,
    ) -> Option<Vec<u8>> {
        read(&place(self.folders.cache.as_ref()?, variant, architecture, version))
    }

    /// Code of any compiler.
    pub(super) fn any(&self, variant: &Variant, architecture: Architecture) -> Option<Vec<u8>> {
        let folder = self.folders.cache.as_ref()?;
        let beginning = begin(variant, architecture);
        let names = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.file_name());
        let mut found: Vec<_> = names.filter(|name| name.to_string_lossy().starts_with(&beginning)).collect();
        found.sort();
        found.iter().rev().find_map(|name| read(&folder.join(name)))
    }

    /// Keeps code, where that is possible.
    pub(super) fn keep(&self, variant: &Variant, architecture: Architecture, version: &str, code: &[u8]) {
        if let Some(folder) = &self.folders.cache {
            // What can't be kept is made again next time.
            let _ = write(folder, &place(folder, variant, architecture, version), code);
        }
    }
}

/// Puts code where it can be brought along from.
pub(super) fn carry(
    folder: &Path,
    variant: &Variant,
    architecture: Architecture,
    code: &[u8],
) -> io::Result<()> {
    write(folder, &place(folder, variant, architecture, CARRIED), code)
}

fn begin(variant: &Variant, architecture: Architecture) -> String {
    format!("{}-{architecture}-{}-", variant.stem(), variant.fingerprint(architecture))
}

fn place(folder: &Path, variant: &Variant, architecture: Architecture, version: &str) -> PathBuf {
    folder.join(format!("{}{version}.cubin", begin(variant, architecture)))
}

fn read(path: &Path) -> Option<Vec<u8>> {
    if fs::metadata(path).ok()?.len() > CODE_BYTES_MAX {
        return None;
    }
    let bytes = fs::read(path).ok()?;
    let (checksum, code) = bytes.split_at_checked(CHECKSUM_BYTES)?;
    (Sha256::digest(code)[..] == *checksum).then(|| code.to_vec())
}

fn write(folder: &Path, path: &Path, code: &[u8]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let beside = path.with_extension(format!("{}.part", std::process::id()));
    fs::write(&beside, [&Sha256::digest(code)[..], code].concat())?;
    fs::rename(&beside, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARCHITECTURE: Architecture = Architecture::new(9, 0);

    fn cache(folder: &Path) -> Cache {
        Cache::new(&KernelFolders { carried: None, cache: Some(folder.to_owned()) })
    }

    #[test]
    fn code_is_found_again_under_all_that_it_depends_on() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let cache = cache(&folder.path().join("new"));
        let half = Variant::new("cast", &[("Y", "f16")]);
        cache.keep(&half, ARCHITECTURE, "13.0", b"code");
        assert_eq!(cache.get(&half, ARCHITECTURE, "13.0").as_deref(), Some(&b"code"[..]));
        assert_eq!(cache.get(&half, ARCHITECTURE, "13.1"), None, "another compiler");
        assert_eq!(cache.get(&half, Architecture::new(8, 0), "13.0"), None, "another architecture");
        let other = Variant::new("cast", &[("Y", "bf16")]);
        assert_eq!(cache.get(&other, ARCHITECTURE, "13.0"), None, "another define");
        assert_eq!(cache.any(&half, ARCHITECTURE).as_deref(), Some(&b"code"[..]), "without a compiler");
    }

    #[test]
    fn a_torn_file_is_absent_and_is_written_again() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let cache = cache(folder.path());
        let variant = Variant::new("add", &[]);
        let path = place(folder.path(), &variant, ARCHITECTURE, "13.0");
        for torn in [&b""[..], b"short", &[0; 100]] {
            fs::write(&path, torn).expect("a file can be written");
            assert_eq!(cache.get(&variant, ARCHITECTURE, "13.0"), None);
            cache.keep(&variant, ARCHITECTURE, "13.0", b"code");
            assert_eq!(cache.get(&variant, ARCHITECTURE, "13.0").as_deref(), Some(&b"code"[..]));
        }
        let names: Vec<_> = fs::read_dir(folder.path()).expect("it is there").flatten().collect();
        assert_eq!(names.len(), 1, "nothing is left beside it");
    }

    #[test]
    fn a_folder_that_cant_be_written_keeps_nothing() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let file = folder.path().join("file");
        fs::write(&file, b"").expect("a file can be written");
        let cache = cache(&file.join("below"));
        let variant = Variant::new("add", &[]);
        cache.keep(&variant, ARCHITECTURE, "13.0", b"code");
        assert_eq!(cache.get(&variant, ARCHITECTURE, "13.0"), None);
    }
}
