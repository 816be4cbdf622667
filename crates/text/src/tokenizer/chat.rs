//! The ids of a rendered chat, and where its parts end among them.
//!
//! A boundary in the text is one among the ids where an added token begins or ends just there: added tokens are found
//! before all else, so what is on one side can't change the ids on the other. Elsewhere it is one if the text up to it,
//! encoded alone, gives the first ids of the whole; if not, a token lies across it, and it is left out.
//!
//! Knows no template.

use std::collections::HashMap;

use tokenizers::{Encoding, OffsetType};

use super::{TokenId, Tokenizer};
use crate::chat::{Part, Rendered};
use crate::error::TextError;

/// A chat as ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedChat {
    /// All ids, the beginning of text included.
    pub ids: Vec<TokenId>,
    /// Where parts of the chat end, ascending; those that no id ends at are left out.
    pub boundaries: Vec<TokenBoundary>,
}

/// Where a part of a chat ends among its ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenBoundary {
    /// What ends there.
    pub part: Part,
    /// Number of ids up to there.
    pub tokens: usize,
}

impl Tokenizer {
    /// The ids of a rendered chat. Special tokens are parsed in the template's own text, never in what the messages
    /// said. Templates that need a beginning of text print it; where the tokenizer adds one and the template printed
    /// none, it is added here, so there is exactly one.
    ///
    /// # Errors
    /// As `encode`.
    pub fn encode_chat(&self, chat: &Rendered) -> Result<Vec<TokenId>, TextError> {
        let ids = self.encode_with_seams(&chat.text, &chat.seams)?;
        Ok([self.missing_prefix(&ids), &ids].concat())
    }

    /// The same ids, and the chat's boundaries among them.
    ///
    /// # Errors
    /// As `encode`.
    pub fn encode_chat_with_boundaries(&self, chat: &Rendered) -> Result<EncodedChat, TextError> {
        let encoding = self.encoding(&chat.text, &chat.seams, OffsetType::Byte)?;
        let ids = encoding.get_ids();
        let prefix = self.missing_prefix(ids);
        let edges = self.edges(&encoding, chat);
        let mut boundaries = Vec::with_capacity(chat.boundaries.len());
        for boundary in &chat.boundaries {
            let tokens = match edges.get(&boundary.byte) {
                Some(&tokens) => Some(tokens),
                None => self.tokens_up_to(chat, boundary.byte, ids)?,
            };
            let part = boundary.part;
            boundaries.extend(tokens.map(|tokens| TokenBoundary { part, tokens: prefix.len() + tokens }));
        }
        Ok(EncodedChat { ids: [prefix, ids].concat(), boundaries })
    }

    /// The beginning of text, unless `ids` begin with it.
    fn missing_prefix(&self, ids: &[TokenId]) -> &[TokenId] {
        let prefix = self.prompt_prefix();
        if ids.starts_with(prefix) { &[] } else { prefix }
    }

    /// Where added tokens begin and end: byte in the text -> ids before it.
    fn edges(&self, encoding: &Encoding, chat: &Rendered) -> HashMap<usize, usize> {
        let added = self.inner.library.get_added_vocabulary().get_added_tokens_decoder();
        let mut edges = HashMap::new();
        for (index, (id, (start, end))) in encoding.get_ids().iter().zip(encoding.get_offsets()).enumerate() {
            let Some(token) = added.get(id) else {
                continue;
            };
            let (start, end) = (chat.without_marks(*start), chat.without_marks(*end));
            // What a seam lies in isn't spoken: the model found it in plain text.
            let cut = chat.seams.iter().any(|&seam| start < seam && seam < end);
            if !cut && chat.text.get(start..end) == Some(token.content.as_str()) {
                edges.insert(start, index);
                edges.insert(end, index + 1);
            }
        }
        edges
    }

    fn tokens_up_to(
        &self,
        chat: &Rendered,
        byte: usize,
        ids: &[TokenId],
    ) -> Result<Option<usize>, TextError> {
        let seams = &chat.seams[..chat.seams.partition_point(|&seam| seam <= byte)];
        let first = self.encode_with_seams(&chat.text[..byte], seams)?;
        Ok(ids.starts_with(&first).then_some(first.len()))
    }
}
