//! Which weight gets which format, as the field's own quantiser decides it.
//!
//! Source: `llama_tensor_get_type` of llama.cpp, without importance matrices; the tests hold what it chose.

use anyhow::{Result, bail};
use gannet_tensor::Format;
use gannet_tensor::decode::RandomBlocks;

use super::shapes::Shape;
use super::weights::Weight;

/// What a checkpoint's weights are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mixture {
    pub name: &'static str,
    base: Format,
    better: Better,
}

/// Which of the values' and of the down projections are in a better format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Better {
    Nothing,
    /// Those of half the layers.
    Half(Format),
    /// The down projections of the first layers; the values where so many heads share them that they are small.
    First(Format),
}

const MIXED: [Mixture; 4] = [
    Mixture { name: "q4_k_m", base: Format::Q4K, better: Better::Half(Format::Q6K) },
    Mixture { name: "q5_k_m", base: Format::Q5K, better: Better::Half(Format::Q6K) },
    Mixture { name: "iq4_xs", base: Format::Iq4Xs, better: Better::First(Format::Q5K) },
    Mixture { name: "iq4_nl", base: Format::Iq4Nl, better: Better::First(Format::Q5K) },
];

/// Heads that share values from which on the values of the `iq4` formats get more bits.
const SHARING_HEADS: usize = 4;

/// The numbers of `general.file_type`, by name. Source: `enum llama_ftype` of llama.cpp.
const FILE_TYPES: [(&str, u32); 27] = [
    ("f32", 0),
    ("f16", 1),
    ("q4_0", 2),
    ("q4_1", 3),
    ("q8_0", 7),
    ("q5_0", 8),
    ("q5_1", 9),
    ("q2_k", 10),
    ("q3_k", 11),
    ("q4_k", 14),
    ("q4_k_m", 15),
    ("q5_k", 16),
    ("q5_k_m", 17),
    ("q6_k", 18),
    ("iq2_xxs", 19),
    ("iq2_xs", 20),
    ("iq3_xxs", 23),
    ("iq1_s", 24),
    ("iq4_nl", 25),
    ("iq3_s", 26),
    ("iq2_s", 28),
    ("iq4_xs", 30),
    ("iq1_m", 31),
    ("bf16", 32),
    ("tq1_0", 36),
    ("tq2_0", 37),
    ("mxfp4", 38),
];

/// The names, for `--help`.
pub(super) fn help() -> String {
    format!(
        "What the matrices are in; the head is at least q6_k, and q4_k_m and others mix as llama.cpp does: {}",
        names()
    )
}

fn names() -> String {
    known().iter().map(|mixture| mixture.name).collect::<Vec<_>>().join(", ")
}

fn known() -> Vec<Mixture> {
    // Floats of 8 bits are no format of GGUF.
    let is_of_gguf = |format: &Format| !matches!(format, Format::F8E4M3 | Format::F8Scaled);
    let has_blocks = |format: &Format| is_of_gguf(format) && RandomBlocks::of(*format).is_some();
    let plain = Format::ALL.into_iter().filter(|format| is_plain(*format) || has_blocks(format));
    let plain = plain.map(|base| Mixture { name: base.name(), base, better: Better::Nothing });
    let plain = plain.filter(|plain| MIXED.iter().all(|mixed| mixed.name != plain.name));
    plain.chain(MIXED).collect()
}

impl Mixture {
    /// The mixture of this name, or that of one format.
    pub(super) fn parse(name: &str) -> Result<Self, String> {
        let found = known().into_iter().find(|mixture| mixture.name == name);
        found.ok_or_else(|| format!("known are {}", names()))
    }

    /// The one float format that all weights are in.
    pub(super) fn float(&self) -> Result<Format> {
        if !is_plain(self.base) {
            bail!("safetensors hold f32, f16 and bf16; `{}` needs GGUF", self.name);
        }
        Ok(self.base)
    }

    pub(super) fn file_type(&self) -> Option<u32> {
        FILE_TYPES.iter().find(|(name, _)| *name == self.name).map(|(_, number)| *number)
    }

    /// Whether the file has formats of blocks.
    pub(super) fn is_quantised(&self) -> bool {
        !is_plain(self.base)
    }

    /// The format of each weight of a GGUF file of this shape.
    pub(super) fn formats(&self, weights: &[Weight], shape: &Shape) -> Vec<Format> {
        let tied = weights.iter().all(|weight| weight.name != "output.weight");
        let head = if tied { "token_embd.weight" } else { "output.weight" };
        let format = |weight: &Weight| {
            if !weight.quantisable {
                return Format::F32;
            }
            let columns = weight.shape.last().copied().unwrap_or(1);
            let wanted = match weight.name == head {
                true => self.of_head(columns),
                false => self.of_matrix(&weight.name, shape),
            };
            fitting(wanted, columns)
        };
        weights.iter().map(format).collect()
    }

    fn of_head(&self, columns: usize) -> Format {
        if is_plain(self.base) || self.base == Format::Q8_0 {
            return self.base;
        }
        if columns.is_multiple_of(self.base.block_elements()) { Format::Q6K } else { Format::Q8_0 }
    }

    fn of_matrix(&self, name: &str, shape: &Shape) -> Format {
        // Some layers have their values fused with queries and keys.
        let is_values = name.contains("attn_v.") || name.contains("attn_qkv.");
        if !is_values && !name.contains("ffn_down") {
            return self.base;
        }
        let (layer, layers) = (layer_of(name), shape.layers);
        match self.better {
            Better::Half(better) if has_more_bits(layer, layers) => better,
            Better::First(better) if is_values && shape.heads / shape.kv_heads >= SHARING_HEADS => better,
            Better::First(better) if !is_values && layer < layers / 8 => better,
            Better::Nothing | Better::Half(_) | Better::First(_) => self.base,
        }
    }
}

/// The layers whose weights get more bits: the first and the last eighth, and every third between them.
fn has_more_bits(layer: usize, layers: usize) -> bool {
    let first = layers / 8;
    layer < first || layer >= 7 * layers / 8 || (layer - first) % 3 == 2
}

/// The number in `blk.NUMBER.`.
fn layer_of(name: &str) -> usize {
    let number = name.split('.').nth(1).and_then(|number| number.parse().ok());
    number.expect("weights of layers have the layer's number in their names")
}

/// What takes a format's place; that of the others is taken by `iq4_nl`.
const INSTEAD: [(Format, Format); 5] = [
    (Format::Tq1_0, Format::Q4_0),
    (Format::Tq2_0, Format::Q4_0),
    (Format::Q4K, Format::Q5_0),
    (Format::Q5K, Format::Q5_1),
    (Format::Q6K, Format::Q8_0),
];

/// The format, or the one that takes its place where rows aren't whole numbers of its blocks.
fn fitting(format: Format, columns: usize) -> Format {
    if columns.is_multiple_of(format.block_elements()) {
        return format;
    }
    let instead =
        INSTEAD.iter().find(|(wanted, _)| *wanted == format).map_or(Format::Iq4Nl, |(_, instead)| *instead);
    if columns.is_multiple_of(instead.block_elements()) { instead } else { Format::F16 }
}

fn is_plain(format: Format) -> bool {
    matches!(format, Format::F32 | Format::F16 | Format::Bf16)
}
