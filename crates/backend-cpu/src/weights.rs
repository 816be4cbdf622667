//! Weights as the kernels read them: matrices in their checkpoint's format, vectors as float32.
//!
//! A matrix is copied row by row as it stands, on a cache line; kernels decode it as they go. A layout made
//! for a vector width, and the pages it lies in, would be chosen here, once, at load.

use crate::memory::Buffer;
use gannet_ops::{DeviceError, WeightError, WeightRole, WeightSource, WeightTensor, WeightUse, Weights};
use gannet_tensor::Format;
use std::any::Any;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// A weight in memory.
pub(crate) enum Weight {
    /// Decoded: norms, biases, gates, and convolutions as `[kernel, channels]`.
    Vector(Vec<f32>),
    /// As the checkpoint has it.
    Matrix(Matrix),
}

/// `[rows, columns]` in some format; the matrices of experts follow one another.
pub(crate) struct Matrix {
    pub(crate) format: Format,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) row_bytes: usize,
    bytes: Buffer,
}

impl Matrix {
    /// The bytes of some rows.
    pub(crate) fn rows(&self, rows: std::ops::Range<usize>) -> &[u8] {
        &self.bytes.as_slice()[rows.start * self.row_bytes..rows.end * self.row_bytes]
    }
}

/// All weights of a model and its drafters, by canonical name.
pub(crate) struct CpuWeights {
    by_name: HashMap<String, (Vec<usize>, Arc<Weight>)>,
}

impl CpuWeights {
    pub(crate) fn upload(source: &dyn WeightSource, uses: &[WeightUse]) -> Result<Self, DeviceError> {
        let mut by_name = HashMap::new();
        for used in uses {
            match by_name.entry(used.name.clone()) {
                Entry::Occupied(_) => {}
                Entry::Vacant(place) => {
                    let weight = load(used, &source.weight(&used.name)?)?;
                    place.insert((used.shape.clone(), Arc::new(weight)));
                }
            }
        }
        Ok(Self { by_name })
    }

    /// The weight that a program asks for.
    pub(crate) fn get(&self, used: &WeightUse) -> Result<Arc<Weight>, WeightError> {
        let (name, file) = (used.name.clone(), "the uploaded weights".to_owned());
        let Some((shape, weight)) = self.by_name.get(&used.name) else {
            return Err(WeightError::Missing { name, file });
        };
        if *shape != used.shape {
            return Err(WeightError::WrongShape {
                name,
                file,
                expected: used.shape.clone(),
                found: shape.clone(),
            });
        }
        Ok(Arc::clone(weight))
    }
}

impl Weights for CpuWeights {
    fn bytes(&self) -> u64 {
        let bytes = |weight: &Weight| match weight {
            Weight::Vector(vector) => size_of_val(&vector[..]),
            Weight::Matrix(matrix) => matrix.bytes.bytes(),
        };
        self.by_name.values().map(|(_, weight)| bytes(weight) as u64).sum()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn load(used: &WeightUse, tensor: &WeightTensor<'_>) -> Result<Weight, DeviceError> {
    let (name, file) = (used.name.clone(), "the checkpoint".to_owned());
    if tensor.shape != used.shape {
        let (expected, found) = (used.shape.clone(), tensor.shape.clone());
        return Err(WeightError::WrongShape { name, file, expected, found }.into());
    }
    let Some(row_bytes) = row_bytes(tensor) else {
        let (format, shape, found) = (tensor.format, &tensor.shape, tensor.bytes.len());
        let reason = format!("{found} bytes are not a tensor of shape {shape:?} in whole blocks of {format}");
        return Err(WeightError::Unreadable { name, file, reason }.into());
    };
    let columns = tensor.shape.last().copied().unwrap_or(1);
    let rows = tensor.bytes.len() / row_bytes.max(1);
    match used.role {
        WeightRole::Vector => Ok(Weight::Vector(decoded(tensor, rows * columns))),
        WeightRole::Convolution => Ok(Weight::Vector(transposed(&decoded(tensor, rows * columns), columns))),
        WeightRole::Matrix | WeightRole::Embedding | WeightRole::TiedEmbedding | WeightRole::Experts => {
            let mut bytes = Buffer::zeroed(tensor.bytes.len(), || format!("weight `{name}`"))?;
            bytes.as_mut_slice().copy_from_slice(&tensor.bytes);
            Ok(Weight::Matrix(Matrix { format: tensor.format, rows, columns, row_bytes, bytes }))
        }
    }
}

/// Bytes of a row of the tensor, where its bytes are the whole rows that its shape says.
fn row_bytes(tensor: &WeightTensor<'_>) -> Option<usize> {
    let (columns, outer) = tensor.shape.split_last().unwrap_or((&1, &[]));
    let row_bytes = tensor.format.row_bytes(*columns)?;
    let rows = outer.iter().try_fold(1usize, |rows, dim| rows.checked_mul(*dim))?;
    (rows.checked_mul(row_bytes)? == tensor.bytes.len()).then_some(row_bytes)
}

fn decoded(tensor: &WeightTensor<'_>, elements: usize) -> Vec<f32> {
    let mut vector = vec![0.0; elements];
    tensor.format.decode(&tensor.bytes, &mut vector);
    vector
}

/// `[rows, columns]` as `[columns, rows]`.
fn transposed(matrix: &[f32], columns: usize) -> Vec<f32> {
    (0..columns).flat_map(|column| matrix.iter().skip(column).step_by(columns)).copied().collect()
}
