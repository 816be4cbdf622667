//! Weights out of thin air, for measurements: random numbers in the shapes that a program reads, so that no large file has to
//! exist.
//!
//! Matrices are in bf16, or in the formats that common files have (routers of experts then in float32), and of a variance that keeps values as large as they are; vectors are ones in
//! float32. A weight is a function of its name, shape and format. A run of numbers is made once a weight and repeated, in a length that shares no
//! factor with the widths of matrices, since only speed counts.

use gannet_ops::{Program, WeightError, WeightRole, WeightSource, WeightTensor, WeightUse};
use gannet_tensor::Format;
use gannet_tensor::decode::{codes::bf16_bits, random_blocks};
use std::borrow::Cow;
use std::collections::HashMap;

/// Numbers of a run, and blocks of 32 and 256 of one: primes.
const RUN: usize = 1_048_573;
const BLOCKS: [(usize, usize); 2] = [(32, 32_749), (256, 4_093)];

/// What the names of routers end in, which files keep in float32 whatever else is in codes.
const ROUTER: &str = ".router.weight";

/// What matrices are encoded in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RandomFormat {
    /// All in bf16.
    #[default]
    Bf16,
    /// All in q8_0, where rows are whole blocks.
    Q8_0,
    /// As files called Q4_K_M: q4_k, but q6_k for the scores and for the values and the down projections of half of the layers; q5_0 and q8_0 in
    /// place of these where rows are no multiple of 256.
    Q4KM,
}

impl RandomFormat {
    /// What a weight is encoded in.
    pub fn of(self, used: &WeightUse) -> Format {
        match used.role {
            WeightRole::Vector | WeightRole::Convolution => Format::F32,
            WeightRole::Matrix | WeightRole::Embedding | WeightRole::TiedEmbedding | WeightRole::Experts => {
                if self != RandomFormat::Bf16 && used.name.ends_with(ROUTER) {
                    return Format::F32;
                }
                let columns = used.shape[used.shape.len() - 1];
                let is_wide = is_wide(used);
                let wanted: &[Format] = match self {
                    RandomFormat::Bf16 => &[],
                    RandomFormat::Q8_0 => &[Format::Q8_0],
                    RandomFormat::Q4KM if is_wide => &[Format::Q6K, Format::Q8_0],
                    RandomFormat::Q4KM => &[Format::Q4K, Format::Q5_0],
                };
                let fits = |format: &&Format| columns.is_multiple_of(format.block_elements());
                wanted.iter().find(fits).copied().unwrap_or(Format::Bf16)
            }
        }
    }
}

/// Whether files called Q4_K_M give a weight more bits. They do for the first and last eighth of the layers and for every third between; every other layer is as
/// many, and needs no number of layers.
fn is_wide(used: &WeightUse) -> bool {
    let is_of = |stem: &str| used.name.contains(stem);
    let layer = used.name.split('.').find_map(|part| part.parse::<usize>().ok());
    let is_scored =
        used.role == WeightRole::TiedEmbedding || layer.is_none() && used.role == WeightRole::Matrix;
    is_scored
        || layer.is_some_and(|layer| layer.is_multiple_of(2))
            && (is_of("feed_forward.down") || is_of("feed_forward.experts.down") || is_of("attention.v."))
}

/// The weights of a program.
pub(crate) struct RandomWeights<'a> {
    uses: HashMap<&'a str, &'a WeightUse>,
    format: RandomFormat,
}

impl<'a> RandomWeights<'a> {
    pub(crate) fn new(program: &'a Program, format: RandomFormat) -> Self {
        Self { uses: program.weights.iter().map(|used| (used.name.as_str(), used)).collect(), format }
    }
}

/// Bytes of all weights.
pub(crate) fn bytes(program: &Program, format: RandomFormat) -> u64 {
    let of = |used: &WeightUse| {
        let elements = used.shape.iter().product::<usize>();
        format.of(used).row_bytes(elements).map_or(u64::MAX, |bytes| bytes as u64)
    };
    program.weights.iter().map(of).fold(0, u64::saturating_add)
}

impl WeightSource for RandomWeights<'_> {
    fn weight(&self, name: &str) -> Result<WeightTensor<'_>, WeightError> {
        let used = self.uses.get(name).ok_or_else(|| WeightError::Missing {
            name: name.to_owned(),
            file: "random weights".to_owned(),
        })?;
        let (count, format) = (used.shape.iter().product::<usize>(), self.format.of(used));
        let bytes = match used.role {
            WeightRole::Vector | WeightRole::Convolution => 1.0f32.to_le_bytes().repeat(count),
            WeightRole::Matrix | WeightRole::Embedding | WeightRole::TiedEmbedding | WeightRole::Experts => {
                matrix(name, format, (count, used.shape[used.shape.len() - 1]))
            }
        };
        Ok(WeightTensor { format, shape: used.shape.clone(), bytes: Cow::Owned(bytes) })
    }
}

/// Numbers of variance about `1 / width`.
fn matrix(name: &str, format: Format, (count, width): (usize, usize)) -> Vec<u8> {
    let seed = name.bytes().fold(7u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(u64::from(byte)));
    let deviation = (width as f32).sqrt().recip();
    let blocks = count / format.block_elements();
    let most = BLOCKS.into_iter().find(|(elements, _)| *elements == format.block_elements());
    let run = most.and_then(|(_, most)| random_blocks(format, most.min(blocks), deviation, seed));
    let run = run.unwrap_or_else(|| uniform(format, RUN.min(count), (3.0f32.sqrt() * deviation, seed)));
    let total = blocks * format.block_bytes();
    let mut bytes = Vec::with_capacity(total);
    while bytes.len() < total {
        let more = run.len().min(total - bytes.len());
        bytes.extend_from_slice(&run[..more]);
    }
    bytes
}

/// Uniform numbers in f32 or bf16.
fn uniform(format: Format, count: usize, (limit, seed): (f32, u64)) -> Vec<u8> {
    let mut state = seed;
    let mut number = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        limit * ((state >> 40) as f32 / (1 << 23) as f32 - 1.0)
    };
    if format == Format::F32 {
        return (0..count).flat_map(|_| number().to_le_bytes()).collect();
    }
    (0..count).flat_map(|_| bf16_bits(number()).to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::RandomFormat;
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
        for format in [RandomFormat::Bf16, RandomFormat::Q8_0, RandomFormat::Q4KM] {
            let options = LoadOptions { random_weights: Some(format), ..LoadOptions::default() };
            let mut loaded = load(folder.path(), &backend, &options, &|_| {}).expect("it needs none");
            let tokens = [3, 7, 200].map(gannet_ops::TokenId);
            gannet_engine::evaluate(&mut loaded.runner, &tokens, 0, |_, scores| {
                assert_eq!(scores.len(), 272);
                assert!(scores.iter().all(|score| score.is_finite()) && scores[0] != scores[1]);
            })
            .expect("it runs");
        }
    }
}
