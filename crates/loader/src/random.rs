//! Weights out of thin air, for measurements: random numbers in the shapes that a program reads, so that no large file has to
//! exist.
//!
//! Matrices are in bf16 and of a variance that keeps values as large as they are; vectors are ones in float32. A weight is
//! a function of its name and shape. A run of numbers is made once a weight and repeated, in a length that shares no factor with
//! the widths of matrices, since only speed counts.

use gannet_ops::{Program, WeightError, WeightRole, WeightSource, WeightTensor, WeightUse};
use gannet_tensor::Format;
use std::borrow::Cow;
use std::collections::HashMap;

/// Numbers of a run: a prime.
const RUN: usize = 1_048_573;

/// The weights of a program.
pub(crate) struct RandomWeights<'a> {
    uses: HashMap<&'a str, &'a WeightUse>,
}

impl<'a> RandomWeights<'a> {
    pub(crate) fn new(program: &'a Program) -> Self {
        Self { uses: program.weights.iter().map(|used| (used.name.as_str(), used)).collect() }
    }
}

/// Bytes of all weights.
pub(crate) fn bytes(program: &Program) -> u64 {
    let of = |used: &WeightUse| {
        let (elements, format) = (used.shape.iter().product::<usize>(), format(used.role));
        format.row_bytes(elements).map_or(u64::MAX, |bytes| bytes as u64)
    };
    program.weights.iter().map(of).fold(0, u64::saturating_add)
}

/// What a weight is encoded in.
pub fn format(role: WeightRole) -> Format {
    match role {
        WeightRole::Vector | WeightRole::Convolution => Format::F32,
        WeightRole::Matrix | WeightRole::Embedding | WeightRole::TiedEmbedding | WeightRole::Experts => {
            Format::Bf16
        }
    }
}

impl WeightSource for RandomWeights<'_> {
    fn weight(&self, name: &str) -> Result<WeightTensor<'_>, WeightError> {
        let used = self.uses.get(name).ok_or_else(|| WeightError::Missing {
            name: name.to_owned(),
            file: "random weights".to_owned(),
        })?;
        let count = used.shape.iter().product();
        let bytes = if format(used.role) == Format::F32 {
            std::iter::repeat_n(1.0f32.to_le_bytes(), count).flatten().collect()
        } else {
            matrix(name, count, used.shape[used.shape.len() - 1])
        };
        Ok(WeightTensor { format: format(used.role), shape: used.shape.clone(), bytes: Cow::Owned(bytes) })
    }
}

/// Uniform numbers of variance `1 / width` in bf16.
fn matrix(name: &str, count: usize, width: usize) -> Vec<u8> {
    let mut state = name.bytes().fold(7u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(u64::from(byte)));
    let scale = (3.0 / width as f32).sqrt();
    let mut number = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let uniform = (state >> 40) as f32 / (1 << 23) as f32 - 1.0;
        // The upper half of a float32.
        (((scale * uniform).to_bits() >> 16) as u16).to_le_bytes()
    };
    let run: Vec<u8> = (0..RUN.min(count)).flat_map(|_| number()).collect();
    let mut bytes = Vec::with_capacity(2 * count);
    while bytes.len() < 2 * count {
        let more = run.len().min(2 * count - bytes.len());
        bytes.extend_from_slice(&run[..more]);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use crate::{LoadOptions, load};
    use gannet_backend_cpu::{CpuBackend, CpuOptions};

    #[test]
    fn a_description_without_weights_is_a_model_to_measure() {
        let folder = tempfile::tempdir().expect("there is room");
        let config = concat!(env!("CARGO_MANIFEST_DIR"), "/../../goldens/qwen3/config.json");
        std::fs::copy(config, folder.path().join("config.json")).expect("the golden is there");
        let backend = CpuBackend::new(CpuOptions::default()).expect("there are threads");
        let refused = load(folder.path(), &backend, &LoadOptions::default(), &|_| {}).map(drop);
        assert!(refused.expect_err("it has no weights").to_string().contains("safetensors"));
        let options = LoadOptions { random_weights: true, ..LoadOptions::default() };
        let mut loaded = load(folder.path(), &backend, &options, &|_| {}).expect("it needs none");
        let tokens = [3, 7, 200].map(gannet_ops::TokenId);
        gannet_engine::evaluate(&mut loaded.runner, &tokens, 0, |_, scores| {
            assert_eq!(scores.len(), 272);
            assert!(scores.iter().all(|score| score.is_finite()) && scores[0] != scores[1]);
        })
        .expect("it runs");
    }
}
