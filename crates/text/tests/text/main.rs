//! The text crate against the libraries whose behaviour it must have; `goldens/text.py` asked them.

#![expect(clippy::unwrap_used, reason = "a test that can't read its fixture has failed")]

mod calls;
mod chats;
mod expressions;
mod families;
mod fixture;
mod hostile;
mod kinds;
mod published;
mod splitting;
mod stopping;
mod tokenizers;
