//! Events of prefix caches as a router in Python hears them, with the real engine behind a server.
//!
//! The variable `GANNET_KV_PYTHON` names a Python with the packages of `requirements.txt`; `cargo xtask ci` makes one.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

#[path = "../http/support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the tests over HTTP use the rest")]
mod support;

use gannet_server::KvEvents;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;
use support::Server;

/// Tokens of a page.
const PAGE: usize = 64;

/// How long a line of the subscriber may take: far longer than any takes that still comes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A subscriber, which is ended when this is dropped.
struct Subscriber {
    child: Child,
    lines: Receiver<String>,
}

impl Subscriber {
    fn to(endpoint: &str) -> Self {
        let python = std::env::var("GANNET_KV_PYTHON")
            .expect("GANNET_KV_PYTHON names a Python with pyzmq and msgspec");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kv_events/subscriber.py");
        let mut child = Command::new(python)
            .arg(script)
            .arg(endpoint)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let printed = BufReader::new(child.stdout.take().unwrap()).lines();
        let (sender, lines) = channel();
        thread::spawn(move || printed.map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let subscriber = Self { child, lines };
        assert_eq!(subscriber.line(), "listening");
        subscriber
    }

    /// Has the messages from a number on sent again.
    fn replay(&self, endpoint: &str, first: u64) -> Vec<Value> {
        let mut input = self.child.stdin.as_ref().unwrap();
        writeln!(input, "{endpoint} {first}").unwrap();
        serde_json::from_str(&self.line_of("again ")).unwrap()
    }

    /// What follows a mark on the next line that has it.
    #[track_caller]
    fn line_of(&self, mark: &str) -> String {
        loop {
            if let Some(rest) = self.line().strip_prefix(mark) {
                return rest.to_owned();
            }
        }
    }

    #[track_caller]
    fn line(&self) -> String {
        let line = self.lines.recv_timeout(PATIENCE);
        line.unwrap_or_else(|error| panic!("the subscriber hears nothing, or has ended: {error}"))
    }

    /// Events up to one that is wanted, each with its batch.
    #[track_caller]
    fn until(&self, is_last: impl Fn(&Value) -> bool) -> Vec<(Value, Value)> {
        let mut heard = Vec::new();
        loop {
            let batch: Value = serde_json::from_str(&self.line()).unwrap();
            for event in batch["events"].as_array().unwrap().clone() {
                let ends = is_last(&event);
                heard.push((batch.clone(), event));
                if ends {
                    return heard;
                }
            }
        }
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn prompt(first: usize, tokens: usize) -> Value {
    let ids: Vec<usize> = (0..tokens).map(|place| 1 + (first + place * 7) % 200).collect();
    json!({"model": "toy", "prompt": ids, "max_tokens": 1, "temperature": 0})
}

/// Asks for what fills the cache and overflows it: tenants apart, then one prompt, one that branches off, the first again,
/// and the last one, by which it is told that all came.
fn ask_for_all(server: &Server) {
    for round in 0..12 {
        let mut salted = prompt(5, 3 * PAGE);
        salted["cache_salt"] = json!(format!("tenant {round}"));
        server.ask("/v1/completions", &salted);
    }
    let known = prompt(11, 2 * PAGE + 5);
    let mut branch = known.clone();
    branch["prompt"][PAGE + 3] = json!(3);
    for body in [&known, &branch, &known, &prompt(99, PAGE + 1)] {
        server.ask("/v1/completions", body);
    }
}

/// Asks for prompts that nobody knows until an event was heard.
fn ask_until(server: &Server, is_heard: &AtomicBool) {
    for round in 0.. {
        if is_heard.load(Ordering::Relaxed) {
            return;
        }
        let mut salted = prompt(7, PAGE);
        salted["cache_salt"] = json!(format!("before {round}"));
        server.ask("/v1/completions", &salted);
    }
}

/// The events of a kind.
fn of_kind<'a>(heard: &'a [(Value, Value)], kind: &str) -> Vec<&'a Value> {
    heard.iter().map(|(_, event)| event).filter(|event| event["type"] == kind).collect()
}

/// What stands around events: topic, number, time, rank.
fn check_batches(heard: &[(Value, Value)]) {
    let (batch, _) = &heard[0];
    assert_eq!((&batch["topic"], &batch["rank"]), (&json!("kv@10.1.2.3:8000@toy"), &json!(0)));
    assert_eq!(batch["bytes"], 8);
    assert!(batch["ts"].as_f64().unwrap() > 1.7e9);
    let numbers: Vec<u64> = heard.iter().map(|(batch, _)| batch["number"].as_u64().unwrap()).collect();
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] || pair[1] == pair[0] + 1), "{numbers:?}");
}

/// Pages that are known: each once, behind the page before it, tenants apart.
fn check_stored(stored: &[&Value]) {
    let known = prompt(11, 2 * PAGE)["prompt"].clone();
    let whole: Vec<_> = stored.iter().filter(|event| event["token_ids"] == known).collect();
    assert_eq!(whole.len(), 1, "{stored:?}");
    let hashes = whole[0]["block_hashes"].as_array().unwrap();
    assert_eq!((hashes.len(), &whole[0]["parent_block_hash"]), (2, &Value::Null));
    assert_eq!((&whole[0]["block_size"], &whole[0]["extra_keys"]), (&json!(PAGE), &Value::Null));
    let branch: Vec<_> = stored.iter().filter(|event| event["parent_block_hash"] == hashes[0]).collect();
    assert_eq!(branch.len(), 1, "{stored:?}");
    assert_ne!(branch[0]["block_hashes"][0], hashes[1]);
    let mut salts: Vec<&Value> =
        stored.iter().map(|event| &event["extra_keys"][0][0]).filter(|salt| salt.is_string()).collect();
    // A tenant's pages may be told of in several events, one after the other, where its prompt was computed in chunks.
    salts.dedup();
    let apart: std::collections::HashSet<_> = salts.iter().map(|salt| salt.as_str()).collect();
    assert!(salts.len() > 1 && apart.len() == salts.len(), "{salts:?}");
}

#[test]
fn a_router_hears_what_a_replica_knows_and_forgets() {
    let [endpoint, again] = [(); 2].map(|()| format!("tcp://127.0.0.1:{}", free_port()));
    let mut server = Server::with(|setup| {
        let replica = "10.1.2.3:8000".to_owned();
        let (endpoint, replay) = (endpoint.clone(), Some(again.clone()));
        setup.config.kv_events = Some(KvEvents { endpoint, replica, replay });
        setup.sequences = 1;
    });
    // The model is loaded, and its cache followed, when it is first asked for. A subscription reaches the publisher a little
    // later than its connection stands, so that the first event that is heard says that all others will be.
    let subscriber = Subscriber::to(&endpoint);
    let mut heard = Vec::new();
    let is_heard = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| ask_until(&server, &is_heard));
        let first = subscriber.lines.recv_timeout(PATIENCE);
        is_heard.store(true, Ordering::Relaxed);
        first.expect("a first event is heard");
    });
    thread::scope(|scope| {
        let asking = scope.spawn(|| ask_for_all(&server));
        let last = prompt(99, PAGE)["prompt"].clone();
        heard = subscriber.until(|event| event["token_ids"] == last);
        asking.join().unwrap();
    });
    check_batches(&heard);
    check_stored(&of_kind(&heard, "BlockStored"));
    // The toy's memory holds fewer pages than all tenants have, so that those who came first were forgotten.
    assert!(!of_kind(&heard, "BlockRemoved").is_empty());
    // What was heard is sent again, from the number that is asked for on.
    let numbers: Vec<u64> = heard.iter().map(|(batch, _)| batch["number"].as_u64().unwrap()).collect();
    let (first, last) = (numbers[0], numbers[numbers.len() - 1]);
    let replayed = subscriber.replay(&again, first);
    assert_eq!(replayed[0], heard[0].0);
    assert!(replayed.iter().any(|batch| batch["number"] == last));
    assert_eq!(subscriber.replay(&again, last)[0]["number"], last);
    assert_eq!(subscriber.replay(&again, last + 1000), [json!(null); 0]);
    server.stop();
    let end = subscriber.until(|event| event["type"] == "AllBlocksCleared");
    assert_eq!(end.last().unwrap().0["topic"], "kv@10.1.2.3:8000@toy");
}
