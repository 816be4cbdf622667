//! The order of codes in the device's memory, as `kernels/codes.cuh` says it: units of 8 outputs and 64 or 256 columns, in which a lane
//! finds what it needs of mma.sync's fragments.
//!
//! What codes mean is the tensor crate's; here they are put into place, and for the simulated device read again.

use gannet_tensor::Format;
use gannet_tensor::decode::codes::{Coding, Factors, Parts, Values, bf16_bits, split};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Outputs of a unit, and of the pairs that matrices are padded to.
pub(crate) const UNIT_OUTPUTS: usize = 8;
pub(crate) const PAIR_OUTPUTS: usize = 2 * UNIT_OUTPUTS;
/// Columns of a slab.
const SLAB: usize = 64;
/// Columns of a step, and codes of a lane in it.
const STEP: usize = 16;
const LANE_CODES: usize = 4;
const LANES: usize = 32;
/// What a float of 8 bits holds that is no number, beside its sign.
const NO_NUMBER: u8 = 0x7f;

/// How a matrix of a format lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Units {
    format: Format,
    coding: Coding,
}

/// Where the code of an element lies in its unit: bits of some bytes, and which of the code's.
struct Piece {
    byte: usize,
    bit: u32,
    /// The lowest bit of the code, and how many.
    first: u32,
    count: u32,
}

impl Units {
    /// `None` where the format has no codes.
    pub(crate) fn of(format: Format) -> Option<Self> {
        Some(Self { format, coding: Coding::of(format)? })
    }

    /// The format's name, as the kernels have it.
    pub(crate) fn name(&self) -> &'static str {
        self.format.name()
    }

    /// The one of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::of(Format::ALL.into_iter().find(|format| format.name() == name)?)
    }

    /// Columns of a unit.
    pub(crate) fn run(&self) -> usize {
        if self.coding.scales.block_bytes() > 0 { 4 * SLAB } else { SLAB }
    }

    fn slabs(&self) -> usize {
        self.run() / SLAB
    }

    fn has_nibbles(&self) -> bool {
        matches!(self.coding.bits, 4..=6)
    }

    fn has_pairs(&self) -> bool {
        matches!(self.coding.bits, 2 | 3 | 6)
    }

    fn pairs_at(&self) -> usize {
        if self.has_nibbles() { self.slabs() * 256 } else { 0 }
    }

    fn singles_at(&self) -> usize {
        self.pairs_at() + if self.has_pairs() { self.slabs() * 128 } else { 0 }
    }

    fn scales_at(&self) -> usize {
        let codes = match self.coding.bits {
            3 | 5 => self.slabs() * 64,
            8 => self.slabs() * 512,
            _ => 0,
        };
        self.singles_at() + codes
    }

    /// Bytes of the scales of an output and slab.
    fn slab_scales(&self) -> usize {
        SLAB / self.coding.group * self.coding.scales.group_bytes()
    }

    fn blocks_at(&self) -> usize {
        self.scales_at() + self.slabs() * UNIT_OUTPUTS * self.slab_scales()
    }

    /// Bytes of a unit.
    pub(crate) fn bytes(&self) -> usize {
        self.blocks_at() + UNIT_OUTPUTS * self.coding.scales.block_bytes()
    }

    /// Units across so many columns.
    pub(crate) fn runs(&self, columns: usize) -> usize {
        columns.div_ceil(self.run())
    }

    /// Bytes of a matrix.
    pub(crate) fn matrix_bytes(&self, [rows, columns]: [usize; 2]) -> usize {
        rows.next_multiple_of(PAIR_OUTPUTS) / UNIT_OUTPUTS * self.runs(columns) * self.bytes()
    }

    /// A matrix, or matrices of experts one after the other, in units as by [`Self::pack`].
    pub(crate) fn pack_all(&self, bytes: &[u8], shape: &[usize]) -> Option<Vec<u8>> {
        let (columns, rows) = (*shape.last()?, shape[shape.len() - 2]);
        let experts = shape[..shape.len() - 2].iter().product::<usize>();
        if rows.is_multiple_of(PAIR_OUTPUTS) {
            return self.pack(bytes, [experts * rows, columns]);
        }
        let matrices = bytes.chunks((bytes.len() / experts.max(1)).max(1));
        let packed = matrices.map(|matrix| self.pack(matrix, [rows, columns]));
        Some(packed.collect::<Option<Vec<_>>>()?.concat())
    }

    /// A matrix of the checkpoint's bytes in units; `None` where it holds a number that is none, which codes can't say.
    pub(crate) fn pack(&self, bytes: &[u8], [rows, columns]: [usize; 2]) -> Option<Vec<u8>> {
        let are_numbers = AtomicBool::new(true);
        let pair_bytes = 2 * self.runs(columns) * self.bytes();
        let row_bytes = bytes.len() / rows.max(1);
        let mut units = vec![0; self.matrix_bytes([rows, columns])];
        let pairs: Vec<(&mut [u8], &[u8])> =
            units.chunks_mut(pair_bytes).zip(bytes.chunks(row_bytes * PAIR_OUTPUTS)).collect();
        let workers = thread::available_parallelism().map_or(1, usize::from);
        let mut shares: Vec<Vec<(&mut [u8], &[u8])>> = Vec::new();
        shares.resize_with(workers, Vec::new);
        pairs.into_iter().enumerate().for_each(|(number, pair)| shares[number % workers].push(pair));
        let places = self.places();
        let pack = |(units, rows): (&mut [u8], &[u8])| {
            if !self.pack_pair(&places, units, (rows, row_bytes)) {
                are_numbers.store(false, Ordering::Relaxed);
            }
        };
        thread::scope(|scope| {
            for share in shares {
                scope.spawn(|| share.into_iter().for_each(pack));
            }
        });
        are_numbers.load(Ordering::Relaxed).then_some(units)
    }

    /// Packs the rows of two neighbouring rows of units; whether all are numbers.
    fn pack_pair(
        &self,
        places: &[[Option<Piece>; 2]],
        units: &mut [u8],
        (rows, row_bytes): (&[u8], usize),
    ) -> bool {
        let mut parts = Parts::default();
        let is_no_number = |code: &u8| self.coding.values == Values::E4M3 && code & NO_NUMBER == NO_NUMBER;
        for (row, bytes) in rows.chunks(row_bytes).enumerate() {
            parts.codes.clear();
            parts.scales.clear();
            parts.blocks.clear();
            split(self.format, bytes, &mut parts);
            if parts.codes.iter().any(is_no_number) {
                return false;
            }
            let output = row % UNIT_OUTPUTS;
            let own = units.chunks_mut(self.bytes()).skip(row / UNIT_OUTPUTS).step_by(2);
            for (run, unit) in own.enumerate() {
                let places = &places[output * self.run()..][..self.run()];
                self.place(unit, places, &parts, (output, run));
            }
        }
        true
    }

    fn place(
        &self,
        unit: &mut [u8],
        places: &[[Option<Piece>; 2]],
        parts: &Parts,
        (output, run): (usize, usize),
    ) {
        let first = run * self.run();
        let count = self.run().min(parts.codes.len() - first);
        for (code, pieces) in parts.codes[first..first + count].iter().zip(places) {
            for piece in pieces.iter().flatten() {
                let bits = (code >> piece.first) & ((1u16 << piece.count) - 1) as u8;
                // Rotated words put a nibble across two bytes, the second at most the word's first.
                let wide = u16::from(bits) << piece.bit;
                unit[piece.byte] |= wide as u8;
                if wide > 0xff {
                    unit[next_in_word(piece.byte)] |= (wide >> 8) as u8;
                }
            }
        }
        let group_bytes = self.coding.scales.group_bytes();
        let scales = &parts.scales[first / self.coding.group * group_bytes..]
            [..count / self.coding.group * group_bytes];
        for (slab, scales) in scales.chunks(self.slab_scales()).enumerate() {
            let at = self.scales_at() + (slab * UNIT_OUTPUTS + output) * self.slab_scales();
            unit[at..at + scales.len()].copy_from_slice(scales);
        }
        let block_bytes = self.coding.scales.block_bytes();
        let at = self.blocks_at() + output * block_bytes;
        unit[at..at + block_bytes].copy_from_slice(&parts.blocks[run * block_bytes..][..block_bytes]);
    }

    /// Where the bits of the codes of a unit lie, by output and column.
    fn places(&self) -> Vec<[Option<Piece>; 2]> {
        let all = (0..UNIT_OUTPUTS).flat_map(|output| (0..self.run()).map(move |column| (output, column)));
        all.map(|(output, column)| self.pieces(output, column)).collect()
    }

    /// Where the bits of an element's code lie.
    fn pieces(&self, output: usize, column: usize) -> [Option<Piece>; 2] {
        let (slab, step, within) = (column / SLAB, column % SLAB / STEP, column % STEP);
        let lane = output * LANE_CODES + within % 8 / 2;
        let code = (within / 8 * 2 + within % 2) as u32;
        let step32 = step as u32;
        let word =
            |start: usize, index: usize, bit: u32| (start + index * 4 + (bit / 8 % 4) as usize, bit % 8);
        let piece = |(byte, bit): (usize, u32), first, count| Some(Piece { byte, bit, first, count });
        let bits = self.coding.bits;
        if bits == 8 {
            return [piece(word(0, (slab * LANES + lane) * LANE_CODES + step, 8 * code), 0, 8), None];
        }
        let nibble_bit = match self.coding.values {
            Values::Table(_) => 16 * (step32 % 2) + 4 * code,
            Values::Linear(_) | Values::Minima | Values::E4M3 => {
                (8 * code + 4 * (step32 % 2) + 7 - bits) % 32
            }
        };
        let nibble = word(0, (slab * LANES + lane) * 2 + step / 2, nibble_bit);
        let pair = word(self.pairs_at(), slab * LANES + lane, 8 * code + 2 * step32);
        let single_bit = 8 * code + 4 * (slab as u32 % 2) + step32;
        let single = word(self.singles_at(), slab / 2 * LANES + lane, single_bit);
        match bits {
            2 => [piece(pair, 0, 2), None],
            3 => [piece(pair, 0, 2), piece(single, 2, 1)],
            4 => [piece(nibble, 0, 4), None],
            5 => [piece(nibble, 0, 4), piece(single, 4, 1)],
            _ => [piece(nibble, 0, 4), piece(pair, 4, 2)],
        }
    }

    /// The weights of a matrix in units, as numbers of bf16: what the kernels multiply with.
    pub(crate) fn read(&self, units: &[u8], [rows, columns]: [usize; 2]) -> Vec<f32> {
        let (mut weights, places) = (Vec::with_capacity(rows * columns), self.places());
        for row in 0..rows {
            let (eight, output) = (row / UNIT_OUTPUTS, row % UNIT_OUTPUTS);
            for run in 0..self.runs(columns) {
                let place = (eight / 2 * self.runs(columns) + run) * 2 + eight % 2;
                let unit = &units[place * self.bytes()..][..self.bytes()];
                let places = &places[output * self.run()..][..self.run().min(columns - run * self.run())];
                for (group, places) in places.chunks(self.coding.group).enumerate() {
                    let factors = self.factors(unit, output, group);
                    let value = |pieces| self.coding.value(code(unit, pieces), factors);
                    let rounded = places.iter().map(value).map(bf16_bits);
                    weights.extend(rounded.map(|bits| f32::from_bits(u32::from(bits) << 16)));
                }
            }
        }
        weights
    }

    /// What makes weights of a group of an output's codes.
    fn factors(&self, unit: &[u8], output: usize, group: usize) -> Factors {
        let groups = SLAB / self.coding.group;
        let at = self.scales_at() + (group / groups * UNIT_OUTPUTS + output) * self.slab_scales();
        let scales = &unit[at + group % groups * self.coding.scales.group_bytes()..];
        let block = &unit[self.blocks_at() + output * self.coding.scales.block_bytes()..];
        self.coding.factors(scales, block)
    }
}

/// The code of an element of a unit.
fn code(unit: &[u8], pieces: &[Option<Piece>; 2]) -> u8 {
    let mut code = 0;
    for piece in pieces.iter().flatten() {
        let wide = u16::from_le_bytes([unit[piece.byte], unit[next_in_word(piece.byte)]]);
        code |= (((wide >> piece.bit) & ((1 << piece.count) - 1)) as u8) << piece.first;
    }
    code
}

/// The byte after this one, in a word of four that goes round.
fn next_in_word(byte: usize) -> usize {
    byte / 4 * 4 + (byte + 1) % 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_in_units_is_what_the_reference_multiplies_with() {
        for format in Format::ALL {
            let Some(units) = Units::of(format) else { continue };
            assert_eq!(units.bytes() % 16, 0, "{format}: copies are of 16 bytes");
            for [rows, columns] in [[3, 256], [16, 768], [37, 512]] {
                let columns = if format.block_elements() == 256 { columns } else { columns - 32 };
                let size = rows * format.row_bytes(columns).expect("whole blocks");
                let mut state = 1u32;
                let mut bytes: Vec<u8> = Vec::new();
                while bytes.len() < size {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    // Halves and floats of 8 bits stay numbers.
                    bytes.push((state >> 24) as u8 & 0xbb);
                }
                let mut expected = vec![0.0; rows * columns];
                format.decode_as_bf16(&bytes, &mut expected);
                let packed = units.pack(&bytes, [rows, columns]).expect("all are numbers");
                assert_eq!(packed.len(), units.matrix_bytes([rows, columns]));
                let found = units.read(&packed, [rows, columns]);
                let is_same = |(found, expected): (&f32, &f32)| found.to_bits() == expected.to_bits();
                let place = found.iter().zip(&expected).position(|pair| !is_same(pair));
                assert_eq!(
                    place.map(|place| (found[place], expected[place])),
                    None,
                    "{format} {rows} {columns}"
                );
            }
        }
    }
}
