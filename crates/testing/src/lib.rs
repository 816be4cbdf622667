//! Test support over any backend: committed goldens, a runner of single sequences, steps by hand, toy models, the CUDA device of tests, a constraint.
//!
//! Tests of `model` run it over the reference interpreter, tests of a backend over that backend. Failures panic
//! with the golden's name and the numbers, as these functions are called by tests alone.

pub mod device;
pub mod goldens;
pub mod sequence;
pub mod shares;
pub mod steps;
pub mod toy;
