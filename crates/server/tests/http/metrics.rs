//! `/metrics`: the names that others read, and numbers that move.

use crate::support::Server;
use serde_json::{Value, json};

#[test]
fn what_is_answered_is_counted() {
    let server = Server::start();
    let body = json!({"model": "toy", "prompt": "hen", "max_tokens": 8, "temperature": 0, "ignore_eos": true, "n": 2});
    server.ask("/v1/completions", &body);
    let text = server.get("/metrics").body;
    for line in [
        "# TYPE vllm:num_requests_running gauge",
        "# TYPE vllm:time_to_first_token_seconds histogram",
        "vllm:generation_tokens_total{model_name=\"toy\"} 16",
        "vllm:prompt_tokens_total{model_name=\"toy\"} 4",
        "vllm:request_success_total{model_name=\"toy\",finished_reason=\"length\"} 2",
        "vllm:time_to_first_token_seconds_count{model_name=\"toy\"} 2",
        "vllm:inter_token_latency_seconds_count{model_name=\"toy\"} 14",
        "vllm:request_generation_tokens_bucket{model_name=\"toy\",le=\"5.0\"} 0",
        "vllm:request_generation_tokens_bucket{model_name=\"toy\",le=\"10.0\"} 2",
        "vllm:request_generation_tokens_bucket{model_name=\"toy\",le=\"+Inf\"} 2",
        "vllm:num_requests_waiting{model_name=\"toy\"} 0",
        "vllm:request_params_n_bucket{model_name=\"toy\",le=\"1.0\"} 0",
        "vllm:request_params_n_bucket{model_name=\"toy\",le=\"2.0\"} 1",
        "vllm:request_params_max_tokens_sum{model_name=\"toy\"} 8",
        "vllm:request_max_num_generation_tokens_sum{model_name=\"toy\"} 8",
        "vllm:request_max_num_generation_tokens_count{model_name=\"toy\"} 1",
        "# TYPE vllm:spec_decode_num_accepted_tokens_total counter",
        "vllm:spec_decode_num_draft_tokens_total{model_name=\"toy\"} 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    for part in [
        "gannet_pages{model_name=\"toy\",kind=\"full\",held=\"free\"} ",
        "gannet_memory_bytes{model_name=\"toy\",class=\"weights\"} ",
        "gannet_memory_used_bytes{model_name=\"toy\",class=\"weights\"} ",
        "gannet_memory_used_bytes{model_name=\"toy\",class=\"pages\"} ",
        "gannet_numerics_info{model_name=\"toy\",numerics_id=\"",
        "gannet_prefix_common_tokens_total{model_name=\"toy\"} ",
        "vllm:lora_requests_info{model_name=\"toy\",max_lora=\"0\",running_lora_adapters=\"\",waiting_lora_adapters=\"\"} ",
    ] {
        assert!(text.lines().any(|line| line.starts_with(part)), "{part} is not in\n{text}");
    }
    assert!(
        text.contains("vllm:cache_config_info{model_name=\"toy\",block_size=\"64\",num_gpu_blocks=\"32\"} 1"),
        "{text}"
    );
    for line in text.lines() {
        let value = line.rsplit(' ').next().unwrap();
        assert!(line.starts_with("# ") || value.parse::<f64>().is_ok(), "{line}");
    }
}

#[test]
fn pages_of_a_kind_add_up_and_are_cached_when_their_sequence_has_ended() {
    let server = Server::start();
    let body = json!({"model": "toy", "prompt": "hen ".repeat(60), "max_tokens": 2});
    server.ask("/v1/completions", &body);
    server.ask("/v1/completions", &body);
    let text = server.get("/metrics").body;
    let value = |name: &str| {
        let line =
            text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {text}"));
        line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
    };
    let held = ["running", "cached", "free"]
        .map(|held| value(&format!("gannet_pages{{model_name=\"toy\",kind=\"full\",held=\"{held}\"}}")));
    assert_eq!(held.iter().sum::<f64>(), 32.0);
    assert!(held[1] >= 1.0, "{held:?}");
    let [reused, common] = ["reused", "common"]
        .map(|what| value(&format!("gannet_prefix_{what}_tokens_total{{model_name=\"toy\"}}")));
    assert!(reused > 0.0 && common >= reused, "{reused} {common}");
    assert_eq!(reused, value("vllm:prefix_cache_hits_total{model_name=\"toy\"}"));
}

#[test]
fn all_that_the_dashboard_asks_for_is_there() {
    let server = Server::start();
    // Two answers, so that what only an answer shows is there as well.
    server.ask("/v1/completions", &json!({"model": "toy", "prompt": "hen", "max_tokens": 4, "n": 2}));
    let metrics = server.get("/metrics").body;
    let dashboard: Value = serde_json::from_str(include_str!("../../../../deploy/grafana.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    assert!(panels.len() > 10);
    let mut places = std::collections::HashSet::new();
    for panel in panels {
        assert!(places.insert(panel["gridPos"].to_string()), "two panels at {}", panel["gridPos"]);
        for target in panel["targets"].as_array().unwrap() {
            let query = target["expr"].as_str().unwrap();
            let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == ':';
            let words = query.split(|letter| !is_name(letter));
            let names: Vec<&str> = words
                .filter(|word| ["vllm:", "gannet_", "process_"].iter().any(|start| word.starts_with(start)))
                .collect();
            assert!(!names.is_empty(), "{query}");
            for name in names {
                let is_there = metrics
                    .lines()
                    .any(|line| line.starts_with(name) || line.starts_with(&format!("# TYPE {name} ")));
                assert!(is_there, "{name} of {query}");
            }
        }
    }
}
