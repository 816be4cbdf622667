//! What the steps of a case cost at least.

use super::WeightsOf;
use super::cases::Planned;
use super::rows::Case;
use crate::commands::weight_formats;
use crate::failure::Failure;
use gannet_ops::cost::{BatchShape, Cost, Machine, costs};
use gannet_ops::{Program, WeightId};
use gannet_tensor::Format;
use std::path::Path;

/// A program, what its weights are encoded in, and the machine that it runs on.
pub(super) struct Costs {
    pub(super) program: Program,
    formats: Vec<Format>,
    pub(super) machine: Machine,
    /// Rows of the largest step.
    step_rows: usize,
}

/// What a case costs at least.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sum {
    pub(super) seconds: f64,
    pub(super) bytes: u64,
    pub(super) operations: u64,
}

impl Costs {
    pub(super) fn new(
        path: &Path,
        program: Program,
        machine: Machine,
        step_rows: usize,
        weights: WeightsOf,
    ) -> Result<Self, Failure> {
        if let Some(random) = weights.random() {
            let formats = program.weights.iter().map(|used| random.of(used)).collect();
            return Ok(Self { program, formats, machine, step_rows });
        }
        let opened = gannet_loader::open(path)?;
        let weights = opened.model.weights(&opened.checkpoint).map_err(anyhow::Error::from)?;
        let formats = weight_formats(&program, &weights);
        Ok(Self { program, formats, machine, step_rows })
    }

    /// All steps of a case together.
    pub(super) fn of(&self, plan: &Planned) -> Sum {
        let mut sum = Sum::default();
        for cost in self.steps(plan).into_iter().flatten() {
            sum.seconds += cost.seconds(&self.machine);
            sum.bytes += cost.bytes();
            sum.operations += cost.flops;
        }
        sum
    }

    /// The cost of each node of each step of a case.
    pub(super) fn steps(&self, plan: &Planned) -> Vec<Vec<Cost>> {
        let format = |id: WeightId| self.formats[id.0 as usize];
        self.shapes(plan).into_iter().map(|shape| costs(&self.program, shape, &format)).collect()
    }

    fn shapes(&self, plan: &Planned) -> Vec<BatchShape> {
        let (first, end) = (plan.depth, plan.depth + plan.tokens);
        match plan.case {
            Case::Load | Case::Prefill => {
                let starts = (first..end).step_by(self.step_rows);
                let shape = |start: usize| {
                    let stop = end.min(start + self.step_rows);
                    BatchShape {
                        tokens: (stop - start) as u64,
                        outputs: u64::from(stop == end),
                        sequences: 1,
                        context: stop as u64,
                    }
                };
                starts.map(shape).collect()
            }
            Case::Decode => {
                let streams = plan.streams as u64;
                let shape = |index: usize| BatchShape {
                    tokens: streams,
                    outputs: streams,
                    sequences: streams,
                    context: index as u64 + 1,
                };
                (first..end).map(shape).collect()
            }
            Case::Check => {
                let rows = plan.rows as u64;
                let shape = |index: usize| BatchShape {
                    tokens: rows,
                    outputs: rows,
                    sequences: 1,
                    context: index as u64 + rows,
                };
                (first..end).step_by(plan.rows).map(shape).collect()
            }
        }
    }
}
