//! Model files as bytes, shapes and metadata: GGUF, safetensors, and Hugging Face directories of them.
//!
//! [`Checkpoint::open`] is the way in: it maps the files, checks every length, offset and count in them against the
//! bytes that are there, and then hands out tensors as slices of the mapping, without a copy. Weights that a file holds
//! in parts (codes, scales, zeros) or in another byte order are put together when their bytes are asked for.
//!
//! Files come from strangers. Nothing here panics on their content, and nothing is allocated from a length field
//! before that length is bounded by the bytes that are left ([`limits`]).
//!
//! Knows no architecture: what a key or a tensor means is for others to say.

#![deny(unsafe_code)]

mod checkpoint;
mod error;
pub mod gguf;
mod hugging_face;
pub mod limits;
mod mmap;
mod packed;
mod safetensors;
mod shrunk;
mod stored;
mod tensor;

pub use checkpoint::{Checkpoint, Source};
pub use error::FormatError;
pub use hugging_face::{HuggingFaceFiles, TextFile};
pub use shrunk::explain_shrunk_files;
pub use tensor::{Tensor, UnsupportedTensor};
