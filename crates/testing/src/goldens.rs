//! The committed tiny checkpoints and what the reference implementation computes from them.
//!
//! `goldens/index.json` lists pairs of a checkpoint and a golden; the same functions hold every backend against
//! all of them. Each check names every golden that fails, not the first alone.

use crate::sequence::Sequence;
use gannet_formats::Checkpoint;
use gannet_model::{ProgramOptions, recognise};
use gannet_ops::{Backend, BatchLimits, KvFormat, Op, Program, Rollback, TokenId, WeightSource, fuse};
use safetensors::SafeTensors;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// How far a logit may be from the reference's, as a part of the position's largest.
pub const LOGIT_TOLERANCE: f32 = 1e-4;

/// The mean divergence of distributions that half precision may cause, in nats.
pub const DIVERGENCE_TOLERANCE: f64 = 1e-3;

/// The least cosine of the logits of a position with the reference's that half precision may cause.
pub const COSINE_LEAST: f64 = 0.999;

/// One checkpoint with one prompt and its results.
pub struct Golden {
    /// The checkpoint and the golden, for messages.
    pub name: String,
    /// The checkpoint's config, which the GGUF twins of a folder share.
    pub case: String,
    /// The checkpoint: a folder or a GGUF file.
    pub model: PathBuf,
    /// The prompt.
    pub ids: Vec<TokenId>,
    /// `[positions][vocabulary]`, of the last positions of the prompt, mostly all; of none where the model pools.
    pub logits: Vec<Vec<f32>>,
    /// The sequence's vector, where the model pools.
    pub pooled: Option<Vec<f32>>,
    /// What follows the prompt; absent where the model's ropes follow the running length.
    pub greedy: Option<Vec<TokenId>>,
}

/// All goldens of short prompts that are committed.
pub fn all() -> Vec<Golden> {
    read_all(|entry| entry["long"] != true)
}

/// The goldens of prompts of thousands of tokens, with the logits of the last positions alone.
pub fn long() -> Vec<Golden> {
    read_all(|entry| entry["long"] == true)
}

fn read_all(is_wanted: impl Fn(&Value) -> bool) -> Vec<Golden> {
    let folder = folder();
    let index = std::fs::read(folder.join("index.json")).expect("goldens/index.json is committed");
    let index: Vec<Value> = serde_json::from_slice(&index).expect("goldens/index.json is a list");
    assert!(!index.is_empty(), "goldens/index.json lists no golden");
    index.iter().filter(|entry| is_wanted(entry)).map(|entry| read(&folder, entry)).collect()
}

/// Where the goldens are: in the repository, or where a variable says, for tests that run on another machine.
pub fn folder() -> PathBuf {
    let carried = std::env::var_os("GANNET_GOLDENS").map(PathBuf::from);
    carried.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens"))
}

/// The logits of every position, from one step over the whole prompt, are the reference's within tolerance.
pub fn check_logits(backend: &dyn Backend) {
    check_logits_of(backend, &all());
}

/// As [`check_logits`], of some goldens.
pub fn check_logits_of(backend: &dyn Backend, goldens: &[Golden]) {
    check_each(goldens, |golden| {
        let mut sequence = open(backend, golden, golden.ids.len());
        if let Some(expected) = &golden.pooled {
            return check_close("the pooled vector", &sequence.pooled(&golden.ids), expected);
        }
        check_positions(golden, &sequence.last_logits(&golden.ids, golden.logits.len()))
    });
}

/// The logits of the last positions of long prompts, read in steps of 512, are the reference's within tolerance.
pub fn check_long_logits(backend: &dyn Backend) {
    const STEP: usize = 512;
    check_each(&long(), |golden| {
        let mut sequence = open(backend, golden, golden.ids.len());
        let (before, last) = golden.ids.split_at(golden.ids.len() - golden.logits.len());
        before.chunks(STEP).for_each(|ids| drop(sequence.last_logits(ids, 1)));
        check_positions(golden, &sequence.logits(last))
    });
}

/// The distributions of every position are the reference's as closely as half precision allows: a mean divergence of at
/// most [`DIVERGENCE_TOLERANCE`], and logits of nearly the same direction. Of a mixture of experts this holds for the half of the
/// positions that are nearest: where two experts' scores nearly tie, rounding chooses the other one, which is another
/// function and no small error of the same.
pub fn check_distributions_of(backend: &dyn Backend, goldens: &[Golden]) {
    check_each(goldens, |golden| {
        let found = open(backend, golden, golden.ids.len()).last_logits(&golden.ids, golden.logits.len());
        let is_mixture = with_program((golden, KvFormat::F32), |program, _| {
            program.nodes.iter().any(|node| matches!(node.op, Op::RouteExperts(_)))
        });
        let counted = if is_mixture { found.len().div_ceil(2) } else { found.len() };
        let pairs = || found.iter().zip(&golden.logits);
        let mut divergences: Vec<f64> =
            pairs().map(|(found, expected)| divergence(found, expected)).collect();
        divergences.sort_by(f64::total_cmp);
        let mean = divergences[..counted].iter().sum::<f64>() / counted as f64;
        if !mean.is_finite() || mean > DIVERGENCE_TOLERANCE {
            return Err(format!("the mean divergence is {mean:.2e}"));
        }
        let mut cosines: Vec<f64> = pairs().map(|(found, expected)| cosine(found, expected)).collect();
        cosines.sort_by(|a, b| b.total_cmp(a));
        let least = cosines[counted - 1];
        if least >= COSINE_LEAST { Ok(()) } else { Err(format!("a position's cosine is {least:.5}")) }
    });
}

/// The distributions of every position over keys and values in int8 are nearly those of another backend over the same: in one
/// step, and in steps of 7 that have the bits of one. Of what is compared, a mean divergence of at most `most`.
pub fn check_int8_equals_that_of(backend: &dyn Backend, other: &dyn Backend, goldens: &[Golden], most: f64) {
    check_each(goldens, |golden| {
        let rows = |backend: &dyn Backend, step: usize| -> Vec<Vec<f32>> {
            let (ids, format) = (&golden.ids, KvFormat::Int8);
            let mut sequence = with_program((golden, format), |program, weights| {
                Sequence::new(backend, program, weights, golden.ids.len())
            });
            ids.chunks(step).flat_map(|ids| sequence.logits(ids)).collect()
        };
        let (found, expected) = (rows(backend, golden.ids.len()), rows(other, golden.ids.len()));
        check_bits(&found, &rows(backend, 7), "in steps of 7")?;
        let pairs = found.iter().zip(&expected);
        let mean =
            pairs.map(|(found, expected)| divergence(found, expected)).sum::<f64>() / found.len() as f64;
        if mean.abs() <= most { Ok(()) } else { Err(format!("the mean divergence is {mean:.2e}")) }
    });
}

/// Why a backend doesn't take a golden's model; `None` where it does.
pub fn refusal(backend: &dyn Backend, golden: &Golden) -> Option<String> {
    with_program((golden, KvFormat::F32), |program, weights| {
        let program = fuse(program, backend.fusions());
        let limits = BatchLimits { rows: 1, sequences: 1, outputs: 1, context: golden.ids.len() };
        let uploaded = backend.upload(weights, &program.weights);
        let compiled = uploaded.and_then(|uploaded| backend.compile(&program, &uploaded, &limits));
        compiled.err().map(|error| error.to_string())
    })
}

/// The divergence of the expected distribution from the one found, in nats.
fn divergence(found: &[f32], expected: &[f32]) -> f64 {
    let log_probabilities = |logits: &[f32]| -> Vec<f64> {
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = logits.iter().map(|x| f64::from(x - max).exp()).sum();
        logits.iter().map(|x| f64::from(x - max) - sum.ln()).collect()
    };
    let (found, expected) = (log_probabilities(found), log_probabilities(expected));
    expected.iter().zip(&found).map(|(expected, found)| expected.exp() * (expected - found)).sum()
}

fn cosine(found: &[f32], expected: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    dot(found, expected) / (dot(found, found) * dot(expected, expected)).sqrt()
}

fn check_positions(golden: &Golden, found: &[Vec<f32>]) -> Result<(), String> {
    let first = golden.ids.len() - golden.logits.len();
    let mut pairs = found.iter().zip(&golden.logits).enumerate();
    pairs.try_for_each(|(place, (found, expected))| {
        check_close(&format!("position {}", first + place), found, expected)
    })
}

fn check_close(what: &str, found: &[f32], expected: &[f32]) -> Result<(), String> {
    let error = relative_error(found, expected);
    if error <= LOGIT_TOLERANCE {
        Ok(())
    } else {
        Err(format!("{what} is off by {error:.2e} of its largest number"))
    }
}

/// The greedy continuation is the reference's, token for token.
pub fn check_greedy(backend: &dyn Backend) {
    check_greedy_of(backend, &all());
}

/// As [`check_greedy`], of some goldens.
pub fn check_greedy_of(backend: &dyn Backend, goldens: &[Golden]) {
    check_each(goldens, |golden| {
        let Some(expected) = &golden.greedy else { return Ok(()) };
        let mut sequence = open(backend, golden, golden.ids.len() + expected.len());
        let mut fed = golden.ids.clone();
        for (place, &expected) in expected.iter().enumerate() {
            let found = sequence.next_greedily(&fed);
            if found != expected {
                return Err(format!("token {place} is {}, expected {}", found.0, expected.0));
            }
            fed = vec![found];
        }
        Ok(())
    });
}

/// The logits of every position are the same bits for a prompt in one step, in chunks, and token by token.
pub fn check_chunked_equals_whole(backend: &dyn Backend) {
    check_chunked_equals_whole_of(backend, &all());
}

/// As [`check_chunked_equals_whole`], of some goldens.
pub fn check_chunked_equals_whole_of(backend: &dyn Backend, goldens: &[Golden]) {
    check_each(goldens, |golden| {
        if golden.pooled.is_some() {
            return Ok(());
        }
        let whole = open(backend, golden, golden.ids.len()).logits(&golden.ids);
        for chunk in CHUNKS.into_iter().filter(|chunk| *chunk < golden.ids.len()) {
            let mut sequence = open(backend, golden, golden.ids.len());
            let chunks = golden.ids.chunks(chunk);
            let chunked: Vec<Vec<f32>> = chunks.flat_map(|ids| sequence.logits(ids)).collect();
            check_bits(&whole, &chunked, &format!("in chunks of {chunk}"))?;
        }
        Ok(())
    });
}

/// The chunks that prompts are cut into: single tokens, few, a page, and a page and one.
const CHUNKS: [usize; 4] = [1, 7, 64, 65];

/// A model with recurrent state that goes on from a checkpoint gives the bits of one that never stopped, whichever
/// token the checkpoint was taken after.
pub fn check_resumed_equals_uninterrupted(backend: &dyn Backend) {
    check_resumed_equals_uninterrupted_of(backend, &all());
}

/// As [`check_resumed_equals_uninterrupted`], of some goldens.
pub fn check_resumed_equals_uninterrupted_of(backend: &dyn Backend, goldens: &[Golden]) {
    let mut recurrent = 0;
    check_each(goldens, |golden| {
        let mut sequence = open(backend, golden, golden.ids.len());
        if !sequence.is_recurrent() {
            return Ok(());
        }
        recurrent += 1;
        let (mut checkpoints, mut logits) = (vec![sequence.checkpoint()], Vec::new());
        for id in &golden.ids {
            logits.extend(sequence.logits(&[*id]));
            checkpoints.push(sequence.checkpoint());
        }
        for (tokens, checkpoint) in checkpoints.into_iter().enumerate().take(golden.ids.len()) {
            sequence.restore(checkpoint);
            let resumed = sequence.logits(&golden.ids[tokens..]);
            check_bits(&logits[tokens..], &resumed, &format!("resumed after {tokens} tokens"))?;
        }
        Ok(())
    });
    assert!(recurrent > 0, "no golden has recurrent state");
}

fn check_bits(whole: &[Vec<f32>], other: &[Vec<f32>], how: &str) -> Result<(), String> {
    let differs = |position: &usize| bits(&whole[*position]) != bits(&other[*position]);
    match (0..whole.len()).find(differs) {
        Some(position) => Err(format!("{how}, row {position} has other bits than in one go")),
        None => Ok(()),
    }
}

fn check_each(goldens: &[Golden], mut check: impl FnMut(&Golden) -> Result<(), String>) {
    assert!(!goldens.is_empty(), "there is no golden to check");
    let failures: Vec<String> = goldens
        .iter()
        .filter_map(|golden| check(golden).err().map(|error| format!("{}: {error}", golden.name)))
        .collect();
    assert!(failures.is_empty(), "{} goldens fail:\n{}", failures.len(), failures.join("\n"));
}

/// A new sequence over the golden's model, with ropes for its prompt and state without loss.
fn open(backend: &dyn Backend, golden: &Golden, context: usize) -> Sequence {
    with_program((golden, KvFormat::F32), |program, weights| {
        Sequence::new(backend, program, weights, context)
    })
}

/// Calls `use_it` with the program and the weights of a golden's model, over state in this format.
fn with_program<R>(
    (golden, kv_format): (&Golden, KvFormat),
    use_it: impl FnOnce(&Program, &dyn WeightSource) -> R,
) -> R {
    let named = |error: &dyn std::fmt::Display| -> ! { panic!("{}: {error}", golden.name) };
    let checkpoint = Checkpoint::open(&golden.model).unwrap_or_else(|error| named(&error));
    let model = recognise(&checkpoint).unwrap_or_else(|error| named(&error));
    let options = ProgramOptions { context: golden.ids.len(), kv_format, rollback: Rollback::Candidates };
    let program = model.program(&options).unwrap_or_else(|error| named(&error));
    let weights = model.weights(&checkpoint).unwrap_or_else(|error| named(&error));
    use_it(&program, &weights)
}

/// The largest difference as a part of the largest expected magnitude; NaN where anything is NaN.
fn relative_error(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len(), "as many logits as the vocabulary has entries");
    let difference = largest(found.iter().zip(expected).map(|(found, expected)| found - expected));
    difference / largest(expected.iter().copied())
}

/// The largest magnitude; NaN where there is one.
fn largest(values: impl Iterator<Item = f32>) -> f32 {
    values.map(f32::abs).fold(0.0, |most, value| if most.is_nan() || value <= most { most } else { value })
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn read(folder: &Path, entry: &Value) -> Golden {
    let text = |key: &str| entry[key].as_str().expect("an entry of the index has strings").to_owned();
    let (model, golden) = (text("model"), text("golden"));
    let bytes = std::fs::read(folder.join(&golden)).unwrap_or_else(|error| panic!("{golden}: {error}"));
    let tensors = SafeTensors::deserialize(&bytes).unwrap_or_else(|error| panic!("{golden}: {error}"));
    let ids = |name: &str| -> Option<Vec<TokenId>> {
        let words = words(tensors.tensor(name).ok()?.data());
        Some(words.map(|word| TokenId(u32::from_le_bytes(word))).collect())
    };
    let rows = |name: &str| -> Vec<Vec<f32>> {
        let Ok(tensor) = tensors.tensor(name) else { return Vec::new() };
        let width = tensor.shape().last().copied().unwrap_or(1);
        let values: Vec<f32> = words(tensor.data()).map(f32::from_le_bytes).collect();
        values.chunks(width).map(<[f32]>::to_vec).collect()
    };
    Golden {
        name: format!("{model} ({golden})"),
        case: text("name"),
        model: folder.join(model),
        ids: ids("ids").expect("a golden has ids"),
        logits: rows("logits"),
        pooled: rows("pooled").pop(),
        greedy: ids("greedy"),
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = [u8; 4]> + '_ {
    bytes.chunks_exact(4).map(|word| *word.first_chunk().expect("chunks are of 4 bytes"))
}
