//! Texts to ids and back.

use crate::support::Server;
use serde_json::json;

#[test]
fn texts_and_conversations_become_ids_and_texts_again() {
    let server = Server::start();
    let answer =
        server.ask("/tokenize", &json!({"model": "toy", "prompt": "hen", "return_token_strs": true}));
    assert_eq!(answer["count"], answer["tokens"].as_array().unwrap().len());
    assert_eq!(answer["max_model_len"], 512);
    assert_eq!(answer["token_strs"], json!(["he", "n"]));
    let back = server.ask("/v1/detokenize", &json!({"tokens": answer["tokens"]}));
    assert_eq!(back["prompt"], "hen");
    let chat = server.ask("/tokenize", &json!({"messages": [{"role": "user", "content": "hen"}]}));
    let back = server.ask("/detokenize", &json!({"tokens": chat["tokens"]}));
    assert_eq!(back["prompt"], "<|im_start|>user\nhen<|im_end|>\n<|im_start|>assistant\n");
}

#[test]
fn completions_are_rendered_as_a_list() {
    let server = Server::start();
    let ids = server.ask("/tokenize", &json!({"prompt": "hen"}))["tokens"].clone();
    let rendered = server.ask("/v1/completions/render", &json!({"model": "toy", "prompt": ["hen", "hen"]}));
    assert_eq!(rendered[1]["token_ids"], ids);
    assert_eq!(rendered.as_array().unwrap().len(), 2);
}

#[test]
fn ids_that_do_not_exist_are_refused() {
    let server = Server::start();
    server.refuses("/detokenize", &json!({"tokens": [1, 100_000]}), 400, "tokens[1]");
    server.refuses("/detokenize", &json!({"tokens": [-1]}), 400, "tokens[0]");
    server.refuses("/tokenize", &json!({}), 400, "prompt");
    server.refuses("/tokenize", &json!({"prompt": "a", "mood": 1}), 400, "mood");
}
