//! Whole answers, for those who wait for the end.

use super::answering::{Answering, Finish, Token, Update};
use super::parts::{Part, append};
use crate::error::ApiError;

/// A whole answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Whole {
    /// In the order in which they came, joined.
    pub(crate) parts: Vec<Part>,
    pub(crate) tokens: Vec<Token>,
    pub(crate) finish: Option<Finish>,
}

/// A whole call of a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) id: String,
    pub(crate) name: String,
    /// JSON text.
    pub(crate) arguments: String,
}

impl Whole {
    /// Takes what is new.
    pub(crate) fn push(&mut self, update: Update) {
        append(&mut self.parts, update.parts);
        self.tokens.extend(update.tokens);
        self.finish = update.finish.or(self.finish.take());
    }

    /// What the reader is told.
    pub(crate) fn content(&self) -> String {
        let content = |part: &Part| if let Part::Content(text) = part { Some(text.clone()) } else { None };
        self.parts.iter().filter_map(content).collect()
    }

    /// What the model thought by; none where it didn't.
    pub(crate) fn reasoning(&self) -> Option<String> {
        let reasoning =
            |part: &Part| if let Part::Reasoning(text) = part { Some(text.clone()) } else { None };
        let texts: Vec<String> = self.parts.iter().filter_map(reasoning).collect();
        (!texts.is_empty()).then(|| texts.join("\n"))
    }

    /// Calls of tools.
    pub(crate) fn calls(&self) -> Vec<Call> {
        let mut calls: Vec<Call> = Vec::new();
        for part in &self.parts {
            match part {
                Part::Content(_) | Part::Reasoning(_) => {}
                Part::Call { id, name, .. } => {
                    calls.push(Call { id: id.clone(), name: name.clone(), arguments: String::new() });
                }
                Part::Arguments { index, json } => {
                    if let Some(call) = calls.get_mut(*index) {
                        call.arguments.push_str(json);
                    }
                }
            }
        }
        calls
    }
}

impl Answering {
    /// Waits for the end of all answers.
    pub(crate) async fn collect(&mut self, choices: usize) -> Result<Vec<Whole>, ApiError> {
        let mut wholes = vec![Whole::default(); choices];
        while let Some(updates) = self.next().await? {
            for update in updates {
                let choice = update.choice;
                wholes[choice].push(update);
            }
        }
        Ok(wholes)
    }
}
