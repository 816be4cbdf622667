//! A hub and a storage host on the loopback interface, with faults on demand.
//!
//! Both are plain threads that answer one request a connection. The hub sends large files to the storage host by a
//! redirect, as the real one does, so that every test of a large file is one of redirects to another host as well.

use sha1::{Digest, Sha1};
use sha2::Sha256;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The commit of every repository here.
pub(crate) const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// A test that is wrong ends by this instead of hanging.
const STALL_MAX: Duration = Duration::from_secs(20);

#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) target: String,
    pub(crate) headers: BTreeMap<String, String>,
    /// How many requests this server had before.
    pub(crate) number: usize,
}

impl Request {
    pub(crate) fn header(&self, key: &str) -> Option<&str> {
        self.headers.get(key).map(String::as_str)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// The connection is closed after so many bytes of the body.
    pub(crate) cut: Option<usize>,
    /// Whether the length is stated, or ends with the connection.
    pub(crate) has_length: bool,
}

impl Reply {
    pub(crate) fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: vec![], body: body.into(), cut: None, has_length: true }
    }

    pub(crate) fn with(mut self, key: &str, value: impl Into<String>) -> Self {
        self.headers.retain(|(present, _)| !present.eq_ignore_ascii_case(key));
        self.headers.push((key.to_owned(), value.into()));
        self
    }
}

type Handler = dyn Fn(&Request) -> Reply + Send + Sync;

/// A listening server; it ends when it is dropped.
pub(crate) struct Server {
    pub(crate) port: u16,
    pub(crate) requests: Arc<Mutex<Vec<Request>>>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start(handler: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (requests, ends) = (Arc::new(Mutex::new(vec![])), Arc::new(AtomicBool::new(false)));
        let handler: Arc<Handler> = Arc::new(handler);
        let (log, ended, count) = (Arc::clone(&requests), Arc::clone(&ends), Arc::new(AtomicUsize::new(0)));
        let thread = thread::spawn(move || {
            for stream in listener.incoming() {
                if ended.load(Ordering::SeqCst) {
                    break;
                }
                let (handler, log, count) = (Arc::clone(&handler), Arc::clone(&log), Arc::clone(&count));
                thread::spawn(move || serve(stream.unwrap(), &*handler, &log, &count));
            }
        });
        Self { port, requests, ends, thread: Some(thread) }
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn serve(stream: TcpStream, handler: &Handler, log: &Mutex<Vec<Request>>, count: &AtomicUsize) {
    stream.set_read_timeout(Some(STALL_MAX)).unwrap();
    stream.set_write_timeout(Some(STALL_MAX)).unwrap();
    let mut reader = BufReader::new(&stream);
    let (mut line, mut bytes) = (String::new(), 0);
    let mut lines = Vec::new();
    while reader.read_line(&mut line).is_ok_and(|count| count > 0) && line != "\r\n" && bytes < HEAD_BYTES_MAX
    {
        bytes += line.len();
        lines.push(line.trim_end().to_owned());
        line.clear();
    }
    let Some(target) = lines.first().and_then(|first| first.split(' ').nth(1)) else { return };
    let headers = lines[1..].iter().filter_map(|line| line.split_once(':'));
    let headers = headers.map(|(key, value)| (key.to_ascii_lowercase(), value.trim().to_owned())).collect();
    let number = count.fetch_add(1, Ordering::SeqCst);
    let request = Request { target: target.to_owned(), headers, number };
    log.lock().unwrap().push(request.clone());
    // The client may leave in the middle.
    let _ = answer(&stream, &handler(&request));
}

fn answer(mut stream: &TcpStream, reply: &Reply) -> std::io::Result<()> {
    let mut head = format!("HTTP/1.1 {} X\r\nConnection: close\r\n", reply.status);
    let states_length = reply.headers.iter().any(|(key, _)| key.eq_ignore_ascii_case("content-length"));
    if reply.has_length && !states_length {
        write!(head, "Content-Length: {}\r\n", reply.body.len()).unwrap();
    }
    for (key, value) in &reply.headers {
        write!(head, "{key}: {value}\r\n").unwrap();
    }
    stream.write_all(format!("{head}\r\n").as_bytes())?;
    let end = reply.cut.unwrap_or(reply.body.len()).min(reply.body.len());
    stream.write_all(&reply.body[..end])?;
    stream.flush()
}

/// A file of the repository.
#[derive(Clone)]
pub(crate) struct Content {
    pub(crate) bytes: Vec<u8>,
    pub(crate) is_large: bool,
}

impl Content {
    pub(crate) fn small(bytes: impl Into<Vec<u8>>) -> Self {
        Self { bytes: bytes.into(), is_large: false }
    }

    /// Bytes that look random and are the same in each run.
    pub(crate) fn large(length: usize, seed: u64) -> Self {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let bytes = (0..length).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        });
        Self { bytes: bytes.collect(), is_large: true }
    }

    pub(crate) fn hash(&self) -> String {
        if self.is_large {
            return hex(&Sha256::digest(&self.bytes));
        }
        let mut hasher = Sha1::new_with_prefix(format!("blob {}\0", self.bytes.len()));
        hasher.update(&self.bytes);
        hex(&hasher.finalize())
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) type Files = BTreeMap<&'static str, Content>;
type Fault = dyn Fn(&Request, Reply) -> Reply + Send + Sync;

/// The two hosts, which have one repository, `org/repo`.
pub(crate) struct Site {
    pub(crate) hub: Server,
    pub(crate) storage: Server,
}

impl Site {
    pub(crate) fn healthy(files: Files) -> Self {
        Self::start(files, |_, reply| reply, |_, reply| reply)
    }

    /// Each fault may change what its host would answer.
    pub(crate) fn start(
        files: Files,
        hub_fault: impl Fn(&Request, Reply) -> Reply + Send + Sync + 'static,
        storage_fault: impl Fn(&Request, Reply) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let (hub_fault, storage_fault): (Arc<Fault>, Arc<Fault>) =
            (Arc::new(hub_fault), Arc::new(storage_fault));
        let stored = files.clone();
        let storage = Server::start(move |request| storage_fault(request, store(&stored, request)));
        let storage_port = storage.port;
        let hub =
            Server::start(move |request| hub_fault(request, answer_as_hub(&files, request, storage_port)));
        Self { hub, storage }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.hub.port)
    }
}

fn answer_as_hub(files: &Files, request: &Request, storage_port: u16) -> Reply {
    let path = request.target.split('?').next().unwrap();
    if path.starts_with("/api/models/org/repo/revision/") {
        return Reply::new(200, format!(r#"{{"id": "org/repo", "sha": "{COMMIT}"}}"#));
    }
    if path == format!("/api/models/org/repo/tree/{COMMIT}") {
        return Reply::new(200, tree(files.iter()));
    }
    let Some(name) = path.strip_prefix(&format!("/org/repo/resolve/{COMMIT}/")) else {
        return Reply::new(404, "").with("X-Error-Code", "RepoNotFound");
    };
    let Some(content) = files.get(name) else {
        return Reply::new(404, "").with("X-Error-Code", "EntryNotFound");
    };
    let etag = format!("\"{}\"", content.hash());
    if !content.is_large {
        return ranged(content, request, &etag).with("X-Repo-Commit", COMMIT);
    }
    Reply::new(302, "elsewhere")
        .with("Location", format!("http://127.0.0.1:{storage_port}/{name}?signature=secret"))
        .with("X-Repo-Commit", COMMIT)
        .with("X-Linked-Etag", etag)
        .with("X-Linked-Size", content.bytes.len().to_string())
}

/// The listing of some files.
pub(crate) fn tree<'a>(files: impl Iterator<Item = (&'a &'static str, &'a Content)>) -> String {
    let entries = files.map(|(path, content)| {
        let (hash, size) = (content.hash(), content.bytes.len());
        let path = serde_json::Value::from(*path);
        if content.is_large {
            let pointer = "0".repeat(40);
            format!(
                r#"{{"type": "file", "oid": "{pointer}", "size": {size}, "path": {path},
                "lfs": {{"oid": "{hash}", "size": {size}, "pointerSize": 130}}}}"#
            )
        } else {
            format!(r#"{{"type": "file", "oid": "{hash}", "size": {size}, "path": {path}}}"#)
        }
    });
    let folder = r#"{"type": "directory", "oid": "x", "size": 0, "path": "folder"}"#.to_owned();
    format!("[{}]", entries.chain([folder]).collect::<Vec<_>>().join(","))
}

fn store(files: &Files, request: &Request) -> Reply {
    let name = request.target.split('?').next().unwrap().trim_start_matches('/');
    match files.get(name) {
        Some(content) => ranged(content, request, "\"stored\""),
        None => Reply::new(404, ""),
    }
}

/// The whole content, or the range that was asked for where its validator holds.
fn ranged(content: &Content, request: &Request, etag: &str) -> Reply {
    let total = content.bytes.len();
    let holds = request.header("if-range").is_none_or(|validator| validator == etag);
    let range = request.header("range").filter(|_| holds).and_then(|range| range.strip_prefix("bytes="));
    let Some((first, last)) = range.and_then(|range| range.split_once('-')) else {
        return Reply::new(200, content.bytes.clone()).with("ETag", etag);
    };
    let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
    Reply::new(206, &content.bytes[first..=last.min(total - 1)])
        .with("ETag", etag)
        .with("Content-Range", format!("bytes {first}-{last}/{total}"))
}
