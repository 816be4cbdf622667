//! A toy model on the reference interpreter: one layer that sees everything, one that sees a window.

use gannet_engine::{
    Engine, EngineHandle, EngineOptions, Event, FinishReason, NumericsId, Request, Runner, Usage, budget,
};
use gannet_ops::reference::ReferenceBackend;
use gannet_ops::{
    Attention, Backend, BatchLimits, Budget, GroupId, KvFormat, Mask, OutputKind, PageGroup, PageLifetime,
    PagedLayout, Program, ProgramBuilder, Rope, RopeTable, SamplerLayout, StateEntry, StateId, StateLayout,
    TokenId, ValueId, WeightError, WeightRole, WeightSource, WeightTensor,
};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::thread::JoinHandle;

pub(crate) const VOCABULARY: usize = 50;
pub(crate) const WINDOW: u32 = 20;
const WIDTH: usize = 16;
const HEADS: usize = 2;
const HEAD_DIM: usize = 8;

pub(crate) fn layout() -> Arc<StateLayout> {
    let group = |name: &str, lifetime| PageGroup { name: name.to_owned(), lifetime };
    let entry = |group| {
        let (key_format, value_format) = (KvFormat::F32, KvFormat::F32);
        let (key_dim, value_dim) = (HEAD_DIM, HEAD_DIM);
        let open = None;
        StateEntry::Paged(PagedLayout {
            kv_heads: 1,
            key_dim,
            value_dim,
            key_format,
            value_format,
            group,
            open,
        })
    };
    Arc::new(StateLayout {
        groups: vec![group("full", PageLifetime::Full), group("window", PageLifetime::Window(WINDOW))],
        entries: vec![entry(GroupId(0)), entry(GroupId(1))],
        sampler: Some(SamplerLayout { vocabulary: VOCABULARY }),
    })
}

pub(crate) fn program() -> Program {
    let mut builder = ProgramBuilder::new("target", layout());
    let embedding = builder.weight("embedding", &[VOCABULARY, WIDTH], WeightRole::Embedding);
    let ids = builder.ids();
    let mut x = builder.embed(embedding, &[ids]);
    for (layer, mask) in [Mask::Causal, Mask::Window(WINDOW)].into_iter().enumerate() {
        x = attention_layer(&mut builder, x, layer, mask);
    }
    let selected = builder.select_outputs(x);
    let norm = builder.weight("norm", &[WIDTH], WeightRole::Vector);
    let normed = builder.rms_norm(selected, norm, 1e-6);
    let head = builder.weight("head", &[VOCABULARY, WIDTH], WeightRole::Matrix);
    let logits = builder.linear(normed, head, None);
    let tokens = builder.sample(logits);
    let accepted = builder.accept(tokens);
    builder.output(OutputKind::Logits, logits);
    builder.output(OutputKind::Tokens, tokens);
    builder.output(OutputKind::Accepted, accepted);
    builder.finish()
}

fn attention_layer(builder: &mut ProgramBuilder, x: ValueId, layer: usize, mask: Mask) -> ValueId {
    let matrix = |builder: &mut ProgramBuilder, name: &str, rows: usize, columns: usize| {
        builder.weight(&format!("{layer}.{name}"), &[rows, columns], WeightRole::Matrix)
    };
    let inverse_frequencies = vec![1.0, 0.3, 0.1, 0.03];
    let axes = vec![0; inverse_frequencies.len()];
    let table = Arc::new(RopeTable { inverse_frequencies, axes, attention_scale: 1.0 });
    let norm = builder.weight(&format!("{layer}.norm"), &[WIDTH], WeightRole::Vector);
    let normed = builder.rms_norm(x, norm, 1e-6);
    let q = matrix(builder, "q", HEADS * HEAD_DIM, WIDTH);
    let k = matrix(builder, "k", HEAD_DIM, WIDTH);
    let v = matrix(builder, "v", HEAD_DIM, WIDTH);
    let o = matrix(builder, "o", WIDTH, HEADS * HEAD_DIM);
    let (q, k, v) =
        (builder.linear(normed, q, None), builder.linear(normed, k, None), builder.linear(normed, v, None));
    let q = builder.rope(q, Rope { heads: HEADS, head_dim: HEAD_DIM, table: table.clone() });
    let k = builder.rope(k, Rope { heads: 1, head_dim: HEAD_DIM, table });
    let state = StateId(layer as u32);
    builder.write_kv(k, v, state);
    let attention = Attention { state, heads: HEADS, scale: 0.35, mask, sinks: None, soft_cap: None };
    let mixed = builder.attention(&[q], attention);
    let projected = builder.linear(mixed, o, None);
    builder.add(x, projected)
}

/// Weights from a counter, so that no file is needed.
struct ToyWeights(HashMap<String, Vec<usize>>);

impl WeightSource for ToyWeights {
    fn weight(&self, name: &str) -> Result<WeightTensor<'_>, WeightError> {
        let shape = self.0[name].clone();
        let seed = name.bytes().fold(7u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(u64::from(byte)));
        let value = |n: usize| {
            let mixed = (seed.wrapping_add(n as u64)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
            let uniform =
                (mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40) as f32 / (1u64 << 24) as f32 - 0.5;
            if shape.len() == 1 { 1.0 + uniform } else { 2.0 * uniform }
        };
        let elements: usize = shape.iter().product();
        let bytes: Vec<u8> = (0..elements).flat_map(|n| value(n).to_le_bytes()).collect();
        Ok(WeightTensor {
            format: gannet_tensor::Format::F32,
            shape: shape.clone(),
            bytes: Cow::Owned(bytes),
        })
    }
}

/// A runner with the memory of one sequence of `context` tokens.
pub(crate) fn runner(context: usize, step_rows: usize) -> Runner {
    let wish = budget::Wish { context, step_rows, depth: 1, sequences: 1, snapshots: 0, drafts: 0 };
    runner_with(budget::for_wish(&layout(), &wish), context, step_rows)
}

pub(crate) fn runner_with(budget: Budget, context: usize, step_rows: usize) -> Runner {
    let program = program();
    gannet_ops::verify(&program).expect("the toy program is well formed");
    let shapes = program.weights.iter().map(|weight| (weight.name.clone(), weight.shape.clone())).collect();
    let backend = ReferenceBackend::default();
    let weights = backend.upload(&ToyWeights(shapes), &program.weights).expect("toy weights upload");
    let state = backend.allocate(&program.state, &budget).expect("toy state fits");
    let limits = BatchLimits { rows: step_rows, sequences: 1, outputs: step_rows, context };
    let plan = backend.compile(&program, &weights, &limits).expect("the toy program compiles");
    Runner {
        plan,
        state,
        layout: layout(),
        budget,
        vocabulary: VOCABULARY,
        context,
        step_rows,
        steps_in_flight: 1,
        pooling: None,
        numerics_id: NumericsId::default(),
        major_faults: Box::new(|| None),
        prefix_follower: None,
    }
}

/// An engine on its own thread.
pub(crate) fn start(runner: Runner) -> (EngineHandle, JoinHandle<()>) {
    let options = EngineOptions { step_rows: Some(runner.step_rows), ..EngineOptions::default() };
    let (engine, handle) = Engine::new(runner, options);
    (handle, std::thread::spawn(move || engine.run()))
}

/// A greedy request for `max_tokens` tokens.
pub(crate) fn request(prompt: &[u32], max_tokens: u32, sink: crossbeam_channel::Sender<Event>) -> Request {
    let prompt = prompt.iter().copied().map(TokenId).collect();
    Request { logprobs: Some(2), ..Request::greedy(prompt, max_tokens, Arc::new(sink)) }
}

/// What a request made, once it has ended.
#[derive(Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) tokens: Vec<(u32, Vec<u32>)>,
    pub(crate) reason: FinishReason,
    pub(crate) prompt_tokens: u32,
    pub(crate) generated_tokens: u32,
}

/// Reads events to the end; log-probabilities are kept as bits.
pub(crate) fn collect(events: &crossbeam_channel::Receiver<Event>) -> Answer {
    let mut tokens = Vec::new();
    for event in events {
        match event {
            Event::Started { .. } | Event::Prefilled { .. } => {}
            Event::Token { token, logprobs } => {
                let logprobs = logprobs.expect("log-probabilities were asked for");
                let bits = logprobs.sampled.into_iter().chain(logprobs.top.iter().map(|(_, p)| *p));
                tokens.push((token.0, bits.map(f32::to_bits).collect()));
            }
            Event::Finished { reason, usage: Usage { prompt_tokens, generated_tokens, .. } } => {
                return Answer { tokens, reason, prompt_tokens, generated_tokens };
            }
        }
    }
    panic!("the events ended without a last word");
}
