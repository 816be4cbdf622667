//! A model of noise: it draws any token of the mask, and often one that closes something, so that texts come to an end.

use std::path::PathBuf;
use std::sync::OnceLock;

use gannet_engine::{Constraint, MayEnd, Progress};
use gannet_grammar::{GrammarLimits, Grammars};
use gannet_ops::TokenId;
use gannet_text::text::{Text, TextFiles, TokenizerFile};
use gannet_text::tokenizer::Tokenizer;

/// A vocabulary and its grammars.
pub(crate) struct Model {
    pub(crate) tokenizer: Tokenizer,
    pub(crate) grammars: Grammars,
    /// Bits of the tokens that are no more than brackets, quotes and commas.
    closing: Vec<u32>,
}

/// How a text came out.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) text: String,
    pub(crate) has_ended: bool,
}

/// A published tokenizer, which `cargo xtask models` fetches.
pub(crate) fn tokenizer(folder: &str, file: &str) -> Tokenizer {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/tokenizers")).join(folder);
    let read = |file: &str| std::fs::read(folder.join(file));
    let bytes = read(file).unwrap_or_else(|error| {
        panic!("`{}/{file}`: {error}: run `cargo xtask models` first", folder.display())
    });
    let tokenizer =
        if file.ends_with(".json") { TokenizerFile::Json(&bytes) } else { TokenizerFile::Model(&bytes) };
    let files = TextFiles { tokenizer, tokenizer_config: None, chat_template: None };
    Text::from_files(&files).expect("the published tokenizer loads").tokenizer
}

/// Byte-level BPE of 151,669 tokens.
pub(crate) fn qwen() -> &'static Model {
    static MODEL: OnceLock<Model> = OnceLock::new();
    MODEL.get_or_init(|| Model::new(tokenizer("qwen3", "tokenizer.json")))
}

impl Model {
    pub(crate) fn new(tokenizer: Tokenizer) -> Self {
        let grammars = Grammars::new(&tokenizer, GrammarLimits::DEFAULT).expect("the vocabulary has text");
        let mut closing = vec![0; tokenizer.vocabulary_size().div_ceil(32)];
        for id in 0..tokenizer.vocabulary_size() as u32 {
            let bytes = tokenizer.token_bytes(id).unwrap_or_default();
            if !tokenizer.is_special(id)
                && !bytes.is_empty()
                && bytes.iter().all(|byte| b"\"]},".contains(byte))
            {
                closing[id as usize / 32] |= 1 << (id % 32);
            }
        }
        Self { tokenizer, grammars, closing }
    }

    /// Draws a text of at most `most` tokens.
    pub(crate) fn make(&self, mut constraint: Box<dyn Constraint>, seed: u64, most: usize) -> Made {
        let mut random = Random(seed);
        let mut bytes = Vec::new();
        let mut has_ended = false;
        for _ in 0..most {
            let mut mask = vec![0; self.closing.len()];
            let may_end = constraint.mask(&mut mask).expect("the grammar goes on") == MayEnd::Yes;
            let Some(token) = self.draw(&mask, may_end, &mut random) else {
                has_ended = true;
                break;
            };
            bytes.extend_from_slice(self.tokenizer.token_bytes(token).expect("the mask has tokens alone"));
            if constraint.advance(TokenId(token)).expect("the token is of the mask") == Progress::Complete {
                has_ended = true;
                break;
            }
        }
        Made { text: String::from_utf8_lossy(&bytes).into_owned(), has_ended }
    }

    /// A token of the mask; none for the end.
    fn draw(&self, mask: &[u32], may_end: bool, random: &mut Random) -> Option<u32> {
        if may_end && random.below(3) == 0 {
            return None;
        }
        let closing: Vec<u32> =
            mask.iter().zip(&self.closing).map(|(word, closing)| word & closing).collect();
        let from = if random.below(2) == 0 && count(&closing) > 0 { &closing } else { mask };
        let count = count(from);
        assert!(may_end || count > 0, "some token fits");
        (count > 0).then(|| nth(from, random.below(count)))
    }
}

pub(crate) fn count(mask: &[u32]) -> u32 {
    mask.iter().map(|word| word.count_ones()).sum()
}

fn nth(mask: &[u32], mut n: u32) -> u32 {
    for (place, word) in mask.iter().enumerate() {
        if n < word.count_ones() {
            let bit = (0..32).filter(|bit| word >> bit & 1 == 1).nth(n as usize);
            return place as u32 * 32 + bit.expect("the word has so many bits");
        }
        n -= word.count_ones();
    }
    unreachable!("the mask has so many bits")
}

/// SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, n: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % u64::from(n)) as u32
    }
}
