//! Blocks of random codes in every format that weights come in, without an encoder: for measurements, and tests that no file is
//! there for.
//!
//! Nearly every pattern of bits is a valid block. What is random bits stays so; the fields that set a block's scale and
//! minimum are written so that the values have a wanted deviation and no mean. Which scale gives which deviation is
//! measured with the format's own decoder. A format without a scale gets codes of that deviation instead.

use super::half_precision::f16_bits;
use crate::Format;

/// Blocks measured for a format's deviation at a scale of 1.
const MEASURED: usize = 1024;

/// Scales that a block chooses from, and codes where there is no scale.
const SCALES: usize = 16;
const CODES: usize = 256;

/// Where the scale of a block is, and of what kind.
#[derive(Clone, Copy)]
enum Scale {
    /// An f16 at this byte, whose sign takes the mean away.
    Signed(usize),
    /// An f16 at this byte.
    Positive(usize),
    /// An f16 at this byte; behind it an f16 that is `factor` times as large.
    WithMinimum(usize, f32),
    /// Four bits in the upper half of every second of the last eight bytes.
    Scattered,
    /// A byte that is an exponent.
    PowerOfTwo,
    /// Four bytes that are floats of 8 bits.
    SmallFloats,
    /// Four bytes that are a float of 32 bits.
    Single,
    /// No scale: a code is one of 256 that have the deviation themselves.
    Codes,
}

/// How random bits become a block.
#[derive(Clone, Copy)]
struct Recipe {
    scale: Scale,
    /// Makes what isn't the scale valid.
    tidy: fn(&mut [u8]),
}

fn recipe(format: Format) -> Option<Recipe> {
    let plain = |scale| Some(Recipe { scale, tidy: |_| {} });
    match format {
        Format::Q4_0 | Format::Q5_0 | Format::Iq4Nl | Format::Q1_0 | Format::Q2_0 => plain(Scale::Signed(0)),
        Format::Q8_0 => Some(Recipe { scale: Scale::Signed(0), tidy: no_least_code }),
        Format::Q4_1 => plain(Scale::WithMinimum(0, -7.5)),
        Format::Q5_1 => plain(Scale::WithMinimum(0, -15.5)),
        Format::Q2K => Some(Recipe { scale: Scale::WithMinimum(80, 1.5), tidy: minima_like_scales_of_16 }),
        Format::Q3K => plain(Scale::Signed(108)),
        Format::Q4K => Some(Recipe { scale: Scale::WithMinimum(0, 7.5), tidy: minima_like_scales }),
        Format::Q5K => Some(Recipe { scale: Scale::WithMinimum(0, 15.5), tidy: minima_like_scales }),
        Format::Q6K => Some(Recipe { scale: Scale::Signed(208), tidy: large_scales }),
        Format::Iq1S
        | Format::Iq2Xxs
        | Format::Iq2Xs
        | Format::Iq2S
        | Format::Iq3Xxs
        | Format::Iq3S
        | Format::Iq4Xs => plain(Scale::Positive(0)),
        Format::Iq1M => plain(Scale::Scattered),
        Format::Tq1_0 => plain(Scale::Positive(52)),
        Format::Tq2_0 => Some(Recipe { scale: Scale::Positive(64), tidy: three_codes }),
        Format::Mxfp4 => plain(Scale::PowerOfTwo),
        Format::Nvfp4 => plain(Scale::SmallFloats),
        Format::F8Scaled => Some(Recipe { scale: Scale::Single, tidy: magnitudes_below_2 }),
        Format::F8E4M3 => plain(Scale::Codes),
        Format::F32
        | Format::F16
        | Format::Bf16
        | Format::F64
        | Format::U8
        | Format::I8
        | Format::I16
        | Format::I32
        | Format::I64
        | Format::F8E5M2
        | Format::F8E8M0
        | Format::F4E2M1
        | Format::Q8_1
        | Format::Q8K
        | Format::Q4Z
        | Format::Q8Z
        | Format::Nvfp4Scaled => None,
    }
}

/// So many blocks of a format, their weights about 0 and of this deviation, as [`RandomBlocks`] makes them; `None` for a format
/// without blocks. The same for the same seed.
pub fn random_blocks(format: Format, count: usize, deviation: f32, seed: u64) -> Option<Vec<u8>> {
    let blocks = RandomBlocks::of(format)?.with_deviation(deviation);
    let mut bytes = vec![0; count * format.block_bytes()];
    blocks.fill(&mut bits(seed), &mut bytes);
    Some(bytes)
}

/// Random blocks of a format whose weights have one deviation.
#[derive(Clone)]
pub struct RandomBlocks {
    format: Format,
    recipe: Recipe,
    /// The bits of scale and minimum, or codes.
    scales: Vec<u32>,
    /// The deviation at a scale of 1.
    unit: f32,
}

impl RandomBlocks {
    /// Blocks of a deviation of 1; `None` for formats that weights don't come in, and for those that aren't made of codes. Their
    /// deviation is measured here, which takes a while; others are then had by [`Self::with_deviation`].
    pub fn of(format: Format) -> Option<Self> {
        let recipe = recipe(format)?;
        let measured = Self { format, recipe, scales: scales(recipe.scale, 1.0), unit: 1.0 };
        let unit = measured.deviation();
        Some(Self { unit, ..measured }.with_deviation(1.0))
    }

    /// Blocks whose weights have this deviation. Scales that are powers of two can miss it by the square root of 2, small floats
    /// by half a step.
    pub fn with_deviation(&self, deviation: f32) -> Self {
        Self { scales: scales(self.recipe.scale, deviation / self.unit), ..self.clone() }
    }

    /// Fills `bytes` with whole blocks out of random numbers.
    pub fn fill(&self, random: &mut impl FnMut() -> u64, bytes: &mut [u8]) {
        fill_bits(random, bytes);
        let Recipe { scale, tidy } = self.recipe;
        if let Scale::Codes = scale {
            bytes.iter_mut().for_each(|code| *code = self.scales[usize::from(*code)] as u8);
            return;
        }
        for block in bytes.chunks_exact_mut(self.format.block_bytes()) {
            tidy(block);
            let choice = random() as usize;
            self.write_scale(scale, block, choice);
        }
    }

    fn write_scale(&self, scale: Scale, block: &mut [u8], choice: usize) {
        let bits = self.scales[choice % SCALES];
        match scale {
            Scale::Signed(at) | Scale::Positive(at) => {
                block[at..at + 2].copy_from_slice(&(bits as u16).to_le_bytes());
            }
            Scale::WithMinimum(at, _) => block[at..at + 4].copy_from_slice(&bits.to_le_bytes()),
            Scale::Scattered => {
                for (i, byte) in block[48..].iter_mut().skip(1).step_by(2).enumerate() {
                    *byte = *byte & 15 | ((bits >> (4 * i)) as u8) << 4;
                }
            }
            Scale::PowerOfTwo => block[0] = bits as u8,
            Scale::Single => block[..4].copy_from_slice(&bits.to_le_bytes()),
            Scale::Codes => unreachable!("blocks without a scale are made of codes alone"),
            Scale::SmallFloats => {
                for (i, byte) in block[..4].iter_mut().enumerate() {
                    *byte = self.scales[(choice >> (8 * i)) % SCALES] as u8;
                }
            }
        }
    }

    fn deviation(&self) -> f32 {
        let mut bytes = vec![0; MEASURED * self.format.block_bytes()];
        self.fill(&mut bits(0), &mut bytes);
        let mut values = vec![0.0; MEASURED * self.format.block_elements()];
        self.format.decode(&bytes, &mut values);
        let squares: f64 = values.iter().map(|&value| f64::from(value) * f64::from(value)).sum();
        (squares / values.len() as f64).sqrt() as f32
    }
}

/// What blocks choose their scales from, or their codes, about a scale.
fn scales(kind: Scale, scale: f32) -> Vec<u32> {
    let of = |i: usize| match kind {
        Scale::Signed(_) => {
            let sign = if i.is_multiple_of(2) { scale } else { -scale };
            f16_bits(sign * spread(i / 2 * 2)).into()
        }
        Scale::Positive(_) | Scale::Scattered => f16_bits(scale * spread(i)).into(),
        Scale::WithMinimum(_, factor) => {
            let scale = scale * spread(i);
            u32::from(f16_bits(scale)) | u32::from(f16_bits(factor * scale)) << 16
        }
        Scale::PowerOfTwo => (127.0 + scale.log2().round()) as u32,
        Scale::SmallFloats => nearest_small_float(scale * spread(i)),
        Scale::Single => (scale * spread(i)).to_bits(),
        Scale::Codes => {
            // Evenly spread, with a sign.
            let number = scale * ((2 * i + 1) as f32 / CODES as f32 - 1.0);
            nearest_small_float(number.abs()) | if number < 0.0 { 0x80 } else { 0 }
        }
    };
    (0..if let Scale::Codes = kind { CODES } else { SCALES }).map(of).collect()
}

/// Blocks differ in their scales, by up to 4 : 3.
fn spread(choice: usize) -> f32 {
    0.857 + 0.286 * choice as f32 / (SCALES - 1) as f32
}

/// Numbers of splitmix64.
fn bits(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

fn fill_bits(random: &mut impl FnMut() -> u64, bytes: &mut [u8]) {
    let (words, rest) = bytes.as_chunks_mut::<8>();
    words.iter_mut().for_each(|word| *word = random().to_le_bytes());
    rest.copy_from_slice(&random().to_le_bytes()[..rest.len()]);
}

/// The positive float of 8 bits (E4M3) that is nearest.
fn nearest_small_float(wanted: f32) -> u32 {
    let codes: Vec<u8> = (1..0x7f).collect();
    let mut values = vec![0.0; codes.len()];
    Format::F8E4M3.decode(&codes, &mut values);
    let above = values.partition_point(|&value| value < wanted).clamp(1, codes.len() - 1);
    let nearest = if wanted - values[above - 1] < values[above] - wanted { above - 1 } else { above };
    codes[nearest].into()
}

/// Encoders of q8_0 write -127 to 127; some kernels rely on that.
fn no_least_code(block: &mut [u8]) {
    for byte in &mut block[2..] {
        *byte += u8::from(*byte == 0x80);
    }
}

/// In q2_k: scales of 8 to 15, and minima that are as large.
fn minima_like_scales_of_16(block: &mut [u8]) {
    for byte in &mut block[..16] {
        *byte = (*byte & 7 | 8) * 0x11;
    }
}

/// In q4_k and q5_k: scales of 32 to 63, and minima that are as large.
fn minima_like_scales(block: &mut [u8]) {
    for i in 4..8 {
        block[i] |= 0xa0;
        block[i + 4] = block[i];
        block[i + 8] = (block[i + 8] & 15) * 0x11;
    }
}

/// In q6_k: scales of -127 to -64 and 64 to 127.
fn large_scales(block: &mut [u8]) {
    for byte in &mut block[192..208] {
        let magnitude = (*byte & 0x3f | 0x40) as i8;
        *byte = if *byte & 0x80 == 0 { magnitude } else { -magnitude } as u8;
    }
}

/// Floats of 8 bits with a scale: of codes that are numbers, those below 2.
fn magnitudes_below_2(block: &mut [u8]) {
    block[4..].iter_mut().for_each(|code| *code &= 0xbf);
}

/// In tq2_0: codes of 0 to 2.
fn three_codes(block: &mut [u8]) {
    for byte in &mut block[..64] {
        *byte = (*byte & 0x55) + (*byte >> 1 & 0x55);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_every_format_have_the_wanted_deviation_and_no_mean() {
        for format in Format::ALL {
            for deviation in [0.008, 0.03] {
                let Some(bytes) = random_blocks(format, 4096, deviation, 7) else { continue };
                let mut values = vec![0.0; 4096 * format.block_elements()];
                format.decode(&bytes, &mut values);
                let mean = values.iter().sum::<f32>() / values.len() as f32;
                let found =
                    (values.iter().map(|value| value * value).sum::<f32>() / values.len() as f32).sqrt();
                // A scale that is a power of two can be off by the square root of 2, small floats by half a step.
                let coarse = [(Format::Mxfp4, 1.42), (Format::Nvfp4, 1.1), (Format::F8E4M3, 1.1)];
                let tolerance = coarse
                    .iter()
                    .find(|(coarse, _)| *coarse == format)
                    .map_or(1.03, |(_, tolerance)| *tolerance);
                let ratio = found / deviation;
                assert!(
                    (1.0 / tolerance..tolerance).contains(&ratio),
                    "{format}: {found}, expected {deviation}"
                );
                assert!(mean.abs() < 0.05 * deviation, "{format}: mean {mean} at a deviation of {deviation}");
            }
        }
    }
}
