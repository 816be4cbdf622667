//! What tokenizer_config.json adds to tokenizer.json: the tokens that have a role, and the ends of a text.
//!
//! Only the keys named here are read; the file is full of others that concern the Python classes.
//!
//! Knows no chat template: `chat::source` reads that key.

use serde_json::Value;

use super::json::{token_id, with_flags};
use super::{Parts, TextEnds, TokenId};
use crate::error::TextError;
use crate::vocabulary::AddedToken;

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
    /// `tokenizer_class`, which for tiktoken files says how text is split.
    pub class: Option<String>,
    /// `added_tokens_decoder`, for files that hold pieces alone; tokenizer.json has its own list.
    pub(crate) added: Vec<AddedToken>,
}

const ROLES: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

impl TokenizerConfig {
    /// Reads a tokenizer_config.json.
    ///
    /// # Errors
    /// `NotJson`, `WrongKey`.
    pub fn from_json(tokenizer_config_json: &[u8]) -> Result<Self, TextError> {
        let root = gannet_json::from_slice(tokenizer_config_json)
            .map_err(|source| TextError::NotJson { file: "tokenizer_config.json", source })?;
        let mut config = Self {
            add_bos: flag(&root, "add_bos_token")?,
            add_eos: flag(&root, "add_eos_token")?,
            chat_template: root.get("chat_template").filter(|template| !template.is_null()).cloned(),
            named: NamedTokens::default(),
            class: root.get("tokenizer_class").and_then(Value::as_str).map(str::to_owned),
            added: added_tokens(&root)?,
        };
        for role in ROLES {
            if let Some(text) = token_text(&root, role)? {
                config.named.entries.push((role.to_owned(), text));
            }
        }
        Ok(config)
    }

    /// Puts into the parts of a file that knows pieces alone what this file adds: tokens, in the place of the piece with
    /// the same id or behind the pieces, roles, and what goes around a prompt, `by_default` where it doesn't say:
    /// beginning of text, end of text.
    pub(crate) fn extend(&self, parts: &mut Parts, by_default: [bool; 2]) -> Result<(), TextError> {
        for added in &self.added {
            if let Some((piece, _)) = parts.vocabulary.get_mut(added.id as usize) {
                piece.clone_from(&added.token.content);
            }
            parts.added.retain(|other| other.id != added.id);
            parts.added.push(added.clone());
        }
        for (role, text) in &self.named.entries {
            parts.named.entries.retain(|(other, _)| other != role);
            parts.named.entries.push((role.clone(), text.clone()));
        }
        let named = Self { named: parts.named.clone(), ..self.clone() };
        let [add_bos, add_eos] = by_default;
        let certain = Self {
            add_bos: self.add_bos.or(Some(add_bos)),
            add_eos: self.add_eos.or(Some(add_eos)),
            ..named
        };
        parts.ends = certain.text_ends(|text| parts.id_of(text))?;
        Ok(())
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

fn added_tokens(root: &Value) -> Result<Vec<AddedToken>, TextError> {
    let Some(list) = root.get("added_tokens_decoder").filter(|list| !list.is_null()) else {
        return Ok(Vec::new());
    };
    let list = list.as_object().ok_or_else(|| {
        TextError::wrong_key("added_tokens_decoder", Some(list), "an object of id to token")
    })?;
    let entries = list.iter().map(|(key, entry)| {
        let id = key.parse::<u64>().ok().and_then(|id| token_id(&Value::from(id)));
        let content = entry.get("content").and_then(Value::as_str).filter(|content| !content.is_empty());
        match (id, content) {
            (Some(id), Some(content)) => Ok(AddedToken { id, token: with_flags(content.to_owned(), entry) }),
            _ => {
                let expected = "an id below 4194304 and a token with `content`";
                Err(TextError::wrong_key(format!("added_tokens_decoder.{key}"), Some(entry), expected))
            }
        }
    });
    entries.collect()
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
