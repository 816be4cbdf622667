//! Who may ask, and how often.

use crate::support::{Answer, Server};
use gannet_server::Keys;
use serde_json::json;

fn asked(server: &Server, headers: &str) -> Answer {
    server
        .connect()
        .send(&format!("GET /v1/models HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}\r\n"))
}

#[test]
fn a_key_is_needed_where_there_are_keys() {
    let server = Server::with(|setup| setup.config.keys = Keys::parse("first-key\nsecond-key").unwrap());
    assert_eq!(asked(&server, "authorization: Bearer first-key\r\n").status, 200);
    assert_eq!(asked(&server, "authorization: bearer second-key\r\n").status, 200);
    assert_eq!(asked(&server, "x-api-key: second-key\r\n").status, 200);
    assert!(asked(&server, "").is_error(401, None).contains("no API key"));
    for wrong in ["Bearer first-ke", "Bearer first-key2", "Bearer ", "Basic first-key", "first-key"] {
        asked(&server, &format!("authorization: {wrong}\r\n")).is_error(401, None);
    }
    assert_eq!(server.get("/health").status, 200);
    assert_eq!(server.get("/v1/nothing").status, 401);
}

#[test]
fn requests_of_a_minute_are_counted_by_key() {
    let server = Server::with(|setup| {
        setup.config.keys = Keys::parse("first-key\nsecond-key").unwrap();
        setup.limits.requests_per_minute = Some(2);
    });
    let ask = |key: &str| asked(&server, &format!("authorization: Bearer {key}\r\n"));
    assert_eq!((ask("first-key").status, ask("first-key").status), (200, 200));
    let refused = ask("first-key");
    let message = refused.is_error(429, None);
    assert!(message.contains("more than 2 requests a minute"), "{message}");
    assert_eq!(refused.json()["error"]["code"], "rate_limit_exceeded");
    assert!(refused.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    assert_eq!(ask("second-key").status, 200);
}

#[test]
fn requests_of_a_key_at_once_are_counted_until_their_answers_end() {
    let server = Server::with(|setup| {
        setup.config.keys = Keys::parse("first-key\nsecond-key").unwrap();
        setup.limits.concurrent_per_key = 1;
        (setup.sequences, setup.context) = (1, Some(1 << 20));
    });
    let ask = |key: &str| asked(&server, &format!("authorization: Bearer {key}\r\n"));
    let body =
        json!({"model": "toy", "prompt": "a", "max_tokens": 1_000_000, "ignore_eos": true, "stream": true});
    let mut running = server.connect().begin(
        "/v1/completions",
        "authorization: Bearer first-key\r\n",
        body.to_string().as_bytes(),
    );
    running.read_until("data: ");
    let refused = ask("first-key");
    let message = refused.is_error(429, None);
    assert!(message.contains("1 requests of this key"), "{message}");
    assert_eq!(refused.json()["error"]["code"], "rate_limit_exceeded");
    assert!(refused.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    assert_eq!((ask("second-key").status, server.get("/health").status), (200, 200));
    drop(running);
    assert!((0..100_000).any(|_| ask("first-key").status == 200), "who has left counts no more");
}

#[test]
fn a_page_of_another_site_is_told_beforehand_what_it_may_send() {
    let server = Server::with(|setup| {
        setup.config.keys = Keys::parse("first-key").unwrap();
        setup.config.cors_origins =
            gannet_server::Origins::parse(&["https://example.org".to_owned()]).unwrap();
    });
    let preflight = |origin: &str| {
        server.connect().send(&format!(
            "OPTIONS /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\norigin: {origin}\r\n\
             access-control-request-method: POST\r\n\
             access-control-request-headers: authorization,content-type,x-stainless-os\r\n\r\n"
        ))
    };
    let allowed = preflight("https://example.org");
    assert_eq!(allowed.status, 200);
    assert_eq!(allowed.header("access-control-allow-origin"), Some("https://example.org"));
    assert!(allowed.header("access-control-allow-methods").unwrap().contains("POST"));
    let headers = allowed.header("access-control-allow-headers").unwrap();
    for name in ["authorization", "content-type", "x-stainless-os"] {
        assert!(headers.contains(name), "{headers}");
    }
    assert_eq!(preflight("https://example.com").header("access-control-allow-origin"), None);
    // A refusal is told to the page as well, with when to come again.
    let refused = asked(&server, "origin: https://example.org\r\n");
    assert_eq!((refused.status, refused.header("access-control-allow-origin").is_some()), (401, true));
    let shown = refused.header("access-control-expose-headers").unwrap();
    assert!(shown.contains("retry-after") && shown.contains("x-request-id"), "{shown}");
}

#[test]
fn other_sites_may_ask_only_where_they_are_named() {
    let page = "origin: https://example.org\r\n";
    let closed = Server::start();
    assert_eq!(asked(&closed, page).header("access-control-allow-origin"), None);
    let open = Server::with(|setup| {
        setup.config.cors_origins =
            gannet_server::Origins::parse(&["https://example.org".to_owned()]).unwrap();
    });
    assert_eq!(asked(&open, page).header("access-control-allow-origin"), Some("https://example.org"));
    assert_eq!(asked(&open, "origin: https://example.com\r\n").header("access-control-allow-origin"), None);
}

#[test]
fn a_request_keeps_its_clients_id_if_it_is_a_plain_word() {
    let server = Server::start();
    assert_eq!(asked(&server, "x-request-id: abc-1\r\n").header("x-request-id"), Some("abc-1"));
    for odd in ["a b", "\u{e4}", &"x".repeat(200)] {
        let answer = asked(&server, &format!("x-request-id: {odd}\r\n"));
        assert!(answer.header("x-request-id").unwrap().starts_with("req_"));
    }
}
