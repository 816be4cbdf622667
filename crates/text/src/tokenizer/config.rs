//! What tokenizer_config.json adds to tokenizer.json: the tokens that have a role, and the ends of a text.
//!
//! Only the keys named here are read; the file is full of others that concern the Python classes.
//!
//! Knows no chat template: `chat::source` reads that key.

use serde_json::Value;

use super::{TextEnds, TokenId};
use crate::error::TextError;

/// The tokens that have a role, as (variable name in templates, text): `bos_token`, `eos_token`, ...
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NamedTokens {
    /// In the order of the file.
    pub entries: Vec<(String, String)>,
}

impl NamedTokens {
    /// The text of the token with this role.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.entries.iter().find(|(role, _)| role == name).map(|(_, text)| text.as_str())
    }
}

/// The keys of tokenizer_config.json that matter here; the default stands for a missing file.
#[derive(Debug, Clone, Default)]
pub struct TokenizerConfig {
    /// Tokens with a role.
    pub named: NamedTokens,
    /// `add_bos_token`; with `add_eos_token` it overrules tokenizer.json's post-processor, as in transformers.
    pub add_bos: Option<bool>,
    /// `add_eos_token`.
    pub add_eos: Option<bool>,
    /// The file's `chat_template`, as it stands there.
    pub chat_template: Option<Value>,
}

const ROLES: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

impl TokenizerConfig {
    /// Reads a tokenizer_config.json.
    ///
    /// # Errors
    /// `NotJson`, `WrongKey`.
    pub fn from_json(tokenizer_config_json: &[u8]) -> Result<Self, TextError> {
        let root: Value = serde_json::from_slice(tokenizer_config_json)
            .map_err(|source| TextError::NotJson { file: "tokenizer_config.json", source })?;
        let mut config = Self {
            add_bos: flag(&root, "add_bos_token")?,
            add_eos: flag(&root, "add_eos_token")?,
            chat_template: root.get("chat_template").filter(|template| !template.is_null()).cloned(),
            named: NamedTokens::default(),
        };
        for role in ROLES {
            if let Some(text) = token_text(&root, role)? {
                config.named.entries.push((role.to_owned(), text));
            }
        }
        Ok(config)
    }

    /// What to put around a raw prompt, if this file says so; else tokenizer.json's post-processor decides.
    pub(super) fn text_ends(
        &self,
        id_of: impl Fn(&str) -> Option<TokenId>,
    ) -> Result<Option<TextEnds>, TextError> {
        if self.add_bos.is_none() && self.add_eos.is_none() {
            return Ok(None);
        }
        let end = |wanted: Option<bool>, role: &str| match self.named.get(role) {
            Some(text) if wanted == Some(true) => {
                let id = id_of(text).ok_or_else(|| TextError::WrongKey {
                    key: role.to_owned(),
                    found: text.to_owned(),
                    expected: "a token of tokenizer.json",
                })?;
                Ok(vec![id])
            }
            Some(_) | None => Ok(Vec::new()),
        };
        Ok(Some(TextEnds {
            prefix: end(self.add_bos, "bos_token")?,
            suffix: end(self.add_eos, "eos_token")?,
        }))
    }
}

fn flag(root: &Value, key: &str) -> Result<Option<bool>, TextError> {
    match root.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(flag)) => Ok(Some(*flag)),
        Some(other) => Err(TextError::wrong_key(key, Some(other), "true or false")),
    }
}

/// A token is written as its text or as an object with `content`.
fn token_text(root: &Value, key: &str) -> Result<Option<String>, TextError> {
    let Some(value) = root.get(key).filter(|value| !value.is_null()) else {
        return Ok(None);
    };
    let text = value.as_str().or_else(|| value.get("content").and_then(Value::as_str));
    text.map(|text| Some(text.to_owned()))
        .ok_or_else(|| TextError::wrong_key(key, Some(value), "a string or an object with `content`"))
}
