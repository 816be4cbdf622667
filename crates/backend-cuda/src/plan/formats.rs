//! The format in which each value of a program lies in the device's memory.
//!
//! Values are float32, but for those that only matrices in half precision read: such a value is rounded once, where it is
//! made, instead of by each product. A row's bits don't depend on where it is rounded.

use super::matrices::Matrices;
use crate::number::Number;
use gannet_ops::{FusedKind, Node, Op, Program, ValueId};

/// The format of each value, in order.
pub(super) fn choose(program: &Program, weights: &Matrices) -> Vec<Number> {
    let nodes = &program.nodes[..program.sampling_start()];
    let mut formats = vec![Number::F32; program.values.len()];
    for node in nodes.iter().rev() {
        for (place, made) in node.outputs.iter().enumerate() {
            if can_round(node, place) && !is_read_later(program, *made) {
                let readers = nodes.iter().filter(|node| node.inputs.contains(made));
                formats[made.0 as usize] = agreed(readers.map(|node| wanted(node, weights, &formats)));
            }
        }
    }
    // Rows are picked in the format that they have.
    for node in nodes.iter().filter(|node| node.op == Op::SelectOutputs) {
        formats[node.outputs[0].0 as usize] = formats[node.inputs[0].0 as usize];
    }
    formats
}

/// Whether the kernel of a node can write this output in half precision.
fn can_round(node: &Node, output: usize) -> bool {
    match &node.op {
        Op::RmsNorm { .. }
        | Op::SiluGate
        | Op::GeluGate
        | Op::ClampedGate { .. }
        | Op::SigmoidGate
        | Op::Attention(_)
        | Op::GatedNorm { .. }
        | Op::Slice { .. }
        | Op::SelectOutputs => true,
        // The sum goes on as it is; the norm of it is what products read.
        Op::Fused { kind: FusedKind::AddRmsNorm, .. } => output == 1,
        Op::Fused { kind: FusedKind::GatedLinear | FusedKind::GatedExperts, .. } => true,
        Op::Fused { kind: FusedKind::QueryKeyValue, .. } => false,
        Op::Embed { .. }
        | Op::HeadNorm { .. }
        | Op::L2Norm { .. }
        | Op::Linear { .. }
        | Op::Rope(_)
        | Op::PositionScale { .. }
        | Op::WriteKv { .. }
        | Op::CausalConv { .. }
        | Op::DecayGate { .. }
        | Op::GatedDeltaRule(_)
        | Op::SoftCap { .. }
        | Op::Scale { .. }
        | Op::Add
        | Op::RouteExperts(_)
        | Op::ExpertLinear(_)
        | Op::CombineExperts
        | Op::Pool { .. }
        | Op::GatherRows { .. }
        | Op::MapIds { .. }
        | Op::Concat
        | Op::Capture { .. }
        | Op::Sample
        | Op::Accept => false,
    }
}

fn is_read_later(program: &Program, value: ValueId) -> bool {
    let is_returned = program.outputs.iter().any(|(_, returned)| *returned == value);
    let mut sampling = program.nodes[program.sampling_start()..].iter();
    is_returned || sampling.any(|node| node.inputs.contains(&value))
}

/// The format in which a node reads its values.
fn wanted(node: &Node, weights: &Matrices, formats: &[Number]) -> Number {
    if let Some((_, reads)) = weights.reads(node) {
        reads
    } else if node.op == Op::SelectOutputs {
        formats[node.outputs[0].0 as usize]
    } else {
        Number::F32
    }
}

fn agreed(mut wanted: impl Iterator<Item = Number>) -> Number {
    let Some(first) = wanted.next() else { return Number::F32 };
    if wanted.all(|other| other == first) { first } else { Number::F32 }
}
