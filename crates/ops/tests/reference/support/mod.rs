//! What the tests share: weights out of nothing, models written by hand, and batches in few words.

pub mod batch;
pub mod device;
pub mod models;
pub mod naive;
pub mod weights;
