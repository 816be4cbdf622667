//! Small models written op by op.

use gannet_ops::*;
use std::sync::Arc;

pub(crate) const VOCABULARY: usize = 64;
pub(crate) const HIDDEN: usize = 32;
pub(crate) const INNER: usize = 48;
pub(crate) const EPSILON: f32 = 1e-6;

/// The attention of one layer.
#[derive(Clone)]
pub(crate) struct Mixer {
    /// Columns of what it reads.
    pub(crate) input: usize,
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
    pub(crate) bias: bool,
    /// Norms of each head of q and k.
    pub(crate) head_norms: bool,
    /// Each head of q brings a gate for its result.
    pub(crate) gated: bool,
    pub(crate) rope: Arc<RopeTable>,
    pub(crate) mask: Mask,
}

pub(crate) fn mixer(head_dim: usize, rope: Arc<RopeTable>) -> Mixer {
    let (bias, head_norms, gated) = (false, false, false);
    Mixer {
        input: HIDDEN,
        heads: 4,
        kv_heads: 2,
        head_dim,
        bias,
        head_norms,
        gated,
        rope,
        mask: Mask::Causal,
    }
}

pub(crate) fn rope_table(theta: f64, dims: usize, factor: f64) -> Arc<RopeTable> {
    let frequency = |pair: usize| (theta.powf(-2.0 * pair as f64 / dims as f64) / factor) as f32;
    let inverse_frequencies: Vec<f32> = (0..dims / 2).map(frequency).collect();
    let axes = vec![0; inverse_frequencies.len()];
    Arc::new(RopeTable { inverse_frequencies, axes, attention_scale: 1.0 })
}

/// What stands between the two norms of a layer's second half.
#[derive(Clone, Copy)]
pub(crate) enum Inner {
    Silu,
    Gelu,
    Experts { shared: bool },
}

/// Where a layer's mixer keeps its state.
#[derive(Clone)]
pub(crate) enum Kind {
    Attention(Mixer),
    Delta,
}

/// A whole model.
#[derive(Clone)]
pub(crate) struct Model {
    pub(crate) layers: Vec<Kind>,
    pub(crate) inner: Inner,
    /// Norms on what a half adds, too.
    pub(crate) branch_norms: bool,
    pub(crate) tied: bool,
    pub(crate) embedding_scale: Option<f32>,
    /// Layers whose result is captured under their place.
    pub(crate) captured: Vec<usize>,
    /// Captures the normed hidden state as 100.
    pub(crate) captures_hidden: bool,
}

pub(crate) fn model(layers: Vec<Kind>) -> Model {
    Model {
        layers,
        inner: Inner::Silu,
        branch_norms: false,
        tied: false,
        embedding_scale: None,
        captured: Vec::new(),
        captures_hidden: false,
    }
}

/// The dense model of the goldens with a norm for each head.
pub(crate) fn dense() -> Model {
    let mixer = Mixer { head_norms: true, ..mixer(16, rope_table(1e6, 16, 1.0)) };
    model(vec![Kind::Attention(mixer); 4])
}

/// The gated attention of the hybrid.
pub(crate) fn gated_mixer() -> Mixer {
    Mixer { head_norms: true, gated: true, ..mixer(32, rope_table(1e7, 8, 1.0)) }
}

/// Three delta-rule layers and one of gated attention.
pub(crate) fn hybrid() -> Model {
    model(vec![Kind::Delta, Kind::Delta, Kind::Delta, Kind::Attention(gated_mixer())])
}

pub(crate) const HIDDEN_CAPTURE: CaptureId = CaptureId(100);

/// A layout with a group for full attention, one for each window, and whatever drafters bring.
pub(crate) fn layout(
    model: &Model,
    drafter: &[Mixer],
    rollback: Rollback,
    format: KvFormat,
) -> Arc<StateLayout> {
    let mut layout =
        StateLayout { sampler: Some(SamplerLayout { vocabulary: VOCABULARY }), ..Default::default() };
    for kind in &model.layers {
        let entry = match kind {
            Kind::Attention(mixer) => paged(&mut layout, mixer, format, "target"),
            Kind::Delta => StateEntry::Recurrent(delta_layout(rollback)),
        };
        layout.entries.push(entry);
    }
    for mixer in drafter {
        let entry = paged(&mut layout, mixer, format, "draft");
        layout.entries.push(entry);
    }
    Arc::new(layout)
}

fn paged(layout: &mut StateLayout, mixer: &Mixer, format: KvFormat, owner: &str) -> StateEntry {
    let lifetime = match mixer.mask {
        Mask::Window(window) | Mask::BlockWindow(window) => PageLifetime::Window(window),
        Mask::Causal | Mask::Block => PageLifetime::Full,
    };
    let name = format!("{owner} {lifetime:?}");
    let known = layout.groups.iter().position(|group| group.name == name);
    let group = known.unwrap_or_else(|| {
        layout.groups.push(PageGroup { name, lifetime });
        layout.groups.len() - 1
    });
    let open = (format == KvFormat::Int8).then(|| open_group(layout, owner));
    StateEntry::Paged(PagedLayout {
        kv_heads: mixer.kv_heads,
        key_dim: mixer.head_dim,
        value_dim: mixer.head_dim,
        key_format: format,
        value_format: format,
        group: GroupId(group as u32),
        open,
    })
}

fn open_group(layout: &mut StateLayout, owner: &str) -> GroupId {
    let name = format!("{owner} open");
    let known = layout.groups.iter().position(|group| group.name == name);
    let place = known.unwrap_or_else(|| {
        layout.groups.push(PageGroup { name, lifetime: PageLifetime::Open });
        layout.groups.len() - 1
    });
    GroupId(place as u32)
}

const KEY_HEADS: usize = 2;
const VALUE_HEADS: usize = 6;
const DELTA_DIM: usize = 8;
const CHANNELS: usize = 2 * KEY_HEADS * DELTA_DIM + VALUE_HEADS * DELTA_DIM;

fn delta_layout(rollback: Rollback) -> RecurrentLayout {
    RecurrentLayout {
        conv: ConvLayout { channels: CHANNELS, kernel: 4 },
        state: DeltaLayout { value_heads: VALUE_HEADS, key_dim: DELTA_DIM, value_dim: DELTA_DIM },
        rollback,
    }
}

/// The model's program: scores, samples, and says how many drafts stand.
pub(crate) fn target(model: &Model, layout: &Arc<StateLayout>) -> Program {
    let mut b = ProgramBuilder::new("target", layout.clone());
    let ids = b.ids();
    let table = embedding(&mut b);
    let mut x = b.embed(table, &[ids]);
    if let Some(scale) = model.embedding_scale {
        x = b.scale(x, scale);
    }
    for (number, kind) in model.layers.iter().enumerate() {
        x = layer(&mut b, model, kind, x, &format!("model.layers.{number}."), number);
        if model.captured.contains(&number) {
            b.capture(x, CaptureId(number as u32));
        }
    }
    let x = norm(&mut b, x, "model.norm.weight");
    if model.captures_hidden {
        b.capture(x, HIDDEN_CAPTURE);
    }
    let x = b.select_outputs(x);
    b.output(OutputKind::Hidden, x);
    let name = if model.tied { "model.embed_tokens.weight" } else { "lm_head.weight" };
    let head = b.weight(name, &[VOCABULARY, HIDDEN], WeightRole::Matrix);
    let logits = b.linear(x, head, None);
    let tokens = draws(&mut b, logits);
    let accepted = b.accept(tokens);
    b.output(OutputKind::Accepted, accepted);
    b.finish()
}

/// Returns the scores, and what is sampled from them.
pub(crate) fn draws(b: &mut ProgramBuilder, logits: ValueId) -> ValueId {
    b.output(OutputKind::Logits, logits);
    let tokens = b.sample(logits);
    b.output(OutputKind::Tokens, tokens);
    tokens
}

pub(crate) fn embedding(b: &mut ProgramBuilder) -> WeightId {
    b.weight("model.embed_tokens.weight", &[VOCABULARY, HIDDEN], WeightRole::Embedding)
}

pub(crate) fn norm(b: &mut ProgramBuilder, x: ValueId, name: &str) -> ValueId {
    let weight = b.weight(name, &[HIDDEN], WeightRole::Vector);
    b.rms_norm(x, weight, EPSILON)
}

pub(crate) fn linear(b: &mut ProgramBuilder, x: ValueId, name: &str, shape: [usize; 2]) -> ValueId {
    let weight = b.weight(&format!("{name}.weight"), &shape, WeightRole::Matrix);
    b.linear(x, weight, None)
}

/// One layer: a mixer and a second half, each added to what it read.
pub(crate) fn layer(
    b: &mut ProgramBuilder,
    model: &Model,
    kind: &Kind,
    x: ValueId,
    prefix: &str,
    state: usize,
) -> ValueId {
    let state = StateId(state as u32);
    let normed = norm(b, x, &format!("{prefix}input_layernorm.weight"));
    let mut mixed = match kind {
        Kind::Attention(mixer) => self_attention(b, mixer, normed, &format!("{prefix}self_attn."), state),
        Kind::Delta => delta(b, normed, &format!("{prefix}linear_attn."), state),
    };
    let after = format!("{prefix}post_attention_layernorm.weight");
    if model.branch_norms {
        mixed = norm(b, mixed, &after);
    }
    let x = b.add(x, mixed);
    let before = format!("{prefix}pre_feedforward_layernorm.weight");
    let normed = norm(b, x, if model.branch_norms { &before } else { &after });
    let mut made = second_half(b, model.inner, normed, &format!("{prefix}mlp."));
    if model.branch_norms {
        made = norm(b, made, &format!("{prefix}post_feedforward_layernorm.weight"));
    }
    b.add(x, made)
}

fn self_attention(
    b: &mut ProgramBuilder,
    mixer: &Mixer,
    x: ValueId,
    prefix: &str,
    state: StateId,
) -> ValueId {
    let (mut q, gate) = queries(b, mixer, x, prefix);
    let (k, v) = keys_and_values(b, mixer, x, prefix);
    q = rotated(b, mixer, q, mixer.heads);
    b.write_kv(k, v, state);
    let y = b.attention(&[q], attention(mixer, state));
    let y = gate.map_or(y, |gate| b.sigmoid_gate(y, gate));
    linear(b, y, &format!("{prefix}o_proj"), [HIDDEN, mixer.heads * mixer.head_dim])
}

pub(crate) fn attention(mixer: &Mixer, state: StateId) -> Attention {
    let scale = (mixer.head_dim as f32).powf(-0.5);
    Attention { state, heads: mixer.heads, scale, mask: mixer.mask, sinks: None, soft_cap: None }
}

/// Normed queries before the rope, and their gate where there is one.
pub(crate) fn queries(
    b: &mut ProgramBuilder,
    mixer: &Mixer,
    x: ValueId,
    prefix: &str,
) -> (ValueId, Option<ValueId>) {
    let dim = mixer.head_dim;
    let parts = if mixer.gated { 2 } else { 1 };
    let mut q = projection(b, mixer, x, &format!("{prefix}q_proj"), parts * mixer.heads * dim);
    let mut gate = None;
    if mixer.gated {
        gate = Some(b.slice(q, mixer.heads, dim, dim));
        q = b.slice(q, mixer.heads, 0, dim);
    }
    (head_normed(b, mixer, q, &format!("{prefix}q_norm.weight"), mixer.heads), gate)
}

/// Keys after norm and rope, and values.
pub(crate) fn keys_and_values(
    b: &mut ProgramBuilder,
    mixer: &Mixer,
    x: ValueId,
    prefix: &str,
) -> (ValueId, ValueId) {
    let width = mixer.kv_heads * mixer.head_dim;
    let k = projection(b, mixer, x, &format!("{prefix}k_proj"), width);
    let v = projection(b, mixer, x, &format!("{prefix}v_proj"), width);
    let k = head_normed(b, mixer, k, &format!("{prefix}k_norm.weight"), mixer.kv_heads);
    (rotated(b, mixer, k, mixer.kv_heads), v)
}

pub(crate) fn rotated(b: &mut ProgramBuilder, mixer: &Mixer, x: ValueId, heads: usize) -> ValueId {
    b.rope(x, Rope { heads, head_dim: mixer.head_dim, table: mixer.rope.clone() })
}

fn head_normed(b: &mut ProgramBuilder, mixer: &Mixer, x: ValueId, name: &str, heads: usize) -> ValueId {
    if !mixer.head_norms {
        return x;
    }
    let weight = b.weight(name, &[mixer.head_dim], WeightRole::Vector);
    b.head_norm(x, weight, heads, EPSILON)
}

fn projection(b: &mut ProgramBuilder, mixer: &Mixer, x: ValueId, name: &str, rows: usize) -> ValueId {
    let weight = b.weight(&format!("{name}.weight"), &[rows, mixer.input], WeightRole::Matrix);
    let bias = mixer.bias.then(|| b.weight(&format!("{name}.bias"), &[rows], WeightRole::Vector));
    b.linear(x, weight, bias)
}

fn delta(b: &mut ProgramBuilder, x: ValueId, prefix: &str, state: StateId) -> ValueId {
    let (keys, values) = (KEY_HEADS * DELTA_DIM, VALUE_HEADS * DELTA_DIM);
    let u = linear(b, x, &format!("{prefix}in_proj_qkv"), [CHANNELS, HIDDEN]);
    let z = linear(b, x, &format!("{prefix}in_proj_z"), [values, HIDDEN]);
    let strength = linear(b, x, &format!("{prefix}in_proj_b"), [VALUE_HEADS, HIDDEN]);
    let a = linear(b, x, &format!("{prefix}in_proj_a"), [VALUE_HEADS, HIDDEN]);
    let kernel = b.weight(&format!("{prefix}conv1d.weight"), &[CHANNELS, 4], WeightRole::Convolution);
    let u = b.causal_conv(u, kernel, state);
    let (q, k) = (b.slice(u, 1, 0, keys), b.slice(u, 1, keys, keys));
    let v = b.slice(u, 1, 2 * keys, values);
    let q = b.l2_norm(q, KEY_HEADS, 1e-6, (DELTA_DIM as f32).powf(-0.5));
    let k = b.l2_norm(k, KEY_HEADS, 1e-6, 1.0);
    let decay = b.weight(&format!("{prefix}A_log"), &[VALUE_HEADS], WeightRole::Vector);
    let bias = b.weight(&format!("{prefix}dt_bias"), &[VALUE_HEADS], WeightRole::Vector);
    let g = b.decay_gate(a, decay, bias);
    let rule = DeltaRule { state, key_heads: KEY_HEADS, head_map: HeadMap::Grouped };
    let y = b.gated_delta_rule([q, k, v, g, strength], rule);
    let weight = b.weight(&format!("{prefix}norm.weight"), &[DELTA_DIM], WeightRole::Vector);
    let y = b.gated_norm(y, z, weight, VALUE_HEADS, EPSILON);
    linear(b, y, &format!("{prefix}out_proj"), [HIDDEN, values])
}

pub(crate) fn second_half(b: &mut ProgramBuilder, inner: Inner, x: ValueId, prefix: &str) -> ValueId {
    match inner {
        Inner::Experts { shared } => return experts(b, x, prefix, shared),
        Inner::Silu | Inner::Gelu => {}
    }
    let gate = linear(b, x, &format!("{prefix}gate_proj"), [INNER, HIDDEN]);
    let up = linear(b, x, &format!("{prefix}up_proj"), [INNER, HIDDEN]);
    let gated = match inner {
        Inner::Gelu => b.gelu_gate(gate, up),
        Inner::Silu | Inner::Experts { .. } => b.silu_gate(gate, up),
    };
    linear(b, gated, &format!("{prefix}down_proj"), [HIDDEN, INNER])
}

fn experts(b: &mut ProgramBuilder, x: ValueId, prefix: &str, shared: bool) -> ValueId {
    const EXPERTS: usize = 8;
    const TOP_K: u32 = 2;
    const WIDTH: usize = 24;
    let logits = linear(b, x, &format!("{prefix}gate"), [EXPERTS, HIDDEN]);
    let (ids, weights) =
        b.route_experts(logits, Router { experts: EXPERTS, top_k: TOP_K, renormalise: true });
    let name = format!("{prefix}experts.gate_up_proj");
    let weight = b.weight(&name, &[EXPERTS, 2 * WIDTH, HIDDEN], WeightRole::Experts);
    let both = b.expert_linear(x, ids, ExpertLinear { weight, bias: None, top_k: TOP_K });
    let (gate, up) = (b.slice(both, 1, 0, WIDTH), b.slice(both, 1, WIDTH, WIDTH));
    let gated = b.silu_gate(gate, up);
    let weight =
        b.weight(&format!("{prefix}experts.down_proj"), &[EXPERTS, HIDDEN, WIDTH], WeightRole::Experts);
    let y = b.expert_linear(gated, ids, ExpertLinear { weight, bias: None, top_k: TOP_K });
    if !shared {
        return b.combine_experts(&[y, weights]);
    }
    let gate = linear(b, x, &format!("{prefix}shared_expert.gate_proj"), [16, HIDDEN]);
    let up = linear(b, x, &format!("{prefix}shared_expert.up_proj"), [16, HIDDEN]);
    let gated = b.silu_gate(gate, up);
    let own = linear(b, gated, &format!("{prefix}shared_expert.down_proj"), [HIDDEN, 16]);
    let gate = linear(b, x, &format!("{prefix}shared_expert_gate"), [1, HIDDEN]);
    let own = b.sigmoid_gate(own, gate);
    b.combine_experts(&[y, weights, own])
}
