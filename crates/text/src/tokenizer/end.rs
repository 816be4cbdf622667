//! Which tokens end an answer.
//!
//! A model may end its turn with another token than it ends a text with, and files are often silent about the first: so
//! the answer is the union of what generation_config.json lists, the tokenizer's own end of text, and the special tokens
//! that end a turn by convention.
//!
//! Knows no model: the caller reads generation_config.json.

use super::{TokenId, Tokenizer};

/// Special tokens that end a turn or a text in every public vocabulary that has them.
const TURN_ENDS: [&str; 14] = [
    "<|im_end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|eot|>",
    "<end_of_turn>",
    "<turn|>",
    "<|return|>",
    "<|call|>",
    "<|end_of_turn|>",
    "<|END_OF_TURN_TOKEN|>",
    "<｜end▁of▁sentence｜>",
    "<eos>",
];
/// Ends a turn, but only a message in the vocabularies that have `<|return|>` as well.
const MESSAGE_END: &str = "<|end|>";

impl Tokenizer {
    /// The ids that end an answer, ascending: `listed` (generation_config.json's `eos_token_id`, one or many, or the
    /// GGUF's), the tokenizer's `eos_token` and `eot_token`, and the special tokens that end a turn by convention.
    pub fn end_of_text_ids(&self, listed: &[TokenId]) -> Vec<TokenId> {
        let own = ["eos_token", "eot_token"].into_iter().filter_map(|role| self.named_tokens().get(role));
        let message_end = self.id_of("<|return|>").is_none().then_some(MESSAGE_END);
        let conventional = TURN_ENDS.into_iter().chain(message_end);
        let conventional = conventional.filter_map(|text| self.id_of(text)).filter(|&id| self.is_special(id));
        let mut ids: Vec<TokenId> = own.filter_map(|text| self.id_of(text)).chain(conventional).collect();
        ids.extend_from_slice(listed);
        ids.sort_unstable();
        ids.dedup();
        ids
    }
}
