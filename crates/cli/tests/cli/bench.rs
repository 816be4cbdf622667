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
        assert!(rows[0]["start"]["machine"]["bytes_per_second"].as_f64().unwrap() > 0.0);
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
fn what_cant_be_measured_is_refused() {
    let bench = |words: &str| {
        let words: Vec<&str> = words.split(' ').collect();
        gannet(&[&["bench", &golden("llama")], &words[..]].concat())
    };
    bench("--prefill 513").failed(1, &["513", "512"]);
    bench("--prefill 0 --decode 0").failed(2, &["nothing to measure"]);
    bench("--streams 0").failed(2, &["expected a number of streams from 1"]);
    bench("--prefill 5,x").failed(2, &["expected a number of tokens from 0"]);
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
