//! Tests of the reference interpreter: what an op means, against maths done elsewhere, and what a step means,
//! against the same step done another way.

mod support;

mod batches; // any batch = each sequence alone
mod drafters; // MTP, DFlash, EAGLE-3: programs that follow another one
mod drafts; // verified and taken back = never drafted
mod errors; // what a step can't do, it says
mod goldens; // whole models against Hugging Face
mod ops; // single ops against plain maths
mod pooling; // one vector a sequence
