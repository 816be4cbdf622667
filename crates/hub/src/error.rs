//! Everything that can go wrong between a model's name and its files, with the facts.

use crate::model_name::ModelName;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Why a model's files aren't there. Each message names the model, file or setting, and what to do where we know.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the message of each variant says what its fields are")]
pub enum HubError {
    // Names and settings.
    #[error("`{name}` is no model name: {problem}; expected ORG/REPO, ORG/REPO:QUANT or ORG/REPO@REVISION")]
    Name { name: String, problem: &'static str },
    #[error("{variable} is {problem}")]
    Setting { variable: &'static str, problem: String },
    #[error("there is no folder for the cache: set HF_HOME to one")]
    NoCacheFolder,

    // What the repository has.
    #[error("`{name}` has no GGUF file of quantisation `{asked}`; there are: {there}")]
    NoSuchQuant { name: String, asked: String, there: String },
    #[error("`{name}` has several models that fit: {there}; choose one with `{name}:FILE`")]
    Ambiguous { name: String, there: String },
    #[error("`{name}` lacks parts of the split model `{stem}`: {found} of {expected} are there")]
    IncompleteSplit { name: String, stem: String, found: usize, expected: usize },
    #[error(
        "`{name}` has only pickled weights ({there}), which can run code when opened and are never fetched; \
         look for a GGUF or safetensors version"
    )]
    OnlyPickles { name: String, there: String },
    #[error(
        "`{name}` has no model: expected a GGUF file, or config.json with model.safetensors or \
         model.safetensors.index.json; there are: {there}"
    )]
    NoModel { name: String, there: String },
    #[error("`{name}`: {index} {problem}")]
    ShardIndex { name: String, index: String, problem: String },
    #[error("`{name}` names a file {file:?}, which can't be stored safely: {problem}")]
    UnsafeName { name: String, file: String, problem: &'static str },
    #[error("`{name}`: {what} is {found}, above the limit of {limit} ({limit_name})")]
    OverLimit { name: String, what: &'static str, found: u64, limit: u64, limit_name: &'static str },

    // What the server says.
    #[error("`{name}` can't be read (HTTP {status}): {advice}")]
    Denied { name: String, status: u16, advice: String },
    #[error("`{name}` was not found at {endpoint}: {what}")]
    NotFound { name: String, endpoint: String, what: &'static str },
    #[error("{url} can't be fetched, given up after {attempts} attempts: {cause}")]
    GaveUp { url: String, attempts: u32, cause: String },
    #[error("{url} can't be fetched: {cause}")]
    Request { url: String, cause: String },
    #[error(
        "{url} can't be trusted: {cause}; where a proxy has its own authority, set SSL_CERT_FILE to its PEM file"
    )]
    Certificate { url: String, cause: String },
    #[error("{url} answered with what can't be understood: {problem}")]
    Answer { url: String, problem: String },
    #[error("`{file}` is not what the listing says: {what} is `{found}`, expected `{expected}`; try again")]
    Disagrees { file: String, what: &'static str, expected: String, found: String },
    #[error("`{file}` came damaged: its checksum is {found}, expected {expected}; nothing was kept")]
    Checksum { file: String, expected: String, found: String },

    // The cache.
    #[error("`{name}` is not in the cache (`{}`): {why}", cache.display())]
    NotCached { name: String, cache: PathBuf, why: String },
    #[error("the hub can't be asked for `{name}`: HF_HUB_OFFLINE is set")]
    Offline { name: String },
    #[error("`{}` is a link or a file, expected a folder; remove it by hand", path.display())]
    NotAFolder { path: PathBuf },
    #[error("`{name}` is being downloaded by another process; stop that first")]
    InUse { name: String },
    #[error("the disk is full: can't {action} `{}`; nothing half-written was kept", path.display())]
    DiskFull { path: PathBuf, action: &'static str },
    #[error("not permitted to {action} `{}`; set HF_HOME to a folder that you may write", path.display())]
    NotPermitted { path: PathBuf, action: &'static str },
    #[error("can't {action} `{}`: {source}", path.display())]
    Io { path: PathBuf, action: &'static str, source: io::Error },
    #[error("stopped")]
    Stopped,
}

impl HubError {
    /// What went wrong when `action` was done to a file or folder.
    pub(crate) fn io(path: &Path, action: &'static str, source: io::Error) -> Self {
        let (path, kind) = (path.to_path_buf(), source.kind());
        if matches!(kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded) {
            return Self::DiskFull { path, action };
        }
        if matches!(kind, ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem) {
            return Self::NotPermitted { path, action };
        }
        Self::Io { path, action, source }
    }

    pub(crate) fn not_cached(name: &ModelName, cache: &Path, why: impl Into<String>) -> Self {
        Self::NotCached { name: name.to_string(), cache: cache.to_path_buf(), why: why.into() }
    }
}
