//! What comes in: bodies as JSON, fields with their paths.
//!
//! Knows no protocol: which fields there are is the business of each route.

pub(crate) mod body;
pub(crate) mod fields;
mod place;
