//! Requests as traces, as a collector on a plain socket receives them.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

#[path = "../http/support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the tests over HTTP use the rest")]
mod support;

use gannet_server::{LevelFilter, LogForm, Traces, start_log_with_traces};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;
use support::Server;

/// The client's trace, in W3C's form.
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// Takes one request, says that all is well, and gives its head and its body.
fn collect(listener: &TcpListener) -> (String, Vec<u8>) {
    let (mut stream, _) = listener.accept().unwrap();
    let mut bytes = Vec::new();
    let mut block = [0; 4096];
    loop {
        let count = stream.read(&mut block).unwrap();
        bytes.extend_from_slice(&block[..count]);
        let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
        let length = head.split("content-length: ").nth(1).unwrap().split("\r\n").next().unwrap();
        if bytes.len() - end - 4 >= length.parse().unwrap() {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").unwrap();
            return (head, bytes.split_off(end + 4));
        }
    }
}

#[test]
fn a_request_is_a_span_of_its_clients_trace() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let collector = thread::spawn(move || collect(&listener));
    let traces = Traces::to(&format!("http://{address}")).unwrap();
    // The log itself is off: traces don't depend on its level.
    start_log_with_traces(LogForm::Text, LevelFilter::OFF, &traces);
    let server = Server::start();
    let body =
        json!({"model": "toy", "prompt": "hen secret", "max_tokens": 3, "ignore_eos": true}).to_string();
    let answer =
        server.connect().post_with("/v1/completions", &format!("traceparent: {PARENT}\r\n"), body.as_bytes());
    assert_eq!(answer.status, 200);
    drop(server);
    drop(traces);
    let (head, spans) = collector.join().unwrap();
    assert!(head.starts_with("post /v1/traces ") && head.contains("application/x-protobuf"), "{head}");
    let has = |bytes: &[u8]| spans.windows(bytes.len()).any(|window| window == bytes);
    for text in [
        "gannet",
        "POST /v1/completions",
        "gen_ai.request.model",
        "toy",
        "gen_ai.usage.output_tokens",
        "http.response.status_code",
    ] {
        assert!(has(text.as_bytes()), "{text} is not in {:?}", String::from_utf8_lossy(&spans));
    }
    let trace: Vec<u8> =
        (3..35).step_by(2).map(|at| u8::from_str_radix(&PARENT[at..at + 2], 16).unwrap()).collect();
    let parent: Vec<u8> =
        (36..52).step_by(2).map(|at| u8::from_str_radix(&PARENT[at..at + 2], 16).unwrap()).collect();
    assert!(has(&trace) && has(&parent));
    assert!(!has(b"secret"));
}
