//! From a model's files to its forward pass: config.json or GGUF metadata -> [`ModelConfig`] -> `Program`.
//!
//! [`recognise`] finds the family and fills the config; [`Model::program`] writes the program from blocks;
//! [`Model::weights`] gives the checkpoint's tensors their canonical names and form. A family is a table in
//! `families` and holds no op; a block is code in `blocks` and knows no family.
//!
//! Knows no device, no request and no text.

mod families;
mod keys;
mod limits;
mod names;
mod shape;
mod tokens;

mod config;
mod rope;

mod blocks;
mod forward;
mod layout;

mod canonical;
mod error;
mod model;

pub use canonical::CanonicalWeights;
pub use config::{
    Activation, AttentionBias, AttentionConfig, FeedForward, GatedConfig, LayerConfig, Mixer, ModelConfig,
    RopeIndex,
};
pub use error::ModelError;
pub use model::{Model, ProgramOptions, recognise};
pub use rope::{Llama3, LongRope, RopeConfig, RopeScaling, Yarn};
pub use tokens::TokenIds;
