//! Drafters are recognised, and their programs, built from their configs, give the numbers of others.
//!
//! The numbers of the first two are those of float64 programs that were checked against published implementations of
//! their layers; the third's are of `goldens/drafters.py`.

use crate::generated::{Generated, Written};
use gannet_model::{
    CHAIN_CAPTURE, CanonicalWeights, DraftPrograms, Drafter, DrafterKind, HIDDEN_CAPTURE, Model,
    ProgramOptions, recognise, recognise_drafter,
};
use gannet_ops::reference::ReferenceBackend;
use gannet_ops::sampling::{SampleRow, Sampling};
use gannet_ops::*;
use gannet_testing::goldens;
use serde_json::{Value, json};
use std::sync::Arc;

const PROMPT: [u32; 12] = [1, 5, 9, 2, 7, 11, 3, 8, 4, 6, 10, 12];
const HIDDEN: usize = 32;
const INNER: usize = 48;

pub(crate) const OPTIONS: ProgramOptions =
    ProgramOptions { context: 64, kv_format: KvFormat::F32, rollback: Rollback::Replay };

fn base() -> Value {
    json!({ "vocab_size": 64, "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": 4,
            "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "head_dim": 16,
            "max_position_embeddings": 64, "tie_word_embeddings": false, "rope_theta": 1e6 })
}

fn with(mut config: Value, other: Value) -> Value {
    config.as_object_mut().unwrap().extend(other.as_object().unwrap().clone());
    config
}

fn outside(file: &mut Generated) {
    file.tensor("model.embed_tokens.weight", &[64, HIDDEN]);
    file.tensor("model.norm.weight", &[HIDDEN]);
    file.tensor("lm_head.weight", &[64, HIDDEN]);
}

/// The dense target.
pub(crate) fn dense() -> Written {
    let config = with(base(), json!({ "architectures": ["Qwen3ForCausalLM"] }));
    let mut file = Generated::new(config, false);
    outside(&mut file);
    for layer in 0..4 {
        let scope = format!("model.layers.{layer}");
        file.attention(&scope, [HIDDEN, 64, 32, HIDDEN, 16]);
        file.rest_of_layer(&scope, HIDDEN, INNER);
    }
    file.write()
}

/// The hybrid target with a head that predicts further tokens.
fn hybrid() -> Written {
    let config = with(
        base(),
        json!({ "architectures": ["Qwen3_5ForCausalLM"], "head_dim": 32, "rope_theta": 1e7,
                "linear_num_key_heads": 2, "linear_num_value_heads": 6, "linear_key_head_dim": 8,
                "linear_value_head_dim": 8, "linear_conv_kernel_dim": 4 }),
    );
    let mut file = Generated::new(config, true);
    outside(&mut file);
    for layer in 0..4 {
        let scope = format!("model.layers.{layer}");
        file.rest_of_layer(&scope, HIDDEN, INNER);
        if layer == 3 {
            file.attention(&scope, [HIDDEN, 256, 64, HIDDEN, 32]);
            continue;
        }
        let delta: [(&str, &[usize]); 9] = [
            ("in_proj_qkv.weight", &[80, HIDDEN]),
            ("in_proj_z.weight", &[48, HIDDEN]),
            ("in_proj_b.weight", &[6, HIDDEN]),
            ("in_proj_a.weight", &[6, HIDDEN]),
            ("conv1d.weight", &[80, 1, 4]),
            ("A_log", &[6]),
            ("dt_bias", &[6]),
            ("norm.weight", &[8]),
            ("out_proj.weight", &[HIDDEN, 48]),
        ];
        delta.iter().for_each(|(name, shape)| file.tensor(&format!("{scope}.linear_attn.{name}"), shape));
    }
    file.attention("mtp.layers.0", [HIDDEN, 256, 64, HIDDEN, 32]);
    file.rest_of_layer("mtp.layers.0", HIDDEN, INNER);
    file.tensor("mtp.fc.weight", &[HIDDEN, 2 * HIDDEN]);
    for norm in ["pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"] {
        file.tensor(&format!("mtp.{norm}.weight"), &[HIDDEN]);
    }
    file.write()
}

/// A block drafter of two layers for the dense target.
pub(crate) fn block_drafter() -> Written {
    let config = with(
        base(),
        json!({ "architectures": ["DFlashDraftModel"], "num_hidden_layers": 2, "block_size": 4,
                "dflash_config": { "target_layer_ids": [0, 2], "mask_token_id": 63 } }),
    );
    let mut file = Generated::new(config, false);
    for layer in 0..2 {
        let scope = format!("layers.{layer}");
        file.attention(&scope, [HIDDEN, 64, 32, HIDDEN, 16]);
        file.rest_of_layer(&scope, HIDDEN, INNER);
    }
    file.tensor("fc.weight", &[HIDDEN, 2 * HIDDEN]);
    file.tensor("hidden_norm.weight", &[HIDDEN]);
    file.tensor("norm.weight", &[HIDDEN]);
    file.write()
}

/// A drafter over features, with a vocabulary of 16 tokens spread over the target's.
pub(crate) fn feature_drafter() -> Written {
    let config = with(
        base(),
        json!({ "architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1, "draft_vocab_size": 16 }),
    );
    let mut file = Generated::new(config, false);
    file.attention("midlayer", [2 * HIDDEN, 64, 32, HIDDEN, 0]);
    file.rest_of_layer("midlayer", HIDDEN, INNER);
    file.tensor("midlayer.hidden_norm.weight", &[HIDDEN]);
    file.tensor("fc.weight", &[HIDDEN, 3 * HIDDEN]);
    file.tensor("norm.weight", &[HIDDEN]);
    file.tensor("lm_head.weight", &[16, HIDDEN]);
    file.integers("d2t", &(0..16).map(|id| 2 * id + 5).collect::<Vec<i64>>());
    file.write()
}

/// Weights of a target and of its drafter's own checkpoint, where it has one.
struct Both<'a>(CanonicalWeights<'a>, Option<CanonicalWeights<'a>>);

impl WeightSource for Both<'_> {
    fn weight(&self, name: &str) -> Result<WeightTensor<'_>, WeightError> {
        match &self.1 {
            Some(own) if name.starts_with("draft.") => own.weight(name),
            Some(_) | None => self.0.weight(name),
        }
    }
}

/// One sequence over the programs of a target and its drafter.
struct Device {
    plans: [Box<dyn Plan>; 3],
    state: Box<dyn State>,
    groups: usize,
    is_recurrent: bool,
}

const TARGET: usize = 0;
const OBSERVE: usize = 1;
const DRAFT: usize = 2;

impl Device {
    fn new(programs: &DraftPrograms, weights: &dyn WeightSource) -> Self {
        let backend = ReferenceBackend::new();
        let weights = backend.upload(weights, &programs.weights()).unwrap();
        let layout = &programs.target.state;
        let budget = Budget {
            pages: vec![1; layout.groups.len()],
            recurrent_slots: 1,
            snapshots: 0,
            sampler_slots: 1,
            ..Budget::default()
        };
        let limits = BatchLimits { rows: 64, sequences: 1, outputs: 64, context: 64 };
        let plan = |program| backend.compile(program, &weights, &limits).unwrap();
        Self {
            plans: [plan(&programs.target), plan(&programs.observe), plan(&programs.draft)],
            state: backend.allocate(layout, &budget).unwrap(),
            groups: layout.groups.len(),
            is_recurrent: layout.is_recurrent(),
        }
    }

    /// Runs rows from index `length` on; gives the step, and what the rows asked for drew and scored.
    fn run(
        &mut self,
        plan: usize,
        length: u32,
        ids: &[u32],
        asked: &[u32],
        handed: Vec<Handed>,
    ) -> (StepId, Vec<(u32, Vec<f32>)>) {
        let row = |(place, id): (usize, &u32)| Row {
            sequence: 0,
            token: TokenSource::Known(TokenId(*id)),
            index: length + place as u32,
            position: [length + place as u32; 3],
            kind: RowKind::Prompt,
        };
        let bank = RecurrentBank { slot: 0, bank: 0 };
        let recurrent = RecurrentUse { read: None, write: RecurrentWrite::Bank(bank) };
        let sequence = SequenceRows {
            rows: 0..ids.len() as u32,
            length: Length::Exact(length),
            tables: vec![PageTable { released: 0, pages: 0..1 }; self.groups],
            recurrent: self.is_recurrent.then_some(recurrent),
            sampler: None,
            adapter: None,
        };
        let want = Want { token: true, logits: true, ..Want::default() };
        let batch = Batch {
            rows: ids.iter().enumerate().map(row).collect(),
            sequences: vec![sequence],
            outputs: asked.iter().map(|row| Output { row: *row, want }).collect(),
            pages: vec![PageId(0)],
            handed,
            ..Batch::default()
        };
        let sampling = Arc::new(Sampling::greedy());
        let draw = |row: &u32| {
            let index = length + row + 1;
            SampleRow { sampling: sampling.clone(), seed: 0, choice: 0, index, allowed: None, banned: None }
        };
        let step = self.plans[plan].submit(&batch, self.state.as_mut()).unwrap();
        if !asked.is_empty() {
            let rows = SampleRows { rows: asked.iter().map(draw).collect() };
            self.plans[plan].sample(step, &rows, self.state.as_mut()).unwrap();
        }
        let results = self.plans[plan].wait(step).unwrap().outputs;
        let drawn = results.into_iter().map(|it| (it.token.unwrap().0, it.logits.unwrap()));
        (step, drawn.collect())
    }
}

fn handed(step: StepId, capture: CaptureId, rows: impl IntoIterator<Item = u32>) -> Handed {
    Handed { step, capture, row_map: rows.into_iter().collect() }
}

#[track_caller]
fn check_close(found: &[f32], expected: &[f64]) {
    for (place, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (f64::from(*found) - expected).abs();
        assert!(error < 1e-4, "score {place} is {found}, expected {expected}");
    }
}

/// What follows the prompt, with the prompt's first token left out: the tokens after each position.
fn tokens_after(next: u32) -> Vec<u32> {
    PROMPT[1..].iter().copied().chain([next]).collect()
}

pub(crate) fn open(written: &Written) -> Model {
    recognise(&written.checkpoint).unwrap()
}

fn drafter(written: &Written) -> Drafter {
    recognise_drafter(&written.checkpoint).unwrap().unwrap()
}

#[test]
fn a_head_beside_the_model_drafts_in_a_chain() {
    let file = hybrid();
    let model = open(&file);
    let drafter = model.drafter.clone().unwrap();
    assert_eq!((drafter.kind.name(), drafter.config.layers.len()), ("mtp", 1));
    let programs = model.programs(&drafter, &OPTIONS).unwrap();
    let weights = model.weights_of(&file.checkpoint, &programs.weights()).unwrap();
    assert_eq!(weights.unused(), Vec::<&str>::new());
    assert_eq!(weights.passed_over(), []);
    let mut device = Device::new(&programs, &weights);
    let (prompt, drawn) = device.run(TARGET, 0, &PROMPT, &[11], vec![]);
    assert_eq!(drawn[0].0, 53);
    let observed = vec![handed(prompt, HIDDEN_CAPTURE, 0..12)];
    let (first, drawn) = device.run(OBSERVE, 0, &tokens_after(53), &[11], observed);
    check_close(&drawn[0].1, &[0.22978, -0.01683, 0.74072, -0.60053, 0.68877, -0.54510]);
    assert_eq!(drawn[0].0, 51);
    let (_, drawn) = device.run(DRAFT, 12, &[51], &[0], vec![handed(first, CHAIN_CAPTURE, [11])]);
    check_close(&drawn[0].1, &[-0.17736, -0.42662, -0.45937, 1.13569, 0.24010, 0.28447]);
    assert_eq!(drawn[0].0, 63);
}

#[test]
fn a_block_is_drafted_in_one_step() {
    let (file, own) = (dense(), block_drafter());
    let (model, drafter) = (open(&file), drafter(&own));
    let DrafterKind::Block(block) = &drafter.kind else { panic!("{:?}", drafter.kind) };
    assert_eq!((block.tokens, block.mask, &drafter.taps[..]), (4, TokenId(63), &[1, 3][..]));
    let programs = model.programs(&drafter, &OPTIONS).unwrap();
    let uses = programs.weights();
    let targets: Vec<WeightUse> =
        uses.iter().filter(|used| !used.name.starts_with("draft.")).cloned().collect();
    let weights = Both(
        model.weights_of(&file.checkpoint, &targets).unwrap(),
        Some(drafter.weights(&own.checkpoint, &uses).unwrap()),
    );
    let mut device = Device::new(&programs, &weights);
    let (prompt, drawn) = device.run(TARGET, 0, &PROMPT, &[11], vec![]);
    assert_eq!(drawn[0].0, 39);
    // In two pieces, because what is observed is an ordinary program's rows.
    for rows in [0..5u32, 5..12] {
        let taps = (0..2).map(|tap| handed(prompt, CaptureId(tap), rows.clone())).collect();
        device.run(OBSERVE, rows.start, &vec![0; rows.len()], &[], taps);
    }
    let (_, drawn) = device.run(DRAFT, 12, &[39, 63, 63, 63], &[1, 2, 3], vec![]);
    check_close(&drawn[0].1, &[0.16872, 0.13386, -0.23950, -1.19996]);
    check_close(&drawn[1].1, &[0.17821, 0.08424, -0.28515, -1.20498]);
    check_close(&drawn[2].1, &[0.21100, -0.02993, -0.29654, -1.14043]);
    assert!(drawn.iter().all(|(token, _)| *token == 4));
}

#[test]
fn features_of_three_layers_draft_in_a_chain_over_a_vocabulary_of_their_own() {
    let golden = std::fs::read(goldens::folder().join("drafters.json")).unwrap();
    let golden: Value = serde_json::from_slice(&golden).unwrap();
    let numbers = |name: &str| -> Vec<f64> { serde_json::from_value(golden[name].clone()).unwrap() };
    let (file, own) = (dense(), feature_drafter());
    let (model, drafter) = (open(&file), drafter(&own));
    let programs = model.programs(&drafter, &OPTIONS).unwrap();
    let uses = programs.weights();
    let targets: Vec<WeightUse> =
        uses.iter().filter(|used| !used.name.starts_with("draft.")).cloned().collect();
    let weights = Both(
        model.weights_of(&file.checkpoint, &targets).unwrap(),
        Some(drafter.weights(&own.checkpoint, &uses).unwrap()),
    );
    let mut device = Device::new(&programs, &weights);
    let (prompt, drawn) = device.run(TARGET, 0, &PROMPT, &[11], vec![]);
    assert_eq!(u64::from(drawn[0].0), golden["next"].as_u64().unwrap());
    let taps = (0..3).map(|tap| handed(prompt, CaptureId(tap), 0..12)).collect();
    let (first, drawn) = device.run(OBSERVE, 0, &tokens_after(drawn[0].0), &[11], taps);
    check_close(&drawn[0].1, &numbers("first"));
    let best = |scores: &[f64]| (0..16).max_by(|a, b| scores[*a].total_cmp(&scores[*b])).unwrap() as u32;
    assert_eq!(drawn[0].0, 3 * best(&numbers("first")) + 5);
    let chain = vec![handed(first, CHAIN_CAPTURE, [11])];
    let (_, drawn) = device.run(DRAFT, 12, &[drawn[0].0], &[0], chain);
    check_close(&drawn[0].1, &numbers("second"));
}

#[test]
fn programs_of_drafters_are_as_reviewed() {
    let (dense_file, hybrid_file) = (dense(), hybrid());
    let (dense, hybrid) = (open(&dense_file), open(&hybrid_file));
    let cases = [
        ("mtp", &hybrid, hybrid.drafter.clone().unwrap()),
        ("dflash", &dense, drafter(&block_drafter())),
        ("eagle3", &dense, drafter(&feature_drafter())),
    ];
    for (name, target, drafter) in cases {
        let programs = target.programs(&drafter, &OPTIONS).unwrap();
        let text = print(&programs.observe) + &print(&programs.draft);
        insta::assert_snapshot!(format!("drafter-{name}"), text);
        assert!(drafter.parameters(target).unwrap() > 0);
    }
}

#[test]
fn a_drafter_is_no_model_and_not_anyones_drafter() {
    let own = block_drafter();
    let error = recognise(&own.checkpoint).unwrap_err().to_string();
    assert!(error.contains("`DFlashDraftModel`, a drafter, which runs beside its target"), "{error}");
    assert!(recognise_drafter(&dense().checkpoint).unwrap().is_none());
    let refused = |keys: Value, expected: &str| {
        let config = with(
            base(),
            json!({ "architectures": ["DFlashDraftModel"],
                    "dflash_config": { "target_layer_ids": [0, 2], "mask_token_id": 63 } }),
        );
        let file = Generated::new(with(config, keys), false).write();
        let error = match recognise_drafter(&file.checkpoint) {
            Ok(drafter) => {
                let target = dense();
                open(&target).programs(&drafter.unwrap(), &OPTIONS).unwrap_err().to_string()
            }
            Err(error) => error.to_string(),
        };
        assert!(error.contains(expected), "{error}\nexpected: {expected}");
    };
    refused(json!({ "hidden_size": 64 }), "the drafter's width is 64, expected 32, the target's");
    refused(
        json!({ "dflash_config": { "mask_token_id": 63 } }),
        "key `dflash_config.target_layer_ids` is missing",
    );
    refused(
        json!({ "dflash_config": { "target_layer_ids": [1] } }),
        "key `dflash_config.mask_token_id` is missing",
    );
    refused(
        json!({ "dflash_config": { "target_layer_ids": [7], "mask_token_id": 1 } }),
        "a layer that the drafter reads is 8, expected at most 4",
    );
    refused(
        json!({ "dflash_config": { "target_layer_ids": [1], "mask_token_id": 1, "output_multiplier": 2.0 } }),
        "key `dflash_config.output_multiplier` is 2, expected 1",
    );
}
