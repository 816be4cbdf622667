//! The cores of all matrix products: one multiplies codes by integers, one pairs of bf16 numbers, one float32 numbers.
//!
//! *Codes* and *pairs*: a matrix in panels, with rows that were made codes or bf16 numbers as well. *Floats*: any matrix
//! in rows, decoded on the way; for formats without panels, and for all where products must be exact but for the order
//! of their sums. Which one a matrix takes is decided when it is uploaded.

pub(crate) mod activations;
mod codes;
pub(crate) mod floats;
mod groups;
pub(crate) mod pairs;
pub(crate) mod tiles;

#[cfg(test)]
mod tests;
