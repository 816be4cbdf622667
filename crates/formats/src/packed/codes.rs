//! Weights of integer codes with scales and zeros for groups of columns: value = scale (code - zero).
//!
//! ```text
//!                      codes                           scales           zeros
//! GPTQ                 qweight [columns / n, rows]     [groups, rows]   qzeros [groups, rows / n]
//! AWQ, `gemm`          qweight [columns, rows / 8]     [groups, rows]   qzeros [groups, rows / 8]
//! AWQ, `gemv`          qweight [rows, columns / 8]     [rows, 8 words]  qzeros [rows, words], words for all groups
//! pack-quantized       weight_packed [rows, columns/n] [rows, groups]   weight_zero_point [rows / n, groups], or none
//! int-quantized        weight [rows, columns], i8      [rows, groups]   weight_zero_point [rows, groups], i8, or none
//! ```
//!
//! A row is an output, a column an input. A word of 32 bits holds `n` codes, 16 of 2 bits, 8 of 4 bits or 4 of 8, the lowest
//! bits first, next to each other in the dimension that is divided; AWQ's `gemm` has them in the order 0 2 4 6 1 3 5 7. 32
//! codes of 3 bits fill 3 words without a gap. Without zeros the zero is the middle, 8 or 128; signed codes have the middle
//! added.
//!
//! GPTQ of version 1 stores zeros less 1. It is added to the whole word, with carries, as the writers that subtract it
//! from the whole word mean it; zeros of 3 bits have a file of their own (`older`). `g_idx` gives the group of each
//! column; without it, groups are equal runs of columns.
//!
//! With runs of columns that are multiples of 32, all zeros in the middle and scales in f16, a weight becomes `q4_0` or
//! `q8_0`; with other zeros or scales in bf16, [`Format::Q4Z`] or [`Format::Q8Z`], 5 or 9 bits a weight. Codes below 4
//! bits take the room of 4. Else (columns
//! in the order of activations, or rows that are no multiple of 32) single precision, eight times the file's bytes. All
//! are exact. Rows are put together from columns, in one to two seconds of one core for 10^9 codes.
//!
//! Source: AutoGPTQ and GPTQModel; AutoAWQ; `pack_quantized` and `naive_quantized` of compressed-tensors.

mod fill;
mod older;

use gannet_tensor::Format;
use gannet_tensor::decode::integers;

use super::method::Gptq;
use super::{Module, PackedTensor, Part, Recipe};
use crate::FormatError;
use crate::stored::StoredTensors;

/// A weight of codes: where its parts are and how they lie.
#[derive(Debug)]
pub(super) struct Codes {
    /// Where codes are and in which order.
    codes: usize,
    order: Order,
    bits: u32,
    rows: usize,
    columns: usize,
    scales: usize,
    scale_format: Format,
    zeros: Zeros,
    groups: Groups,
}

/// The order of codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Gptq,
    Awq,
    Rows,
    Bytes,
}

/// The zeros of groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Zeros {
    Middle,
    /// Packed as GPTQ has them, with what is added to each word.
    Gptq {
        place: usize,
        add: u32,
    },
    Awq {
        place: usize,
    },
    /// So many words a row.
    AwqRows {
        place: usize,
        words: usize,
    },
    Rows {
        place: usize,
    },
    Bytes {
        place: usize,
    },
}

/// Which columns are one group.
#[derive(Debug)]
enum Groups {
    /// Runs of so many columns, above 0.
    Runs(usize),
    /// The group of each column.
    Of(Vec<u32>),
}

/// GPTQ of 2, 3, 4 or 8 bits.
pub(super) fn gptq(module: &Module<'_>, gptq: Gptq) -> Result<PackedTensor, FormatError> {
    let (stored, bits) = (module.stored, gptq.bits);
    let [words, rows] = module.codes.matrix(stored)?;
    let columns = match bits {
        3 if words.is_multiple_of(3) => unpacked(module, words / 3, 32)?,
        3 => return Err(module.codes.wrong_shape(stored, "a multiple of 3 words in each column")),
        _ => unpacked(module, words, in_word(bits))?,
    };
    let shape = [rows, columns];
    let (scales, zeros) = (module.required(".scales")?, module.required(".qzeros")?);
    let groups = scales.matrix(stored)?[0];
    scales.expect_shape(stored, &[groups, rows])?;
    zeros.expect_format(stored, &[Format::I32])?;
    if bits == 3 && !rows.is_multiple_of(32) {
        return Err(module.codes.wrong_shape(stored, "a multiple of 32 outputs, as zeros of 3 bits need"));
    }
    let zero_words = if bits == 3 { rows / 32 * 3 } else { rows.div_ceil(in_word(bits)) };
    zeros.expect_shape(stored, &[groups, zero_words])?;
    let found = match (gptq.zeros_lack_one, bits) {
        (true, 3) => older::zeros_of_3_bits(stored, zeros)?,
        (lack_one, _) => Zeros::Gptq { place: zeros.place, add: if lack_one { ones(bits) } else { 0 } },
    };
    let parts = Parts { scales, zeros: Some(zeros), columns: module.optional(".g_idx")?, shape: None };
    parts.pack(module, Order::Gptq, bits, shape, groups, found)
}

/// A word whose codes of 2, 4 or 8 bits are all 1.
const fn ones(bits: u32) -> u32 {
    u32::MAX / ((1 << bits) - 1)
}

/// AWQ, layout `gemm`, of 4 bits.
pub(super) fn awq(module: &Module<'_>) -> Result<PackedTensor, FormatError> {
    let stored = module.stored;
    let [columns, words] = module.codes.matrix(stored)?;
    let shape = [unpacked(module, words, 8)?, columns];
    let (scales, zeros) = (module.required(".scales")?, module.required(".qzeros")?);
    let groups = scales.matrix(stored)?[0];
    scales.expect_shape(stored, &[groups, shape[0]])?;
    zeros.expect_format(stored, &[Format::I32])?;
    zeros.expect_shape(stored, &[groups, words])?;
    let parts = Parts { scales, zeros: Some(zeros), columns: None, shape: None };
    parts.pack(module, Order::Awq, 4, shape, groups, Zeros::Awq { place: zeros.place })
}

/// AWQ, layout `gemv`, of 4 bits, in groups of `group` columns. Scales and zeros of a row are filled up to whole words.
pub(super) fn awq_rows(module: &Module<'_>, group: Option<usize>) -> Result<PackedTensor, FormatError> {
    let stored = module.stored;
    let [rows, words] = module.codes.matrix(stored)?;
    let columns = unpacked(module, words, 8)?;
    let group = group.unwrap_or(columns);
    if group == 0 || !columns.is_multiple_of(group) {
        return Err(module.codes.wrong_shape(stored, format!("rows of whole groups of {group} columns")));
    }
    let groups = columns / group;
    let (scales, zeros) = (module.required(".scales")?, module.required(".qzeros")?);
    zeros.expect_format(stored, &[Format::I32])?;
    let words = zeros.matrix(stored)?[1];
    zeros.expect_shape(stored, &[rows, words])?;
    let room = words.checked_mul(8).filter(|&room| room >= groups);
    let room = room.ok_or_else(|| zeros.wrong_shape(stored, format!("words for {groups} groups")))?;
    scales.expect_shape(stored, &[rows, room])?;
    let parts = Parts { scales, zeros: Some(zeros), columns: None, shape: None };
    parts.pack(module, Order::Rows, 4, [rows, columns], groups, Zeros::AwqRows { place: zeros.place, words })
}

/// `pack-quantized` of compressed-tensors. The width of a code follows from the words of a row.
pub(super) fn packed_rows(module: &Module<'_>) -> Result<PackedTensor, FormatError> {
    let stored = module.stored;
    let [rows, words] = module.codes.matrix(stored)?;
    let said = module.required(".weight_shape")?;
    said.expect_format(stored, &[Format::I64, Format::I32])?;
    said.expect_shape(stored, &[2])?;
    let lengths = integers(said.tensor.format, stored.bytes(said.place)).unwrap_or_default();
    let wrong = |expected: &str| module.codes.wrong_shape(stored, expected);
    let columns = match lengths[..] {
        [high, wide] if usize::try_from(high) == Ok(rows) => usize::try_from(wide).ok(),
        _ => None,
    };
    let columns = columns.ok_or_else(|| wrong(&format!("the rows that `weight_shape` says, {lengths:?}")))?;
    let bits = [4, 8].into_iter().find(|&bits| columns.div_ceil(in_word(bits)) == words && columns > 0);
    let bits = bits.ok_or_else(|| wrong(&format!("words of 4 or 8 bits for {columns} columns")))?;
    let scales = module.required(".weight_scale")?;
    let groups = groups_of_rows(module, scales, rows)?;
    let zeros = module.optional(".weight_zero_point")?;
    if let Some(zeros) = zeros {
        zeros.expect_format(stored, &[Format::I32])?;
        zeros.expect_shape(stored, &[rows.div_ceil(in_word(bits)), groups])?;
    }
    let found = zeros.map_or(Zeros::Middle, |zeros| Zeros::Rows { place: zeros.place });
    let parts = Parts { scales, zeros, columns: module.optional(".weight_g_idx")?, shape: Some(said) };
    parts.pack(module, Order::Rows, bits, [rows, columns], groups, found)
}

/// `int-quantized` of compressed-tensors, a signed byte a code.
pub(super) fn bytes(module: &Module<'_>) -> Result<PackedTensor, FormatError> {
    let shape = module.codes.matrix(module.stored)?;
    let scales = module.required(".weight_scale")?;
    let groups = groups_of_rows(module, scales, shape[0])?;
    let zeros = module.optional(".weight_zero_point")?;
    if let Some(zeros) = zeros {
        zeros.expect_format(module.stored, &[Format::I8])?;
        zeros.expect_shape(module.stored, scales.tensor.shape)?;
    }
    let found = zeros.map_or(Zeros::Middle, |zeros| Zeros::Bytes { place: zeros.place });
    let parts = Parts { scales, zeros, columns: module.optional(".weight_g_idx")?, shape: None };
    parts.pack(module, Order::Bytes, 8, shape, groups, found)
}

/// Codes in a word.
const fn in_word(bits: u32) -> usize {
    (32 / bits) as usize
}

/// The elements of so many words of codes.
fn unpacked(module: &Module<'_>, words: usize, in_word: usize) -> Result<usize, FormatError> {
    module.codes.expect_format(module.stored, &[Format::I32])?;
    words.checked_mul(in_word).ok_or_else(|| module.codes.wrong_shape(module.stored, "fewer words"))
}

/// The groups of scales that are `[rows, groups]`, or one a row.
fn groups_of_rows(module: &Module<'_>, scales: Part<'_>, rows: usize) -> Result<usize, FormatError> {
    match *scales.tensor.shape {
        [length] if length == rows => Ok(1),
        [length, groups] if length == rows => Ok(groups),
        _ => Err(scales.wrong_shape(module.stored, format!("[{rows}, groups]"))),
    }
}

/// The tensors beside the codes.
struct Parts<'a> {
    scales: Part<'a>,
    zeros: Option<Part<'a>>,
    /// The group of each column.
    columns: Option<Part<'a>>,
    shape: Option<Part<'a>>,
}

impl Parts<'_> {
    fn pack(
        &self,
        module: &Module<'_>,
        order: Order,
        bits: u32,
        [rows, columns]: [usize; 2],
        groups: usize,
        zeros: Zeros,
    ) -> Result<PackedTensor, FormatError> {
        self.scales.expect_format(module.stored, &[Format::F16, Format::Bf16, Format::F32])?;
        let mut codes = Codes {
            codes: module.codes.place,
            order,
            bits,
            rows,
            columns,
            scales: self.scales.place,
            scale_format: self.scales.tensor.format,
            zeros,
            groups: self.groups(module.stored, columns, groups)?,
        };
        if codes.zeros_are_middle(module.stored, groups) {
            codes.zeros = Zeros::Middle;
        }
        let format = codes.format();
        let parts = [Some(module.codes), Some(self.scales), self.zeros, self.columns, self.shape];
        module.packed(module.weight_name(), &[rows, columns], format, &parts, Recipe::Codes(codes))
    }

    fn groups(&self, stored: &StoredTensors, columns: usize, groups: usize) -> Result<Groups, FormatError> {
        let run = (groups > 0 && columns.is_multiple_of(groups)).then(|| (columns / groups).max(1));
        let Some(part) = self.columns else {
            let wrong = || self.scales.wrong_shape(stored, format!("groups that divide {columns} columns"));
            return run.map(Groups::Runs).ok_or_else(wrong);
        };
        part.expect_format(stored, &[Format::I32])?;
        part.expect_shape(stored, &[columns])?;
        let of = integers(Format::I32, stored.bytes(part.place)).unwrap_or_default();
        if let Some(run) =
            run.filter(|run| of.iter().enumerate().all(|(i, &group)| group == (i / run) as i64))
        {
            return Ok(Groups::Runs(run));
        }
        let checked = of.iter().enumerate().map(|(column, &found)| match u32::try_from(found) {
            Ok(group) if (group as usize) < groups => Ok(group),
            Ok(_) | Err(_) => Err(FormatError::GroupIndex {
                file: stored.file_of(part.place).path().to_path_buf(),
                tensor: part.tensor.name.to_owned(),
                column,
                found,
                groups,
            }),
        });
        Ok(Groups::Of(checked.collect::<Result<_, _>>()?))
    }
}

impl Codes {
    /// The format that holds codes, scales and zeros as they are.
    fn format(&self) -> Format {
        const ELEMENTS: usize = Format::Q4_0.block_elements();
        let in_blocks = match self.groups {
            Groups::Runs(run) => run.is_multiple_of(ELEMENTS),
            Groups::Of(_) => false,
        };
        match (self.scale_format, self.zeros) {
            _ if !in_blocks => Format::F32,
            (Format::F16, Zeros::Middle) if self.bits <= 4 => Format::Q4_0,
            (Format::F16, Zeros::Middle) => Format::Q8_0,
            (Format::F16 | Format::Bf16, _) if self.bits <= 4 => Format::Q4Z,
            (Format::F16 | Format::Bf16, _) => Format::Q8Z,
            _ => Format::F32,
        }
    }
}
