//! Which kernel multiplies a matrix with so many rows, and in which shape; all give the same bits.
//!
//! One to 64 rows: the weights are read once by a ring of bulk copies (`linear_few`). More: tensor cores from shared memory
//! (`linear_many`). Where the architecture or the size has neither: `linear`.

use crate::driver::Properties;
use crate::jit::{FEW_ROWS, MANY, Variant, linear, linear_few, linear_many};
use crate::number::Number;

/// What outputs and columns of a matrix are padded to.
const PADDING: usize = 64;
/// Columns that `linear_few` takes at once, where its memory allows.
const CHUNK: usize = 256;
/// Consumer warps of a block of `linear_few`, at most.
const WARPS_MAX: usize = 12;
const STAGES_MAX: usize = 8;
/// Shared memory of a block of `linear_few`: what is enough, and what there is.
const ENOUGH_BYTES: usize = 100 << 10;
const SHARED_BYTES_MAX: usize = 224 << 10;
/// Rows of x that a box of `linear_many` has.
const MANY_BOX_ROWS: usize = 64;
/// What the columns of x have to be a multiple of for a tensor map.
const MAPPED_COLUMNS: usize = 8;

/// How a product is launched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) variant: Variant,
    pub(super) entry: &'static str,
    /// Rows of the boxes in which x is read; `None` where it is read as it lies.
    pub(super) box_rows: Option<usize>,
    pub(super) grid: [usize; 2],
    pub(super) block: usize,
    pub(super) shared_bytes: usize,
    /// Arguments after the sizes.
    pub(super) after: Vec<usize>,
}

/// The kernel for m rows and a matrix `[n, k]`.
pub(super) fn choose(device: &Properties, format: Number, [m, n, k]: [usize; 3]) -> Choice {
    let is_mapped = is_mapped(format, k);
    match FEW_ROWS.into_iter().find(|rows| m <= *rows) {
        Some(rows) if is_mapped && device.has_bulk_copies() => few(device, format, rows, n),
        None if is_mapped && device.has_wgmma() => many(device, format, [m, n]),
        Some(_) | None => plain(format, [m, n]),
    }
}

/// Whether rows of so many columns can be fetched by boxes.
pub(super) fn is_mapped(format: Number, columns: usize) -> bool {
    format != Number::F32 && columns.is_multiple_of(MAPPED_COLUMNS)
}

/// The kernels that a matrix may need for up to `rows` rows.
pub(super) fn all(
    device: &Properties,
    format: Number,
    rows: usize,
    [n, k]: [usize; 2],
) -> Vec<(Variant, &'static str)> {
    let tried = FEW_ROWS.into_iter().chain(MANY.map(|[tile, ..]| tile * device.processors as usize));
    let tried = tried.chain([FEW_ROWS[3] + 1, 128, 256, 512, 1024, 2048]).map(|m| m.min(rows)).chain([1]);
    let mut found: Vec<(Variant, &'static str)> = tried
        .map(|m| choose(device, format, [m, n, k]))
        .map(|choice| (choice.variant, choice.entry))
        .collect();
    if found.iter().any(|(_, entry)| *entry == "linear_many") {
        found.extend(MANY.map(|shape| (linear_many(format, shape), "linear_many")));
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// Outputs are shared out so that every multiprocessor has as many; eight a warp where sixteen would leave some idle. Beyond
/// that eight lose by far: their copies are half as large (a matrix of 4,096 x 12,288 took 77 us in place of 25).
fn few(device: &Properties, format: Number, rows: usize, n: usize) -> Choice {
    let (processors, outputs) = (device.processors as usize, n.next_multiple_of(PADDING));
    let is_narrow = outputs / 16 < processors;
    let shares = outputs / if is_narrow { 8 } else { 16 };
    let share = shares.div_ceil(processors);
    let warps = share.div_ceil(share.div_ceil(WARPS_MAX));
    let (chunk, stages) = few_stages(warps * if is_narrow { 16 } else { 32 } + rows * 2);
    let stage_bytes = chunk * (warps * if is_narrow { 16 } else { 32 } + rows * 2);
    Choice {
        variant: linear_few(format, rows, is_narrow),
        entry: "linear_few",
        box_rows: Some(rows),
        grid: [processors.min(shares.div_ceil(warps)), 1],
        block: 32 * (warps + 1),
        shared_bytes: 2048 + stages * stage_bytes,
        after: vec![chunk, stages],
    }
}

/// Columns at once and stages, for so many bytes a column.
fn few_stages(column_bytes: usize) -> (usize, usize) {
    let fits = |chunk: &usize| 2048 + 2 * chunk * column_bytes <= SHARED_BYTES_MAX;
    let chunk = [CHUNK, CHUNK / 2].into_iter().find(fits).unwrap_or(PADDING);
    (chunk, (ENOUGH_BYTES / (chunk * column_bytes)).clamp(2, STAGES_MAX))
}

/// The largest tiles that leave no multiprocessor idle.
fn many(device: &Properties, format: Number, [m, n]: [usize; 2]) -> Choice {
    let processors = device.processors as usize;
    let tiles =
        |[rows, groups, _]: [usize; 3]| n.next_multiple_of(PADDING).div_ceil(64 * groups) * m.div_ceil(rows);
    let busy = MANY.into_iter().find(|shape| tiles(*shape) >= processors);
    let shape = busy.unwrap_or(MANY[MANY.len() - 1]);
    let [rows, groups, stages] = shape;
    Choice {
        variant: linear_many(format, shape),
        entry: "linear_many",
        box_rows: Some(MANY_BOX_ROWS),
        grid: [processors.min(tiles(shape)), 1],
        block: 128 * (groups + 1),
        shared_bytes: 1024 + stages * (groups * 8192 + rows * 128 + 16),
        after: Vec::new(),
    }
}

fn plain(format: Number, [m, n]: [usize; 2]) -> Choice {
    Choice {
        variant: linear(format),
        entry: "linear",
        box_rows: None,
        grid: [n.div_ceil(64), m.div_ceil(64)],
        block: if format == Number::F32 { 256 } else { 128 },
        shared_bytes: 0,
        after: Vec::new(),
    }
}
