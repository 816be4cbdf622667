//! What kernels of other nodes make on their way, in place of a kernel of its own: with few rows, what a kernel waits for takes longer than
//! what it does.
//!
//! Norms that the product of one row makes for itself (`linear_one`, `linear_one_codes`, `linear_one_wide`); norms and products of routers that the
//! choice of experts makes (`routers`). Such a kernel reads what the others would have read, so that lives until it runs; its bits are theirs.
//! Where a product has parts, each makes the row for itself, and all write the same sum.

use super::matrices::Matrices;
use super::products;
use super::routers::RouterFold;
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

/// What kernels of other nodes make, in place of a launch of its own.
#[derive(Default)]
pub(super) struct Folds {
    /// Norms that products make for themselves, where a step has one row.
    norms: HashMap<ValueId, Fold>,
    /// Norms and products that the choice of experts makes, where a step has few rows, by the product.
    pub(super) routers: HashMap<ValueId, RouterFold>,
}

impl Folds {
    pub(super) fn new(
        program: &Program,
        (weights, formats): (&Matrices, &[Number]),
        device: &Properties,
    ) -> Self {
        let norms = norms(program, (weights, formats), device).collect();
        let routers = RouterFold::all(program, weights, device).collect();
        Self { norms, routers }
    }

    /// How a product's row is made, where the product makes it.
    pub(super) fn of(&self, normed: ValueId) -> Option<&Fold> {
        self.norms.get(&normed)
    }

    /// The program, in which nodes read what their kernels make other values of.
    pub(super) fn placed(&self, program: &Program) -> Program {
        let mut placed = program.clone();
        for node in &mut placed.nodes {
            let of_norm = |id: &ValueId| self.of(*id).map(|fold| fold.added);
            let of_router = |id: &ValueId| self.routers.get(id).map(|router| router.norm.added);
            let made = node.inputs.iter().flat_map(|id| [of_norm(id), of_router(id)]);
            let made: Vec<ValueId> = made.flatten().flatten().collect();
            node.inputs.extend(made);
        }
        placed
    }
}

/// The norms that products of one row can make.
fn norms<'a>(
    program: &'a Program,
    (weights, formats): (&'a Matrices, &'a [Number]),
    device: &'a Properties,
) -> impl Iterator<Item = (ValueId, Fold)> + 'a {
    let nodes = &program.nodes[..program.sampling_start()];
    nodes.iter().filter_map(move |node| {
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
    })
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
pub(super) fn norm_of(node: &Node) -> Option<(ValueId, Fold)> {
    let Op::Fused { kind: FusedKind::AddRmsNorm, body } = &node.op else { return None };
    let [Node { op: Op::Add, .. }, Node { op: Op::RmsNorm { weight, epsilon }, .. }] = &body[..] else {
        return None;
    };
    let ([sum, normed], [a, b]) = (&node.outputs[..], &node.inputs[..]) else { return None };
    Some((*normed, Fold { sum: *sum, added: [*a, *b], weight: *weight, epsilon: *epsilon }))
}
