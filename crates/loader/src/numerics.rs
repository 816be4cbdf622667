//! The configuration that an engine's bits depend on, as a number: build, backend, weights, program, formats, ropes.
//!
//! Weights enter by name, format and shape. Their numbers do not, so what outlives a process has to name its model as
//! well.

use gannet_engine::NumericsId;
use gannet_formats::Checkpoint;
use gannet_ops::{Backend, Node, Op, Program, print};

/// The number of a program over a checkpoint's weights on a backend. The printed program has the formats of keys and
/// values, and the kind of each rope.
pub(crate) fn numerics_id(checkpoint: &Checkpoint, program: &Program, backend: &dyn Backend) -> NumericsId {
    let build = env!("CARGO_PKG_VERSION").to_owned();
    let mut facts = vec![build, backend.name().to_owned(), backend.numerics(), print(program)];
    let weight = |tensor: gannet_formats::Tensor<'_>| {
        format!("{} {} {:?}", tensor.name, tensor.format.name(), tensor.shape)
    };
    facts.extend(checkpoint.tensors().map(weight));
    facts.extend(program.nodes.iter().filter_map(rope));
    NumericsId::of(facts.iter().map(String::as_str))
}

/// The angles of a rope, which the printed program leaves out, by their bits.
fn rope(node: &Node) -> Option<String> {
    let Op::Rope(rope) = &node.op else { return None };
    let bits: Vec<u32> = rope.table.inverse_frequencies.iter().map(|number| number.to_bits()).collect();
    Some(format!("{bits:x?}"))
}
