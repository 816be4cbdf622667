//! Weights in float32, whatever the checkpoint holds them in.

use super::{WeightPrecision, unsupported};
use crate::{DeviceError, Program, WeightError, WeightRole, WeightSource, WeightUse, Weights};
use gannet_tensor::TensorView;
use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

/// Decoded weights by canonical name.
#[derive(Debug)]
pub struct ReferenceWeights {
    weights: HashMap<String, Arc<Weight>>,
}

/// One weight, row-major.
#[derive(Debug)]
pub(super) struct Weight {
    pub(super) shape: Vec<usize>,
    pub(super) data: Vec<f32>,
}

impl Weight {
    /// A row of the innermost dimension.
    pub(super) fn row(&self, row: usize) -> &[f32] {
        let columns = self.shape[self.shape.len() - 1];
        &self.data[row * columns..(row + 1) * columns]
    }
}

impl ReferenceWeights {
    pub(super) fn decode(
        source: &dyn WeightSource,
        uses: &[WeightUse],
        precision: WeightPrecision,
    ) -> Result<Self, DeviceError> {
        let mut weights = HashMap::new();
        for weight in uses {
            weights.insert(weight.name.clone(), Arc::new(decode(source, weight, precision)?));
        }
        Ok(Self { weights })
    }

    /// The weights of a program, in its order.
    pub(super) fn of(&self, program: &Program) -> Result<Vec<Arc<Weight>>, DeviceError> {
        let find = |wanted: &WeightUse| {
            let name = wanted.name.clone();
            let Some(weight) = self.weights.get(&name) else {
                return Err(WeightError::Missing { name, file: UPLOADED.to_owned() });
            };
            same_shape(wanted, &weight.shape)?;
            Ok(weight.clone())
        };
        Ok(program.weights.iter().map(find).collect::<Result<_, _>>()?)
    }
}

const UPLOADED: &str = "the uploaded weights";

fn decode(
    source: &dyn WeightSource,
    wanted: &WeightUse,
    precision: WeightPrecision,
) -> Result<Weight, WeightError> {
    let tensor = source.weight(&wanted.name)?;
    same_shape(wanted, &tensor.shape)?;
    let view = TensorView::new(tensor.format, &tensor.shape, &tensor.bytes).map_err(|error| {
        WeightError::Unreadable {
            name: wanted.name.clone(),
            file: UPLOADED.to_owned(),
            reason: error.to_string(),
        }
    })?;
    let mut data = vec![0.0; view.rows() * view.columns()];
    for (row, out) in data.chunks_mut(view.columns().max(1)).enumerate() {
        match (precision, wanted.role) {
            (WeightPrecision::Stored, _) | (WeightPrecision::Bf16, WeightRole::Vector) => {
                view.decode_row(row, out)
            }
            (WeightPrecision::Bf16, _) => view.format().decode_as_bf16(view.row(row), out),
        }
    }
    Ok(Weight { shape: tensor.shape, data })
}

fn same_shape(wanted: &WeightUse, found: &[usize]) -> Result<(), WeightError> {
    if wanted.shape == found {
        return Ok(());
    }
    let (expected, found) = (wanted.shape.clone(), found.to_vec());
    Err(WeightError::WrongShape { name: wanted.name.clone(), file: UPLOADED.to_owned(), expected, found })
}

impl Weights for ReferenceWeights {
    fn bytes(&self) -> u64 {
        self.weights.values().map(|weight| 4 * weight.data.len() as u64).sum()
    }

    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The weights as this backend made them.
pub(super) fn ours(weights: &dyn Weights) -> Result<&ReferenceWeights, DeviceError> {
    let ours = weights.as_any().downcast_ref();
    ours.ok_or_else(|| unsupported("compile", "the weights were uploaded to another backend"))
}
