//! GGUF, versions 2 and 3, of little-endian and big-endian machines, in one file or in parts.
//!
//! ```text
//! "GGUF"  version:u32  tensor count:u64  entry count:u64
//! entries: key  type:u32  value
//! tensors: name  dimension count:u32  dimensions:u64 (innermost first)  type:u32  offset:u64 (from the data on)
//! padding to the alignment
//! data: each tensor padded to the alignment
//! ```
//!
//! A string is its length as u64 and its UTF-8 bytes; an array is the type of its elements as u32, their count as u64,
//! and the elements. Source: the GGUF specification of the ggml project.

mod byte_order;
mod cursor;
mod metadata;
mod reader;
mod split;
mod tensor_list;
mod tensor_type;
mod value;
mod writer;

pub(crate) use byte_order::to_little_endian;
pub use metadata::Metadata;
pub(crate) use split::open;
pub use value::{Array, Strings, Value, ValueType};
pub use writer::{GgufLayout, GgufStream, GgufWriter};

/// The alignment of tensor data where `general.alignment` doesn't say another.
const DEFAULT_ALIGNMENT: usize = 32;

/// The metadata key of the alignment.
const ALIGNMENT_KEY: &str = "general.alignment";
