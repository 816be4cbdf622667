//! A checkpoint's weights under their canonical names and in canonical form.
//!
//! What differs between files is undone here, once, at load: names, prefixes, the order of rows that GGUF stores
//! for its interleaved rope, the 1 that some norms lack. So every program rotates halves and norms plainly.
//! Most weights are the mapped bytes themselves; rows are moved as bytes, whatever their format. Integers are no
//! weights: no program reads codes without their scale.
//!
//! [`CanonicalWeights::new`] finds and measures every weight of a program before any is read, so that a missing
//! or misshapen one is an error before memory is spent.

use crate::ModelError;
use crate::config::{Mixer, ModelConfig};
use crate::model::Model;
use crate::names::{is_ignorable, split_layer};
use gannet_formats::{Checkpoint, FormatError, Source, Tensor};
use gannet_ops::{WeightError, WeightSource, WeightTensor, WeightUse};
use gannet_tensor::Format;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// The weights that a program reads, found in a checkpoint.
pub struct CanonicalWeights<'a> {
    checkpoint: &'a Checkpoint,
    places: HashMap<String, Place<'a>>,
}

/// Where a weight is and how it becomes canonical.
struct Place<'a> {
    tensor: Tensor<'a>,
    change: Change,
}

/// What turns a stored tensor into the canonical weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    None,
    /// Rows 2i and 2i + 1 of each head become rows i and i + half.
    Deinterleave {
        heads: usize,
    },
    /// 1 is added to each element, in float32.
    AddOne,
}

impl<'a> CanonicalWeights<'a> {
    /// Finds every weight of `uses` and checks its shape.
    pub(crate) fn new(
        model: &Model,
        checkpoint: &'a Checkpoint,
        uses: &[WeightUse],
    ) -> Result<Self, ModelError> {
        let find = |wanted: &WeightUse| Ok((wanted.name.clone(), place(model, checkpoint, wanted)?));
        let places = uses.iter().map(find).collect::<Result<_, ModelError>>()?;
        Ok(Self { checkpoint, places })
    }

    /// The format of a weight by its canonical name, without reading it; `None` for a name that no program uses.
    pub fn format(&self, name: &str) -> Option<Format> {
        let place = self.places.get(name)?;
        Some(match place.change {
            Change::None | Change::Deinterleave { .. } => place.tensor.format,
            Change::AddOne => Format::F32,
        })
    }

    /// Tensors of the checkpoint that nothing reads, in its order; a sign that the model is not what its config
    /// says. Tensors that are known to say nothing about the text model are left out.
    pub fn unused(&self) -> Vec<&'a str> {
        let used: HashSet<&str> = self.places.values().map(|place| place.tensor.name).collect();
        // A head beside a tied one: a copy of the embedding that older writers store.
        let tied = !self.places.contains_key("head.weight");
        let says_nothing = |name: &str| {
            is_ignorable(name) || (tied && (name.ends_with("lm_head.weight") || name == "output.weight"))
        };
        let known = self.checkpoint.tensors().map(|tensor| tensor.name);
        let unsupported = self.checkpoint.unsupported().map(|tensor| tensor.name);
        known.chain(unsupported).filter(|name| !used.contains(name) && !says_nothing(name)).collect()
    }
}

impl WeightSource for CanonicalWeights<'_> {
    fn weight(&self, name: &str) -> Result<WeightTensor<'_>, WeightError> {
        let Some(place) = self.places.get(name) else {
            return Err(WeightError::Missing { name: name.to_owned(), file: file(self.checkpoint) });
        };
        let (tensor, shape) = (&place.tensor, place.tensor.shape.to_vec());
        let unreadable = |error: FormatError| WeightError::Unreadable {
            name: tensor.name.to_owned(),
            file: file(self.checkpoint),
            reason: error.to_string(),
        };
        let bytes = tensor.bytes().map_err(unreadable)?;
        Ok(match place.change {
            Change::None => WeightTensor { format: tensor.format, shape, bytes },
            Change::Deinterleave { heads } => {
                let bytes = Cow::Owned(deinterleave(&bytes, tensor.shape[0], heads));
                WeightTensor { format: tensor.format, shape, bytes }
            }
            Change::AddOne => {
                let bytes = Cow::Owned(add_one(&tensor.decode().map_err(unreadable)?));
                WeightTensor { format: Format::F32, shape, bytes }
            }
        })
    }
}

/// Finds the tensor of a weight and checks it.
fn place<'a>(model: &Model, checkpoint: &'a Checkpoint, wanted: &WeightUse) -> Result<Place<'a>, ModelError> {
    let name = model.names.in_checkpoint(checkpoint, &wanted.name).unwrap_or_else(|| wanted.name.clone());
    let Some(tensor) = checkpoint.tensor(&name)? else {
        return Err(WeightError::Missing { name, file: file(checkpoint) }.into());
    };
    if tensor.shape != wanted.shape {
        let (expected, found) = (wanted.shape.clone(), tensor.shape.to_vec());
        return Err(WeightError::WrongShape { name, file: file(checkpoint), expected, found }.into());
    }
    if tensor.format.is_integer() {
        let reason = format!(
            "integers in `{}`, expected numbers with a fraction or codes with a scale",
            tensor.format
        );
        return Err(WeightError::Unreadable { name, file: file(checkpoint), reason }.into());
    }
    let change = change(model, checkpoint, &wanted.name);
    if matches!(change, Change::Deinterleave { .. })
        && tensor.shape.len() == 1
        && tensor.format.is_quantised()
    {
        let reason = format!("a vector in `{}`, expected one element a row", tensor.format);
        return Err(WeightError::Unreadable { name, file: file(checkpoint), reason }.into());
    }
    Ok(Place { tensor, change })
}

/// How the weight of this canonical name is stored.
fn change(model: &Model, checkpoint: &Checkpoint, canonical: &str) -> Change {
    let (layer, rest) = split_layer(canonical);
    let is_norm = rest.ends_with("norm.weight");
    match &checkpoint.source {
        Source::HuggingFace(_) if is_norm && model.storage.hugging_face_norms_lack_one => Change::AddOne,
        Source::Gguf(_) if model.storage.gguf_interleaves_rope => rotated_heads(&model.config, layer, rest)
            .map_or(Change::None, |heads| Change::Deinterleave { heads }),
        Source::HuggingFace(_) | Source::Gguf(_) => Change::None,
    }
}

/// The heads of a projection whose result is rotated.
fn rotated_heads(config: &ModelConfig, layer: Option<usize>, rest: &str) -> Option<usize> {
    let Mixer::Attention(attention) = &config.layers.get(layer?)?.mixer;
    match rest {
        "attention.q.weight" | "attention.q.bias" => Some(attention.heads),
        "attention.k.weight" | "attention.k.bias" => Some(attention.kv_heads),
        _ => None,
    }
}

/// Moves whole rows; a vector is a row an element. The shape was checked, so heads divide rows into even parts.
fn deinterleave(stored: &[u8], rows: usize, heads: usize) -> Vec<u8> {
    let row_bytes = stored.len() / rows;
    let head_rows = rows / heads;
    let half = head_rows / 2;
    let mut bytes = Vec::with_capacity(stored.len());
    for head in 0..heads {
        for row in 0..head_rows {
            let place = head * head_rows + 2 * (row % half) + row / half;
            bytes.extend_from_slice(&stored[place * row_bytes..(place + 1) * row_bytes]);
        }
    }
    bytes
}

fn add_one(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| (value + 1.0).to_le_bytes()).collect()
}

fn file(checkpoint: &Checkpoint) -> String {
    checkpoint.path().display().to_string()
}
