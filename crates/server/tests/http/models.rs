//! Which models there are, and what the server says of itself.

use crate::support::Server;
use serde_json::json;

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
