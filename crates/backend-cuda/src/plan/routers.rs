//! The norm of a sum, a router's product and its choice in one launch, where a step has few rows: what these wait for takes longer than what they do.
//!
//! The launch is made in place of the choice and reads the two values whose sum is normed, so these live until then; its bits are those of the
//! kernels in whose place it is.

use super::experts::{Groups, sorting, tile};
use super::folds::{Fold, Folds, norm_of};
use super::launches::{Call, Frame, arguments, word};
use super::matrices::Matrices;
use crate::driver::{Argument, Properties};
use crate::jit::{ROUTED_ROWS, route_normed};
use crate::number::Number;
use crate::weights::Stored;
use gannet_ops::{Node, Op, Program, Router, Rows, ValueId, WeightId};

/// Rows of a step, up to which a cluster of blocks is better than blocks of their own.
const ROWS_MAX: usize = 32;
/// Blocks of a cluster, each with as many experts, and threads of a block that have an expert and a row.
const BLOCKS: usize = 8;
const ROUTING_THREADS: usize = 256;
/// A last warp brings weights.
const THREADS: usize = ROUTING_THREADS + 32;
/// Columns of a stage of its ring, bytes of a line of one, and stages at most.
const COLUMNS: usize = 256;
const LINE_BYTES: usize = COLUMNS * Number::F32.bytes() + 16;
const STAGES_MAX: usize = 16;
/// Shared memory of a block, on architectures that have wgmma.
const SHARED_BYTES_MAX: usize = 220 << 10;
/// What columns are a multiple of: the steps of the product.
const COLUMNS_UNIT: usize = 16;
/// What the numbers of a row of experts are padded to.
const EXPERTS_UNIT: usize = 4;

/// A router's product, and the norm that it reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RouterFold {
    pub(super) normed: ValueId,
    pub(super) norm: Fold,
    weight: WeightId,
    bias: Option<WeightId>,
    columns: usize,
    experts: usize,
}

impl RouterFold {
    /// The routers of a program, by their logits: a norm, a product and a choice that follow one another.
    pub(super) fn all<'a>(
        program: &'a Program,
        weights: &'a Matrices,
        device: &'a Properties,
    ) -> impl Iterator<Item = (ValueId, Self)> + 'a {
        program.nodes.windows(3).filter_map(move |nodes| {
            let [first, product, choice] = nodes else { return None };
            let (normed, norm) = norm_of(first)?;
            let (Op::Linear { weight, bias }, Op::RouteExperts(Router { experts, .. })) =
                (&product.op, &choice.op)
            else {
                return None;
            };
            let (logits, columns) = (product.outputs[0], program.value(normed).width);
            let follow = product.inputs == [normed] && choice.inputs == [logits];
            let readers = program.nodes.iter().filter(|node| node.inputs.contains(&logits)).count();
            let is_returned = program.outputs.iter().any(|(_, id)| *id == logits);
            let is_plain = weights.alone(*weight).stored == Stored::Plain(Number::F32);
            let found = Self { normed, norm, weight: *weight, bias: *bias, columns, experts: *experts };
            let fits = found.stages(ROUTED_ROWS[1]).is_some() && device.has_wgmma();
            let is_one = follow && readers == 1 && !is_returned && is_plain && fits;
            (is_one && program.value(normed).rows == Rows::Tokens).then_some((logits, found))
        })
    }

    /// Experts of a block.
    fn share(&self) -> usize {
        self.experts.div_ceil(BLOCKS)
    }

    /// Shared memory of a block before its ring.
    fn row_bytes(&self, rows: usize) -> usize {
        rows * (self.columns + 2 * self.experts.next_multiple_of(EXPERTS_UNIT)) * Number::F32.bytes()
    }

    /// Stages of a block's ring; `None` where a block can't have its experts and so many rows.
    fn stages(&self, rows: usize) -> Option<usize> {
        let has_threads = self.share() * rows <= ROUTING_THREADS && self.columns.is_multiple_of(COLUMNS_UNIT);
        let room = SHARED_BYTES_MAX.checked_sub(self.row_bytes(rows))?;
        let stages = (room / (self.share() * LINE_BYTES)).min(STAGES_MAX);
        (has_threads && stages >= 2).then(|| stages.min(self.columns.div_ceil(COLUMNS)))
    }
}

impl Frame<'_> {
    /// The router whose norm, product and choice are one launch in this step, by its logits.
    pub(super) fn router_of(&self, logits: ValueId) -> Option<&RouterFold> {
        self.folds.filter(|_| self.rows <= ROWS_MAX).and_then(|folds| folds.router(logits))
    }

    /// Whether a norm is made by the launch of a router in this step.
    pub(super) fn is_routed(&self, normed: ValueId) -> bool {
        self.folds.is_some_and(|folds| self.rows <= ROWS_MAX && folds.is_routed(normed))
    }

    /// The launch for all of it, and with more than one row that which sorts.
    pub(super) fn route_normed(&self, fold: &RouterFold, router: &Router, node: &Node) -> Vec<Call> {
        let Router { experts, top_k, renormalise } = *router;
        let rows = ROUTED_ROWS[usize::from(self.rows > 1)];
        let stages = fold.stages(rows).expect("the fold fits");
        let Fold { sum, added: [a, b], weight: norm, epsilon } = fold.norm;
        let [ids, weights] = [node.outputs[0], node.outputs[1]].map(|id| (self.values)(id));
        let [sum, normed, a, b] = [sum, fold.normed, a, b].map(|id| (self.values)(id));
        let Groups { items, order, tokens, starts } = self.groups;
        let mut arguments = arguments![sum, normed, ids, weights, a, b, self.weight(norm)];
        arguments.extend(arguments![self.weight(fold.weight), self.optional_weight(fold.bias)]);
        arguments.extend(arguments![order, tokens, starts, items]);
        let sizes = [self.rows, fold.columns, experts, top_k as usize, usize::from(renormalise), stages];
        arguments.extend(sizes.map(|size| Argument::from(word(size))));
        arguments.push(epsilon.into());
        let mut calls = vec![Call {
            need: (route_normed(self.format(fold.normed), rows), "route_normed"),
            grid: [word(BLOCKS * self.rows.div_ceil(rows)), 1, 1],
            block: word(THREADS),
            shared_bytes: word(fold.row_bytes(rows) + stages * fold.share() * LINE_BYTES),
            arguments,
        }];
        if self.rows > 1 {
            let tile = tile(self.device, self.rows * top_k as usize, experts);
            calls.push(sorting(&self.groups, ids, [self.rows, experts, top_k as usize, tile]));
        }
        calls
    }
}

impl Folds {
    /// The router with these logits.
    fn router(&self, logits: ValueId) -> Option<&RouterFold> {
        self.routers.get(&logits)
    }

    fn is_routed(&self, normed: ValueId) -> bool {
        self.routers.values().any(|router| router.normed == normed)
    }
}
