//! What is done to each element on its own.

use super::values::Numbers;

pub(super) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

pub(super) fn silu(x: f32) -> f32 {
    x * sigmoid(x)
}

fn gelu_tanh(x: f32) -> f32 {
    let inner = (2.0 / std::f32::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
    0.5 * x * (1.0 + inner.tanh())
}

/// `ln(1 + exp(x))`, without overflow.
fn softplus(x: f32) -> f32 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// `silu(gate) * up`.
pub fn silu_gate(gate: &Numbers, up: &Numbers) -> Numbers {
    pairwise(gate, up, |gate, up| silu(gate) * up)
}

/// `gelu_tanh(gate) * up`.
pub fn gelu_gate(gate: &Numbers, up: &Numbers) -> Numbers {
    pairwise(gate, up, |gate, up| gelu_tanh(gate) * up)
}

/// `g * sigmoid(alpha * g) * (u + 1)` of the bounded gate and up.
pub fn clamped_gate(gate: &Numbers, up: &Numbers, alpha: f32, limit: f32) -> Numbers {
    pairwise(gate, up, |gate, up| {
        let gate = gate.min(limit);
        gate * sigmoid(alpha * gate) * (up.clamp(-limit, limit) + 1.0)
    })
}

/// `a + b`.
pub fn add(a: &Numbers, b: &Numbers) -> Numbers {
    pairwise(a, b, |a, b| a + b)
}

/// `x * sigmoid(gate)`; a gate of one column is for the whole row.
pub fn sigmoid_gate(x: &Numbers, gate: &Numbers) -> Numbers {
    let columns = x.width / gate.width;
    let gates = gate.data.iter().flat_map(|gate| std::iter::repeat_n(*gate, columns));
    Numbers::new(x.width, x.data.iter().zip(gates).map(|(x, gate)| x * sigmoid(gate)).collect())
}

/// `decay * softplus(a + bias)`.
pub fn decay_gate(a: &Numbers, decay: &[f32], bias: &[f32]) -> Numbers {
    let heads = decay.iter().zip(bias).cycle();
    Numbers::new(
        a.width,
        a.data.iter().zip(heads).map(|(a, (decay, bias))| decay * softplus(a + bias)).collect(),
    )
}

/// `cap * tanh(x / cap)`.
pub fn soft_cap(x: f32, cap: f32) -> f32 {
    cap * (x / cap).tanh()
}

fn pairwise(a: &Numbers, b: &Numbers, change: impl Fn(f32, f32) -> f32) -> Numbers {
    Numbers::new(a.width, a.data.iter().zip(&b.data).map(|(a, b)| change(*a, *b)).collect())
}
