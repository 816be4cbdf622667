//! A large file over several connections, in pieces that a later process can go on from.
//!
//! ```text
//! content [bytes] | one byte a piece: 1 where it is whole
//! ```
//!
//! The marks behind the content make the unfinished file tell how far it is; one of another size is started anew. A
//! mark is written after its piece, and the checksum of the whole has the last word.

use crate::cache::remove_if_there;
use crate::client::{Answer, Wanted, text};
use crate::download::{Download, Out, check_range, validator};
use crate::error::HubError;
use crate::retry::{Retries, Trouble};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

/// Why the connections end before all pieces are there.
enum Ending {
    /// The server sends other ranges than asked for, or its content changes: only a stream can tell.
    NoRanges,
    Failed(HubError),
}

/// What the connections share.
struct Work {
    todo: Vec<u64>,
    /// The strong validator of the content, once an answer had one.
    validator: Option<String>,
    ending: Option<Ending>,
}

/// Brings all pieces into the unfinished file. Returns whether some were there before, or `None` where the server
/// knows no ranges.
pub(crate) fn bring(download: &Download<'_>, unfinished: &Path) -> Result<Option<bool>, HubError> {
    let marks = prepare(download, unfinished).map_err(|error| HubError::io(unfinished, "write", error))?;
    // Taken from the end, so that the first pieces come first.
    let missing = (0..).zip(&marks).filter(|(_, mark)| **mark != 1);
    let mut todo: Vec<u64> = missing.map(|(piece, _)| piece).collect();
    todo.reverse();
    let is_resumed = todo.len() < marks.len();
    let missing: u64 = todo.iter().map(|piece| end_of(download, *piece) - start_of(download, *piece)).sum();
    download.advance(download.file.bytes - missing)?;
    let connections = download.client.transfer.connections.clamp(1, todo.len().max(1));
    let work = Mutex::new(Work { todo, validator: None, ending: None });
    thread::scope(|scope| {
        for _ in 0..connections {
            scope.spawn(|| connection(download, unfinished, &work));
        }
    });
    match lock(&work).ending.take() {
        None => Ok(Some(is_resumed)),
        Some(Ending::NoRanges) => {
            remove_if_there(unfinished)?;
            Ok(None)
        }
        Some(Ending::Failed(error)) => Err(error),
    }
}

fn start_of(download: &Download<'_>, piece: u64) -> u64 {
    piece * download.client.transfer.piece_bytes
}

fn end_of(download: &Download<'_>, piece: u64) -> u64 {
    (start_of(download, piece) + download.client.transfer.piece_bytes).min(download.file.bytes)
}

/// Opens or makes the unfinished file; returns its marks.
fn prepare(download: &Download<'_>, unfinished: &Path) -> io::Result<Vec<u8>> {
    let bytes = download.file.bytes;
    let pieces = bytes.div_ceil(download.client.transfer.piece_bytes);
    let mut file = File::options().read(true).write(true).create(true).truncate(false).open(unfinished)?;
    let mut marks = Vec::new();
    if file.metadata()?.len() == bytes + pieces {
        file.seek(SeekFrom::Start(bytes))?;
        file.take(pieces).read_to_end(&mut marks)?;
        return Ok(marks);
    }
    file.set_len(0)?;
    file.set_len(bytes + pieces)?;
    marks.resize(usize::try_from(pieces).map_err(io::Error::other)?, 0);
    Ok(marks)
}

/// Brings pieces until none is left or somebody ends the work.
fn connection(download: &Download<'_>, unfinished: &Path, work: &Mutex<Work>) {
    if let Err(ending) = bring_pieces(download, unfinished, work) {
        lock(work).ending.get_or_insert(ending);
        download.stop();
    }
}

fn bring_pieces(download: &Download<'_>, unfinished: &Path, work: &Mutex<Work>) -> Result<(), Ending> {
    let io = |error| Ending::Failed(HubError::io(unfinished, "write", error));
    let file = File::options().write(true).open(unfinished).map_err(io)?;
    let mut out = Out { file, path: unfinished };
    while let Some(piece) = next(work) {
        bring_piece(download, &mut out, piece, work)?;
        out.file.seek(SeekFrom::Start(download.file.bytes + piece)).map_err(io)?;
        out.file.write_all(&[1]).map_err(io)?;
    }
    Ok(())
}

fn next(work: &Mutex<Work>) -> Option<u64> {
    let mut work = lock(work);
    if work.ending.is_some() { None } else { work.todo.pop() }
}

fn bring_piece(
    download: &Download<'_>,
    out: &mut Out<'_>,
    piece: u64,
    work: &Mutex<Work>,
) -> Result<(), Ending> {
    let mut retries = Retries::new(&download.client.transfer, &download.url);
    let mut at = start_of(download, piece);
    let end = end_of(download, piece);
    loop {
        let before = at;
        match bring_once(download, out, &mut at, end, work) {
            Ok(true) => return Ok(()),
            Ok(false) => return Err(Ending::NoRanges),
            Err(trouble) => retries.after(trouble, at - before).map_err(Ending::Failed)?,
        }
    }
}

/// Asks for the rest of a piece once; returns false where the server has no ranges of this content.
fn bring_once(
    download: &Download<'_>,
    out: &mut Out<'_>,
    at: &mut u64,
    end: u64,
    work: &Mutex<Work>,
) -> Result<bool, Trouble> {
    let range = (*at, end);
    let known = lock(work).validator.clone();
    let wanted = Wanted { url: &download.url, range: Some(range), if_range: known.as_deref() };
    let Answer { response, facts } = download.client.send(download.name, &wanted)?;
    download.agree(&facts)?;
    if response.status() != 206 {
        return Ok(false);
    }
    check_range(text(response.headers(), "content-range").as_deref(), range, download.file.bytes)?;
    if let Some(found) = validator(text(response.headers(), "etag"))
        && *lock(work).validator.get_or_insert_with(|| found.clone()) != found
    {
        return Ok(false);
    }
    let seek = out.file.seek(SeekFrom::Start(*at));
    seek.map_err(|error| HubError::io(out.path, "write", error))?;
    let mut body = response.into_body().into_reader();
    download.receive(&mut body, out, at, end)?;
    Ok(true)
}

fn lock(work: &Mutex<Work>) -> MutexGuard<'_, Work> {
    // Nothing panics while it holds the lock, and each change is whole.
    work.lock().unwrap_or_else(PoisonError::into_inner)
}
