//! Programs that have every op between them, with sizes that are no multiple of anything.

use gannet_ops::*;
use std::sync::Arc;

pub(crate) const VOCABULARY: usize = 131;
pub(crate) const HIDDEN: usize = 256;
const EPSILON: f32 = 1e-5;
const HEADS: usize = 6;
const KV_HEADS: usize = 2;
const KEY_DIM: usize = 40;
const VALUE_DIM: usize = 24;
const DELTA: DeltaLayout = DeltaLayout { value_heads: 4, key_dim: 20, value_dim: 32 };
const KEY_HEADS: usize = 2;
const CHANNELS: usize = 2 * KEY_HEADS * DELTA.key_dim + DELTA.value_heads * DELTA.value_dim;
const KERNEL: usize = 4;
const EXPERTS: usize = 5;
const INNER: usize = 64;

const OPEN: GroupId = GroupId(2);

const FULL: StateId = StateId(0);
const WINDOWED: StateId = StateId(1);
const UNWRITTEN: StateId = StateId(2);
const RECURRENT: StateId = StateId(3);

pub(crate) const CAPTURE: CaptureId = CaptureId(7);

/// The formats of keys and values: of a layer that sees all, of one with a window, and of one whose rows are read
/// before they are written.
pub(crate) type Formats = [(KvFormat, KvFormat); 3];

/// Rows of the batch are read as they are, so only a page without loss reads the same as an unwritten row.
pub(crate) const HALVES: Formats =
    [(KvFormat::F32, KvFormat::F16), (KvFormat::F16, KvFormat::F32), (KvFormat::F32, KvFormat::F32)];
pub(crate) const BYTES: Formats =
    [(KvFormat::Int8, KvFormat::Int8), (KvFormat::Int8, KvFormat::Bf16), (KvFormat::F32, KvFormat::F32)];
/// For what needn't be cut into chunks.
pub(crate) const ALL_BYTES: Formats =
    [(KvFormat::Bf16, KvFormat::Int8), (KvFormat::Int8, KvFormat::Int8), (KvFormat::Int8, KvFormat::Int8)];

/// Keys and values in a group of all and one of a window, a layer whose rows are read before they are
/// written, and one with recurrent state.
pub(crate) fn layout(rollback: Rollback, formats: Formats) -> Arc<StateLayout> {
    let paged = |group, (key_format, value_format)| {
        let (key_dim, value_dim) = (KEY_DIM, VALUE_DIM);
        let group = GroupId(group);
        StateEntry::Paged(PagedLayout {
            kv_heads: KV_HEADS,
            key_dim,
            value_dim,
            key_format,
            value_format,
            group,
            open: (key_format == KvFormat::Int8).then_some(OPEN),
        })
    };
    let conv = ConvLayout { channels: CHANNELS, kernel: KERNEL };
    let groups = vec![
        PageGroup { name: "full".to_owned(), lifetime: PageLifetime::Full },
        PageGroup { name: "window".to_owned(), lifetime: PageLifetime::Window(70) },
        PageGroup { name: "open keys".to_owned(), lifetime: PageLifetime::Open },
    ];
    let entries = vec![
        paged(0, formats[0]),
        paged(1, formats[1]),
        paged(0, formats[2]),
        StateEntry::Recurrent(RecurrentLayout { conv, state: DELTA, rollback }),
    ];
    Arc::new(StateLayout { groups, entries, sampler: Some(SamplerLayout { vocabulary: VOCABULARY }) })
}

/// A model with every op that a target can have; `unwritten` masks the rows that are read before they are
/// written.
pub(crate) fn target(layout: &Arc<StateLayout>, unwritten: Mask) -> Program {
    let mut b = ProgramBuilder::new("target", Arc::clone(layout));
    let ids = b.ids();
    let embeddings = b.embeddings(HIDDEN);
    let table = b.weight("embedding.weight", &[VOCABULARY, HIDDEN], WeightRole::Embedding);
    let mut x = b.embed(table, &[ids, embeddings]);
    x = attention(&mut b, x, "full", FULL, Mask::Causal);
    x = attention(&mut b, x, "windowed", WINDOWED, Mask::Window(70));
    x = attention(&mut b, x, "unwritten", UNWRITTEN, unwritten);
    x = delta(&mut b, x);
    x = experts(&mut b, x);
    let norm = b.weight("norm.weight", &[HIDDEN], WeightRole::Vector);
    let hidden = b.rms_norm(x, norm, EPSILON);
    b.capture(hidden, CAPTURE);
    let pooled = b.pool(hidden, PoolKind::Last);
    let selected = b.select_outputs(hidden);
    let head = b.weight("head.weight", &[VOCABULARY, HIDDEN], WeightRole::Matrix);
    let logits = b.linear(selected, head, None);
    let logits = b.soft_cap(logits, 30.0);
    let tokens = b.sample(logits);
    let accepted = b.accept(tokens);
    b.output(OutputKind::Logits, logits);
    b.output(OutputKind::Hidden, selected);
    b.output(OutputKind::Pooled, pooled);
    b.output(OutputKind::Tokens, tokens);
    b.output(OutputKind::Accepted, accepted);
    b.finish()
}

/// A drafter that reads what the target captured, with a smaller vocabulary.
pub(crate) fn drafter(layout: &Arc<StateLayout>) -> Program {
    let mut b = ProgramBuilder::new("draft", Arc::clone(layout));
    let ids = b.ids();
    let table = b.weight("embedding.weight", &[VOCABULARY, HIDDEN], WeightRole::Embedding);
    let x = b.embed(table, &[ids]);
    let handed = b.handed(0, HIDDEN);
    let captured = b.gather_rows(handed, 0);
    let both = b.concat(&[x, captured]);
    let x = linear(&mut b, both, "draft.input", [HIDDEN, 2 * HIDDEN]);
    let x = b.select_outputs(x);
    let logits = linear(&mut b, x, "draft.head", [17, HIDDEN]);
    let tokens = b.sample(logits);
    let table: Vec<u32> = (0..17).map(|id| id * 5 % VOCABULARY as u32).collect();
    let tokens = b.map_ids(tokens, Arc::from(table));
    b.output(OutputKind::Tokens, tokens);
    b.output(OutputKind::Logits, logits);
    b.finish()
}

fn linear(b: &mut ProgramBuilder, x: ValueId, name: &str, shape: [usize; 2]) -> ValueId {
    let weight = b.weight(&format!("{name}.weight"), &shape, WeightRole::Matrix);
    b.linear(x, weight, None)
}

fn normed(b: &mut ProgramBuilder, x: ValueId, name: &str) -> ValueId {
    let weight = b.weight(&format!("{name}.norm"), &[HIDDEN], WeightRole::Vector);
    b.rms_norm(x, weight, EPSILON)
}

fn rope(heads: usize) -> Rope {
    let inverse_frequencies: Vec<f32> =
        (0..KEY_DIM as u32 / 4).map(|pair| 0.5f32.powi(pair as i32)).collect();
    let axes = (0..inverse_frequencies.len() as u8).map(|pair| pair % 3).collect();
    let table = RopeTable { inverse_frequencies, axes, attention_scale: 1.1 };
    Rope { heads, head_dim: KEY_DIM, table: Arc::new(table) }
}

fn attention(b: &mut ProgramBuilder, x: ValueId, name: &str, state: StateId, mask: Mask) -> ValueId {
    let input = normed(b, x, name);
    let part = |part: &str| format!("{name}.{part}");
    let weight = b.weight(&part("q.weight"), &[HEADS * KEY_DIM, HIDDEN], WeightRole::Matrix);
    let bias = b.weight(&part("q.bias"), &[HEADS * KEY_DIM], WeightRole::Vector);
    let q = b.linear(input, weight, Some(bias));
    let k = linear(b, input, &part("k"), [KV_HEADS * KEY_DIM, HIDDEN]);
    let v = linear(b, input, &part("v"), [KV_HEADS * VALUE_DIM, HIDDEN]);
    let norm = b.weight(&part("head.norm"), &[KEY_DIM], WeightRole::Vector);
    let (q, k) = (b.head_norm(q, norm, HEADS, EPSILON), b.head_norm(k, norm, KV_HEADS, EPSILON));
    let (q, k) = (b.rope(q, rope(HEADS)), b.rope(k, rope(KV_HEADS)));
    let is_windowed = state == WINDOWED;
    let sinks = is_windowed.then(|| b.weight(&part("sinks"), &[HEADS], WeightRole::Vector));
    let soft_cap = is_windowed.then_some(4.0);
    let op = Attention { state, heads: HEADS, scale: 0.2, mask, sinks, soft_cap };
    let y = if state == UNWRITTEN {
        let y = b.attention(&[q, k, v], op);
        b.write_kv(k, v, state);
        y
    } else {
        b.write_kv(k, v, state);
        b.attention(&[q], op)
    };
    let gate = linear(b, input, &part("gate"), [HEADS * VALUE_DIM, HIDDEN]);
    let gate = b.position_scale(gate, 0.3, 20);
    let y = b.sigmoid_gate(y, gate);
    let y = linear(b, y, &part("o"), [HIDDEN, HEADS * VALUE_DIM]);
    b.add(x, y)
}

fn delta(b: &mut ProgramBuilder, x: ValueId) -> ValueId {
    let input = normed(b, x, "delta");
    let (keys, values) = (KEY_HEADS * DELTA.key_dim, DELTA.value_heads * DELTA.value_dim);
    let mixed = linear(b, input, "delta.qkv", [CHANNELS, HIDDEN]);
    let kernel = b.weight("delta.conv", &[CHANNELS, KERNEL], WeightRole::Convolution);
    let mixed = b.causal_conv(mixed, kernel, RECURRENT);
    let [q, k] = [0, 1].map(|part| b.slice(mixed, 1, part * keys, keys));
    let v = b.slice(mixed, 1, 2 * keys, values);
    let (q, k) = (b.l2_norm(q, KEY_HEADS, 1e-6, 0.25), b.l2_norm(k, KEY_HEADS, 1e-6, 1.0));
    let a = linear(b, input, "delta.a", [DELTA.value_heads, HIDDEN]);
    let [decay, bias] =
        ["delta.decay", "delta.bias"].map(|name| b.weight(name, &[DELTA.value_heads], WeightRole::Vector));
    let g = b.decay_gate(a, decay, bias);
    let g = b.scale(g, -0.1);
    let strength = linear(b, input, "delta.b", [DELTA.value_heads, HIDDEN]);
    let rule = DeltaRule { state: RECURRENT, key_heads: KEY_HEADS, head_map: HeadMap::Grouped };
    let y = b.gated_delta_rule([q, k, v, g, strength], rule);
    let z = linear(b, input, "delta.z", [values, HIDDEN]);
    let norm = b.weight("delta.head.norm", &[DELTA.value_dim], WeightRole::Vector);
    let y = b.gated_norm(y, z, norm, DELTA.value_heads, EPSILON);
    let y = linear(b, y, "delta.o", [HIDDEN, values]);
    b.add(x, y)
}

fn experts(b: &mut ProgramBuilder, x: ValueId) -> ValueId {
    let input = normed(b, x, "experts");
    let logits = linear(b, input, "experts.router", [EXPERTS, HIDDEN]);
    let top_k = 2;
    let (ids, weights) = b.route_experts(logits, Router { experts: EXPERTS, top_k, renormalise: true });
    let routed = |b: &mut ProgramBuilder, x, name: &str, [rows, columns]: [usize; 2]| {
        let weight = b.weight(name, &[EXPERTS, rows, columns], WeightRole::Experts);
        let bias = b.weight(&format!("{name}.bias"), &[EXPERTS, rows], WeightRole::Vector);
        b.expert_linear(x, ids, ExpertLinear { weight, bias: Some(bias), top_k })
    };
    let gate = routed(b, input, "experts.gate", [INNER, HIDDEN]);
    let up = routed(b, input, "experts.up", [INNER, HIDDEN]);
    let inner = b.silu_gate(gate, up);
    let y = routed(b, inner, "experts.down", [HIDDEN, INNER]);
    let gate = linear(b, input, "shared.gate", [INNER, HIDDEN]);
    let up = linear(b, input, "shared.up", [INNER, HIDDEN]);
    let bounded = b.clamped_gate(up, gate, 1.7, 0.5);
    let shared = b.gelu_gate(gate, bounded);
    let shared = linear(b, shared, "shared.down", [HIDDEN, INNER]);
    let one = linear(b, input, "shared.one", [1, HIDDEN]);
    let shared = b.sigmoid_gate(shared, one);
    let y = b.combine_experts(&[y, weights, shared]);
    b.add(x, y)
}
