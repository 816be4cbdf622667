//! One file: from the server into the cache, whole, checked and linked, or not at all.
//!
//! Large files arrive in pieces over several connections (`pieces.rs`), small ones and those of servers that know no
//! ranges in one stream. Either way the bytes lie under an unfinished name until their checksum is right.

use crate::cache::{RepoCache, create_parent, is_whole, remove_if_there};
use crate::client::{Answer, Client, Facts, Wanted, text};
use crate::error::HubError;
use crate::listing::RepoFile;
use crate::model_name::ModelName;
use crate::paths::{check_path, url_path};
use crate::pieces;
use crate::progress::{Phase, Progress, Watch};
use crate::retry::{Retries, Trouble};
use sha1::Sha1;
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const BUFFER_BYTES: usize = 128 << 10;

/// The download of one file.
pub(crate) struct Download<'a> {
    pub(crate) client: &'a Client,
    pub(crate) name: &'a ModelName,
    pub(crate) commit: &'a str,
    pub(crate) file: &'a RepoFile,
    pub(crate) url: String,
    repo: &'a RepoCache,
    watch: &'a Watch<'a>,
    done: AtomicU64,
    stop: AtomicBool,
}

impl<'a> Download<'a> {
    pub(crate) fn new(
        client: &'a Client,
        repo: &'a RepoCache,
        name: &'a ModelName,
        commit: &'a str,
        file: &'a RepoFile,
        watch: &'a Watch<'a>,
    ) -> Self {
        let (endpoint, repository, path) = (client.endpoint(), name.repository(), url_path(&file.path));
        let url = format!("{endpoint}/{repository}/resolve/{commit}/{path}");
        let (done, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        Self { client, name, commit, file, url, repo, watch, done, stop }
    }

    /// Makes the file part of the snapshot, unless it is already.
    pub(crate) fn run(&self) -> Result<(), HubError> {
        let RepoFile { path, bytes, content } = self.file;
        check_path(&self.name.repository(), path)?;
        if !self.repo.has(self.commit, path, *bytes) {
            let waiting = || _ = (self.watch)(self.progress(Phase::Waiting, 0));
            let _lock = self.repo.lock(content, waiting)?;
            if !is_whole(&self.repo.blob(content), *bytes) {
                self.fetch()?;
            }
            self.repo.link(&self.name.repository(), self.commit, path, content)?;
        }
        self.report(Phase::Fetching, *bytes)
    }

    fn fetch(&self) -> Result<(), HubError> {
        let unfinished = self.repo.incomplete(&self.file.content);
        create_parent(&unfinished)?;
        let result = self.bring_and_check(&unfinished);
        // Only what a later attempt can use stays: not what fills the disk, not what is wrong.
        if let Err(HubError::DiskFull { .. } | HubError::Checksum { .. }) = result {
            remove_if_there(&unfinished)?;
        }
        result?;
        let blob = self.repo.blob(&self.file.content);
        fs::rename(&unfinished, &blob).map_err(|error| HubError::io(&blob, "create", error))
    }

    fn bring_and_check(&self, unfinished: &Path) -> Result<(), HubError> {
        let is_resumed = self.bring(unfinished)?;
        match self.check(unfinished) {
            // An earlier process may have left wrong bytes, so all are fetched once more.
            Err(HubError::Checksum { .. }) if is_resumed => {
                remove_if_there(unfinished)?;
                self.bring(unfinished)?;
                self.check(unfinished)
            }
            result => result,
        }
    }

    /// Brings all bytes; returns whether some were there before.
    fn bring(&self, unfinished: &Path) -> Result<bool, HubError> {
        self.done.store(0, Ordering::Relaxed);
        self.stop.store(false, Ordering::Relaxed);
        if self.file.bytes > self.client.transfer.piece_bytes {
            if let Some(is_resumed) = pieces::bring(self, unfinished)? {
                return Ok(is_resumed);
            }
            self.done.store(0, Ordering::Relaxed);
            self.stop.store(false, Ordering::Relaxed);
        }
        self.stream(unfinished)?;
        Ok(false)
    }

    /// Brings the file over one connection at a time, from the beginning or from where one was cut.
    fn stream(&self, unfinished: &Path) -> Result<(), HubError> {
        let file = File::create(unfinished).map_err(|error| HubError::io(unfinished, "create", error))?;
        let mut stream = Stream { out: Out { file, path: unfinished }, at: 0, validator: None };
        let mut retries = Retries::new(&self.client.transfer, &self.url);
        loop {
            let before = stream.at;
            match self.stream_once(&mut stream) {
                Ok(()) => return Ok(()),
                Err(trouble) => retries.after(trouble, stream.at.saturating_sub(before))?,
            }
        }
    }

    fn stream_once(&self, stream: &mut Stream<'_>) -> Result<(), Trouble> {
        let end = self.file.bytes;
        let range = (stream.at > 0).then_some((stream.at, end));
        let Answer { response, facts } = self
            .client
            .send(self.name, &Wanted { url: &self.url, range, if_range: stream.validator.as_deref() })?;
        self.agree(&facts)?;
        let is_part = range.is_some() && response.status() == 206;
        if is_part {
            check_range(text(response.headers(), "content-range").as_deref(), (stream.at, end), end)?;
        } else {
            self.rewind(stream)?;
        }
        check_length(response.body().content_length(), end - stream.at)?;
        stream.validator = validator(text(response.headers(), "etag"));
        let mut body = response.into_body().into_reader();
        self.receive(&mut body, &mut stream.out, &mut stream.at, end)?;
        // A body without a stated length may go on.
        if body.read(&mut [0]).is_ok_and(|more| more > 0) {
            self.rewind(stream)?;
            return Err(Trouble::passing(format!(
                "the server sent more than the {end} bytes of the listing"
            )));
        }
        Ok(())
    }

    fn rewind(&self, stream: &mut Stream<'_>) -> Result<(), HubError> {
        if stream.at > 0 {
            let Out { file, path } = &mut stream.out;
            let emptied = file.set_len(0).and_then(|()| file.seek(SeekFrom::Start(0)));
            emptied.map_err(|error| HubError::io(path, "write", error))?;
            self.done.fetch_sub(stream.at, Ordering::Relaxed);
            stream.at = 0;
        }
        Ok(())
    }

    /// Writes what comes, up to byte `end` of the file; `at` is the byte that comes next.
    pub(crate) fn receive(
        &self,
        body: &mut impl Read,
        out: &mut Out<'_>,
        at: &mut u64,
        end: u64,
    ) -> Result<(), Trouble> {
        let mut buffer = vec![0; BUFFER_BYTES];
        while *at < end {
            let room = usize::try_from(end - *at).unwrap_or(BUFFER_BYTES).min(BUFFER_BYTES);
            let cut =
                |cause: &str| Trouble::passing(format!("cut at byte {at} of {}: {cause}", self.file.bytes));
            let count = body.read(&mut buffer[..room]).map_err(|error| cut(&error.to_string()))?;
            if count == 0 {
                return Err(cut("the server closed the connection"));
            }
            let written = out.file.write_all(&buffer[..count]);
            written.map_err(|error| HubError::io(out.path, "write", error))?;
            *at += count as u64;
            self.advance(count as u64)?;
        }
        Ok(())
    }

    /// What the endpoint says about the file must be what its listing said.
    pub(crate) fn agree(&self, facts: &Facts) -> Result<(), HubError> {
        let quoted = facts.content.as_deref().map(|etag| etag.trim_start_matches("W/").trim_matches('"'));
        let bytes = self.file.bytes.to_string();
        let pairs = [
            ("the commit (X-Repo-Commit)", facts.commit.as_deref(), self.commit),
            ("the checksum (X-Linked-Etag)", quoted, self.file.content.digits()),
            ("the size (X-Linked-Size)", facts.bytes.as_deref(), &bytes),
        ];
        for (what, found, expected) in pairs {
            if let Some(found) = found.filter(|found| *found != expected) {
                let (file, found) = (self.file.path.clone(), found.escape_debug().to_string());
                return Err(HubError::Disagrees { file, what, expected: expected.to_owned(), found });
            }
        }
        Ok(())
    }

    /// Counts bytes that are there, and stops where somebody wants that.
    pub(crate) fn advance(&self, bytes: u64) -> Result<(), HubError> {
        let done = self.done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if self.stop.load(Ordering::Relaxed) {
            return Err(HubError::Stopped);
        }
        self.report(Phase::Fetching, done)
    }

    /// Makes all connections of this download end soon.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    fn progress(&self, phase: Phase, done: u64) -> Progress<'_> {
        Progress { file: &self.file.path, phase, done, total: self.file.bytes }
    }

    fn report(&self, phase: Phase, done: u64) -> Result<(), HubError> {
        if (self.watch)(self.progress(phase, done)).is_break() {
            return Err(HubError::Stopped);
        }
        Ok(())
    }

    /// Checks the bytes on disk against the listing, and cuts off what isn't content.
    fn check(&self, unfinished: &Path) -> Result<(), HubError> {
        let (bytes, expected) = (self.file.bytes, self.file.content.digits());
        let file = File::options().read(true).write(true).open(unfinished);
        let file = file.map_err(|error| HubError::io(unfinished, "read", error))?;
        let content = Out { file, path: unfinished };
        let found = if self.file.content.is_sha256() {
            self.digest(Sha256::new(), &content)?
        } else {
            self.digest(Sha1::new_with_prefix(format!("blob {bytes}\0")), &content)?
        };
        if found != expected {
            let (file, expected) = (self.file.path.clone(), expected.to_owned());
            return Err(HubError::Checksum { file, expected, found });
        }
        let kept = content.file.set_len(bytes).and_then(|()| content.file.sync_data());
        kept.map_err(|error| HubError::io(unfinished, "write", error))
    }

    /// The checksum of a file's content, in hexadecimal digits.
    fn digest(&self, mut hasher: impl Digest, content: &Out<'_>) -> Result<String, HubError> {
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut left = (&content.file).take(self.file.bytes);
        loop {
            let read = left.read(&mut buffer);
            match read.map_err(|error| HubError::io(content.path, "read", error))? {
                0 => return Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()),
                count => hasher.update(&buffer[..count]),
            }
            self.report(Phase::Checking, self.file.bytes - left.limit())?;
        }
    }
}

/// A file that is being written, with its path for errors.
pub(crate) struct Out<'a> {
    pub(crate) file: File,
    pub(crate) path: &'a Path,
}

/// How far a stream is.
struct Stream<'a> {
    out: Out<'a>,
    at: u64,
    /// The strong validator of the content that has come so far.
    validator: Option<String>,
}

/// An `ETag` that may stand in `If-Range`; weak ones may not.
pub(crate) fn validator(etag: Option<String>) -> Option<String> {
    etag.filter(|etag| etag.starts_with('"'))
}

fn check_length(stated: Option<u64>, expected: u64) -> Result<(), Trouble> {
    match stated {
        Some(stated) if stated != expected => {
            Err(Trouble::passing(format!("the server has {stated} bytes to send, expected {expected}")))
        }
        _ => Ok(()),
    }
}

/// A `Content-Range` must be that of the request: `bytes FIRST-LAST/TOTAL`.
pub(crate) fn check_range(stated: Option<&str>, (first, end): (u64, u64), total: u64) -> Result<(), Trouble> {
    let expected = format!("bytes {first}-{}/{total}", end - 1);
    let stated = stated.unwrap_or("nothing").trim();
    let is_same = stated == expected || stated == format!("bytes {first}-{}/*", end - 1);
    if is_same {
        return Ok(());
    }
    let stated = stated.escape_debug();
    Err(Trouble::passing(format!("the server has `{stated}` to send, expected `{expected}`")))
}
