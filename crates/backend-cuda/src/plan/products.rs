//! Which kernel multiplies a matrix with so many rows, and in which shape; all give the same bits.
//!
//! One row: the weights are read once by a ring of bulk copies, the row lies whole beside it (`linear_one`). To 32 rows: in boxes,
//! which go round with the weights (`linear_few`). More: tensor cores from shared memory
//! (`linear_many`), or where the architecture has none such, `linear_few` to 64 rows. Beyond, or where the size has neither: `linear`.
//!
//! Codes: with one row and few outputs, some warps unpack them for others that multiply (`linear_one_codes`), with many each warp has a stream of its own
//! (`linear_one_wide`); up to 32 rows they are unpacked in registers (`linear_codes`). More: some outputs at a time are unpacked into memory of the plan's, and
//! multiplied as bf16.

use crate::codes::{PAIR_OUTPUTS, UNIT_OUTPUTS, Units};
use crate::driver::Properties;
use crate::jit::{
    CODES_ROWS, FEW_ROWS, MANY, Made, NARROW_ROWS, Variant, linear, linear_codes, linear_few, linear_many,
    linear_narrow, linear_one, linear_one_codes, linear_one_wide, unpack,
};
use crate::number::Number;
use crate::weights::{PADDING, Stored};

/// Columns that `linear_few` takes at once, where its memory allows.
const CHUNK: usize = 256;
/// Consumer warps of a block of `linear_few`, at most.
const WARPS_MAX: usize = 12;
const STAGES_MIN: usize = 2;
const STAGES_MAX: usize = 8;
/// Shared memory of a block of `linear_few` and `linear_codes` before its ring.
const RING_HEAD_BYTES: usize = 2048;
/// And in all: what is enough, and what is asked for at most.
const ENOUGH_BYTES: usize = 200 << 10;
const SHARED_BYTES_MAX: usize = 224 << 10;
/// Rows of x that a box of `linear_many` has.
pub(super) const MANY_BOX_ROWS: usize = 64;
/// Rows up to which `linear_few` is faster where `linear_many` is there.
const FEW_ROWS_BEST: usize = 32;
/// Columns that `linear_codes` takes at once: the most of these that leaves so many stages.
const CODES_CHUNKS: [usize; 5] = [1024, 512, 256, 128, 64];
const CODES_STAGES: usize = 4;
/// Consumer warps of a block of `linear_codes`, at most.
const CODES_WARPS_MAX: usize = 16;
/// Outputs a multiprocessor from which a warp has two units.
const WIDE_OUTPUTS: usize = 128;
/// What a stage of `linear_codes` is a multiple of.
const CODES_STAGE_UNIT: usize = 1024;
/// Bytes of weights that are unpacked at once, at most, of a matrix or of experts.
pub(super) const UNPACKED_BYTES_MAX: usize = 256 << 20;
/// What their outputs are a multiple of, but for the last ones.
const UNPACKED_OUTPUTS: usize = 128;
/// Units of a block of `unpack`.
const UNPACKED_BY_BLOCK: usize = 8;
const UNPACK_THREADS: usize = 256;
/// What the columns of x have to be a multiple of for a tensor map.
const MAPPED_COLUMNS: usize = 8;

/// Rows, or outputs, up to which `linear_narrow` is better than tiles in f32; what its columns are a multiple of.
const NARROW_ROWS_MAX: usize = 32;
const NARROW_OUTPUTS_MAX: usize = 256;
const NARROW_COLUMNS: usize = 4;

/// The entries that take one row, and may make it.
const ONE_ROW: &str = "linear_one";
const ONE_ROW_OF_CODES: &str = "linear_one_codes";
const ONE_ROW_OF_WIDE_CODES: &str = "linear_one_wide";
/// Columns of a row that lies whole in shared memory, at most.
const ONE_COLUMNS_MAX: usize = 32 << 10;
/// Warps that norm the row that a product multiplies.
const NORMING_WARPS: usize = 8;
const ONE_STAGES_MIN: usize = 3;
const ONE_STAGES_MAX: usize = 16;
/// Columns that `linear_one` takes at once, the most that fit; else as few as there may be, in many stages.
const ONE_CHUNKS: [usize; 2] = [512, 256];
/// Shared memory of a block of which two fit.
const HALF_BYTES: usize = 110 << 10;
/// Shared memory of a block of `linear_one`, `linear_one_codes` and `linear_one_wide` before its row.
const ONE_BYTES: usize = 1024;
const ONE_CODES_BYTES: usize = 2048;
const ONE_WIDE_BYTES: usize = 1024;

/// Warps of `linear_one_codes` that multiply, each with the outputs of two units: with more, unpacking is shared out as well among those of
/// `linear_codes`. Those that unpack for them, at least.
const CHAINS_MAX: usize = 4;
const HELPERS_MIN: usize = 8;
/// Columns of a piece that one of the latter unpacks, and pieces that it has on their way, at most.
const PIECE_COLUMNS: usize = 256;
const PIECES_AHEAD_MAX: usize = 2;

/// Warps of `linear_one_wide` at most, and pieces of codes that each has room for.
const WIDE_WARPS_MAX: usize = 12;
const WIDE_PIECES: usize = 2;

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

impl Choice {
    /// Whether it takes one row, and may make it.
    pub(super) fn is_of_one_row(&self) -> bool {
        [ONE_ROW, ONE_ROW_OF_CODES, ONE_ROW_OF_WIDE_CODES].contains(&self.entry)
    }
}

/// The kernel for m rows and a matrix `[n, k]`.
pub(super) fn choose(device: &Properties, weight: Number, made: Made, [m, n, k]: [usize; 3]) -> Choice {
    let few_rows_max = if device.has_wgmma() { FEW_ROWS_BEST } else { FEW_ROWS[FEW_ROWS.len() - 1] };
    if !is_mapped(weight, k) || !device.has_bulk_copies() {
        return plain(weight, [m, n, k]);
    }
    if m == 1 && k <= ONE_COLUMNS_MAX && least_of_one(k) <= device.shared_bytes as usize {
        return one(device, weight, made, [n, k]);
    }
    match FEW_ROWS.into_iter().find(|rows| m <= *rows && *rows <= few_rows_max) {
        Some(rows) => few(device, weight, made, [rows, n]),
        None if device.has_wgmma() => many(device, weight, made, [m, n]),
        None => plain(weight, [m, n, k]),
    }
}

/// Whether rows of so many columns can be fetched by boxes.
pub(super) fn is_mapped(format: Number, columns: usize) -> bool {
    format != Number::F32 && columns.is_multiple_of(MAPPED_COLUMNS)
}

/// Whether products of every number of rows can end in a gate.
pub(super) fn is_gated(device: &Properties, stored: Stored, [n, k]: [usize; 2]) -> bool {
    device.has_wgmma() && is_mapped(stored.reads(), k) && n.is_multiple_of(2 * crate::weights::GATED_ROWS)
}

/// The kernel for m rows and codes of a matrix `[n, k]`; `None` where they are unpacked first.
pub(super) fn choose_codes(
    device: &Properties,
    codes: Units,
    made: Made,
    [m, n, k]: [usize; 3],
) -> Option<Choice> {
    let rows = CODES_ROWS.into_iter().find(|rows| m <= *rows)?;
    if !device.has_bulk_copies() || !is_mapped(Number::Bf16, k) {
        return None;
    }
    let processors = device.processors as usize;
    let padded = n.next_multiple_of(PAIR_OUTPUTS);
    let is_narrow = padded <= CHAINS_MAX * PAIR_OUTPUTS * processors;
    let of_one = match m == 1 && k <= ONE_COLUMNS_MAX {
        true if is_narrow && made == Made::PLAIN => Some(one_of_codes(device, codes, [n, k])),
        true if !is_narrow && codes.run() == PIECE_COLUMNS => Some(one_wide(device, codes, made, [n, k])),
        _ => None,
    };
    if let Some(choice) = of_one.filter(|choice| choice.shared_bytes <= device.shared_bytes as usize) {
        return Some(choice);
    }
    let units = if made.gate.is_some() || padded >= WIDE_OUTPUTS * processors { 2 } else { 1 };
    let shares = padded / (units * UNIT_OUTPUTS);
    let share = shares.div_ceil(processors);
    let stage_of = |warps: usize, chunk: usize| {
        let codes = warps * units * codes.bytes() * (chunk / codes.run());
        chunk * rows * Number::Bf16.bytes() + codes.next_multiple_of(CODES_STAGE_UNIT)
    };
    let room = ring_bytes(device);
    let most =
        (1..=CODES_WARPS_MAX).rev().find(|warps| STAGES_MIN * stage_of(*warps, codes.run()) <= room)?;
    let warps = share.div_ceil(share.div_ceil(most));
    let stage = |chunk: usize| stage_of(warps, chunk);
    let fits = |chunk: &usize| CODES_STAGES * stage(*chunk) <= room;
    let mut chunks = CODES_CHUNKS.into_iter().filter(|chunk| *chunk >= codes.run());
    let chunk = chunks.find(fits).unwrap_or(codes.run());
    let stages = (room / stage(chunk)).clamp(STAGES_MIN, STAGES_MAX);
    Some(Choice {
        variant: linear_codes(codes.name(), made, [rows, units]),
        entry: "linear_codes",
        box_rows: Some(rows),
        grid: [processors.min(shares.div_ceil(warps)), 1],
        block: 32 * (warps + 1),
        shared_bytes: RING_HEAD_BYTES + stages * stage(chunk),
        after: vec![chunk, stages],
    })
}

/// Shared memory for a block's ring behind its barriers.
fn ring_bytes(device: &Properties) -> usize {
    ENOUGH_BYTES.min((device.shared_bytes as usize).saturating_sub(RING_HEAD_BYTES))
}

/// What a block of `linear_one` has at least.
fn least_of_one(k: usize) -> usize {
    ONE_BYTES + k.next_multiple_of(PADDING) * 2 + STAGES_MIN * PADDING * WARPS_MAX * 32
}

/// The kernel for m rows of weights that were unpacked just before, which none may read ahead.
pub(super) fn choose_unpacked(device: &Properties, made: Made, [m, n, k]: [usize; 3]) -> Choice {
    let is_many = device.has_wgmma() && is_mapped(Number::Bf16, k);
    if is_many { many(device, Number::Bf16, made, [m, n]) } else { plain(Number::Bf16, [m, n, k]) }
}

/// What unpacks so many outputs.
pub(super) fn choose_unpack(codes: Units, [n, k]: [usize; 2]) -> Choice {
    let units = n.next_multiple_of(PAIR_OUTPUTS) / UNIT_OUTPUTS * codes.runs(k);
    Choice {
        variant: unpack(codes.name()),
        entry: "unpack",
        box_rows: None,
        grid: [units.div_ceil(UNPACKED_BY_BLOCK), 1],
        block: UNPACK_THREADS,
        shared_bytes: 0,
        after: Vec::new(),
    }
}

/// Outputs of a matrix that are unpacked at once, and the bytes that they take.
pub(super) fn unpacked([n, k]: [usize; 2]) -> (usize, usize) {
    let row_bytes = k.next_multiple_of(PADDING) * Number::Bf16.bytes();
    let most = (UNPACKED_BYTES_MAX / row_bytes / UNPACKED_OUTPUTS).max(1) * UNPACKED_OUTPUTS;
    let outputs = n.min(most);
    (outputs, outputs.next_multiple_of(PADDING) * row_bytes)
}

/// The kernels that a matrix may need for up to `rows` rows.
pub(super) fn all(
    device: &Properties,
    stored: Stored,
    made: Made,
    (rows, [n, k]): (usize, [usize; 2]),
) -> Vec<(Variant, &'static str)> {
    // What is chosen depends on the number of boxes alone.
    let boxes = (1..=rows.div_ceil(MANY_BOX_ROWS)).map(|boxes| (boxes * MANY_BOX_ROWS).min(rows));
    let counts = std::iter::once(1).chain(FEW_ROWS).filter(|few| *few < rows).chain(boxes);
    let choices = |m: usize| match stored {
        Stored::Plain(weight) => vec![choose(device, weight, made, [m, n, k])],
        Stored::Codes(codes) => choose_codes(device, codes, made, [m, n, k]).map_or_else(
            || {
                let (most, _) = unpacked([n, k]);
                // All of its kind, and the last outputs.
                let sizes = [most, n - (n - 1) / most * most];
                let products = sizes.map(|n| choose_unpacked(device, made, [m, n, k]));
                [vec![choose_unpack(codes, [n, k])], products.to_vec()].concat()
            },
            |choice| vec![choice],
        ),
    };
    let mut found: Vec<(Variant, &'static str)> =
        counts.flat_map(choices).map(|choice| (choice.variant, choice.entry)).collect();
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
    let shared_bytes = device.shared_bytes as usize;
    let half = HALF_BYTES.min(shared_bytes / 2);
    let (has_halves, [warps, blocks]) = match row_bytes + weight_bytes(halves[0]) <= half {
        true => (true, halves),
        false => (false, shared_out(processors, n)),
    };
    let room = if has_halves { half } else { ENOUGH_BYTES.min(shared_bytes) }.saturating_sub(row_bytes);
    let (chunk, most) = one_stages(warps * 32, room);
    // No more than a block's warps go through.
    let rounds = (n.next_multiple_of(PADDING) / 16).div_ceil(blocks * warps);
    let stages = most.min(rounds * k.next_multiple_of(PADDING).div_ceil(chunk)).max(STAGES_MIN);
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

fn one_of_codes(device: &Properties, codes: Units, [n, k]: [usize; 2]) -> Choice {
    let processors = device.processors as usize;
    let shares = n.div_ceil(PAIR_OUTPUTS);
    let chains = shares.div_ceil(processors);
    let helpers = HELPERS_MIN.div_ceil(chains);
    let pieces = k.div_ceil(PIECE_COLUMNS);
    let ahead = pieces.div_ceil(helpers).min(PIECES_AHEAD_MAX);
    let codes_bytes = PAIR_OUTPUTS / UNIT_OUTPUTS * codes.bytes() * (PIECE_COLUMNS / codes.run());
    let helper_bytes = PAIR_OUTPUTS * PIECE_COLUMNS * Number::Bf16.bytes() + ahead * codes_bytes;
    let row_bytes = pieces * PIECE_COLUMNS * Number::Bf16.bytes();
    Choice {
        variant: linear_one_codes(codes.name()),
        entry: ONE_ROW_OF_CODES,
        box_rows: None,
        grid: [shares.div_ceil(chains), 1],
        block: 32 * (chains * (helpers + 1) + NORMING_WARPS),
        shared_bytes: (ONE_CODES_BYTES + row_bytes + chains * helpers * helper_bytes)
            .max(alone_bytes(device)),
        after: vec![chains, helpers, ahead],
    }
}

fn one_wide(device: &Properties, codes: Units, made: Made, [n, k]: [usize; 2]) -> Choice {
    let shares = n.div_ceil(PAIR_OUTPUTS);
    let share = shares.div_ceil(device.processors as usize);
    let warps = share.div_ceil(share.div_ceil(WIDE_WARPS_MAX));
    let pieces = k.div_ceil(PIECE_COLUMNS);
    let row_bytes = pieces * PIECE_COLUMNS * Number::Bf16.bytes();
    let codes_bytes = PAIR_OUTPUTS / UNIT_OUTPUTS * codes.bytes() * (PIECE_COLUMNS / codes.run());
    let bytes = ONE_WIDE_BYTES + row_bytes + warps * WIDE_PIECES * codes_bytes;
    Choice {
        variant: linear_one_wide(codes.name(), made),
        entry: ONE_ROW_OF_WIDE_CODES,
        box_rows: None,
        grid: [(device.processors as usize).min(shares.div_ceil(warps)), 1],
        block: 32 * warps.max(NORMING_WARPS),
        shared_bytes: bytes.max(alone_bytes(device)),
        after: vec![warps],
    }
}

/// Shared memory of a block of which no two fit: of a kernel whose blocks begin as those of the one before end, a multiprocessor would take two and
/// another none.
fn alone_bytes(device: &Properties) -> usize {
    device.shared_bytes as usize / 2
}

/// Columns at once and stages of `linear_one`, for so many bytes a column and so many in all: what is left between two chunks costs some seventy
/// nanoseconds, and fewer than three stages don't keep memory busy.
fn one_stages(column_bytes: usize, room: usize) -> (usize, usize) {
    let fits = |chunk: &usize| ONE_STAGES_MIN * chunk * column_bytes <= room;
    let chunk = ONE_CHUNKS.into_iter().find(fits).unwrap_or(PADDING);
    (chunk, (room / (chunk * column_bytes)).clamp(STAGES_MIN, ONE_STAGES_MAX))
}

/// As many rows as a variant has.
fn few(device: &Properties, weight: Number, made: Made, [rows, n]: [usize; 2]) -> Choice {
    let [warps, blocks] = shared_out(device.processors as usize, n);
    let column_bytes = warps * 32 + rows * 2;
    let (chunk, stages) = few_stages(device, column_bytes);
    Choice {
        variant: linear_few(weight, made, rows),
        entry: "linear_few",
        box_rows: Some(rows),
        grid: [blocks, 1],
        block: 32 * (warps + 1),
        shared_bytes: RING_HEAD_BYTES + stages * chunk * column_bytes,
        after: vec![chunk, stages],
    }
}

/// Columns at once and stages, for so many bytes a column.
fn few_stages(device: &Properties, column_bytes: usize) -> (usize, usize) {
    let most = SHARED_BYTES_MAX.min(device.shared_bytes as usize);
    let fits = |chunk: &usize| RING_HEAD_BYTES + STAGES_MIN * chunk * column_bytes <= most;
    let chunk = [CHUNK, CHUNK / 2].into_iter().find(fits).unwrap_or(PADDING);
    (chunk, (ring_bytes(device) / (chunk * column_bytes)).clamp(STAGES_MIN, STAGES_MAX))
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
    let [rows, groups, _] = shape;
    Choice {
        variant: linear_many(weight, made, shape),
        entry: "linear_many",
        box_rows: Some(MANY_BOX_ROWS),
        grid: [processors.min(tiles(rows, groups)), 1],
        block: 128 * (groups + 1),
        shared_bytes: many_bytes(shape),
        after: Vec::new(),
    }
}

/// Shared memory of a block of `linear_many`.
pub(super) fn many_bytes([rows, groups, stages]: [usize; 3]) -> usize {
    1024 + stages * (groups * 8192 + rows * 128 + 16)
}

fn plain(weight: Number, [m, n, k]: [usize; 3]) -> Choice {
    let is_narrow = m <= NARROW_ROWS_MAX || n <= NARROW_OUTPUTS_MAX;
    if weight == Number::F32 && is_narrow && k.is_multiple_of(NARROW_COLUMNS) {
        return narrow([m, n]);
    }
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

/// A thread an output.
fn narrow([m, n]: [usize; 2]) -> Choice {
    let rows = if m == 1 { NARROW_ROWS[0] } else { NARROW_ROWS[1] };
    Choice {
        variant: linear_narrow(rows),
        entry: "linear_narrow",
        box_rows: None,
        grid: [n.div_ceil(32), m.div_ceil(rows)],
        block: 32,
        shared_bytes: 0,
        after: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::simulated::Simulated;
    use crate::driver::{Driver, WGMMA_SHARED_BYTES};
    use crate::jit::Gate;
    use gannet_tensor::Format;

    /// Shared memory of a block of sm_120.
    const LITTLE: u32 = 99 << 10;

    #[test]
    fn no_block_has_more_shared_memory_than_its_device() {
        let gated = Made { format: Number::Bf16, gate: Some(Gate::Silu) };
        for shared_bytes in [LITTLE, WGMMA_SHARED_BYTES] {
            let device = Simulated::new(1 << 20, shared_bytes);
            let device = device.properties();
            let fits = |choice: Choice, what: String| {
                let found = choice.shared_bytes;
                assert!(
                    found <= shared_bytes as usize,
                    "{what}: {found} of {shared_bytes} bytes, {choice:?}"
                );
            };
            let sizes = [256, 1024, 6144, 24_576, 151_936]
                .into_iter()
                .flat_map(|n| [192, 1024, 4096, 12_288, 32_768].into_iter().map(move |k| [n, k]));
            for [n, k] in sizes {
                for m in [1, 2, 8, 9, 16, 17, 32, 33, 64, 65, 1000] {
                    for made in [Made::PLAIN, gated] {
                        let what = format!("{m} rows, {n} outputs of {k} columns");
                        fits(choose(device, Number::Bf16, made, [m, n, k]), what.clone());
                        for codes in Format::ALL.into_iter().filter_map(Units::of) {
                            let choice = choose_codes(device, codes, made, [m, n, k]);
                            choice.into_iter().for_each(|choice| fits(choice, what.clone()));
                        }
                    }
                }
            }
        }
    }
}
