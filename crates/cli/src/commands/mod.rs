//! The commands, a module each; a module holds its own arguments.

pub(crate) mod embed;
pub(crate) mod run;
pub(crate) mod serve;

pub(crate) mod bench;
pub(crate) mod eval;
pub(crate) mod inspect;

pub(crate) mod doctor;
pub(crate) mod models;
pub(crate) mod pull;
pub(crate) mod rm;

use gannet_model::{CanonicalWeights, Model};
use gannet_ops::{Program, TokenId};
use gannet_tensor::Format;
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

/// The format of each weight, in the program's order.
fn weight_formats(program: &Program, weights: &CanonicalWeights<'_>) -> Vec<Format> {
    let format =
        |name: &str| weights.format(name).expect("the program's weights were found in the checkpoint");
    program.weights.iter().map(|used| format(&used.name)).collect()
}
