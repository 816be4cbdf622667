//! A tokenizer: text to token ids, and what each id stands for.
//!
//! One type over every source. `json` takes a Hugging Face tokenizer.json apart, `crate::gguf`, `crate::sentencepiece`
//! and `crate::tiktoken` build the same parts from other files, and `assemble` checks and joins them; so there is one path, and one set of checks, to a working
//! tokenizer. Encoding is the `tokenizers` crate's, the reference behaviour of tokenizer.json files; it stays hidden
//! in here. Text that must not speak special tokens carries seams (see `special`).
//!
//! Invariant: every id that encoding returns is below `vocabulary_size`.
//!
//! Knows no file name, no template and no model.

mod assemble;
mod charsmap;
mod chat;
mod config;
mod end;
mod json;
mod merge_list;
mod model;
mod parts;
mod post_processor;
mod spelling;
mod splitting;

use std::fmt;
use std::sync::Arc;

use tokenizers::{Encoding, Model, OffsetType, Token};

use crate::error::TextError;
use crate::special::{self, SpecialTexts};
use crate::vocabulary::Vocabulary;

pub(crate) use assemble::{Parts, TextEnds};
pub use chat::{EncodedChat, TokenBoundary};
pub use config::{NamedTokens, TokenizerConfig};
pub(crate) use json::split_merge;
pub(crate) use model::Kind;
pub(crate) use parts::SPACES_AT_THE_ENDS;
use splitting::Splitting;

/// The number of a token.
pub type TokenId = u32;

/// What special tokens written in a text become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Specials {
    /// Their ids: the text comes from someone who may speak for the model's format.
    Parse,
    /// Plain text, like everything else.
    AsText,
}

/// A loaded tokenizer. Cloning is cheap; clones share everything.
#[derive(Clone)]
pub struct Tokenizer {
    inner: Arc<Inner>,
}

struct Inner {
    /// Finds added tokens, normalises and has the model; it does not split.
    library: tokenizers::Tokenizer,
    splitting: Option<Splitting>,
    vocabulary: Arc<Vocabulary>,
    specials: SpecialTexts,
    /// Whether the model itself would find a special token in plain text: it has them among its pieces, and looks for
    /// whole words or segmentations there.
    finds_specials: bool,
    ends: TextEnds,
    named: NamedTokens,
}

impl Tokenizer {
    /// Reads a tokenizer.json and what tokenizer_config.json adds to it.
    ///
    /// # Errors
    /// JSON faults; a model, decoder or other part that isn't supported; ids or merges that contradict the vocabulary;
    /// a size above its limit.
    pub fn from_json(tokenizer_json: &[u8], config: &TokenizerConfig) -> Result<Self, TextError> {
        let mut parts = json::take_apart(tokenizer_json)?;
        parts.named = config.named.clone();
        parts.ends = config.text_ends(|text| parts.id_of(text))?;
        Self::assemble(parts)
    }

    pub(crate) fn assemble(parts: Parts) -> Result<Self, TextError> {
        Ok(Self { inner: Arc::new(assemble::assemble(parts)?) })
    }

    /// The ids of `text` alone: nothing is added at its ends.
    ///
    /// # Errors
    /// `NoFreeMark` for text that holds every noncharacter, `SplitTooHard` for text that the splitting expression gives
    /// up on, `Library` for text that the model's own parts can't handle.
    pub fn encode(&self, text: &str, specials: Specials) -> Result<Vec<TokenId>, TextError> {
        match specials {
            Specials::Parse => self.encode_with_seams(text, &[]),
            Specials::AsText => self.encode_with_seams(text, &self.inner.specials.seams(text)),
        }
    }

    /// The ids of a whole raw prompt, as the reference tokenizer gives them: special tokens are parsed, and the
    /// beginning and end of text are added where the tokenizer says so, whether or not the text spells them.
    ///
    /// # Errors
    /// As `encode`.
    pub fn encode_prompt(&self, text: &str) -> Result<Vec<TokenId>, TextError> {
        let TextEnds { prefix, suffix } = &self.inner.ends;
        let ids = self.encode(text, Specials::Parse)?;
        Ok([prefix.as_slice(), &ids, suffix].concat())
    }

    fn encode_with_seams(&self, text: &str, seams: &[usize]) -> Result<Vec<TokenId>, TextError> {
        Ok(self.encoding(text, seams, OffsetType::None)?.get_ids().to_vec())
    }

    fn encoding(&self, text: &str, seams: &[usize], offsets: OffsetType) -> Result<Encoding, TextError> {
        let encoding = match seams {
            [] => self.pipeline(text, None, offsets),
            _ => {
                let mark = special::free_mark([text])?;
                self.pipeline(&special::insert_marks(text, seams, mark), Some(mark), offsets)
            }
        };
        encoding.map_err(|error| match error.downcast::<TextError>() {
            Ok(own) => *own,
            Err(error) => TextError::library("encoding")(error),
        })
    }

    /// The library's own pipeline, with one step between finding added tokens and splitting the rest: the marks, which
    /// kept lookalikes from being found, are taken out.
    fn pipeline(&self, text: &str, mark: Option<char>, offsets: OffsetType) -> tokenizers::Result<Encoding> {
        let library = &self.inner.library;
        let found = library.get_added_vocabulary();
        let mut pieces = found.extract_and_normalize(library.get_normalizer(), text);
        if let Some(mark) = mark {
            pieces.normalize(|piece| {
                piece.filter(|letter| letter != mark);
                Ok(())
            })?;
        }
        if let Some(splitting) = &self.inner.splitting {
            splitting.run(&mut pieces)?;
        }
        pieces.tokenize(|piece| self.tokenize_plain(piece.get()))?;
        pieces.into_encoding(None, 0, offsets)
    }

    /// The tokens of text in which no special token is left to find. A model that would find one nevertheless, because
    /// marks or normalising hid it, gets the text in parts that are cut at the seams.
    fn tokenize_plain(&self, text: &str) -> tokenizers::Result<Vec<Token>> {
        let model = self.inner.library.get_model();
        let seams = if self.inner.finds_specials { self.inner.specials.seams(text) } else { Vec::new() };
        if seams.is_empty() {
            return model.tokenize(text);
        }
        let mut tokens = Vec::new();
        let starts = [0].into_iter().chain(seams.iter().copied());
        for (start, end) in starts.zip(seams.iter().copied().chain([text.len()])) {
            let part = model.tokenize(&text[start..end])?;
            tokens.extend(
                part.into_iter().map(|token| Token {
                    offsets: (token.offsets.0 + start, token.offsets.1 + start),
                    ..token
                }),
            );
        }
        Ok(tokens)
    }

    /// Number of ids, gaps included. A model's output may be wider; ids from here on up mean nothing.
    pub fn vocabulary_size(&self) -> usize {
        self.inner.vocabulary.size()
    }

    /// The bytes that `id` stands for, special tokens by their name; `None` where no token has this id. A piece's space
    /// is a space, also at the start of a text.
    pub fn token_bytes(&self, id: TokenId) -> Option<&[u8]> {
        self.inner.vocabulary.bytes(id)
    }

    /// `token_bytes` for the eye: bytes that are no text become U+FFFD.
    pub fn token_text(&self, id: TokenId) -> Option<String> {
        self.token_bytes(id).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    /// The id of a token by the text that the vocabulary lists it under.
    pub fn id_of(&self, text: &str) -> Option<TokenId> {
        self.inner.library.token_to_id(text)
    }

    /// Whether `id` is a control token, which decoding leaves out.
    pub fn is_special(&self, id: TokenId) -> bool {
        self.inner.vocabulary.is_special(id)
    }

    /// All control tokens, ascending.
    pub fn special_ids(&self) -> Vec<TokenId> {
        self.inner.vocabulary.special_ids().collect()
    }

    /// The ids that every raw prompt begins with: the beginning of text, or none.
    pub fn prompt_prefix(&self) -> &[TokenId] {
        &self.inner.ends.prefix
    }

    /// The tokens that have a role, by name.
    pub fn named_tokens(&self) -> &NamedTokens {
        &self.inner.named
    }

    pub(crate) fn vocabulary(&self) -> &Arc<Vocabulary> {
        &self.inner.vocabulary
    }

    pub(crate) fn special_texts(&self) -> &SpecialTexts {
        &self.inner.specials
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Tokenizer")
            .field("vocabulary_size", &self.vocabulary_size())
            .finish_non_exhaustive()
    }
}
