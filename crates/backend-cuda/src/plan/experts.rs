//! Mixtures of experts: who computes a token, the products of routed rows with the matrices of their experts, and the sum.
//!
//! `route_experts` leaves lists beside the ids: the routed rows in the order of their experts, and items, each some rows of one expert. The products
//! that follow read them on the device, so that a launch has the same shape whoever is chosen: it has blocks for as many items as there may be.
//!
//! Few rows an expert: `expert_linear`, which fetches them itself. Many: they are gathered in the order of the items and multiplied from shared memory by
//! tensor cores (`linear_many`), codes after they were unpacked, some experts at a time. All give the bits of `linear` with the expert's matrix.

use super::launches::{Call, Frame, arguments, strided, word};
use super::matrices::ExpertProduct;
use super::products::{self, MANY_BOX_ROWS};
use crate::backend::Need;
use crate::codes::{PAIR_OUTPUTS, UNIT_OUTPUTS};
use crate::driver::{Address, Argument, Properties, TensorMap};
use crate::error::unsupported;
use crate::jit::{EXPERT_ROWS, MANY, Made, Variant, expert_linear, experts_many, unpack};
use crate::number::Number;
use crate::weights::{EXPERT_PADDING, PADDING, Stored};
use gannet_ops::placement::rows_at_most;
use gannet_ops::{BatchLimits, DeviceError, Node, Op, Program, Router, Rows, ValueId};

/// Threads of the kernels that sort and of those that route many rows; rows that one block routes.
const SORTING_THREADS: usize = 1024;
const ROUTING_WARPS: usize = 8;
const ROUTED_BY_BLOCK: usize = 32;
/// Shared memory of a block that routes, where its experts leave it the choice.
const ROUTING_BYTES: usize = 96 << 10;
/// Bytes that sorting takes for an expert.
const SORTED_BYTES: usize = 12;
/// Threads of `combine_experts`.
const COMBINING_THREADS: usize = 256;
/// Routed rows an expert, on the average, up to which items have 8, 16 and 32 rows.
const MEAN_ROWS: [usize; 3] = [2, 8, 32];
/// Warps of a block of `expert_linear` at most, its shared memory at most, which every architecture has, and what its chunks of columns are a multiple of.
const WARPS: usize = 4;
const SHARED_BYTES_MAX: usize = 98 << 10;
const CHUNK: usize = 256;
/// Stages of a warp's ring: of tiles of bf16 or f16, of so many bytes; of pairs of units of 256 and of 64 columns.
const PLAIN_STAGES: usize = 6;
const TILE_BYTES: usize = 2048;
const WIDE_STAGES: usize = 3;
const NARROW_STAGES: usize = 8;
/// Threads and outputs of a block of the form for f32.
const F32_THREADS: usize = 256;
const F32_OUTPUTS: usize = 64;
/// Bytes between two rows of x in shared memory.
const LINE_PADDING_BYTES: usize = 16;

/// Where the lists of the rows of experts lie.
#[derive(Clone, Copy)]
pub(super) struct Groups {
    pub(super) items: Address,
    pub(super) order: Address,
    pub(super) tokens: Address,
    pub(super) starts: Address,
}

/// The most of anything that the lists have.
struct Sizes {
    items: usize,
    rows: usize,
    experts: usize,
}

impl Sizes {
    fn of(program: &Program, limits: &BatchLimits) -> Self {
        let mut most = Self { items: 0, rows: 0, experts: 0 };
        for node in &program.nodes {
            if let Op::RouteExperts(Router { experts, top_k, .. }) = &node.op {
                let rows = rows_at_most(Rows::Routed(*top_k), limits);
                most.items = most.items.max(items_at_most(rows, *experts, EXPERT_ROWS[0]));
                most.rows = most.rows.max(rows);
                most.experts = most.experts.max(*experts);
            }
        }
        most
    }
}

/// Bytes of the lists of the largest step.
pub(super) fn group_bytes(program: &Program, limits: &BatchLimits) -> usize {
    let Sizes { items, rows, experts } = Sizes::of(program, limits);
    (4 * items + 2 * rows + experts + 1) * size_of::<u32>()
}

impl Groups {
    pub(super) fn nowhere() -> Self {
        Self { items: Address::NONE, order: Address::NONE, tokens: Address::NONE, starts: Address::NONE }
    }

    pub(super) fn new(start: Address, program: &Program, limits: &BatchLimits) -> Self {
        let Sizes { items, rows, .. } = Sizes::of(program, limits);
        let words = |count: usize| start.offset(count * size_of::<u32>());
        let first = 4 * items;
        Self {
            items: start,
            order: words(first),
            tokens: words(first + rows),
            starts: words(first + 2 * rows),
        }
    }
}

/// Items of at most `tile` rows that so many routed rows make, at most.
fn items_at_most(routed: usize, experts: usize, tile: usize) -> usize {
    let begun = routed.min(experts);
    begun + (routed - begun) / tile
}

/// Rows of an item, at most: one size for all products of a step.
pub(super) fn tile(device: &Properties, routed: usize, experts: usize) -> usize {
    let few = MEAN_ROWS.into_iter().zip(EXPERT_ROWS).find(|(mean, _)| routed <= mean * experts);
    match few {
        Some((_, rows)) => rows,
        None if device.has_wgmma() => many_shape(routed, experts)[0],
        None => EXPERT_ROWS[EXPERT_ROWS.len() - 1],
    }
}

/// The shape of `linear_many` that takes the least time, where each expert's last item is half empty.
fn many_shape(routed: usize, experts: usize) -> [usize; 3] {
    let time = |([rows, ..], nanoseconds): &([usize; 3], usize)| {
        (routed + experts * rows / 2).div_ceil(*rows) * nanoseconds
    };
    let shapes = MANY.into_iter().filter(|([_, groups, _], _)| *groups == 2);
    shapes.min_by_key(time).map_or(MANY[0].0, |(shape, _)| shape)
}

/// Checks that products by experts read the choice that was made last: there is one place for the lists of it.
pub(super) fn check(program: &Program) -> Result<(), DeviceError> {
    let mut last: Option<ValueId> = None;
    for node in program.nodes.iter().flat_map(Node::parts) {
        if matches!(node.op, Op::RouteExperts(_)) {
            last = Some(node.outputs[0]);
        } else if matches!(node.op, Op::ExpertLinear(_)) && last != node.inputs.get(1).copied() {
            let reason = format!("it reads another choice of experts than the last in `{}`", program.name);
            return Err(unsupported("expert_linear", reason));
        }
    }
    Ok(())
}

/// How many routed rows go through which kernel of a product.
enum Choice {
    /// `expert_linear` with so many rows at once.
    Few(usize),
    /// `linear_many` in a shape.
    Many([usize; 3]),
}

fn choose(device: &Properties, product: &ExpertProduct<'_>, routed: usize) -> Choice {
    let [experts, _, columns] = sizes(product);
    let tile = tile(device, routed, experts);
    let shape = MANY.into_iter().find(|([rows, groups, _], _)| *rows == tile && *groups == 2);
    match shape {
        Some((shape, _)) if can_be_many(device, product, columns) => Choice::Many(shape),
        Some(_) | None if product.weight.stored == Stored::Plain(Number::F32) => Choice::Few(EXPERT_ROWS[2]),
        Some(_) | None => Choice::Few(tile.min(EXPERT_ROWS[2])),
    }
}

fn can_be_many(device: &Properties, product: &ExpertProduct<'_>, columns: usize) -> bool {
    device.has_wgmma() && products::is_mapped(product.weight.stored.reads(), columns)
}

/// Experts, rows and columns.
fn sizes(product: &ExpertProduct<'_>) -> [usize; 3] {
    let weight = product.weight;
    [weight.shape[0], weight.rows(), weight.columns()]
}

/// Warps of a block of `expert_linear`: half as many where the blocks of so many items don't fill the card twice.
fn few_warps(device: &Properties, [items, n]: [usize; 2]) -> usize {
    let blocks = items * n.div_ceil(WARPS * PAIR_OUTPUTS);
    if blocks <= 2 * device.processors as usize { WARPS / 2 } else { WARPS }
}

/// Columns of x that `expert_linear` takes at once, with `rows` rows and so many warps: as many as its shared memory has room for, and that memory.
fn few_chunk(stored: Stored, [columns, rows, warps]: [usize; 3]) -> (usize, usize) {
    let ring_bytes = match stored {
        Stored::Plain(Number::F32) => return (columns, 0),
        Stored::Plain(_) => PLAIN_STAGES * TILE_BYTES,
        Stored::Codes(units) => {
            let stages = if units.run() == CHUNK { WIDE_STAGES } else { NARROW_STAGES };
            stages * PAIR_OUTPUTS / UNIT_OUTPUTS * units.bytes()
        }
    };
    let (ring_bytes, padding_bytes) = (warps * ring_bytes, rows * LINE_PADDING_BYTES);
    let chunk_bytes = rows * CHUNK * Number::Bf16.bytes();
    let most = (SHARED_BYTES_MAX - ring_bytes - padding_bytes) / chunk_bytes;
    let count = columns.div_ceil(CHUNK).min(most);
    (count * CHUNK, ring_bytes + padding_bytes + count * chunk_bytes)
}

/// Every kernel that a product may need.
pub(super) fn all(
    device: &Properties,
    product: &ExpertProduct<'_>,
    (x, made): (Number, Made),
    limits: &BatchLimits,
) -> Vec<Need> {
    let mut needs = Vec::new();
    for rows in 1..=limits.rows {
        let need = match choose(device, product, rows * product.top_k) {
            Choice::Few(rows) => (expert_linear(product.weight.stored, (x, made), rows), "expert_linear"),
            Choice::Many(shape) => many(product, made, shape),
        };
        if needs.last() != Some(&need) {
            needs.push(need);
        }
    }
    let reads = product.weight.stored.reads();
    needs.push((Variant::new("gather_rows", &[("X", reads.name())]), "gather_rows"));
    needs.push((Variant::new("cast", &[("Y", reads.name())]), "cast"));
    needs.push((Variant::new("route_experts", &[]), "group_experts"));
    if let Stored::Codes(units) = product.weight.stored {
        needs.push((unpack(units.name()), "unpack"));
    }
    needs
}

fn many(product: &ExpertProduct<'_>, made: Made, shape: [usize; 3]) -> Need {
    (experts_many(product.weight.stored.reads(), made, shape), "linear_many")
}

/// Bytes of the rows that a product gathers, at most.
pub(super) fn gathered_bytes(
    device: &Properties,
    product: &ExpertProduct<'_>,
    limits: &BatchLimits,
) -> usize {
    let [experts, _, columns] = sizes(product);
    let routed = limits.rows * product.top_k;
    let is_many = tile(device, routed, experts) > EXPERT_ROWS[2] && can_be_many(device, product, columns);
    if is_many { routed * columns * product.weight.stored.reads().bytes() } else { 0 }
}

/// The map by which a product reads the rows that it gathered; `None` where it never does.
pub(super) fn map(
    device: &Properties,
    product: &ExpertProduct<'_>,
    gathered: Address,
    limits: &BatchLimits,
) -> Option<TensorMap> {
    let (rows, columns) = (limits.rows * product.top_k, product.weight.columns());
    let is_gathered = gathered_bytes(device, product, limits) > 0;
    is_gathered.then_some(TensorMap { address: gathered, rows, columns, box_rows: MANY_BOX_ROWS })
}

/// Experts whose weights are unpacked at once, and the bytes that they take.
fn unpacked(product: &ExpertProduct<'_>) -> (usize, usize) {
    let [experts, rows, columns] = sizes(product);
    let row_bytes = columns.next_multiple_of(PADDING) * Number::Bf16.bytes();
    let padded = rows.next_multiple_of(EXPERT_PADDING);
    let most = (products::UNPACKED_BYTES_MAX / (padded * row_bytes)).clamp(1, experts);
    // As many each time.
    let most = experts.div_ceil(experts.div_ceil(most));
    (most, (most * padded + PADDING - EXPERT_PADDING) * row_bytes)
}

/// Bytes of the weights that a product unpacks at once.
pub(super) fn unpacked_bytes(product: &ExpertProduct<'_>) -> usize {
    match product.weight.stored {
        Stored::Plain(_) => 0,
        Stored::Codes(_) => unpacked(product).1,
    }
}

/// The launch that sorts routed rows by their experts, where those that chose didn't.
pub(super) fn sorting(groups: &Groups, ids: Address, [rows, experts, top_k, tile]: [usize; 4]) -> Call {
    let Groups { items, order, tokens, starts } = *groups;
    let mut arguments = arguments![order, tokens, starts, items, ids];
    arguments.extend([rows, experts, top_k, tile].map(|size| Argument::from(word(size))));
    Call {
        need: (Variant::new("route_experts", &[]), "group_experts"),
        grid: [1; 3],
        block: word(SORTING_THREADS),
        shared_bytes: word(SORTED_BYTES * experts),
        arguments,
    }
}

impl Frame<'_> {
    /// One block routes and sorts few rows; many blocks route many, and one more launch sorts.
    pub(super) fn route_experts(&self, router: &Router, node: &Node) -> Vec<Call> {
        let Router { experts, top_k, renormalise } = *router;
        let (k, rows) = (word(top_k as usize), word(self.rows));
        let [ids, weights] = [node.outputs[0], node.outputs[1]].map(|id| (self.values)(id));
        let Groups { items, order, tokens, starts } = self.groups;
        let tile = word(tile(self.device, self.rows * top_k as usize, experts));
        let variant = Variant::new("route_experts", &[]);
        let expert_bytes = experts * size_of::<u32>();
        let is_one = self.rows <= ROUTED_BY_BLOCK;
        let wanted = if is_one { SORTING_THREADS / 32 } else { ROUTING_WARPS };
        let warps = (ROUTING_BYTES / expert_bytes).clamp(1, wanted);
        let blocks = if is_one { 1 } else { self.rows.div_ceil(warps).max(2) };
        let arguments = arguments![
            ids,
            weights,
            (self.values)(node.inputs[0]),
            order,
            tokens,
            starts,
            items,
            rows,
            word(experts),
            k,
            u32::from(renormalise),
            tile,
        ];
        let shared_bytes = word(warps.max(3) * expert_bytes);
        let need = (variant, "route_experts");
        let mut calls =
            vec![Call { need, grid: [word(blocks), 1, 1], block: word(warps * 32), shared_bytes, arguments }];
        if !is_one {
            calls.push(sorting(&self.groups, ids, [self.rows, experts, top_k as usize, tile as usize]));
        }
        calls
    }

    /// The product by experts that a node is.
    pub(super) fn expert_product(&self, node: &Node) -> Vec<Call> {
        let product = self.weights.expert_product(node).expect("the node has a product");
        let (read, made) = ((self.values)(product.x), node.outputs[0]);
        let y = (self.values)(made);
        let routed = self.rows * product.top_k;
        let written = product.made(self.format(made));
        match choose(self.device, &product, routed) {
            Choice::Few(rows) => vec![self.few((&product, written), [read, y], rows)],
            Choice::Many(shape) => {
                let mut calls = self.gather(&product, read, routed);
                calls.extend(self.many((&product, written), y, shape));
                calls
            }
        }
    }

    /// The row of x of each place in the order.
    fn rows_of_x(&self, product: &ExpertProduct<'_>) -> Address {
        if self.of(product.x).rows == Rows::Tokens { self.groups.tokens } else { self.groups.order }
    }

    fn few(&self, (product, made): (&ExpertProduct<'_>, Made), [x, y]: [Address; 2], rows: usize) -> Call {
        let ([experts, n, k], stored) = (sizes(product), product.weight.stored);
        let routed = self.rows * product.top_k;
        let Groups { items, order, starts, .. } = self.groups;
        let tile = tile(self.device, routed, experts);
        let most = items_at_most(routed, experts, tile);
        let warps = few_warps(self.device, [most, n]);
        let (chunk, shared_bytes) = few_chunk(stored, [k, rows, warps]);
        let (block, outputs) = match stored {
            Stored::Plain(Number::F32) => (F32_THREADS, F32_OUTPUTS),
            Stored::Plain(_) | Stored::Codes(_) => (warps * 32, warps * PAIR_OUTPUTS),
        };
        let mut arguments = arguments![y, x, product.weight.buffer.address(), product.bias];
        arguments.extend(arguments![order, self.rows_of_x(product), starts, items]);
        let stride = if product.gate.is_some() { n / 2 } else { n };
        // Another product of the same rows came before it, which let it begin when the lists were there.
        let lists_are_there = self.of(product.x).rows != Rows::Tokens && tile <= EXPERT_ROWS[2];
        let sizes = [experts, n, k, stride, chunk, usize::from(lists_are_there)];
        arguments.extend(sizes.map(|size| Argument::from(word(size))));
        Call {
            need: (expert_linear(stored, (self.format(product.x), made), rows), "expert_linear"),
            grid: [word(n.div_ceil(outputs)), word(most), 1],
            block: word(block),
            shared_bytes: word(shared_bytes),
            arguments,
        }
    }

    /// Rows of x in the order of the items; after x was rounded where it isn't in the format of the matrices.
    fn gather(&self, product: &ExpertProduct<'_>, x: Address, routed: usize) -> Vec<Call> {
        let (reads, mut from, mut calls) = (product.weight.stored.reads(), x, Vec::new());
        if self.format(product.x) != reads {
            let count = self.rows_of(product.x) * self.width(product.x);
            let need = (Variant::new("cast", &[("Y", reads.name())]), "cast");
            calls.push(strided(need, count, arguments![self.rounded, x, count as u64]));
            from = self.rounded;
        }
        let mut arguments = arguments![self.gathered, from, self.rows_of_x(product)];
        arguments.extend(arguments![word(routed), word(self.width(product.x))]);
        let need = (Variant::new("gather_rows", &[("X", reads.name())]), "gather_rows");
        calls.push(Call::by_row(need, routed, arguments));
        calls
    }

    fn many(&self, (product, made): (&ExpertProduct<'_>, Made), y: Address, shape: [usize; 3]) -> Vec<Call> {
        let [experts, n, k] = sizes(product);
        let Stored::Codes(units) = product.weight.stored else {
            let matrix = product.weight.buffer.address();
            return vec![self.many_of((product, made), [y, matrix], shape, [0, experts])];
        };
        let (most, _) = unpacked(product);
        let mut calls = Vec::new();
        for first in (0..experts).step_by(most) {
            let count = most.min(experts - first);
            let from = product.weight.buffer.address().offset(first * units.matrix_bytes([n, k]));
            let rows = count * n.next_multiple_of(EXPERT_PADDING);
            let products::Choice { variant, entry, grid, block, .. } =
                products::choose_unpack(units, [rows, k]);
            let arguments = arguments![self.unpacked, from, word(rows), word(k)];
            let grid = [word(grid[0]), 1, 1];
            calls.push(Call { need: (variant, entry), grid, block: word(block), shared_bytes: 0, arguments });
            calls.push(self.many_of((product, made), [y, self.unpacked], shape, [first, count]));
        }
        calls
    }

    /// The rows of some experts, whose matrices lie one after the other.
    fn many_of(
        &self,
        (product, made): (&ExpertProduct<'_>, Made),
        [y, matrix]: [Address; 2],
        shape: [usize; 3],
        [first, count]: [usize; 2],
    ) -> Call {
        let ([_, n, k], [rows, groups, _]) = (sizes(product), shape);
        let map = map(self.device, product, self.gathered, self.limits);
        let map = map.map_or(Address::NONE, |map| self.maps.of(&map));
        let routed = self.rows * product.top_k;
        let stride = if product.gate.is_some() { n / 2 } else { n };
        let Groups { items, order, starts, .. } = self.groups;
        let mut arguments = arguments![y, map, matrix, product.bias];
        arguments.extend([routed, n, k, stride].map(|size| Argument::from(word(size))));
        arguments.extend(arguments![order, starts, items, word(first), word(count)]);
        let tiles = n.next_multiple_of(PADDING).div_ceil(64 * groups) * items_at_most(routed, count, rows);
        Call {
            need: many(product, made, shape),
            grid: [word(tiles.min(self.device.processors as usize)), 1, 1],
            block: word(128 * (groups + 1)),
            shared_bytes: word(products::many_bytes(shape)),
            arguments,
        }
    }

    pub(super) fn combine_experts(&self, node: &Node) -> Call {
        let made = node.outputs[0];
        let (rows, width) = (self.rows_of(made), self.width(made));
        let top_k = self.rows_of(node.inputs[0]) / rows;
        let shared = node.inputs.get(2).map_or(Address::NONE, |id| (self.values)(*id));
        let [y, weights] = [node.inputs[0], node.inputs[1]].map(|id| (self.values)(id));
        let mut arguments = arguments![(self.values)(made), y, weights, shared];
        arguments.extend([rows, width, top_k].map(|size| Argument::from(word(size))));
        Call {
            need: (Variant::new("combine_experts", &[]), "combine_experts"),
            grid: [word(rows), word(width.div_ceil(COMBINING_THREADS)), 1],
            block: word(COMBINING_THREADS),
            shared_bytes: 0,
            arguments,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codes::Units;
    use gannet_tensor::Format;

    #[test]
    fn rows_and_rings_fit_the_shared_memory_of_every_architecture() {
        let codes = Format::ALL.into_iter().filter_map(Units::of).map(Stored::Codes);
        for stored in codes.chain([Number::Bf16, Number::F16].map(Stored::Plain)) {
            for rows in EXPERT_ROWS {
                for columns in [64, 200, 768, 2048, 14_336] {
                    let (chunk, bytes) = few_chunk(stored, [columns, rows, WARPS]);
                    assert!(bytes <= SHARED_BYTES_MAX, "{stored:?}, {rows} rows of {columns}: {bytes}");
                    assert!(
                        chunk >= CHUNK && chunk.is_multiple_of(CHUNK),
                        "{stored:?}, {rows} rows: {chunk}"
                    );
                    assert!(chunk < columns + CHUNK, "{stored:?}, {rows} rows of {columns}: {chunk}");
                }
            }
        }
    }

    #[test]
    fn items_are_never_more_than_there_are_blocks_for() {
        let mut state = 1u32;
        let mut random = |below: usize| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as usize % below
        };
        for _ in 0..2000 {
            let (experts, routed, tile) = (1 + random(20), random(200), 1 + random(40));
            let mut counts = vec![0usize; experts];
            // Few experts have most of the rows.
            (0..routed).for_each(|_| {
                let some = 1 + random(experts);
                counts[random(some)] += 1;
            });
            let items: usize = counts.iter().map(|count| count.div_ceil(tile)).sum();
            assert!(items <= items_at_most(routed, experts, tile), "{counts:?} in items of {tile}");
        }
    }
}
