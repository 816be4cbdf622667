//! What strangers do with connections.

use crate::support::Server;
use serde_json::json;
use std::time::Duration;

const BODY: &str = r#"{"model":"toy","prompt":"a","max_tokens":1}"#;

#[test]
fn silent_connections_are_closed_while_others_are_served() {
    let server = Server::with(|setup| setup.limits.header_time = Duration::from_secs(1));
    let mut silent: Vec<_> = (0..50).map(|_| server.connect()).collect();
    let mut slow = server.connect();
    slow.write(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\n");
    assert_eq!(server.get("/health").status, 200);
    for connection in &mut silent {
        assert!(connection.read_bytes().is_empty());
    }
    let message = slow.read().is_error(408, None);
    assert!(message.contains("1 seconds"), "{message}");
    let mut kept = server.connect();
    kept.write(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n");
    let text = String::from_utf8(kept.read_bytes()).unwrap();
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
}

/// Other systems hold fewer back, whatever they are told.
#[cfg(target_os = "linux")]
#[test]
fn a_crowd_that_comes_at_once_is_kept_until_it_is_accepted() {
    use gannet_server::Bound;
    use std::net::TcpStream;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // This one has its address and accepts nobody yet.
    let bound = runtime.block_on(Bound::bind(crate::support::config(), Vec::new())).unwrap();
    let patience = Duration::from_secs(20);
    let crowd: Vec<_> = (0..600).map(|_| TcpStream::connect_timeout(&bound.address(), patience)).collect();
    assert!(
        crowd.iter().all(Result::is_ok),
        "{:?}",
        crowd.iter().filter(|it| it.is_err()).collect::<Vec<_>>()
    );
}

#[test]
fn a_body_that_does_not_come_is_not_waited_for() {
    let server = Server::with(|setup| setup.limits.body_time = Duration::from_secs(1));
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
    let chunks = format!("{length:x}\r\n{BODY}\r\n0\r\n\r\n");
    for (lines, param) in [
        (format!("content-length: {length}\r\ncontent-length: 5\r\n"), Some("content-length")),
        (format!("content-length: {length}\r\ncontent-length: {length}\r\n"), Some("content-length")),
        (format!("content-length: +{length}\r\n"), Some("content-length")),
        (format!("content-length: {length}, 5\r\n"), Some("content-length")),
        ("content-length: 99999999999999999999\r\n".to_owned(), Some("content-length")),
        ("content-length: 5\r\ntransfer-encoding: chunked\r\n".to_owned(), Some("content-length")),
        ("transfer-encoding: chunked\r\ncontent-length: 5\r\n".to_owned(), Some("content-length")),
        ("transfer-encoding: gzip\r\n".to_owned(), Some("transfer-encoding")),
        ("transfer-encoding: gzip, chunked\r\n".to_owned(), Some("transfer-encoding")),
        (
            "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n".to_owned(),
            Some("transfer-encoding"),
        ),
        (format!("content-length : {length}\r\n"), None),
        (format!("x: a\r\n content-length: {length}\r\n"), None),
        (format!("x: a\ncontent-length: {length}\r\n"), None),
        ("\nx: a\r\n".to_owned(), None),
        (format!("content-length: {length}\r\nbad\0: x\r\n"), None),
        (format!("host: y\r\ncontent-length: {length}\r\n"), Some("host")),
    ] {
        for body in [BODY, &chunks] {
            let mut connection = server.connect();
            connection
                .write(format!("{head}{lines}\r\n{body}GET /health HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes());
            // One answer, whatever stands behind.
            connection.read().is_error(400, param);
        }
    }
    // Chunks alone: nothing behind them is read as a request.
    let mut connection = server.connect();
    let behind = "GET /health HTTP/1.1\r\nhost: x\r\n\r\n";
    connection.write(format!("{head}transfer-encoding: chunked\r\n\r\n{chunks}{behind}").as_bytes());
    let text = String::from_utf8(connection.read_bytes()).unwrap();
    assert_eq!(text.matches("HTTP/1.1 ").count(), 1, "{text}");
    assert!(text.contains("connection: close") && text.starts_with("HTTP/1.1 200"), "{text}");
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn chunks_of_no_size_are_refused() {
    let server = Server::start();
    let head = "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    for chunk in [
        "x\r\n",
        "-1\r\n{",
        "fffffffffffffffff\r\n{",
        "5\n{",
        "0x5\r\n{}   \r\n",
        " 5\r\n{}   \r\n",
        "5\r\n{}   junk\r\n0\r\n\r\n",
    ] {
        let mut connection = server.connect();
        connection.write(format!("{head}{chunk}").as_bytes());
        let message = connection.read().is_error(400, None);
        assert!(message.contains("could not be read"), "{chunk:?}: {message}");
    }
    server.ask("/v1/completions", &json!({"model": "toy", "prompt": "a", "max_tokens": 1}));
}

#[test]
fn heads_that_are_too_large_or_wrong_are_refused() {
    let server = Server::start();
    let many: String = (0..200).map(|number| format!("x-{number}: y\r\n")).collect();
    let long = format!("x: {}\r\n", "y".repeat(1_000_000));
    for (head, status, part) in [
        (format!("GET /health HTTP/1.1\r\nhost: x\r\n{many}\r\n"), 431, "100 lines"),
        (format!("GET /health HTTP/1.1\r\nhost: x\r\n{long}\r\n"), 431, "65536 bytes"),
        ("GET /health HTTP/1.1\r\n\r\n".to_owned(), 400, "`host`"),
        ("GET /health HTTP/2.0\r\nhost: x\r\n\r\n".to_owned(), 400, "request line"),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), 400, "request line"),
        ("nonsense\r\n\r\n".to_owned(), 400, "request line"),
    ] {
        let mut connection = server.connect();
        connection.write(head.as_bytes());
        let message = connection.read().is_error(status, None.or((part == "`host`").then_some("host")));
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn an_answer_takes_longer_than_a_head_may() {
    let server = Server::with(|setup| {
        setup.limits.header_time = Duration::from_millis(500);
        setup.context = Some(10_000);
    });
    let body = json!({"model": "toy", "prompt": "a", "max_tokens": 8000, "ignore_eos": true, "stream": true});
    let events = server.post("/v1/completions", &body).events();
    assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "length");
}

#[test]
fn what_comes_behind_a_request_waits_for_its_answer() {
    let server = Server::start();
    let request = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{BODY}",
        BODY.len()
    );
    let mut connection = server.connect();
    connection.write(
        format!("{request}{request}\r\nGET /health HTTP/1.1\r\nhost: x\r\n\r\nnonsense\r\n\r\n").as_bytes(),
    );
    let text = String::from_utf8(connection.read_bytes()).unwrap();
    let statuses: Vec<&str> = text.split("HTTP/1.1 ").skip(1).map(|answer| &answer[..3]).collect();
    assert_eq!(statuses, ["200", "200", "200", "400"], "{text}");
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
