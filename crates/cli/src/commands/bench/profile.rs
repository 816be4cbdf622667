//! Where a step's time goes: each node timed in its place in the step, so with weights that no cache holds any more.
//!
//! Nodes that differ in their layer alone are one line. What is left of a step is the host's part: making the batch,
//! drawing, and the way between the nodes.

use super::streams::StepTimes;
use crate::quantity::bytes;
use gannet_engine::{EngineStats, Phases};
use gannet_ops::cost::{Cost, Machine};
use gannet_ops::{Node, NodeTime, Program};
use serde::Serialize;
use std::time::Duration;

/// Where the time of some steps of one case goes, each figure that of one step.
#[derive(Debug, Serialize)]
pub(super) struct Profile {
    steps: usize,
    milliseconds: f64,
    ops: Vec<OpFacts>,
    /// What no node takes.
    host_milliseconds: f64,
    /// The share of steps, run without clocks between nodes, in which the device has nothing to compute; absent where it has no clock of its
    /// own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) idle_share: Option<f64>,
}

/// All nodes of one kind.
#[derive(Debug, Serialize)]
struct OpFacts {
    /// The operation, and its weight without the layer.
    op: String,
    /// How many of them a step has.
    nodes: usize,
    milliseconds: f64,
    /// Of the step.
    share: f64,
    bytes: u64,
    operations: u64,
    /// What was reached of the machine's bound.
    bound_fraction: f64,
    /// Seconds that the machine needs at least.
    #[serde(skip)]
    least: f64,
}

/// The engine's phases, each that of one step.
#[derive(Debug, Serialize)]
pub(super) struct PhaseFacts {
    steps: u64,
    schedule_us: f64,
    assemble_us: f64,
    run_us: f64,
    sample_us: f64,
    commit_us: f64,
}

impl Profile {
    /// From recorded steps and what each node of each of them costs at least.
    pub(super) fn new(program: &Program, machine: &Machine, steps: &[(StepTimes, Vec<Cost>)]) -> Self {
        let count = steps.len().max(1) as f64;
        let whole: Duration = steps.iter().map(|(times, _)| times.whole()).sum();
        let mut ops: Vec<OpFacts> = Vec::new();
        for (times, costs) in steps {
            for ((node, time), cost) in program.nodes.iter().zip(&times.nodes).zip(costs) {
                add(&mut ops, program, node, *time, cost, machine);
            }
        }
        for op in &mut ops {
            op.bound_fraction = op.least * 1e3 / op.milliseconds.max(f64::MIN_POSITIVE);
            op.share = op.milliseconds / milliseconds(whole);
            op.milliseconds /= count;
            op.nodes /= steps.len();
            op.bytes /= steps.len() as u64;
            op.operations /= steps.len() as u64;
        }
        ops.sort_by(|a, b| b.milliseconds.total_cmp(&a.milliseconds));
        let all = milliseconds(whole) / count;
        let in_nodes: f64 = ops.iter().map(|op| op.milliseconds).sum();
        Self {
            steps: steps.len(),
            milliseconds: all,
            host_milliseconds: all - in_nodes,
            idle_share: None,
            ops,
        }
    }

    /// The table.
    pub(super) fn lines(&self, case: &str) -> Vec<String> {
        let Self { steps, milliseconds, ops, host_milliseconds, idle_share } = self;
        let width = ops.iter().map(|op| op.op.len()).max().unwrap_or(0).max(20);
        let mut lines = vec![
            String::new(),
            format!("{case}: {milliseconds:.3} ms a step, the mean of {steps}"),
            format!(
                "{:<width$}{:>7}{:>11}{:>8}{:>13}{:>14}",
                "op", "nodes", "ms", "share", "bytes", "of the bound"
            ),
        ];
        lines.extend(ops.iter().map(|op| {
            format!(
                "{:<width$}{:>7}{:>11.3}{:>6.1} %{:>13}{:>12.0} %",
                op.op,
                op.nodes,
                op.milliseconds,
                100.0 * op.share,
                bytes(op.bytes),
                100.0 * op.bound_fraction
            )
        }));
        let share = 100.0 * host_milliseconds / milliseconds;
        lines.push(format!("{:<width$}{:>7}{host_milliseconds:>11.3}{share:>6.1} %", "host", ""));
        lines.extend(
            idle_share.map(|idle| format!("device idle, as steps run without clocks: {:.1} %", 100.0 * idle)),
        );
        lines
    }
}

fn add(
    ops: &mut Vec<OpFacts>,
    program: &Program,
    node: &Node,
    time: NodeTime,
    cost: &Cost,
    machine: &Machine,
) {
    let name = name(program, node);
    let place = ops.iter().position(|op| op.op == name).unwrap_or_else(|| {
        let zero = OpFacts {
            op: name,
            nodes: 0,
            milliseconds: 0.0,
            share: 0.0,
            bytes: 0,
            operations: 0,
            bound_fraction: 0.0,
            least: 0.0,
        };
        ops.push(zero);
        ops.len() - 1
    });
    let op = &mut ops[place];
    op.nodes += 1;
    op.milliseconds += milliseconds(time.end.saturating_sub(time.start));
    op.bytes += cost.bytes();
    op.operations += cost.flops;
    op.least += cost.seconds(machine);
}

/// The operation and its first weight, without numbers: `linear attention.q`.
pub(super) fn name(program: &Program, node: &Node) -> String {
    let weight = node.op.weights().first().map(|id| program.weight(*id).name.as_str());
    let Some(weight) = weight else { return node.op.name().to_owned() };
    let is_word = |part: &&str| part.parse::<u32>().is_err() && !matches!(*part, "layers" | "weight");
    let words: Vec<&str> = weight.split('.').filter(is_word).collect();
    format!("{} {}", node.op.name(), words.join("."))
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

impl PhaseFacts {
    pub(super) fn new(stats: &EngineStats) -> Self {
        let each = |time: Duration| time.as_secs_f64() * 1e6 / stats.steps.max(1) as f64;
        let Phases { schedule, assemble, run, sample, commit } = stats.phases;
        Self {
            steps: stats.steps,
            schedule_us: each(schedule),
            assemble_us: each(assemble),
            run_us: each(run),
            sample_us: each(sample),
            commit_us: each(commit),
        }
    }

    pub(super) fn line(&self) -> String {
        let Self { steps, schedule_us, assemble_us, run_us, sample_us, commit_us } = self;
        format!(
            "schedule {schedule_us:.1} us, assemble {assemble_us:.1}, run {run_us:.1}, sample {sample_us:.1}, commit \
             {commit_us:.1} (the engine, the mean of {steps} steps)"
        )
    }
}
