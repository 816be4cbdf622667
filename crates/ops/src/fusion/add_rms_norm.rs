//! `add` followed by `rms_norm` of the sum, as one pass over the row.
//!
//! The norm moves up to its sum, which is safe because nothing else that it reads is a value. The sum stays a
//! result of the fused node, for the residual stream goes on from it.

use crate::{FusedKind, Node, Op, Program, ValueId};

pub(super) fn rewrite(mut program: Program) -> Program {
    let mut rest: Vec<Option<Node>> = std::mem::take(&mut program.nodes).into_iter().map(Some).collect();
    for place in 0..rest.len() {
        let Some(node) = rest[place].take() else { continue };
        let norm = if node.op == Op::Add { norm_of(&rest, node.outputs[0]) } else { None };
        program.nodes.push(match norm {
            Some(norm) => fused(node, rest[norm].take().expect("norm_of found a node there")),
            None => node,
        });
    }
    program
}

/// The first norm that reads the sum. What lies before the sum can't read it.
fn norm_of(nodes: &[Option<Node>], sum: ValueId) -> Option<usize> {
    nodes.iter().position(|node| {
        node.as_ref().is_some_and(|node| matches!(node.op, Op::RmsNorm { .. }) && node.inputs == [sum])
    })
}

fn fused(add: Node, norm: Node) -> Node {
    let inputs = add.inputs.clone();
    let outputs = [&add.outputs[..], &norm.outputs[..]].concat();
    Node { op: Op::Fused { kind: FusedKind::AddRmsNorm, body: vec![add, norm] }, inputs, outputs }
}
