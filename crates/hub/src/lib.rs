//! Model names -> files: the Hugging Face hub's listing, choice of files, download and cache.
//!
//! [`Hub::obtain`] is the whole story: what the cache has, else [`Hub::plan`] (list the repository, choose its files)
//! and [`Hub::fetch`] (bring each file that is missing, check it, link it into the snapshot).
//!
//! The cache is the one that Hugging Face's own tools read and write. Invariants: a file under its final name is whole
//! and has the checksum that names it; a snapshot holds links to such files alone; a branch's name points at a
//! snapshot only once all that was chosen is there; the token goes to the endpoint and nowhere else.
//!
//! Knows no tensor, no tokenizer and no terminal. Everything that a server says is untrusted.

mod cache;
mod choose;
mod client;
mod download;
mod environment;
mod error;
mod hub;
mod listing;
mod model_name;
mod paths;
mod pieces;
mod progress;
mod quant;
mod retry;

pub use cache::CachedModel;
pub use choose::{Choice, ModelFiles, choose};
pub use error::HubError;
pub use hub::{Hub, Located, Plan};
pub use listing::{ContentHash, RepoFile};
pub use model_name::ModelName;
pub use progress::{Phase, Progress, Watch};
pub use quant::quant_label;
pub use retry::Transfer;
