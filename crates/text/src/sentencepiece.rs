//! tokenizer.model: a SentencePiece model, BPE or Unigram.
//!
//! Its pieces, scores and normaliser's settings become the lists of `crate::gguf`, which took its kinds from here; so
//! both ways meet in one tokenizer. Tokens that tokenizer_config.json adds behind the pieces come along. Field numbers
//! and defaults: SentencePiece's `sentencepiece_model.proto`.
//!
//! Knows no merges: they follow from the scores.

mod protobuf;

use crate::error::{TextError, first_characters};
use crate::gguf::{self, GgufVocabulary};
use crate::tokenizer::{Kind, TokenId, Tokenizer, TokenizerConfig};
use crate::vocabulary::{MAX_TOKEN_BYTES, MAX_VOCABULARY};
use protobuf::{FieldValue, Fields, Malformed};

/// Largest tokenizer.model; those of the largest public models have 5 MB.
const MAX_MODEL_BYTES: usize = 1 << 26;

impl Tokenizer {
    /// Reads a tokenizer.model and what tokenizer_config.json adds to it. Where that doesn't say what goes around a
    /// prompt, BPE models get their beginning of text and Unigram models their end, as Llama 2 and T5 do.
    ///
    /// # Errors
    /// `NotSentencePiece` for bytes that are no such model; a kind other than BPE and Unigram; and all that
    /// `gguf::tokenizer` refuses.
    pub fn from_sentencepiece(model: &[u8], config: &TokenizerConfig) -> Result<Self, TextError> {
        let mut parts = gguf::parts(vocabulary(model)?)?;
        let by_default = match parts.kind {
            Kind::Bpe { .. } => [true, false],
            Kind::Unigram { .. } | Kind::WordPiece => [false, true],
        };
        config.extend(&mut parts, by_default)?;
        Self::assemble(parts)
    }
}

/// The settings of a model that its fields may change, with the format's defaults.
struct Settings {
    model_type: u64,
    whitespace_as_suffix: bool,
    unknown: i64,
    bos: i64,
    eos: i64,
    padding: i64,
    charsmap: Vec<u8>,
    dummy_prefix: bool,
    remove_extra_whitespaces: bool,
    escape_whitespaces: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            model_type: 1,
            whitespace_as_suffix: false,
            unknown: 0,
            bos: 1,
            eos: 2,
            padding: -1,
            charsmap: Vec::new(),
            dummy_prefix: true,
            remove_extra_whitespaces: true,
            escape_whitespaces: true,
        }
    }
}

fn vocabulary(model: &[u8]) -> Result<GgufVocabulary, TextError> {
    if model.len() > MAX_MODEL_BYTES {
        let (found, limit) = (model.len(), MAX_MODEL_BYTES);
        return Err(TextError::TooLarge { what: "the length of tokenizer.model in bytes", found, limit });
    }
    let mut settings = Settings::default();
    let mut pieces = GgufVocabulary::default();
    for field in Fields::new(model, 0) {
        let field = field.map_err(malformed)?;
        match (field.number, field.value) {
            (1, FieldValue::Bytes { bytes, at }) => add_piece(&mut pieces, Fields::new(bytes, at), at)?,
            (2, FieldValue::Bytes { bytes, at }) => read_trainer(&mut settings, Fields::new(bytes, at))?,
            (3, FieldValue::Bytes { bytes, at }) => read_normalizer(&mut settings, Fields::new(bytes, at))?,
            _ => {}
        }
    }
    if pieces.tokens.is_empty() {
        return Err(malformed(Malformed { at: model.len(), reason: "there is no piece" }));
    }
    with_settings(pieces, settings)
}

fn malformed(fault: Malformed) -> TextError {
    TextError::NotSentencePiece { at: fault.at, reason: fault.reason }
}

fn add_piece(pieces: &mut GgufVocabulary, fields: Fields<'_>, at: usize) -> Result<(), TextError> {
    let (mut text, mut score, mut kind) = (None, 0.0, 1);
    for field in fields {
        let field = field.map_err(malformed)?;
        match (field.number, field.value) {
            (1, FieldValue::Bytes { bytes, at }) => {
                let valid = std::str::from_utf8(bytes);
                text = Some(valid.map_err(|_| malformed(Malformed { at, reason: "a piece is no UTF-8" }))?);
            }
            (2, FieldValue::Fixed32(bytes)) => score = f32::from_le_bytes(bytes),
            (3, FieldValue::Varint(number)) => kind = i32::try_from(number).unwrap_or(-1),
            _ => {}
        }
    }
    let text = text.ok_or(malformed(Malformed { at, reason: "a piece has no text" }))?;
    if text.len() > MAX_TOKEN_BYTES {
        let (found, limit) = (text.len(), MAX_TOKEN_BYTES);
        return Err(TextError::TooLarge { what: "a token's length in bytes", found, limit });
    }
    if pieces.tokens.len() == MAX_VOCABULARY {
        let (found, limit) = (MAX_VOCABULARY + 1, MAX_VOCABULARY);
        return Err(TextError::TooLarge { what: "the number of tokens", found, limit });
    }
    pieces.tokens.push(text.to_owned());
    pieces.scores.push(score);
    pieces.token_types.push(kind);
    Ok(())
}

fn read_trainer(settings: &mut Settings, fields: Fields<'_>) -> Result<(), TextError> {
    for field in fields {
        let field = field.map_err(malformed)?;
        let FieldValue::Varint(number) = field.value else {
            continue;
        };
        match field.number {
            3 => settings.model_type = number,
            24 => settings.whitespace_as_suffix = number != 0,
            40 => settings.unknown = number as i64,
            41 => settings.bos = number as i64,
            42 => settings.eos = number as i64,
            43 => settings.padding = number as i64,
            _ => {}
        }
    }
    Ok(())
}

fn read_normalizer(settings: &mut Settings, fields: Fields<'_>) -> Result<(), TextError> {
    for field in fields {
        let field = field.map_err(malformed)?;
        match (field.number, field.value) {
            (2, FieldValue::Bytes { bytes, .. }) => settings.charsmap = bytes.to_vec(),
            (3, FieldValue::Varint(number)) => settings.dummy_prefix = number != 0,
            (4, FieldValue::Varint(number)) => settings.remove_extra_whitespaces = number != 0,
            (5, FieldValue::Varint(number)) => settings.escape_whitespaces = number != 0,
            _ => {}
        }
    }
    Ok(())
}

fn with_settings(pieces: GgufVocabulary, settings: Settings) -> Result<GgufVocabulary, TextError> {
    let unsupported = |part: &'static str, found: &str, supported: &'static str| TextError::UnsupportedKind {
        part,
        found: first_characters(found),
        supported,
    };
    let model = match settings.model_type {
        1 => "t5",
        2 => "llama",
        other => {
            let part = "tokenizer.model's model_type";
            return Err(unsupported(part, &other.to_string(), "1 (unigram), 2 (bpe)"));
        }
    };
    if settings.whitespace_as_suffix {
        return Err(unsupported("tokenizer.model's treat_whitespace_as_suffix", "true", "false"));
    }
    if !settings.escape_whitespaces {
        return Err(unsupported("tokenizer.model's escape_whitespaces", "false", "true"));
    }
    // A negative id, or one outside the model, means that there is no such token.
    let known = |id: i64| TokenId::try_from(id).ok().filter(|&id| (id as usize) < pieces.tokens.len());
    let (unknown, bos, eos) = (known(settings.unknown), known(settings.bos), known(settings.eos));
    Ok(GgufVocabulary {
        model: model.to_owned(),
        unknown,
        bos,
        eos,
        padding: known(settings.padding),
        add_bos: Some(false),
        add_eos: Some(false),
        add_space_prefix: Some(settings.dummy_prefix),
        remove_extra_whitespaces: Some(settings.remove_extra_whitespaces),
        precompiled_charsmap: settings.charsmap,
        ..pieces
    })
}
