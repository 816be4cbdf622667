//! `gannet inspect` on committed checkpoints.

use crate::support::{gannet, golden};
use crate::toy::write_toy;

#[test]
fn a_model_is_described_in_words_and_in_json() {
    let model = golden("gemma3");
    let text = gannet(&["inspect", &model]).succeeded();
    for part in
        ["gemma3", "parameters", "bf16", "vocabulary", "windows", "rope", "memory", "chat template  none"]
    {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    let json = gannet(&["inspect", &model, "--json", "--context", "64"]).json();
    assert_eq!(json["family"], "gemma3");
    assert_eq!(json["vocabulary"], 272);
    assert_eq!(json["memory"]["context"], 64);
    assert_eq!(json["tokenizer"], serde_json::Value::Null);
    assert!(json["tokenizer_problem"].as_str().unwrap().contains("tokenizer.json"));
    assert_eq!(json["warnings"], serde_json::json!([]));
    assert!(json.get("tensors").is_none() && json.get("program").is_none());
}

#[test]
fn parameters_and_bytes_are_the_sums_of_the_tensors() {
    let json = gannet(&["inspect", &golden("qwen3"), "--json", "--tensors"]).json();
    let sum = |list: &serde_json::Value, key: &str| {
        list.as_array().unwrap().iter().map(|entry| entry[key].as_u64().unwrap()).sum::<u64>()
    };
    let elements = |tensor: &serde_json::Value| {
        tensor["shape"].as_array().unwrap().iter().map(|length| length.as_u64().unwrap()).product::<u64>()
    };
    assert_eq!(json["weight_bytes"].as_u64(), Some(sum(&json["tensors"], "bytes")));
    assert_eq!(json["weight_bytes"].as_u64(), Some(sum(&json["formats"], "bytes")));
    let all: u64 = json["tensors"].as_array().unwrap().iter().map(elements).sum();
    assert_eq!(sum(&json["formats"], "elements"), all);
    assert_eq!(json["parameters"].as_u64(), Some(all));
}

#[test]
fn longer_contexts_need_more_memory() {
    let state = |context: &str| {
        let json = gannet(&["inspect", &golden("llama"), "--json", "--context", context]).json();
        json["memory"]["state_bytes"].as_u64().unwrap()
    };
    // 2 layers of keys and values in f32, 2 heads of 16, a page of 64 tokens.
    assert_eq!(state("64"), 2 * 2 * 2 * 16 * 64 * 4);
    assert_eq!(state("512"), 8 * state("64"));
}

#[test]
fn formats_of_keys_and_values_have_their_price() {
    let state = |format: &str| {
        let words = ["inspect", &golden("llama"), "--json", "--context", "512", "--kv", format];
        gannet(&words).json()["memory"]["state_bytes"].as_u64().unwrap()
    };
    let elements = 2 * 2 * 2 * 16 * 512;
    assert_eq!([state("f32"), state("f16"), state("bf16")], [4 * elements, 2 * elements, 2 * elements]);
    // A scale for each channel of 64 keys and for each value of 16 columns, and two open pages of keys in f16.
    let scales = 2 * 2 * (8 * 16 + 512) * 2;
    assert_eq!(state("int8"), elements + scales + 2 * (2 * 2 * 16 * 64 * 2));
    gannet(&["inspect", &golden("llama"), "--kv", "int4"]).failed(2, &["f16, bf16, f32, int8"]);
}

#[test]
fn a_rope_that_depends_on_the_context_says_what_was_chosen() {
    let rope = |context: &str| {
        gannet(&["inspect", &golden("llama-rope-longrope"), "--context", context]).succeeded()
    };
    assert!(rope("32").contains("short factors"));
    assert!(rope("64").contains("long factors"));
}

#[test]
fn the_program_is_printed_with_costs() {
    let text = gannet(&["inspect", &golden("llama"), "--program"]).succeeded();
    let nodes: Vec<&str> = text.lines().filter(|line| line.contains(" FLOP ")).collect();
    // 64 x 64 weights in f32, and as many operations twice.
    let query = nodes.iter().find(|line| line.contains("layers.0.attention.q.weight")).unwrap();
    assert!(
        query.contains("[tokens, 64]") && query.contains("8.2 K FLOP") && query.ends_with("memory"),
        "{query}"
    );
    assert!(text.contains("decode of 1 at a context of 512"));
    let json = gannet(&["inspect", &golden("llama"), "--program", "--json"]).json();
    assert_eq!(json["program"]["nodes"].as_array().unwrap().len(), nodes.len());
}

#[test]
fn tensors_are_listed_with_format_shape_and_size() {
    let text = gannet(&["inspect", &golden("llama-q8_0.gguf"), "--tensors"]).succeeded();
    let line = text.lines().find(|line| line.starts_with("blk.0.attn_q.weight")).unwrap();
    assert!(line.contains("q8_0") && line.contains("[64, 64]") && line.contains("4.2 KiB"), "{line}");
}

#[test]
fn tokenizer_end_tokens_and_template_are_described() {
    let folder = tempfile::tempdir().unwrap();
    let toy = write_toy(&folder.path().join("toy.gguf"), &[]);
    let json = gannet(&["inspect", &toy, "--json"]).json();
    assert_eq!(json["tokenizer"]["kind"], "gpt2 gpt-2");
    assert_eq!(json["tokenizer"]["tokens"], 272);
    let ends: Vec<_> = json["end_tokens"].as_array().unwrap().iter().map(|end| end["text"].clone()).collect();
    assert_eq!(ends, ["<|endoftext|>", "<|im_end|>"]);
    assert!(json["chat_template"].as_str().unwrap().starts_with("{% for message in messages %}"));
}

#[test]
fn a_loaded_model_takes_what_was_planned() {
    let words = ["inspect", &golden("qwen3"), "--json", "--memory", "--load", "--max-sequences", "3"];
    let memory = &gannet(&words).json()["memory"];
    let of = |facts: &serde_json::Value, class: &str| {
        let found = facts["classes"].as_array().unwrap().iter().find(|facts| facts["class"] == class);
        found.map_or(0, |facts| facts["bytes"].as_u64().unwrap())
    };
    let measured = &memory["measured"];
    assert!(of(measured, "weights") > 0 && of(measured, "scratch") > 0);
    // Three prompts of a page each.
    let page = of(memory, "pages") / (3 * 512 / 64);
    assert!((3 * page..=of(memory, "pages")).contains(&of(measured, "pages")), "{memory}");
    let text = gannet(&["inspect", &golden("qwen3"), "--memory", "--load"]).succeeded();
    for part in ["  weights", "  pages", "  scratch", "  margin", "  in all", ", measured "] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    let one = gannet(&["inspect", &golden("qwen3"), "--json"]).json();
    assert_eq!(memory["state_bytes"].as_u64().unwrap(), 3 * one["memory"]["state_bytes"].as_u64().unwrap());
}

#[test]
fn a_budget_of_memory_is_kept_or_refused_with_the_numbers() {
    let model = golden("llama");
    let total = gannet(&["inspect", &model, "--json"]).json()["memory"]["total_bytes"].as_u64().unwrap();
    let run = |memory: &str| {
        gannet(&["run", &model, "--ids", "1", "--max-tokens", "1", "--context", "512", "--memory", memory])
    };
    run(&total.to_string()).succeeded();
    let less = total - 1;
    run(&less.to_string()).failed(1, &["not enough memory", &less.to_string(), "context of 512"]);
    run("1000TiB").failed(1, &[&(1000u64 << 40).to_string(), "available"]);
    for wrong in ["0", "4X", "GiB", "99999999TiB", "one"] {
        run(wrong).failed(2, &["--memory"]);
    }
}
