//! What holds between the nodes of a program: who writes a state entry and when, what comes last, and whether the
//! program may be given a prompt in pieces.

use super::{Place, ProgramError};
use crate::{Attention, CaptureId, ExpertLinear, Mask, Node, Op, Program, StateId, ValueId};
use std::collections::{HashMap, HashSet};

pub(super) fn check(program: &Program) -> Result<(), ProgramError> {
    let mut seen = Seen::default();
    for (place, node) in program.nodes.iter().enumerate() {
        node.parts().iter().try_for_each(|part| seen.node(program, place, part))?;
    }
    Ok(())
}

/// What the nodes so far have done.
#[derive(Default)]
struct Seen {
    /// The keys that were written to each entry.
    written: HashMap<StateId, ValueId>,
    convolved: HashSet<StateId>,
    ruled: HashSet<StateId>,
    captures: HashSet<CaptureId>,
    experts: HashMap<ValueId, usize>,
    sampled: bool,
}

impl Seen {
    fn node(&mut self, program: &Program, place: usize, node: &Node) -> Result<(), ProgramError> {
        let at = Place { program, node: place, op: node.op.name() };
        let last = matches!(node.op, Op::Sample | Op::Accept | Op::MapIds { .. });
        at.same("after sampling come only sample, map_ids and accept", true, last || !self.sampled)?;
        self.sampled |= matches!(node.op, Op::Sample | Op::Accept);
        if let Op::WriteKv { state } = &node.op {
            let before = self.written.insert(*state, node.inputs[0]);
            at.same("first writer of its state", true, before.is_none())?;
        } else if let Op::CausalConv { state, .. } = &node.op {
            at.same("first writer of its window", true, self.convolved.insert(*state))?;
        } else if let Op::GatedDeltaRule(rule) = &node.op {
            at.same("first writer of its matrices", true, self.ruled.insert(rule.state))?;
        } else if let Op::Capture { id } = &node.op {
            at.same("first capture of its number", true, self.captures.insert(*id))?;
        } else if let Op::RouteExperts(router) = &node.op {
            self.experts.insert(node.outputs[0], router.experts);
        } else if let Op::ExpertLinear(op) = &node.op {
            self.expert_linear(at, op, node)?;
        } else if let Op::Attention(op) = &node.op {
            self.attention(at, op, node)?;
        }
        Ok(())
    }

    fn expert_linear(&self, at: Place<'_>, op: &ExpertLinear, node: &Node) -> Result<(), ProgramError> {
        let experts = self.experts.get(&node.inputs[1]).copied();
        at.same("experts of the router and of its weight", experts, Some(at.shape(op.weight)?[0]))
    }

    /// Rows that are in no page are handed over; rows that are must have been written before.
    fn attention(&self, at: Place<'_>, op: &Attention, node: &Node) -> Result<(), ProgramError> {
        let written = node.inputs.len() < 3;
        let keys = self.written.get(&op.state);
        at.same("rows written before", written, keys.is_some())?;
        if let [_, read] = &node.inputs[..] {
            at.same("keys that were written", keys, Some(read))?;
        }
        match op.mask {
            Mask::Block | Mask::BlockWindow(_) if written => {
                // A later chunk's rows would be seen by its own rows alone.
                at.same("program that needs a whole prompt", true, at.program.whole_prompt_only)
            }
            Mask::Block | Mask::BlockWindow(_) | Mask::Causal | Mask::Window(_) => Ok(()),
        }
    }
}
