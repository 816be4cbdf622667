//! Where a chat template is written: a file of its own, tokenizer_config.json, or GGUF metadata (a plain string).
//!
//! Knows no Jinja.

use serde_json::Value;

use crate::error::TextError;

/// The template in chat_template.jinja.
///
/// # Errors
/// `WrongKey` for bytes that are no text.
pub fn from_file(chat_template_jinja: &[u8]) -> Result<String, TextError> {
    let text = std::str::from_utf8(chat_template_jinja);
    text.map(str::to_owned).map_err(|error| TextError::WrongKey {
        key: "chat_template.jinja".to_owned(),
        found: format!("bytes that stop being text at {}", error.valid_up_to()),
        expected: "UTF-8 text",
    })
}

/// The templates of a model that has one for conversations with tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateSources {
    /// The template to use.
    pub plain: String,
    /// The one to use instead when there are tools.
    pub for_tools: Option<String>,
}

/// The templates in tokenizer_config.json's `chat_template`: a string, or a list of `{"name", "template"}` with one
/// named `default` and maybe one named `tool_use`.
///
/// # Errors
/// `WrongKey` for another shape or a list without a default.
pub fn from_config(chat_template: &Value) -> Result<TemplateSources, TextError> {
    let named = |wanted: &str| {
        let entries = chat_template.as_array()?;
        let entry = entries.iter().find(|entry| entry.get("name").and_then(Value::as_str) == Some(wanted))?;
        entry.get("template").and_then(Value::as_str).map(str::to_owned)
    };
    let plain = chat_template.as_str().map(str::to_owned).or_else(|| named("default"));
    let plain = plain.ok_or_else(|| {
        let expected = "a string, or a list with a template named `default`";
        TextError::wrong_key("chat_template", Some(chat_template), expected)
    })?;
    Ok(TemplateSources { plain, for_tools: named("tool_use") })
}
