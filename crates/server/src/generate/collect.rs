//! Whole answers, for those who wait for the end.

use super::answering::{Answering, Finish, Token};
use super::parts::Part;
use crate::error::ApiError;

/// A whole answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Whole {
    pub(crate) content: String,
    pub(crate) tokens: Vec<Token>,
    pub(crate) finish: Option<Finish>,
}

impl Answering {
    /// Waits for the end of all answers.
    pub(crate) async fn collect(&mut self, choices: usize) -> Result<Vec<Whole>, ApiError> {
        let mut wholes = vec![Whole::default(); choices];
        while let Some(updates) = self.next().await? {
            for update in updates {
                let whole = &mut wholes[update.choice];
                for part in update.parts {
                    match part {
                        Part::Content(text) => whole.content.push_str(&text),
                    }
                }
                whole.tokens.extend(update.tokens);
                whole.finish = update.finish.or(whole.finish.take());
            }
        }
        Ok(wholes)
    }
}
