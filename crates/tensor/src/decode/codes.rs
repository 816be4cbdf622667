//! Blocks taken apart: codes, and what makes weights of them; and the weight that a device multiplies with, in bf16.
//!
//! A backend that keeps codes in an order of its own stores one number of at most 8 bits an element, a scale (and a
//! minimum) for each group of 16 or 32, and for some formats one more of both for 256. Where a format is not listed here it has no such form,
//! and its weights are rounded when they are uploaded.
//!
//! ```text
//! linear   weight = scale (base + code) + offset, offset = -scale (base + zero)
//! minima   the same, offset = minimum - scale base, rounded once to float32
//! table    weight = scale table[code]
//! e4m3     weight = scale code, the code an 8-bit float
//! ```
//!
//! Each is rounded once to float32, then to bf16: nearest, ties to even. The form with a base, 2^bits, is that of one fused instruction: a code
//! in the mantissa of a power of two is a float without a conversion. Its offset is exact but for minima whose magnitude is far from their
//! scale's; so weights are what [`Format::decode`] makes, rounded to bf16.

use super::blocks_of_32::{UNEVEN, five_bits, four_bits, twice};
use super::blocks_of_256::{packed_scales_and_minima, scales_of_q3_k, six_bits, two_bits};
use super::lattice::scale_of_iq4_xs;
use super::small_floats::{TWICE_E2M1, e4m3_to_f32, half_of_e8m0};
use super::{f16_to_f32, part};
use crate::Format;

/// Elements that the longest block has.
const BLOCK_MAX: usize = 256;

/// How the weights of a format follow from codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Coding {
    /// Bits of a code: 2, 3, 4, 5, 6 or 8.
    pub bits: u32,
    /// Elements that share a scale: 16 or 32.
    pub group: usize,
    /// What a code stands for.
    pub values: Values,
    /// How scales are stored.
    pub scales: Scales,
}

/// What a code stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Values {
    /// The code less this.
    Linear(u8),
    /// The code, and a minimum is added.
    Minima,
    /// A place in this table.
    Table(&'static [i8; 16]),
    /// A float of 8 bits.
    E4M3,
}

/// How the scales of groups are stored, little endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scales {
    /// An f16 a group.
    Half,
    /// Two f16 a group: scale and minimum.
    Halves,
    /// A bf16 a group.
    Brain,
    /// A float32 a group.
    Single,
    /// A byte a group, 128 more than the factor of an f16 for 256.
    Signed,
    /// Two bytes a group, the factors of two f16 for 256: a scale, and a minimum to be taken away.
    Pairs,
}

impl Scales {
    /// Bytes of a group.
    pub const fn group_bytes(self) -> usize {
        match self {
            Scales::Signed => 1,
            Scales::Half | Scales::Brain | Scales::Pairs => 2,
            Scales::Halves | Scales::Single => 4,
        }
    }

    /// Bytes for 256 elements, beside those of their groups.
    pub const fn block_bytes(self) -> usize {
        match self {
            Scales::Half | Scales::Halves | Scales::Brain | Scales::Single => 0,
            Scales::Signed => 2,
            Scales::Pairs => 4,
        }
    }
}

/// What makes weights of the codes of a group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Factors {
    /// The scale.
    pub scale: f32,
    /// What is added, where there are minima.
    pub minimum: f32,
}

/// A row, or a part of one, taken apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// A code an element.
    pub codes: Vec<u8>,
    /// Scales of the groups, one after the other.
    pub scales: Vec<u8>,
    /// And of runs of 256.
    pub blocks: Vec<u8>,
}

impl Coding {
    /// How a format's weights follow from codes; `None` where they don't.
    pub const fn of(format: Format) -> Option<Self> {
        use Scales::{Brain, Half, Halves, Pairs, Signed, Single};
        use Values::{E4M3, Linear, Minima, Table};
        let (bits, group, values, scales) = match format {
            Format::Q8_0 => (8, 32, Linear(128), Half),
            Format::Q4_0 => (4, 32, Linear(8), Half),
            Format::Q4_1 => (4, 32, Minima, Halves),
            // Five bits alone, in two places, would take as much work as six.
            Format::Q5_0 => (6, 32, Linear(16), Half),
            Format::Q5_1 => (6, 32, Minima, Halves),
            Format::Q2K => (2, 16, Minima, Pairs),
            Format::Q3K => (3, 16, Linear(4), Signed),
            Format::Q4K => (4, 32, Minima, Pairs),
            Format::Q5K => (5, 32, Minima, Pairs),
            Format::Q6K => (6, 16, Linear(32), Signed),
            Format::Iq4Nl => (4, 32, Table(&UNEVEN), Half),
            Format::Iq4Xs => (4, 32, Table(&UNEVEN), Signed),
            Format::Mxfp4 => (4, 32, Table(&TWICE_E2M1), Brain),
            Format::F8E4M3 | Format::F8Scaled => (8, 32, E4M3, Single),
            Format::F32
            | Format::F16
            | Format::Bf16
            | Format::F64
            | Format::U8
            | Format::I8
            | Format::I16 => {
                return None;
            }
            Format::I32 | Format::I64 | Format::F8E5M2 | Format::F8E8M0 | Format::F4E2M1 => return None,
            Format::Q1_0 | Format::Q2_0 | Format::Q8_1 | Format::Q8K | Format::Iq1S | Format::Iq1M => {
                return None;
            }
            Format::Iq2Xxs | Format::Iq2Xs | Format::Iq2S | Format::Iq3Xxs | Format::Iq3S => return None,
            Format::Tq1_0 | Format::Tq2_0 | Format::Nvfp4 | Format::Q4Z | Format::Q8Z => return None,
            Format::Nvfp4Scaled => return None,
        };
        Some(Self { bits, group, values, scales })
    }

    /// The factors of a group, from the bytes of its scales and of its 256 elements.
    pub fn factors(&self, scales: &[u8], block: &[u8]) -> Factors {
        let half = |bytes: &[u8], place: usize| f16_to_f32(u16::from_le_bytes(*part(bytes, 2 * place)));
        let (scale, minimum) = match self.scales {
            Scales::Half => (half(scales, 0), 0.0),
            Scales::Halves => (half(scales, 0), half(scales, 1)),
            Scales::Brain => (f32::from_bits(u32::from(u16::from_le_bytes(*part(scales, 0))) << 16), 0.0),
            Scales::Single => (f32::from_le_bytes(*part(scales, 0)), 0.0),
            Scales::Signed => (half(block, 0) * (f32::from(scales[0]) - 128.0), 0.0),
            Scales::Pairs => {
                (half(block, 0) * f32::from(scales[0]), -(half(block, 1) * f32::from(scales[1])))
            }
        };
        Factors { scale, minimum }
    }

    /// Codes of 8 bits are the second byte of a float's mantissa, others its upper bits.
    fn base(&self) -> f32 {
        if self.bits == 8 { 32_768.0 } else { (1u32 << self.bits) as f32 }
    }

    /// The weight of a code in float32.
    pub fn value(&self, code: u8, Factors { scale, minimum }: Factors) -> f32 {
        match self.values {
            Values::Linear(zero) => {
                let offset = -(scale * (self.base() + f32::from(zero)));
                scale.mul_add(self.base() + f32::from(code), offset)
            }
            Values::Minima => {
                let offset = scale.mul_add(-self.base(), minimum);
                scale.mul_add(self.base() + f32::from(code), offset)
            }
            Values::Table(table) => scale * f32::from(table[usize::from(code & 15)]),
            Values::E4M3 => scale * e4m3_to_f32(code),
        }
    }
}

/// Takes a whole number of blocks of a format with codes apart, behind what `parts` has; its element count is filled up with zeros
/// to a multiple of 32, as groups need.
pub fn split(format: Format, bytes: &[u8], parts: &mut Parts) {
    let mut codes = [0; BLOCK_MAX];
    for block in bytes.chunks_exact(format.block_bytes()) {
        let codes = &mut codes[..format.block_elements()];
        if format == Format::F8E4M3 {
            codes.copy_from_slice(block);
        } else if format.block_elements() == 32 {
            split_32(format, block, codes, &mut parts.scales);
        } else {
            split_256(format, block, codes, parts);
        }
        parts.codes.extend_from_slice(codes);
    }
    if format == Format::F8E4M3 {
        parts.codes.resize(parts.codes.len().next_multiple_of(32), 0);
        let groups = parts.codes.len() / 32;
        parts.scales = 1.0f32.to_le_bytes().repeat(groups);
    }
}

fn split_32(format: Format, block: &[u8], codes: &mut [u8], scales: &mut Vec<u8>) {
    let is_one_of = |formats: &[Format]| formats.contains(&format);
    let scale_bytes = if is_one_of(&[Format::Q4_1, Format::Q5_1, Format::F8Scaled]) { 4 } else { 2 };
    let packed = if format == Format::Mxfp4 {
        // Powers of two, which bf16 has all of.
        scales.extend(((half_of_e8m0(block[0]).to_bits() >> 16) as u16).to_le_bytes());
        &block[1..]
    } else {
        scales.extend_from_slice(&block[..scale_bytes]);
        &block[scale_bytes..]
    };
    if format == Format::Q8_0 {
        codes.iter_mut().zip(packed).for_each(|(code, byte)| *code = byte ^ 0x80);
    } else if format == Format::F8Scaled {
        codes.copy_from_slice(packed);
    } else if is_one_of(&[Format::Q5_0, Format::Q5_1]) {
        let found = five_bits(part(packed, 0), part(packed, 4));
        codes.iter_mut().zip(found).for_each(|(code, found)| *code = found as u8);
    } else {
        let packed = twice(part(packed, 0));
        codes.iter_mut().enumerate().for_each(|(i, code)| *code = four_bits(&packed, i));
    }
}

fn split_256(format: Format, block: &[u8], codes: &mut [u8], parts: &mut Parts) {
    let signed = |scale: i32| (scale + 128) as u8;
    if format == Format::Q2K {
        parts.scales.extend(block[..16].iter().flat_map(|byte| [byte & 15, byte >> 4]));
        parts.blocks.extend_from_slice(&block[80..84]);
        let found = (0..16).flat_map(|sub_block| two_bits(part(block, 16), sub_block));
        codes.iter_mut().zip(found).for_each(|(code, found)| *code = found);
    } else if format == Format::Q3K {
        parts.scales.extend(scales_of_q3_k(part(block, 96)).map(|scale| signed(scale.into())));
        parts.blocks.extend_from_slice(&block[108..110]);
        let low = (0..16).flat_map(|sub_block| two_bits(part(block, 32), sub_block));
        for (i, (code, low)) in codes.iter_mut().zip(low).enumerate() {
            *code = low | (block[i % 32] >> (i / 32) & 1) << 2;
        }
    } else if format == Format::Q4K {
        split_pairs(block, (&block[16..], None), codes, parts);
    } else if format == Format::Q5K {
        split_pairs(block, (&block[48..], Some(&block[16..48])), codes, parts);
    } else if format == Format::Q6K {
        parts.scales.extend(block[192..208].iter().map(|scale| signed((*scale as i8).into())));
        parts.blocks.extend_from_slice(&block[208..210]);
        for (half, codes) in codes.chunks_exact_mut(128).enumerate() {
            codes.copy_from_slice(&six_bits(part(block, 64 * half), part(block, 128 + 32 * half)));
        }
    } else {
        parts.scales.extend((0..8).map(|group| signed(scale_of_iq4_xs(block, group))));
        parts.blocks.extend_from_slice(&block[..2]);
        for (group, codes) in codes.chunks_exact_mut(32).enumerate() {
            let packed = twice(part(block, 8 + 16 * group));
            codes.iter_mut().enumerate().for_each(|(i, code)| *code = four_bits(&packed, i));
        }
    }
}

/// A block of q4_k or q5_k: halves of bytes, and the fifth bits.
fn split_pairs(block: &[u8], (packed, fifth): (&[u8], Option<&[u8]>), codes: &mut [u8], parts: &mut Parts) {
    let (scales, minima) = packed_scales_and_minima(block);
    parts.scales.extend(scales.into_iter().zip(minima).flat_map(|(scale, minimum)| [scale, minimum]));
    parts.blocks.extend_from_slice(&block[..4]);
    for (i, code) in codes.iter_mut().enumerate() {
        let (sub_block, place) = (i / 32, i % 32);
        let low = packed[sub_block / 2 * 32 + place] >> (sub_block % 2 * 4) & 15;
        *code = low | fifth.map_or(0, |fifth| (fifth[place] >> sub_block & 1) << 4);
    }
}

/// The bf16 number nearest to `x`, ties to even.
pub fn bf16_bits(x: f32) -> u16 {
    let bits = x.to_bits();
    if x.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

impl Format {
    /// Decodes a whole number of blocks to the weights that a device multiplies with, each a number of bf16.
    pub fn decode_as_bf16(self, bytes: &[u8], out: &mut [f32]) {
        match Coding::of(self) {
            Some(coding) => {
                let mut parts = Parts::default();
                split(self, bytes, &mut parts);
                for (place, (out, code)) in out.iter_mut().zip(&parts.codes).enumerate() {
                    let scales = &parts.scales[place / coding.group * coding.scales.group_bytes()..];
                    let block = &parts.blocks[place / BLOCK_MAX * coding.scales.block_bytes()..];
                    *out = coding.value(*code, coding.factors(scales, block));
                }
            }
            None => self.decode(bytes, out),
        }
        out.iter_mut().for_each(|x| *x = f32::from_bits(u32::from(bf16_bits(*x)) << 16));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::random_blocks;

    /// Blocks of random bytes, of formats with codes such as files have.
    fn blocks(format: Format, count: usize) -> Vec<u8> {
        random_blocks(format, count, 0.02, 1).unwrap_or_else(|| {
            let bytes = 0..count * format.block_bytes();
            bytes.map(|place| (place as u32).wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect()
        })
    }

    #[test]
    fn weights_are_those_of_the_decoder_rounded() {
        let (mut coded, mut others) = (0, 0);
        for format in Format::ALL {
            if format.is_integer() {
                continue;
            }
            let bytes = blocks(format, 256);
            let count = 256 * format.block_elements();
            let [mut expected, mut found] = [vec![0.0; count], vec![0.0; count]];
            format.decode(&bytes, &mut expected);
            format.decode_as_bf16(&bytes, &mut found);
            for (place, (expected, found)) in expected.iter().zip(&found).enumerate() {
                let rounded = f32::from_bits(u32::from(bf16_bits(*expected)) << 16);
                let same = rounded.to_bits() == found.to_bits() || expected.is_nan() && found.is_nan();
                assert!(same || rounded == *found, "{format}, {place}: {found} for {expected}");
            }
            if Coding::of(format).is_some() { coded += 1 } else { others += 1 }
        }
        assert!(coded == 15 && others > 10, "{coded} formats have codes, {others} have none");
    }

    #[test]
    fn rounding_is_that_of_the_half_crate() {
        let mut state = 1u32;
        for _ in 0..100_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let x = f32::from_bits(state);
            assert_eq!(bf16_bits(x), half::bf16::from_f32(x).to_bits(), "{x}");
        }
    }
}
