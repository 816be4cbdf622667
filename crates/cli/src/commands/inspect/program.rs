//! A program with what each op costs.
//!
//! Costs are those of one decode step: one token of one sequence whose context is full, which is the slowest step of
//! an answer. Which bound an op meets depends on the machine, so the balance that is assumed is printed with it.

use crate::commands::weight_formats;
use crate::failure::Failure;
use crate::quantity::{bytes, count};
use gannet_formats::Checkpoint;
use gannet_model::{Model, ProgramOptions};
use gannet_ops::cost::{BatchShape, Bound, Cost, Machine, costs, shape};
use gannet_ops::{Node, Program, WeightId};
use serde::Serialize;

/// A desktop processor, near enough: two channels of memory, eight cores with AVX2 and dot products of bytes. `gannet
/// bench` sets its figures beside the machine that it runs on, by the same rules.
const MACHINE: Machine = Machine {
    bytes_per_second: 60e9,
    flops_per_second: 1.2e12,
    bf16_per_second: 1.2e12,
    int8_per_second: 4.8e12,
};
/// Tokens of the prompt whose cost is printed below the nodes.
const PROMPT_TOKENS: u64 = 512;

/// A program and its costs.
#[derive(Serialize)]
pub(crate) struct ProgramFacts {
    nodes: Vec<NodeFacts>,
    decode: Total,
    prefill: Total,
    /// Float32 operations a byte above which arithmetic bounds an op.
    balance: f64,
    /// Operations a byte above which arithmetic bounds a product with a quantised weight.
    int8_balance: f64,
    #[serde(skip)]
    printed: String,
}

/// One op.
#[derive(Serialize)]
struct NodeFacts {
    op: &'static str,
    weights: Vec<String>,
    shape: String,
    flops: u64,
    bytes: u64,
    bound: &'static str,
}

/// One step.
#[derive(Serialize)]
struct Total {
    tokens: u64,
    context: u64,
    flops: u64,
    bytes: u64,
    /// The least time on the assumed machine: the bounds of all nodes, summed.
    milliseconds_min: f64,
}

impl ProgramFacts {
    pub(crate) fn new(
        model: &Model,
        checkpoint: &Checkpoint,
        options: &ProgramOptions,
    ) -> Result<Self, Failure> {
        let program = model.program(options)?;
        let formats = weight_formats(&program, &model.weights(checkpoint)?);
        let format = |id: WeightId| formats[id.0 as usize];
        let context = options.context as u64;
        let step = |tokens: u64, context: u64| {
            let batch = BatchShape { tokens, outputs: 1, sequences: 1, context };
            costs(&program, batch, &format)
        };
        let decode = step(1, context);
        let prompt = PROMPT_TOKENS.min(context);
        Ok(Self {
            nodes: program
                .nodes
                .iter()
                .zip(&decode)
                .map(|(node, cost)| facts(&program, node, cost))
                .collect(),
            decode: Total::new(1, context, &decode),
            prefill: Total::new(prompt, prompt, &step(prompt, prompt)),
            balance: MACHINE.flops_per_second / MACHINE.bytes_per_second,
            int8_balance: MACHINE.int8_per_second / MACHINE.bytes_per_second,
            printed: gannet_ops::print(&program),
        })
    }

    /// The printed program, with the cost of a node at the end of its line.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = annotate(&self.printed, &self.nodes);
        lines.push(String::new());
        lines.push(self.decode.line("decode"));
        lines.push(self.prefill.line("prefill"));
        lines.push(format!(
            "costs of a node are those of the decode step; bounds assume {} operations a byte, {} on quantised weights",
            self.balance, self.int8_balance
        ));
        lines
    }
}

fn facts(program: &Program, node: &Node, cost: &Cost) -> NodeFacts {
    NodeFacts {
        op: node.op.name(),
        weights: node.op.weights().iter().map(|id| program.weight(*id).name.clone()).collect(),
        shape: shape(program, node),
        flops: cost.flops,
        bytes: cost.bytes(),
        bound: match cost.bound(&MACHINE) {
            Bound::Memory => "memory",
            Bound::Arithmetic => "arithmetic",
        },
    }
}

/// The printer writes a line a node between the lines `nodes` and `outputs`.
fn annotate(printed: &str, nodes: &[NodeFacts]) -> Vec<String> {
    let width = printed.lines().map(str::len).max().unwrap_or(0);
    let mut nodes = nodes.iter();
    let mut within = false;
    let annotated = printed.lines().map(|line| {
        let is_section = !line.starts_with(' ');
        within = if is_section { line == "nodes" } else { within };
        match (within && !is_section).then(|| nodes.next()).flatten() {
            Some(node) => format!("{line:<width$}  {}", node.cost()),
            None => line.to_owned(),
        }
    });
    annotated.collect()
}

impl NodeFacts {
    fn cost(&self) -> String {
        format!("{:>8} FLOP  {:>10}  {}", count(self.flops), bytes(self.bytes), self.bound)
    }
}

impl Total {
    fn new(tokens: u64, context: u64, costs: &[Cost]) -> Self {
        let flops = costs.iter().map(|cost| cost.flops).sum();
        let seconds: f64 = costs.iter().map(|cost| cost.seconds(&MACHINE)).sum();
        let bytes = costs.iter().map(Cost::bytes).sum();
        Self { tokens, context, flops, bytes, milliseconds_min: seconds * 1e3 }
    }

    fn line(&self, step: &str) -> String {
        let Self { tokens, context, flops, bytes: moved, milliseconds_min } = self;
        let (flops, moved) = (count(*flops), bytes(*moved));
        format!(
            "{step} of {tokens} at a context of {context}: {flops} FLOP, {moved}, at least {milliseconds_min:.2} ms"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_has_its_cost_at_the_end_of_its_line() {
        let node = |flops| NodeFacts {
            op: "x",
            weights: vec![],
            shape: String::new(),
            flops,
            bytes: 1,
            bound: "memory",
        };
        let printed =
            "program target\nweights\n  a : [1]\nnodes\n  %1 = x\n  %22 = y\noutputs\n  logits = %22\n";
        let lines = annotate(printed, &[node(10), node(2000)]);
        assert_eq!(lines.len(), printed.lines().count());
        assert_eq!(lines[4], "  %1 = x              10 FLOP     1 bytes  memory");
        assert!(lines[5].contains("2.0 K FLOP"));
        assert!(
            lines.iter().enumerate().all(|(place, line)| line.contains("FLOP") == (place == 4 || place == 5))
        );
    }
}
