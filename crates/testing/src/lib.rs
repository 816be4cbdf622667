//! Test support over any backend: committed goldens, a runner of single sequences, toy models.
//!
//! Tests of `model` run it over the reference interpreter, tests of a backend over that backend. Failures panic
//! with the golden's name and the numbers, as these functions are called by tests alone.

pub mod goldens;
pub mod sequence;
pub mod toy;
