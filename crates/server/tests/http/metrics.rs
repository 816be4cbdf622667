//! `/metrics`: the names that others read, and numbers that move.

use crate::support::Server;
use serde_json::json;

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
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    assert!(
        text.contains("vllm:cache_config_info{model_name=\"toy\",block_size=\"64\",num_gpu_blocks=\"32\"} 1"),
        "{text}"
    );
    for line in text.lines() {
        assert!(line.starts_with("# ") || line.split(' ').count() == 2, "{line}");
    }
}
