//! What the tests share: weights out of nothing, models written by hand, and batches in few words.

pub(crate) mod batch;
pub(crate) mod device;
pub(crate) mod models;
pub(crate) mod naive;
pub(crate) mod weights;
