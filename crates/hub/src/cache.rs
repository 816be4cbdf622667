//! The cache on disk, as Hugging Face's tools lay it out.
//!
//! ```text
//! models--ORG--REPO/refs/BRANCH                 the commit, as text
//! models--ORG--REPO/blobs/HASH                  contents, by their checksum; HASH.incomplete while they arrive
//! models--ORG--REPO/snapshots/COMMIT/PATH       relative links to them (copies where the system has no links)
//! .locks/models--ORG--REPO/HASH.lock            held while a content is fetched
//! ```
//!
//! Folders are walked without following links, so that neither loops nor links out of the cache matter.

use crate::error::HubError;
use crate::listing::{ContentHash, is_hex};
use crate::model_name::ModelName;
use crate::paths::check_path;
use crate::quant::quant_label;
use std::collections::BTreeSet;
use std::fs::{self, File, Metadata, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

const LOCKS: &str = ".locks";
const INCOMPLETE: &str = ".incomplete";
/// Bytes of a file that names a commit.
const REF_BYTES_MAX: u64 = 200;
/// Folders inside each other.
const DEPTH_MAX: usize = 16;

/// A model repository in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedModel {
    /// `ORG/REPO`.
    pub name: ModelName,
    /// Its folder.
    pub folder: PathBuf,
    /// Bytes on disk, of all revisions together, what is unfinished included.
    pub bytes: u64,
    /// The quantisations of its GGUF files, and `safetensors` where it has such weights.
    pub variants: Vec<String>,
    /// Files whose download was interrupted.
    pub unfinished: usize,
    /// When a file was last read or written, as far as the file system notes it.
    pub last_used: Option<SystemTime>,
}

/// One repository's folders.
pub(crate) struct RepoCache {
    pub(crate) folder: PathBuf,
    locks: PathBuf,
}

impl RepoCache {
    pub(crate) fn new(cache: &Path, name: &ModelName) -> Self {
        Self { folder: cache.join(name.folder()), locks: cache.join(LOCKS).join(name.folder()) }
    }

    /// Where a content is when it is whole.
    pub(crate) fn blob(&self, content: &ContentHash) -> PathBuf {
        self.folder.join("blobs").join(content.digits())
    }

    /// Where it is before.
    pub(crate) fn incomplete(&self, content: &ContentHash) -> PathBuf {
        self.folder.join("blobs").join(format!("{}{INCOMPLETE}", content.digits()))
    }

    /// A name for something that is renamed when it is finished; no other thread or process makes the same one.
    fn unfinished(&self, what: &str) -> PathBuf {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let (process, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        self.folder.join("blobs").join(format!("{process}-{count}.{what}{INCOMPLETE}"))
    }

    pub(crate) fn snapshot(&self, commit: &str) -> PathBuf {
        self.folder.join("snapshots").join(commit)
    }

    /// The commit that a revision was when it was last fetched.
    pub(crate) fn commit_of(&self, revision: &str) -> Option<String> {
        if is_hex(revision, 40) && self.snapshot(revision).is_dir() {
            return Some(revision.to_owned());
        }
        let file = self.folder.join("refs").join(revision);
        let is_small = fs::metadata(&file).is_ok_and(|found| found.is_file() && found.len() <= REF_BYTES_MAX);
        let commit = is_small.then(|| fs::read_to_string(file).ok()).flatten()?;
        Some(commit.trim().to_owned()).filter(|commit| is_hex(commit, 40))
    }

    /// Notes the commit of a revision.
    pub(crate) fn set_commit(&self, revision: &str, commit: &str) -> Result<(), HubError> {
        if revision == commit || self.commit_of(revision).as_deref() == Some(commit) {
            return Ok(());
        }
        let file = self.folder.join("refs").join(revision);
        create_parent(&file)?;
        let new = self.unfinished("ref");
        create_parent(&new)?;
        let written = fs::write(&new, commit).and_then(|()| fs::rename(&new, &file));
        written.map_err(|error| clean_up(&new, HubError::io(&file, "write", error)))
    }

    /// Waits until no other process fetches this content; until the file is dropped, none does.
    pub(crate) fn lock(&self, content: &ContentHash, waiting: impl FnOnce()) -> Result<File, HubError> {
        let path = self.locks.join(format!("{}.lock", content.digits()));
        create_parent(&path)?;
        let options = File::options().create(true).truncate(false).write(true).open(&path);
        let file = options.map_err(|error| HubError::io(&path, "write", error))?;
        let locked = match file.try_lock() {
            Err(TryLockError::WouldBlock) => {
                waiting();
                file.lock()
            }
            Err(TryLockError::Error(error)) => Err(error),
            Ok(()) => Ok(()),
        };
        match locked {
            // Without locks two downloads do the same work twice, and the checksum still decides.
            Err(error) if error.kind() != ErrorKind::Unsupported => Err(HubError::io(&path, "lock", error)),
            _ => Ok(file),
        }
    }

    /// Whether the snapshot has a file of this size at `path`.
    pub(crate) fn has(&self, commit: &str, path: &str, bytes: u64) -> bool {
        is_whole(&self.snapshot(commit).join(path), bytes)
    }

    /// Makes a content, which is whole, a file of a snapshot. The caller holds its lock.
    pub(crate) fn link(
        &self,
        name: &str,
        commit: &str,
        path: &str,
        content: &ContentHash,
    ) -> Result<(), HubError> {
        check_path(name, path)?;
        let file = self.snapshot(commit).join(path);
        create_parent(&file)?;
        let blob = self.blob(content);
        let new = self.unfinished("link");
        // One that a dead process of the same id left: a copy would write through it.
        remove_if_there(&new)?;
        let up = "../".repeat(path.split('/').count() + 1);
        let target = format!("{up}blobs/{}", content.digits());
        let made = symlink(Path::new(&target), &new).or_else(|_| fs::copy(&blob, &new).map(|_| ()));
        let placed = made.and_then(|()| fs::rename(&new, &file));
        placed.map_err(|error| clean_up(&new, HubError::io(&file, "create", error)))
    }

    /// Paths of a snapshot's files, sorted; links to nothing are left out.
    pub(crate) fn files(&self, commit: &str) -> Vec<String> {
        let snapshot = self.snapshot(commit);
        let mut paths = Vec::new();
        walk(&snapshot, DEPTH_MAX, &mut |file, _| {
            let path = file.strip_prefix(&snapshot).ok().and_then(Path::to_str);
            if let Some(path) = path.filter(|_| fs::metadata(file).is_ok_and(|found| found.is_file())) {
                paths.push(path.replace('\\', "/"));
            }
        });
        paths.sort();
        paths
    }

    /// Deletes the repository; returns the bytes that it took.
    pub(crate) fn remove(&self, name: &ModelName) -> Result<u64, HubError> {
        let found = fs::symlink_metadata(&self.folder);
        let found = found.map_err(|error| HubError::io(&self.folder, "read", error))?;
        if !found.is_dir() {
            return Err(HubError::NotAFolder { path: self.folder.clone() });
        }
        let _locks = self.lock_all(name)?;
        let mut bytes = 0;
        walk(&self.folder, DEPTH_MAX, &mut |_, metadata| bytes += size_on_disk(metadata));
        fs::remove_dir_all(&self.folder).map_err(|error| HubError::io(&self.folder, "remove", error))?;
        if self.locks.is_dir() {
            fs::remove_dir_all(&self.locks).map_err(|error| HubError::io(&self.locks, "remove", error))?;
        }
        Ok(bytes)
    }

    /// Takes every lock of the repository, unless a download holds one.
    fn lock_all(&self, name: &ModelName) -> Result<Vec<File>, HubError> {
        let mut locks = Vec::new();
        for entry in fs::read_dir(&self.locks).into_iter().flatten().flatten() {
            let Ok(file) = File::options().write(true).open(entry.path()) else { continue };
            if let Err(TryLockError::WouldBlock) = file.try_lock() {
                return Err(HubError::InUse { name: name.repository() });
            }
            locks.push(file);
        }
        Ok(locks)
    }

    fn describe(&self, name: ModelName) -> CachedModel {
        let mut model = CachedModel {
            name,
            folder: self.folder.clone(),
            bytes: 0,
            variants: vec![],
            unfinished: 0,
            last_used: None,
        };
        walk(&self.folder, DEPTH_MAX, &mut |path, metadata| {
            model.bytes += size_on_disk(metadata);
            model.unfinished += usize::from(path.to_str().is_some_and(|path| path.ends_with(INCOMPLETE)));
            if metadata.is_file() {
                let times = [metadata.accessed().ok(), metadata.modified().ok()];
                model.last_used = model.last_used.max(times.into_iter().flatten().max());
            }
        });
        let mut variants = BTreeSet::new();
        for snapshot in fs::read_dir(self.folder.join("snapshots")).into_iter().flatten().flatten() {
            let files = snapshot.file_name().to_str().map(|commit| self.files(commit)).unwrap_or_default();
            variants.extend(files.iter().filter_map(|path| variant(path)));
        }
        model.variants = variants.into_iter().collect();
        model
    }
}

/// All model repositories of a cache, by name.
pub(crate) fn cached_models(cache: &Path) -> Result<Vec<CachedModel>, HubError> {
    let entries = match fs::read_dir(cache) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(vec![]),
        entries => entries.map_err(|error| HubError::io(cache, "read", error))?,
    };
    let mut models = Vec::new();
    for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        if let Some(name) = entry.file_name().to_str().and_then(ModelName::of_folder) {
            models.push(RepoCache::new(cache, &name).describe(name));
        }
    }
    models.sort_by_key(|model| model.name.repository());
    Ok(models)
}

fn variant(path: &str) -> Option<String> {
    if path.ends_with(".safetensors") {
        return Some("safetensors".to_owned());
    }
    if path.contains("mmproj") { None } else { quant_label(path) }
}

/// Calls `visit` for everything below a folder that is no folder, links as themselves. What can't be read is left out.
fn walk(folder: &Path, depth: usize, visit: &mut dyn FnMut(&Path, &Metadata)) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_dir() && depth > 0 => walk(&path, depth - 1, visit),
            Ok(found) if !found.is_dir() => visit(&path, &found),
            _ => {}
        }
    }
}

/// Files that arrive in pieces have holes.
#[cfg(unix)]
fn size_on_disk(metadata: &Metadata) -> u64 {
    use std::os::unix::fs::MetadataExt;
    if metadata.is_file() { metadata.len().min(metadata.blocks().saturating_mul(512)) } else { 0 }
}

#[cfg(not(unix))]
fn size_on_disk(metadata: &Metadata) -> u64 {
    if metadata.is_file() { metadata.len() } else { 0 }
}

/// Whether a file of this size is there.
pub(crate) fn is_whole(file: &Path, bytes: u64) -> bool {
    fs::metadata(file).is_ok_and(|found| found.is_file() && found.len() == bytes)
}

pub(crate) fn create_parent(file: &Path) -> Result<(), HubError> {
    let folder = file.parent().unwrap_or(file);
    fs::create_dir_all(folder).map_err(|error| HubError::io(folder, "create", error))
}

pub(crate) fn remove_if_there(file: &Path) -> Result<(), HubError> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(HubError::io(file, "remove", error)),
        _ => Ok(()),
    }
}

/// Removes what wasn't finished; a failure to do so is less than the one that is reported.
fn clean_up(unfinished: &Path, error: HubError) -> HubError {
    let _ = remove_if_there(unfinished);
    error
}

#[cfg(unix)]
fn symlink(target: &Path, link: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, link)
}

#[cfg(windows)]
fn symlink(target: &Path, link: &Path) -> io::Result<()> {
    std::os::windows::fs::symlink_file(target.to_string_lossy().replace('/', "\\"), link)
}

#[cfg(not(any(unix, windows)))]
fn symlink(_target: &Path, _link: &Path) -> io::Result<()> {
    Err(io::Error::from(ErrorKind::Unsupported))
}
