//! Puts weights of integer codes together: codes from words in each order, scales and zeros of their groups, blocks.
//!
//! Rows are filled in bands, block by block, so that the words of a few columns serve all rows of a band while they are
//! in the first cache level: the layouts of GPTQ and AWQ have the rows of one column side by side.

use gannet_tensor::Format;

use super::super::floats;
use super::{Codes, Groups, Order, Zeros, in_word};
use crate::stored::StoredTensors;

/// Rows that are filled together.
const BAND: usize = 64;

/// Codes of a block.
const ELEMENTS: usize = 32;

impl Codes {
    /// Puts the weight together in `out`.
    pub(crate) fn fill(&self, stored: &StoredTensors, format: Format, out: &mut [u8]) {
        let words = words(stored, self.codes);
        let bytes = stored.bytes(self.codes);
        let (rows, columns) = (self.rows, self.columns);
        let row_words = columns.div_ceil(in_word(self.bits));
        match (self.order, self.bits) {
            (Order::Gptq, 2 | 3) => self.fill_by(stored, format, out, |row, column| {
                code_at(|place| words[place * rows + row], column, self.bits)
            }),
            (Order::Gptq, 4) => {
                self.fill_by(stored, format, out, |row, column| {
                    nibble(words[column / 8 * rows + row], column % 8)
                });
            }
            (Order::Gptq, _) => {
                self.fill_by(stored, format, out, |row, column| words[column / 4 * rows + row][column % 4]);
            }
            (Order::Awq, _) => self.fill_by(stored, format, out, |row, column| {
                nibble(words[column * (rows / 8) + row / 8], awq_place(row % 8))
            }),
            (Order::Rows, 4) => {
                self.fill_by(stored, format, out, |row, column| {
                    nibble(words[row * row_words + column / 8], column % 8)
                });
            }
            (Order::Rows, _) => self
                .fill_by(stored, format, out, |row, column| words[row * row_words + column / 4][column % 4]),
            (Order::Bytes, _) => {
                self.fill_by(stored, format, out, |row, column| bytes[row * columns + column] ^ 0x80);
            }
        }
    }

    /// As [`fill`](Self::fill), by the code of a row and column.
    #[inline(always)]
    fn fill_by(
        &self,
        stored: &StoredTensors,
        format: Format,
        out: &mut [u8],
        code: impl Fn(usize, usize) -> u8,
    ) {
        let groups = GroupValues::new(self, stored, format);
        match (&self.groups, format) {
            (Groups::Runs(run), Format::Q4_0 | Format::Q8_0 | Format::Q4Z | Format::Q8Z) => {
                self.fill_blocks(&groups, *run, format, out, code);
            }
            (Groups::Runs(run), _) => self.fill_floats(&groups, |column| column / run, out, code),
            (Groups::Of(of), _) => self.fill_floats(&groups, |column| of[column] as usize, out, code),
        }
    }

    #[inline(always)]
    fn fill_blocks(
        &self,
        groups: &GroupValues,
        run: usize,
        format: Format,
        out: &mut [u8],
        code: impl Fn(usize, usize) -> u8,
    ) {
        let block_bytes = format.block_bytes();
        let row_bytes = self.columns / ELEMENTS * block_bytes;
        // `q4_0` has its zero at 8, wherever the middle of fewer bits is.
        let lift = if format == Format::Q4_0 { 8 - (1 << (self.bits - 1)) } else { 0 };
        if row_bytes == 0 {
            return;
        }
        for (band, out) in out.chunks_mut(BAND * row_bytes).enumerate() {
            for block in 0..self.columns / ELEMENTS {
                for (row, out) in out.chunks_exact_mut(row_bytes).enumerate() {
                    let row = band * BAND + row;
                    let out = &mut out[block * block_bytes..][..block_bytes];
                    let (header, rest) = out.split_at_mut(block_bytes - code_bytes(format));
                    let values = &groups.headers[groups.place(row, block * ELEMENTS / run)];
                    header.copy_from_slice(&values[..header.len()]);
                    let codes: [u8; ELEMENTS] =
                        std::array::from_fn(|i| code(row, block * ELEMENTS + i) + lift);
                    write_codes(format, &codes, rest);
                }
            }
        }
    }

    #[inline(always)]
    fn fill_floats(
        &self,
        groups: &GroupValues,
        group_of: impl Fn(usize) -> usize,
        out: &mut [u8],
        code: impl Fn(usize, usize) -> u8,
    ) {
        if self.columns == 0 {
            return;
        }
        for (row, out) in out.chunks_exact_mut(4 * self.columns).enumerate() {
            for (column, out) in out.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                let place = groups.place(row, group_of(column));
                let difference = i32::from(code(row, column)) - i32::from(groups.zeros[place]);
                *out = (groups.scales[place] * difference as f32).to_le_bytes();
            }
        }
    }

    /// Whether each of `groups` has its zero in the middle, in every row.
    pub(crate) fn zeros_are_middle(&self, stored: &StoredTensors, groups: usize) -> bool {
        let zero_of = self.zero_of(stored, groups);
        (0..self.rows)
            .all(|row| (0..groups).all(|group| u32::from(zero_of(row, group)) == 1 << (self.bits - 1)))
    }
}

/// The bytes of the codes of a block, which come last in it.
fn code_bytes(format: Format) -> usize {
    if matches!(format, Format::Q4_0 | Format::Q4Z) { ELEMENTS / 2 } else { ELEMENTS }
}

#[inline(always)]
fn write_codes(format: Format, codes: &[u8; ELEMENTS], out: &mut [u8]) {
    if matches!(format, Format::Q4_0 | Format::Q4Z) {
        for (i, out) in out.iter_mut().enumerate() {
            *out = codes[i] | codes[i + 16] << 4;
        }
    } else if format == Format::Q8_0 {
        // Signed bytes: less the middle.
        out.copy_from_slice(&codes.map(|code| code ^ 0x80));
    } else {
        out.copy_from_slice(codes);
    }
}

/// Scales and zeros, `[rows, groups]`.
struct GroupValues {
    groups: usize,
    scales: Vec<f32>,
    zeros: Vec<u8>,
    /// What stands before the codes of a block: the stored f16 in the first two bytes, or scale and zero in one word.
    headers: Vec<[u8; 4]>,
}

impl GroupValues {
    fn new(codes: &Codes, stored: &StoredTensors, format: Format) -> Self {
        let (rows, width) = (codes.rows, codes.scale_format.block_bytes());
        let stored_scales = stored.bytes(codes.scales);
        let floats = floats(stored, codes.scales, codes.scale_format);
        let groups = floats.len().checked_div(rows).unwrap_or(0);
        let groups_first = matches!(codes.order, Order::Gptq | Order::Awq);
        let zero_of = codes.zero_of(stored, groups);
        let mut values = Self { groups, scales: Vec::new(), zeros: Vec::new(), headers: Vec::new() };
        for (row, group) in (0..rows).flat_map(|row| (0..groups).map(move |group| (row, group))) {
            let place = if groups_first { group * rows + row } else { row * groups + group };
            let (scale, zero) = (floats[place], zero_of(row, group));
            let mut header = (scale.to_bits() | u32::from(zero)).to_le_bytes();
            if matches!(format, Format::Q4_0 | Format::Q8_0) {
                header[..width].copy_from_slice(&stored_scales[place * width..][..width]);
            }
            values.scales.push(scale);
            values.zeros.push(zero);
            values.headers.push(header);
        }
        values
    }

    #[inline(always)]
    fn place(&self, row: usize, group: usize) -> usize {
        row * self.groups + group
    }
}

impl Codes {
    /// The zero of a row and group.
    fn zero_of<'a>(&self, stored: &'a StoredTensors, groups: usize) -> Box<dyn Fn(usize, usize) -> u8 + 'a> {
        let bits = self.bits;
        let per = in_word(bits);
        let row_words = if bits == 3 { self.rows / 32 * 3 } else { self.rows.div_ceil(per) };
        match self.zeros {
            Zeros::Middle => Box::new(move |_, _| 1 << (bits - 1)),
            Zeros::Gptq { place, add } => {
                let words = words(stored, place);
                Box::new(move |row, group| {
                    let word = |place: usize| {
                        u32::from_le_bytes(words[group * row_words + place]).wrapping_add(add).to_le_bytes()
                    };
                    code_at(word, row, bits)
                })
            }
            Zeros::Awq { place } => {
                let words = words(stored, place);
                Box::new(move |row, group| nibble(words[group * row_words + row / 8], awq_place(row % 8)))
            }
            Zeros::AwqRows { place, words: row_words } => {
                let words = words(stored, place);
                Box::new(move |row, group| nibble(words[row * row_words + group / 8], group % 8))
            }
            Zeros::Rows { place } => {
                let words = words(stored, place);
                Box::new(move |row, group| code_at(|_| words[row / per * groups + group], row % per, bits))
            }
            Zeros::Bytes { place } => {
                let bytes = stored.bytes(place);
                Box::new(move |row, group| bytes[row * groups + group] ^ 0x80)
            }
        }
    }
}

/// The words of a tensor, each in its bytes, the lowest first.
fn words(stored: &StoredTensors, place: usize) -> &[[u8; 4]] {
    stored.bytes(place).as_chunks().0
}

/// Code `index` of a run of words, the first bits lowest, without gaps. A code of 3 bits may begin in one word and end in
/// the next.
#[inline(always)]
pub(super) fn code_at(word: impl Fn(usize) -> [u8; 4], index: usize, bits: u32) -> u8 {
    let (first, shift) = (index * bits as usize / 32, index * bits as usize % 32);
    let low = u32::from_le_bytes(word(first)) >> shift;
    let rest =
        if shift + bits as usize > 32 { u32::from_le_bytes(word(first + 1)) << (32 - shift) } else { 0 };
    (low | rest) as u8 & (u8::MAX >> (8 - bits))
}

/// Code `index` of the 8 in a word.
#[inline(always)]
fn nibble(word: [u8; 4], index: usize) -> u8 {
    (u32::from_le_bytes(word) >> (4 * index)) as u8 & 15
}

/// Where AWQ has code `index` of the 8 in a word: even ones first.
#[inline(always)]
fn awq_place(index: usize) -> usize {
    index / 2 + 4 * (index % 2)
}
