//! Runs nodes: finds what each reads and where it writes, and calls the kernel of its name.

use super::is_same;
use super::values::Values;
use crate::backend::unknown;
use crate::kernels::attention::RowBlocks;
use crate::kernels::embed::Source;
use crate::kernels::pages::Sequence;
use crate::kernels::product::activations::Activations;
use crate::kernels::product::pairs::PairRows;
use crate::kernels::rope::Angles;
use crate::kernels::{
    self, Crew, add, combine_experts, concat, decay_gate, gated_norm, gather_rows, gelu_gate, head_norm,
    l2_norm, pool, position_scale, rms_norm, scale, sigmoid_gate, silu_gate, slice, soft_cap,
};
use crate::state::{CpuState, Kept};
use crate::weights::{Matrix, Weight};
use gannet_ops::step::{StepValues, map_ids};
use gannet_ops::{
    Batch, DeviceError, Element, FusedKind, InputKind, Node, NodeObserver, Op, Program, Rope, RopeTable,
    Router, Rows, TokenSource, ValueId, WeightId,
};
use std::ops::Range;
use std::sync::Arc;

/// A step in progress.
pub(super) struct Run<'a, 'b> {
    pub(super) weights: &'a [Arc<Weight>],
    /// All known: resolved against earlier steps.
    pub(super) batch: &'a Batch,
    pub(super) state: &'a mut CpuState,
    pub(super) values: &'a mut Values,
    pub(super) crew: &'a mut Crew<'b>,
    ropes: &'a mut [(Arc<RopeTable>, Angles)],
    /// For each page group, the sequences with their pages of it.
    pub(super) groups: Vec<Vec<Sequence<'a>>>,
    /// The sequence of each row.
    pub(super) sequence_of: Vec<u32>,
    /// The rows that attention works on together.
    pub(super) row_blocks: RowBlocks,
    pub(super) kept: Kept,
    sources: Vec<Source>,
    space: &'a mut Space,
}

/// Memory of what a step makes of its batch, for the next step.
#[derive(Default)]
pub(super) struct Space {
    groups: Vec<Vec<Sequence<'static>>>,
    sequence_of: Vec<u32>,
    row_blocks: RowBlocks,
    sources: Vec<Source>,
}

/// A list for sequences of another batch, in the memory of an emptied one.
fn emptied<'b>(mut list: Vec<Sequence<'_>>) -> Vec<Sequence<'b>> {
    list.clear();
    // Nothing is mapped: a list that is turned into one of elements alike keeps its memory.
    list.into_iter().map(|_| unreachable!("the list is empty")).collect()
}

/// What a node reads.
pub(super) struct Inputs<'a> {
    values: &'a Values,
    ids: &'a [ValueId],
}

impl<'a> Inputs<'a> {
    /// Input number `place`, `[rows, width]`.
    pub(super) fn x(&self, place: usize) -> &'a [f32] {
        self.values.numbers(self.ids[place])
    }

    /// Input number `place` as codes.
    pub(super) fn codes(&self, place: usize) -> &'a Activations {
        self.values.codes(self.ids[place])
    }

    /// Input number `place` as bf16 numbers.
    pub(super) fn pairs(&self, place: usize) -> &'a PairRows {
        self.values.pairs(self.ids[place])
    }

    pub(super) fn width(&self, place: usize) -> usize {
        self.values.of(self.ids[place]).width
    }

    pub(super) fn ids(&self, place: usize) -> &'a [Option<u32>] {
        self.values.ids(self.ids[place])
    }

    pub(super) fn count(&self) -> usize {
        self.ids.len()
    }
}

impl<'a, 'b> Run<'a, 'b> {
    pub(super) fn new(
        program: &'a Program,
        weights: &'a [Arc<Weight>],
        (batch, ropes, space): (&'a Batch, &'a mut [(Arc<RopeTable>, Angles)], &'a mut Space),
        state: &'a mut CpuState,
        values: &'a mut Values,
        crew: &'a mut Crew<'b>,
    ) -> Result<Self, DeviceError> {
        for (table, angles) in ropes.iter_mut() {
            angles.fill(table, batch.rows.iter().map(|row| row.position));
        }
        let mut groups: Vec<Vec<Sequence<'a>>> = std::mem::take(&mut space.groups);
        groups.resize_with(program.state.groups.len(), Vec::new);
        for (group, list) in groups.iter_mut().enumerate() {
            list.extend(sequences(batch, group));
        }
        let mut row_blocks = std::mem::take(&mut space.row_blocks);
        row_blocks.fill(groups.first().map_or(&[], Vec::as_slice));
        let mut sequence_of = std::mem::take(&mut space.sequence_of);
        sequence_of.clear();
        sequence_of.extend(batch.rows.iter().map(|row| row.sequence));
        let (kept, sources) = (Kept::default(), std::mem::take(&mut space.sources));
        let mut run = Self {
            weights,
            batch,
            state,
            values,
            crew,
            ropes,
            groups,
            sequence_of,
            row_blocks,
            kept,
            sources,
            space,
        };
        for (kind, id) in &program.inputs {
            run.input(*kind, *id)?;
        }
        Ok(run)
    }

    /// What the step leaves for later ones.
    pub(super) fn finish(self) -> Kept {
        let Self { groups, sequence_of, row_blocks, sources, space, kept, .. } = self;
        let groups = groups.into_iter().map(emptied).collect();
        *space = Space { groups, sequence_of, row_blocks, sources };
        kept
    }

    /// Runs one node.
    pub(super) fn node(&mut self, node: &Node) -> Result<(), DeviceError> {
        let weights = self.weights;
        match &node.op {
            Op::RmsNorm { .. }
            | Op::HeadNorm { .. }
            | Op::GatedNorm { .. }
            | Op::L2Norm { .. }
            | Op::DecayGate { .. }
            | Op::SiluGate
            | Op::GeluGate
            | Op::ClampedGate { .. }
            | Op::SigmoidGate
            | Op::SoftCap { .. }
            | Op::Scale { .. }
            | Op::Add
            | Op::CombineExperts
            | Op::Slice { .. }
            | Op::Concat => {
                self.make(node, |crew, inputs, out| compute(&node.op, weights, crew, inputs, out))
            }
            Op::Linear { .. } => self.linears(std::slice::from_ref(node)),
            Op::ExpertLinear(op) => self.expert_linear(op, node),
            Op::Embed { weight } => self.embed(matrix(weights, *weight), node),
            Op::Rope(rope) => self.rope(rope, node),
            Op::PositionScale { slope, period } => self.position_scale((*slope, *period), node),
            Op::WriteKv { state } => self.write_kv(*state, node),
            Op::Attention(op) => self.attention(op, node),
            Op::CausalConv { weight, state } => self.causal_conv(vector(weights, *weight), *state, node),
            Op::GatedDeltaRule(rule) => self.gated_delta_rule(rule, node),
            Op::RouteExperts(router) => self.route_experts(router, node),
            Op::SelectOutputs => {
                let batch = self.batch;
                let picked = || batch.outputs.iter().map(|output| output.row as usize);
                self.make(node, |_, inputs, out| {
                    gather_rows::pick(inputs.x(0), inputs.width(0), picked(), out)
                })
            }
            Op::Pool { kind } => {
                let rows =
                    self.batch.sequences.iter().map(|part| usize_range(&part.rows)).collect::<Vec<_>>();
                self.make(node, |crew, inputs, out| {
                    pool::pool(crew, *kind, (inputs.x(0), inputs.width(0)), &rows, out)
                })
            }
            Op::GatherRows { handed } => self.gather_rows(*handed, node),
            Op::MapIds { table } => {
                *self.values.ids_mut(node.outputs[0]) = map_ids(self.values.ids(node.inputs[0]), table)?;
                Ok(())
            }
            Op::Capture { id } => {
                let value = node.inputs[0];
                self.kept.capture(*id, self.values.of(value).width, self.values.numbers(value));
                Ok(())
            }
            Op::Fused { kind: FusedKind::AddRmsNorm, body } => self.add_rms_norm(body, node),
            Op::Fused {
                kind: FusedKind::QueryKeyValue | FusedKind::GatedLinear | FusedKind::GatedExperts,
                ..
            } => {
                unreachable!("the plan has the ops of their bodies in place of them")
            }
            Op::Sample | Op::Accept => unreachable!("these run on the host, after the forward pass"),
        }
    }

    /// Shows what a node made.
    pub(super) fn show(&self, place: usize, node: &Node, observe: &mut NodeObserver<'_>) {
        let shown = |id: &ValueId| match self.values.of(*id).element {
            Element::F32 => self.values.numbers(*id).to_vec(),
            Element::Id => {
                self.values.ids(*id).iter().map(|id| id.map_or(f32::NAN, |id| id as f32)).collect()
            }
        };
        let shown: Vec<Vec<f32>> = node.outputs.iter().map(shown).collect();
        observe(place, node, &shown.iter().map(Vec::as_slice).collect::<Vec<_>>());
    }

    /// Makes the only value of a node, of numbers.
    pub(super) fn make(
        &mut self,
        node: &Node,
        kernel: impl FnOnce(&mut Crew<'_>, &Inputs<'_>, &mut [f32]),
    ) -> Result<(), DeviceError> {
        let id = node.outputs[0];
        let rows = self.rows_of(id, node);
        let mut buffer = self.values.take(id, rows)?;
        let out = &mut buffer.as_mut_slice()[..rows * self.values.of(id).width];
        kernel(self.crew, &Inputs { values: self.values, ids: &node.inputs }, out);
        self.values.put(id, buffer);
        Ok(())
    }

    /// Rows that a node's output has.
    pub(super) fn rows_of(&self, id: ValueId, node: &Node) -> usize {
        match self.values.of(id).rows {
            Rows::Tokens => self.batch.rows.len(),
            Rows::Outputs => self.batch.outputs.len(),
            Rows::Sequences => self.batch.sequences.len(),
            Rows::Routed(k) => self.batch.rows.len() * k as usize,
            Rows::Handed => self.values.rows(node.inputs[0]),
        }
    }

    /// Makes a value that exists before the first node.
    fn input(&mut self, kind: InputKind, id: ValueId) -> Result<(), DeviceError> {
        match kind {
            InputKind::Ids => {
                let batch = self.batch;
                let ids = self.values.ids_mut(id);
                ids.clear();
                ids.extend(batch.rows.iter().map(|row| known_id(row.token)));
                Ok(())
            }
            InputKind::Embeddings => self.embeddings(id),
            InputKind::Handed(number) => self.handed(number, id),
        }
    }

    /// The embedding of each row that brings one; zeros for the others.
    fn embeddings(&mut self, id: ValueId) -> Result<(), DeviceError> {
        let (rows, width) = (&self.batch.rows, self.values.of(id).width);
        let mut buffer = self.values.take(id, rows.len())?;
        let out: &mut [f32] = buffer.as_mut_slice();
        for (row, out) in rows.iter().zip(out.chunks_exact_mut(width)) {
            match row.token {
                TokenSource::Embedding(number) => {
                    let found = self.batch.embeddings.chunks_exact(width).nth(number as usize);
                    let brought = self.batch.embeddings.len() / width;
                    let missing =
                        || unknown("embedding", number, format!("the batch brings {brought} of {width}"));
                    out.copy_from_slice(found.ok_or_else(missing)?);
                }
                TokenSource::Known(_) | TokenSource::Sampled { .. } => out.fill(0.0),
            }
        }
        self.values.put(id, buffer);
        Ok(())
    }

    /// A captured value of an earlier step.
    fn handed(&mut self, number: u32, id: ValueId) -> Result<(), DeviceError> {
        let handed = self.batch.handed.get(number as usize);
        let handed = handed.ok_or_else(|| unknown("handed value", number, "the batch brings fewer"))?;
        let captured = self.state.captured(handed.step, handed.capture)?;
        let wanted = self.values.of(id).width;
        if captured.width != wanted {
            let reason = format!("it is {} wide, the program reads {wanted}", captured.width);
            return Err(unknown("capture", handed.capture.0, reason));
        }
        let mut buffer = self.values.take(id, captured.data.len() / wanted)?;
        buffer.as_mut_slice()[..captured.data.len()].copy_from_slice(&captured.data);
        self.values.put(id, buffer);
        Ok(())
    }

    fn embed(&mut self, matrix: &Matrix, node: &Node) -> Result<(), DeviceError> {
        let vocabulary = matrix.rows;
        let vectors = node.inputs.get(1).map(|id| self.values.numbers(*id).chunks_exact(matrix.columns));
        let mut vectors = vectors.into_iter().flatten();
        let mut sources = std::mem::take(&mut self.sources);
        sources.clear();
        for (row, id) in self.values.ids(node.inputs[0]).iter().enumerate() {
            let vector = vectors.next();
            sources.push(match (id, vector) {
                (Some(id), _) if (*id as usize) < vocabulary => Source::Id(*id),
                (Some(id), _) => return Err(DeviceError::UnknownToken { id: *id, vocabulary }),
                (None, Some(_)) => Source::Vector(row),
                (None, None) => {
                    return Err(unknown("id of row", row as u64, "the program reads no embeddings"));
                }
            });
        }
        self.make(node, |crew, inputs, out| {
            let vectors = if inputs.count() > 1 { inputs.x(1) } else { &[] };
            kernels::embed::embed(crew, &sources, vectors, matrix, out);
        })?;
        self.sources = sources;
        Ok(())
    }

    fn rope(&mut self, rope: &Rope, node: &Node) -> Result<(), DeviceError> {
        let place = self.ropes.iter().position(|(table, _)| is_same(table, &rope.table));
        let ropes: &[(Arc<RopeTable>, Angles)] = self.ropes;
        let angles = &ropes[place.expect("the plan collected every rope")].1;
        let id = node.outputs[0];
        let mut buffer = self.values.take(id, self.batch.rows.len())?;
        let (x, width) = (self.values.numbers(node.inputs[0]), self.values.of(id).width);
        let out = &mut buffer.as_mut_slice()[..x.len()];
        kernels::rope::rope(self.crew, angles, (width, rope.head_dim), x, out);
        self.values.put(id, buffer);
        Ok(())
    }

    fn position_scale(&mut self, (slope, period): (f32, u32), node: &Node) -> Result<(), DeviceError> {
        let rows = self.batch.rows.iter();
        let factors: Vec<f32> =
            rows.map(|row| position_scale::factor(slope, period, row.position[0])).collect();
        self.make(node, |crew, inputs, out| {
            position_scale::position_scale(crew, &factors, inputs.width(0), inputs.x(0), out);
        })
    }

    fn gather_rows(&mut self, handed: u32, node: &Node) -> Result<(), DeviceError> {
        let batch = self.batch;
        let found = batch.handed.get(handed as usize);
        let row_map =
            &found.ok_or_else(|| unknown("handed value", handed, "the batch brings fewer"))?.row_map;
        let rows = self.values.rows(node.inputs[0]);
        if let Some(row) = row_map.iter().find(|row| **row as usize >= rows) {
            return Err(unknown("handed row", *row, format!("the captured value has {rows} rows")));
        }
        let picked = || row_map.iter().map(|row| *row as usize);
        self.make(node, |_, inputs, out| gather_rows::pick(inputs.x(0), inputs.width(0), picked(), out))
    }

    fn route_experts(&mut self, router: &Router, node: &Node) -> Result<(), DeviceError> {
        let [ids, weights] = [node.outputs[0], node.outputs[1]];
        let rows = self.rows_of(weights, node);
        let mut buffer = self.values.take(weights, rows)?;
        let mut chosen = std::mem::take(self.values.ids_mut(ids));
        let mut space = std::mem::take(&mut self.values.routing);
        let logits = self.values.numbers(node.inputs[0]);
        kernels::route_experts::route_experts(
            (router, &mut space),
            logits,
            &mut chosen,
            &mut buffer.as_mut_slice()[..rows],
        );
        *self.values.ids_mut(ids) = chosen;
        self.values.routing = space;
        self.values.put(weights, buffer);
        Ok(())
    }

    fn add_rms_norm(&mut self, body: &[Node], node: &Node) -> Result<(), DeviceError> {
        let [.., Node { op: Op::RmsNorm { weight, epsilon }, .. }] = body else {
            unreachable!("the rewrite ends the body with the norm");
        };
        let [sum, normed] = [node.outputs[0], node.outputs[1]];
        let rows = self.rows_of(sum, node);
        let (mut sum_buffer, mut normed_buffer) =
            (self.values.take(sum, rows)?, self.values.take(normed, rows)?);
        let [a, b] = [node.inputs[0], node.inputs[1]].map(|id| self.values.numbers(id));
        let outs = [&mut sum_buffer.as_mut_slice()[..a.len()], &mut normed_buffer.as_mut_slice()[..a.len()]];
        kernels::add_rms_norm::add_rms_norm(self.crew, [a, b], vector(self.weights, *weight), *epsilon, outs);
        self.values.put(sum, sum_buffer);
        self.values.put(normed, normed_buffer);
        Ok(())
    }
}

/// Calls the kernel of an op that reads values and weights alone and makes one value of numbers.
fn compute(op: &Op, weights: &[Arc<Weight>], crew: &mut Crew<'_>, inputs: &Inputs<'_>, out: &mut [f32]) {
    let x = |place| inputs.x(place);
    let w = |id: &WeightId| vector(weights, *id);
    match op {
        Op::RmsNorm { weight, epsilon } => rms_norm::rms_norm(crew, x(0), w(weight), *epsilon, out),
        Op::HeadNorm { weight, epsilon, .. } => head_norm::head_norm(crew, x(0), w(weight), *epsilon, out),
        Op::GatedNorm { weight, epsilon, .. } => {
            gated_norm::gated_norm(crew, [x(0), x(1)], w(weight), *epsilon, out);
        }
        Op::L2Norm { heads, epsilon, scale } => {
            l2_norm::l2_norm(crew, x(0), inputs.width(0) / heads, (*epsilon, *scale), out);
        }
        Op::DecayGate { decay, bias } => decay_gate::decay_gate(crew, x(0), w(decay), w(bias), out),
        Op::SiluGate => silu_gate::silu_gate(crew, x(0), x(1), out),
        Op::GeluGate => gelu_gate::gelu_gate(crew, x(0), x(1), out),
        Op::ClampedGate { alpha, limit } => {
            kernels::clamped_gate::clamped_gate(crew, (*alpha, *limit), x(0), x(1), out);
        }
        Op::SigmoidGate => sigmoid_gate::sigmoid_gate(crew, inputs.width(0), x(0), x(1), out),
        Op::SoftCap { cap } => soft_cap::soft_cap(crew, *cap, x(0), out),
        Op::Scale { factor } => scale::scale(crew, *factor, x(0), out),
        Op::Add => add::add(crew, x(0), x(1), out),
        Op::CombineExperts => {
            let shared = (inputs.count() > 2).then(|| x(2));
            combine_experts::combine_experts(crew, (x(0), inputs.width(0)), x(1), shared, out);
        }
        Op::Slice { groups, start, width } => {
            slice::slice(x(0), inputs.width(0) / groups, *start, *width, out);
        }
        Op::Concat => concat::concat((0..inputs.count()).map(|place| (x(place), inputs.width(place))), out),
        Op::Embed { .. }
        | Op::Linear { .. }
        | Op::ExpertLinear(_)
        | Op::Rope(_)
        | Op::PositionScale { .. }
        | Op::WriteKv { .. }
        | Op::Attention(_)
        | Op::CausalConv { .. }
        | Op::GatedDeltaRule(_)
        | Op::RouteExperts(_)
        | Op::SelectOutputs
        | Op::Pool { .. }
        | Op::GatherRows { .. }
        | Op::MapIds { .. }
        | Op::Capture { .. }
        | Op::Sample
        | Op::Accept
        | Op::Fused { .. } => unreachable!("`{}` reads more than values and weights", op.name()),
    }
}

/// The sequences of a batch with their pages of one group.
fn sequences(batch: &Batch, group: usize) -> impl Iterator<Item = Sequence<'_>> {
    batch.sequences.iter().map(move |part| {
        let table = &part.tables[group];
        Sequence {
            rows: usize_range(&part.rows),
            first_index: part.length.at_most() as usize,
            released: table.released as usize,
            pages: &batch.pages[usize_range(&table.pages)],
        }
    })
}

fn usize_range(range: &Range<u32>) -> Range<usize> {
    range.start as usize..range.end as usize
}

fn known_id(token: TokenSource) -> Option<u32> {
    match token {
        TokenSource::Known(id) => Some(id.0),
        TokenSource::Sampled { .. } | TokenSource::Embedding(_) => None,
    }
}

pub(super) fn vector(weights: &[Arc<Weight>], id: WeightId) -> &[f32] {
    match &*weights[id.0 as usize] {
        Weight::Vector(vector) => vector,
        Weight::Matrix(_) => unreachable!("the plan checked each weight against its role"),
    }
}

pub(super) fn matrix(weights: &[Arc<Weight>], id: WeightId) -> &Matrix {
    match &*weights[id.0 as usize] {
        Weight::Matrix(matrix) => matrix,
        Weight::Vector(_) => unreachable!("the plan checked each weight against its role"),
    }
}
