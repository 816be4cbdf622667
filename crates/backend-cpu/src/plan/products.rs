//! The nodes that multiply with matrices: rows are brought into the form of the matrix's panels where it has any, and
//! neighbours that read one value in one form are computed together.

use super::run::{Inputs, Run, matrix, vector};
use crate::kernels::expert_linear::{ByExpert, expert_linear, expert_linear_panels};
use crate::kernels::linear::{Linear, TOGETHER_MAX, linear, linear_panels};
use crate::memory::Buffer;
use crate::panels::{PanelKind, Panels};
use crate::weights::{Layout, Weight};
use gannet_ops::{DeviceError, ExpertLinear, Node, Op, WeightId};
use std::sync::Arc;

impl Run<'_, '_> {
    /// How many nodes from the first on run together: one, or products of one value with matrices in panels.
    pub(super) fn together(&self, nodes: &[Node]) -> usize {
        let Some((first, _)) = in_panels(self.weights, &nodes[0]) else { return 1 };
        let is_like_first = |node: &&Node| {
            let panels = in_panels(self.weights, node);
            node.inputs == nodes[0].inputs && panels.is_some_and(|(panels, _)| panels.kind() == first.kind())
        };
        nodes.iter().take(TOGETHER_MAX).take_while(is_like_first).count()
    }

    /// Runs what [`Run::together`] has counted.
    pub(super) fn nodes(&mut self, nodes: &[Node]) -> Result<(), DeviceError> {
        match nodes {
            [node] => self.node(node),
            nodes => self.linears(nodes),
        }
    }

    /// Runs one product, in whatever layout its matrix is, or several with matrices in panels.
    pub(super) fn linears(&mut self, nodes: &[Node]) -> Result<(), DeviceError> {
        let weights = self.weights;
        if let [Node { op: Op::Linear { weight, bias }, .. }] = nodes
            && let Layout::Rows(rows) = &matrix(weights, *weight).layout
        {
            let bias = bias.map(|id| vector(weights, id));
            return self.make(&nodes[0], |crew, inputs, out| linear(crew, inputs.x(0), rows, bias, out));
        }
        let (panels, _) = in_panels(weights, &nodes[0]).expect("what has no rows has panels");
        let (x, kind) = (nodes[0].inputs[0], panels.kind());
        self.values.encode(self.crew, x, kind);
        let mut buffers: [(Buffer, usize); TOGETHER_MAX] = Default::default();
        for (node, buffer) in nodes.iter().zip(&mut buffers) {
            let id = node.outputs[0];
            let rows = self.rows_of(id, node);
            *buffer = (self.values.take(id, rows)?, rows * self.values.of(id).width);
        }
        let mut outs = buffers.iter_mut();
        let linears: [Option<Linear<'_>>; TOGETHER_MAX] = std::array::from_fn(|place| {
            let (node, (buffer, length)) = (nodes.get(place)?, outs.next()?);
            let (panels, bias) = in_panels(weights, node).expect("the nodes were counted by it");
            let bias = bias.map(|id| vector(weights, id));
            Some(Linear { panels, bias, out: &mut buffer.as_mut_slice()[..*length] })
        });
        match kind {
            PanelKind::Codes => linear_panels(self.crew, self.values.codes(x), linears),
            PanelKind::Pairs => linear_panels(self.crew, self.values.pairs(x), linears),
        }
        for (node, (buffer, _)) in nodes.iter().zip(buffers) {
            self.values.put(node.outputs[0], buffer);
        }
        Ok(())
    }

    pub(super) fn expert_linear(&mut self, op: &ExpertLinear, node: &Node) -> Result<(), DeviceError> {
        let bias = op.bias.map(|id| vector(self.weights, id));
        let mut sorted = std::mem::take(&mut self.values.sorted);
        let made = match &matrix(self.weights, op.weight).layout {
            Layout::Rows(rows) => self.make(node, |crew, inputs, out| {
                expert_linear(crew, (inputs.x(0), &mut sorted.order), inputs.ids(1), (rows, bias), out);
            }),
            Layout::Panels(panels) => {
                self.values.encode(self.crew, node.inputs[0], panels.kind());
                self.make(node, |crew, inputs: &Inputs<'_>, out| {
                    let ByExpert { order, codes, pairs } = &mut sorted;
                    let (ids, matrix) = (inputs.ids(1), (panels, bias));
                    match panels.kind() {
                        PanelKind::Codes => {
                            expert_linear_panels(crew, (inputs.codes(0), order, codes), ids, matrix, out);
                        }
                        PanelKind::Pairs => {
                            expert_linear_panels(crew, (inputs.pairs(0), order, pairs), ids, matrix, out);
                        }
                    }
                })
            }
        };
        self.values.sorted = sorted;
        made
    }
}

/// The matrix of a `linear` and its bias, where it is in panels.
fn in_panels<'a>(weights: &'a [Arc<Weight>], node: &Node) -> Option<(&'a Panels, Option<WeightId>)> {
    let Op::Linear { weight, bias } = &node.op else { return None };
    match &matrix(weights, *weight).layout {
        Layout::Panels(panels) => Some((panels, *bias)),
        Layout::Rows(_) => None,
    }
}
