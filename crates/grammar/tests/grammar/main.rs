//! Grammars over the vocabularies of real models, driven by a model that draws at random inside of the masks.

mod grammars;
mod schemas;
mod walker;
