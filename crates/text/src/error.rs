//! Everything that can go wrong between strings and token ids, one variant a fault, each with its facts.
//!
//! Knows no file name: the caller, who opened the file, adds it.

use std::sync::Arc;

use crate::tokenizer::TokenId;

/// What a tokenizer, a chat template or a stop string can be refused for.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    /// The bytes are no JSON.
    #[error("`{file}` is no valid JSON: {source}")]
    NotJson {
        /// Which of the text files.
        file: &'static str,
        /// The parser's complaint, with line and column.
        source: serde_json::Error,
    },
    /// A key holds something else than it should, or nothing.
    #[error("`{key}` is `{found}`, expected {expected}")]
    WrongKey {
        /// The key's path in its file.
        key: String,
        /// The value that is there, shortened; `nothing` where the key is missing.
        found: String,
        /// What the format asks for.
        expected: &'static str,
    },
    /// A kind of tokenizer part that this crate can't reproduce exactly.
    #[error("{part} `{found}` is not supported; supported: {supported}")]
    UnsupportedKind {
        /// Which part: tokenizer model, pre-tokenizer, decoder.
        part: &'static str,
        /// The kind that the file names.
        found: String,
        /// The kinds that would work.
        supported: &'static str,
    },
    /// Two ids with one text.
    #[error("token `{text}` has two ids, {first} and {second}; a vocabulary must be one to one")]
    DuplicateToken {
        /// The text.
        text: String,
        /// The lower id.
        first: TokenId,
        /// The higher id.
        second: TokenId,
    },
    /// Two texts with one id.
    #[error("id {id} belongs to two tokens, `{first}` and `{second}`; a vocabulary must be one to one")]
    DuplicateId {
        /// The id.
        id: TokenId,
        /// The text seen first.
        first: String,
        /// The text seen second.
        second: String,
    },
    /// An id that no token has.
    #[error("`{key}` is {id}, but the vocabulary has {vocabulary_size} tokens")]
    IdOutsideVocabulary {
        /// The key that holds the id.
        key: &'static str,
        /// The id.
        id: TokenId,
        /// Number of tokens.
        vocabulary_size: usize,
    },
    /// Two lists that must be equally long.
    #[error("`{key}` has {found} entries, expected {expected}, one a token")]
    WrongCount {
        /// The list's key.
        key: &'static str,
        /// Its length.
        found: usize,
        /// The number of tokens.
        expected: usize,
    },
    /// A merge that isn't two pieces.
    #[error("merge {index} is `{merge}`, expected two pieces separated by one space")]
    MalformedMerge {
        /// Its place in the list.
        index: usize,
        /// The merge as written.
        merge: String,
    },
    /// A merge of, or into, a piece that the vocabulary lacks.
    #[error("merge {index} joins `{left}` and `{right}`, but `{missing}` is not in the vocabulary")]
    UnknownMergePiece {
        /// Its place in the list.
        index: usize,
        /// The left piece.
        left: String,
        /// The right piece.
        right: String,
        /// The piece that is missing: one of the two or their concatenation.
        missing: String,
    },
    /// An added token whose declared id isn't the one it would get.
    #[error("added token `{text}` declares id {declared}, but it gets id {actual}: ids must be dense")]
    AddedTokenId {
        /// The token.
        text: String,
        /// The id in the file.
        declared: TokenId,
        /// The id that follows from the file's order.
        actual: TokenId,
    },
    /// A precompiled map of characters that leads nowhere.
    #[error("the precompiled map of characters is damaged: {reason}")]
    DamagedMap {
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Bytes that are no SentencePiece model.
    #[error("`tokenizer.model` is no SentencePiece model: {reason} at byte {at}")]
    NotSentencePiece {
        /// Where, from the beginning of the file.
        at: usize,
        /// What is wrong there.
        reason: &'static str,
    },
    /// A line of a tiktoken file that isn't a token and its rank.
    #[error(
        "line {line} of the tiktoken file is `{found}`, expected a token in base64, a space and its rank"
    )]
    MalformedRank {
        /// The line, from 1.
        line: usize,
        /// The line, shortened.
        found: String,
    },
    /// A list, text or number above its named limit.
    #[error("{what} is {found}, above the limit of {limit}")]
    TooLarge {
        /// What was measured, with its unit.
        what: &'static str,
        /// Its size.
        found: usize,
        /// The limit.
        limit: usize,
    },
    /// The tokenizers library refused.
    #[error("the tokenizer {stage} failed: {reason}")]
    Library {
        /// While doing what.
        stage: &'static str,
        /// The library's words.
        reason: String,
    },
    /// A text that the expression which splits it takes too long for.
    #[error("a text of {bytes} bytes can't be split by `{expression}`: {reason}; break long runs in it up")]
    SplitTooHard {
        /// Length of the piece.
        bytes: usize,
        /// The expression, shortened.
        expression: String,
        /// Which limit of the expression engine was reached.
        reason: String,
    },
    /// A chat was asked for, and the model has no template.
    #[error("this model has no chat template; use --raw to give it plain text")]
    NoTemplate,
    /// The model's chat template has a fault, which was found when it was loaded.
    #[error("{0}; use --raw to give the model plain text")]
    UnusableTemplate(Arc<TextError>),
    /// A chat template that is no template.
    #[error("the chat template has a fault in line {line}: {reason}")]
    TemplateSyntax {
        /// Line in the template's source, from 1.
        line: usize,
        /// The parser's words.
        reason: String,
    },
    /// The template called `raise_exception`: it refuses this conversation.
    #[error("the chat template refuses this conversation: {0}")]
    TemplateRaised(String),
    /// The template failed while it ran.
    #[error("the chat template failed in line {line}: {reason}")]
    TemplateFailed {
        /// Line in the template's source, from 1; 0 where unknown.
        line: usize,
        /// The engine's words.
        reason: String,
    },
    /// The template took more work or memory than allowed.
    #[error("the chat template took more than {limit} units of work; it may loop")]
    TemplateFuel {
        /// The limit, `chat::MAX_FUEL`.
        limit: u64,
    },
    /// The last message can't be continued: it says nothing.
    #[error("the last message has no text to continue")]
    NothingToContinue,
    /// The last message can't be continued: the template leaves out or changes what it says.
    #[error("the chat template does not print the last message as it stands, so it can't be continued")]
    ContinuationLost,
    /// The text holds every character that could mark where user text begins.
    #[error("the text uses all {candidates} Unicode noncharacters that could mark special tokens in it")]
    NoFreeMark {
        /// How many marks were tried.
        candidates: usize,
    },
    /// A stop string without text would stop everything.
    #[error("stop string {index} is empty; a stop string needs at least one character")]
    EmptyStop {
        /// Its place in the list.
        index: usize,
    },
}

impl TextError {
    /// A `WrongKey` that shows `found` shortened to a line.
    pub(crate) fn wrong_key(
        key: impl Into<String>,
        found: Option<&serde_json::Value>,
        expected: &'static str,
    ) -> Self {
        Self::WrongKey { key: key.into(), found: found.map_or("nothing".to_owned(), shorten), expected }
    }

    /// Wraps the library's boxed error.
    pub(crate) fn library(stage: &'static str) -> impl Fn(tokenizers::Error) -> Self {
        move |error| Self::Library { stage, reason: error.to_string() }
    }
}

fn shorten(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Array(items) => format!("a list of {}", items.len()),
        serde_json::Value::Object(entries) => format!("an object of {}", entries.len()),
        serde_json::Value::Null
        | serde_json::Value::Bool(_)
        | serde_json::Value::Number(_)
        | serde_json::Value::String(_) => first_characters(&value.to_string()),
    }
}

/// At most 60 characters, for a message.
pub(crate) fn first_characters(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}
