//! The built binary on real weights: the README's answer, stopping by a signal, and measured perplexity.
//!
//! `cargo xtask models` fetches the models; without them these tests fail and say so.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod support;

use std::path::Path;
use support::{gannet, gannet_reading, repository};

const SMOLLM2: &str = "models/SmolLM2-135M-Instruct.Q4_1.gguf";
const GEMMA3: &str = "models/gemma-3-270m-q4_k_m.gguf";

/// A real model, as an argument.
fn model(path: &str) -> String {
    let path = repository(path);
    assert!(Path::new(&path).is_file(), "`{}` is missing: run `cargo xtask models` first", path.display());
    path.to_str().unwrap().to_owned()
}

#[test]
fn the_readmes_command_gets_an_answer() {
    let ask = |prompt: &str| {
        let run = gannet(&["run", &model(SMOLLM2), prompt]);
        assert!(run.stderr.contains("ended by the end of the text"), "{run:?}");
        run.succeeded()
    };
    // With "What is" the first token is all but a tie between English and French.
    assert_eq!(ask("Name the capital of France."), "The capital of France is Paris.\n");
    let answer = ask("Explain in two sentences why the sky is blue.");
    assert!(
        answer.starts_with("The sky") && answer.contains("scatter") && answer.ends_with(".\n"),
        "{answer}"
    );
}

#[test]
fn raw_text_goes_on_and_the_text_is_that_of_the_ids() {
    let model = model(GEMMA3);
    let words = ["run", &model, "--raw", "The capital of France is", "--max-tokens", "8", "--context", "256"];
    let words = [&words[..], &["--activations", "f32"]].concat();
    let text = gannet(&words).succeeded();
    // As transformers continues it, in float32 from the dequantised weights.
    assert_eq!(text, " the capital of the country of France.\n");
    let json = gannet(&[&words[..], &["--json"]].concat()).json();
    assert_eq!(json["text"].as_str().unwrap().to_owned() + "\n", text);
    assert_eq!(json["prompt_ids"][0], 2, "the beginning of text comes first");
    let read = gannet_reading(
        b"The capital of France is",
        &words.iter().map(|word| if word.starts_with("The") { "-" } else { word }).collect::<Vec<_>>(),
    );
    assert_eq!(read.succeeded(), text);
}

#[test]
fn characters_of_several_tokens_come_whole() {
    let words =
        ["run", &model(SMOLLM2), "Repeat after me: \u{1f600}\u{1f680}", "--max-tokens", "40", "--json"];
    let json = gannet(&words).json();
    // The limit of tokens may cut the last one.
    let text = json["text"].as_str().unwrap().trim_end_matches('\u{fffd}');
    assert!(text.contains('\u{1f680}') && !text.contains('\u{fffd}'), "{text:?}");
}

#[cfg(unix)]
#[test]
fn ctrl_c_stops_the_answer_and_keeps_what_there_is() {
    use std::io::Read;
    let words = ["run", &model(SMOLLM2), "Tell me a long story.", "--ignore-end", "--max-tokens", "4000"];
    let mut child = support::command(&words).spawn().unwrap();
    // The first text shows that the answer is being made.
    let mut begin = [0; 8];
    child.stdout.as_mut().unwrap().read_exact(&mut begin).unwrap();
    let kill = format!("kill -INT {}", child.id());
    let killed = std::process::Command::new("sh").args(["-c", &kill]).status().unwrap();
    assert!(killed.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert_eq!(output.stdout.last(), Some(&b'\n'));
    assert!(String::from_utf8(output.stderr).unwrap().contains("ended by Ctrl-C"));
}

/// The golden set: what the model says, greedily and by exact products, to one prompt of each kind. A kernel that
/// changes a bit may change them only with a reason.
fn check_golden(name: &str, prompt: &str, max_tokens: u32) {
    let limit = max_tokens.to_string();
    let words = ["run", &model(SMOLLM2), prompt, "--max-tokens", &limit, "--activations", "f32", "--json"];
    let json = gannet(&words).json();
    let ids: Vec<u64> = json["token_ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect();
    let text = json["text"].as_str().unwrap();
    let prompt_tokens = json["prompt_ids"].as_array().unwrap().len();
    insta::assert_snapshot!(name, format!("prompt tokens: {prompt_tokens}\nids: {ids:?}\ntext: {text}"));
}

#[test]
fn golden_factual_prompt() {
    check_golden("factual", "Who wrote the play Romeo and Juliet, and in which century?", 60);
}

#[test]
fn golden_long_prompt() {
    let text = std::fs::read_to_string(repository("goldens/real/text.txt")).unwrap();
    let part: String = text.chars().take(6000).collect();
    check_golden("long", &format!("{part}\n\nWho is the main character of this text?"), 60);
}

#[test]
fn golden_structured_prompt() {
    let prompt = "Write a JSON object with the keys \"name\", \"age\" and \"city\" for a woman called Ada.";
    check_golden("structured", prompt, 80);
}

#[test]
fn golden_repetition_prompt() {
    check_golden("repetition", "Write the word \"gannet\" one hundred times.", 200);
}
