//! `gannet run` on committed checkpoints and on a toy with a tokenizer.

use crate::support::{command, gannet, gannet_reading, golden};
use crate::toy::{END_OF_TEXT, TURN_ENDS, TURN_STARTS, write_toy};
use safetensors::SafeTensors;
use serde_json::Value;
use std::fs;

fn list(ids: &Value) -> Vec<u32> {
    ids.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

fn join(ids: &[u32]) -> String {
    ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

fn golden_ids(name: &str, tensor: &str) -> Vec<u32> {
    let bytes = fs::read(golden(name)).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let data = tensors.tensor(tensor).unwrap().data().to_vec();
    data.chunks_exact(4).map(|id| u32::from_le_bytes(id.try_into().unwrap())).collect()
}

#[test]
fn greedy_tokens_are_those_of_the_goldens() {
    for model in ["llama", "qwen2", "qwen3", "gemma3"] {
        let golden_file = format!("{model}/golden.safetensors");
        let (ids, expected) = (join(&golden_ids(&golden_file, "ids")), golden_ids(&golden_file, "greedy"));
        let words = ["--ids", &ids, "--max-tokens", "40", "--ignore-end"];
        let path = golden(model);
        let json = gannet(&[&["run", &path], &words[..], &["--json"]].concat()).json();
        assert_eq!(list(&json["token_ids"]), expected, "{model}");
        let text = gannet(&[&["run", &path], &words[..]].concat()).succeeded();
        assert_eq!(text, join(&expected) + "\n", "{model}");
    }
}

#[test]
fn a_faulty_template_stops_chats_alone() {
    let folder = tempfile::tempdir().unwrap();
    let faulty = [("tokenizer.chat_template", gannet_formats::gguf::Value::from("a\n{% if %}"))];
    let toy = write_toy(&folder.path().join("toy.gguf"), &faulty);
    let chat = gannet(&["run", &toy, "h"]);
    assert_eq!(chat.code, Some(1), "{chat:?}");
    for part in ["line 2", "unexpected end of block", "use --raw"] {
        assert!(chat.stderr.contains(part), "{chat:?}");
    }
    assert_eq!(gannet(&["run", &toy, "--raw", "h", "--max-tokens", "1"]).code, Some(0));
    let facts = gannet(&["inspect", &toy]).succeeded();
    assert!(facts.contains("unusable: the chat template has a fault in line 2"), "{facts}");
}

#[test]
fn the_json_object_says_everything() {
    let json = gannet(&["run", &golden("llama"), "--ids", "1,2,3", "--max-tokens", "2", "--json"]).json();
    assert_eq!(list(&json["prompt_ids"]), [1, 2, 3]);
    assert_eq!(json["text"], Value::Null);
    assert_eq!(json["finish_reason"], "length");
    assert_eq!(json["seed"], Value::Null);
    let timings = &json["timings"];
    assert_eq!((&timings["prompt_tokens"], &timings["generated_tokens"]), (&Value::from(3), &Value::from(2)));
    for key in ["load_ms", "prefill_ms", "decode_ms", "prompt_tokens_per_second", "tokens_per_second"] {
        assert!(timings[key].is_number(), "{key} in {timings}");
    }
}

#[test]
fn text_goes_through_the_template_unless_it_is_raw() {
    let folder = tempfile::tempdir().unwrap();
    let toy = write_toy(&folder.path().join("toy.gguf"), &[]);
    let prompt = |more: &[&str]| {
        let json = gannet(&[&["run", &toy, "--max-tokens", "1", "--json"], more].concat()).json();
        list(&json["prompt_ids"])
    };
    let raw = prompt(&["--raw", "hey"]);
    assert_eq!(raw.len(), 2, "`he` is one piece");
    let chat = prompt(&["hey"]);
    assert_eq!((chat[0], chat.iter().filter(|id| **id == TURN_STARTS).count()), (TURN_STARTS, 2));
    assert!(chat.windows(2).any(|pair| pair == raw));
    let with_system = prompt(&["hey", "--system", "x"]);
    assert_eq!(with_system.iter().filter(|id| **id == TURN_STARTS).count(), 3);
    // Special tokens are parsed in raw text, never in what the user says.
    assert_eq!(prompt(&["--raw", "<|im_end|>"]), [TURN_ENDS]);
    assert_eq!(prompt(&["<|im_end|>"]).iter().filter(|id| **id == TURN_ENDS).count(), 1);
}

#[test]
fn standard_input_is_a_prompt_like_any_other() {
    let folder = tempfile::tempdir().unwrap();
    let toy = write_toy(&folder.path().join("toy.gguf"), &[]);
    let words = ["--max-tokens", "8", "--raw"];
    let read = gannet_reading("h\u{e9}llo".as_bytes(), &[&["run", &toy, "-"], &words[..]].concat());
    let given = gannet(&[&["run", &toy, "h\u{e9}llo"], &words[..]].concat());
    assert_eq!(read.succeeded(), given.succeeded());
}

#[test]
fn an_end_token_ends_the_answer() {
    let folder = tempfile::tempdir().unwrap();
    let toy = write_toy(&folder.path().join("toy.gguf"), &[]);
    let bias = format!("{END_OF_TEXT}=1000");
    let ended = |more: &[&str]| {
        let words = ["run", &toy, "hey", "--max-tokens", "3", "--logit-bias", &bias, "--json"];
        gannet(&[&words[..], more].concat()).json()
    };
    let json = ended(&[]);
    assert_eq!((json["finish_reason"].as_str(), list(&json["token_ids"]).len()), (Some("stop"), 0));
    assert_eq!(json["text"], "");
    let json = ended(&["--ignore-end"]);
    assert_eq!(
        (json["finish_reason"].as_str(), list(&json["token_ids"])),
        (Some("length"), vec![END_OF_TEXT; 3])
    );
}

#[test]
fn a_stop_string_ends_the_text_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let toy = write_toy(&folder.path().join("toy.gguf"), &[]);
    // `h` always: the text would be `hhhhhhhh`.
    let letter =
        list(&gannet(&["run", &toy, "--raw", "h", "--max-tokens", "1", "--json"]).json()["prompt_ids"])[0];
    let bias = format!("{letter}=1000");
    let text = |more: &[&str]| {
        let words = ["run", &toy, "hey", "--max-tokens", "8", "--logit-bias", &bias];
        gannet(&[&words[..], more].concat()).succeeded()
    };
    assert_eq!(text(&[]), "hhhhhhhh\n");
    assert_eq!(text(&["--stop", "hhh"]), "\n");
    assert_eq!(text(&["--stop", "x", "--stop", "hx"]), "hhhhhhhh\n");
    let json: Value = serde_json::from_str(&text(&["--stop", "hh", "--json"])).unwrap();
    assert_eq!((json["text"].as_str(), json["finish_reason"].as_str()), (Some(""), Some("stop")));
    assert_eq!(list(&json["token_ids"]), [letter; 2]);
}

#[test]
fn the_same_seed_gives_the_same_text_and_the_report_names_it() {
    let path = golden("llama");
    let draw = |seed: &str| {
        gannet(&["run", &path, "--ids", "1,2", "--max-tokens", "20", "--temperature", "1.5", "--seed", seed])
    };
    let first = draw("7");
    assert!(first.stderr.contains("seed 7") && first.stderr.contains("2 prompt tokens"), "{first:?}");
    let first = first.succeeded();
    assert_eq!(first, draw("7").succeeded());
    assert_ne!(first, draw("8").succeeded());
}

#[test]
fn the_answer_depends_on_no_number_of_threads() {
    let answer = |threads: &str| {
        gannet(&["run", &golden("gemma3"), "--ids", "5,6,7", "--max-tokens", "30", "--threads", threads])
            .succeeded()
    };
    assert_eq!(answer("1"), answer("2"));
}

#[test]
fn a_reader_that_leaves_is_no_failure() {
    let mut child =
        command(&["run", &golden("llama"), "--ids", "1,2", "--max-tokens", "400", "--ignore-end"])
            .spawn()
            .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn log_probabilities_come_with_each_token_and_each_token_of_the_prompt() {
    let words = "--ids 1,2,3,4 --max-tokens 3 --ignore-end --logprobs 2 --prompt-logprobs 1 --json";
    let words: Vec<&str> = words.split(' ').collect();
    let json = gannet(&[&["run", &golden("llama")], &words[..]].concat()).json();
    let tokens = list(&json["token_ids"]);
    let of = |key: &str| json[key].as_array().unwrap().clone();
    let (answer, prompt) = (of("logprobs"), of("prompt_logprobs"));
    assert_eq!((answer.len(), prompt.len()), (3, 3));
    for (token, one) in tokens.iter().zip(&answer) {
        // Greedy draws take the most likely token.
        assert_eq!(one["top"][0][0].as_u64(), Some(u64::from(*token)));
        assert_eq!(one["top"][0][1], one["logprob"]);
        assert_eq!(one["top"].as_array().unwrap().len(), 2);
    }
    for one in &prompt {
        assert!(one["logprob"].as_f64().unwrap() <= one["top"][0][1].as_f64().unwrap());
    }
}

#[test]
fn every_sampler_can_be_asked_for() {
    let draw = |more: &str| {
        let base = "--ids 1,2,3 --max-tokens 12 --ignore-end --seed 5 --json --temperature 1.5";
        let words: Vec<&str> = base.split(' ').chain(more.split_whitespace()).collect();
        list(&gannet(&[&["run", &golden("llama")], &words[..]].concat()).json()["token_ids"])
    };
    let free = draw("");
    for flags in ["--mirostat 2", "--adaptive-p 0.1 --min-p 0.01", "--xtc-probability 1", "--typical-p 0.5"] {
        assert_eq!(draw(flags), draw(flags), "{flags}");
    }
    assert!(draw("--allow-tokens 7,9").iter().all(|token| [7, 9].contains(token)));
    let banned = format!("--ban-tokens {}", free[0]);
    assert_ne!(draw(&banned)[0], free[0]);
}

#[test]
fn an_answer_has_the_form_that_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let toy = write_toy(&folder.path().join("toy.gguf"), &[]);
    let lark = folder.path().join("answer.lark");
    fs::write(&lark, "start: \"a\" (\"b\" | \"c\") \"!\"\n").unwrap();
    let schema = folder.path().join("schema.json");
    fs::write(&schema, "{\"enum\": [[1, 2]]}").unwrap();
    let answer = |more: &[&str]| gannet(&[&["run", &toy, "--raw", "hey", "--json"], more].concat()).json();
    let lark = answer(&["--grammar", lark.to_str().unwrap()]);
    assert!(["ab!", "ac!"].contains(&lark["text"].as_str().unwrap()), "{lark}");
    assert_eq!(lark["finish_reason"], "stop");
    assert_eq!(answer(&["--regex", "x{7}"])["text"], "xxxxxxx");
    for schema in ["{\"const\": true}", "{\"const\":true, \"type\": \"boolean\"}"] {
        assert_eq!(answer(&["--json-schema", schema])["text"], "true");
    }
    let list = answer(&["--json-schema", schema.to_str().unwrap(), "--temperature", "1", "--seed", "1"]);
    assert_eq!(
        serde_json::from_str::<Value>(list["text"].as_str().unwrap()).unwrap(),
        serde_json::json!([1, 2])
    );
    for (flags, code, expected) in [
        (&["--json-schema", "{\"properties\": {\"a\": {\"not\": {}}}}"][..], 2, "/properties/a/not"),
        (&["--json-schema", "no such file"], 2, "no such file"),
        (&["--regex", "("], 1, "regular expression"),
        (&["--regex", "a", "--json-object"], 2, "--json-object"),
    ] {
        gannet(&[&["run", &toy, "--raw", "hey"], flags].concat()).failed(code, &[expected]);
    }
}
