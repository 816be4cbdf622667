//! Rows as codes: what a product with a matrix of codes multiplies, made once a value.
//!
//! ```text
//! scale = max |x| / 127,   code[i] = round(x[i] * (127 / max |x|)),   over 32 columns; to even where in the middle
//! ```
//!
//! A value whose codes would lose too much has two terms: in each half of a block, the four neighbours (a *word*) with the
//! largest number have a second code that counts 256, so that the scale is made for the others. See [`Terms`].
//!
//! ```text
//! scale = max(rest / 127, max |x| / 32512),   rest = the largest |x| outside of the two words
//! number[i] = round(x[i] * min(127 / rest, 32512 / max |x|)) = 256 * far[i] + code[i],   far is zero outside of them
//! ```
//!
//! A block whose largest number is below [`SMALLEST`] is zero. One with a number that is not finite has a scale
//! that is none, so that every product with the row shows it.
//!
//! A block depends on its own 32 numbers alone, so a row has the same codes whatever stands beside it.

use super::groups::{Groups, group_of};
use crate::kernels::Crew;
use crate::panels::SUB_BLOCK;
use crate::simd::{Kernel, Lanes};
use bytemuck::{Pod, Zeroable};
use gannet_ops::math::ROUNDER;

/// Below this the scale of a block would be no normal number. Products with such numbers vanish beside any others.
const SMALLEST: f32 = 1e-33;
/// The largest code.
const LARGEST_CODE: i32 = 127;
/// What a code of the second term counts.
const FAR: i32 = 256;
/// The largest number of both terms.
const LARGEST_NUMBER: i32 = FAR * LARGEST_CODE;
/// Columns of a word.
const WORD: usize = 4;
/// Words of a block.
pub(super) const WORDS: usize = SUB_BLOCK / WORD;
/// 32 numbers of a row as codes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Block {
    /// Four signed codes a word, the first in the lowest byte.
    pub(super) codes: [i32; WORDS],
    /// What one counts.
    pub(super) scale: f32,
    /// The sum of the numbers that all terms stand for.
    pub(super) scaled_sum: f32,
    /// The negative sum of the codes.
    pub(super) minus_sum: i32,
    /// Those of the first sixteen and of the second.
    pub(super) minus_sums: [i32; 2],
}

/// The second term of a block: of one word in each half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Far {
    /// Four signed codes, the first in the lowest byte.
    pub(super) words: [i32; 2],
    /// Which words of the block they are.
    pub(super) places: [u32; 2],
    /// The negative sum of the codes of each.
    pub(super) minus_sums: [i32; 2],
}

/// How closely codes stand for numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Terms {
    /// To a 254th of the largest of a block.
    #[default]
    One,
    /// To a 254th of the largest outside of two words, or to a 65,024th of the largest where that is less. A second term
    /// adds two products to the eight of a block.
    Two,
}

impl Terms {
    /// Blocks of a part of the work; less isn't worth a second thread.
    const fn blocks_per_part(self) -> usize {
        match self {
            Terms::One => 256,
            Terms::Two => 96,
        }
    }
}

/// Rows of a value as codes.
#[derive(Default)]
pub(crate) struct Activations {
    pub(super) blocks: Groups<Block>,
    /// Of each block, or of none.
    pub(super) far: Groups<Far>,
}

impl Activations {
    pub(super) fn terms(&self) -> Terms {
        if self.far.rows() == 0 { Terms::One } else { Terms::Two }
    }

    /// Replaces the rows by those of x `[rows, width]`; the width is whole blocks.
    pub(crate) fn fill(&mut self, crew: &mut Crew<'_>, x: &[f32], width: usize, terms: Terms) {
        let rows = x.len() / width;
        let (group, row_blocks) = (group_of(rows), width / SUB_BLOCK);
        self.blocks.resize(rows, group, row_blocks);
        self.far.resize(if terms == Terms::Two { rows } else { 0 }, group, row_blocks);
        let (isa, length) = (crew.isa, self.blocks.length());
        let least = terms.blocks_per_part();
        // A row is read from front to back where there are groups enough for all members.
        let step = if rows > group { least.div_ceil(length) * length } else { least.div_ceil(group) * group };
        let (blocks, far) = (&mut self.blocks.items, &mut self.far.items);
        crew.turn.runs_of_both(blocks, far, step, |start, blocks, far| {
            let mut far = far.chunks_mut(length);
            for (number, blocks) in blocks.chunks_mut(length).enumerate() {
                let x = &x[(start / length + number) * group * width..];
                let (first, far) = (start % length / group, far.next().unwrap_or(&mut []));
                isa.run(Encode { x, width, group, first, blocks, far });
            }
        });
    }
}

/// Some columns of the rows of a group.
struct Encode<'a> {
    /// From the group's first row on.
    x: &'a [f32],
    width: usize,
    group: usize,
    /// The first of the columns, in blocks.
    first: usize,
    blocks: &'a mut [Block],
    /// As many as blocks, or none.
    far: &'a mut [Far],
}

impl Kernel for Encode<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        for (row, x) in self.x.chunks_exact(self.width).take(self.group).enumerate() {
            let mut far = self.far.chunks_exact_mut(self.group);
            let numbers = &x.as_chunks::<SUB_BLOCK>().0[self.first..];
            for (x, blocks) in numbers.iter().zip(self.blocks.chunks_exact_mut(self.group)) {
                match far.next() {
                    None => blocks[row] = encode(x),
                    Some(far) => (blocks[row], far[row]) = encode_twice(x),
                }
            }
        }
    }
}

/// 32 numbers as one term.
#[inline(always)]
fn encode(x: &[f32; SUB_BLOCK]) -> Block {
    let [first, second] = largest_of_words(x);
    let Some(largest) = finite(largest(first).max(largest(second))) else { return none() };
    if largest < SMALLEST {
        return Block::default();
    }
    let codes = integers(x, LARGEST_CODE as f32 / largest);
    let (words, minus_sums) = words_and_sums(&codes);
    block(words, minus_sums, largest / LARGEST_CODE as f32, minus_sums[0] + minus_sums[1])
}

/// 32 numbers as two terms.
#[inline(always)]
fn encode_twice(x: &[f32; SUB_BLOCK]) -> (Block, Far) {
    let (mut places, mut largest_of_all, mut rest) = ([0; 2], 0, 0);
    for (half, words) in largest_of_words(x).iter().enumerate() {
        let (mut place, mut largest) = (0, words[0]);
        for (word, of_word) in words.iter().enumerate().skip(1) {
            // Selected, not branched on: which word is the largest is anybody's guess.
            place = if *of_word > largest { word } else { place };
            rest = rest.max(largest.min(*of_word));
            largest = largest.max(*of_word);
        }
        largest_of_all = largest_of_all.max(largest);
        places[half] = (half * WORDS / 2 + place) as u32;
    }
    let Some(largest) = finite(largest_of_all) else { return (none(), Far::default()) };
    if largest < SMALLEST {
        return (Block::default(), Far::default());
    }
    let rest = f32::from_bits(rest as u32);
    let (most, of) =
        if rest * FAR as f32 > largest { (LARGEST_CODE, rest) } else { (LARGEST_NUMBER, largest) };
    let numbers = integers(x, most as f32 / of);
    let (mut far, mut near) = ([0; SUB_BLOCK], [0; SUB_BLOCK]);
    for i in 0..SUB_BLOCK {
        far[i] = (numbers[i] + FAR / 2) >> 8;
        // Not every level can multiply a code of -128.
        near[i] = (numbers[i] - FAR * far[i]).max(-LARGEST_CODE);
    }
    let (far, (near, minus_sums)) = (words(&far), words_and_sums(&near));
    let words = [far[places[0] as usize], far[places[1] as usize]];
    let far_minus_sums = [-sum_of_word(words[0]), -sum_of_word(words[1])];
    let minus_sum = FAR * (far_minus_sums[0] + far_minus_sums[1]) + minus_sums[0] + minus_sums[1];
    let far = Far { words, places, minus_sums: far_minus_sums };
    (block(near, minus_sums, of / most as f32, minus_sum), far)
}

/// Of numbers that aren't finite.
#[inline(always)]
fn none() -> Block {
    Block { scale: f32::NAN, scaled_sum: f32::NAN, ..Block::default() }
}

/// The magnitude of the largest number of each word, by halves, as bits: as integers these are ordered as magnitudes
/// are, and what is no number comes last.
#[inline(always)]
fn largest_of_words(x: &[f32; SUB_BLOCK]) -> [[i32; WORDS / 2]; 2] {
    let mut bits = [0; SUB_BLOCK];
    for i in 0..SUB_BLOCK {
        bits[i] = x[i].abs().to_bits() as i32;
    }
    let (mut pairs, mut largest) = ([0; SUB_BLOCK / 2], [0; WORDS]);
    for i in 0..SUB_BLOCK / 2 {
        pairs[i] = bits[2 * i].max(bits[2 * i + 1]);
    }
    for i in 0..WORDS {
        largest[i] = pairs[2 * i].max(pairs[2 * i + 1]);
    }
    bytemuck::cast(largest)
}

#[inline(always)]
fn largest(words: [i32; WORDS / 2]) -> i32 {
    words[0].max(words[1]).max(words[2].max(words[3]))
}

/// The number of these bits, where it is one.
#[inline(always)]
fn finite(bits: i32) -> Option<f32> {
    let number = f32::from_bits(bits as u32);
    number.is_finite().then_some(number)
}

/// The nearest integers to the numbers times a factor, to even where in the middle.
#[inline(always)]
fn integers(x: &[f32; SUB_BLOCK], factor: f32) -> [i32; SUB_BLOCK] {
    let mut integers = [0; SUB_BLOCK];
    for i in 0..SUB_BLOCK {
        integers[i] = x[i].mul_add(factor, ROUNDER).to_bits() as i32 - ROUNDER.to_bits() as i32;
    }
    integers
}

/// Codes as words, and the negative sum of each half.
#[inline(always)]
fn words_and_sums(codes: &[i32; SUB_BLOCK]) -> ([i32; WORDS], [i32; 2]) {
    let (mut first, mut second) = (0, 0);
    for i in 0..SUB_BLOCK / 2 {
        first += codes[i];
        second += codes[i + SUB_BLOCK / 2];
    }
    (words(codes), [-first, -second])
}

/// Codes as words, the first in the lowest byte.
#[inline(always)]
fn words(codes: &[i32; SUB_BLOCK]) -> [i32; WORDS] {
    let mut bytes = [0u8; SUB_BLOCK];
    for i in 0..SUB_BLOCK {
        bytes[i] = codes[i] as u8;
    }
    let mut words: [i32; WORDS] = bytemuck::cast(bytes);
    for word in &mut words {
        *word = i32::from_le(*word);
    }
    words
}

#[inline(always)]
fn sum_of_word(word: i32) -> i32 {
    (word << 24 >> 24) + (word << 16 >> 24) + (word << 8 >> 24) + (word >> 24)
}

/// The first term, whose codes add up to the negative of `minus_sums`, as those of all terms do to that of `minus_sum`.
#[inline(always)]
fn block(codes: [i32; WORDS], minus_sums: [i32; 2], scale: f32, minus_sum: i32) -> Block {
    let scaled_sum = scale * -minus_sum as f32;
    Block { codes, scale, scaled_sum, minus_sum: minus_sums[0] + minus_sums[1], minus_sums }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::{Isa, IsaLevel};

    /// Both terms of a block by the formulas above, number by number.
    fn by_formula(x: &[f32]) -> (Block, Far) {
        let of_word = |word: usize| x[word * WORD..][..WORD].iter().fold(0f32, |most, x| most.max(x.abs()));
        let (mut places, mut rest) = ([0, WORDS / 2], 0f32);
        for place in &mut places {
            let words = *place..*place + WORDS / 2;
            for word in words.clone() {
                *place = if of_word(word) > of_word(*place) { word } else { *place };
            }
            rest = words.filter(|word| word != place).map(of_word).fold(rest, f32::max);
        }
        let largest = of_word(places[0]).max(of_word(places[1]));
        let (most, of) = if rest * 256.0 > largest { (127f32, rest) } else { (32512.0, largest) };
        let factor = f64::from(most / of);
        let numbers: Vec<i32> = x.iter().map(|x| (f64::from(*x) * factor).round_ties_even() as i32).collect();
        let far: Vec<i32> = numbers.iter().map(|number| (number + 128).div_euclid(256)).collect();
        let near: Vec<i32> = numbers.iter().zip(&far).map(|(n, far)| (n - 256 * far).max(-127)).collect();
        let word = |codes: &[i32], word: usize| {
            i32::from_le_bytes(std::array::from_fn(|i| codes[word * WORD + i] as i8 as u8))
        };
        let sum = |codes: &[i32]| codes.iter().sum::<i32>();
        let far_minus_sums = places.map(|place| -sum(&far[place * WORD..][..WORD]));
        let (scale, all) = (of / most, -256 * (far_minus_sums[0] + far_minus_sums[1]) + sum(&near));
        let block = Block {
            codes: std::array::from_fn(|i| word(&near, i)),
            scale,
            scaled_sum: scale * all as f32,
            minus_sum: -sum(&near),
            minus_sums: [-sum(&near[..16]), -sum(&near[16..])],
        };
        let places_as_read = places.map(|place| place as u32);
        let words = places.map(|place| word(&far, place));
        (block, Far { words, places: places_as_read, minus_sums: far_minus_sums })
    }

    #[test]
    fn codes_follow_the_formulas_at_every_level_also_where_words_are_as_large() {
        let mut random = 1u64;
        let mut number = |range: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % range
        };
        for round in 0..2000 {
            // Few sizes, so that many are the same; now and then one that is far above.
            let sizes = if round % 2 == 0 { 4 } else { 1 << 20 };
            let x: [f32; SUB_BLOCK] = std::array::from_fn(|_| {
                let sign = if number(2) == 0 { 1.0 } else { -1.0 };
                let far = if number(12) == 0 { (1 << number(12)) as f32 } else { 1.0 };
                sign * far * (1 + number(sizes)) as f32 / sizes as f32
            });
            let expected = by_formula(&x);
            for level in IsaLevel::available() {
                let isa = Isa::new(level).expect("the level is available");
                let (mut blocks, mut far) = ([Block::default()], [Far::default()]);
                let encode = Encode {
                    x: &x,
                    width: SUB_BLOCK,
                    group: 1,
                    first: 0,
                    blocks: &mut blocks,
                    far: &mut far,
                };
                isa.run(encode);
                assert_eq!((blocks[0], far[0]), expected, "{level:?} of {x:?}");
                let largest = x.iter().fold(0f32, |most, x| most.max(x.abs()));
                let encode =
                    Encode { x: &x, width: SUB_BLOCK, group: 1, first: 0, blocks: &mut blocks, far: &mut [] };
                isa.run(encode);
                assert_eq!(blocks[0].scale, largest / 127.0, "{level:?} of {x:?}");
            }
        }
    }
}
