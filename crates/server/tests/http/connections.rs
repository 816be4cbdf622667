//! What strangers do with connections.

use crate::support::Server;
use serde_json::json;
use std::time::Duration;

const BODY: &str = r#"{"model":"toy","prompt":"a","max_tokens":1}"#;

#[test]
fn silent_connections_are_closed_while_others_are_served() {
    let server = Server::with(|setup| setup.limits.header_time = Duration::from_millis(200));
    let mut silent: Vec<_> = (0..50).map(|_| server.connect()).collect();
    let mut slow = server.connect();
    slow.write(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\n");
    assert_eq!(server.get("/health").status, 200);
    for connection in &mut silent {
        assert!(connection.read_bytes().is_empty());
    }
    // hyper may say 408 before it closes; what counts is that it does.
    slow.read_bytes();
    let mut kept = server.connect();
    kept.write(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n");
    let text = String::from_utf8(kept.read_bytes()).unwrap();
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
}

#[test]
fn a_body_that_does_not_come_is_not_waited_for() {
    let server = Server::with(|setup| setup.limits.body_time = Duration::from_millis(200));
    let mut slow = server.connect();
    slow.write(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{");
    slow.read().is_error(408, None);
    server.ask("/v1/completions", &json!({"model": "toy", "prompt": "a", "max_tokens": 1}));
}

#[test]
fn forms_that_two_servers_could_read_differently_are_refused_or_end_the_connection() {
    let server = Server::start();
    let head = "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n";
    let length = BODY.len();
    for lines in [
        format!("content-length: {length}\r\ncontent-length: 5\r\n"),
        format!("content-length: +{length}\r\n"),
        format!("content-length: {length}, 5\r\n"),
        "transfer-encoding: gzip\r\n".to_owned(),
        format!("content-length : {length}\r\n"),
        format!("content-length: {length}\r\n bad\0: x\r\n"),
    ] {
        let mut connection = server.connect();
        connection.write(format!("{head}{lines}\r\n{BODY}").as_bytes());
        let answer = connection.read();
        assert!((400..500).contains(&answer.status), "{lines:?}: {answer:?}");
    }
    // Both lengths: the chunks count, and nothing behind them is read as a request.
    let chunked = format!(
        "{head}content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n{length:x}\r\n{BODY}\r\n0\r\n\r\n\
         GET /health HTTP/1.1\r\nhost: x\r\n\r\n"
    );
    let mut connection = server.connect();
    connection.write(chunked.as_bytes());
    let text = String::from_utf8(connection.read_bytes()).unwrap();
    assert_eq!(text.matches("HTTP/1.1 ").count(), 1, "{text}");
    assert!(text.contains("connection: close"), "{text}");
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn heads_that_are_too_large_are_refused() {
    let server = Server::start();
    let many: String = (0..200).map(|number| format!("x-{number}: y\r\n")).collect();
    let long = format!("x: {}\r\n", "y".repeat(1_000_000));
    for lines in [many, long] {
        let mut connection = server.connect();
        connection.write(format!("GET /health HTTP/1.1\r\nhost: x\r\n{lines}\r\n").as_bytes());
        let bytes = connection.read_bytes();
        assert!(
            bytes.starts_with(b"HTTP/1.1 431") || bytes.is_empty(),
            "{:?}",
            String::from_utf8_lossy(&bytes)
        );
    }
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn connections_are_kept_for_further_requests() {
    let server = Server::start();
    let mut connection = server.connect();
    for _ in 0..3 {
        connection.write(
            format!(
                "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{BODY}",
                BODY.len()
            )
            .as_bytes(),
        );
        assert!(connection.read_until("\r\n").starts_with("HTTP/1.1 200"));
        connection.read_until("}}}");
    }
}
