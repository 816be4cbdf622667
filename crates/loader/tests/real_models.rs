//! Real weights and real tokenizers against what Hugging Face's libraries make of the same files.
//!
//! Needs the two test models, which `cargo xtask models` gets. `goldens/real.py` and `goldens/text.py` made the
//! expected values.

use gannet_backend_cpu::{ActivationFormat, CpuBackend, CpuOptions};
use gannet_engine::budget::{self, Wish};
use gannet_engine::evaluate;
use gannet_loader::{LoadOptions, Loaded, load, open};
use gannet_model::ProgramOptions;
use gannet_ops::sampling::logprobs;
use gannet_ops::{KvFormat, Rollback, TokenId};
use gannet_text::tokenizer::Specials;
use safetensors::SafeTensors;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Tokens by which codes are compared with exact products; a long run takes all of the text.
const CODES_TOKENS: usize = 768;
/// How far the perplexity by codes may be from the exact one, as a part of it.
const PERPLEXITY_TOLERANCE: f64 = 0.005;
/// How far a distribution by codes may be from the exact one on the mean, in nats.
const DIVERGENCE_TOLERANCE: f64 = 0.002;
/// The margin between the two likeliest tokens, in nats, above which the order must agree.
const CLEAR_MARGIN: f32 = 0.25;
/// The largest mean difference of the five likeliest log-probabilities, in nats.
const LOGPROB_TOLERANCE: f64 = 0.05;
/// Rows of a step: 64 rows of 262,144 scores are 67 MB.
const STEP_ROWS: usize = 64;
/// Likeliest tokens that the reference lists for each index.
const TOP: usize = 5;

struct Case {
    file: &'static str,
    golden: &'static str,
}

const SMOLLM2: Case = Case { file: "SmolLM2-135M-Instruct.Q4_1.gguf", golden: "smollm2" };
const GEMMA3: Case = Case { file: "gemma-3-270m-q4_k_m.gguf", golden: "gemma3" };

impl Case {
    fn model(&self) -> PathBuf {
        let path = root().join("models").join(self.file);
        assert!(path.exists(), "{} is missing: `cargo xtask models` gets it", path.display());
        path
    }

    fn golden(&self, ending: &str) -> Vec<u8> {
        let path = root().join("goldens/real").join(format!("{}.{ending}", self.golden));
        std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn smollm2_tokenises_as_its_reference() {
    check_tokens(&SMOLLM2);
}

#[test]
fn gemma3_tokenises_as_its_reference() {
    check_tokens(&GEMMA3);
}

#[test]
fn int8_keeps_nearly_twice_the_tokens_in_the_same_memory() {
    let wish = Wish { context: 8192, step_rows: 512, depth: 1, sequences: 1, snapshots: 0, drafts: 0 };
    for case in [&SMOLLM2, &GEMMA3] {
        let model = open(&case.model()).expect("the model is understood").model;
        let layout = |kv_format| {
            let options = ProgramOptions { context: wish.context, kv_format, rollback: Rollback::Replay };
            model.program(&options).expect("the program can be made").state
        };
        let (halves, codes) = (layout(KvFormat::F16), layout(KvFormat::Int8));
        let bytes = budget::bytes(&halves, &budget::for_wish(&halves, &wish)).total();
        let tokens = budget::largest_context(&codes, &Wish { context: 10 * wish.context, ..wish }, bytes);
        println!("{}: {tokens} tokens in the {bytes} bytes of {}", case.file, wish.context);
        assert!(tokens as f64 >= 1.85 * wish.context as f64, "{}: {tokens} tokens", case.file);
    }
}

#[test]
fn smollm2_predicts_as_transformers() {
    check_predictions(&SMOLLM2);
}

#[test]
fn gemma3_predicts_as_transformers() {
    check_predictions(&GEMMA3);
}

#[test]
fn smollm2_predicts_by_codes_as_by_exact_products() {
    check_codes(&SMOLLM2);
}

#[test]
fn gemma3_predicts_by_codes_as_by_exact_products() {
    check_codes(&GEMMA3);
}

/// The perplexity of rows that are made codes is that of exact products, and the distributions are close.
fn check_codes(case: &Case) {
    let ids = Reference::read(&case.golden("reference.safetensors")).ids;
    let tokens = if std::env::var_os("GANNET_LONG_RUN").is_some() { ids.len() - 1 } else { CODES_TOKENS };
    let scores = |activations| {
        let mut all: Vec<Vec<f32>> = Vec::new();
        let mut loaded = load_on_cpu(case, tokens, activations);
        evaluate(&mut loaded.runner, &ids[..tokens], 0, |_, scores| all.push(log_softmax(scores)))
            .expect("the text fits");
        all
    };
    let (exact, codes) = (scores(ActivationFormat::Float32), scores(ActivationFormat::Int8));
    assert_eq!((exact.len(), codes.len()), (tokens, tokens));
    let mean = |sum: f64| sum / tokens as f64;
    let loss = |all: &[Vec<f32>]| {
        let of = |(index, row): (usize, &Vec<f32>)| -f64::from(row[ids[index + 1].0 as usize]);
        mean(all.iter().enumerate().map(of).sum())
    };
    let (perplexity, expected) = (loss(&codes).exp(), loss(&exact).exp());
    let divergence = mean(exact.iter().zip(&codes).map(|(exact, codes)| divergence(exact, codes)).sum());
    let change = (perplexity / expected - 1.0).abs();
    println!(
        "{}: perplexity {perplexity:.5} by codes, {expected:.5} exact; divergence {divergence:.6} nats",
        case.golden
    );
    assert!(change < PERPLEXITY_TOLERANCE, "perplexity {perplexity} instead of {expected}");
    assert!(divergence < DIVERGENCE_TOLERANCE, "mean divergence {divergence} nats");
    assert!(exact != codes, "codes were used");
}

fn log_softmax(scores: &[f32]) -> Vec<f32> {
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = scores.iter().map(|score| f64::from(score - largest).exp()).sum();
    scores.iter().map(|score| score - largest - sum.ln() as f32).collect()
}

/// The Kullback-Leibler divergence of `other` from `exact`, in nats.
fn divergence(exact: &[f32], other: &[f32]) -> f64 {
    let term = |(p, q): (&f32, &f32)| f64::from(*p).exp() * f64::from(p - q);
    exact.iter().zip(other).map(term).sum()
}

fn check_tokens(case: &Case) {
    let text = open(&case.model()).and_then(|opened| opened.text).expect("the model has a tokenizer");
    let golden: Value = serde_json::from_slice(&case.golden("tokens.json")).expect("the golden is JSON");
    let cases = golden["cases"].as_array().expect("the golden has cases");
    assert!(cases.len() >= 500, "{} cases", cases.len());
    let mut wrong = Vec::new();
    for entry in cases {
        let input = entry["text"].as_str().expect("a case has a text");
        for (key, specials) in [("ids", Specials::Parse), ("as_text", Specials::AsText)] {
            let Some(expected) = entry.get(key) else { continue };
            let found = text.tokenizer.encode(input, specials).expect("any text can be encoded");
            if Value::from(found.clone()) != *expected {
                wrong.push(format!("{input:?} as {key}: {found:?}, expected {expected}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

/// What the reference computed for one text.
struct Reference {
    ids: Vec<TokenId>,
    margin: Vec<f32>,
    /// `[index][TOP]`, likeliest first.
    top_ids: Vec<TokenId>,
    top_logprobs: Vec<f32>,
}

impl Reference {
    fn read(bytes: &[u8]) -> Self {
        let tensors = SafeTensors::deserialize(bytes).expect("the golden is a safetensors file");
        let words = |name: &str| -> Vec<[u8; 4]> {
            let data = tensors.tensor(name).expect("the golden has the tensor").data().to_vec();
            data.chunks_exact(4).map(|word| *word.first_chunk().expect("a word has four bytes")).collect()
        };
        let ids =
            |name: &str| words(name).into_iter().map(|word| TokenId(u32::from_le_bytes(word))).collect();
        let floats = |name: &str| words(name).into_iter().map(f32::from_le_bytes).collect();
        Self {
            ids: ids("ids"),
            margin: floats("margin"),
            top_ids: ids("top_ids"),
            top_logprobs: floats("top_logprobs"),
        }
    }
}

fn check_predictions(case: &Case) {
    let reference = Reference::read(&case.golden("reference.safetensors"));
    let rows = reference.margin.len();
    assert_eq!(rows, 2000);
    let mut clear = 0;
    let mut wrong = Vec::new();
    let mut difference = 0.0;
    let mut loaded = load_on_cpu(case, rows, ActivationFormat::Float32);
    evaluate(&mut loaded.runner, &reference.ids[..rows], 0, |index, scores| {
        let (likeliest, mean) = compare(scores, index, &reference);
        difference += mean;
        if reference.margin[index] > CLEAR_MARGIN {
            clear += 1;
            if likeliest != reference.top_ids[index * TOP] {
                wrong.push(index);
            }
        }
    })
    .expect("the text fits");
    let mean = difference / rows as f64;
    println!("{}: {clear} of {rows} margins are clear, mean difference {mean:.5} nats", case.golden);
    assert!(clear > rows / 2, "only {clear} of {rows} margins are clear");
    assert!(wrong.is_empty(), "the likeliest token differs at {wrong:?}");
    assert!(mean < LOGPROB_TOLERANCE, "mean difference {mean} nats");
}

/// The likeliest token, and the mean difference of the log-probabilities of the reference's likeliest ones, in nats.
fn compare(scores: &[f32], index: usize, reference: &Reference) -> (TokenId, f64) {
    let (likeliest, of_likeliest) = logprobs(scores, None, 1).top[0];
    let difference = |place: usize| {
        let token = reference.top_ids[place];
        let below_likeliest = scores[token.0 as usize] - scores[likeliest.0 as usize];
        f64::from((of_likeliest + below_likeliest - reference.top_logprobs[place]).abs())
    };
    let sum: f64 = (index * TOP..index * TOP + TOP).map(difference).sum();
    (likeliest, sum / TOP as f64)
}

fn load_on_cpu(case: &Case, context: usize, activations: ActivationFormat) -> Loaded {
    let options = CpuOptions { activations, ..CpuOptions::default() };
    let backend = CpuBackend::new(options).expect("the CPU is supported");
    let options =
        LoadOptions { context: Some(context), step_rows: Some(STEP_ROWS), ..LoadOptions::default() };
    load(&case.model(), &backend, &options, &|_| ()).expect("the model loads")
}
