//! The weights of a program as its nodes read them, and which fused ops have kernels over them.
//!
//! What a fused op multiplies with is one matrix, found by the first of those that it is made of.

use super::products;
use super::projections::HeadSizes;
use crate::driver::{Address, DeviceBuffer, Properties};
use crate::jit::{Gate, Made};
use crate::number::Number;
use crate::weights::{Arrangement, CudaWeights, GATED_ROWS, Stored, Weight, is_numbers};
use gannet_ops::{
    BatchLimits, DeviceError, FusedKind, GatedExperts, GatedLinear, Linear, Node, Op, Program, QueryKeyValue,
    ValueId, WeightId,
};
use std::collections::HashMap;
use std::sync::Arc;

/// Rows of a batch that the kernel of projections takes, at most: blocks in the second dimension of a grid.
const PROJECTED_ROWS_MAX: usize = 65_535;

/// The weights of a program.
pub(super) struct Matrices {
    /// Vectors, and matrices that are read alone.
    alone: Vec<Option<Arc<Weight>>>,
    joined: HashMap<WeightId, Joined>,
}

/// Several matrices that are read as one, in parts where they lie in different formats, and what is added to their products.
struct Joined {
    parts: Vec<Arc<Weight>>,
    bias: Option<DeviceBuffer>,
}

/// A product that a node is, or begins with.
pub(super) struct Product<'a> {
    /// Rows of one matrix after those of the one before; all multiply the same numbers.
    pub(super) parts: Vec<&'a Weight>,
    pub(super) bias: Address,
    /// What is multiplied.
    pub(super) x: ValueId,
    pub(super) gate: Option<Gate>,
}

/// A product of routed rows with the matrices of their experts.
pub(super) struct ExpertProduct<'a> {
    /// `[experts, rows, columns]`; with a gate, rows are those of gate and up.
    pub(super) weight: &'a Weight,
    pub(super) bias: Address,
    /// What is multiplied: a row a token, or one a routed row.
    pub(super) x: ValueId,
    pub(super) gate: Option<Gate>,
    pub(super) top_k: usize,
}

impl ExpertProduct<'_> {
    /// What it makes, where a gated one writes `format`.
    pub(super) fn made(&self, format: Number) -> Made {
        made(self.gate, format)
    }
}

fn made(gate: Option<Gate>, format: Number) -> Made {
    match gate {
        Some(gate) => Made { format, gate: Some(gate) },
        None => Made { format: Number::F32, gate: None },
    }
}

impl Product<'_> {
    /// Outputs of all parts.
    pub(super) fn outputs(&self) -> usize {
        self.parts.iter().map(|part| part.shape[0]).sum()
    }

    pub(super) fn columns(&self) -> usize {
        self.parts[0].shape[1]
    }

    /// The format of what is multiplied.
    pub(super) fn reads(&self) -> Number {
        self.parts[0].stored.reads()
    }

    /// What it makes, where a gated one writes `format`.
    pub(super) fn made(&self, format: Number) -> Made {
        made(self.gate, format)
    }
}

impl Matrices {
    /// The program's weights, each in the order that its nodes want.
    pub(super) fn new(program: &Program, weights: &CudaWeights) -> Result<Self, DeviceError> {
        let mut found =
            Self { alone: program.weights.iter().map(|_| None).collect(), joined: HashMap::new() };
        for (used, place) in program.weights.iter().zip(&mut found.alone) {
            weights.check(used)?;
            if is_numbers(used.role) {
                *place = weights.vector(&used.name);
            }
        }
        for node in &program.nodes {
            found.add(program, node, weights)?;
        }
        Ok(found)
    }

    fn add(&mut self, program: &Program, node: &Node, weights: &CudaWeights) -> Result<(), DeviceError> {
        let name = |id: WeightId| program.weight(id).name.clone();
        if let Some(GatedExperts { linears: [gate, up], .. }) = GatedExperts::of(node.parts()) {
            let parts = weights.arranged(&Arrangement::Gated([gate, up].map(|part| name(part.weight))))?;
            self.joined.insert(gate.weight, Joined { parts, bias: None });
            return Ok(());
        }
        let Some((linears, gate)) = linears(node.parts()) else {
            for id in node.op.weights() {
                let place = &mut self.alone[id.0 as usize];
                if place.is_none() {
                    *place = Some(weights.arranged(&Arrangement::alone(&name(id)))?.remove(0));
                }
            }
            return Ok(());
        };
        let names = linears.iter().map(|linear| name(linear.weight)).collect::<Vec<_>>();
        let arrangement = match (gate, &names[..]) {
            (Some(_), [gate, up]) => Arrangement::Gated([gate.clone(), up.clone()]),
            (Some(_) | None, _) => Arrangement::Stacked(names),
        };
        let parts = weights.arranged(&arrangement)?;
        let biases: Vec<WeightId> = linears.iter().filter_map(|linear| linear.bias).collect();
        let bias = if biases.is_empty() { None } else { Some(self.stacked(&biases, weights)?) };
        self.joined.insert(linears[0].weight, Joined { parts, bias });
        Ok(())
    }

    /// Vectors one after the other.
    fn stacked(&self, parts: &[WeightId], weights: &CudaWeights) -> Result<DeviceBuffer, DeviceError> {
        let parts: Vec<&Weight> = parts.iter().map(|id| self.alone(*id)).collect();
        let driver = weights.driver();
        let stacked = DeviceBuffer::new(driver, parts.iter().map(|part| part.buffer.bytes()).sum())?;
        let mut start = 0;
        for part in parts {
            driver.copy(stacked.address().offset(start), part.buffer.address(), part.buffer.bytes())?;
            start += part.buffer.bytes();
        }
        Ok(stacked)
    }

    /// A vector, or a matrix that is read alone.
    pub(super) fn alone(&self, id: WeightId) -> &Weight {
        self.alone[id.0 as usize].as_ref().expect("the plan brought what its nodes read")
    }

    /// The product that a node is or begins with.
    pub(super) fn product(&self, node: &Node) -> Option<Product<'_>> {
        let x = *node.inputs.first()?;
        if let Op::Linear { weight, bias } = &node.op {
            let bias = bias.map_or(Address::NONE, |bias| self.alone(bias).buffer.address());
            return Some(Product { parts: vec![self.alone(*weight)], bias, x, gate: None });
        }
        let (linears, gate) = linears(node.parts())?;
        let Joined { parts, bias } = &self.joined[&linears[0].weight];
        let bias = bias.as_ref().map_or(Address::NONE, DeviceBuffer::address);
        Some(Product { parts: parts.iter().map(Arc::as_ref).collect(), bias, x, gate })
    }

    /// The product by experts that a node is.
    pub(super) fn expert_product(&self, node: &Node) -> Option<ExpertProduct<'_>> {
        let (weight, linear, gate) = if let Op::ExpertLinear(linear) = &node.op {
            (self.alone(linear.weight), *linear, None)
        } else {
            let GatedExperts { linears: [gate, _], is_silu } = GatedExperts::of(node.parts())?;
            (self.joined[&gate.weight].parts[0].as_ref(), gate, Some(gate_of(is_silu)))
        };
        let bias = linear.bias.map_or(Address::NONE, |bias| self.alone(bias).buffer.address());
        let (x, top_k) = (*node.inputs.first()?, linear.top_k as usize);
        Some(ExpertProduct { weight, bias, x, gate, top_k })
    }

    /// What a node multiplies with matrices, and the format in which it reads that.
    pub(super) fn reads(&self, node: &Node) -> Option<(ValueId, Number)> {
        let dense = self.product(node).map(|product| (product.x, product.reads()));
        dense.or_else(|| self.expert_product(node).map(|product| (product.x, product.weight.stored.reads())))
    }
}

/// The function of a gate.
fn gate_of(is_silu: bool) -> Gate {
    if is_silu { Gate::Silu } else { Gate::Gelu }
}

/// The products of a fused op, where it has any, and the gate that they end in.
fn linears(body: &[Node]) -> Option<(Vec<Linear>, Option<Gate>)> {
    if let Some(GatedLinear { linears, is_silu }) = GatedLinear::of(body) {
        return Some((linears.to_vec(), Some(gate_of(is_silu))));
    }
    QueryKeyValue::of(body).map(|found| (found.linears.to_vec(), None))
}

/// Whether the kernels take a fused op as one.
pub(super) fn is_one(
    (program, weights, limits): (&Program, &CudaWeights, &BatchLimits),
    device: &Properties,
    (kind, body): (FusedKind, &[Node]),
) -> bool {
    let used = |linear: &Linear| program.weight(linear.weight);
    let stored = |linear: &Linear| weights.stored(&used(linear).name);
    let reads = |linear: &Linear| stored(linear).map(Stored::reads);
    match kind {
        FusedKind::AddRmsNorm => true,
        FusedKind::GatedLinear => GatedLinear::of(body).is_some_and(|found| {
            let [gate, up] = &found.linears;
            let size = [used(gate).shape[0] * 2, used(gate).shape[1]];
            let are_alike = used(gate).shape == used(up).shape && stored(gate) == stored(up);
            let has_bias = gate.bias.is_some() || up.bias.is_some();
            are_alike
                && !has_bias
                && stored(gate).is_some_and(|stored| products::is_gated(device, stored, size))
        }),
        FusedKind::GatedExperts => GatedExperts::of(body).is_some_and(|found| {
            let [gate, up] = found.linears.map(|linear| program.weight(linear.weight));
            let [stored, other] = [gate, up].map(|used| weights.stored(&used.name));
            let has_bias = found.linears.iter().any(|linear| linear.bias.is_some());
            let is_whole = gate.shape[1].is_multiple_of(GATED_ROWS);
            let are_alike = gate.shape == up.shape && stored == other;
            are_alike && is_whole && !has_bias && stored != Some(Stored::Plain(Number::F32))
        }),
        FusedKind::QueryKeyValue => QueryKeyValue::of(body).is_some_and(|found| {
            let [query, ..] = &found.linears;
            let are_alike = found
                .linears
                .iter()
                .all(|other| reads(other) == reads(query) && other.bias.is_some() == query.bias.is_some());
            let widths = found.linears.map(|linear| used(&linear).shape[0]);
            let has_heads = HeadSizes::of(program, found.state, widths)
                .is_some_and(|sizes| sizes.are_those_of(program, &found));
            are_alike && has_heads && limits.rows <= PROJECTED_ROWS_MAX
        }),
    }
}
