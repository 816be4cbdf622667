//! A client of one stream: HTTP/1.1 over a plain socket, so that nothing but the server is measured.
//!
//! Form of the stream: server-sent events in chunks, `data: [DONE]` last; each event but those without text is a token.

use anyhow::{Context, bail};
use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::str::FromStr;
use std::time::{Duration, Instant};

/// Silence after which a server counts as dead.
const PATIENCE: Duration = Duration::from_secs(600);
/// Bytes of an error that are read.
const ERROR_BYTES: u64 = 4096;

/// A server: its host and port, and the path before its routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    host: String,
    path: String,
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rest = text.strip_prefix("http://").ok_or_else(|| {
            format!("`{text}` is no address; expected one such as http://127.0.0.1:8080 (without TLS)")
        })?;
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if host.is_empty() || text.contains(char::is_whitespace) {
            return Err(format!("`{text}` names no host"));
        }
        let host = if host.contains(':') { host.to_owned() } else { format!("{host}:80") };
        let path = path.trim_end_matches('/').trim_end_matches("/v1").to_owned();
        Ok(Self { host, path })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.host, self.path)
    }
}

/// What a client saw of a request, in seconds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sample {
    /// To the first token.
    pub(super) first: f64,
    /// Between tokens, one after the other.
    pub(super) gaps: Vec<f64>,
}

impl Sample {
    /// Tokens that came.
    pub(super) fn tokens(&self) -> usize {
        self.gaps.len() + 1
    }

    /// The average time between tokens.
    pub(super) fn gap(&self) -> f64 {
        self.gaps.iter().sum::<f64>() / self.gaps.len().max(1) as f64
    }
}

/// Sends a request for a completion, and reads its stream.
pub(super) fn stream(address: &Address, key: Option<&str>, body: &str) -> anyhow::Result<Sample> {
    let Address { host, path } = address;
    let unheard = || format!("no connection to {host}");
    let mut socket = TcpStream::connect(host).with_context(unheard)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let key = key.map(|key| format!("authorization: Bearer {key}\r\n")).unwrap_or_default();
    let length = body.len();
    let head = format!(
        "POST {path}/v1/completions HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n{key}\
         connection: close\r\ncontent-length: {length}\r\n\r\n"
    );
    let sent = Instant::now();
    socket.write_all((head + body).as_bytes())?;
    read(BufReader::new(socket), sent)
}

/// Reads an answer; times count from `sent`.
fn read(mut answer: impl BufRead, sent: Instant) -> anyhow::Result<Sample> {
    let mut line = String::new();
    answer.read_line(&mut line)?;
    let status = line.split(' ').nth(1).unwrap_or_default().to_owned();
    if status != "200" {
        let mut text = String::new();
        answer.take(ERROR_BYTES).read_to_string(&mut text).context("the error can't be read")?;
        let text = text.split("\r\n\r\n").nth(1).unwrap_or_default();
        bail!("the server answered {status}: {text}");
    }
    let (mut times, mut is_done) = (Vec::new(), false);
    loop {
        line.clear();
        if answer.read_line(&mut line)? == 0 {
            break;
        }
        // Lines of lengths and heads stand between; no event is cut, since each is written as a whole.
        let Some(data) = line.strip_prefix("data: ") else { continue };
        match data.trim_end() {
            "[DONE]" => is_done = true,
            data if data.starts_with("{\"error\"") => bail!("the stream failed: {data}"),
            data if has_text(data) => times.push(sent.elapsed().as_secs_f64()),
            _ => {}
        }
    }
    match times.first() {
        Some(&first) if is_done => {
            Ok(Sample { first, gaps: times.windows(2).map(|pair| pair[1] - pair[0]).collect() })
        }
        Some(_) => bail!("the stream ended before its end was told"),
        None => bail!("the stream had no token"),
    }
}

fn has_text(data: &str) -> bool {
    let event: Result<serde_json::Value, _> = serde_json::from_str(data);
    event.is_ok_and(|event| event["choices"][0]["text"].as_str().is_some_and(|text| !text.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_path() {
        let check = |text: &str, shown: &str| assert_eq!(text.parse::<Address>().unwrap().to_string(), shown);
        check("http://127.0.0.1:8080", "http://127.0.0.1:8080");
        check("http://host/", "http://host:80");
        check("http://host:1/gannet/v1/", "http://host:1/gannet");
        for wrong in ["host:80", "https://host", "http://", "http:///x", "http://a b"] {
            assert!(wrong.parse::<Address>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn events_with_text_are_tokens_and_errors_are_told() {
        let event = |text: &str| format!("1f\r\ndata: {{\"choices\":[{{\"text\":\"{text}\"}}]}}\n\n\r\n");
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        let whole = format!("{head}{}{}{}data: [DONE]\n\n", event("a"), event(""), event("b"));
        assert_eq!(read(whole.as_bytes(), Instant::now()).unwrap().tokens(), 2);
        let told = |text: String| read(text.as_bytes(), Instant::now()).unwrap_err().to_string();
        assert!(told("HTTP/1.1 429 Busy\r\na: b\r\n\r\n{\"error\"}".to_owned()).contains("429: {\"error\"}"));
        assert!(told(format!("{head}{}", event("a"))).contains("before its end"));
        assert!(told(format!("{head}data: [DONE]\n\n")).contains("no token"));
        assert!(told(format!("{head}data: {{\"error\":1}}\n\n")).contains("failed"));
    }
}
