//! The way into an engine from other threads.

use crate::request::{Request, RequestId};
use crate::runner::Runner;
use crate::stats::Clock;
use crossbeam_channel::{Sender, TrySendError};
use gannet_ops::Interrupter;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What the engine's thread is told.
pub(crate) enum Command {
    Submit(RequestId, Box<Request>, Clock),
    Cancel(RequestId),
}

/// The way into an engine; the engine stops when the last copy is dropped.
#[derive(Clone)]
pub struct EngineHandle {
    inbox: Sender<Command>,
    interrupter: Interrupter,
    next_id: Arc<AtomicU64>,
    vocabulary: usize,
    context: usize,
}

/// Why a request is refused at the door.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// There is nothing to continue.
    #[error("the prompt is empty; at least one token is needed")]
    EmptyPrompt,
    /// The prompt leaves no room for an answer.
    #[error(
        "the prompt has {prompt} tokens and the context {context}, which leaves no room for an answer; \
         shorten the prompt or raise the context"
    )]
    PromptTooLong {
        /// Tokens of the prompt.
        prompt: usize,
        /// Tokens of the context.
        context: usize,
    },
    /// A token that the model doesn't have.
    #[error("token id {id} is outside of the model's vocabulary of {vocabulary}")]
    UnknownToken {
        /// The id.
        id: u32,
        /// Entries of the vocabulary.
        vocabulary: usize,
    },
    /// A limit of zero tokens.
    #[error("at most 0 tokens were asked for; ask for at least 1")]
    NoTokens,
    /// The engine's inbox is full.
    #[error("the engine has {waiting} commands waiting; try again later")]
    Busy {
        /// Commands that wait.
        waiting: usize,
    },
    /// The engine's thread has ended.
    #[error("the engine has stopped")]
    Stopped,
}

impl EngineHandle {
    pub(crate) fn new(inbox: Sender<Command>, runner: &Runner) -> Self {
        Self {
            inbox,
            interrupter: runner.interrupter(),
            next_id: Arc::new(AtomicU64::new(0)),
            vocabulary: runner.vocabulary,
            context: runner.context,
        }
    }

    /// Tokens of the longest sequence.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Hands a request to the engine; its sink hears everything else.
    pub fn submit(&self, request: Request) -> Result<RequestId, SubmitError> {
        self.check(&request)?;
        let id = RequestId(self.next_id.fetch_add(1, Ordering::Relaxed));
        self.send(Command::Submit(id, Box::new(request), Clock::start()))?;
        Ok(id)
    }

    /// Ends a request; the step in progress is given up. A request that has ended already is left alone.
    pub fn cancel(&self, id: RequestId) -> Result<(), SubmitError> {
        self.send(Command::Cancel(id))?;
        self.interrupter.interrupt();
        Ok(())
    }

    fn check(&self, request: &Request) -> Result<(), SubmitError> {
        let (prompt, context, vocabulary) = (request.prompt.len(), self.context, self.vocabulary);
        if prompt == 0 {
            return Err(SubmitError::EmptyPrompt);
        }
        if prompt >= context {
            return Err(SubmitError::PromptTooLong { prompt, context });
        }
        if request.max_tokens == 0 {
            return Err(SubmitError::NoTokens);
        }
        let biased = request.sampling.logit_bias.iter().map(|(token, _)| token);
        match request.prompt.iter().chain(biased).find(|token| token.0 as usize >= vocabulary) {
            Some(token) => Err(SubmitError::UnknownToken { id: token.0, vocabulary }),
            None => Ok(()),
        }
    }

    fn send(&self, command: Command) -> Result<(), SubmitError> {
        match self.inbox.try_send(command) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(_)) => Err(SubmitError::Busy { waiting: self.inbox.len() }),
            Err(TrySendError::Disconnected(_)) => Err(SubmitError::Stopped),
        }
    }
}
