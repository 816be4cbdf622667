//! Checkpoints whose weights follow from their names, so that other programs can make the same ones: an FNV-1a hash of
//! the name seeds splitmix64, and the place in the tensor counts.

use gannet_formats::Checkpoint;
use serde_json::{Map, Value, json};
use std::fs;
use tempfile::TempDir;

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

/// A folder being written.
pub(crate) struct Generated {
    config: Value,
    header: Map<String, Value>,
    bytes: Vec<u8>,
    /// Norm weights lie around 0, as the 1 is added to them.
    norms_lack_one: bool,
}

/// The folder and its checkpoint.
pub(crate) struct Written {
    pub(crate) checkpoint: Checkpoint,
    _folder: TempDir,
}

impl Generated {
    pub(crate) fn new(config: Value, norms_lack_one: bool) -> Self {
        Self { config, header: Map::new(), bytes: Vec::new(), norms_lack_one }
    }

    /// Adds a tensor of generated numbers.
    pub(crate) fn tensor(&mut self, name: &str, shape: &[usize]) {
        let is_plain = !self.norms_lack_one || name.ends_with("linear_attn.norm.weight");
        let value = |n: u64| match shape.len() {
            1 if name.ends_with("norm.weight") && is_plain => 1.0 + uniform(name, n),
            1 => uniform(name, n),
            _ => 0.5 * uniform(name, n),
        };
        let elements = shape.iter().product::<usize>() as u64;
        let bytes = (0..elements).flat_map(|n| value(n).to_le_bytes()).collect::<Vec<u8>>();
        self.push(name, "F32", shape, &bytes);
    }

    /// Adds a table of 64-bit integers.
    pub(crate) fn integers(&mut self, name: &str, numbers: &[i64]) {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        self.push(name, "I64", &[numbers.len()], &bytes);
    }

    fn push(&mut self, name: &str, dtype: &str, shape: &[usize], bytes: &[u8]) {
        let offsets = [self.bytes.len(), self.bytes.len() + bytes.len()];
        self.bytes.extend_from_slice(bytes);
        let entry = json!({ "dtype": dtype, "shape": shape, "data_offsets": offsets });
        self.header.insert(name.to_owned(), entry);
    }

    /// The attention of a layer of these widths: input, queries, keys and values, hidden state, head.
    pub(crate) fn attention(&mut self, scope: &str, [input, query, key, hidden, head]: [usize; 5]) {
        for (name, shape) in [("q", [query, input]), ("k", [key, input]), ("v", [key, input])] {
            self.tensor(&format!("{scope}.self_attn.{name}_proj.weight"), &shape);
        }
        // A gate makes the query projection twice as wide as the heads together.
        let heads = if self.norms_lack_one { query / 2 } else { query };
        self.tensor(&format!("{scope}.self_attn.o_proj.weight"), &[hidden, heads]);
        if head > 0 {
            self.tensor(&format!("{scope}.self_attn.q_norm.weight"), &[head]);
            self.tensor(&format!("{scope}.self_attn.k_norm.weight"), &[head]);
        }
    }

    /// The feed-forward of a layer and the two norms of it.
    pub(crate) fn rest_of_layer(&mut self, scope: &str, hidden: usize, inner: usize) {
        self.tensor(&format!("{scope}.input_layernorm.weight"), &[hidden]);
        self.tensor(&format!("{scope}.post_attention_layernorm.weight"), &[hidden]);
        self.tensor(&format!("{scope}.mlp.gate_proj.weight"), &[inner, hidden]);
        self.tensor(&format!("{scope}.mlp.up_proj.weight"), &[inner, hidden]);
        self.tensor(&format!("{scope}.mlp.down_proj.weight"), &[hidden, inner]);
    }

    pub(crate) fn write(self) -> Written {
        let folder = tempfile::tempdir().unwrap();
        let header = Value::Object(self.header).to_string();
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend_from_slice(header.as_bytes());
        file.extend_from_slice(&self.bytes);
        fs::write(folder.path().join("model.safetensors"), file).unwrap();
        fs::write(folder.path().join("config.json"), self.config.to_string()).unwrap();
        Written { checkpoint: Checkpoint::open(folder.path()).unwrap(), _folder: folder }
    }
}

// The expected numbers are those of the same recipe in Python's integers.
#[test]
fn generator_gives_the_numbers_of_other_programs() {
    let first: Vec<f32> = (0..3).map(|n| uniform("model.norm.weight", n)).collect();
    assert_eq!(first, [0.39558393, 0.16974628, 0.1720959]);
}
