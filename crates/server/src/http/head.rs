//! The head of a request, taken strictly: whatever two readers could understand in two ways is refused.
//!
//! Source: RFC 9112, sections 3, 5 and 6. Where it lets a server mend a head (lengths that repeat, chunks beside a length,
//! folded lines), this one refuses.

use crate::error::ApiError;

/// How the body behind a head ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// After so many bytes.
    Length(u64),
    /// With a last chunk.
    Chunked,
}

/// What the lines of a head say about its body.
#[derive(Default)]
struct Lines {
    hosts: usize,
    length: Option<u64>,
    is_chunked: bool,
    /// Of [`ONCE`], those that were seen.
    once: [bool; ONCE.len()],
}

/// Headers that say who asks; one program on the way may take the first, another the last.
const ONCE: [&str; 2] = ["authorization", "x-api-key"];

/// Takes a head, which ends with an empty line.
pub(super) fn check(head: &[u8], lines_max: usize) -> Result<Framing, ApiError> {
    let text = head.strip_suffix(b"\r\n\r\n").unwrap_or(head);
    if text.split(|byte| *byte == b'\n').rev().skip(1).any(|line| !line.ends_with(b"\r")) {
        return Err(fault(None, "a line of the head ends without a carriage return"));
    }
    let mut lines = text.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let is_newer = request_line(lines.next().unwrap_or_default())?;
    let mut found = Lines::default();
    for (number, line) in lines.enumerate() {
        if number >= lines_max {
            return Err(ApiError::HeadTooLong { limit: lines_max });
        }
        header(line, &mut found)?;
    }
    match (found.length, found.is_chunked) {
        (Some(_), true) => Err(fault(Some("content-length"), "it stands beside `transfer-encoding`")),
        (None, true) if !is_newer => Err(fault(Some("transfer-encoding"), "HTTP/1.0 has no chunks")),
        _ if is_newer && found.hosts != 1 => Err(fault(Some("host"), "HTTP/1.1 needs it exactly once")),
        (None, true) => Ok(Framing::Chunked),
        (length, false) => Ok(Framing::Length(length.unwrap_or(0))),
    }
}

/// Whether a request line is one of HTTP/1.1, and not of HTTP/1.0.
fn request_line(line: &[u8]) -> Result<bool, ApiError> {
    let wrong = || fault(None, "the request line is no method, target and HTTP/1.1, each one space apart");
    let mut words = line.split(|byte| *byte == b' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(wrong());
    };
    let is_target = !target.is_empty() && target.iter().all(u8::is_ascii_graphic);
    if !is_token(method) || !is_target {
        return Err(wrong());
    }
    match version {
        b"HTTP/1.1" => Ok(true),
        b"HTTP/1.0" => Ok(false),
        _ => Err(wrong()),
    }
}

fn header(line: &[u8], found: &mut Lines) -> Result<(), ApiError> {
    if line.starts_with(b" ") || line.starts_with(b"\t") {
        return Err(fault(None, "a line of the head is folded"));
    }
    let Some(colon) = line.iter().position(|byte| *byte == b':') else {
        return Err(fault(None, "a line of the head has no colon"));
    };
    let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
    if !is_token(name) {
        return Err(fault(None, "the name of a header is no word, or a space stands before its colon"));
    }
    if value.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') {
        return Err(fault(None, "the value of a header has control characters"));
    }
    if let Some(place) = ONCE.iter().position(|once| name.eq_ignore_ascii_case(once.as_bytes()))
        && std::mem::replace(&mut found.once[place], true)
    {
        return Err(fault(Some(ONCE[place]), "it stands twice"));
    }
    if name.eq_ignore_ascii_case(b"host") {
        found.hosts += 1;
    } else if name.eq_ignore_ascii_case(b"content-length") {
        let name = Some("content-length");
        if found.length.is_some() {
            return Err(fault(name, "it stands twice"));
        }
        found.length = Some(length(value).ok_or_else(|| fault(name, "it is no number of bytes"))?);
    } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
        if found.is_chunked || !value.eq_ignore_ascii_case(b"chunked") {
            return Err(fault(Some("transfer-encoding"), "it is not `chunked`, once and alone"));
        }
        found.is_chunked = true;
    }
    Ok(())
}

/// A number of digits alone.
fn length(value: &[u8]) -> Option<u64> {
    let is_plain = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(value).ok().filter(|_| is_plain)?.parse().ok()
}

/// A word of HTTP: letters, digits and some marks.
fn is_token(word: &[u8]) -> bool {
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !word.is_empty() && word.iter().all(is_letter)
}

fn fault(header: Option<&'static str>, why: &'static str) -> ApiError {
    ApiError::BadHead { header, why }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(lines: &str) -> Result<Framing, String> {
        let head = format!("POST /v1/completions HTTP/1.1\r\nhost: x\r\n{lines}\r\n");
        check(head.as_bytes(), 8).map_err(|error| error.to_string())
    }

    #[test]
    fn a_body_ends_as_its_head_says() {
        let check = |lines: &str, expected: Framing| assert_eq!(checked(lines), Ok(expected), "{lines:?}");
        check("", Framing::Length(0));
        check("Content-Length: 5\r\n", Framing::Length(5));
        check("content-length:\t005 \r\n", Framing::Length(5));
        check("Transfer-Encoding: Chunked\r\n", Framing::Chunked);
        check("authorization: a\r\nx-api-key: b\r\n", Framing::Length(0));
        check("x: a:b\r\naccept: */*\r\nx: caf\u{e9}\r\nempty:\r\n", Framing::Length(0));
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        let check = |lines: &str, part: &str| {
            let why = checked(lines).unwrap_err();
            assert!(why.contains(part), "{lines:?}: {why}");
        };
        check("content-length: 5\r\ncontent-length: 6\r\n", "`content-length`: it stands twice");
        check("content-length: 5\r\nCONTENT-LENGTH: 5\r\n", "`content-length`: it stands twice");
        for length in ["+5", "5, 5", "5 5", "0x5", "-1", "", "99999999999999999999", "5;"] {
            check(&format!("content-length: {length}\r\n"), "`content-length`: it is no number");
        }
        check("content-length: 5\r\ntransfer-encoding: chunked\r\n", "beside `transfer-encoding`");
        check("transfer-encoding: chunked\r\ncontent-length: 5\r\n", "beside `transfer-encoding`");
        for coding in ["gzip", "gzip, chunked", "chunked, chunked", "xchunked", "chunked;q=1", ""] {
            check(&format!("transfer-encoding: {coding}\r\n"), "`transfer-encoding`: it is not `chunked`");
        }
        check("transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n", "once and alone");
        check("authorization: a\r\nAuthorization: b\r\n", "`authorization`: it stands twice");
        check("x-api-key: a\r\nx-api-key: a\r\n", "`x-api-key`: it stands twice");
        check("content-length : 5\r\n", "a space stands before its colon");
        check("content length: 5\r\n", "no word");
        check(": 5\r\n", "no word");
        check("nonsense\r\n", "no colon");
        check("x: a\r\n b\r\n", "folded");
        check("x: a\r\n\tb\r\n", "folded");
        check("x: a\0b\r\n", "control characters");
        check("x: a\rcontent-length: 5\r\n", "control characters");
        check("x: a\ncontent-length: 5\r\n", "without a carriage return");
        check("host: y\r\n", "`host`: HTTP/1.1 needs it exactly once");
        check(&"x: y\r\n".repeat(8), "8 lines");
    }

    #[test]
    fn request_lines_are_of_three_words() {
        let check = |line: &str, is_fine: bool| {
            let head = format!("{line}\r\nhost: x\r\n\r\n");
            assert_eq!(check(head.as_bytes(), 8).is_ok(), is_fine, "{line:?}");
        };
        check("GET / HTTP/1.1", true);
        check("GET / HTTP/1.0", true);
        for wrong in [
            "",
            "GET /",
            "GET  / HTTP/1.1",
            "GET / HTTP/1.1 ",
            "GET /a b HTTP/1.1",
            "GET /\u{e9} HTTP/1.1",
            "GET\t/ HTTP/1.1",
            "G(T / HTTP/1.1",
            "GET / HTTP/2.0",
            "GET / http/1.1",
            "PRI * HTTP/2.0",
            "\u{16}\u{3}\u{1}",
        ] {
            check(wrong, false);
        }
        let missing = super::check(b"GET / HTTP/1.1\r\n\r\n", 8).unwrap_err();
        assert!(missing.to_string().contains("`host`"));
        assert!(super::check(b"GET / HTTP/1.0\r\n\r\n", 8).is_ok());
    }
}
