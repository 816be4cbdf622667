//! Canonical weight names and what a checkpoint calls them.
//!
//! A canonical name is `embed.weight`, `norm.weight`, `head.weight` or `layers.3.attention.q.weight`: an optional
//! layer, a stem, and `weight` or `bias`. A [`Names`] table gives each stem's name in both kinds of file; most
//! families share [`names::PLAIN`](PLAIN). A family knows no prefix: checkpoints of a text model within a larger
//! one put theirs before every name, and [`Prefix`] finds it.

use gannet_formats::{Checkpoint, Source};

/// The embedding of a GGUF file.
pub(crate) const GGUF_EMBEDDING: &str = "token_embd.weight";

/// One weight's stem in the three ways to name it.
#[derive(Debug)]
pub(crate) struct NameRow {
    canonical: &'static str,
    hugging_face: &'static str,
    gguf: &'static str,
}

/// A row of a table of names.
pub(crate) const fn row(canonical: &'static str, hugging_face: &'static str, gguf: &'static str) -> NameRow {
    NameRow { canonical, hugging_face, gguf }
}

/// The names of a family's layers; what lies outside of the layers has the same names everywhere.
#[derive(Debug)]
pub(crate) struct Names {
    pub(crate) layer: &'static [NameRow],
}

const OUTSIDE: [NameRow; 3] = [
    row("embed", "embed_tokens", "token_embd"),
    row("norm", "norm", "output_norm"),
    row("head", "lm_head", "output"),
];

/// The layers of a pre-norm decoder.
pub(crate) const PLAIN: Names = Names {
    layer: &[
        row("attention.norm", "input_layernorm", "attn_norm"),
        row("attention.q", "self_attn.q_proj", "attn_q"),
        row("attention.k", "self_attn.k_proj", "attn_k"),
        row("attention.v", "self_attn.v_proj", "attn_v"),
        row("attention.q_norm", "self_attn.q_norm", "attn_q_norm"),
        row("attention.k_norm", "self_attn.k_norm", "attn_k_norm"),
        row("attention.output", "self_attn.o_proj", "attn_output"),
        row("feed_forward.norm", "post_attention_layernorm", "ffn_norm"),
        row("feed_forward.gate", "mlp.gate_proj", "ffn_gate"),
        row("feed_forward.up", "mlp.up_proj", "ffn_up"),
        row("feed_forward.down", "mlp.down_proj", "ffn_down"),
    ],
};

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

impl Names {
    /// What the checkpoint calls the weight of this canonical name.
    pub(crate) fn in_checkpoint(&self, checkpoint: &Checkpoint, canonical: &str) -> Option<String> {
        let (layer, rest) = split_layer(canonical);
        let (stem, kind) = rest.rsplit_once('.')?;
        let rows = if layer.is_some() { self.layer } else { &OUTSIDE };
        let row = rows.iter().find(|row| row.canonical == stem)?;
        Some(match &checkpoint.source {
            Source::Gguf(_) => match layer {
                Some(layer) => format!("blk.{layer}.{}.{kind}", row.gguf),
                None => format!("{}.{kind}", row.gguf),
            },
            Source::HuggingFace(_) => {
                let prefix = Prefix::of(checkpoint);
                let before = if stem == "head" { prefix.head } else { prefix.body };
                match layer {
                    Some(layer) => format!("{before}layers.{layer}.{}.{kind}", row.hugging_face),
                    None => format!("{before}{}.{kind}", row.hugging_face),
                }
            }
        })
    }
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
    PLAIN.in_checkpoint(checkpoint, "head.weight").is_some_and(|name| has_tensor(checkpoint, &name))
}

/// Whether the checkpoint has a tensor of this name, of whatever type.
fn has_tensor(checkpoint: &Checkpoint, name: &str) -> bool {
    !matches!(checkpoint.tensor(name), Ok(None))
}

/// Whether a tensor that no weight is made of says nothing about the text model: parts of other modalities,
/// frequencies that follow from the config, and tables that are read with the config.
pub(crate) fn is_ignorable(name: &str) -> bool {
    const OTHER_PARTS: [&str; 3] = ["vision_tower.", "visual.", "multi_modal_projector."];
    const READ_OR_DERIVED: [&str; 4] =
        ["rotary_emb.inv_freq", "rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"];
    let within = name.strip_prefix("model.").unwrap_or(name);
    OTHER_PARTS.iter().any(|part| within.starts_with(part))
        || READ_OR_DERIVED.iter().any(|known| name.ends_with(known))
}

/// The layer of a canonical name, and what follows it.
pub(crate) fn split_layer(canonical: &str) -> (Option<usize>, &str) {
    let split = canonical.strip_prefix("layers.").and_then(|rest| rest.split_once('.'));
    match split.and_then(|(layer, rest)| Some((layer.parse().ok()?, rest))) {
        Some((layer, rest)) => (Some(layer), rest),
        None => (None, canonical),
    }
}
