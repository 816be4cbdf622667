//! Numbers at rest: element and block formats, shapes, and views over bytes.
//!
//! Knows no file, no model and no operation. Everything here is a pure function of bytes.

pub mod decode;
mod format;
mod view;

pub use format::Format;
pub use view::{TensorView, ViewError};
