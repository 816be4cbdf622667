//! A model's whole text side: its tokenizer and, if it has one, its chat template.
//!
//! Knows no file: the loader reads bytes, or metadata, and hands them over.

use std::sync::Arc;

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
    /// Why a template that the model has can't be used. All that needs no template works without.
    pub template_fault: Option<Arc<TextError>>,
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
    /// As the `Tokenizer`'s constructors and `TokenizerConfig::from_json`.
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
            (Some(file), _) => {
                chat::from_file(file).map(|plain| TemplateSources { plain, for_tools: None }).map(Some)
            }
            (None, Some(entry)) => chat::from_config(entry).map(Some),
            (None, None) => Ok(None),
        };
        Ok(Self::with_templates(tokenizer, sources))
    }

    /// Loads the text side of a GGUF file.
    ///
    /// # Errors
    /// As `gguf::tokenizer`.
    pub fn from_gguf(vocabulary: GgufVocabulary, templates: GgufTemplates<'_>) -> Result<Self, TextError> {
        let for_tools = templates.tool_use.map(str::to_owned);
        // Few files have a template for tools alone, but it is one.
        let plain = templates.plain.or(templates.default).or(templates.tool_use);
        let sources = plain.map(|plain| TemplateSources { plain: plain.to_owned(), for_tools });
        Ok(Self::with_templates(gguf::tokenizer(vocabulary)?, Ok(sources)))
    }

    /// The chat template for a conversation with these tools, or none.
    ///
    /// # Errors
    /// `NoTemplate`, which says what to do without one, or what is wrong with the template that there is.
    pub fn require_template(&self, tools: &[serde_json::Value]) -> Result<&ChatTemplate, TextError> {
        let for_tools = self.tool_template.as_ref().filter(|_| !tools.is_empty());
        let fault = self.template_fault.as_ref().filter(|_| self.template.is_none() || !tools.is_empty());
        match (fault, for_tools.or(self.template.as_ref())) {
            (Some(fault), _) => Err(TextError::UnusableTemplate(fault.clone())),
            (None, template) => template.ok_or(TextError::NoTemplate),
        }
    }

    fn with_templates(tokenizer: Tokenizer, sources: Result<Option<TemplateSources>, TextError>) -> Self {
        let mut text = Self { tokenizer, template: None, tool_template: None, template_fault: None };
        text.template_fault = sources.and_then(|sources| text.read_templates(sources)).err().map(Arc::new);
        text
    }

    fn read_templates(&mut self, sources: Option<TemplateSources>) -> Result<(), TextError> {
        if let Some(TemplateSources { plain, for_tools }) = sources {
            self.template = Some(ChatTemplate::new(&plain, &self.tokenizer)?);
            let for_tools = for_tools.map(|source| ChatTemplate::new(&source, &self.tokenizer));
            self.tool_template = for_tools.transpose()?;
        }
        Ok(())
    }
}
