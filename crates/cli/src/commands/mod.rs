//! The commands, a module each; a module holds its own arguments.

pub(crate) mod eval;
pub(crate) mod inspect;
pub(crate) mod run;

use gannet_model::Model;
use gannet_ops::TokenId;
use gannet_text::text::Text;

/// The tokens that end an answer: what the model's files name, and with a tokenizer also what its vocabulary holds.
fn end_token_ids(model: &Model, text: Option<&Text>) -> Vec<TokenId> {
    let listed = &model.tokens.eos;
    match text {
        Some(text) => {
            let listed: Vec<u32> = listed.iter().map(|id| id.0).collect();
            text.tokenizer.end_of_text_ids(&listed).into_iter().map(TokenId).collect()
        }
        None => listed.clone(),
    }
}
