//! The tensors of a checkpoint, as a list and as sums by format.

use crate::quantity;
use gannet_formats::Checkpoint;
use serde::Serialize;
use std::collections::BTreeMap;

/// One tensor.
#[derive(Debug, Serialize)]
pub(crate) struct TensorFacts {
    name: String,
    format: String,
    /// Outermost first.
    shape: Vec<usize>,
    /// Absent where the format is not supported.
    bytes: Option<u64>,
}

/// The tensors of one format.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct FormatFacts {
    pub(crate) format: String,
    pub(crate) tensors: usize,
    pub(crate) elements: u64,
    pub(crate) bytes: u64,
}

/// All tensors, in the order of the files, those of unsupported types last.
pub(crate) fn tensors(checkpoint: &Checkpoint) -> Vec<TensorFacts> {
    let supported = checkpoint.tensors().map(|tensor| TensorFacts {
        name: tensor.name.to_owned(),
        format: tensor.format.to_string(),
        shape: tensor.shape.to_vec(),
        bytes: Some(tensor.byte_length() as u64),
    });
    let unsupported = checkpoint.unsupported().map(|tensor| TensorFacts {
        name: tensor.name.to_owned(),
        format: tensor.kind.to_owned(),
        shape: tensor.shape.to_vec(),
        bytes: None,
    });
    supported.chain(unsupported).collect()
}

/// What the tensors of each format add up to, the largest sum first.
pub(crate) fn by_format(checkpoint: &Checkpoint) -> Vec<FormatFacts> {
    let mut sums: BTreeMap<&str, FormatFacts> = BTreeMap::new();
    for tensor in checkpoint.tensors() {
        let name = tensor.format.name();
        let empty = FormatFacts { format: name.to_owned(), tensors: 0, elements: 0, bytes: 0 };
        let sum = sums.entry(name).or_insert(empty);
        sum.tensors += 1;
        sum.elements += tensor.elements() as u64;
        sum.bytes += tensor.byte_length() as u64;
    }
    let mut sums: Vec<FormatFacts> = sums.into_values().collect();
    sums.sort_by_key(|sum| std::cmp::Reverse(sum.bytes));
    sums
}

/// One line a tensor.
pub(crate) fn lines(tensors: &[TensorFacts]) -> Vec<String> {
    let width = tensors.iter().map(|tensor| tensor.name.len()).max().unwrap_or(0);
    let line = |tensor: &TensorFacts| {
        let TensorFacts { name, format, shape, bytes } = tensor;
        let bytes = bytes.map_or("not supported".to_owned(), quantity::bytes);
        format!("{name:<width$}  {format:<5}  {:<16}  {bytes}", format!("{shape:?}"))
    };
    tensors.iter().map(line).collect()
}
