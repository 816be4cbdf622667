//! Requests in the engine, and what comes of them: events to updates of answers.
//!
//! Who drops an [`Answering`] before its end wants no more of it: the engine forgets its requests at the next step.

use super::choice::Choice;
use super::held::Held;
use super::inbox::{Heard, inbox};
use super::params::Params;
use super::parts::Part;
use super::prompt::{Prompt, shown};
use crate::admission::Permit;
use crate::error::{ApiError, TimeLimit};
use crate::http::serve::Phase;
use crate::models::Served;
use gannet_engine::{EngineHandle, Event, QueuePlace, Request, RequestId, Sink, SubmitError, Usage};
use gannet_ops::{TokenId, TokenLogprobs};
use gannet_text::decode::SpecialTokens;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::time::sleep;
use tracing::Span;

/// Between two attempts to tell a busy engine something that it must hear.
const PATIENCE: Duration = Duration::from_millis(10);

/// A token of an answer.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) id: TokenId,
    pub(crate) logprobs: Option<TokenLogprobs>,
}

/// What is new about one answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Update {
    pub(crate) choice: usize,
    pub(crate) parts: Vec<Part>,
    pub(crate) tokens: Vec<Token>,
    pub(crate) finish: Option<Finish>,
    /// How far its prompt was, where that is told.
    pub(crate) progress: Vec<PromptProgress>,
}

/// How far a prompt is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PromptProgress {
    /// Tokens of the prompt.
    pub(crate) tokens: u32,
    /// Those of them that were known.
    pub(crate) reused: u32,
    /// Those of them that are done, known ones included.
    pub(crate) computed: u32,
    /// Since the request came.
    pub(crate) time: Duration,
}

/// How an answer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finish {
    pub(crate) kind: FinishKind,
    /// The stop string that was found.
    pub(crate) stop_text: Option<String>,
    /// The one of the request's stop tokens that was drawn.
    pub(crate) stop_token: Option<TokenId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FinishKind {
    /// It is whole.
    Stop,
    /// It is whole and calls tools.
    Calls,
    /// A limit of tokens was reached.
    Length,
}

/// What all answers of a request took together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Total {
    /// Tokens of all prompts, each counted once.
    pub(crate) prompt_tokens: u64,
    /// Tokens of prompts that were known.
    pub(crate) cached_tokens: u64,
    /// Tokens that were cut off prompts, as asked for.
    pub(crate) cut_tokens: u64,
    pub(crate) answer_tokens: u64,
    /// Those of them that models thought by.
    pub(crate) reasoning_tokens: u64,
}

/// What the first answer to the first prompt took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Course {
    pub(crate) usage: Usage,
    /// The first token of the prompt that differs from what was known.
    pub(crate) first_different: u32,
}

/// Answers that are being made.
pub(crate) struct Answering {
    served: Arc<Served>,
    events: Heard,
    running: HashMap<RequestId, Running>,
    choices: Vec<Choice>,
    pub(crate) total: Total,
    pub(crate) course: Course,
    /// Of each prompt, the scores of its tokens but the first, where asked for.
    pub(crate) prompt_scores: Vec<Vec<TokenLogprobs>>,
    /// Of each prompt, the tokens of its longest answer so far.
    longest: Vec<u32>,
    time: TimeLimit,
    tells_progress: bool,
    /// Of each answer its tokens, where they stand in the log.
    logged: Option<Vec<Vec<TokenId>>>,
    began: Instant,
    _permit: Permit,
}

/// An answer in the engine.
#[derive(Clone, Copy)]
struct Running {
    choice: usize,
    prompt: usize,
    prompt_tokens: usize,
    reused_tokens: u32,
    /// The first answer to a prompt is the one that its prompt is counted with.
    is_first: bool,
    last_token: Option<Instant>,
}

impl Answering {
    /// Hands prompts to the engine; answer `p * n + c` is the `c`th of prompt `p`.
    pub(crate) fn start(
        served: Arc<Served>,
        prompts: Vec<Prompt>,
        params: &Params,
        held: &Held,
        prompt_path: &'static str,
    ) -> Result<Self, ApiError> {
        let (sink, events) = inbox();
        let count = prompts.len() * params.choices as usize;
        let permit = served.admit(count, prompt_path)?;
        let mut choices = Vec::with_capacity(count);
        for prompt in &prompts {
            for _ in 0..params.choices {
                choices.push(Choice::new(&served.text.tokenizer, params, &held.reading, prompt.place)?);
            }
        }
        let mut answering = Self {
            served,
            events,
            running: HashMap::new(),
            choices,
            total: Total::default(),
            course: Course::default(),
            prompt_scores: vec![Vec::new(); prompts.len()],
            longest: vec![0; prompts.len()],
            time: params.time,
            tells_progress: params.extras.progress,
            logged: None,
            began: Instant::now(),
            _permit: permit,
        };
        if answering.served.logs_text {
            answering.logged = Some(vec![Vec::new(); count]);
        }
        for (number, prompt) in prompts.into_iter().enumerate() {
            answering.log("prompt", &prompt.ids);
            let requests = params.requests(&prompt, &answering.served, held, &sink, prompt_path)?;
            let most = requests.first().map_or(0, |request| request.max_tokens);
            let ids = answering.served.handle.submit_choices(requests);
            let ids = ids.map_err(|error| ApiError::submit(prompt_path, error))?;
            answering.served.metrics.asked(ids.len(), most);
            answering.total.cut_tokens += prompt.cut_tokens as u64;
            answering.served.metrics.cut(prompt.cut_tokens);
            answering.follow(&ids, number, prompt.ids.len());
        }
        Ok(answering)
    }

    fn follow(&mut self, ids: &[RequestId], prompt: usize, prompt_tokens: usize) {
        self.total.prompt_tokens += prompt_tokens as u64;
        for (place, id) in ids.iter().enumerate() {
            let (choice, is_first) = (prompt * ids.len() + place, place == 0);
            let (reused_tokens, last_token) = (0, None);
            let running = Running { choice, prompt, prompt_tokens, reused_tokens, is_first, last_token };
            self.running.insert(*id, running);
        }
    }

    /// Waits for what comes next; nothing comes after all answers have ended.
    ///
    /// # Errors
    /// An answer failed, or the server stops: the others are given up as well.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<Update>>, ApiError> {
        while !self.running.is_empty() {
            let mut phase = self.served.phase.clone();
            let events = tokio::select! {
                events = self.events.next() => events?,
                _ = phase.wait_for(|phase| *phase == Phase::Aborting) => return Err(ApiError::Draining),
            };
            let mut updates: Vec<Update> = Vec::new();
            for (id, event) in events {
                self.hear(id, event, &mut updates)?;
            }
            if !updates.is_empty() {
                return Ok(Some(updates));
            }
        }
        self.record();
        Ok(None)
    }

    /// Tells the request's span what was asked for and what came of it.
    fn record(&self) {
        let span = Span::current();
        span.record("gen_ai.request.model", &*self.served.name);
        span.record("gen_ai.usage.input_tokens", self.total.prompt_tokens);
        span.record("gen_ai.usage.output_tokens", self.total.answer_tokens);
    }

    fn hear(&mut self, id: RequestId, event: Event, updates: &mut Vec<Update>) -> Result<(), ApiError> {
        let Some(running) = self.running.get(&id).copied() else { return Ok(()) };
        match event {
            Event::Started { reused_tokens, common_tokens } => {
                if running.is_first {
                    self.total.cached_tokens += u64::from(reused_tokens);
                }
                if running.choice == 0 {
                    self.course.first_different = common_tokens;
                }
                self.served.metrics.started(reused_tokens, common_tokens);
                if let Some(running) = self.running.get_mut(&id) {
                    running.reused_tokens = reused_tokens;
                }
                self.tell_progress(&Running { reused_tokens, ..running }, reused_tokens, updates);
            }
            Event::Prefilled { logprobs, computed, .. } => {
                self.prompt_scores[running.prompt].extend(logprobs);
                self.tell_progress(&running, computed, updates);
            }
            Event::Token { token, logprobs } => {
                self.measure(id);
                if let Some(logged) = &mut self.logged {
                    logged[running.choice].push(token);
                }
                let choice = &mut self.choices[running.choice];
                if choice.is_stopped() {
                    return Ok(());
                }
                let update = update_of(updates, running.choice);
                if choice.push(Token { id: token, logprobs }, update) {
                    let kept = running.prompt_tokens + choice.tokens;
                    insist(&self.served.handle, move |handle| handle.truncate(id, kept));
                }
            }
            Event::Finished { reason, usage } => {
                self.running.remove(&id);
                self.served.metrics.ended(&usage, reason.name(), self.began.elapsed());
                self.total.answer_tokens += u64::from(usage.generated_tokens);
                self.tell_longest(running.prompt, usage.generated_tokens);
                if running.choice == 0 {
                    self.course.usage = usage;
                }
                if let Some(logged) = &self.logged {
                    self.log("answer", &logged[running.choice]);
                }
                self.total.reasoning_tokens += self.choices[running.choice].reasoning_tokens;
                let update = update_of(updates, running.choice);
                self.choices[running.choice].finish(reason, self.time, update)?;
            }
        }
        Ok(())
    }

    /// An answer to this prompt has ended with so many tokens.
    fn tell_longest(&mut self, prompt: usize, tokens: u32) {
        self.longest[prompt] = self.longest[prompt].max(tokens);
        if self.running.values().all(|running| running.prompt != prompt) {
            self.served.metrics.all_ended(self.longest[prompt]);
        }
    }

    /// Writes tokens as text to the log, where that was asked for.
    fn log(&self, what: &'static str, tokens: &[TokenId]) {
        if self.served.logs_text {
            let text = shown(&self.served.text.tokenizer, tokens, SpecialTokens::Show);
            tracing::info!(what, text, "said");
        }
    }

    /// Says how far a prompt is, once for all of its answers.
    fn tell_progress(&self, running: &Running, computed: u32, updates: &mut Vec<Update>) {
        if self.tells_progress && running.is_first {
            let (tokens, reused) = (running.prompt_tokens as u32, running.reused_tokens);
            let progress = PromptProgress { tokens, reused, computed, time: self.began.elapsed() };
            update_of(updates, running.choice).progress.push(progress);
        }
    }

    /// What a stream in which nothing happens says: how many requests go before the first one that waits.
    pub(crate) fn waits(&self) -> Option<QueuePlace> {
        self.running.keys().min().and_then(|id| self.served.handle.queue_place(*id))
    }

    fn measure(&mut self, id: RequestId) {
        let Some(running) = self.running.get_mut(&id) else { return };
        let now = Instant::now();
        match running.last_token.replace(now) {
            Some(last) => self.served.metrics.inter_token(now - last),
            None => self.served.metrics.first_token(now - self.began),
        }
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        for &id in self.running.keys() {
            self.served.metrics.aborted();
            insist(&self.served.handle, move |handle| handle.abandon(id));
        }
    }
}

/// The update of a choice among those of one moment.
fn update_of(updates: &mut Vec<Update>, choice: usize) -> &mut Update {
    let place = updates.iter().position(|update| update.choice == choice).unwrap_or_else(|| {
        updates.push(Update { choice, ..Update::default() });
        updates.len() - 1
    });
    &mut updates[place]
}

/// Tells the engine something that it must hear, later if its inbox is full now.
fn insist(
    handle: &EngineHandle,
    tell: impl Fn(&EngineHandle) -> Result<(), SubmitError> + Send + Sync + 'static,
) {
    if !matches!(tell(handle), Err(SubmitError::Busy { .. })) {
        return;
    }
    let handle = handle.clone();
    // Outside of the runtime the server has ended, and its engines with it.
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn(async move {
            while matches!(tell(&handle), Err(SubmitError::Busy { .. })) {
                sleep(PATIENCE).await;
            }
        });
    }
}

impl Params {
    /// The engine's requests for one prompt.
    fn requests(
        &self,
        prompt: &Prompt,
        served: &Served,
        held: &Held,
        sink: &Arc<dyn Sink>,
        prompt_path: &'static str,
    ) -> Result<Vec<Request>, ApiError> {
        let max_tokens = self.answer_tokens(prompt.ids.len(), served, prompt_path)?;
        let mut end_tokens = if self.ignore_end { Vec::new() } else { served.end_tokens.clone() };
        end_tokens.extend(&self.stop_tokens);
        let request = |choice| Request {
            prompt: prompt.ids.clone(),
            sampling: self.sampling.clone(),
            seed: self.seed,
            choice,
            max_tokens,
            min_tokens: self.min_tokens,
            end_tokens: end_tokens.clone(),
            logprobs: self.logprobs,
            // The first answer's prompt is every one's.
            prompt_logprobs: self.prompt_logprobs.filter(|_| choice == 0),
            constraint: held.constraint.as_ref().map(|constraint| constraint.copy()),
            priority: self.priority,
            deadline: Some(Instant::now() + self.time.length),
            cache_salt: self.cache_salt,
            boundaries: prompt.boundaries.clone(),
            sink: sink.clone(),
        };
        Ok((0..self.choices).map(request).collect())
    }

    /// The most tokens of an answer: as asked for, or all that the context leaves.
    fn answer_tokens(
        &self,
        prompt: usize,
        served: &Served,
        prompt_path: &'static str,
    ) -> Result<u32, ApiError> {
        let context = served.room();
        if prompt >= context {
            return Err(ApiError::ContextExceeded { path: prompt_path, context, prompt, answer: 1 });
        }
        match self.max_tokens {
            Some((path, asked)) if prompt + asked as usize > context => {
                Err(ApiError::ContextExceeded { path, context, prompt, answer: asked as usize })
            }
            Some((_, asked)) => Ok(asked),
            None => Ok(u32::try_from(context - prompt).unwrap_or(u32::MAX)),
        }
    }
}
