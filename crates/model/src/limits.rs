//! The largest sizes that a config may ask for, each several times that of any model known.
//!
//! They are checked where a number is read, so that products of sizes can't overflow and nothing large is
//! allocated on the word of a config alone.

/// Layers of a model.
pub(crate) const LAYERS_MAX: usize = 1024;
/// Elements of a hidden state, of all heads together, and between the projections of a feed-forward.
pub(crate) const WIDTH_MAX: usize = 1 << 20;
/// Entries of a vocabulary.
pub(crate) const VOCABULARY_MAX: usize = 1 << 24;
/// Heads of one layer.
pub(crate) const HEADS_MAX: usize = 1 << 12;
/// Experts of one layer.
pub(crate) const EXPERTS_MAX: usize = 1 << 14;
/// Taps of a convolution.
pub(crate) const KERNEL_MAX: usize = 64;
/// Elements of one head.
pub(crate) const HEAD_DIM_MAX: usize = 1 << 14;
/// Tokens of a context; positions are exact in float32 up to 2^24, so that longer ones make no sense for long.
pub(crate) const CONTEXT_MAX: usize = 1 << 28;
