//! `--help` of every command, and what the parser says.

use crate::support::{gannet, golden};

#[test]
fn every_command_has_help_with_an_example_of_itself() {
    for command in [
        "run",
        "serve",
        "embed",
        "inspect",
        "bench",
        "pull",
        "models",
        "rm",
        "doctor",
        "eval",
        "eval logits",
        "eval perplexity",
        "eval compare",
    ] {
        let mut words: Vec<&str> = command.split(' ').collect();
        words.push("--help");
        let help = gannet(&words).succeeded();
        assert!(help.contains("Example"), "{command}: {help}");
        assert!(help.contains(&format!("gannet {command}")), "{command}: {help}");
    }
    assert!(gannet(&["--help"]).succeeded().contains("gannet run"));
    assert!(gannet(&["--version"]).succeeded().starts_with("gannet "));
}

#[test]
fn a_wrong_argument_says_what_was_expected() {
    let check =
        |words: &str, expected: &str| gannet(&words.split(' ').collect::<Vec<_>>()).failed(2, &[expected]);
    check("run", "<MODEL>");
    check("walk", "walk");
    check("run m p --temperature warm", "expected a finite number of at least 0");
    check("run m p --temperature -1", "expected a finite number of at least 0");
    check("run m p --top-p 0", "expected a number above 0 and up to 1");
    check("run m p --min-p 2", "expected a number from 0 (off) to 1");
    check("run m p --repetition-penalty 0", "expected a finite number above 0");
    check("run m p --logit-bias 5", "expected a token id, `=` and a finite number");
    check("run m p --threads 0", "expected a number of threads from 1");
    check("run m p --context 0", "expected a number of tokens from 1");
    check("run m p --max-tokens 0", "expected a number of tokens from 1");
    check("run m --ids 1,x", "`x` is no token id");
    check("run m p --backend gpu", "cpu, cuda, auto, reference");
    let without_subcommand = gannet(&["eval"]);
    assert_eq!(without_subcommand.code, Some(2));
    assert!(without_subcommand.stderr.contains("perplexity"), "{without_subcommand:?}");
}

#[test]
fn contradictory_flags_are_refused() {
    let check =
        |words: &str, expected: &[&str]| gannet(&words.split(' ').collect::<Vec<_>>()).failed(2, expected);
    check("run m p --ids 1", &["PROMPT", "--ids"]);
    check("run m p --raw --system s", &["--raw", "--system"]);
    check("run m --ids 1 --raw", &["--ids", "--raw"]);
    check("run m --json", &["--json needs a PROMPT or --ids"]);
    check("run m --raw", &["--raw needs a PROMPT"]);
    check("run m", &["needs a terminal", "- to read it from standard input"]);
    check("embed m", &["nothing to embed"]);
    check("embed m t --file f", &["TEXT", "--file"]);
    check("run m p --force-context", &["--context"]);
    check("run m p --top-p 0.9", &["--top-p", "--temperature above 0"]);
    check("run m p --temperature 0 --top-k 5", &["--top-k", "--temperature above 0"]);
    check("run m p --backend reference --threads 2", &["--threads", "reference"]);
    check("run m p --backend reference --activations f32", &["--activations", "reference"]);
    check("eval compare m --backend cpu --against cpu", &["expected two different backends"]);
}

#[test]
fn limits_that_can_not_be_kept_are_errors_before_the_start() {
    let model = golden("llama");
    let check = |words: &str, code: i32, expected: &[&str]| {
        let words: Vec<&str> =
            words.split(' ').map(|word| if word == "m" { &*model } else { word }).collect();
        gannet(&words).failed(code, expected);
    };
    // Nothing at all.
    for (command, flags) in [
        ("run m p", &["--context", "--memory", "--max-tokens", "--threads"][..]),
        (
            "serve m",
            &[
                "--context",
                "--memory",
                "--max-sequences",
                "--step-tokens",
                "--max-loaded-models",
                "--threads",
            ],
        ),
        ("bench m", &["--streams", "--repeat", "--threads"]),
        (
            "bench m --serve-sim",
            &["--requests", "--prompt-tokens", "--answer-tokens", "--step-tokens", "--long-prompt"],
        ),
        ("inspect m", &["--context", "--max-sequences"]),
        ("embed m t", &["--context"]),
    ] {
        for flag in flags {
            check(&format!("{command} {flag} 0"), 2, &[flag, "expected"]);
            check(&format!("{command} {flag}=-1"), 2, &[flag]);
        }
    }
    // Limits against each other.
    check("run m p --min-tokens 9 --max-tokens 8", 2, &["--min-tokens 9", "--max-tokens", "8"]);
    check(
        "serve m --step-tokens 4 --max-sequences 5",
        2,
        &["--step-tokens 4", "5 sequences", "--max-sequences"],
    );
    check("serve m --step-tokens 4", 2, &["--step-tokens 4", "8 sequences"]);
    check(
        "bench m --serve-sim --step-tokens 2 --streams 3",
        2,
        &["--step-tokens 2", "3 sequences", "--streams"],
    );
    check("bench m --loop --streams 1025", 2, &["--loop", "1024"]);
    // Limits against the model, its memory and the machine's; of each model of a server, asked for or not.
    let too_long = &["513", "512"];
    check("run m --ids 1 --context 513", 1, too_long);
    check("serve m --context 513", 1, too_long);
    check("serve m --memory 1M", 1, &["not enough memory", "1048576"]);
    check("serve m --memory 1000TiB", 1, &["1099511627776000", "available"]);
    check("serve m --model b=absent.gguf", 1, &["absent.gguf", "doesn't exist"]);
}

#[test]
fn a_servers_limits_have_their_ranges() {
    let model = golden("llama");
    let document = include_str!("../../../../docs/server.md");
    let flags =
        document.lines().filter(|line| line.starts_with("| ") && line.ends_with("` |")).filter_map(|line| {
            line.trim_end_matches("` |").rsplit_once("`--").map(|(_, flag)| format!("--{flag}"))
        });
    let flags: Vec<String> = flags.collect();
    assert!(flags.len() > 40, "{flags:?}");
    for flag in flags {
        for value in ["-1", "nothing", "99999999999999999999"] {
            gannet(&["serve", &model, &format!("{flag}={value}")]).failed(2, &[&flag, "expected"]);
        }
    }
}
