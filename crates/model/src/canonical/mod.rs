//! A checkpoint's weights under their canonical names and in canonical form.
//!
//! What differs between files is undone here, once, at load: names, prefixes, projections that are stored as one,
//! experts that are stored one by one, the order of rows that interleaved ropes want, the 1 that some norms lack. So
//! every program rotates halves and norms plainly. Most weights are the mapped bytes themselves; rows are moved as
//! bytes, whatever their format ([`rows`] says which). Integers are no weights: no program reads codes without their scale.
//!
//! [`CanonicalWeights::new`] finds and measures every weight of a program before any is read, so that a missing
//! or misshapen one is an error before memory is spent.

mod rows;

use crate::ModelError;
use crate::config::{LayerConfig, Mixer};
use crate::families::Storage;
use crate::names::{self, DRAFT, Form, Found, Names, Part, split_layer};
use crate::pooling::PROJECTION;
use crate::rope::RopeConfig;
use gannet_formats::{Checkpoint, FormatError, Source, Tensor};
use gannet_ops::{WeightError, WeightSource, WeightTensor, WeightUse};
use gannet_tensor::Format;
use rows::{Interleaved, RowOrder};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// How the weights of a model, or of a drafter, are read from a checkpoint.
#[derive(Clone, Copy)]
pub(crate) struct Reading<'a> {
    pub(crate) names: &'static Names,
    pub(crate) storage: Storage,
    pub(crate) layers: &'a [LayerConfig],
    pub(crate) ropes: &'a [RopeConfig],
    pub(crate) place: names::Place,
}

/// The weights that a program reads, found in a checkpoint.
pub struct CanonicalWeights<'a> {
    checkpoint: &'a Checkpoint,
    places: HashMap<String, Stored<'a>>,
    /// Layers of the model, beyond which blocks of a GGUF file belong to a head beside it.
    layers: usize,
}

/// Tensors that a text model doesn't read, by what they belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedOver {
    /// What they belong to, for people.
    pub part: &'static str,
    /// How many there are.
    pub tensors: usize,
    /// Their bytes.
    pub bytes: usize,
}

/// Where a weight is and how it becomes canonical.
struct Stored<'a> {
    /// One, or one an expert.
    tensors: Vec<Tensor<'a>>,
    /// The canonical shape.
    shape: Vec<usize>,
    /// The shape as a stack of matrices: elements of a stack of vectors are rows of one column.
    view: Vec<usize>,
    /// Which rows of the tensors are its rows.
    order: RowOrder,
    /// Columns are stored as rows.
    transposed: bool,
    change: Change,
}

/// What is done to each element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    None,
    /// 1 is added, in float32.
    AddOne,
    /// x becomes `-exp(x)`, in float32.
    MinusExponential,
}

impl<'a> CanonicalWeights<'a> {
    /// Finds every weight of `uses` and checks its shape. Names of a drafter are read as the last of `readings` says.
    pub(crate) fn new(
        checkpoint: &'a Checkpoint,
        uses: &[WeightUse],
        readings: &[Reading<'_>],
        projections: &'a [Arc<Checkpoint>],
    ) -> Result<Self, ModelError> {
        let find = |wanted: &WeightUse| {
            if let Some(folder) = projection(&wanted.name).and_then(|number| projections.get(number)) {
                return Ok((wanted.name.clone(), projected(folder, wanted)?));
            }
            let is_drafters = wanted.name.starts_with(DRAFT);
            let reading = if is_drafters { readings.last() } else { readings.first() };
            let reading = reading.expect("callers bring a reading");
            Ok((wanted.name.clone(), stored(reading, checkpoint, wanted)?))
        };
        let places = uses.iter().map(find).collect::<Result<_, ModelError>>()?;
        let layers = readings.first().map_or(0, |reading| reading.layers.len());
        Ok(Self { checkpoint, places, layers })
    }

    /// The format of a weight by its canonical name, without reading it; `None` for a name that no program uses.
    pub fn format(&self, name: &str) -> Option<Format> {
        self.places.get(name).map(Stored::format)
    }

    /// Tensors of the checkpoint that nothing reads, in its order; a sign that the model is not what its config
    /// says. Those of [`CanonicalWeights::passed_over`] are left out.
    pub fn unused(&self) -> Vec<&'a str> {
        let is_explained = |name: &str| names::is_read_or_derived(name) || self.part(name).is_some();
        self.unread().filter(|name| !is_explained(name)).collect()
    }

    /// Tensors that are known to belong to something that a text model is run without.
    pub fn passed_over(&self) -> Vec<PassedOver> {
        let mut found: Vec<PassedOver> = Vec::new();
        for name in self.unread() {
            let Some(part) = self.part(name) else { continue };
            let bytes = self.checkpoint.tensor(name).ok().flatten().map_or(0, |tensor| tensor.byte_length());
            match found.iter_mut().find(|known| known.part == part) {
                Some(known) => (known.tensors, known.bytes) = (known.tensors + 1, known.bytes + bytes),
                None => found.push(PassedOver { part, tensors: 1, bytes }),
            }
        }
        found
    }

    /// What a tensor that is not read belongs to.
    fn part(&self, name: &str) -> Option<&'static str> {
        if names::is_of_another_modality(name) {
            return Some("images and other modalities");
        }
        names::is_beside_target(name, self.layers).then_some("a head that predicts further tokens")
    }

    fn unread(&self) -> impl Iterator<Item = &'a str> + use<'_, 'a> {
        let tensors = self.places.values().flat_map(|stored| &stored.tensors);
        let used: HashSet<&str> = tensors.map(|tensor| tensor.name).collect();
        // A head beside a tied one: a copy of the embedding that older writers store.
        let tied = !self.places.contains_key("head.weight");
        let is_copy = move |name: &str| tied && (name.ends_with("lm_head.weight") || name == "output.weight");
        let known = self.checkpoint.tensors().map(|tensor| tensor.name);
        let unsupported = self.checkpoint.unsupported().map(|tensor| tensor.name);
        known.chain(unsupported).filter(move |name| !used.contains(name) && !is_copy(name))
    }
}

impl WeightSource for CanonicalWeights<'_> {
    fn weight(&self, name: &str) -> Result<WeightTensor<'_>, WeightError> {
        let Some(stored) = self.places.get(name) else {
            return Err(WeightError::Missing { name: name.to_owned(), file: file(self.checkpoint) });
        };
        let bytes = stored.bytes().map_err(|error| WeightError::Unreadable {
            name: stored.tensors[0].name.to_owned(),
            file: file(self.checkpoint),
            reason: error.to_string(),
        })?;
        Ok(WeightTensor { format: stored.format(), shape: stored.shape.clone(), bytes })
    }

    fn give_back(&self, name: &str) {
        let tensors = self.places.get(name).into_iter().flat_map(|stored| &stored.tensors);
        tensors.for_each(Tensor::give_back);
    }
}

impl<'a> Stored<'a> {
    fn format(&self) -> Format {
        match self.change {
            Change::None => self.tensors[0].format,
            Change::AddOne | Change::MinusExponential => Format::F32,
        }
    }

    fn bytes(&self) -> Result<Cow<'a, [u8]>, FormatError> {
        let format = self.tensors[0].format;
        let bytes = if self.transposed {
            Cow::Owned(self.order.columns(&self.tensors[0].bytes()?, format, &self.view))
        } else if self.tensors.len() == 1 && self.order.is_stored_order() {
            self.tensors[0].bytes()?
        } else {
            let stored = self.tensors.iter().map(Tensor::bytes).collect::<Result<Vec<_>, _>>()?;
            Cow::Owned(self.order.gather(&stored, format, &self.view))
        };
        let changed = |change: fn(f32) -> f32| {
            let mut values = vec![0.0; self.shape.iter().product()];
            format.decode(&bytes, &mut values);
            Cow::Owned(values.into_iter().flat_map(|value| change(value).to_le_bytes()).collect())
        };
        Ok(match self.change {
            Change::AddOne => changed(|value| value + 1.0),
            Change::MinusExponential => changed(|value| -value.exp()),
            Change::None => bytes,
        })
    }
}

/// Which projection of an embedding model a weight is.
fn projection(name: &str) -> Option<usize> {
    name.strip_prefix("projections.")?.strip_suffix(".weight")?.parse().ok()
}

/// A projection that lies in a folder of its own.
fn projected<'a>(folder: &'a Checkpoint, wanted: &WeightUse) -> Result<Stored<'a>, ModelError> {
    let tensor = tensor(folder, PROJECTION.to_owned(), &wanted.shape, Form::Whole)?;
    Ok(Stored {
        tensors: vec![tensor],
        shape: wanted.shape.clone(),
        view: wanted.shape.clone(),
        order: RowOrder::new(&wanted.shape, Part::All, None, None),
        transposed: false,
        change: Change::None,
    })
}

/// Finds the tensors of a weight and checks them.
fn stored<'a>(
    reading: &Reading<'_>,
    checkpoint: &'a Checkpoint,
    wanted: &WeightUse,
) -> Result<Stored<'a>, ModelError> {
    let found = reading.names.find(checkpoint, reading.place, &wanted.name);
    let Some(found) = found else {
        return Err(WeightError::Missing { name: wanted.name.clone(), file: file(checkpoint) }.into());
    };
    let inner = wanted.name.strip_prefix(DRAFT).unwrap_or(&wanted.name);
    let (layer, rest) = split_layer(inner);
    let layer = layer.and_then(|layer| reading.layers.get(layer));
    // Blocks can't be transposed, so quantised experts are stored as rows.
    let first = checkpoint.tensor(&found.name())?;
    let is_quantised = first.is_some_and(|tensor| tensor.format.is_quantised());
    let (part, transposed) = match found.form {
        Form::Transposed(part) if is_quantised => (part, false),
        Form::Whole | Form::Squeezed | Form::EachExpert => (Part::All, false),
        Form::Part(part) | Form::Elements(part) => (part, false),
        Form::Transposed(part) => (part, true),
    };
    let mut view = wanted.shape.clone();
    view.extend(matches!(found.form, Form::Elements(_)).then_some(1));
    let interleaved = layer.and_then(|layer| interleaved(reading, checkpoint, layer, rest));
    let order = RowOrder::new(&view, part, layer.map(|layer| &layer.mixer), interleaved);
    let stored_shape = order.stored_shape(&view, transposed);
    let tensors = tensors(checkpoint, wanted, &found, &stored_shape[..wanted.shape.len()])?;
    let moves_elements = view.last() == Some(&1) || view.len() == 1;
    let moves_elements = moves_elements && !order.is_stored_order();
    if let Some(quantised) = tensors.iter().find(|tensor| tensor.format.is_quantised())
        && (moves_elements || transposed)
    {
        let reason =
            format!("a tensor in `{}`, expected single elements, as they change places", quantised.format);
        return Err(WeightError::Unreadable { name: found.name(), file: file(checkpoint), reason }.into());
    }
    let change = change(reading.storage, checkpoint, rest);
    Ok(Stored { tensors, shape: wanted.shape.clone(), view, order, transposed, change })
}

/// The tensors of a weight, of the shapes that it implies.
fn tensors<'a>(
    checkpoint: &'a Checkpoint,
    wanted: &WeightUse,
    found: &Found,
    expected: &[usize],
) -> Result<Vec<Tensor<'a>>, ModelError> {
    let Form::EachExpert = found.form else {
        return Ok(vec![tensor(checkpoint, found.name(), expected, found.form)?]);
    };
    let experts = wanted.shape[0];
    if names::has_tensor(checkpoint, &found.name_of(experts)) {
        return Err(ModelError::WrongSize {
            file: file(checkpoint),
            what: format!("the number of experts with a tensor like `{}`", found.name()),
            found: format!("above {experts}"),
            expected: format!("{experts}, as the config says"),
        });
    }
    let each =
        (0..experts).map(|expert| tensor(checkpoint, found.name_of(expert), &wanted.shape[1..], found.form));
    let tensors: Vec<Tensor<'a>> = each.collect::<Result<_, _>>()?;
    if let Some(other) = tensors.iter().find(|tensor| tensor.format != tensors[0].format) {
        let reason = format!("it is in `{}`, the first expert's in `{}`", other.format, tensors[0].format);
        let name = other.name.to_owned();
        return Err(WeightError::Unreadable { name, file: file(checkpoint), reason }.into());
    }
    Ok(tensors)
}

fn tensor<'a>(
    checkpoint: &'a Checkpoint,
    name: String,
    expected: &[usize],
    form: Form,
) -> Result<Tensor<'a>, ModelError> {
    let Some(tensor) = checkpoint.tensor(&name)? else {
        return Err(WeightError::Missing { name, file: file(checkpoint) }.into());
    };
    let longer = |shape: &[usize]| shape.iter().copied().filter(|length| *length > 1).collect::<Vec<_>>();
    let fits = match form {
        Form::Squeezed => longer(tensor.shape) == longer(expected),
        Form::Whole | Form::Part(_) | Form::Elements(_) | Form::EachExpert | Form::Transposed(_) => {
            tensor.shape == expected
        }
    };
    if tensor.format.is_integer() {
        let reason = format!(
            "integers in `{}`, expected numbers with a fraction or codes with a scale",
            tensor.format
        );
        return Err(WeightError::Unreadable { name, file: file(checkpoint), reason }.into());
    }
    if fits {
        return Ok(tensor);
    }
    let (expected, found) = (expected.to_vec(), tensor.shape.to_vec());
    Err(WeightError::WrongShape { name, file: file(checkpoint), expected, found }.into())
}

/// What is done to the elements of the weight with this name within its layer.
fn change(storage: Storage, checkpoint: &Checkpoint, rest: &str) -> Change {
    let is_norm = rest.ends_with("norm.weight") && !rest.ends_with("gated_norm.weight");
    match &checkpoint.source {
        Source::HuggingFace(_) if is_norm && storage.hugging_face_norms_lack_one => Change::AddOne,
        Source::HuggingFace(_) if rest == "delta.decay.weight" => Change::MinusExponential,
        Source::HuggingFace(_) | Source::Gguf(_) => Change::None,
    }
}

/// The heads of a projection whose rows are stored in the order that an interleaved rope wants.
fn interleaved(
    reading: &Reading<'_>,
    checkpoint: &Checkpoint,
    layer: &LayerConfig,
    rest: &str,
) -> Option<Interleaved> {
    let is_interleaved = match &checkpoint.source {
        Source::HuggingFace(_) => reading.storage.hugging_face_interleaves_rope,
        Source::Gguf(_) => reading.storage.gguf_interleaves_rope,
    };
    let (Mixer::Attention(attention), true) = (&layer.mixer, is_interleaved) else { return None };
    let rows = match rest {
        "attention.q.weight" | "attention.q.bias" | "attention.k.weight" | "attention.k.bias" => {
            attention.head_dim
        }
        _ => return None,
    };
    let dims = attention.rope.and_then(|rope| reading.ropes.get(rope.0)).map_or(rows, |rope| rope.dims);
    Some(Interleaved { rows, dims })
}

fn file(checkpoint: &Checkpoint) -> String {
    checkpoint.path().display().to_string()
}
