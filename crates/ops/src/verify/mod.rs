//! Checks a program once, at load, so that no backend has to.
//!
//! Every value is made once, before it is read, by an op whose documented types it has, and is read by somebody;
//! weights and state entries have the sizes that their readers imply; what runs after sampling needs nothing but
//! sampled ids. [`types`] knows the ops one by one, this file what holds between them. Knows no batch.

mod order;
mod stateful;
mod types;

use crate::fusion::queries_and_keys_of;
use crate::{
    Element, FusedKind, GatedExperts, GatedLinear, GroupId, InputKind, KvFormat, Node, Op, OutputKind,
    PageLifetime, PagedLayout, Program, QueryKeyValue, RecurrentLayout, Rows, StateEntry, StateId, Value,
    ValueId, WeightId, WeightRole,
};
use std::fmt::Debug;

/// What is wrong with a program; a fault of its author, never of a client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    /// A value is read that no input, and no node before, makes.
    #[error("node {node} (`{op}`) reads %{value}, which nothing before it makes")]
    NotMade {
        /// The place of the node.
        node: usize,
        /// The name of its op.
        op: &'static str,
        /// The value.
        value: u32,
    },
    /// A value is made by two nodes, or is an input as well.
    #[error("node {node} (`{op}`) makes %{value}, which exists already")]
    MadeTwice {
        /// The place of the node.
        node: usize,
        /// The name of its op.
        op: &'static str,
        /// The value.
        value: u32,
    },
    /// A node contradicts what its op documents, or the nodes around it.
    #[error("node {node} (`{op}`): {what}: expected {expected}, found {found}")]
    Node {
        /// The place of the node.
        node: usize,
        /// The name of its op.
        op: &'static str,
        /// What was looked at.
        what: &'static str,
        /// What the op needs.
        expected: String,
        /// What the program has.
        found: String,
    },
    /// An input, output or state entry contradicts what its kind documents.
    #[error("{place}: {what}: expected {expected}, found {found}")]
    Interface {
        /// Which one.
        place: String,
        /// What was looked at.
        what: &'static str,
        /// What its kind needs.
        expected: String,
        /// What the program has.
        found: String,
    },
    /// A value that no node reads and the step doesn't return.
    #[error("%{value} is never read; don't make it, or return it")]
    Unused {
        /// The value.
        value: u32,
    },
    /// A weight that no node reads.
    #[error("weight `{name}` is never read; don't declare it")]
    UnusedWeight {
        /// Its canonical name.
        name: String,
    },
}

/// Checks everything about a program that doesn't depend on a batch.
pub fn verify(program: &Program) -> Result<(), ProgramError> {
    check_state(program)?;
    let mut values =
        Values { exists: vec![false; program.values.len()], read: vec![false; program.values.len()] };
    check_inputs(program, &mut values)?;
    for (place, node) in program.nodes.iter().enumerate() {
        check_node(program, place, node, &mut values)?;
    }
    order::check(program)?;
    check_outputs(program, &mut values)?;
    check_unused(program, &values)
}

/// Which values exist at a point of the program, and which were read up to it.
#[derive(Clone)]
struct Values {
    exists: Vec<bool>,
    read: Vec<bool>,
}

/// Where a check stands, for its error.
#[derive(Clone, Copy)]
struct Place<'a> {
    program: &'a Program,
    node: usize,
    op: &'static str,
}

fn check_node(program: &Program, place: usize, node: &Node, values: &mut Values) -> Result<(), ProgramError> {
    let op = node.op.name();
    let at = Place { program, node: place, op };
    for id in &node.inputs {
        if !values.exists.get(id.0 as usize).copied().unwrap_or(false) {
            return Err(ProgramError::NotMade { node: place, op, value: id.0 });
        }
        values.read[id.0 as usize] = true;
    }
    let made = if let Op::Fused { kind, body } = &node.op {
        check_kind(at, *kind, node, body)?;
        fused_types(at, node, body, values)?
    } else {
        types::made_by(at, &node.op, &types_of(program, &node.inputs))?
    };
    at.same("number of outputs", made.len(), node.outputs.len())?;
    for (id, expected) in node.outputs.iter().zip(made) {
        let Some(declared) = program.values.get(id.0 as usize) else {
            return Err(ProgramError::NotMade { node: place, op, value: id.0 });
        };
        at.same("type of its output", expected, *declared)?;
        if std::mem::replace(&mut values.exists[id.0 as usize], true) {
            return Err(ProgramError::MadeTwice { node: place, op, value: id.0 });
        }
    }
    Ok(())
}

/// Checks a body as if it stood in the program, but for the values that it may read: the inputs of its node.
fn fused_types(
    at: Place<'_>,
    node: &Node,
    body: &[Node],
    outer: &mut Values,
) -> Result<Vec<Value>, ProgramError> {
    let mut inner = Values { exists: vec![false; outer.exists.len()], read: vec![false; outer.exists.len()] };
    for id in &node.inputs {
        inner.exists[id.0 as usize] = true;
    }
    for part in body {
        at.same("a fused op inside of a fused op", false, matches!(part.op, Op::Fused { .. }))?;
        check_node(at.program, at.node, part, &mut inner)?;
        if let Some(id) = part.outputs.iter().find(|id| outer.exists[id.0 as usize]) {
            return Err(ProgramError::MadeTwice { node: at.node, op: part.op.name(), value: id.0 });
        }
    }
    for id in &node.inputs {
        at.same("input read by the body", true, inner.read[id.0 as usize])?;
    }
    for id in &node.outputs {
        at.same("output made by the body", true, inner.exists.get(id.0 as usize).copied().unwrap_or(false))?;
        // What the body alone reads is an output still, for the fused op makes it.
        outer.read[id.0 as usize] |= inner.read[id.0 as usize];
    }
    Ok(types_of(at.program, &node.outputs))
}

/// Checks that the body is what the kernel of this kind computes.
fn check_kind(at: Place<'_>, kind: FusedKind, node: &Node, body: &[Node]) -> Result<(), ProgramError> {
    match kind {
        FusedKind::AddRmsNorm => {
            let names: Vec<&str> = body.iter().map(|part| part.op.name()).collect();
            at.same("ops of its body", vec!["add", "rms_norm"], names)?;
            at.same("inputs of the add", &node.inputs, &body[0].inputs)?;
            at.same("input of the norm", &body[0].outputs, &body[1].inputs)?;
            at.same(
                "sum and normed sum",
                [&body[0].outputs[..], &body[1].outputs[..]].concat(),
                node.outputs.clone(),
            )
        }
        FusedKind::QueryKeyValue => {
            let mut made: Vec<ValueId> = queries_and_keys_of(body).into_iter().flatten().collect();
            // Keys are made for others only where there are any.
            made.truncate(node.outputs.len().max(1));
            at.same(
                "projections, norms, rotations and pages as its body",
                true,
                QueryKeyValue::of(body).is_some(),
            )?;
            at.same("queries, and perhaps keys", made, node.outputs.clone())
        }
        FusedKind::GatedLinear => {
            at.same("two products and a gate as its body", true, GatedLinear::of(body).is_some())?;
            at.same("gated product", &body[2].outputs, &node.outputs)
        }
        FusedKind::GatedExperts => {
            at.same(
                "two products by experts and a gate as its body",
                true,
                GatedExperts::of(body).is_some(),
            )?;
            at.same("gated product", &body[2].outputs, &node.outputs)
        }
    }
}

fn types_of(program: &Program, ids: &[ValueId]) -> Vec<Value> {
    ids.iter().map(|id| program.value(*id)).collect()
}

fn check_state(program: &Program) -> Result<(), ProgramError> {
    let layout = &program.state;
    for (entry, state) in layout.entries.iter().enumerate() {
        let place = || format!("state entry {entry}");
        match state {
            StateEntry::Paged(paged) => {
                let sizes = [paged.kv_heads, paged.key_dim, paged.value_dim];
                expect(place, "heads and dims above zero", true, sizes.iter().all(|n| *n > 0))?;
                expect(place, "group exists", true, (paged.group.0 as usize) < layout.groups.len())?;
                let is_open = |group: GroupId| {
                    layout.groups.get(group.0 as usize).map(|group| group.lifetime)
                        == Some(PageLifetime::Open)
                };
                let is_quantised = paged.key_format == KvFormat::Int8;
                expect(place, "open pages for keys in int8", is_quantised, paged.open.is_some_and(is_open))?;
                expect(place, "open pages for other keys", false, !is_quantised && paged.open.is_some())?;
                expect(place, "group of open pages for its pages", false, is_open(paged.group))?;
            }
            StateEntry::Recurrent(recurrent) => {
                let delta = recurrent.state;
                let sizes =
                    [recurrent.conv.channels, recurrent.conv.kernel, delta.value_heads, delta.key_dim];
                let positive = delta.value_dim > 0 && sizes.iter().all(|n| *n > 0);
                expect(place, "channels, taps, heads and dims above zero", true, positive)?;
            }
        }
    }
    Ok(())
}

fn check_inputs(program: &Program, values: &mut Values) -> Result<(), ProgramError> {
    for (number, (kind, id)) in program.inputs.iter().enumerate() {
        let place = || format!("input {kind:?}");
        let twice = program.inputs[..number].iter().any(|(other, _)| other == kind);
        expect(place, "declared twice", false, twice)?;
        let Some(value) = program.values.get(id.0 as usize).copied() else {
            return expect(place, "value exists", true, false);
        };
        let (rows, width, element) = match kind {
            InputKind::Ids => (Rows::Tokens, 1, Element::Id),
            InputKind::Embeddings => (Rows::Tokens, value.width, Element::F32),
            InputKind::Handed(_) => (Rows::Handed, value.width, Element::F32),
        };
        expect(place, "type", Value { rows, width, element }, value)?;
        expect(place, "value given to two inputs", false, values.exists[id.0 as usize])?;
        values.exists[id.0 as usize] = true;
    }
    Ok(())
}

fn check_outputs(program: &Program, values: &mut Values) -> Result<(), ProgramError> {
    for (number, (kind, id)) in program.outputs.iter().enumerate() {
        let place = || format!("output {kind:?}");
        let twice = program.outputs[..number].iter().any(|(other, _)| other == kind);
        expect(place, "declared twice", false, twice)?;
        let exists = values.exists.get(id.0 as usize).copied().unwrap_or(false);
        expect(place, "value is made", true, exists)?;
        let value = program.value(*id);
        let (rows, width, element) = match kind {
            OutputKind::Logits | OutputKind::Hidden => (Rows::Outputs, value.width, Element::F32),
            OutputKind::Pooled => (Rows::Sequences, value.width, Element::F32),
            OutputKind::Tokens => (Rows::Outputs, 1, Element::Id),
            OutputKind::Accepted => (Rows::Sequences, 1, Element::Id),
        };
        expect(place, "type", Value { rows, width, element }, value)?;
        values.read[id.0 as usize] = true;
    }
    Ok(())
}

fn check_unused(program: &Program, values: &Values) -> Result<(), ProgramError> {
    // Values that exist inside of a fused body alone are neither made nor read out here.
    let unused = (0..program.values.len()).find(|value| values.exists[*value] && !values.read[*value]);
    if let Some(value) = unused {
        return Err(ProgramError::Unused { value: value as u32 });
    }
    let mut read = vec![false; program.weights.len()];
    for id in program.nodes.iter().flat_map(|node| node.op.weights()) {
        read[id.0 as usize] = true;
    }
    match read.iter().position(|read| !read) {
        Some(weight) => Err(ProgramError::UnusedWeight { name: program.weights[weight].name.clone() }),
        None => Ok(()),
    }
}

fn expect<T: PartialEq + Debug>(
    place: impl Fn() -> String,
    what: &'static str,
    expected: T,
    found: T,
) -> Result<(), ProgramError> {
    if expected == found {
        return Ok(());
    }
    let (expected, found) = (format!("{expected:?}"), format!("{found:?}"));
    Err(ProgramError::Interface { place: place(), what, expected, found })
}

impl<'a> Place<'a> {
    fn same<T: PartialEq + Debug>(
        self,
        what: &'static str,
        expected: T,
        found: T,
    ) -> Result<(), ProgramError> {
        if expected == found {
            Ok(())
        } else {
            Err(self.wrong(what, format!("{expected:?}"), format!("{found:?}")))
        }
    }

    fn wrong(self, what: &'static str, expected: String, found: String) -> ProgramError {
        ProgramError::Node { node: self.node, op: self.op, what, expected, found }
    }

    fn weight(self, id: WeightId, roles: &[WeightRole], shape: &[usize]) -> Result<(), ProgramError> {
        let found = self.shape(id)?;
        self.same("shape of its weight", shape, found)?;
        let role = self.program.weight(id).role;
        if roles.contains(&role) {
            return Ok(());
        }
        Err(self.wrong("role of its weight", format!("{roles:?}"), format!("{role:?}")))
    }

    fn shape(self, id: WeightId) -> Result<&'a [usize], ProgramError> {
        let weight = self.program.weights.get(id.0 as usize);
        let missing =
            || self.wrong("weight", format!("below {}", self.program.weights.len()), id.0.to_string());
        weight.map(|weight| &weight.shape[..]).ok_or_else(missing)
    }

    fn entry(self, id: StateId) -> Result<&'a StateEntry, ProgramError> {
        let entries = &self.program.state.entries;
        let missing = || self.wrong("state entry", format!("below {}", entries.len()), id.0.to_string());
        entries.get(id.0 as usize).ok_or_else(missing)
    }

    fn paged(self, id: StateId) -> Result<&'a PagedLayout, ProgramError> {
        match self.entry(id)? {
            StateEntry::Paged(paged) => Ok(paged),
            StateEntry::Recurrent(_) => Err(self.wrong("state entry", "paged".into(), "recurrent".into())),
        }
    }

    fn recurrent(self, id: StateId) -> Result<&'a RecurrentLayout, ProgramError> {
        match self.entry(id)? {
            StateEntry::Recurrent(recurrent) => Ok(recurrent),
            StateEntry::Paged(_) => Err(self.wrong("state entry", "recurrent".into(), "paged".into())),
        }
    }
}
