//! Which kernel multiplies a matrix with so many rows, and in which shape; all give the same bits.
//!
//! One row: the weights are read once by a ring of bulk copies, the row lies whole beside it (`linear_one`). To 32 rows: in boxes,
//! which go round with the weights (`linear_few`). More: tensor cores from shared memory
//! (`linear_many`), or where the architecture has none such, `linear_few` to 64 rows. Beyond, or where the size has neither: `linear`.

use crate::driver::Properties;
use crate::jit::{FEW_ROWS, MANY, Made, Variant, linear, linear_few, linear_many, linear_one};
use crate::number::Number;
use crate::weights::PADDING;

/// Columns that `linear_few` takes at once, where its memory allows.
const CHUNK: usize = 256;
/// Consumer warps of a block of `linear_few`, at most.
const WARPS_MAX: usize = 12;
const STAGES_MAX: usize = 8;
/// Shared memory of a block of `linear_few`: what is enough, and what there is.
const ENOUGH_BYTES: usize = 200 << 10;
const SHARED_BYTES_MAX: usize = 224 << 10;
/// Rows of x that a box of `linear_many` has.
const MANY_BOX_ROWS: usize = 64;
/// Rows up to which `linear_few` is faster where `linear_many` is there.
const FEW_ROWS_BEST: usize = 32;
/// What the columns of x have to be a multiple of for a tensor map.
const MAPPED_COLUMNS: usize = 8;

/// The entry that takes one row, and may make it.
pub(super) const ONE_ROW: &str = "linear_one";
/// Columns of a row that lies whole in shared memory, at most.
const ONE_COLUMNS_MAX: usize = 32 << 10;
/// Warps that norm the row that `linear_one` multiplies.
const NORMING_WARPS: usize = 8;
const ONE_STAGES_MIN: usize = 3;
const ONE_STAGES_MAX: usize = 16;
/// Columns that `linear_one` takes at once, the most that fit; else as few as there may be, in many stages.
const ONE_CHUNKS: [usize; 2] = [512, 256];
/// Shared memory of a block of which two fit.
const HALF_BYTES: usize = 110 << 10;
/// Shared memory of a block of `linear_one` before its row.
const ONE_BYTES: usize = 1024;

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
pub(super) fn choose(device: &Properties, weight: Number, made: Made, [m, n, k]: [usize; 3]) -> Choice {
    let few_rows_max = if device.has_wgmma() { FEW_ROWS_BEST } else { FEW_ROWS[FEW_ROWS.len() - 1] };
    if !is_mapped(weight, k) || !device.has_bulk_copies() {
        return plain(weight, [m, n]);
    }
    if m == 1 && k <= ONE_COLUMNS_MAX {
        return one(device, weight, made, [n, k]);
    }
    match FEW_ROWS.into_iter().find(|rows| m <= *rows && *rows <= few_rows_max) {
        Some(rows) => few(device, weight, made, [rows, n]),
        None if device.has_wgmma() => many(device, weight, made, [m, n]),
        None => plain(weight, [m, n]),
    }
}

/// Whether rows of so many columns can be fetched by boxes.
pub(super) fn is_mapped(format: Number, columns: usize) -> bool {
    format != Number::F32 && columns.is_multiple_of(MAPPED_COLUMNS)
}

/// Whether products of every number of rows can end in a gate.
pub(super) fn is_gated(device: &Properties, format: Number, [n, k]: [usize; 2]) -> bool {
    device.has_wgmma() && is_mapped(format, k) && n.is_multiple_of(2 * crate::weights::GATED_ROWS)
}

/// The kernels that a matrix may need for up to `rows` rows.
pub(super) fn all(
    device: &Properties,
    weight: Number,
    made: Made,
    (rows, [n, k]): (usize, [usize; 2]),
) -> Vec<(Variant, &'static str)> {
    // What is chosen depends on the number of boxes alone.
    let boxes = (1..=rows.div_ceil(MANY_BOX_ROWS)).map(|boxes| (boxes * MANY_BOX_ROWS).min(rows));
    let mut found: Vec<(Variant, &'static str)> = std::iter::once(1)
        .chain(FEW_ROWS)
        .filter(|few| *few < rows)
        .chain(boxes)
        .map(|m| choose(device, weight, made, [m, n, k]))
        .map(|choice| (choice.variant, choice.entry))
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Outputs shared out so that every multiprocessor has as many: warps of a block, and blocks.
fn shared_out(processors: usize, n: usize) -> [usize; 2] {
    let shares = n.next_multiple_of(PADDING) / 16;
    let share = shares.div_ceil(processors);
    let warps = share.div_ceil(share.div_ceil(WARPS_MAX));
    [warps, processors.min(shares.div_ceil(warps))]
}

fn one(device: &Properties, weight: Number, made: Made, [n, k]: [usize; 2]) -> Choice {
    let processors = device.processors as usize;
    let row_bytes = ONE_BYTES + k.next_multiple_of(PADDING) * 2;
    let weight_bytes = |warps: usize| warps * k.next_multiple_of(PADDING) * 32;
    // Where all weights of a block fit into half of the memory, the next kernel's fit beside them.
    let halves = shared_out(2 * processors, n);
    let (has_halves, [warps, blocks]) = match row_bytes + weight_bytes(halves[0]) <= HALF_BYTES {
        true => (true, halves),
        false => (false, shared_out(processors, n)),
    };
    let room = if has_halves { HALF_BYTES } else { ENOUGH_BYTES }.saturating_sub(row_bytes);
    let (chunk, most) = one_stages(warps * 32, room);
    // No more than a block's warps go through.
    let rounds = (n.next_multiple_of(PADDING) / 16).div_ceil(blocks * warps);
    let stages = most.min(rounds * k.next_multiple_of(PADDING).div_ceil(chunk)).max(2);
    Choice {
        variant: linear_one(weight, made),
        entry: ONE_ROW,
        box_rows: None,
        grid: [blocks, 1],
        block: 32 * (warps.max(NORMING_WARPS) + 1),
        shared_bytes: row_bytes + stages * chunk * warps * 32,
        after: vec![chunk, stages, warps],
    }
}

/// Columns at once and stages of `linear_one`, for so many bytes a column and so many in all: what is left between two chunks costs some seventy
/// nanoseconds, and fewer than three stages don't keep memory busy.
fn one_stages(column_bytes: usize, room: usize) -> (usize, usize) {
    let fits = |chunk: &usize| ONE_STAGES_MIN * chunk * column_bytes <= room;
    let chunk = ONE_CHUNKS.into_iter().find(fits).unwrap_or(PADDING);
    (chunk, (room / (chunk * column_bytes)).clamp(2, ONE_STAGES_MAX))
}

/// As many rows as a variant has.
fn few(device: &Properties, weight: Number, made: Made, [rows, n]: [usize; 2]) -> Choice {
    let [warps, blocks] = shared_out(device.processors as usize, n);
    let column_bytes = warps * 32 + rows * 2;
    let (chunk, stages) = few_stages(column_bytes);
    Choice {
        variant: linear_few(weight, made, rows),
        entry: "linear_few",
        box_rows: Some(rows),
        grid: [blocks, 1],
        block: 32 * (warps + 1),
        shared_bytes: 2048 + stages * chunk * column_bytes,
        after: vec![chunk, stages],
    }
}

/// Columns at once and stages, for so many bytes a column.
fn few_stages(column_bytes: usize) -> (usize, usize) {
    let fits = |chunk: &usize| 2048 + 2 * chunk * column_bytes <= SHARED_BYTES_MAX;
    let chunk = [CHUNK, CHUNK / 2].into_iter().find(fits).unwrap_or(PADDING);
    (chunk, (ENOUGH_BYTES / (chunk * column_bytes)).clamp(2, STAGES_MAX))
}

/// The shape that takes the least time: rounds of tiles over the multiprocessors, times what a tile of it takes.
fn many(device: &Properties, weight: Number, made: Made, [m, n]: [usize; 2]) -> Choice {
    let processors = device.processors as usize;
    let tiles =
        |rows: usize, groups: usize| n.next_multiple_of(PADDING).div_ceil(64 * groups) * m.div_ceil(rows);
    let time = |place: &usize| {
        let ([rows, groups, _], nanoseconds) = MANY[*place];
        tiles(rows, groups).div_ceil(processors) * nanoseconds
    };
    let shape = (0..MANY.len()).min_by_key(time).map_or(MANY[0].0, |place| MANY[place].0);
    let [rows, groups, stages] = shape;
    Choice {
        variant: linear_many(weight, made, shape),
        entry: "linear_many",
        box_rows: Some(MANY_BOX_ROWS),
        grid: [processors.min(tiles(rows, groups)), 1],
        block: 128 * (groups + 1),
        shared_bytes: 1024 + stages * (groups * 8192 + rows * 128 + 16),
        after: Vec::new(),
    }
}

fn plain(weight: Number, [m, n]: [usize; 2]) -> Choice {
    Choice {
        variant: linear(weight),
        entry: "linear",
        box_rows: None,
        grid: [n.div_ceil(64), m.div_ceil(64)],
        block: if weight == Number::F32 { 256 } else { 128 },
        shared_bytes: 0,
        after: Vec::new(),
    }
}
