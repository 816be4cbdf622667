//! Zeros of 3 bits as version 1 of GPTQ stores them.
//!
//! Its writers disagree. AutoGPTQ stores each zero less 1. GPTQModel subtracts three words from every three, whose set
//! bits are 2, 5, ... 29 in the first, 1, 4, ... 31 in the second and 0, 3, ... 30 in the third: the order of the words
//! is turned round against that of the codes, so its files read differently. Both write symmetric models, whose zeros
//! are all 4, and no words say that in both ways; so those are read, and any others are refused.

use super::super::Part;
use super::Zeros;
use super::fill::code_at;
use crate::FormatError;
use crate::stored::StoredTensors;

/// What AutoGPTQ's zeros lack, in each of three words; 1 for each code, so bits move over from word to word.
const CODES_LACK: [u32; 3] = [0x4924_9249, 0x9249_2492, 0x2492_4924];
/// What GPTQModel's lack, in each of three words, each for itself.
const WORDS_LACK: [u32; 3] = [0x2492_4924, 0x9249_2492, 0x4924_9249];

/// The zeros, where they are all in the middle.
pub(super) fn zeros_of_3_bits(stored: &StoredTensors, zeros: Part<'_>) -> Result<Zeros, FormatError> {
    let words: Vec<u32> =
        stored.bytes(zeros.place).as_chunks().0.iter().copied().map(u32::from_le_bytes).collect();
    let in_middle = |lacking: fn([u32; 3]) -> [u32; 3]| {
        words.as_chunks::<3>().0.iter().all(|&three| {
            let whole = lacking(three).map(u32::to_le_bytes);
            (0..32).all(|index| code_at(|place| whole[place], index, 3) == 4)
        })
    };
    if in_middle(code_by_code) || in_middle(word_by_word) {
        return Ok(Zeros::Middle);
    }
    Err(FormatError::OlderZeros {
        file: stored.file_of(zeros.place).path().to_path_buf(),
        tensor: zeros.tensor.name.to_owned(),
    })
}

fn code_by_code(words: [u32; 3]) -> [u32; 3] {
    let mut carry = 0;
    std::array::from_fn(|place| {
        let sum = u64::from(words[place]) + u64::from(CODES_LACK[place]) + carry;
        carry = sum >> 32;
        sum as u32
    })
}

fn word_by_word(words: [u32; 3]) -> [u32; 3] {
    std::array::from_fn(|place| words[place].wrapping_add(WORDS_LACK[place]))
}
