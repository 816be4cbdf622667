//! Norms that the product of one row makes for itself, in place of a kernel of their own: with one row, what a kernel waits for
//! takes longer than what it does.
//!
//! `linear_one` and `linear_one_codes` read the two values whose sum is normed while they run, so these live until then; their bits are those of
//! `add_rms_norm`. Where a product has parts, each makes the row for itself, and all write the same sum.

use super::matrices::Matrices;
use super::products;
use crate::driver::Properties;
use crate::jit::Made;
use crate::number::Number;
use crate::weights::{Stored, Weight};
use gannet_ops::{FusedKind, Node, Op, Program, Rows, ValueId, WeightId};
use std::collections::HashMap;

/// How a product's row is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Fold {
    /// The sum that later nodes read.
    pub(super) sum: ValueId,
    pub(super) added: [ValueId; 2],
    pub(super) weight: WeightId,
    pub(super) epsilon: f32,
}

/// The values that products make for themselves, where a step has one row.
#[derive(Default)]
pub(super) struct Folds(HashMap<ValueId, Fold>);

impl Folds {
    pub(super) fn new(
        program: &Program,
        (weights, formats): (&Matrices, &[Number]),
        device: &Properties,
    ) -> Self {
        let nodes = &program.nodes[..program.sampling_start()];
        let found = nodes.iter().filter_map(|node| {
            let (normed, fold) = norm_of(node)?;
            let mut readers = nodes.iter().filter(|node| node.inputs.contains(&normed));
            let (reader, others) = (readers.next()?, readers.next());
            let product = weights.product(reader)?;
            let is_read_as_made = formats[normed.0 as usize] == product.reads();
            let is_returned = program.outputs.iter().any(|(_, id)| *id == normed);
            let made = product.made(Number::F32);
            let can_make = product.parts.iter().all(|part| makes_row(device, part, made))
                && product.x == normed
                && program.value(normed).rows == Rows::Tokens;
            (others.is_none() && is_read_as_made && !is_returned && can_make).then_some((normed, fold))
        });
        Self(found.collect())
    }

    /// How a product's row is made, where the product makes it.
    pub(super) fn of(&self, normed: ValueId) -> Option<&Fold> {
        self.0.get(&normed)
    }

    /// The program, in which products read what they make their rows of.
    pub(super) fn placed(&self, program: &Program) -> Program {
        let mut placed = program.clone();
        for node in &mut placed.nodes {
            let made: Vec<ValueId> =
                node.inputs.iter().filter_map(|id| self.of(*id)).flat_map(|fold| fold.added).collect();
            node.inputs.extend(made);
        }
        placed
    }
}

/// Whether the product of one row with a matrix can make that row.
fn makes_row(device: &Properties, part: &Weight, made: Made) -> bool {
    let size = [1, part.shape[0], part.shape[1]];
    let choice = match part.stored {
        Stored::Plain(format) => Some(products::choose(device, format, made, size)),
        Stored::Codes(units) => products::choose_codes(device, units, made, size),
    };
    choice.is_some_and(|choice| choice.is_of_one_row())
}

/// The normed value of a node that adds and norms.
fn norm_of(node: &Node) -> Option<(ValueId, Fold)> {
    let Op::Fused { kind: FusedKind::AddRmsNorm, body } = &node.op else { return None };
    let [Node { op: Op::Add, .. }, Node { op: Op::RmsNorm { weight, epsilon }, .. }] = &body[..] else {
        return None;
    };
    let ([sum, normed], [a, b]) = (&node.outputs[..], &node.inputs[..]) else { return None };
    Some((*normed, Fold { sum: *sum, added: [*a, *b], weight: *weight, epsilon: *epsilon }))
}
