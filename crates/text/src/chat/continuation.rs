//! Ending a rendered chat inside its last message, for the model to go on with it.
//!
//! The end of the message is found as transformers finds it: a tag is written behind what the message says, and the text
//! is cut where the tag comes out. The tag ends in a space, so that a template which trims its messages shows; then the
//! spaces before the cut are not part of the text, either.
//!
//! Knows no template.

use serde_json::Value;

use super::{Content, Message, Rendered};
use crate::error::TextError;
use crate::special;

const TAG: &str = "CONTINUE_FINAL_MESSAGE_TAG ";

/// Writes the tag behind the last message's text, and returns that text.
pub(super) fn open(messages: &mut [Message]) -> Result<String, TextError> {
    let content = messages.last_mut().map(|message| &mut message.content);
    let text = match content {
        Some(Content::Text(text)) => Some(text),
        Some(Content::Parts(parts)) => parts.iter_mut().rev().find_map(|part| match part.get_mut("text") {
            Some(Value::String(text)) => Some(text),
            Some(_) | None => None,
        }),
        Some(Content::Null | Content::Absent) | None => None,
    };
    let text = text.ok_or(TextError::NothingToContinue)?;
    let said = text.clone();
    text.push_str(TAG);
    Ok(said)
}

/// Cuts the text at the tag.
pub(super) fn cut(rendered: &mut Rendered, said: &str) -> Result<(), TextError> {
    let place = rendered.text.rfind(TAG.trim_end()).filter(|_| rendered.text.contains(said.trim()));
    let place = place.ok_or(TextError::ContinuationLost)?;
    let spaces_stay = rendered.text[place..].starts_with(TAG);
    rendered.text.truncate(place);
    if !spaces_stay {
        rendered.text.truncate(rendered.text.trim_end().len());
    }
    special::truncate(&mut rendered.seams, rendered.text.len());
    Ok(())
}
