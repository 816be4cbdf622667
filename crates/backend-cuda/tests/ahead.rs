//! Through the whole engine, with steps launched before the last one's tokens are known and without: every answer is the same, with its
//! log-probabilities and what is reused of it, for streams that run beside one another. On the simulated device, or on a card where
//! `GANNET_TEST_DEVICE` is `card`.

use gannet_engine::{EngineOptions, Event, Request, RequestId, Sink};
use gannet_loader::{LoadOptions, Running, load, start};
use gannet_ops::TokenId;
use gannet_ops::sampling::Sampling;
use gannet_testing::device::{Precision, device};
use gannet_testing::shares::Shares;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, mpsc};

const VOCABULARY: u32 = 128;
const ANSWER_TOKENS: u32 = 40;
const SEQUENCES: usize = 6;

/// The golden models whose kernels are all there: full attention, and layers with windows.
const MODELS: [&str; 2] = ["qwen3", "gemma3"];

/// Half of the vocabulary.
fn halves(hash: u32) -> Shares {
    Shares { vocabulary: VOCABULARY, share: 2, hash }
}

/// A token and the bits of its log-probabilities.
type Said = (u32, Vec<u32>);

/// What was heard of a request: its answer, and tokens of its prompt that were reused.
#[derive(Clone, Debug, Default, PartialEq)]
struct Heard {
    answer: Vec<Said>,
    reused: u32,
}

/// Hears one request, and leaves it where its answer ends in these tokens, as a stop string does.
struct Listener {
    stop: Vec<u32>,
    heard: Mutex<Heard>,
    ended: mpsc::Sender<Heard>,
}

impl Sink for Listener {
    fn deliver(&self, events: &mut Vec<(RequestId, Event)>) -> Vec<RequestId> {
        let mut heard = self.heard.lock().expect("no test panics here");
        let mut left = Vec::new();
        for (id, event) in events.drain(..) {
            match event {
                Event::Started { .. } | Event::Prefilled { .. } => {}
                Event::Token { token, logprobs } => {
                    let known: Vec<u32> = heard.answer.iter().map(|(token, _)| *token).collect();
                    // What comes after the stop is nobody's.
                    if !self.stop.is_empty() && known.ends_with(&self.stop) {
                        continue;
                    }
                    let logprobs = logprobs.expect("log-probabilities were asked for");
                    let bits = logprobs.sampled.into_iter().chain(logprobs.top.iter().map(|(_, p)| *p));
                    heard.answer.push((token.0, bits.map(f32::to_bits).collect()));
                    let known = [&known[..], &[token.0]].concat();
                    if !self.stop.is_empty() && known.ends_with(&self.stop) {
                        left.push(id);
                    }
                }
                Event::Finished { usage, .. } => {
                    heard.reused = usage.reused_tokens;
                    self.ended.send(heard.clone()).expect("the test waits for every answer");
                }
            }
        }
        left
    }
}

fn ids(seed: u32, length: u32) -> Vec<TokenId> {
    (0..length).map(|n| TokenId((seed * 89 + n * n * 7 + n * 13 + 3) % VOCABULARY)).collect()
}

/// Streams that differ in all that launching ahead has to respect, by name; one stops where `stop` says.
fn requests(stop: &[u32], ended: &HashMap<&'static str, mpsc::Sender<Heard>>) -> Vec<Request> {
    let drawn =
        Sampling { temperature: 0.9, top_k: 30, top_p: 0.95, repetition_penalty: 1.1, ..Sampling::greedy() };
    let hosts = Sampling { typical_p: 0.9, ..drawn.clone() };
    let request = |name: &'static str, seed: u32, length: u32| {
        let stop = if name == "stopped" { stop.to_vec() } else { Vec::new() };
        let listener = Listener { stop, heard: Mutex::default(), ended: ended[name].clone() };
        Request {
            logprobs: Some(3),
            seed: u64::from(seed),
            ..Request::greedy(ids(seed, length), ANSWER_TOKENS, Arc::new(listener))
        }
    };
    let (drawn, hosts) = (Arc::new(drawn), Arc::new(hosts));
    vec![
        request("stopped", 1, 70),
        request("greedy", 2, 9),
        Request { sampling: Arc::clone(&drawn), ..request("drawn", 3, 130) },
        Request { constraint: Some(Box::new(halves(5))), ..request("masked", 4, 33) },
        Request {
            constraint: Some(Box::new(halves(6))),
            sampling: drawn,
            ..request("masked and drawn", 5, 64)
        },
        Request { sampling: hosts, ..request("drawn by the host", 6, 20) },
    ]
}

const NAMES: [&str; SEQUENCES] =
    ["stopped", "greedy", "drawn", "masked", "masked and drawn", "drawn by the host"];

/// All answers with so many steps in flight, then that of a prompt which goes on where the stopped answer ended.
fn run(model: &Path, depth: usize, stop: &[u32]) -> (HashMap<&'static str, Heard>, Heard) {
    let options = LoadOptions { context: Some(256), sequences: Some(SEQUENCES), ..LoadOptions::default() };
    let backend = device(Precision::Stored);
    let loaded = load(model, &backend, &options, &|_| ()).expect("the golden loads");
    let options = EngineOptions { sequences: SEQUENCES, depth: Some(depth), ..EngineOptions::default() };
    let Running { handle, thread } = start(loaded.runner, options).expect("a thread can be had");
    let channels: HashMap<_, _> = NAMES.iter().map(|name| (*name, mpsc::channel())).collect();
    let senders = channels.iter().map(|(name, (ended, _))| (*name, ended.clone())).collect();
    for request in requests(stop, &senders) {
        handle.submit(request).expect("the request is valid");
    }
    let heard: HashMap<_, _> =
        channels.iter().map(|(name, (_, ended))| (*name, ended.recv().expect("every answer ends"))).collect();
    let stopped = heard["stopped"].answer.iter().map(|(token, _)| TokenId(*token));
    let prompt = [ids(1, 70), stopped.collect(), ids(9, 5)].concat();
    let (ended, next) = mpsc::channel();
    let listener = Listener { stop: Vec::new(), heard: Mutex::default(), ended };
    let request = Request { logprobs: Some(3), ..Request::greedy(prompt, 12, Arc::new(listener)) };
    handle.submit(request).expect("the request is valid");
    let next = next.recv().expect("the answer ends");
    drop(handle);
    thread.join().expect("the engine ends when its handle is dropped");
    (heard, next)
}

#[test]
fn answers_are_the_same_with_steps_launched_ahead_and_without() {
    for name in MODELS {
        let model: PathBuf = match std::env::var_os("GANNET_GOLDENS") {
            Some(folder) => Path::new(&folder).join(name),
            None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens").join(name),
        };
        let (free, _) = run(&model, 1, &[]);
        // Two tokens of the free answer: where they come first, the stream stops.
        let stop: Vec<u32> = free["stopped"].answer[20..22].iter().map(|(token, _)| *token).collect();
        let (alone, next_alone) = run(&model, 1, &stop);
        let stopped = alone["stopped"].answer.len();
        assert!((2..=22).contains(&stopped), "{name}: {stopped} tokens up to the stop");
        for depth in [2, 3] {
            let (ahead, next) = run(&model, depth, &stop);
            for of in NAMES {
                assert!(
                    ahead[of] == alone[of],
                    "{name}, {of}, {depth} steps: {:?}, one: {:?}",
                    ahead[of],
                    alone[of]
                );
            }
            assert!(
                next == next_alone,
                "{name}, what follows a stop, {depth} steps: {next:?}, one: {next_alone:?}"
            );
        }
    }
}
