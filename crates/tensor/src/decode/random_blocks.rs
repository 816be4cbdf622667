//! Blocks of random codes, for measurements and tests that no file is there for.

use super::codes::Coding;
use crate::Format;

/// The exponent that scales have while the spread of the weights is found out.
const TRIED: i32 = -8;
/// Exponents of f16 that are normal numbers.
const EXPONENTS: std::ops::RangeInclusive<i32> = -14..=15;

/// So many blocks of a format with codes, their weights about 0 and, on the average of their squares, within a factor of two
/// of `deviation` squared; `None` for a format without codes. The same for the same seed.
pub fn random_blocks(format: Format, count: usize, deviation: f32, seed: u64) -> Option<Vec<u8>> {
    Coding::of(format)?;
    let mut state = seed ^ 0x9e37_79b9_7f4a_7c15;
    let mut byte = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    let mut bytes: Vec<u8> = (0..count * format.block_bytes()).map(|_| byte()).collect();
    let set = |exponent: i32, bytes: &mut [u8]| {
        bytes.chunks_exact_mut(format.block_bytes()).for_each(|block| set_scales(format, block, exponent));
    };
    set(TRIED, &mut bytes);
    let mut weights = vec![0.0; count * format.block_elements()];
    format.decode(&bytes, &mut weights);
    let squares: f64 = weights.iter().map(|x| f64::from(*x).powi(2)).sum();
    let found = (squares / weights.len().max(1) as f64).sqrt().max(f64::MIN_POSITIVE);
    let steps = (f64::from(deviation) / found).log2().round() as i32;
    set((TRIED + steps).clamp(*EXPONENTS.start(), *EXPONENTS.end() - 5), &mut bytes);
    Some(bytes)
}

/// Gives a block the scale 2^exponent, and where it has minima such as put the middle of its codes at 0.
fn set_scales(format: Format, block: &mut [u8], exponent: i32) {
    let half = |exponent: i32| ((((exponent + 15) as u16) << 10) & 0x7c00).to_le_bytes();
    let is_one_of = |formats: &[Format]| formats.contains(&format);
    let places = [(Format::Q2K, 80), (Format::Q3K, 108), (Format::Q6K, 208)];
    let scale_at = places.into_iter().find(|(other, _)| *other == format).map_or(0, |(_, at)| at);
    if format == Format::F8E4M3 {
        // A sign, and a magnitude below 2 that is a number.
        block[0] &= 0xbf;
    } else if format == Format::F8Scaled {
        block[..4].copy_from_slice(&2.0f32.powi(exponent).to_le_bytes());
        block[4..].iter_mut().for_each(|code| *code &= 0xbf);
    } else if format == Format::Mxfp4 {
        block[0] = (exponent + 127) as u8;
    } else {
        block[scale_at..scale_at + 2].copy_from_slice(&half(exponent));
    }
    let bits = if is_one_of(&[Format::Q4_1, Format::Q4K]) { 4 } else { 5 };
    if is_one_of(&[Format::Q4_1, Format::Q5_1]) {
        // The minimum is added.
        block[2..4].copy_from_slice(&half(exponent + bits - 1));
        block[3] |= 0x80;
    } else if format == Format::Q2K {
        // One and a half times as much.
        block[82..84].copy_from_slice(&half(exponent));
        block[83] |= 0x02;
        block[..16].iter_mut().for_each(|scales| *scales = *scales & 15 | *scales << 4);
    } else if format == Format::Iq4Xs {
        // Of the scales of 6 bits, which count from -32 on, those from 0 to 3: an f16 brings them down to any magnitude.
        block[2..4].fill(0xaa);
        block[4..8].iter_mut().for_each(|scales| *scales &= 0x33);
    } else if format == Format::Q6K {
        // The same of the scales of 8 bits.
        block[192..208].iter_mut().for_each(|scale| *scale = ((*scale << 4) as i8 >> 4) as u8);
    } else if is_one_of(&[Format::Q4K, Format::Q5K]) {
        block[2..4].copy_from_slice(&half(exponent + bits - 1));
        block.copy_within(4..8, 8);
        block[12..16].iter_mut().for_each(|scales| *scales = *scales & 15 | *scales << 4);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_of_the_magnitude_that_was_asked_for() {
        for format in Format::ALL {
            let Some(bytes) = random_blocks(format, 500, 0.02, 7) else { continue };
            let mut weights = vec![0.0; 500 * format.block_elements()];
            format.decode(&bytes, &mut weights);
            let count = weights.len() as f32;
            let deviation = (weights.iter().map(|x| x * x).sum::<f32>() / count).sqrt();
            let mean = weights.iter().sum::<f32>() / count;
            // Floats of 8 bits have no scale.
            let fits = format == Format::F8E4M3 || (0.014..0.029).contains(&deviation);
            assert!(fits && mean.abs() < 0.2 * deviation, "{format}: {deviation} about {mean}");
        }
    }
}
