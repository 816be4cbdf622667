//! A client of plain sockets.

use serde_json::Value;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use tokio::net::TcpSocket;
use tokio::runtime::Builder;

/// Long enough for any answer, so that a test that would hang fails instead.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the system keeps for a narrow connection.
const NARROW_BYTES: u32 = 4096;

/// One connection.
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> Self {
        Self::of(TcpStream::connect(address).unwrap())
    }

    /// One on which little is under way before it is read.
    pub(crate) fn open_narrow(address: SocketAddr) -> Self {
        let runtime = Builder::new_current_thread().enable_io().build().unwrap();
        let stream = runtime.block_on(async {
            let socket = TcpSocket::new_v4()?;
            socket.set_recv_buffer_size(NARROW_BYTES)?;
            socket.connect(address).await?.into_std()
        });
        let stream = stream.unwrap();
        stream.set_nonblocking(false).unwrap();
        Self::of(stream)
    }

    fn of(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Self { stream }
    }

    /// Posts a body, and reads the answer to the end of the connection.
    pub(crate) fn post(self, path: &str, body: &[u8]) -> Answer {
        self.post_with(path, "", body)
    }

    /// As `post`, with header lines that end in `\r\n`.
    pub(crate) fn post_with(self, path: &str, headers: &str, body: &[u8]) -> Answer {
        self.begin(path, headers, body).read()
    }

    /// Posts a body and reads nothing yet.
    pub(crate) fn begin(mut self, path: &str, headers: &str, body: &[u8]) -> Self {
        let length = body.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n\
             {headers}content-length: {length}\r\n\r\n"
        );
        self.write(head.as_bytes());
        self.write(body);
        self
    }

    /// Sends bytes as they are, and reads the answer to the end of the connection.
    pub(crate) fn send(mut self, bytes: &str) -> Answer {
        self.write(bytes.as_bytes());
        self.read()
    }

    /// Sends bytes; a server that has answered already may have closed its end.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        match self.stream.write_all(bytes) {
            Ok(()) => {}
            Err(error) => assert!(is_closed(error.kind()), "{error}"),
        }
    }

    /// Reads until the server closes the connection.
    pub(crate) fn read(&mut self) -> Answer {
        Answer::parse(&self.read_bytes())
    }

    pub(crate) fn read_bytes(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self.stream.read_to_end(&mut bytes) {
            Ok(_) => {}
            Err(error) => assert!(is_closed(error.kind()), "{error}"),
        }
        bytes
    }

    /// Reads until these bytes have come.
    pub(crate) fn read_until(&mut self, end: &str) -> String {
        let mut text = Vec::new();
        let mut byte = [0];
        while !text.ends_with(end.as_bytes()) {
            assert_eq!(self.stream.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&text));
            text.push(byte[0]);
        }
        String::from_utf8(text).unwrap()
    }
}

fn is_closed(kind: ErrorKind) -> bool {
    [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset].contains(&kind)
}

impl Answer {
    fn parse(bytes: &[u8]) -> Self {
        let split = bytes.windows(4).position(|window| window == b"\r\n\r\n");
        let split = split.unwrap_or_else(|| panic!("no head in {:?}", String::from_utf8_lossy(bytes)));
        let head = String::from_utf8(bytes[..split].to_vec()).unwrap();
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let header = |line: &str| {
            let (name, value) = line.split_once(':').unwrap();
            (name.to_ascii_lowercase(), value.trim().to_owned())
        };
        let headers: Vec<(String, String)> = lines.map(header).collect();
        let is_chunked =
            headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked");
        let body = &bytes[split + 4..];
        let body = if is_chunked { joined(body) } else { body.to_vec() };
        Self { status, headers, body: String::from_utf8(body).unwrap() }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The message of an error in the protocol's form, of this status and at this field.
    pub(crate) fn is_error(&self, status: u16, param: Option<&str>) -> String {
        assert_eq!(self.status, status, "{self:?}");
        let body = self.json();
        let error = body["error"].as_object().unwrap();
        let keys: Vec<&str> = error.keys().map(String::as_str).collect();
        assert_eq!(keys, ["message", "type", "param", "code"]);
        assert_eq!(error["param"].as_str(), param, "{self:?}");
        error["message"].as_str().unwrap().to_owned()
    }

    /// The data of a stream's events, the last word apart.
    pub(crate) fn events(&self) -> Vec<Value> {
        assert_eq!(self.status, 200, "{self:?}");
        assert_eq!(self.header("content-type"), Some("text/event-stream"));
        let blocks: Vec<&str> = self.body.split("\n\n").filter(|block| block.starts_with("data: ")).collect();
        assert_eq!(blocks.last(), Some(&"data: [DONE]"), "{self:?}");
        let data = |block: &&str| serde_json::from_str(block.strip_prefix("data: ").unwrap()).unwrap();
        blocks[..blocks.len() - 1].iter().map(data).collect()
    }
}

/// The bytes of a chunked body.
fn joined(mut body: &[u8]) -> Vec<u8> {
    let mut joined = Vec::new();
    while let Some(end) = body.windows(2).position(|window| window == b"\r\n") {
        let length = usize::from_str_radix(std::str::from_utf8(&body[..end]).unwrap(), 16).unwrap();
        body = &body[end + 2..];
        if length == 0 {
            return joined;
        }
        joined.extend_from_slice(&body[..length]);
        body = &body[length + 2..];
    }
    panic!("the body has no last chunk: {:?}", String::from_utf8_lossy(&joined))
}
