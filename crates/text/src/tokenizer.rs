//! A tokenizer: text to token ids, and what each id stands for.
//!
//! One type over every source. `json` takes a Hugging Face tokenizer.json apart, `crate::gguf` builds the same parts
//! from GGUF metadata, and `assemble` checks and joins them; so there is one path, and one set of checks, to a working
//! tokenizer. Encoding is the `tokenizers` crate's, the reference behaviour of tokenizer.json files; it stays hidden
//! in here. Text that must not speak special tokens carries seams (see `special`).
//!
//! Invariant: every id that encoding returns is below `vocabulary_size`.
//!
//! Knows no file name, no template and no model.

mod assemble;
mod config;
mod end;
mod json;
mod parts;

use std::fmt;
use std::sync::Arc;

use tokenizers::{Model, OffsetType, PreTokenizer};

use crate::chat::Rendered;
use crate::error::TextError;
use crate::special::{self, SpecialTexts};
use crate::vocabulary::Vocabulary;

pub(crate) use assemble::{Parts, TextEnds, check_merges};
pub use config::{NamedTokens, TokenizerConfig};
pub(crate) use json::split_merge;

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
    library: tokenizers::Tokenizer,
    vocabulary: Arc<Vocabulary>,
    specials: SpecialTexts,
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
    /// `NoFreeMark` for text that holds every noncharacter, `Library` for text that the model's own parts can't handle.
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

    /// The ids of a rendered chat. Special tokens are parsed in the template's own text, never in what the messages
    /// said. Templates that need a beginning of text print it; where the tokenizer adds one and the template printed
    /// none, it is added here, so there is exactly one.
    ///
    /// # Errors
    /// As `encode`.
    pub fn encode_chat(&self, chat: &Rendered) -> Result<Vec<TokenId>, TextError> {
        let ids = self.encode_with_seams(&chat.text, &chat.seams)?;
        let prefix = &self.inner.ends.prefix;
        if ids.starts_with(prefix) { Ok(ids) } else { Ok([prefix.as_slice(), &ids].concat()) }
    }

    fn encode_with_seams(&self, text: &str, seams: &[usize]) -> Result<Vec<TokenId>, TextError> {
        let library = &self.inner.library;
        if seams.is_empty() {
            let encoding = library.encode_fast(text, false).map_err(TextError::library("encoding"))?;
            return Ok(encoding.get_ids().to_vec());
        }
        let mark = special::free_mark([text])?;
        let marked = special::insert_marks(text, seams, mark);
        self.encode_marked(&marked, mark).map_err(TextError::library("encoding"))
    }

    /// The library's own pipeline, with one step between finding added tokens and splitting the rest: the marks, which
    /// kept lookalikes from being found, are taken out.
    fn encode_marked(&self, marked: &str, mark: char) -> tokenizers::Result<Vec<TokenId>> {
        let library = &self.inner.library;
        let found = library.get_added_vocabulary();
        let mut pieces = found.extract_and_normalize(library.get_normalizer(), marked);
        pieces.normalize(|piece| {
            piece.filter(|letter| letter != mark);
            Ok(())
        })?;
        if let Some(pre_tokenizer) = library.get_pre_tokenizer() {
            pre_tokenizer.pre_tokenize(&mut pieces)?;
        }
        pieces.tokenize(|piece| library.get_model().tokenize(piece.get()))?;
        Ok(pieces.into_encoding(None, 0, OffsetType::None)?.get_ids().to_vec())
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
