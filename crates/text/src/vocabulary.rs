//! The bytes that each token id stands for.
//!
//! A vocabulary spells its tokens in one of three alphabets. *Byte level* (GPT-2 and descendants) writes each byte as
//! one printable character. *Pieces* (SentencePiece) writes a space as `▁`, and a byte that no piece covers as
//! `<0xE2>`. *Word pieces* (BERT) writes `##` where a word goes on and nothing where one begins. All come down to bytes
//! here, once, so that decoding is concatenation; half a character is then visible as what it is. Added tokens stand
//! for their own text, between word pieces as a word.
//!
//! Invariant: `spans` has one entry an id, and each span lies inside `bytes`.
//!
//! Knows no encoding and no tokenizer library.

use std::collections::HashMap;

use crate::error::TextError;
use crate::tokenizer::TokenId;

/// Most ids that a vocabulary may have; the largest public ones hold about 262,144.
pub(crate) const MAX_VOCABULARY: usize = 1 << 22;
/// Longest text of one token, in bytes.
pub(crate) const MAX_TOKEN_BYTES: usize = 1024;

/// Most work of finding the ways to cut all pieces in two, in bytes looked up; the largest public vocabularies take a
/// tenth of it.
const MAX_CUT_BYTES: usize = 1 << 29;

/// What is left of the work of cutting pieces: one of n bytes has n cuts, each of n bytes to look up.
#[derive(Debug, Default)]
pub(crate) struct CutBudget {
    spent: usize,
}

impl CutBudget {
    /// Pays for one piece.
    pub(crate) fn spend(&mut self, piece_bytes: usize) -> Result<(), TextError> {
        self.spent = self.spent.saturating_add(piece_bytes.saturating_mul(piece_bytes));
        if self.spent > MAX_CUT_BYTES {
            let (found, limit) = (self.spent, MAX_CUT_BYTES);
            return Err(TextError::TooLarge {
                what: "the work of cutting all tokens in bytes",
                found,
                limit,
            });
        }
        Ok(())
    }
}

/// How a vocabulary writes bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// One printable character a byte.
    ByteLevel,
    /// `▁` for a space, `<0xNN>` for a byte if `byte_fallback`.
    Pieces {
        /// Whether `<0xNN>` is a byte.
        byte_fallback: bool,
        /// Spaces to drop at the start of a decoded text, which encoding had put there.
        leading_spaces: usize,
    },
    /// `##` for what continues a word.
    WordPieces {
        /// Whether punctuation and English contractions join the word before.
        cleanup: bool,
    },
}

/// A token that is found in the text before the model splits the rest.
#[derive(Debug, Clone)]
pub(crate) struct AddedToken {
    pub(crate) id: TokenId,
    pub(crate) token: tokenizers::AddedToken,
}

#[derive(Debug, Clone, Copy, Default)]
struct Span {
    start: u32,
    end: u32,
    present: bool,
    special: bool,
}

/// Id -> bytes, for all ids.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    spelling: Spelling,
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

impl Vocabulary {
    /// Spells out `pieces` and `added`, whose texts win over the model's for the same id.
    pub(crate) fn new(
        spelling: Spelling,
        pieces: &[(String, TokenId)],
        added: &[AddedToken],
    ) -> Result<Self, TextError> {
        let ids = pieces.iter().map(|(_, id)| *id).chain(added.iter().map(|added| added.id));
        let size = ids.max().map_or(0, |id| id as usize + 1);
        if size > MAX_VOCABULARY {
            return Err(TextError::TooLarge {
                what: "the highest token id",
                found: size,
                limit: MAX_VOCABULARY,
            });
        }
        let mut vocabulary = Self { spelling, bytes: Vec::new(), spans: vec![Span::default(); size] };
        let alphabet = byte_level_alphabet();
        for (text, id) in pieces {
            if vocabulary.spans[*id as usize].present {
                let first = pieces.iter().find(|(_, other)| other == id).map(|(first, _)| first.clone());
                let (first, second) = (first.unwrap_or_default(), text.clone());
                return Err(TextError::DuplicateId { id: *id, first, second });
            }
            vocabulary.append(text, spell(spelling, &alphabet, text), *id, false)?;
        }
        for AddedToken { id, token } in added {
            vocabulary.append(&token.content, spell_added(spelling, &token.content), *id, token.special)?;
        }
        Ok(vocabulary)
    }

    fn append(&mut self, text: &str, bytes: Vec<u8>, id: TokenId, special: bool) -> Result<(), TextError> {
        if text.len() > MAX_TOKEN_BYTES {
            return Err(TextError::TooLarge {
                what: "a token's length in bytes",
                found: text.len(),
                limit: MAX_TOKEN_BYTES,
            });
        }
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(&bytes);
        // MAX_VOCABULARY * MAX_TOKEN_BYTES twice over would pass u32, and no file of that size is read.
        let end = u32::try_from(self.bytes.len()).map_err(|_| TextError::TooLarge {
            what: "the vocabulary's text in bytes",
            found: self.bytes.len(),
            limit: u32::MAX as usize,
        })?;
        self.spans[id as usize] = Span { start, end, present: true, special };
        Ok(())
    }

    /// Number of ids, gaps included.
    pub(crate) fn size(&self) -> usize {
        self.spans.len()
    }

    /// What `id` stands for; `None` where no token has it.
    pub(crate) fn bytes(&self, id: TokenId) -> Option<&[u8]> {
        let span = self.spans.get(id as usize).filter(|span| span.present)?;
        Some(&self.bytes[span.start as usize..span.end as usize])
    }

    /// Whether `id` is a control token, which carries no text for the reader.
    pub(crate) fn is_special(&self, id: TokenId) -> bool {
        self.spans.get(id as usize).is_some_and(|span| span.special)
    }

    /// The control tokens, ascending.
    pub(crate) fn special_ids(&self) -> impl Iterator<Item = TokenId> + '_ {
        (0..self.spans.len() as TokenId).filter(|&id| self.is_special(id))
    }

    /// Spaces that a decoded text loses at its start.
    pub(crate) fn leading_spaces(&self) -> usize {
        match self.spelling {
            Spelling::ByteLevel => 0,
            Spelling::Pieces { leading_spaces, .. } => leading_spaces,
            Spelling::WordPieces { .. } => 1,
        }
    }
}

fn spell(spelling: Spelling, alphabet: &HashMap<char, u8>, text: &str) -> Vec<u8> {
    match spelling {
        Spelling::ByteLevel => text
            .chars()
            .map(|letter| alphabet.get(&letter).copied())
            .collect::<Option<Vec<u8>>>()
            .unwrap_or_else(|| text.as_bytes().to_vec()),
        Spelling::Pieces { byte_fallback: true, .. } if fallback_byte(text).is_some() => {
            fallback_byte(text).into_iter().collect()
        }
        Spelling::Pieces { .. } => text.replace('▁', " ").into_bytes(),
        Spelling::WordPieces { cleanup } => match text.strip_prefix("##") {
            Some(rest) => rest.as_bytes().to_vec(),
            None => word(text, cleanup).into_bytes(),
        },
    }
}

fn spell_added(spelling: Spelling, text: &str) -> Vec<u8> {
    match spelling {
        Spelling::ByteLevel => text.as_bytes().to_vec(),
        Spelling::Pieces { .. } => text.replace('▁', " ").into_bytes(),
        Spelling::WordPieces { cleanup } => word(text, cleanup).into_bytes(),
    }
}

/// A word with the space before it, which cleaning up takes from some.
fn word(text: &str, cleanup: bool) -> String {
    const JOINED: [&str; 9] = [".", "?", "!", ",", "n't", "'m", "'s", "'ve", "'re"];
    let joins = cleanup && JOINED.iter().any(|beginning| text.starts_with(beginning));
    if joins { text.to_owned() } else { format!(" {text}") }
}

/// The byte of a piece like `<0x0A>`.
fn fallback_byte(piece: &str) -> Option<u8> {
    let digits = piece.strip_prefix("<0x")?.strip_suffix('>')?;
    let plain = digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    plain.then(|| u8::from_str_radix(digits, 16).ok()).flatten()
}

/// Writes bytes in the alphabet of byte-level vocabularies.
pub(crate) struct ByteLetters([char; 256]);

impl ByteLetters {
    pub(crate) fn new() -> Self {
        let mut letters = ['\0'; 256];
        for (letter, byte) in byte_level_alphabet() {
            letters[usize::from(byte)] = letter;
        }
        Self(letters)
    }

    pub(crate) fn write(&self, bytes: &[u8]) -> String {
        bytes.iter().map(|&byte| self.0[usize::from(byte)]).collect()
    }
}

/// The alphabet of byte-level vocabularies: printable Latin-1 bytes stand for themselves, the others follow from
/// U+0100 in byte order (GPT-2's `encoder.py`).
fn byte_level_alphabet() -> HashMap<char, u8> {
    let printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let mut next = 0x100;
    (0..=255u8)
        .map(|byte| {
            if printable(byte) {
                return (char::from(byte), byte);
            }
            next += 1;
            (char::from_u32(next - 1).expect("U+0100 to U+0143 are characters"), byte)
        })
        .collect()
}
