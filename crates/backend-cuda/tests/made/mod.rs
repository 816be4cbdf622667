//! Weights made up by their names, for programs that no checkpoint is there for.

use gannet_ops::{WeightRole, WeightUse};
use gannet_tensor::Format;
use gannet_tensor::decode::codes::bf16_bits;

/// What the numbers of a weight begin from.
pub(crate) fn seed(name: &str) -> u64 {
    name.bytes().fold(7u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(u64::from(byte)))
}

/// The deviation of a matrix's numbers that keeps values small.
pub(crate) fn deviation(used: &WeightUse) -> f32 {
    (used.shape[used.shape.len() - 1] as f32).sqrt().recip()
}

/// Uniform numbers times `sign` in f32, f16 or bf16; those of a vector lie about 1.
pub(crate) fn plain(used: &WeightUse, format: Format, sign: f32) -> Vec<u8> {
    let mut state = seed(&used.name);
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    let scale = 3.0f32.sqrt() * deviation(used);
    let is_vector = used.role == WeightRole::Vector;
    let count = used.shape.iter().product();
    let numbers =
        (0..count).map(|_: usize| sign * if is_vector { 1.0 + 0.1 * uniform() } else { scale * uniform() });
    if format == Format::F16 {
        numbers.flat_map(|x| half::f16::from_f32(x).to_le_bytes()).collect()
    } else if format == Format::Bf16 {
        numbers.flat_map(|x| bf16_bits(x).to_le_bytes()).collect()
    } else {
        numbers.flat_map(f32::to_le_bytes).collect()
    }
}
