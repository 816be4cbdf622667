//! What a plan is made of before it has any memory of its own: the kernels that its steps may launch, and sizes.

use super::attention;
use super::experts::{self, Groups};
use super::folds::Folds;
use super::kept::Kept;
use super::launches::Frame;
use super::maps::TensorMaps;
use super::matrices::Matrices;
use super::metadata::{Lists, Metadata};
use super::products;
use super::ropes::Ropes;
use super::sampling;
use super::values::Values;
use crate::backend::{Device, Need};
use crate::driver::{Address, Kernel, Properties, TensorMap};
use crate::error::unsupported;
use crate::jit::FEW_ROWS;
use crate::number::Number;
use crate::state::LayerPages;
use crate::units::LayerUnits;
use crate::weights::{Stored, Weight};
use gannet_ops::placement::rows_at_most;
use gannet_ops::{BatchLimits, DeviceError, InputKind, Node, Op, Program, StateEntry, StateId, ValueId};
use std::collections::HashMap;

/// What a plan is made of before it has any memory of its own.
pub(super) struct Parts<'a> {
    pub(super) program: &'a Program,
    pub(super) weights: &'a Matrices,
    pub(super) formats: &'a [Number],
    pub(super) folds: &'a Folds,
    pub(super) limits: &'a BatchLimits,
}

impl<'a> Parts<'a> {
    /// Loads every kernel that a step may launch: those of a step of one row, and those of products with more.
    pub(super) fn load(&self, device: &Device) -> Result<HashMap<Need, Kernel>, DeviceError> {
        let Self { program, weights, formats, folds, limits } = *self;
        let properties = device.driver.properties();
        let ways = attention::ways(properties, program);
        let metadata = Metadata::nowhere(program.state.groups.len(), ways.len());
        let pages = |id: StateId| match &program.state.entries[id.0 as usize] {
            StateEntry::Paged(layout) => LayerPages::nowhere(layout),
            StateEntry::Recurrent(_) => unreachable!("the verifier saw a paged entry here"),
        };
        let units = |id: StateId| match &program.state.entries[id.0 as usize] {
            StateEntry::Recurrent(layout) => LayerUnits::nowhere(layout),
            StateEntry::Paged(_) => unreachable!("the verifier saw a recurrent entry here"),
        };
        let (ropes, maps) = (Ropes::nowhere(), TensorMaps::nowhere());
        let frame = |(folds, rows): (Option<&'a Folds>, usize)| Frame {
            folds,
            program,
            weights,
            formats,
            rows,
            outputs: rows,
            values: &|_| Address::NONE,
            pages: &pages,
            units: &units,
            lists: Lists { metadata: &metadata, start: Address::NONE },
            ropes: &ropes,
            device: properties,
            limits,
            ways: &ways,
            maps: &maps,
            partials: Address::NONE,
            rounded: Address::NONE,
            stacked: Address::NONE,
            unpacked: Address::NONE,
            gathered: Address::NONE,
            groups: Groups::nowhere(),
            open_scratch: Address::NONE,
        };
        let mut needs: Vec<Need> = Vec::new();
        for node in &program.nodes[..program.sampling_start()] {
            // Each for itself; and what kernels make on their way, with one row and with few.
            for size in [(None, 1), (Some(folds), 1), (Some(folds), 2)] {
                needs.extend(frame(size).calls(node)?.into_iter().map(|call| call.need));
            }
            needs.extend(self.product_needs(properties, node));
            needs.extend(self.expert_needs(properties, node));
        }
        needs.extend(sampled(program).into_iter().flat_map(|_| sampling::needs()));
        needs.sort_unstable();
        needs.dedup();
        // All at once, so that what has to be compiled is compiled in parallel.
        let kernels = device.kernels(&needs)?;
        Ok(needs.into_iter().zip(kernels).collect())
    }

    fn product_needs(&self, device: &Properties, node: &Node) -> Vec<Need> {
        let Some(product) = self.weights.product(node) else { return Vec::new() };
        let made = product.made(node.outputs.first().map_or(Number::F32, |id| self.formats[id.0 as usize]));
        let rows = rows_at_most(self.program.value(product.x).rows, self.limits);
        let columns = product.columns();
        let all = |part: &&Weight| products::all(device, part.stored, made, (rows, [part.shape[0], columns]));
        product.parts.iter().flat_map(all).collect()
    }

    /// The kernels of a product by experts in steps of every size.
    fn expert_needs(&self, device: &Properties, node: &Node) -> Vec<Need> {
        let Some(product) = self.weights.expert_product(node) else { return Vec::new() };
        let [x, made] = [product.x, node.outputs[0]].map(|id| self.formats[id.0 as usize]);
        experts::all(device, &product, (x, product.made(made)), self.limits)
    }

    /// Bytes of the rows of the largest product by experts that reads them in the order of these.
    pub(super) fn gathered_bytes(&self, device: &Properties) -> usize {
        let products = self.program.nodes.iter().filter_map(|node| self.weights.expert_product(node));
        products.map(|product| experts::gathered_bytes(device, &product, self.limits)).max().unwrap_or(0)
    }

    /// The maps by which products read their rows.
    pub(super) fn maps(
        &self,
        device: &Properties,
        values: &Values,
        [rounded, gathered]: [Address; 2],
    ) -> Vec<TensorMap> {
        let of_experts = |node: &Node| {
            let product = self.weights.expert_product(node)?;
            experts::map(device, &product, gathered, self.limits)
        };
        let mut maps: Vec<TensorMap> = self.program.nodes.iter().filter_map(of_experts).collect();
        for node in &self.program.nodes {
            let Some(product) = self.weights.product(node) else { continue };
            let (x, format) = (product.x, product.reads());
            let value = self.program.value(x);
            if !products::is_mapped(format, value.width) {
                continue;
            }
            let lies_as_read = self.formats[x.0 as usize] == format;
            let address = if lies_as_read { values.address(x, &Kept::default()) } else { rounded };
            let rows = rows_at_most(value.rows, self.limits);
            let columns = value.width;
            maps.extend(FEW_ROWS.map(|box_rows| TensorMap { address, rows, columns, box_rows }));
        }
        maps
    }
}

/// The scores that tokens are drawn from.
pub(super) fn sampled(program: &Program) -> Option<ValueId> {
    program.nodes.iter().find(|node| node.op == Op::Sample).map(|node| node.inputs[0])
}

/// Bytes of the partial sums of one row and split, for the layer with the most.
pub(super) fn partial_bytes(program: &Program) -> usize {
    let bytes = |node: &Node| {
        let Op::Attention(op) = &node.op else { return 0 };
        let StateEntry::Paged(layout) = &program.state.entries[op.state.0 as usize] else { return 0 };
        // A sum for each column, the largest score and the sum of the weights.
        op.heads * (layout.value_dim + 2) * size_of::<f32>()
    };
    program.nodes.iter().map(bytes).max().unwrap_or(0)
}

/// What a program may read before its first node.
pub(super) fn check_inputs(program: &Program) -> Result<(), DeviceError> {
    let handed = program.inputs.iter().any(|(kind, _)| matches!(kind, InputKind::Handed(_)));
    if handed {
        let reason =
            format!("values of earlier steps have no place yet, and program `{}` reads one", program.name);
        return Err(unsupported("gather_rows", reason));
    }
    Ok(())
}

/// Bytes of the largest value that a product reads in another format than it has.
pub(super) fn rounded_bytes(
    program: &Program,
    limits: &BatchLimits,
    (weights, formats): (&Matrices, &[Number]),
) -> usize {
    let bytes = |node: &Node| {
        let Some((x, format)) = weights.reads(node) else { return 0 };
        let value = program.value(x);
        let is_other = formats[x.0 as usize] != format;
        if is_other { rows_at_most(value.rows, limits) * value.width * format.bytes() } else { 0 }
    };
    program.nodes.iter().map(bytes).max().unwrap_or(0)
}

/// Bytes of the weights that a product of many rows unpacks at once, at most.
pub(super) fn unpacked_bytes(program: &Program, weights: &Matrices) -> usize {
    let of_part = |part: &&Weight| match part.stored {
        Stored::Plain(_) => 0,
        Stored::Codes(_) => products::unpacked([part.shape[0], part.shape[1]]).1,
    };
    let of_node = |node: &Node| weights.product(node)?.parts.iter().map(of_part).max();
    let of_experts =
        |node: &Node| weights.expert_product(node).map(|product| experts::unpacked_bytes(&product));
    let nodes = &program.nodes;
    nodes.iter().filter_map(of_node).chain(nodes.iter().filter_map(of_experts)).max().unwrap_or(0)
}
