//! Whole models with generated weights, against the logits and tokens that transformers gives for them.

use crate::support::batch::Part;
use crate::support::device::{Device, logits};
use crate::support::models::*;
use crate::support::naive::assert_close;
use gannet_ops::*;

pub(crate) const PROMPT: [u32; 12] = [1, 5, 9, 2, 7, 11, 3, 8, 4, 6, 10, 12];

struct Golden {
    logits: [f64; 6],
    sum: f64,
    greedy: [u32; 8],
}

fn check(name: &str, model: &Model, golden: Golden) {
    let layout = layout(model, &[], Rollback::Candidates, KvFormat::F32);
    let program = target(model, &layout);
    let (_, output) = Device::new(&[&program]).step(&[Part::new(0, 0, &PROMPT)]);
    let found = logits(&output, 0);
    assert_close(name, found, &golden.logits, 1e-4);
    let sum: f32 = found.iter().sum();
    assert_close(&format!("{name}, sum"), &[sum], &[golden.sum], 2e-3);
    assert_eq!(Device::new(&[&program]).generate(0, &PROMPT, 8), golden.greedy, "{name}");
}

#[test]
fn biased_projections_match() {
    let mixer = Mixer { bias: true, ..mixer(8, rope_table(1e6, 8, 1.0)) };
    check(
        "qwen2",
        &model(vec![Kind::Attention(mixer); 4]),
        Golden {
            logits: [0.31336, -1.06876, 0.68127, -1.18040, 0.07284, -0.17613],
            sum: 3.5109,
            greedy: [42, 7, 33, 42, 7, 49, 42, 7],
        },
    );
}

#[test]
fn normed_heads_match() {
    check(
        "qwen3",
        &dense(),
        Golden {
            logits: [0.67815, 1.13362, 1.17167, 0.17561, -0.56107, -1.17762],
            sum: 16.8816,
            greedy: [39, 45, 39, 39, 39, 39, 39, 39],
        },
    );
}

#[test]
fn routed_experts_match() {
    check(
        "qwen3_moe",
        &Model { inner: Inner::Experts { shared: false }, ..dense() },
        Golden {
            logits: [-0.00967, 0.71836, 1.26277, 0.18679, -0.37445, -0.88503],
            sum: 12.6507,
            greedy: [45, 45, 16, 16, 16, 16, 16, 16],
        },
    );
}

/// Five layers of a window of 4 and one of full attention, scaled embeddings, norms on the branches.
pub(crate) fn windowed() -> Model {
    let layer = |number: usize| {
        let full = number == 5;
        let rope = if full { rope_table(1e6, 16, 8.0) } else { rope_table(1e4, 16, 1.0) };
        let mask = if full { Mask::Causal } else { Mask::Window(4) };
        Kind::Attention(Mixer { head_norms: true, mask, ..mixer(16, rope) })
    };
    Model {
        inner: Inner::Gelu,
        branch_norms: true,
        tied: true,
        embedding_scale: Some(32f32.sqrt()),
        ..model((0..6).map(layer).collect())
    }
}

#[test]
fn windows_and_branch_norms_match() {
    check(
        "gemma3",
        &windowed(),
        Golden {
            logits: [-0.60908, -0.76445, -1.87597, -0.46360, 0.09299, 0.93337],
            sum: -6.7236,
            greedy: [40, 40, 28, 0, 39, 18, 1, 1],
        },
    );
}

#[test]
fn delta_rule_layers_match() {
    check(
        "qwen3_5",
        &hybrid(),
        Golden {
            logits: [0.41422, 0.49092, 1.95337, -0.32826, -0.24342, -0.53153],
            sum: 9.6632,
            greedy: [53, 36, 29, 52, 43, 29, 2, 20],
        },
    );
}

#[test]
fn shared_expert_matches() {
    check(
        "qwen3_5_moe",
        &Model { inner: Inner::Experts { shared: true }, ..hybrid() },
        Golden {
            logits: [0.87890, 0.05240, -0.24726, -0.34135, -0.69355, -0.43582],
            sum: -0.7430,
            greedy: [7, 10, 32, 43, 62, 50, 39, 16],
        },
    );
}
