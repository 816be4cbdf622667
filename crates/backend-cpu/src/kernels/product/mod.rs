//! The cores of all matrix products: one multiplies codes by integers, one float32 numbers.
//!
//! *Codes*: a matrix in panels, with rows that were made codes as well. *Floats*: any matrix in rows, decoded on the
//! way; for formats without panels, and for all where products must be exact but for the order of their sums.
//! Which one a matrix takes is decided when it is uploaded.

pub(crate) mod activations;
pub(crate) mod codes;
pub(crate) mod floats;

#[cfg(test)]
mod tests;
