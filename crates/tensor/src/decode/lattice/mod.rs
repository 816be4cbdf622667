//! The formats whose codes are places in a table: points of 8 or 4 numbers (iq1, iq2, iq3), or of one (iq4_xs).
//!
//! ```text
//! iq2_xxs  d:f16  8 x (4 places of 8 bits; word: 4 x 7 bits of signs, 4 bits of scale)
//! iq2_xs   d:f16  32 x (place of 9 bits, 7 bits of signs)      scales: 8 bytes
//! iq2_s    d:f16  places: 32 bytes  signs: 32 bytes  high: 8 bytes      scales: 8 bytes
//! iq3_xxs  d:f16  places: 64 bytes  8 x word: 4 x 7 bits of signs, 4 bits of scale
//! iq3_s    d:f16  places: 64 bytes  high: 8 bytes  signs: 32 bytes      scales: 4 bytes
//! iq1_s    d:f16  places: 32 bytes  8 x u16: 4 x 3 high bits of places, 3 bits of scale, sign of the shift
//! iq1_m    places: 32 bytes  high: 16 bytes, half a byte a place: 3 high bits, sign of the shift
//!                 scales: 4 x u16: 4 scales of 3 bits, and 4 bits of d
//! iq4_xs   d:f16  high: u16  scales: 4 bytes   8 x 16 bytes, as in iq4_nl
//! ```
//!
//! `high` holds the upper bits of places or scales, lowest bits first. A scale of 4 bits counts for 16 or 32 numbers,
//! the low half of a byte first. Where a point has 7 bits of signs, the eighth makes the number of minus signs even.
//! Source: the GGUF quantisation formats, as the Python package `gguf` decodes them; each product is taken in its
//! order.

mod grids;

use super::blocks_of_32::uneven_codes;
use super::{f16_to_f32, part, scale_at};

block_format!(Iq1S, iq1_s);
block_format!(Iq1M, iq1_m);
block_format!(Iq2Xxs, iq2_xxs);
block_format!(Iq2Xs, iq2_xs);
block_format!(Iq2S, iq2_s);
block_format!(Iq3Xxs, iq3_xxs);
block_format!(Iq3S, iq3_s);
block_format!(Iq4Xs, iq4_xs);

#[inline(always)]
fn iq2_xxs(block: &[u8; 66], out: &mut [f32; 256]) {
    let scale = scale_at(block, 0);
    for (group, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let places: &[u8; 4] = part(block, 2 + 8 * group);
        let word = word_at(block, 6 + 8 * group);
        let scale = scale * (0.5 + (word >> 28) as f32) * 0.25;
        for (i, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            signed(scale, &grids::IQ2_XXS[usize::from(places[i])], even_signs(word >> (7 * i)), out);
        }
    }
}

#[inline(always)]
fn iq2_xs(block: &[u8; 74], out: &mut [f32; 256]) {
    let scale = scale_at(block, 0);
    for (i, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let code = u16::from_le_bytes(*part(block, 2 + 2 * i));
        let scale = scale * (0.5 + f32::from(half_byte(&block[66..], i / 2))) * 0.25;
        signed(scale, &grids::IQ2_XS[usize::from(code & 511)], even_signs((code >> 9).into()), out);
    }
}

#[inline(always)]
fn iq2_s(block: &[u8; 82], out: &mut [f32; 256]) {
    let scale = scale_at(block, 0);
    for (i, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let high = usize::from(block[66 + i / 4] >> (2 * (i % 4))) & 3;
        let scale = scale * (0.5 + f32::from(half_byte(&block[74..], i / 2))) * 0.25;
        signed(scale, &grids::IQ2_S[usize::from(block[2 + i]) | high << 8], block[34 + i], out);
    }
}

#[inline(always)]
fn iq3_xxs(block: &[u8; 98], out: &mut [f32; 256]) {
    let scale = scale_at(block, 0);
    for (i, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let word = word_at(block, 66 + 4 * (i / 4));
        let scale = scale * (0.5 + (word >> 28) as f32) * 0.5;
        let place = |half: usize| usize::from(block[2 + 2 * i + half]);
        let point = both(&grids::IQ3_XXS[place(0)], &grids::IQ3_XXS[place(1)]);
        signed(scale, &point, even_signs(word >> (7 * (i % 4))), out);
    }
}

#[inline(always)]
fn iq3_s(block: &[u8; 110], out: &mut [f32; 256]) {
    let scale = scale_at(block, 0);
    for (i, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let scale = scale * f32::from(1 + 2 * half_byte(&block[106..], i / 4));
        let high = block[66 + i / 4] >> (2 * (i % 4));
        let place = |half: usize| usize::from(block[2 + 2 * i + half]) | usize::from(high >> half & 1) << 8;
        let point = both(&grids::IQ3_S[place(0)], &grids::IQ3_S[place(1)]);
        signed(scale, &point, block[74 + i], out);
    }
}

#[inline(always)]
fn iq1_s(block: &[u8; 50], out: &mut [f32; 256]) {
    let scale = scale_at(block, 0);
    for (i, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let bits = u16::from_le_bytes(*part(block, 34 + 2 * (i / 4)));
        let high = usize::from(bits >> (3 * (i % 4)) & 7);
        let scale = scale * f32::from(2 * (bits >> 12 & 7) + 1);
        shifted(scale, &grids::IQ1[usize::from(block[2 + i]) | high << 8], bits & 0x8000 != 0, out);
    }
}

#[inline(always)]
fn iq1_m(block: &[u8; 56], out: &mut [f32; 256]) {
    let bits: [u16; 4] = std::array::from_fn(|i| u16::from_le_bytes(*part(block, 48 + 2 * i)));
    let scale = f16_to_f32(bits[0] >> 12 | bits[1] >> 12 << 4 | bits[2] >> 12 << 8 | bits[3] >> 12 << 12);
    for (i, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let high = half_byte(&block[32..], i);
        let scale = scale * f32::from(2 * (bits[i / 8] >> (3 * (i / 2 % 4)) & 7) + 1);
        let place = usize::from(block[i]) | usize::from(high & 7) << 8;
        shifted(scale, &grids::IQ1[place], high & 8 != 0, out);
    }
}

#[inline(always)]
fn iq4_xs(block: &[u8; 136], out: &mut [f32; 256]) {
    let scale = scale_at(block, 0);
    for (group, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        uneven_codes(scale * scale_of_iq4_xs(block, group) as f32, part(block, 8 + 16 * group), out);
    }
}

/// The scale of a sub-block of iq4_xs, before the block's own.
#[inline(always)]
pub(super) fn scale_of_iq4_xs(block: &[u8], group: usize) -> i32 {
    let high = u16::from_le_bytes(*part(block, 2));
    let low = u16::from(half_byte(&block[4..], group));
    i32::from(low | (high >> (2 * group) & 3) << 4) - 32
}

/// `scale` times the numbers of `point`, negated where the bit of their place in `signs` is set.
#[inline(always)]
fn signed(scale: f32, point: &[i8; 8], signs: u8, out: &mut [f32; 8]) {
    for i in 0..8 {
        let value = scale * f32::from(point[i]);
        out[i] = if signs >> i & 1 == 0 { value } else { -value };
    }
}

/// `scale` times the numbers of `point` more or less an eighth.
#[inline(always)]
fn shifted(scale: f32, point: &[i8; 8], less: bool, out: &mut [f32; 8]) {
    let shift = if less { -0.125 } else { 0.125 };
    for i in 0..8 {
        out[i] = scale * (f32::from(point[i]) + shift);
    }
}

/// The lowest 7 bits of `signs` and an eighth that makes the number of set bits even.
#[inline(always)]
fn even_signs(signs: u32) -> u8 {
    let seven = (signs & 127) as u8;
    seven | (seven.count_ones() as u8 & 1) << 7
}

#[inline(always)]
fn both(first: &[i8; 4], second: &[i8; 4]) -> [i8; 8] {
    std::array::from_fn(|i| if i < 4 { first[i] } else { second[i - 4] })
}

/// Half byte `index` of `bytes`, the low half of each byte first.
#[inline(always)]
fn half_byte(bytes: &[u8], index: usize) -> u8 {
    bytes[index / 2] >> (4 * (index % 2)) & 15
}

#[inline(always)]
fn word_at(block: &[u8], start: usize) -> u32 {
    u32::from_le_bytes(*part(block, start))
}
