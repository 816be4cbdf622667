//! `/v1/embeddings`: what each parameter does.

use crate::support::Server;
use serde_json::{Value, json};

const PATH: &str = "/v1/embeddings";

fn server() -> Server {
    Server::with(|setup| setup.names = vec!["toy", "vectors"])
}

fn ask(server: &Server, input: Value, more: Value) -> Value {
    let mut body = json!({"model": "vectors", "input": input});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    server.ask(PATH, &body)
}

fn vector(answer: &Value, place: usize) -> Vec<f32> {
    assert_eq!(answer["data"][place]["index"], place);
    let numbers = answer["data"][place]["embedding"].as_array().unwrap();
    numbers.iter().map(|number| number.as_f64().unwrap() as f32).collect()
}

#[test]
fn a_vector_is_the_same_alone_in_a_list_and_from_token_ids() {
    let server = server();
    let alone = ask(&server, json!("hello"), json!({}));
    assert_eq!((&alone["object"], &alone["data"][0]["object"]), (&json!("list"), &json!("embedding")));
    let length: f32 = vector(&alone, 0).iter().map(|x| x * x).sum();
    assert!((length - 1.0).abs() < 1e-5, "{length}");
    let list = ask(&server, json!(["one", "hello"]), json!({}));
    assert_eq!(vector(&list, 1), vector(&alone, 0));
    assert_ne!(vector(&list, 0), vector(&alone, 0));
    let ids = server.ask("/tokenize", &json!({"model": "vectors", "prompt": "hello"}))["tokens"].clone();
    assert_eq!(vector(&ask(&server, ids.clone(), json!({})), 0), vector(&alone, 0));
    assert_eq!(vector(&ask(&server, json!([ids, ids]), json!({})), 1), vector(&alone, 0));
    assert_eq!(alone["usage"]["prompt_tokens"], ids.as_array().unwrap().len());
}

#[test]
fn base64_holds_the_same_numbers_and_dimensions_cut_them() {
    let server = server();
    let whole = vector(&ask(&server, json!("hello"), json!({})), 0);
    let coded = ask(&server, json!("hello"), json!({"encoding_format": "base64"}));
    let bytes: Vec<u8> = whole.iter().flat_map(|x| x.to_le_bytes()).collect();
    assert_eq!(coded["data"][0]["embedding"], gannet_text::base64::encode(&bytes));
    let cut = vector(&ask(&server, json!("hello"), json!({"dimensions": 4})), 0);
    let length = whole[..4].iter().map(|x| x * x).sum::<f32>().sqrt();
    assert_eq!(cut.len(), 4);
    for (cut, whole) in cut.iter().zip(&whole) {
        assert!((cut - whole / length).abs() < 1e-5);
    }
}

#[test]
fn a_vector_is_made_of_the_rows_that_its_model_pools() {
    let server = Server::with(|setup| setup.names = vec!["vectors", "first", "last"]);
    let of =
        |model: &str, input: Value| vector(&server.ask(PATH, &json!({"model": model, "input": input})), 0);
    let near =
        |one: &[f32], other: &[f32]| one.iter().zip(other).all(|(one, other)| (one - other).abs() < 1e-5);
    let models = ["vectors", "first", "last"];
    let [mean, first, last] = models.map(|model| of(model, json!([7])));
    assert!(near(&mean, &first) && near(&first, &last), "one row is the first, the last and the mean");
    let [means, firsts, lasts] = models.map(|model| of(model, json!([7, 8, 9])));
    assert!(near(&firsts, &first), "what stands behind a row changes nothing in it");
    assert!(!near(&lasts, &firsts) && !near(&means, &firsts) && !near(&means, &lasts));
}

#[test]
fn what_is_wrong_is_named() {
    let server = server();
    for (name, value, param) in [
        ("input", json!(null), "input"),
        ("input", json!(""), "input"),
        ("input", json!([]), "input"),
        ("input", json!(["a", ""]), "input[1]"),
        ("input", json!(["a", 5]), "input[1]"),
        ("input", json!([100_000]), "input[0]"),
        ("input", json!("a".repeat(2000)), "input"),
        ("dimensions", json!(0), "dimensions"),
        ("dimensions", json!(100_000), "dimensions"),
        ("encoding_format", json!("hex"), "encoding_format"),
        ("truncate_prompt_tokens", json!(0), "truncate_prompt_tokens"),
        ("model", json!("toy"), "model"),
        ("bogus", json!(1), "bogus"),
    ] {
        let mut body = json!({"model": "vectors", "input": "hello"});
        body[name] = value;
        server.refuses(PATH, &body, 400, param);
    }
    let chat = json!({"model": "vectors", "messages": [{"role": "user", "content": "hi"}]});
    server.refuses("/v1/chat/completions", &chat, 400, "model");
}
