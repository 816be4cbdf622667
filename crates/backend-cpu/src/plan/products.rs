//! The nodes that multiply with matrices: rows are made codes where the matrix is in panels, and neighbours that read
//! one value are computed together.

use super::run::{Inputs, Run, matrix, vector};
use crate::kernels::expert_linear::{expert_linear, expert_linear_codes};
use crate::kernels::linear::{Linear, TOGETHER_MAX, linear, linear_codes};
use crate::memory::Buffer;
use crate::panels::Panels;
use crate::weights::{Layout, Weight};
use gannet_ops::{DeviceError, ExpertLinear, Node, Op, WeightId};
use std::sync::Arc;

impl Run<'_, '_> {
    /// How many nodes from the first on run together: one, or products of one value with matrices in panels.
    pub(super) fn together(&self, nodes: &[Node]) -> usize {
        let is_like_first =
            |node: &&Node| node.inputs == nodes[0].inputs && in_panels(self.weights, node).is_some();
        nodes.iter().take(TOGETHER_MAX).take_while(is_like_first).count().max(1)
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
        self.values.encode(self.crew, nodes[0].inputs[0]);
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
        linear_codes(self.crew, self.values.codes(nodes[0].inputs[0]), linears);
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
                expert_linear(crew, (inputs.x(0), &mut sorted), inputs.ids(1), (rows, bias), out);
            }),
            Layout::Panels(panels) => {
                self.values.encode(self.crew, node.inputs[0]);
                self.make(node, |crew, inputs: &Inputs<'_>, out| {
                    let rows = (inputs.codes(0), &mut sorted);
                    expert_linear_codes(crew, rows, inputs.ids(1), (panels, bias), out);
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
