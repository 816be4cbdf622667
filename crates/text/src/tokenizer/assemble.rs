//! Checks the parts of a tokenizer and joins them into one that works.
//!
//! Whatever the source, these hold afterwards: text and id are one to one, an added token has the id that its source
//! declares, and a model that could find control tokens in plain text is known as such. The passes that fill the vocabulary
//! and the model see each text, id and merge once anyway, so they are where those are checked.
//!
//! Knows no source format.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::config::NamedTokens;
use super::splitting::Splitting;
use super::{Inner, Kind, TokenId, model, parts, post_processor, spelling};
use crate::error::TextError;
use crate::special::SpecialTexts;
use crate::vocabulary::{AddedToken, Vocabulary};

/// A tokenizer in parts.
pub(crate) struct Parts {
    /// tokenizer.json without what the other fields hold; `model` has the options alone.
    pub(crate) skeleton: Map<String, Value>,
    /// The model's own pieces.
    pub(crate) vocabulary: Vec<(String, TokenId)>,
    /// How the model splits a word, and its lists.
    pub(crate) kind: Kind,
    /// Tokens found in the text before the model sees it.
    pub(crate) added: Vec<AddedToken>,
    /// What goes around a raw prompt; `None`: the skeleton's post-processor knows.
    pub(crate) ends: Option<TextEnds>,
    /// Tokens with a role.
    pub(crate) named: NamedTokens,
}

impl Parts {
    /// The id of an added token or a piece.
    pub(crate) fn id_of(&self, text: &str) -> Option<TokenId> {
        let added = self.added.iter().find(|added| added.token.content == text).map(|added| added.id);
        added.or_else(|| self.vocabulary.iter().find(|(piece, _)| piece == text).map(|(_, id)| *id))
    }
}

/// The ids that the tokenizer puts around a raw prompt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TextEnds {
    pub(crate) prefix: Vec<TokenId>,
    pub(crate) suffix: Vec<TokenId>,
}

pub(super) fn assemble(from: Parts) -> Result<Inner, TextError> {
    let Parts { mut skeleton, vocabulary: pieces, kind, added, ends, named } = from;
    parts::check(&mut skeleton)?;
    let spelling = spelling::of_decoder(&skeleton)?;
    let vocabulary = Vocabulary::new(spelling, &pieces, &added)?;
    let specials = SpecialTexts::new(
        added.iter().filter(|added| added.token.special).map(|added| added.token.content.as_str()),
    );

    let options = take_options(&mut skeleton);
    let post_processor = skeleton.remove("post_processor");
    let splitting = take_splitting(&mut skeleton)?;
    let whole_words = options.get("ignore_merges") == Some(&Value::Bool(true));
    let finds_specials = whole_words || matches!(kind, Kind::Unigram { .. });
    let mut library: tokenizers::Tokenizer =
        serde_json::from_value(Value::Object(skeleton)).map_err(unusable)?;
    library.with_model(model::build(kind, &options, pieces)?);
    add_tokens(&mut library, added)?;
    let ends = match ends {
        Some(ends) => ends,
        None => post_processor::ends(post_processor.as_ref(), vocabulary.size())?,
    };
    Ok(Inner { library, splitting, vocabulary: Arc::new(vocabulary), specials, finds_specials, ends, named })
}

/// Leaves an empty model in the skeleton, for the real one to replace.
fn take_options(skeleton: &mut Map<String, Value>) -> Map<String, Value> {
    let empty = json!({"type": "BPE", "vocab": {}, "merges": []});
    match skeleton.insert("model".to_owned(), empty) {
        Some(Value::Object(options)) => options,
        Some(_) | None => Map::new(),
    }
}

/// Takes the pre-tokenizer out of the skeleton, so that the library doesn't build it again.
fn take_splitting(skeleton: &mut Map<String, Value>) -> Result<Option<Splitting>, TextError> {
    match skeleton.insert("pre_tokenizer".to_owned(), Value::Null) {
        None | Some(Value::Null) => Ok(None),
        Some(pre_tokenizer) => {
            Splitting::new(serde_json::from_value(pre_tokenizer).map_err(unusable)?).map(Some)
        }
    }
}

fn unusable(error: serde_json::Error) -> TextError {
    TextError::Library { stage: "configuration", reason: error.to_string() }
}

fn add_tokens(library: &mut tokenizers::Tokenizer, mut added: Vec<AddedToken>) -> Result<(), TextError> {
    added.sort_by_key(|added| added.id);
    let declared: Vec<(String, TokenId)> =
        added.iter().map(|added| (added.token.content.clone(), added.id)).collect();
    let tokens: Vec<_> = added.into_iter().map(|added| added.token).collect();
    library.add_tokens(tokens).map_err(TextError::library("added tokens"))?;
    for (text, declared) in declared {
        let actual = library.token_to_id(&text).expect("each added token was just added");
        if actual != declared {
            return Err(TextError::AddedTokenId { text, declared, actual });
        }
    }
    Ok(())
}
