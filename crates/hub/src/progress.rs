//! How far a download is.

use std::ops::ControlFlow;

/// What is being done to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Another process downloads the same file; this one waits for it.
    Waiting,
    /// Bytes arrive.
    Fetching,
    /// All bytes are there and their checksum is computed.
    Checking,
}

/// How far one file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress<'a> {
    /// The file's path in its repository.
    pub file: &'a str,
    /// What is being done to it.
    pub phase: Phase,
    /// Bytes that have been fetched or checked, those of an earlier attempt included.
    pub done: u64,
    /// Bytes of the file.
    pub total: u64,
}

/// Who is told, from several threads; `Break` stops the download, which can be resumed later.
pub type Watch<'a> = dyn Fn(Progress<'_>) -> ControlFlow<()> + Sync + 'a;
