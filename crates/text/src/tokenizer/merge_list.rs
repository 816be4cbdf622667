//! The merges of a byte-pair model, checked while the library looks their pieces up, and named where one is wrong.
//!
//! The library looks for each merge's two pieces and for what they join to, and says which text it didn't find; it panics
//! where the joined text is longer than every piece. So that length is checked here, which takes no look-up, and a flat
//! copy of the texts finds the merge that a refusal is about.
//!
//! Knows no source format.

use tokenizers::models::bpe;

use super::TokenId;
use crate::error::TextError;

/// The texts of all merges, one behind the other.
pub(super) struct MergeList {
    texts: String,
    /// Bytes of the left and the right piece of each.
    lengths: Vec<[usize; 2]>,
}

impl MergeList {
    /// # Errors
    /// `UnknownMergePiece` for a merge into a text that is longer than every piece.
    pub(super) fn checked(
        pieces: &[(String, TokenId)],
        merges: &[(String, String)],
    ) -> Result<Self, TextError> {
        let longest = pieces.iter().map(|(text, _)| text.len()).max().unwrap_or(0);
        let mut list = Self { texts: String::new(), lengths: Vec::with_capacity(merges.len()) };
        for (index, (left, right)) in merges.iter().enumerate() {
            list.texts.push_str(left);
            list.texts.push_str(right);
            list.lengths.push([left.len(), right.len()]);
            if left.len() + right.len() > longest {
                let is_piece = |text: &str| pieces.iter().any(|(piece, _)| piece == text);
                let missing = [left, right].into_iter().find(|text| !is_piece(text));
                let missing = missing.cloned().unwrap_or_else(|| format!("{left}{right}"));
                return Err(unknown(index, left, right, missing));
            }
        }
        Ok(list)
    }

    /// What the library says, with the merge that it means: it stops at the first that needs the missing text.
    pub(super) fn explain(&self, error: tokenizers::Error) -> TextError {
        let Some(bpe::Error::MergeTokenOutOfVocabulary(missing)) = error.downcast_ref() else {
            return TextError::library("model")(error);
        };
        let mut rest = self.texts.as_str();
        for (index, [left, right]) in self.lengths.iter().enumerate() {
            let (joined, after) = rest.split_at(left + right);
            let (left, right) = joined.split_at(*left);
            if [left, right, joined].contains(&missing.as_str()) {
                return unknown(index, left, right, missing.clone());
            }
            rest = after;
        }
        TextError::library("model")(error)
    }
}

fn unknown(index: usize, left: &str, right: &str, missing: String) -> TextError {
    TextError::UnknownMergePiece { index, left: left.to_owned(), right: right.to_owned(), missing }
}
