//! A model's whole text side: its tokenizer and, if it has one, its chat template.
//!
//! Knows no file: the loader reads bytes, or metadata, and hands them over.

use crate::chat::{self, ChatTemplate, TemplateSources};
use crate::error::TextError;
use crate::gguf::{self, GgufVocabulary};
use crate::tokenizer::{Tokenizer, TokenizerConfig};

/// Tokenizer and chat template of one model.
#[derive(Debug, Clone)]
pub struct Text {
    /// Text to ids and back.
    pub tokenizer: Tokenizer,
    /// Conversations to text; base models have none.
    pub template: Option<ChatTemplate>,
    /// Used instead where there are tools; few models have it.
    pub tool_template: Option<ChatTemplate>,
}

/// The chat templates of a GGUF file.
#[derive(Debug, Clone, Copy, Default)]
pub struct GgufTemplates<'a> {
    /// `tokenizer.chat_template`
    pub plain: Option<&'a str>,
    /// `tokenizer.chat_template.default`, in files that have only named ones
    pub default: Option<&'a str>,
    /// `tokenizer.chat_template.tool_use`
    pub tool_use: Option<&'a str>,
}

/// The file that holds a Hugging Face directory's vocabulary, by its kind.
#[derive(Debug, Clone, Copy)]
pub enum TokenizerFile<'a> {
    /// tokenizer.json
    Json(&'a [u8]),
    /// tokenizer.model: a SentencePiece model, or tiktoken lines under that name
    Model(&'a [u8]),
    /// `*.tiktoken` or tiktoken.model
    Tiktoken(&'a [u8]),
}

/// The text files of a Hugging Face directory, as bytes; only the first must be there.
#[derive(Debug, Clone, Copy)]
pub struct TextFiles<'a> {
    /// The vocabulary. Where there are several, tokenizer.json goes before the others.
    pub tokenizer: TokenizerFile<'a>,
    /// tokenizer_config.json
    pub tokenizer_config: Option<&'a [u8]>,
    /// chat_template.jinja, which goes before a template in tokenizer_config.json
    pub chat_template: Option<&'a [u8]>,
}

impl Text {
    /// Loads the text side of a Hugging Face directory.
    ///
    /// # Errors
    /// As the `Tokenizer`'s constructors, `TokenizerConfig::from_json` and `ChatTemplate::new`.
    pub fn from_files(files: &TextFiles<'_>) -> Result<Self, TextError> {
        let config = files.tokenizer_config.map(TokenizerConfig::from_json).transpose()?.unwrap_or_default();
        let tokenizer = match files.tokenizer {
            TokenizerFile::Json(json) => Tokenizer::from_json(json, &config)?,
            TokenizerFile::Model(lines) if Tokenizer::is_tiktoken(lines) => {
                Tokenizer::from_tiktoken(lines, &config)?
            }
            TokenizerFile::Model(model) => Tokenizer::from_sentencepiece(model, &config)?,
            TokenizerFile::Tiktoken(lines) => Tokenizer::from_tiktoken(lines, &config)?,
        };
        let sources = match (files.chat_template, &config.chat_template) {
            (Some(file), _) => Some(TemplateSources { plain: chat::from_file(file)?, for_tools: None }),
            (None, Some(entry)) => Some(chat::from_config(entry)?),
            (None, None) => None,
        };
        Self::with_templates(tokenizer, sources)
    }

    /// Loads the text side of a GGUF file.
    ///
    /// # Errors
    /// As `gguf::tokenizer` and `ChatTemplate::new`.
    pub fn from_gguf(vocabulary: GgufVocabulary, templates: GgufTemplates<'_>) -> Result<Self, TextError> {
        let for_tools = templates.tool_use.map(str::to_owned);
        // Few files have a template for tools alone, but it is one.
        let plain = templates.plain.or(templates.default).or(templates.tool_use);
        let sources = plain.map(|plain| TemplateSources { plain: plain.to_owned(), for_tools });
        Self::with_templates(gguf::tokenizer(vocabulary)?, sources)
    }

    /// The chat template for a conversation with these tools, or none.
    ///
    /// # Errors
    /// `NoTemplate`, which says what to do without one.
    pub fn require_template(&self, tools: &[serde_json::Value]) -> Result<&ChatTemplate, TextError> {
        let for_tools = self.tool_template.as_ref().filter(|_| !tools.is_empty());
        for_tools.or(self.template.as_ref()).ok_or(TextError::NoTemplate)
    }

    fn with_templates(tokenizer: Tokenizer, sources: Option<TemplateSources>) -> Result<Self, TextError> {
        let template = |source: &str| ChatTemplate::new(source, &tokenizer);
        let plain = sources.as_ref().map(|sources| template(&sources.plain)).transpose()?;
        let for_tools = sources.as_ref().and_then(|sources| sources.for_tools.as_deref());
        let tool_template = for_tools.map(template).transpose()?;
        Ok(Self { template: plain, tool_template, tokenizer })
    }
}
