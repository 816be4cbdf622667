//! A byte-level vocabulary of any size: every byte, some common English words by their merges, and made-up words for
//! the rest, so that any text becomes tokens and any token becomes text.

use std::collections::HashSet;

use super::tokenizer::Tokenizer;

/// The pieces of a tokenizer and how they come about.
pub(super) struct Vocabulary {
    /// By id, in the byte-level alphabet; special tokens as they are.
    pub tokens: Vec<String>,
    /// Pairs, the first to merge first.
    pub merges: Vec<[String; 2]>,
}

/// Words that are one token, with and without a space before them.
const WORDS: &str = "the of and to in is that it for was on are as with his they be at one have this from or had by \
                     but not what all were when we there can an your which their said if do will each about how up \
                     out them then she many some so these would other into has more her two like him see time could \
                     no make than first been its who now people my made over did down only way find use may water \
                     long little very after words called just where most know get through back much before go good \
                     new write our used me man too any day same right look think also around another came come work \
                     three word must because does part even place well such here take why things help put years \
                     different away again off went old number great tell men say small every found still between \
                     name should home big give air line set own under read last never us left end along while might \
                     next sound below saw something thought both few those always looked show large often together \
                     asked house world going want school important until form food keep children feet land side \
                     without boy once animals life enough took sometimes four head above kind began almost live page \
                     got earth need far hand high year mother light parts country father let night following picture \
                     being study second eyes soon times story boys since white days ever paper hard near sentence \
                     better best across during today others however sure means knew try told young miles sun ways \
                     thing whole hear example heard several change answer room sea against top turned learn point \
                     city play toward five using himself usually";

/// The vocabulary of `size` tokens around the special ones.
pub(super) fn build(tokenizer: &Tokenizer, size: usize) -> Vocabulary {
    let merges = merges();
    let mut taken: HashSet<String> =
        tokenizer.special.iter().map(|special| special.text.to_owned()).collect();
    let bytes = (0..=255u8).map(|byte| letter(byte).to_string());
    let merged = merges.iter().map(|[left, right]| format!("{left}{right}"));
    let invented = (0..).map(invented_word);
    let mut pieces = bytes.chain(merged).chain(invented);
    let mut tokens = Vec::with_capacity(size);
    for id in 0..size {
        tokens.push(match tokenizer.special(id) {
            Some(special) => special.text.to_owned(),
            None => pieces
                .find(|piece| taken.insert(piece.clone()))
                .expect("there are more invented words than tokens in any vocabulary"),
        });
    }
    Vocabulary { tokens, merges }
}

/// Each word letter by letter: those after a space first, as their first merge then keeps others off.
fn merges() -> Vec<[String; 2]> {
    let mut known = HashSet::new();
    let mut merges = Vec::new();
    for before in [" ", ""] {
        for word in WORDS.split_whitespace() {
            let letters: Vec<char> = before.bytes().chain(word.bytes()).map(letter).collect();
            for length in 1..letters.len() {
                let pair = [letters[..length].iter().collect(), letters[length].to_string()];
                if known.insert(pair.clone()) {
                    merges.push(pair);
                }
            }
        }
    }
    merges
}

/// The character that stands for a byte: itself where it can be seen, else one from 256 on.
///
/// Source: `bytes_to_unicode` of GPT-2.
fn letter(byte: u8) -> char {
    let is_visible = |byte: u8| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    if is_visible(byte) {
        return char::from(byte);
    }
    let place = (0..byte).filter(|byte| !is_visible(*byte)).count() as u32;
    char::from_u32(256 + place).expect("the letters after the first 256 are characters")
}

/// Word `number` of a million, of three syllables, after a space.
fn invented_word(number: usize) -> String {
    const CONSONANTS: &[u8; 20] = b"bcdfghjklmnpqrstvwxz";
    const VOWELS: &[u8; 5] = b"aeiou";
    // A step without a factor of 10 goes through all before it repeats.
    let mut rest = number * 387_917 % 1_000_000;
    let mut word = letter(b' ').to_string();
    for _ in 0..3 {
        word.push(char::from(CONSONANTS[rest % 20]));
        word.push(char::from(VOWELS[rest / 20 % 5]));
        rest /= 100;
    }
    word
}

#[cfg(test)]
mod tests {
    use super::super::shapes::SHAPES;
    use super::*;

    #[test]
    fn every_vocabulary_has_distinct_tokens_and_all_that_its_merges_make() {
        for shape in SHAPES {
            let vocabulary = build(shape.tokenizer, shape.vocabulary);
            let tokens: HashSet<&str> = vocabulary.tokens.iter().map(String::as_str).collect();
            assert_eq!(tokens.len(), shape.vocabulary, "{}", shape.name);
            for [left, right] in &vocabulary.merges {
                for piece in [left.as_str(), right.as_str(), &format!("{left}{right}")] {
                    assert!(tokens.contains(piece), "{}: `{piece}`", shape.name);
                }
            }
            for special in shape.tokenizer.special {
                assert_eq!(vocabulary.tokens[special.id as usize], special.text, "{}", shape.name);
            }
        }
    }

    #[test]
    fn bytes_have_the_letters_of_the_field() {
        let check = |byte: u8, expected: char| assert_eq!(letter(byte), expected, "byte {byte}");
        check(b'a', 'a');
        check(b' ', 'Ġ');
        check(b'\n', 'Ċ');
        check(b'\t', 'ĉ');
        check(0xad, 'Ń');
        check(0xe4, 'ä');
    }
}
