//! The launches of attention: which kernels a layer takes follows from its pages alone, never from a step's rows.
//!
//! Pages of half precision with heads of 64, 128 or 256 elements lie in core order, on cards that fetch blocks of memory:
//! few rows of a sequence are then split over its keys and folded, many go in tiles of rows, with the same bits. All
//! other pages lie row by row, and one plain kernel reads them.
//!
//! Over keys in int8 a row sees those of its own page in half precision. They are read in open pages, where `write_kv` put them;
//! a page that a step both begins and fills has its keys in scratch, which each layer uses in its turn.

use super::launches::{Call, Frame, arguments, word};
use super::work::{Shape, Work};
use crate::driver::{Argument, Properties};
use crate::error::unsupported;
use crate::jit::{HEAD_DIMS, WIDE_DIMS, plain_attention, tiled_attention, write_pages};
use crate::number::{Number, PageFormats};
use crate::state::{LayerPages, page_formats};
use gannet_ops::{
    Attention, BatchLimits, DeviceError, KvFormat, Mask, Node, Op, PAGE_TOKENS, PageLifetime, PagedLayout,
    Program, StateEntry, StateId,
};

/// What kernels take for "no window".
const NO_WINDOW: u32 = u32::MAX;
/// Columns of a value's head that the plain kernel has room for.
const VALUE_DIM_MAX: usize = 512;
const PLAIN_THREADS: u32 = 64;
const QUANTISE_THREADS: u32 = 128;
/// Heads that share a kv head, at most, where pages lie in core order.
const GROUP_MAX: usize = 64;

/// Whether a layer's pages lie in core order, and in which formats.
fn tiled(device: &Properties, layout: &PagedLayout) -> Option<PageFormats> {
    let formats = page_formats(layout).ok()?;
    let is_taken = match formats {
        PageFormats::Plain(key, value) => key == value && key != Number::F32,
        PageFormats::Int8 => true,
    };
    let is_square = layout.key_dim == layout.value_dim && HEAD_DIMS.contains(&layout.key_dim);
    let is_fetched = is_taken && is_square && device.has_bulk_copies();
    (is_fetched && tiled_bytes(device, formats, layout.key_dim) <= device.shared_bytes as usize)
        .then_some(formats)
}

/// Shared memory of the largest block that attends over pages in core order.
fn tiled_bytes(device: &Properties, formats: PageFormats, dim: usize) -> usize {
    let (_, split) = split_shape(formats, dim, GROUP_MAX);
    split.max(prefill_shape(device, formats, dim).2)
}

/// Whether a layer's pages lie in core order.
pub(super) fn is_tiled(device: &Properties, layout: &PagedLayout) -> bool {
    tiled(device, layout).is_some()
}

fn has_wide_kernel(device: &Properties, dim: usize) -> bool {
    device.has_wgmma() && WIDE_DIMS.contains(&dim)
}

/// The way in which a layer attends, where its pages lie in core order.
fn shape(device: &Properties, program: &Program, op: &Attention) -> Option<Shape> {
    let StateEntry::Paged(layout) = &program.state.entries[op.state.0 as usize] else { return None };
    tiled(device, layout)?;
    // A warp has sixteen lines, and a block eight warps, or four for the largest heads.
    let tile_lines = if layout.key_dim > 128 { 64 } else { 128 };
    Some(Shape {
        group: op.heads / layout.kv_heads,
        window: window_of(op.mask)?,
        tile_lines,
        has_open_keys: layout.open.is_some(),
    })
}

/// Pages of keys in half precision that a step both begins and fills, at most, and the bytes of those of the layer with the
/// largest.
pub(super) fn open_scratch(program: &Program, limits: &BatchLimits) -> (usize, usize) {
    let bytes = |entry: &StateEntry| match entry {
        StateEntry::Paged(layout) if layout.open.is_some() => layout.open_page_bytes(),
        StateEntry::Paged(_) | StateEntry::Recurrent(_) => 0,
    };
    let page_bytes = program.state.entries.iter().map(bytes).max().unwrap_or(0);
    (limits.rows / PAGE_TOKENS, page_bytes)
}

/// The distinct ways in which layers attend.
pub(super) fn ways(device: &Properties, program: &Program) -> Vec<Shape> {
    let mut found = Vec::new();
    for node in &program.nodes {
        if let Op::Attention(op) = &node.op
            && let Some(shape) = shape(device, program, op)
            && !found.contains(&shape)
        {
            found.push(shape);
        }
    }
    found
}

fn window_of(mask: Mask) -> Option<u32> {
    match mask {
        Mask::Causal => Some(NO_WINDOW),
        Mask::Window(window) => Some(window),
        Mask::Block | Mask::BlockWindow(_) => None,
    }
}

/// Blocks of `attention_split` a multiprocessor, and their shared memory, for items of so many lines at most: as large as the stages that the kernel
/// has for pages of this kind.
fn split_shape(formats: PageFormats, dim: usize, lines: usize) -> (u32, usize) {
    let size = usize::from(dim > 64) + usize::from(dim > 128);
    let (blocks, stages, stage_bytes) = match formats {
        PageFormats::Int8 => ([3, 3, 2][size], [9, 6, 5][size], dim * 66),
        PageFormats::Plain(..) => (2, [8, 5, 4][size], dim * 128),
    };
    (blocks, stages * stage_bytes + lines * (dim * 2 + 544))
}

/// The file of `attention_prefill`, threads of its block and their shared memory.
fn prefill_shape(device: &Properties, formats: PageFormats, dim: usize) -> (&'static str, usize, usize) {
    if has_wide_kernel(device, dim) {
        // Codes on their way.
        let codes = if formats == PageFormats::Int8 { 2 * (dim * 130 + 128) } else { 0 };
        return ("attention_wide", 384, 1024 + 6 * dim * 128 + 128 * dim * 4 + codes);
    }
    let warps = if dim > 128 { 4 } else { 8 };
    let totals = if dim > 64 { warps * 16 * dim * 4 } else { 0 };
    let bytes = 1024 + 4 * dim * 128 + warps * 16 * (dim * 2 + 16) + totals;
    ("attention_prefill", 32 * (warps + 1), bytes)
}

impl Frame<'_> {
    pub(super) fn write_kv(&self, state: StateId, node: &Node) -> Result<Vec<Call>, DeviceError> {
        let pages = (self.pages)(state);
        let LayerPages { layout, address, page_bytes, value_offset, .. } = pages;
        let [k, v] = [node.inputs[0], node.inputs[1]].map(self.values);
        let mut arguments = arguments![address, k, v];
        arguments.extend(self.lists.tables(layout.group.0 as usize).map(Argument::from));
        arguments.extend(arguments![
            word(self.rows),
            word(layout.kv_heads),
            word(layout.key_dim),
            word(layout.value_dim),
            page_bytes,
            value_offset,
        ]);
        arguments.extend(self.open_arguments(&pages));
        let variant = write_pages("write_kv", page_formats(layout)?, is_tiled(self.device, layout));
        let mut calls = vec![Call::by_row((variant, "write_kv"), self.rows, arguments)];
        calls.extend(self.quantise_keys(&pages)?);
        Ok(calls)
    }

    /// The last arguments of each kernel over keys in int8; none over others.
    pub(super) fn open_arguments(&self, pages: &LayerPages<'_>) -> Vec<Argument> {
        let Some(open) = pages.open else { return Vec::new() };
        let [.., table_base] = self.lists.tables(open.group.0 as usize);
        arguments![open.address, self.open_scratch, table_base, open.page_bytes, open.scratch_from]
    }

    /// Makes codes of the keys of pages that are full, where keys are in int8 and a row may be the last of its page.
    pub(super) fn quantise_keys(&self, pages: &LayerPages<'_>) -> Result<Option<Call>, DeviceError> {
        let (layout, (fills, count)) = (pages.layout, self.lists.fills());
        if layout.open.is_none() || count == 0 {
            return Ok(None);
        }
        let mut arguments = arguments![pages.address, fills];
        arguments.extend(self.lists.tables(layout.group.0 as usize).map(Argument::from));
        arguments.extend(arguments![word(layout.kv_heads), word(layout.key_dim), pages.page_bytes]);
        arguments.extend(self.open_arguments(pages));
        let variant = write_pages("write_kv", page_formats(layout)?, is_tiled(self.device, layout));
        let grid = [word(count), word(layout.kv_heads), 1];
        let need = (variant, "quantise_keys");
        Ok(Some(Call { need, grid, block: QUANTISE_THREADS, shared_bytes: 0, arguments }))
    }

    pub(super) fn attention(&self, op: &Attention, node: &Node) -> Result<Vec<Call>, DeviceError> {
        let pages = (self.pages)(op.state);
        let window = self.window(op, pages.layout, node)?;
        match tiled(self.device, pages.layout) {
            Some(formats) => self.tiled_attention(op, node, (&pages, formats)),
            None => Ok(vec![self.plain_attention(op, node, (&pages, window))?]),
        }
    }

    fn plain_attention(
        &self,
        op: &Attention,
        node: &Node,
        (pages, window): (&LayerPages<'_>, u32),
    ) -> Result<Call, DeviceError> {
        let LayerPages { layout, address, page_bytes, value_offset, .. } = *pages;
        let made = node.outputs[0];
        let mut arguments = arguments![(self.values)(made), (self.values)(node.inputs[0]), address];
        arguments.extend(self.lists.tables(layout.group.0 as usize).map(Argument::from));
        arguments.extend(arguments![
            self.optional_weight(op.sinks),
            word(self.rows),
            word(op.heads),
            word(layout.kv_heads),
            word(layout.key_dim),
            word(layout.value_dim),
            page_bytes,
            value_offset,
            op.scale,
            op.soft_cap.unwrap_or(0.0),
            window,
        ]);
        arguments.extend(self.open_arguments(pages));
        let need = (plain_attention(page_formats(layout)?, self.format(made)), "attention");
        let shared_bytes = word(layout.key_dim * size_of::<f32>());
        let grid = [word(self.rows), word(op.heads), 1];
        Ok(Call { need, grid, block: PLAIN_THREADS, shared_bytes, arguments })
    }

    fn tiled_attention(
        &self,
        op: &Attention,
        node: &Node,
        pages: (&LayerPages<'_>, PageFormats),
    ) -> Result<Vec<Call>, DeviceError> {
        let layout = pages.0.layout;
        let group = op.heads / layout.kv_heads;
        if group > GROUP_MAX {
            let reason = format!("{group} heads share a kv head, and at most {GROUP_MAX} have a kernel");
            return Err(unsupported("attention", self.reason(&reason)));
        }
        let shape = shape(self.device, self.program, op).expect("pages in core order have a way");
        let way = self.ways.iter().position(|way| *way == shape).expect("the plan collected every way");
        let work = self.lists.work(way);
        let mut calls = Vec::new();
        if !work.runs.is_empty() {
            calls.push(self.split(op, node, pages, (work, shape.window)));
        }
        // Rows that see one split only are done.
        if work.has_folds {
            let fold = |run| self.fold(op, node, pages, (work, shape.window), run);
            calls.extend(work.runs.iter().cloned().map(fold));
        }
        if work.tile_count > 0 {
            calls.push(self.tiles(op, node, pages, (work, shape.window)));
        }
        Ok(calls)
    }

    fn split(
        &self,
        op: &Attention,
        node: &Node,
        (pages, formats): (&LayerPages<'_>, PageFormats),
        (work, window): (&Work, u32),
    ) -> Call {
        let layout = pages.layout;
        let [_, row_index, page_list, table_base] = self.lists.tables(layout.group.0 as usize);
        let mut arguments = arguments![
            (self.values)(node.outputs[0]),
            self.partials,
            (self.values)(node.inputs[0]),
            pages.address,
            row_index,
            page_list,
            table_base,
            self.optional_weight(op.sinks),
            self.lists.at(work.splits),
            self.lists.at(work.split_count),
            self.lists.at(work.partial_offset),
            self.lists.sequence_length(),
            word(op.heads),
            word(layout.kv_heads),
            pages.page_bytes,
            pages.value_offset,
            op.scale,
            op.soft_cap.unwrap_or(0.0),
            window,
            word(work.split_lines),
        ];
        arguments.extend(self.open_arguments(pages));
        let dim = layout.key_dim;
        let (blocks, shared_bytes) = split_shape(formats, dim, work.split_lines);
        let made = (formats, self.format(node.outputs[0]));
        let need = (tiled_attention("attention_split", made, dim, op.soft_cap.is_some()), "attention_split");
        let grid = [blocks * self.device.processors, 1, 1];
        Call { need, grid, block: 160, shared_bytes: word(shared_bytes), arguments }
    }

    /// Folds the partial sums of neighbouring rows.
    fn fold(
        &self,
        op: &Attention,
        node: &Node,
        (pages, formats): (&LayerPages<'_>, PageFormats),
        (work, window): (&Work, u32),
        run: std::ops::Range<usize>,
    ) -> Call {
        let (layout, made) = (pages.layout, node.outputs[0]);
        let [_, row_index, ..] = self.lists.tables(layout.group.0 as usize);
        let row_bytes = self.width(made) * self.format(made).bytes();
        let words = run.start * size_of::<u32>();
        let arguments = arguments![
            (self.values)(made).offset(run.start * row_bytes),
            self.partials,
            row_index.offset(words),
            self.lists.at(work.partial_offset).offset(words),
            self.optional_weight(op.sinks),
            word(op.heads),
            window,
        ];
        let formats = (formats, self.format(made));
        let variant = tiled_attention("attention_split", formats, layout.key_dim, op.soft_cap.is_some());
        let grid = [word(run.len()), word(op.heads), word(layout.key_dim.div_ceil(32))];
        Call { need: (variant, "attention_fold"), grid, block: 128, shared_bytes: 0, arguments }
    }

    fn tiles(
        &self,
        op: &Attention,
        node: &Node,
        (pages, formats): (&LayerPages<'_>, PageFormats),
        (work, window): (&Work, u32),
    ) -> Call {
        let (layout, made) = (pages.layout, node.outputs[0]);
        let mut arguments = arguments![(self.values)(made), (self.values)(node.inputs[0]), pages.address];
        arguments.extend(self.lists.tables(layout.group.0 as usize).map(Argument::from));
        arguments.extend(arguments![
            self.optional_weight(op.sinks),
            self.lists.at(work.tiles),
            word(op.heads),
            word(layout.kv_heads),
            pages.page_bytes,
            pages.value_offset,
            op.scale,
            op.soft_cap.unwrap_or(0.0),
            window,
        ]);
        arguments.extend(self.open_arguments(pages));
        let dim = layout.key_dim;
        let (file, block, shared_bytes) = prefill_shape(self.device, formats, dim);
        let formats = (formats, self.format(made));
        let need = (tiled_attention(file, formats, dim, op.soft_cap.is_some()), "attention_prefill");
        let grid = [word(work.tile_count), word(layout.kv_heads), 1];
        Call { need, grid, block: word(block), shared_bytes: word(shared_bytes), arguments }
    }

    /// The window that a row sees, where the kernels can do what is asked for.
    fn window(&self, op: &Attention, layout: &PagedLayout, node: &Node) -> Result<u32, DeviceError> {
        let refused = |why: String| Err(unsupported("attention", self.reason(&why)));
        // The keys that were written, which attention over int8 names, are read in the open pages.
        let written = if layout.key_format == KvFormat::Int8 { 2 } else { 1 };
        if node.inputs.len() > written {
            return refused("rows that are not written have no kernel yet".to_owned());
        }
        if layout.value_dim > VALUE_DIM_MAX {
            return refused(format!("values of {} elements are more than {VALUE_DIM_MAX}", layout.value_dim));
        }
        let Some(window) = window_of(op.mask) else {
            return refused("rows that see the rows after them have no kernel yet".to_owned());
        };
        // Pages that have left their group's window may not be followed.
        match self.program.state.groups[layout.group.0 as usize].lifetime {
            PageLifetime::Window(kept) if window > kept => {
                refused(format!("a window of {window} is wider than its pages live, {kept}"))
            }
            PageLifetime::Full | PageLifetime::Open | PageLifetime::Window(_) => Ok(window),
        }
    }
}
