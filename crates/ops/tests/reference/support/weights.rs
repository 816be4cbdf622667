//! Weights that a name alone determines, so that other programs can make the same ones: an FNV-1a hash of the name
//! seeds splitmix64, and the place in the tensor counts.

use gannet_ops::{WeightError, WeightSource, WeightTensor, WeightUse};
use gannet_tensor::Format;
use std::borrow::Cow;
use std::collections::HashMap;

/// The number of place n of the tensor: uniform in [-0.5, 0.5).
pub(crate) fn uniform(name: &str, n: u64) -> f32 {
    let hash = |seed: u32, byte: u8| (seed ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let seed = name.bytes().fold(0x811c_9dc5, hash);
    let mut x = (u64::from(seed) << 32).wrapping_add(n).wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^= x >> 31;
    (x >> 40) as f32 / (1u64 << 24) as f32 - 0.5
}

/// A whole tensor in the form that programs read: norms around 1, whether their checkpoint keeps them around 1 or
/// around 0; the decay as minus the exponential of the checkpoint's logarithm.
pub(crate) fn tensor(name: &str, shape: &[usize]) -> Vec<f32> {
    let value = |n: u64| {
        let u = uniform(name, n);
        match shape.len() {
            1 if name.ends_with("A_log") => -u.exp(),
            1 if name.ends_with("bias") || name.ends_with("sinks") => u,
            1 => 1.0 + u,
            _ => 0.5 * u,
        }
    };
    (0..shape.iter().product::<usize>() as u64).map(value).collect()
}

/// A checkpoint that has what the programs ask for.
pub(crate) struct Generated {
    shapes: HashMap<String, Vec<usize>>,
}

impl Generated {
    pub(crate) fn of(uses: &[WeightUse]) -> Self {
        Self { shapes: uses.iter().map(|weight| (weight.name.clone(), weight.shape.clone())).collect() }
    }

    /// The checkpoint with one tensor of another shape.
    pub(crate) fn reshaped(mut self, name: &str, shape: &[usize]) -> Self {
        self.shapes.insert(name.to_owned(), shape.to_vec());
        self
    }
}

impl WeightSource for Generated {
    fn weight(&self, name: &str) -> Result<WeightTensor<'_>, WeightError> {
        let missing = || WeightError::Missing { name: name.to_owned(), file: "nothing".to_owned() };
        let shape = self.shapes.get(name).ok_or_else(missing)?;
        let bytes = tensor(name, shape).iter().flat_map(|x| x.to_le_bytes()).collect();
        Ok(WeightTensor { format: Format::F32, shape: shape.clone(), bytes: Cow::Owned(bytes) })
    }
}

// The expected numbers are those of the same recipe in Python's integers.
#[test]
fn generator_gives_the_numbers_of_other_programs() {
    let first: Vec<f32> = (0..4).map(|n| uniform("model.norm.weight", n)).collect();
    assert_eq!(first, [0.39558393, 0.16974628, 0.1720959, 0.3213861]);
}
