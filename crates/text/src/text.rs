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

/// The text files of a Hugging Face directory, as bytes; only the first must be there.
#[derive(Debug, Clone, Copy)]
pub struct TextFiles<'a> {
    /// tokenizer.json
    pub tokenizer: &'a [u8],
    /// tokenizer_config.json
    pub tokenizer_config: Option<&'a [u8]>,
    /// chat_template.jinja, which goes before a template in tokenizer_config.json
    pub chat_template: Option<&'a [u8]>,
}

impl Text {
    /// Loads the text side of a Hugging Face directory.
    ///
    /// # Errors
    /// As `Tokenizer::from_json`, `TokenizerConfig::from_json` and `ChatTemplate::new`.
    pub fn from_files(files: &TextFiles<'_>) -> Result<Self, TextError> {
        let config = files.tokenizer_config.map(TokenizerConfig::from_json).transpose()?.unwrap_or_default();
        let tokenizer = Tokenizer::from_json(files.tokenizer, &config)?;
        let sources = match (files.chat_template, &config.chat_template) {
            (Some(file), _) => Some(TemplateSources { plain: chat::from_file(file)?, for_tools: None }),
            (None, Some(entry)) => Some(chat::from_config(entry)?),
            (None, None) => None,
        };
        Self::with_templates(tokenizer, sources)
    }

    /// Loads the text side of a GGUF file; `chat_template` is its `tokenizer.chat_template`.
    ///
    /// # Errors
    /// As `gguf::tokenizer` and `ChatTemplate::new`.
    pub fn from_gguf(vocabulary: GgufVocabulary, chat_template: Option<&str>) -> Result<Self, TextError> {
        let sources = chat_template.map(|plain| TemplateSources { plain: plain.to_owned(), for_tools: None });
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
