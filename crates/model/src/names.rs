//! Canonical weight names, what a checkpoint calls them, and in what form it stores them.
//!
//! A canonical name is `embed.weight`, `norm.weight`, `head.weight` or `layers.3.attention.q.weight`: an optional
//! layer, a stem, and `weight` or `bias`. A [`Names`] table gives each stem's name in both kinds of file and the
//! [`Form`] in which it is stored there; a stem may have several rows, and the first whose tensor exists counts.
//! Most families share [`names::PLAIN`](PLAIN). A family knows no prefix: checkpoints of a text model within a larger
//! one put theirs before every name, and [`Prefix`] finds it.

use gannet_formats::{Checkpoint, Source};

/// The embedding of a GGUF file.
pub(crate) const GGUF_EMBEDDING: &str = "token_embd.weight";

/// One weight in the three ways to name it, and how it is stored. A name that a kind of file doesn't have is empty.
#[derive(Debug)]
pub(crate) struct NameRow {
    canonical: &'static str,
    hugging_face: &'static str,
    gguf: &'static str,
    form: Form,
    /// The names are whole; to others the kind, `weight` or `bias`, is added.
    exact: bool,
}

/// How a checkpoint stores a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// As it is.
    Whole,
    /// With dimensions of 1 more or less.
    Squeezed,
    /// As some rows of a larger tensor.
    Part(Part),
    /// As some elements of each of a stack of vectors.
    Elements(Part),
    /// As a tensor an expert; `{}` stands for its number in the name.
    EachExpert,
    /// As some columns of each of a stack of transposed matrices.
    Transposed(Part),
}

/// Which rows of a larger tensor, for stacks of each matrix in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// All.
    All,
    /// The first of queries, keys, values.
    Query,
    /// The second of queries, keys, values.
    Key,
    /// The third of queries, keys, values.
    Value,
    /// The first half.
    Gate,
    /// The second half.
    Up,
    /// Every second row, from the first.
    EvenRows,
    /// Every second row, from the second.
    OddRows,
    /// Of rows grouped a key head as q, k, v, z: all q, then all k, then all v.
    GroupedQueryKeyValue,
    /// Of rows grouped a key head as q, k, v, z: all z.
    GroupedOutputGate,
    /// Of rows grouped a key head as b, a: all b.
    GroupedStrength,
    /// Of rows grouped a key head as b, a: all a.
    GroupedDecay,
}

/// A row of a table of names.
pub(crate) const fn row(canonical: &'static str, hugging_face: &'static str, gguf: &'static str) -> NameRow {
    NameRow { canonical, hugging_face, gguf, form: Form::Whole, exact: false }
}

/// A row of a weight that is stored in another form.
pub(crate) const fn stored(
    canonical: &'static str,
    hugging_face: &'static str,
    gguf: &'static str,
    form: Form,
) -> NameRow {
    NameRow { canonical, hugging_face, gguf, form, exact: false }
}

/// A row of whole names.
pub(crate) const fn exact(
    canonical: &'static str,
    hugging_face: &'static str,
    gguf: &'static str,
    form: Form,
) -> NameRow {
    NameRow { canonical, hugging_face, gguf, form, exact: true }
}

/// The names of a family's layers; what lies outside of the layers has the same names nearly everywhere.
#[derive(Debug)]
pub(crate) struct Names {
    pub(crate) layer: &'static [&'static [NameRow]],
    pub(crate) outside: &'static [NameRow],
}

/// What lies outside of the layers.
pub(crate) const OUTSIDE: &[NameRow] = &[
    row("embed", "embed_tokens", "token_embd"),
    row("norm", "norm", "output_norm"),
    row("head", "lm_head", "output"),
    exact("projections.0.weight", "", "dense_2.weight", Form::Whole),
    exact("projections.1.weight", "", "dense_3.weight", Form::Whole),
];

/// Softmax attention.
pub(crate) const ATTENTION: &[NameRow] = &[
    row("attention.norm", "input_layernorm", "attn_norm"),
    row("attention.q", "self_attn.q_proj", "attn_q"),
    row("attention.k", "self_attn.k_proj", "attn_k"),
    row("attention.v", "self_attn.v_proj", "attn_v"),
    stored("attention.q", "self_attn.qkv_proj", "attn_qkv", Form::Part(Part::Query)),
    stored("attention.k", "self_attn.qkv_proj", "attn_qkv", Form::Part(Part::Key)),
    stored("attention.v", "self_attn.qkv_proj", "attn_qkv", Form::Part(Part::Value)),
    row("attention.q_norm", "self_attn.q_norm", "attn_q_norm"),
    row("attention.k_norm", "self_attn.k_norm", "attn_k_norm"),
    row("attention.output", "self_attn.o_proj", "attn_output"),
];

/// The gated feed-forward.
pub(crate) const GATED: &[NameRow] = &[
    row("feed_forward.gate", "mlp.gate_proj", "ffn_gate"),
    row("feed_forward.up", "mlp.up_proj", "ffn_up"),
    row("feed_forward.down", "mlp.down_proj", "ffn_down"),
];

/// The gated feed-forward whose first two projections are one.
pub(crate) const FUSED_GATED: &[NameRow] = &[
    stored("feed_forward.gate", "mlp.gate_up_proj", "ffn_up", Form::Part(Part::Gate)),
    stored("feed_forward.up", "mlp.gate_up_proj", "ffn_up", Form::Part(Part::Up)),
    row("feed_forward.down", "mlp.down_proj", "ffn_down"),
];

/// The norms of the branches of a decoder that norms before and after each.
pub(crate) const AROUND_NORMS: &[NameRow] = &[
    row("attention.post_norm", "post_attention_layernorm", "post_attention_norm"),
    row("feed_forward.norm", "pre_feedforward_layernorm", "ffn_norm"),
    row("feed_forward.post_norm", "post_feedforward_layernorm", "post_ffw_norm"),
];

/// A mixture of experts: stacked, fused, or a tensor each.
pub(crate) const EXPERTS: &[NameRow] = &[
    row("feed_forward.router", "mlp.gate", "ffn_gate_inp"),
    row("feed_forward.experts.gate", "", "ffn_gate_exps"),
    row("feed_forward.experts.up", "", "ffn_up_exps"),
    row("feed_forward.experts.down", "", "ffn_down_exps"),
    stored("feed_forward.experts.gate", "mlp.experts.{}.gate_proj", "ffn_gate.{}", Form::EachExpert),
    stored("feed_forward.experts.up", "mlp.experts.{}.up_proj", "ffn_up.{}", Form::EachExpert),
    stored("feed_forward.experts.down", "mlp.experts.{}.down_proj", "ffn_down.{}", Form::EachExpert),
    stored("feed_forward.experts.gate", "", "ffn_gate_up_exps", Form::Part(Part::Gate)),
    stored("feed_forward.experts.up", "", "ffn_gate_up_exps", Form::Part(Part::Up)),
    exact("feed_forward.experts.gate.weight", "mlp.experts.gate_up_proj", "", Form::Part(Part::Gate)),
    exact("feed_forward.experts.up.weight", "mlp.experts.gate_up_proj", "", Form::Part(Part::Up)),
    exact("feed_forward.experts.down.weight", "mlp.experts.down_proj", "", Form::Whole),
    row("feed_forward.shared.gate", "mlp.shared_expert.gate_proj", "ffn_gate_shexp"),
    row("feed_forward.shared.up", "mlp.shared_expert.up_proj", "ffn_up_shexp"),
    row("feed_forward.shared.down", "mlp.shared_expert.down_proj", "ffn_down_shexp"),
    stored("feed_forward.shared_gate", "mlp.shared_expert_gate", "ffn_gate_inp_shexp", Form::Squeezed),
];

/// A gated delta rule, its projections apart or grouped a key head.
pub(crate) const DELTA: &[NameRow] = &[
    row("delta.norm", "input_layernorm", "attn_norm"),
    row("delta.qkv", "linear_attn.in_proj_qkv", "attn_qkv"),
    row("delta.z", "linear_attn.in_proj_z", "attn_gate"),
    row("delta.b", "linear_attn.in_proj_b", "ssm_beta"),
    row("delta.a", "linear_attn.in_proj_a", "ssm_alpha"),
    stored("delta.qkv", "linear_attn.in_proj_qkvz", "ssm_in", Form::Part(Part::GroupedQueryKeyValue)),
    stored("delta.z", "linear_attn.in_proj_qkvz", "ssm_in", Form::Part(Part::GroupedOutputGate)),
    stored("delta.b", "linear_attn.in_proj_ba", "ssm_ba", Form::Part(Part::GroupedStrength)),
    stored("delta.a", "linear_attn.in_proj_ba", "ssm_ba", Form::Part(Part::GroupedDecay)),
    stored("delta.conv", "linear_attn.conv1d", "ssm_conv1d", Form::Squeezed),
    exact("delta.decay.weight", "linear_attn.A_log", "ssm_a", Form::Whole),
    exact("delta.dt.bias", "linear_attn.dt_bias", "ssm_dt.bias", Form::Whole),
    row("delta.gated_norm", "linear_attn.norm", "ssm_norm"),
    row("delta.output", "linear_attn.out_proj", "ssm_out"),
];

/// The norm before the feed-forward of a pre-norm decoder.
pub(crate) const PRE_NORM: &[NameRow] = &[row("feed_forward.norm", "post_attention_layernorm", "ffn_norm")];

/// The layers of a pre-norm decoder, dense or of experts.
pub(crate) const PLAIN: Names = Names { layer: &[ATTENTION, PRE_NORM, GATED, EXPERTS], outside: OUTSIDE };

/// What stands before the names of a checkpoint's text model.
#[derive(Clone, Copy)]
pub(crate) struct Prefix {
    /// Before layers, embedding and norm.
    body: &'static str,
    /// Before the head.
    head: &'static str,
}

/// In the order in which they are tried.
const PREFIXES: [Prefix; 4] = [
    Prefix { body: "model.", head: "" },
    Prefix { body: "model.language_model.", head: "" },
    Prefix { body: "language_model.model.", head: "language_model." },
    Prefix { body: "", head: "" },
];

/// What a drafter's canonical names begin with.
pub(crate) const DRAFT: &str = "draft.";

/// Where in a checkpoint the named weights are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The model itself.
    Target,
    /// The head that predicts further tokens, which the model's own checkpoint has beside it; in GGUF its layers
    /// follow those of the model, of which there are so many, and hold all names of `nextn`; others are the model's.
    BesideTarget { layers: usize },
    /// A drafter, alone in its checkpoint.
    Drafter,
}

/// A weight's tensor, or the tensor of each of its experts.
#[derive(Debug)]
pub(crate) struct Found {
    /// Its name, with `{}` for the number of the expert where each has a tensor.
    pattern: String,
    pub(crate) form: Form,
}

impl Found {
    /// The name; of the first expert's tensor where each has one.
    pub(crate) fn name(&self) -> String {
        self.name_of(0)
    }

    /// The name of an expert's tensor.
    pub(crate) fn name_of(&self, expert: usize) -> String {
        self.pattern.replace("{}", &expert.to_string())
    }
}

impl Names {
    /// What the checkpoint calls the weight of this canonical name: the first name that it has a tensor of, or the
    /// one to report as missing.
    pub(crate) fn find(&self, checkpoint: &Checkpoint, place: Place, canonical: &str) -> Option<Found> {
        let inner = canonical.strip_prefix(DRAFT).unwrap_or(canonical);
        let (layer, rest) = split_layer(inner);
        let (stem, kind) = rest.rsplit_once('.')?;
        let tables = if layer.is_some() { self.layer } else { &[self.outside] };
        let rows = tables.iter().flat_map(|table| table.iter());
        let fits = |row: &&NameRow| row.canonical == if row.exact { rest } else { stem };
        let mut candidates = rows.filter(fits).filter_map(|row| {
            let pattern = row.in_checkpoint(checkpoint, place, layer, kind)?;
            Some(Found { pattern, form: row.form })
        });
        let first = candidates.next()?;
        if has_tensor(checkpoint, &first.name()) {
            return Some(first);
        }
        let present = candidates.find(|found| has_tensor(checkpoint, &found.name()));
        Some(present.unwrap_or(first))
    }
}

impl NameRow {
    fn in_checkpoint(
        &self,
        checkpoint: &Checkpoint,
        place: Place,
        layer: Option<usize>,
        kind: &str,
    ) -> Option<String> {
        let (stem, before) = match &checkpoint.source {
            Source::Gguf(_) => (self.gguf, self.gguf_prefix(place, layer)),
            Source::HuggingFace(_) => (self.hugging_face, self.hugging_face_prefix(checkpoint, place, layer)),
        };
        let kind = if self.exact { String::new() } else { format!(".{kind}") };
        (!stem.is_empty()).then(|| format!("{before}{stem}{kind}"))
    }

    fn gguf_prefix(&self, place: Place, layer: Option<usize>) -> String {
        match (place, layer) {
            (Place::BesideTarget { .. }, None) if !self.gguf.starts_with("nextn.") => String::new(),
            (Place::BesideTarget { layers }, layer) => format!("blk.{}.", layers + layer.unwrap_or(0)),
            (Place::Target | Place::Drafter, Some(layer)) => format!("blk.{layer}."),
            (Place::Target | Place::Drafter, None) => String::new(),
        }
    }

    fn hugging_face_prefix(&self, checkpoint: &Checkpoint, place: Place, layer: Option<usize>) -> String {
        let before = match place {
            Place::Target if self.canonical == "head" => Prefix::of(checkpoint).head,
            Place::Drafter if self.canonical == "head" => "",
            Place::Target => Prefix::of(checkpoint).body,
            Place::BesideTarget { .. } => beside_prefix(checkpoint),
            Place::Drafter => drafter_prefix(checkpoint),
        };
        let only_layer = format!("{before}midlayer.");
        let has_only_one = || has_tensor(checkpoint, &format!("{only_layer}input_layernorm.weight"));
        match (layer, place) {
            (None, _) => before.to_owned(),
            (Some(_), Place::Drafter) if has_only_one() => only_layer,
            (Some(layer), _) => format!("{before}layers.{layer}."),
        }
    }
}

/// What stands before the tensors of a head that predicts further tokens.
fn beside_prefix(checkpoint: &Checkpoint) -> &'static str {
    if has_tensor(checkpoint, "model.mtp.fc.weight") { "model.mtp." } else { "mtp." }
}

/// Drafters are mostly stored without a prefix.
fn drafter_prefix(checkpoint: &Checkpoint) -> &'static str {
    if has_tensor(checkpoint, "model.norm.weight") { "model." } else { "" }
}

impl Prefix {
    /// The prefix under which the checkpoint has an embedding; the usual one where it has none.
    fn of(checkpoint: &Checkpoint) -> Self {
        let fits = |prefix: &&Prefix| has_tensor(checkpoint, &format!("{}embed_tokens.weight", prefix.body));
        *PREFIXES.iter().find(fits).unwrap_or(&PREFIXES[0])
    }
}

/// Whether the checkpoint has a head of its own.
pub(crate) fn has_head(checkpoint: &Checkpoint) -> bool {
    let found = PLAIN.find(checkpoint, Place::Target, "head.weight");
    found.is_some_and(|found| has_tensor(checkpoint, &found.name()))
}

/// Whether the checkpoint has a tensor of this name, of whatever type.
pub(crate) fn has_tensor(checkpoint: &Checkpoint, name: &str) -> bool {
    !matches!(checkpoint.tensor(name), Ok(None))
}

/// Whether a tensor that no weight is made of follows from the config or was read with it.
pub(crate) fn is_read_or_derived(name: &str) -> bool {
    const READ_OR_DERIVED: [&str; 6] = [
        "rotary_emb.inv_freq",
        "rope_freqs.weight",
        "rope_factors_long.weight",
        "rope_factors_short.weight",
        "d2t",
        "t2d",
    ];
    READ_OR_DERIVED.iter().any(|known| name.ends_with(known))
}

/// Whether a tensor belongs to another modality than text.
pub(crate) fn is_of_another_modality(name: &str) -> bool {
    const OTHER_PARTS: [&str; 3] = ["vision_tower.", "visual.", "multi_modal_projector."];
    let within = name.strip_prefix("model.").unwrap_or(name);
    OTHER_PARTS.iter().any(|part| within.starts_with(part))
}

/// Whether a tensor belongs to a head that predicts further tokens, in a model of so many layers.
pub(crate) fn is_beside_target(name: &str, layers: usize) -> bool {
    if let Some(block) =
        name.strip_prefix("blk.").and_then(|rest| rest.split('.').next()?.parse::<usize>().ok())
    {
        return block >= layers;
    }
    name.starts_with("mtp.") || name.starts_with("model.mtp.")
}

/// The layer of a canonical name, and what follows it.
pub(crate) fn split_layer(canonical: &str) -> (Option<usize>, &str) {
    let split = canonical.strip_prefix("layers.").and_then(|rest| rest.split_once('.'));
    match split.and_then(|(layer, rest)| Some((layer.parse().ok()?, rest))) {
        Some((layer, rest)) => (Some(layer), rest),
        None => (None, canonical),
    }
}
