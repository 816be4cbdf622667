//! An answer as it comes: events to tokens, tokens to text, and where it ends.

use crate::failure::Failure;
use crossbeam_channel::Receiver;
use gannet_engine::{Event, FinishReason, Usage};
use gannet_ops::{TokenId, TokenLogprobs};
use gannet_text::decode::Decoder;
use gannet_text::stop::StopStrings;

/// A finished answer.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Its tokens, without the end token.
    pub(crate) token_ids: Vec<TokenId>,
    /// With each of them, where asked for.
    pub(crate) logprobs: Vec<TokenLogprobs>,
    /// With each token of the prompt but the first, where asked for.
    pub(crate) prompt_logprobs: Vec<TokenLogprobs>,
    /// Its text; token ids with commas where there is no tokenizer.
    pub(crate) text: String,
    /// Why it ended.
    pub(crate) ending: Ending,
    /// What it took.
    pub(crate) usage: Usage,
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The model ended it.
    EndToken(TokenId),
    /// A stop string, by its place in the list.
    StopString(usize),
    /// Its grammar lets nothing follow.
    Complete,
    /// The limit of tokens.
    MaxTokens,
    /// The context is full.
    ContextFull,
    /// Ctrl-C.
    Interrupted,
}

impl Ending {
    /// The word that the field uses for it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Ending::EndToken(_) | Ending::Complete | Ending::StopString(_) => "stop",
            Ending::MaxTokens | Ending::ContextFull => "length",
            Ending::Interrupted => "cancelled",
        }
    }
}

/// Turns an answer's tokens into text.
pub(crate) enum Transcript {
    /// Through a tokenizer.
    Text {
        /// Ids to text.
        decoder: Decoder,
        /// What must not be shown.
        stops: StopStrings,
    },
    /// As the numbers that they are.
    Ids {
        /// Whether a number was written.
        is_begun: bool,
    },
}

impl Transcript {
    /// The text that is certain now.
    fn push(&mut self, token: TokenId) -> String {
        match self {
            Transcript::Text { decoder, stops } => stops.push(&decoder.push(token.0)),
            Transcript::Ids { is_begun } => {
                let separator = if std::mem::replace(is_begun, true) { "," } else { "" };
                format!("{separator}{}", token.0)
            }
        }
    }

    /// The text that was held back.
    fn finish(&mut self) -> String {
        match self {
            Transcript::Text { decoder, stops } => {
                let rest = stops.push(&decoder.finish());
                rest + &stops.finish()
            }
            Transcript::Ids { .. } => String::new(),
        }
    }

    /// The stop string that was found, by its place in the list.
    fn stopped(&self) -> Option<usize> {
        match self {
            Transcript::Text { stops, .. } => stops.stopped().map(|stop| stop.index),
            Transcript::Ids { .. } => None,
        }
    }
}

/// Follows a request to its end. `show` is given text as it becomes certain; `truncate` asks the engine
/// to end the answer after so many of its tokens.
pub(crate) fn follow(
    events: &Receiver<Event>,
    mut transcript: Transcript,
    truncate: impl Fn(usize),
    show: &mut dyn FnMut(&str) -> Result<(), Failure>,
) -> Result<Answer, Failure> {
    let mut token_ids = Vec::new();
    let (mut of_answer, mut of_prompt) = (Vec::new(), Vec::new());
    let mut text = String::new();
    let mut publish = |piece: String| {
        text.push_str(&piece);
        if piece.is_empty() { Ok(()) } else { show(&piece) }
    };
    for event in events {
        match event {
            Event::Started { .. } => {}
            Event::Prefilled { logprobs, .. } => of_prompt.extend(logprobs),
            // The engine may be a token or two ahead of a stop string.
            Event::Token { .. } if transcript.stopped().is_some() => {}
            Event::Token { token, logprobs } => {
                token_ids.push(token);
                of_answer.extend(logprobs);
                publish(transcript.push(token))?;
                if transcript.stopped().is_some() {
                    truncate(token_ids.len());
                }
            }
            Event::Finished { reason, usage } => {
                publish(transcript.finish())?;
                let ending = ending(reason, transcript.stopped())?;
                let (logprobs, prompt_logprobs) = (of_answer, of_prompt);
                return Ok(Answer { token_ids, logprobs, prompt_logprobs, text, ending, usage });
            }
        }
    }
    Err(anyhow::anyhow!("the engine stopped in the middle of the answer").into())
}

fn ending(reason: FinishReason, stopped: Option<usize>) -> Result<Ending, Failure> {
    if let Some(index) = stopped {
        return Ok(Ending::StopString(index));
    }
    match reason {
        FinishReason::EndToken(token) => Ok(Ending::EndToken(token)),
        FinishReason::Complete => Ok(Ending::Complete),
        FinishReason::MaxTokens => Ok(Ending::MaxTokens),
        FinishReason::ContextFull => Ok(Ending::ContextFull),
        FinishReason::Cancelled => Ok(Ending::Interrupted),
        // None was asked for: no stop string was found, no deadline given, and all events are read.
        FinishReason::Truncated | FinishReason::TimedOut | FinishReason::Unheard => {
            Err(anyhow::anyhow!("the engine gave the answer up: {reason}").into())
        }
        FinishReason::NothingFits => Err(anyhow::anyhow!("the answer failed: {reason}").into()),
        FinishReason::Failed(why) => Err(anyhow::anyhow!("the answer failed: {why}").into()),
    }
}
