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
mod pooling;
mod shape;
mod tokens;

mod config;
mod rope;

mod blocks;
mod drafter;
mod forward;
mod layout;

mod canonical;
mod error;
mod model;

pub use canonical::{CanonicalWeights, PassedOver};
pub use config::{
    Activation, AttentionBias, AttentionConfig, DeltaNetConfig, ExpertsConfig, FeedForward, GatedConfig,
    LayerConfig, LayerNorms, Mixer, ModelConfig, PoolingConfig, PositionScale, QueryKeyNorm, RopeIndex,
    SharedExpertConfig,
};
pub use drafter::{
    BlockConfig, CHAIN_CAPTURE, DraftPrograms, Drafter, DrafterKind, FeatureConfig, HIDDEN_CAPTURE,
};
pub use error::ModelError;
pub use families::family_names;
pub use model::{Model, ProgramOptions, recognise, recognise_drafter};
pub use rope::{Llama3, LongRope, OverrideKind, RopeConfig, RopeOverride, RopeScaling, Yarn};
pub use tokens::TokenIds;
