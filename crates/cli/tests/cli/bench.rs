//! `gannet bench`: which rows it prints. What they say depends on the machine and is not looked at.

use crate::support::{gannet, golden};
use serde_json::Value;

fn facts(row: &Value) -> (&str, u64, u64, u64) {
    let number = |key: &str| row[key].as_u64().unwrap();
    (row["case"].as_str().unwrap(), number("tokens"), number("depth"), number("streams"))
}

#[test]
fn every_case_is_a_row_and_the_first_request_one_of_its_own() {
    let words = "--prefill 20,100 --decode 3 --depth 0,70 --streams 1,3 --repeat 2 --threads 2 --json";
    let words: Vec<&str> = words.split(' ').collect();
    // A family with windows and one without.
    for model in ["gemma3", "llama"] {
        let json = gannet(&[&["bench", &golden(model)], &words[..]].concat()).json();
        let rows = json.as_array().unwrap();
        let expected = [
            ("load", 20, 0, 1),
            ("prefill", 20, 0, 1),
            ("prefill", 100, 0, 1),
            ("decode", 3, 0, 1),
            ("decode", 3, 0, 3),
            ("prefill", 20, 70, 1),
            ("prefill", 100, 70, 1),
            ("decode", 3, 70, 1),
            ("decode", 3, 70, 3),
        ];
        assert_eq!(rows.iter().map(facts).collect::<Vec<_>>(), expected);
        for row in rows {
            let rate = |key: &str| row["tokens_per_second"][key].as_f64().unwrap();
            assert!(
                0.0 < rate("min") && rate("min") <= rate("median") && rate("median") <= rate("max"),
                "{row}"
            );
            assert!(row["bound_fraction"].as_f64().unwrap() > 0.0, "{row}");
        }
        let machine = &rows[0]["start"]["machine"];
        assert!(machine["bytes_per_second"].as_f64().unwrap() > 0.0);
        for arithmetic in ["int8", "float32"] {
            assert!(machine[arithmetic]["operations_per_second"].as_f64().unwrap() > 0.0, "{machine}");
        }
        assert!(rows[0].get("profile").is_none() && rows[0]["start"].get("phases").is_none());
        // All weights of a step are read once, for one stream or three.
        let bytes = |row: usize| rows[row]["bytes_per_token"].as_u64().unwrap();
        assert!(bytes(4) < bytes(3) && bytes(3) < bytes(7), "{rows:?}");
    }
}

#[test]
fn the_table_is_for_people() {
    let text =
        gannet(&["bench", &golden("llama"), "--prefill", "0", "--decode", "2", "--repeat", "1"]).succeeded();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("machine") && lines[0].contains("B/s"), "{text}");
    let cases: Vec<&str> = lines.iter().rev().take(3).rev().map(|line| &line[..6]).collect();
    assert_eq!(cases, ["case  ", "first ", "decode"]);
}

#[test]
fn a_profile_has_every_operation_and_the_trace_is_one_that_viewers_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("steps.json");
    let model = golden("llama");
    let given = ["bench", &model, "--profile", "--trace", file.to_str().unwrap()];
    let words = ["--prefill", "100", "--decode", "3", "--streams", "2", "--repeat", "1", "--json"];
    let json = gannet(&[&given[..], &words[..]].concat()).json();
    let profile = &json[2]["profile"];
    assert_eq!((profile["steps"].as_u64(), json[1]["profile"]["steps"].as_u64()), (Some(3), Some(1)));
    let ops = profile["ops"].as_array().unwrap();
    let named =
        |name: &str| ops.iter().find(|op| op["op"] == name).unwrap_or_else(|| panic!("{name}: {ops:?}"));
    let layers = named("attention")["nodes"].as_u64().unwrap();
    assert_eq!(named("linear attention.q")["nodes"].as_u64(), Some(layers));
    let shares: f64 = ops.iter().map(|op| op["share"].as_f64().unwrap()).sum();
    assert!((0.0..=1.0).contains(&shares), "{shares}");
    let phases = &json[0]["start"]["phases"];
    assert!(phases["steps"].as_u64().unwrap() > 0 && phases["run_us"].as_f64().unwrap() > 0.0, "{phases}");
    check_trace(&std::fs::read_to_string(file).unwrap());
}

/// Complete events of the Trace Event Format, where each node lies within a step.
fn check_trace(text: &str) {
    let events: Vec<Value> = serde_json::from_str(text).unwrap();
    let span = |event: &Value| {
        let (start, length) = (event["ts"].as_f64().unwrap(), event["dur"].as_f64().unwrap());
        assert!(start >= 0.0 && length >= 0.0 && event["ph"] == "X", "{event}");
        assert!(event["pid"].is_u64() && event["tid"].is_u64() && event["name"].is_string(), "{event}");
        (start, start + length)
    };
    let of = |kind: &str| -> Vec<(f64, f64)> {
        events.iter().filter(|event| event["cat"] == kind).map(span).collect()
    };
    let (steps, ops) = (of("step"), of("op"));
    assert_eq!((steps.len(), of("phase").len()), (4, 16));
    assert!(ops.len() > steps.len());
    // A microsecond for rounding.
    let is_within = |op: &(f64, f64)| steps.iter().any(|step| step.0 <= op.0 + 1.0 && op.1 <= step.1 + 1.0);
    assert!(ops.iter().all(is_within));
}

#[test]
fn what_cant_be_measured_is_refused() {
    let bench = |words: &str| {
        let words: Vec<&str> = words.split(' ').collect();
        gannet(&[&["bench", &golden("llama")], &words[..]].concat())
    };
    bench("--prefill 513").failed(1, &["513", "512"]);
    bench("--prefill 0 --decode 0").failed(2, &["nothing to measure"]);
    bench("--streams 0").failed(2, &["expected a number of streams from 1"]);
    bench("--prefill 5,x").failed(2, &["expected a number of tokens from 0"]);
    bench("--serve-sim --profile").failed(2, &["--profile"]);
    bench("--trace /nowhere/steps.json --prefill 0 --decode 1").failed(1, &["/nowhere/steps.json"]);
    bench("--rate 3").failed(2, &["--serve-sim"]);
    bench("--serve-sim --decode 5").failed(2, &["--decode"]);
    bench("--serve-sim --shared 2").failed(2, &["expected a number from 0 to 1"]);
}

#[test]
fn a_trace_runs_through_the_engine_and_shares_its_prefix() {
    let words =
        "--serve-sim --requests 6 --rate 0 --prompt-tokens 200 --answer-tokens 10 --shared 0.7 --streams 2";
    let words: Vec<&str> = words.split(' ').collect();
    let model = golden("llama");
    let json = gannet(&[&["bench", &model], &words[..], &["--json"]].concat()).json();
    assert_eq!((json["requests"].as_u64(), json["failed"].as_u64()), (Some(6), Some(0)), "{json}");
    let number = |key: &str| json[key].as_u64().unwrap();
    assert!((600..=1800).contains(&number("prompt_tokens")), "{json}");
    assert!((30..=90).contains(&number("generated_tokens")), "{json}");
    // Every prompt behind the first two begins with the same 140 tokens, or as many as it has.
    assert!(number("reused_tokens") >= 4 * 100, "{json}");
    let times = &json["first_token_ms"];
    assert!(times["p50"].as_f64().unwrap() <= times["p99"].as_f64().unwrap(), "{json}");
    let text = gannet(&[&["bench", &model], &words[..], &["--step-tokens", "32"]].concat()).succeeded();
    for part in ["throughput", "first token", "between tokens", "queued", "prefix cache", "preemptions"] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}

#[test]
fn the_loop_is_measured_without_weights_being_read() {
    let words = "--loop --streams 2,5 --decode 20 --repeat 1 --json";
    let words: Vec<&str> = words.split(' ').collect();
    let json = gannet(&[&["bench", &golden("gemma3")], &words[..]].concat()).json();
    let rows = json.as_array().unwrap();
    let streams: Vec<u64> = rows.iter().map(|row| row["streams"].as_u64().unwrap()).collect();
    assert_eq!(streams, [2, 5]);
    // A token a step in each stream; those that begin a step later end a step later.
    assert!(rows.iter().all(|row| row["steps"].as_u64().unwrap() >= 20), "{rows:?}");
}

#[test]
fn draws_are_cases_of_their_own() {
    let words = "--prefill 0 --decode 2 --draw greedy,sampled,masked --repeat 1 --json";
    let words: Vec<&str> = words.split(' ').collect();
    let json = gannet(&[&["bench", &golden("llama")], &words[..]].concat()).json();
    let draws: Vec<&str> =
        json.as_array().unwrap().iter().map(|row| row["draws"].as_str().unwrap()).collect();
    assert_eq!(draws, ["greedy", "greedy", "sampled", "masked"]);
}
