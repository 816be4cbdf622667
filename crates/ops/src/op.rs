//! `enum Op`: the whole contract of a backend.
//!
//! Each variant documents its inputs, outputs and formula; `reference` has the same in code. `x[r]` is row r.
//! Reductions follow the orders that `numerics` names.

use crate::{CaptureId, Node, StateId, WeightId};
use std::sync::Arc;

/// One operation at the level of a language model.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// ids `[Tokens, 1]` and, where the program has them, embeddings `[Tokens, width]` -> `[Tokens, width]`:
    /// row `id` of the weight `[vocabulary, width]`, or the embedding that the row brings.
    Embed {
        /// `[vocabulary, width]`.
        weight: WeightId,
    },
    /// x `[R, width]` -> `[R, width]`: `x / sqrt(mean(x^2) + epsilon) * weight`.
    RmsNorm {
        /// `[width]`.
        weight: WeightId,
        /// Added to the mean square.
        epsilon: f32,
    },
    /// x `[R, heads * dim]` -> same: `rms_norm` over each head, one weight for all heads.
    HeadNorm {
        /// `[dim]`.
        weight: WeightId,
        /// Heads in a row.
        heads: usize,
        /// Added to the mean square.
        epsilon: f32,
    },
    /// x, z `[R, heads * dim]` -> same: `head_norm(x) * silu(z)`.
    GatedNorm {
        /// `[dim]`.
        weight: WeightId,
        /// Heads in a row.
        heads: usize,
        /// Added to the mean square.
        epsilon: f32,
    },
    /// x `[R, heads * dim]` -> same: `x / sqrt(sum(x^2) + epsilon) * scale` over each head.
    L2Norm {
        /// Heads in a row.
        heads: usize,
        /// Added to the sum of squares.
        epsilon: f32,
        /// Multiplies the result.
        scale: f32,
    },
    /// x `[R, columns]` -> `[R, rows]`: `x * weight^T + bias`.
    Linear {
        /// `[rows, columns]`.
        weight: WeightId,
        /// `[rows]`.
        bias: Option<WeightId>,
    },
    /// x `[Tokens, heads * dim]` -> same, rotated by the row's position.
    Rope(Rope),
    /// x `[Tokens, width]` -> same: `x * (1 + slope * ln(1 + floor(position / period)))`, by the row's position on the
    /// first axis; queries so scaled look further back with sharper scores.
    PositionScale {
        /// How fast it grows.
        slope: f32,
        /// Positions of one factor; the first ones have the factor 1.
        period: u32,
    },
    /// k `[Tokens, kv_heads * key_dim]`, v `[Tokens, kv_heads * value_dim]` -> nothing: written at each row's
    /// index into the pages of its sequence.
    WriteKv {
        /// A paged entry of the layout.
        state: StateId,
    },
    /// q `[Tokens, heads * key_dim]` and, for rows that are not written, k and v as in `WriteKv`
    /// -> `[Tokens, heads * value_dim]`. Rows that are not written are read as they are, not in the pages' format.
    /// Over keys in int8 it reads the k that was written as well: a row sees the keys from the beginning of its own
    /// page on in half precision, those before in int8.
    Attention(Attention),
    /// x `[Tokens, channels]` -> same: depthwise causal convolution over the sequence, then silu.
    /// `y[t] = silu(sum_j weight[c, j] * x[t - (kernel - 1) + j])`; what lies before the sequence is zero.
    CausalConv {
        /// `[channels, kernel]`.
        weight: WeightId,
        /// A recurrent entry of the layout.
        state: StateId,
    },
    /// a `[Tokens, heads]` -> same: `decay * softplus(a + bias)`, the logarithm of the state's decay.
    DecayGate {
        /// `[heads]`, negative: minus the exponential of the checkpoint's logarithm.
        decay: WeightId,
        /// `[heads]`.
        bias: WeightId,
    },
    /// q, k `[Tokens, key_heads * key_dim]`, v `[Tokens, value_heads * value_dim]`, g and b
    /// `[Tokens, value_heads]` -> `[Tokens, value_heads * value_dim]`. For each value head with state S
    /// `[key_dim, value_dim]`: `S *= exp(g); S += k (sigmoid(b) (v - S^T k))^T; y = S^T q`.
    GatedDeltaRule(DeltaRule),
    /// gate, up `[R, width]` -> same: `silu(gate) * up`.
    SiluGate,
    /// gate, up `[R, width]` -> same: `gelu_tanh(gate) * up`.
    GeluGate,
    /// gate, up `[R, width]` -> same: `g * sigmoid(alpha * g) * (u + 1)`, with `g = min(gate, limit)` and u the up
    /// within `-limit .. limit`.
    ClampedGate {
        /// The slope of the sigmoid.
        alpha: f32,
        /// The bound.
        limit: f32,
    },
    /// x `[R, width]`, gate `[R, width or 1]` -> `[R, width]`: `x * sigmoid(gate)`.
    SigmoidGate,
    /// x -> same: `cap * tanh(x / cap)`.
    SoftCap {
        /// The bound of the result.
        cap: f32,
    },
    /// x -> same: `factor * x`.
    Scale {
        /// The factor.
        factor: f32,
    },
    /// a, b `[R, width]` -> same: `a + b`.
    Add,
    /// logits `[Tokens, experts]` -> ids `[Routed(k), 1]` ascending within a token, weights `[Routed(k), 1]`:
    /// softmax over all experts, the k largest (ties to the lower id), renormalised where asked.
    RouteExperts(Router),
    /// x `[Tokens or Routed(k), columns]`, ids `[Routed(k), 1]` -> `[Routed(k), rows]`: `linear` with the
    /// row's expert.
    ExpertLinear(ExpertLinear),
    /// y `[Routed(k), width]`, weights `[Routed(k), 1]`, optionally shared `[Tokens, width]`
    /// -> `[Tokens, width]`: the weighted sum by ascending expert id, the shared expert last.
    CombineExperts,
    /// x `[Tokens, width]` -> `[Outputs, width]`: the rows that the batch asks a result of.
    SelectOutputs,
    /// x `[Tokens, width]` -> `[Sequences, width]`: one vector a sequence, of unit length.
    Pool {
        /// Which rows count.
        kind: PoolKind,
    },
    /// x `[Handed, width]` -> `[Tokens, width]`: the row that the batch's map names for each token.
    GatherRows {
        /// The entry of [`crate::Batch::handed`] whose map is used.
        handed: u32,
    },
    /// ids `[R, 1]` -> same: through a table from a drafter's vocabulary to the target's.
    MapIds {
        /// The target's id for each id of the drafter.
        table: Arc<[u32]>,
    },
    /// x `[R, groups * n]` -> `[R, groups * width]`: columns `start .. start + width` of each group.
    Slice {
        /// Equal groups of columns in a row.
        groups: usize,
        /// First column taken of a group.
        start: usize,
        /// Columns taken of a group.
        width: usize,
    },
    /// a `[R, m]`, b `[R, n]`, ... -> `[R, m + n + ...]`: columns side by side.
    Concat,
    /// x `[Tokens, width]` -> nothing: kept after the step, to be handed to later steps.
    Capture {
        /// The name by which later steps ask for it.
        id: CaptureId,
    },
    /// logits `[Outputs, vocabulary]` -> ids `[Outputs, 1]`, as `sampling` defines.
    Sample,
    /// ids `[Outputs, 1]` -> `[Sequences, 1]`: rows of the sequence that stand. A row that is no draft always does;
    /// a draft does where each row before it does and the row just before sampled the drafted id.
    Accept,
    /// Several operations that a backend runs as one; the body says what they are.
    Fused {
        /// Which kernel.
        kind: FusedKind,
        /// The operations that it replaces, over the values of the program.
        body: Vec<Node>,
    },
}

impl Op {
    /// The name that programs are printed with.
    pub const fn name(&self) -> &'static str {
        match self {
            Op::Embed { .. } => "embed",
            Op::RmsNorm { .. } => "rms_norm",
            Op::HeadNorm { .. } => "head_norm",
            Op::GatedNorm { .. } => "gated_norm",
            Op::L2Norm { .. } => "l2_norm",
            Op::Linear { .. } => "linear",
            Op::Rope(_) => "rope",
            Op::PositionScale { .. } => "position_scale",
            Op::WriteKv { .. } => "write_kv",
            Op::Attention(_) => "attention",
            Op::CausalConv { .. } => "causal_conv",
            Op::DecayGate { .. } => "decay_gate",
            Op::GatedDeltaRule(_) => "gated_delta_rule",
            Op::SiluGate => "silu_gate",
            Op::GeluGate => "gelu_gate",
            Op::ClampedGate { .. } => "clamped_gate",
            Op::SigmoidGate => "sigmoid_gate",
            Op::SoftCap { .. } => "soft_cap",
            Op::Scale { .. } => "scale",
            Op::Add => "add",
            Op::RouteExperts(_) => "route_experts",
            Op::ExpertLinear(_) => "expert_linear",
            Op::CombineExperts => "combine_experts",
            Op::SelectOutputs => "select_outputs",
            Op::Pool { .. } => "pool",
            Op::GatherRows { .. } => "gather_rows",
            Op::MapIds { .. } => "map_ids",
            Op::Slice { .. } => "slice",
            Op::Concat => "concat",
            Op::Capture { .. } => "capture",
            Op::Sample => "sample",
            Op::Accept => "accept",
            Op::Fused { kind: FusedKind::AddRmsNorm, .. } => "add_rms_norm",
            Op::Fused { kind: FusedKind::QueryKeyValue, .. } => "query_key_value",
            Op::Fused { kind: FusedKind::GatedLinear, .. } => "gated_linear",
            Op::Fused { kind: FusedKind::GatedExperts, .. } => "gated_experts",
        }
    }

    /// The weights that it reads, in the order of its fields; those of a fused body are its nodes'.
    pub fn weights(&self) -> Vec<WeightId> {
        match self {
            Op::Embed { weight }
            | Op::RmsNorm { weight, .. }
            | Op::HeadNorm { weight, .. }
            | Op::GatedNorm { weight, .. }
            | Op::CausalConv { weight, .. } => vec![*weight],
            Op::Linear { weight, bias } | Op::ExpertLinear(ExpertLinear { weight, bias, .. }) => {
                [Some(*weight), *bias].into_iter().flatten().collect()
            }
            Op::DecayGate { decay, bias } => vec![*decay, *bias],
            Op::Attention(attention) => attention.sinks.into_iter().collect(),
            Op::Fused { body, .. } => body.iter().flat_map(|node| node.op.weights()).collect(),
            Op::L2Norm { .. }
            | Op::Rope(_)
            | Op::PositionScale { .. }
            | Op::WriteKv { .. }
            | Op::GatedDeltaRule(_)
            | Op::SiluGate
            | Op::GeluGate
            | Op::ClampedGate { .. }
            | Op::SigmoidGate
            | Op::SoftCap { .. }
            | Op::Scale { .. }
            | Op::Add
            | Op::RouteExperts(_)
            | Op::CombineExperts
            | Op::SelectOutputs
            | Op::Pool { .. }
            | Op::GatherRows { .. }
            | Op::MapIds { .. }
            | Op::Slice { .. }
            | Op::Concat
            | Op::Capture { .. }
            | Op::Sample
            | Op::Accept => Vec::new(),
        }
    }
}

/// Rotary position embedding on pairs `(i, i + dims / 2)` of each head; what lies beyond `dims` passes.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Heads in a row.
    pub heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Frequencies.
    pub table: Arc<RopeTable>,
}

/// The angles of a rope: `angle = position * inverse_frequency`, cosine and sine times `attention_scale`.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeTable {
    /// One a pair, in radians a position; twice as many elements of a head are rotated.
    pub inverse_frequencies: Vec<f32>,
    /// Which of the three position axes each pair follows; all 0 for text.
    pub axes: Vec<u8>,
    /// Multiplies cosine and sine.
    pub attention_scale: f32,
}

/// Scaled dot-product attention with grouped heads; head h reads kv head `h / (heads / kv_heads)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// A paged entry of the layout; it gives kv heads, dims and format.
    pub state: StateId,
    /// Query heads.
    pub heads: usize,
    /// Multiplies the scores.
    pub scale: f32,
    /// Which keys a row sees.
    pub mask: Mask,
    /// `[heads]`: a score that takes part in the softmax and has no value.
    pub sinks: Option<WeightId>,
    /// Scores s become `cap * tanh(s / cap)`.
    pub soft_cap: Option<f32>,
}

/// Which keys a row at index i sees, by their index j.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mask {
    /// `j <= i`.
    Causal,
    /// `i - window < j <= i`: the window counts the row itself.
    Window(u32),
    /// All keys before the sequence's rows, and all of its rows in this batch.
    Block,
    /// As `Block`, within `|i - j| < window`.
    BlockWindow(u32),
}

/// The sizes of a gated delta rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeltaRule {
    /// A recurrent entry of the layout; it gives value heads and dims.
    pub state: StateId,
    /// Heads of q and k.
    pub key_heads: usize,
    /// Which key head a value head reads.
    pub head_map: HeadMap,
}

/// Which of `key_heads` a value head reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HeadMap {
    /// Value head j reads key head `j / (value_heads / key_heads)`.
    Grouped,
    /// Value head j reads key head `j % key_heads`.
    Tiled,
}

/// How tokens choose their experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Router {
    /// Experts of the layer.
    pub experts: usize,
    /// Experts a token.
    pub top_k: u32,
    /// Whether the chosen weights are divided by their sum.
    pub renormalise: bool,
}

/// A matrix an expert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExpertLinear {
    /// `[experts, rows, columns]`.
    pub weight: WeightId,
    /// `[experts, rows]`.
    pub bias: Option<WeightId>,
    /// Experts a token.
    pub top_k: u32,
}

/// How the rows of a sequence become one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PoolKind {
    /// The first row.
    First,
    /// The last row.
    Last,
    /// The mean of all rows.
    Mean,
}

/// The kernels that replace several operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FusedKind {
    /// `add` and the `rms_norm` of its result: both values are made in one pass over the row.
    AddRmsNorm,
    /// `linear` of one value to queries, keys and values; perhaps `head_norm` of queries and keys with the same epsilon, perhaps
    /// `rope` of both by the same table; `write_kv`. Makes the queries, and the keys where another node reads them.
    /// [`crate::QueryKeyValue`] reads the body.
    QueryKeyValue,
    /// Two `linear`s of one value, and `silu_gate` or `gelu_gate` of what they make. [`crate::GatedLinear`] reads the body.
    GatedLinear,
    /// Two `expert_linear`s of one value and the same experts, and `silu_gate` or `gelu_gate` of what they make.
    /// [`crate::GatedExperts`] reads the body.
    GatedExperts,
}
