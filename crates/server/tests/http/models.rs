//! Which models there are, and what the server says of itself.

use crate::support::Server;
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[test]
fn models_are_listed_and_found_by_name() {
    let server = Server::with(|setup| setup.names = vec!["toy", "org/other"]);
    let list = server.get("/v1/models").json();
    assert_eq!(list["object"], "list");
    let ids: Vec<&str> =
        list["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["toy", "org/other"]);
    assert_eq!(server.get("/v1/models/org/other").json()["id"], "org/other");
    assert_eq!(server.get("/models/toy").json()["object"], "model");
    let message = server.get("/v1/models/absent").is_error(404, Some("model"));
    assert!(message.contains("toy, org/other"), "{message}");
}

#[test]
fn models_come_when_they_are_asked_for_and_go_when_others_are() {
    let server = Server::with(|setup| {
        setup.names = vec!["toy", "other"];
        setup.config.loaded_models = 1;
    });
    let loaded = || {
        let list = server.get("/v1/models").json();
        list["data"].as_array().unwrap().iter().map(|model| model["loaded"] == true).collect::<Vec<_>>()
    };
    assert_eq!(loaded(), [false, false]);
    for (name, expected) in [("toy", [true, false]), ("other", [false, true]), ("toy", [true, false])] {
        let answer = server.ask(
            "/v1/completions",
            &json!({"model": name, "prompt": "a", "max_tokens": 2, "temperature": 0}),
        );
        assert_eq!(answer["model"], name);
        assert_eq!(loaded(), expected);
    }
}

/// Which models are in memory.
fn loaded(server: &Server) -> Vec<String> {
    let list = server.get("/v1/models").json();
    let here = list["data"].as_array().unwrap().iter().filter(|model| model["loaded"] == true);
    here.map(|model| model["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_model_that_nobody_uses_and_nobody_used_for_longest_makes_room() {
    let server = Server::with(|setup| {
        setup.names = vec!["a", "b", "c"];
        (setup.room, setup.sequences, setup.context) = (2, 1, Some(1 << 20));
    });
    let body = |name: &str, tokens: usize| json!({"model": name, "prompt": "a", "max_tokens": tokens, "ignore_eos": true});
    for (name, expected) in [
        ("a", vec!["a"]),
        ("b", vec!["a", "b"]),
        ("a", vec!["a", "b"]),
        ("c", vec!["a", "c"]),
        ("b", vec!["b", "c"]),
    ] {
        server.ask("/v1/completions", &body(name, 2));
        assert_eq!(loaded(&server), expected);
    }
    // Both in memory are in use: there is no room, which is said, and who comes again when one is left gets it.
    let mut streamed = body("b", 1_000_000);
    streamed["stream"] = json!(true);
    let begin =
        |body: &serde_json::Value| server.connect().begin("/v1/completions", "", body.to_string().as_bytes());
    let mut first = begin(&streamed);
    first.read_until("data: ");
    streamed["model"] = json!("c");
    let mut second = begin(&streamed);
    second.read_until("data: ");
    let refused = server.post("/v1/completions", &body("a", 2));
    assert!(refused.is_error(503, None).contains("room for no more"), "{refused:?}");
    assert_eq!(refused.json()["error"]["code"], "model_not_loaded");
    assert!(refused.header("retry-after").is_some());
    drop(first);
    let is_served = |_| server.post("/v1/completions", &body("a", 2)).status == 200;
    assert!((0..1000).any(is_served));
    assert_eq!(loaded(&server), ["a", "c"]);
}

#[test]
fn an_engine_that_stands_still_is_not_healthy_until_it_goes_on() {
    let hold = Arc::new(Mutex::new(()));
    let server = Server::with(|setup| {
        setup.hold = hold.clone();
        setup.limits.stall_time = Duration::from_millis(200);
        (setup.sequences, setup.context) = (1, Some(1 << 20));
    });
    server.ask("/v1/completions", &json!({"model": "toy", "prompt": "a", "max_tokens": 1}));
    let held = hold.lock().unwrap();
    let health = |status: u16| {
        (0..1_000_000).map(|_| server.get("/health")).find(|answer| answer.status == status).unwrap().json()
    };
    assert_eq!(health(200)["status"], "ok", "nothing is to be done");
    let body =
        json!({"model": "toy", "prompt": "a", "max_tokens": 1_000_000, "ignore_eos": true, "stream": true});
    let _running = server.connect().begin("/v1/completions", "", body.to_string().as_bytes());
    let stuck = health(503);
    assert_eq!((&stuck["status"], &stuck["models"]), (&json!("stuck"), &json!(["toy"])));
    assert_eq!(server.get("/ready").status, 200);
    drop(held);
    assert_eq!(health(200)["status"], "ok");
}

#[test]
fn a_server_whose_device_is_lost_says_so_to_each_request_and_is_not_healthy() {
    let fails = Arc::new(AtomicBool::new(false));
    let server = Server::with(|setup| setup.fails = Some(fails.clone()));
    let body = json!({"model": "toy", "prompt": "a", "max_tokens": 1});
    server.ask("/v1/completions", &body);
    fails.store(true, Ordering::Relaxed);
    for failures in 0..3 {
        assert_eq!(server.get("/health").status, 200, "after {failures} failures");
        let message = server.post("/v1/completions", &body).is_error(500, None);
        assert!(message.contains("the device is lost"), "{message}");
    }
    let health = server.get("/health");
    assert_eq!((health.status, &health.json()["models"]), (503, &json!(["toy"])));
    assert_eq!(health.json()["status"], "failing");
    assert_eq!(server.metric("gannet_device_failures_total"), Some(3.0));
    fails.store(false, Ordering::Relaxed);
    server.ask("/v1/completions", &body);
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn a_model_that_can_not_be_loaded_says_why_and_others_are_served() {
    let server = Server::with(|setup| setup.names = vec!["toy", "broken"]);
    let answer = server.post("/v1/completions", &json!({"model": "broken", "prompt": "a"}));
    let message = answer.is_error(503, None);
    assert!(message.contains("`broken`") && message.contains("absent"), "{message}");
    server.ask("/v1/completions", &json!({"model": "toy", "prompt": "a", "max_tokens": 1}));
}

#[test]
fn the_server_says_how_it_is() {
    let server = Server::start();
    assert_eq!(server.get("/health").json()["status"], "ok");
    assert_eq!(server.get("/ready").json()["status"], "ready");
    assert!(server.get("/version").json()["version"].is_string());
    assert_eq!(server.get("/health").header("x-content-type-options"), Some("nosniff"));
}

#[test]
fn every_path_of_the_document_leads_somewhere() {
    let server = Server::start();
    let document = server.get("/openapi.json").json();
    let paths = document["paths"].as_object().unwrap();
    assert!(paths.len() > 15);
    for (path, operations) in paths {
        for (method, operation) in operations.as_object().unwrap() {
            let (method, path) = (method.to_uppercase(), path.replace("{id}", "toy"));
            let head = format!(
                "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
            );
            let answer = server.connect().send(&head);
            assert!(!answer.body.contains("no route") && answer.status != 405, "{method} {path}: {answer:?}");
            if let Some(schema) =
                operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].as_str()
            {
                assert!(document.pointer(schema.strip_prefix('#').unwrap()).is_some(), "{schema}");
            }
        }
    }
}

#[test]
fn routes_that_are_not_there_say_so() {
    let server = Server::start();
    assert!(server.get("/v1/nothing").is_error(404, None).contains("/v1/nothing"));
    assert!(server.get("/v1/completions").is_error(405, None).contains("GET"));
}
