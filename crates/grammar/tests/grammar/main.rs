//! Grammars over the vocabularies of real models, driven by a model that draws at random inside of the masks.

#![expect(clippy::unwrap_used, reason = "a test that gets no value has failed")]

mod grammars;
mod schemas;
mod validator;
mod walker;
