//! The tokenizer lists of GGUF metadata, every kind and splitting rule, to a tokenizer, and a text through it.
//!
//! Inputs are typed: bytes that are taken for lists would hardly ever agree with each other.

#![no_main]

use std::sync::LazyLock;

use arbitrary::Arbitrary;
use gannet_text::error::TextError;
use gannet_text::gguf::{GgufVocabulary, tokenizer};
use libfuzzer_sys::fuzz_target;

/// The names of all kinds, then of all splitting rules, as the refusal of an unknown one lists them.
static NAMES: LazyLock<[Vec<&str>; 2]> = LazyLock::new(|| {
    ["no model", "gpt2"].map(|model| {
        let (model, pre) = (model.to_owned(), Some("no rule".to_owned()));
        match tokenizer(GgufVocabulary { model, pre, ..GgufVocabulary::default() }) {
            Err(TextError::UnsupportedKind { supported, .. }) => supported.split(", ").collect(),
            other => panic!("an unknown name gives {:?}", other.err()),
        }
    })
});

#[derive(Arbitrary, Debug)]
struct Input {
    kind: u8,
    split: u8,
    pieces: Vec<Piece>,
    merges: Vec<Merge>,
    ids: [Option<u8>; 8],
    flags: [Option<bool>; 7],
    charsmap: Vec<u8>,
    /// Whether lists that may be missing are.
    lists: [bool; 2],
    text: String,
}

#[derive(Arbitrary, Debug)]
struct Piece {
    text: PieceText,
    score: f32,
    /// The lowest three bits of it: from 1 to 6 where they are right.
    kind: u8,
}

#[derive(Arbitrary, Debug)]
enum PieceText {
    Any(String),
    Byte(u8),
    /// A letter of the alphabet that byte-level vocabularies are written in.
    Letter(u8),
    /// Two pieces before it, one behind the other.
    Joined(u8, u8),
}

#[derive(Arbitrary, Debug)]
enum Merge {
    Pieces(u8, u8),
    Any(String),
}

fuzz_target!(|input: Input| {
    let text = input.text.clone();
    if let Ok(tokenizer) = tokenizer(vocabulary(input)) {
        gannet_fuzz::check_tokenizer(&tokenizer, &text);
    }
});

fn vocabulary(input: Input) -> GgufVocabulary {
    let [kinds, splits] = &*NAMES;
    let tokens = tokens(&input.pieces);
    let piece =
        |number: u8| tokens.get(usize::from(number) % tokens.len().max(1)).cloned().unwrap_or_default();
    let merge = |merge: Merge| match merge {
        Merge::Pieces(left, right) => format!("{} {}", piece(left), piece(right)),
        Merge::Any(text) => text,
    };
    let merges = input.merges.into_iter().map(merge).collect();
    let [scored, typed] = input.lists;
    let [bos, eos, eot, unknown, padding, cls, separator, mask] = input.ids.map(|id| id.map(u32::from));
    let [
        add_bos,
        add_eos,
        add_separator,
        add_space_prefix,
        remove_extra_whitespaces,
        lowercase,
        strip_accents,
    ] = input.flags;
    GgufVocabulary {
        model: kinds[usize::from(input.kind) % kinds.len()].to_owned(),
        pre: splits.get(usize::from(input.split) % (splits.len() + 1)).map(|split| (*split).to_owned()),
        scores: input.pieces.iter().map(|piece| piece.score).filter(|_| scored).collect(),
        token_types: input.pieces.iter().map(|piece| i32::from(piece.kind % 8)).filter(|_| typed).collect(),
        tokens,
        merges,
        bos,
        eos,
        eot,
        unknown,
        padding,
        cls,
        separator,
        mask,
        add_bos,
        add_eos,
        add_separator,
        add_space_prefix,
        remove_extra_whitespaces,
        precompiled_charsmap: input.charsmap,
        lowercase,
        strip_accents,
    }
}

fn tokens(pieces: &[Piece]) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    for piece in pieces {
        let earlier =
            |number: u8| tokens.get(usize::from(number) % tokens.len().max(1)).cloned().unwrap_or_default();
        let token = match &piece.text {
            PieceText::Any(text) => text.clone(),
            PieceText::Byte(byte) => format!("<0x{byte:02X}>"),
            PieceText::Letter(letter) => char::from(b'!' + letter % 94).to_string(),
            PieceText::Joined(left, right) => earlier(*left) + &earlier(*right),
        };
        tokens.push(token);
    }
    tokens
}
