//! All series as text.

use super::histogram::Histogram;
use super::{ModelMetrics, REASONS};
use crate::models::Served;
use crate::names::now_seconds;
use gannet_engine::{EngineStats, PageCounts, PageKind, Phases};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Tokens of a page.
const PAGE_TOKENS: &str = "64";

/// The lines of one series of one model.
pub(crate) struct Series<'a> {
    text: &'a mut String,
    name: &'a str,
    model: &'a str,
}

impl Series<'_> {
    /// A line: the series' name with an ending, its labels after the model's, a value.
    pub(crate) fn sample(&mut self, ending: &str, labels: &[(&str, &str)], value: f64) {
        let Self { text, name, model } = self;
        // A string takes any text.
        let _ = write!(text, "{name}{ending}{{model_name=\"{}\"", escaped(model));
        for (label, value) in labels {
            let _ = write!(text, ",{label}=\"{}\"", escaped(value));
        }
        let _ = writeln!(text, "}} {value}");
    }
}

/// What lies in memory of a model, which its engine is asked for.
const USED: &str = "gannet_memory_used_bytes";

/// A process's memory, which is not one model's.
const RESIDENT: &str = "process_resident_memory_bytes";

/// A family of series: its name, kind and meaning, and how a model's lines are written.
struct Family {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    write: fn(&mut Series<'_>, &Served, &EngineStats),
}

macro_rules! histogram {
    ($name:literal, $field:ident, $help:literal) => {
        Family {
            name: $name,
            kind: "histogram",
            help: $help,
            write: |series, served, _| Histogram::write(&served.metrics.$field, series),
        }
    };
}

macro_rules! number {
    ($kind:literal, $name:literal, $help:literal, $value:expr) => {
        Family {
            name: $name,
            kind: $kind,
            help: $help,
            write: |series, served, stats| {
                let value: fn(&Served, &EngineStats) -> f64 = $value;
                series.sample("", &[], value(served, stats));
            },
        }
    };
}

/// A count of what isn't done here, by the name that dashboards read.
macro_rules! speculation {
    ($name:literal, $help:literal) => {
        number!("counter", $name, $help, |_, _| 0.0)
    };
}

const FAMILIES: &[Family] = &[
    number!("gauge", "vllm:num_requests_running", "Answers that are being made.", |_, stats| stats.running
        as f64),
    number!("gauge", "vllm:num_requests_waiting", "Answers that wait for a sequence.", |served, stats| {
        served.admission.live().saturating_sub(stats.running) as f64
    }),
    Family {
        name: "vllm:lora_requests_info",
        kind: "gauge",
        help: "Adapters, of which there are none; the value is the time of the scrape.",
        write: |series, _, _| {
            let none = [("max_lora", "0"), ("running_lora_adapters", ""), ("waiting_lora_adapters", "")];
            series.sample("", &none, now_seconds() as f64);
        },
    },
    number!(
        "gauge",
        "vllm:kv_cache_usage_perc",
        "Pages of running sequences, of all pages; 1 is all.",
        |_, stats| { stats.pages.in_use as f64 / stats.pages.total.max(1) as f64 }
    ),
    Family {
        name: "vllm:cache_config_info",
        kind: "gauge",
        help: "Tokens of a page, and how many there are.",
        write: |series, _, stats| {
            let pages = stats.pages.total.to_string();
            series.sample("", &[("block_size", PAGE_TOKENS), ("num_gpu_blocks", &pages)], 1.0);
        },
    },
    number!("counter", "vllm:prompt_tokens_total", "Tokens of prompts.", |served, _| {
        counted(&served.metrics.prompt_tokens)
    }),
    number!("counter", "vllm:generation_tokens_total", "Tokens of answers.", |served, _| {
        counted(&served.metrics.answer_tokens)
    }),
    number!(
        "counter",
        "vllm:prefix_cache_queries_total",
        "Tokens of prompts that were looked up.",
        |_, stats| { stats.prefix.asked_tokens as f64 }
    ),
    number!("counter", "vllm:prefix_cache_hits_total", "Tokens of prompts that were known.", |_, stats| {
        stats.prefix.hit_tokens as f64
    }),
    number!(
        "counter",
        "vllm:num_preemptions_total",
        "Times that a request made room for others.",
        |_, stats| { stats.preemptions as f64 }
    ),
    Family {
        name: "vllm:request_success_total",
        kind: "counter",
        help: "Answers that have ended, by how.",
        write: |series, served, _| {
            let ModelMetrics { ended, .. } = &served.metrics;
            for (reason, count) in REASONS.iter().zip(ended) {
                series.sample("", &[("finished_reason", reason)], counted(count));
            }
        },
    },
    speculation!("vllm:spec_decode_num_drafts_total", "Drafts of tokens; nothing is drafted."),
    speculation!("vllm:spec_decode_num_draft_tokens_total", "Tokens of drafts; nothing is drafted."),
    speculation!(
        "vllm:spec_decode_num_accepted_tokens_total",
        "Tokens of drafts that stood; nothing is drafted."
    ),
    histogram!("vllm:time_to_first_token_seconds", first_token, "From a request to its first token."),
    histogram!("vllm:inter_token_latency_seconds", between_tokens, "From one token to the next."),
    histogram!(
        "vllm:time_per_output_token_seconds",
        per_token,
        "Decoding time of an answer, for each token."
    ),
    histogram!("vllm:request_time_per_output_token_seconds", per_token, "The same by its newer name."),
    histogram!("vllm:e2e_request_latency_seconds", request, "From a request to its end."),
    histogram!("vllm:request_queue_time_seconds", queue, "From a request to its first step."),
    histogram!("vllm:request_prefill_time_seconds", prefill, "From the first step to the first token."),
    histogram!("vllm:request_decode_time_seconds", decode, "From the first token to the end."),
    histogram!("vllm:request_inference_time_seconds", inference, "From the first step to the end."),
    histogram!("vllm:request_prompt_tokens", prompt, "Tokens of a prompt."),
    histogram!("vllm:request_generation_tokens", answer, "Tokens of an answer."),
    histogram!(
        "vllm:request_max_num_generation_tokens",
        longest_answer,
        "Tokens of the longest answer to a prompt."
    ),
    histogram!("vllm:request_params_max_tokens", asked_tokens, "The most tokens that an answer may have."),
    histogram!("vllm:request_params_n", asked_answers, "Answers to a prompt that are asked for."),
    number!("counter", "gannet_steps_total", "Steps of the engine.", |_, stats| stats.steps as f64),
    number!("counter", "gannet_device_failures_total", "Times that the device failed.", |_, stats| stats
        .failures
        as f64),
    number!("counter", "gannet_step_rows_total", "Rows of all steps.", |_, stats| stats.rows as f64),
    Family {
        name: "gannet_step_seconds_total",
        kind: "counter",
        help: "Time of all steps, by what it was spent on.",
        write: |series, _, stats| {
            let Phases { schedule, assemble, run, sample, commit } = stats.phases;
            for (phase, time) in [
                ("schedule", schedule),
                ("assemble", assemble),
                ("run", run),
                ("sample", sample),
                ("commit", commit),
            ] {
                series.sample("", &[("phase", phase)], time.as_secs_f64());
            }
        },
    },
    number!(
        "counter",
        "gannet_late_masks_total",
        "Draws that were put off because a grammar's mask took longer than a step.",
        |_, stats| { stats.late_masks as f64 }
    ),
    number!("counter", "gannet_evicted_pages_total", "Known pages given up for others.", |_, stats| {
        stats.prefix.evicted_pages as f64
    }),
    number!(
        "counter",
        "gannet_evicted_snapshots_total",
        "Recurrent snapshots given up for others.",
        |_, stats| { stats.prefix.evicted_snapshots as f64 }
    ),
    Family {
        name: "gannet_pages",
        kind: "gauge",
        help: "Pages by kind, and by who holds them.",
        write: |series, _, stats| {
            for kind in PageKind::ALL {
                let PageCounts { in_use, cached, total } = stats.pages_by_kind.of(kind);
                let free = total - in_use - cached;
                for (held, pages) in [("running", in_use), ("cached", cached), ("free", free)] {
                    series.sample("", &[("kind", kind.name()), ("held", held)], pages as f64);
                }
            }
        },
    },
    Family {
        name: "gannet_memory_bytes",
        kind: "gauge",
        help: "Memory of the model, by what it is planned for.",
        write: |series, served, _| {
            for (class, bytes) in &served.facts.memory {
                series.sample("", &[("class", class)], *bytes as f64);
            }
        },
    },
    Family {
        name: "gannet_numerics_info",
        kind: "gauge",
        help: "What the bits of answers depend on beside their prompts: replicas with the same id answer alike.",
        write: |series, served, _| series.sample("", &[("numerics_id", &served.facts.numerics_id)], 1.0),
    },
    number!(
        "counter",
        "gannet_prefix_reused_tokens_total",
        "Tokens of prompts that needn't be computed.",
        |served, _| counted(&served.metrics.reused_tokens)
    ),
    number!(
        "counter",
        "gannet_prefix_common_tokens_total",
        "Tokens of prompts that were known, those included behind which no state was kept.",
        |served, _| counted(&served.metrics.common_tokens)
    ),
    number!(
        "counter",
        "gannet_truncated_tokens_total",
        "Tokens cut off prompts, as asked for.",
        |served, _| { counted(&served.metrics.cut_tokens) }
    ),
    Family {
        name: "gannet_queue_wait_seconds",
        kind: "gauge",
        help: "How long a request would wait that came now; absent where nothing shows it.",
        write: |series, _, stats| {
            if let Some(wait) = stats.wait {
                series.sample("", &[], wait.as_secs_f64());
            }
        },
    },
    Family {
        name: "gannet_major_page_faults_total",
        kind: "counter",
        help: "Page faults of the process that read a file or swapped memory; absent where the system doesn't say.",
        write: |series, _, stats| {
            if let Some(faults) = stats.major_faults {
                series.sample("", &[], faults as f64);
            }
        },
    },
    Family {
        name: "gannet_last_progress_seconds",
        kind: "gauge",
        help: "How long an engine that has something to do has made no step.",
        write: |series, served, _| series.sample("", &[], served.stands_for().as_secs_f64()),
    },
    number!("counter", "gannet_requests_refused_total", "Requests that found no room.", |served, _| {
        counted(&served.metrics.refused)
    }),
];

fn counted(count: &AtomicU64) -> f64 {
    count.load(Ordering::Relaxed) as f64
}

/// All series of these models. Waits for what their engines say of their memory.
pub(crate) fn of_models(models: &[Arc<Served>]) -> String {
    let mut text = String::new();
    let stats: Vec<EngineStats> = models.iter().map(|served| served.handle.stats()).collect();
    for Family { name, kind, help, write } in FAMILIES {
        text.push_str(&format!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
        for (served, stats) in models.iter().zip(&stats) {
            write(&mut Series { text: &mut text, name, model: &served.name }, served, stats);
        }
    }
    text.push_str(&format!(
        "# HELP {USED} Memory of the model that was touched, by class.\n# TYPE {USED} gauge\n"
    ));
    for served in models {
        for (class, bytes) in (served.facts.used_memory.0)() {
            let mut series = Series { text: &mut text, name: USED, model: &served.name };
            series.sample("", &[("class", class)], bytes as f64);
        }
    }
    if let Some(bytes) = resident_bytes() {
        text.push_str(&format!(
            "# HELP {RESIDENT} Memory of the process.\n# TYPE {RESIDENT} gauge\n{RESIDENT} {bytes}\n"
        ));
    }
    text
}

/// Memory of the process that is not elsewhere, where the system says.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok().map(|kibibytes: u64| kibibytes << 10)
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
