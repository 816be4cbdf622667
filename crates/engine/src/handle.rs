//! The way into an engine from other threads.

use crate::alarm::Alarm;
use crate::embedding::Goal;
use crate::request::{Request, RequestId};
use crate::runner::{Pooling, Runner, RunnerBytes};
use crate::sequence::Sequence;
use crate::stats::{Clock, EngineStats, QueuePlace, SharedStats};
use crossbeam_channel::{Sender, TrySendError, bounded};
use gannet_ops::sampling::SamplingError;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Most likely tokens whose log-probabilities a request may ask for with each token.
pub const LOGPROBS_MAX: u32 = 128;

/// What the engine's thread is told.
pub(crate) enum Command {
    Submit(Box<Sequence>),
    Cancel(RequestId),
    /// End the request after so many tokens, those of the prompt included.
    Truncate(RequestId, usize),
    /// Say what lies in memory.
    Measure(Sender<RunnerBytes>),
}

/// The way into an engine; the engine stops when the last copy is dropped.
#[derive(Clone)]
pub struct EngineHandle {
    inbox: Sender<Command>,
    alarm: Arc<Alarm>,
    next_id: Arc<AtomicU64>,
    stats: Arc<SharedStats>,
    vocabulary: usize,
    context: usize,
    longest_sequence: usize,
    waiting_max: usize,
    pooling: Option<Pooling>,
}

/// Why a request is refused at the door.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The model makes vectors.
    #[error("the model was loaded to make vectors of texts, which have no continuation")]
    MakesVectors,
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
    /// The prompt needs more state than there is.
    #[error(
        "the prompt has {prompt} tokens, and all memory for keys and values holds {memory}; give it more memory"
    )]
    PromptTooLarge {
        /// Tokens of the prompt.
        prompt: usize,
        /// Tokens that the pages hold.
        memory: usize,
    },
    /// A token that the model doesn't have.
    #[error("token id {id} is outside of the model's vocabulary of {vocabulary}")]
    UnknownToken {
        /// The id.
        id: u32,
        /// Entries of the vocabulary.
        vocabulary: usize,
    },
    /// More log-probabilities a token than are given.
    #[error("{asked} log-probabilities a token were asked for, and at most {limit} are given")]
    TooManyLogprobs {
        /// The number asked for.
        asked: u32,
        /// [`LOGPROBS_MAX`].
        limit: u32,
    },
    /// Filters that make no sense.
    #[error(transparent)]
    Sampling(#[from] SamplingError),
    /// A limit of zero tokens, or no answer at all.
    #[error("at most 0 tokens were asked for; ask for at least 1")]
    NoTokens,
    /// As many requests wait as may.
    #[error("{waiting} requests are waiting already and no more may; {}", Expected(*wait))]
    QueueFull {
        /// Requests that wait.
        waiting: usize,
        /// How long the next one would wait, as far as the others show; none where nothing shows it yet.
        wait: Option<Duration>,
    },
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

/// How long a wait is expected to be, in words.
struct Expected(Option<Duration>);

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(wait) => write!(f, "a new one would wait for about {:.1} s", wait.as_secs_f64()),
            None => write!(f, "try again later"),
        }
    }
}

impl EngineHandle {
    pub(crate) fn new(
        (inbox, alarm): (Sender<Command>, Arc<Alarm>),
        runner: &Runner,
        (longest_sequence, waiting_max): (usize, usize),
        stats: Arc<SharedStats>,
    ) -> Self {
        Self {
            inbox,
            alarm,
            next_id: Arc::new(AtomicU64::new(0)),
            stats,
            vocabulary: runner.vocabulary,
            context: runner.context,
            longest_sequence,
            waiting_max,
            pooling: runner.pooling,
        }
    }

    /// Tokens of the longest sequence.
    pub fn context(&self) -> usize {
        self.context
    }

    /// How the engine makes vectors; none where it makes text.
    pub(crate) fn pooling(&self) -> Option<Pooling> {
        self.pooling
    }

    /// Entries of the vocabulary that scores are for.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// Tokens that one sequence can have, by the memory for keys and values.
    pub fn longest_sequence(&self) -> usize {
        self.longest_sequence
    }

    /// What the engine has done and does.
    pub fn stats(&self) -> EngineStats {
        self.stats.read()
    }

    /// What lies in memory of the plan and its state. Waits for the step in progress, at most as long as `patience`; none
    /// where it takes longer, or the engine has stopped.
    pub fn measure(&self, patience: Duration) -> Option<RunnerBytes> {
        let (sender, answer) = bounded(1);
        self.send(Command::Measure(sender)).ok()?;
        answer.recv_timeout(patience).ok()
    }

    /// A waiting request's place in the queue; none where it waits no more, or the engine has not looked at it yet.
    pub fn queue_place(&self, id: RequestId) -> Option<QueuePlace> {
        self.stats.place(id)
    }

    /// Hands a request to the engine; its sink hears everything else.
    pub fn submit(&self, request: Request) -> Result<RequestId, SubmitError> {
        self.check(&request)?;
        self.send_request(request, None)
    }

    /// Hands several requests of one prompt to the engine, which computes the prompt once.
    pub fn submit_choices(&self, requests: Vec<Request>) -> Result<Vec<RequestId>, SubmitError> {
        requests.iter().try_for_each(|request| self.check(request))?;
        let mut ids: Vec<RequestId> = Vec::new();
        for request in requests {
            ids.push(self.send_request(request, ids.first().copied())?);
        }
        Ok(ids)
    }

    /// Ends a request; the step in progress is given up. A request that has ended already is left alone.
    pub fn cancel(&self, id: RequestId) -> Result<(), SubmitError> {
        self.send(Command::Cancel(id))?;
        self.alarm.ring();
        Ok(())
    }

    /// Ends a request at the end of the step in progress, which others may have a part in; a step that goes on for longer
    /// than a twentieth of a second is given up. A request that has ended already is left alone.
    pub fn abandon(&self, id: RequestId) -> Result<(), SubmitError> {
        self.alarm.hurry();
        self.send(Command::Cancel(id))
    }

    /// Ends a request after so many tokens, those of the prompt included, because what it made later isn't wanted: a
    /// stop string was found. What is cached of it ends there too.
    pub fn truncate(&self, id: RequestId, tokens: usize) -> Result<(), SubmitError> {
        self.send(Command::Truncate(id, tokens))
    }

    fn send_request(&self, request: Request, after: Option<RequestId>) -> Result<RequestId, SubmitError> {
        self.enqueue(|id| Sequence::new(id, request, after, Clock::start()))
    }

    pub(crate) fn send_embedding(&self, request: Request, goal: Goal) -> Result<RequestId, SubmitError> {
        self.enqueue(|id| {
            let sequence = Sequence::new(id, request, None, Clock::start());
            Sequence { goal: Some(goal), ..sequence }
        })
    }

    /// Sends a new sequence, where one more may wait.
    fn enqueue(&self, sequence: impl FnOnce(RequestId) -> Sequence) -> Result<RequestId, SubmitError> {
        let full = |waiting| SubmitError::QueueFull { waiting, wait: self.stats().wait };
        self.stats.accept(self.waiting_max).map_err(full)?;
        let id = RequestId(self.next_id.fetch_add(1, Ordering::Relaxed));
        let sent = self.send(Command::Submit(Box::new(sequence(id))));
        sent.inspect_err(|_| self.stats.no_longer_waits())?;
        Ok(id)
    }

    fn check(&self, request: &Request) -> Result<(), SubmitError> {
        let (prompt, context, vocabulary) = (request.prompt.len(), self.context, self.vocabulary);
        if self.pooling.is_some() {
            return Err(SubmitError::MakesVectors);
        }
        if prompt == 0 {
            return Err(SubmitError::EmptyPrompt);
        }
        if prompt >= context {
            return Err(SubmitError::PromptTooLong { prompt, context });
        }
        if prompt >= self.longest_sequence {
            return Err(SubmitError::PromptTooLarge { prompt, memory: self.longest_sequence });
        }
        if request.max_tokens == 0 {
            return Err(SubmitError::NoTokens);
        }
        let asked = request.logprobs.max(request.prompt_logprobs).unwrap_or(0);
        if asked > LOGPROBS_MAX {
            return Err(SubmitError::TooManyLogprobs { asked, limit: LOGPROBS_MAX });
        }
        request.sampling.check(vocabulary)?;
        match request.prompt.iter().chain(&request.end_tokens).find(|token| token.0 as usize >= vocabulary) {
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
