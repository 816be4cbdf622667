//! A loaded model with its engine, and how its answers are made.

use super::RunArguments;
use super::answer::{Answer, Ending, Transcript, follow};
use super::prompt::{self, Encoded, Prompt};
use crate::commands::end_token_ids;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::progress;
use crossbeam_channel::unbounded;
use gannet_engine::{Constraint, EngineOptions, Request};
use gannet_grammar::{GrammarConstraint, GrammarLimits, Grammars};
use gannet_loader::{LoadError, LoadOptions, Loaded, Running};
use gannet_ops::TokenId;
use gannet_ops::sampling::Sampling;
use gannet_text::chat::Message;
use gannet_text::decode::{Decoder, Place, SpecialTokens};
use gannet_text::stop::StopStrings;
use gannet_text::text::Text;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A model that answers.
pub(crate) struct Session {
    /// From the start to a model that is ready.
    pub(crate) load_time: Duration,
    /// The seed of all draws.
    pub(crate) seed: u64,
    running: Running,
    text: Result<Text, LoadError>,
    end_tokens: Vec<TokenId>,
    sampling: Arc<Sampling>,
    max_tokens: u32,
    min_tokens: u32,
    logprobs: Option<u32>,
    prompt_logprobs: Option<u32>,
    stops: Vec<String>,
    /// At the beginning of an answer.
    constraint: Option<GrammarConstraint>,
    interrupt: Interrupt,
}

impl Session {
    /// Loads the model and starts its engine; Ctrl-C then means the answer.
    pub(crate) fn start(arguments: &RunArguments) -> Result<Self, Failure> {
        let sampling = arguments.sampling.resolve()?;
        StopStrings::new(arguments.stop.clone()).map_err(|error| Failure::usage(error.to_string()))?;
        let grammar = arguments.grammar.resolve()?;
        let backend = arguments.model.device.open()?;
        let options = LoadOptions { memory: arguments.memory.bytes, ..arguments.context.load_options() };
        let path = arguments.model.reference.locate()?;
        let started = Instant::now();
        let loaded = progress::load(&path, backend.as_ref(), &options)?;
        if let (Err(_), false) = (&loaded.text, arguments.stop.is_empty()) {
            return Err(anyhow::anyhow!("--stop needs a tokenizer, and this model has none").into());
        }
        let Loaded { model, text, runner, .. } = loaded;
        let constraint = match (&grammar, &text) {
            (Some(grammar), Ok(text)) => {
                Some(Grammars::new(&text.tokenizer, GrammarLimits::DEFAULT)?.compile(grammar)?)
            }
            (Some(_), Err(error)) => {
                return Err(anyhow::anyhow!("a grammar needs a tokenizer, and there is none: {error}").into());
            }
            (None, _) => None,
        };
        let end_tokens = match arguments.ignore_end {
            true => Vec::new(),
            false => end_token_ids(&model, text.as_ref().ok()),
        };
        Ok(Self {
            running: gannet_loader::start(runner, EngineOptions::default())?,
            load_time: started.elapsed(),
            seed: arguments.sampling.seed(),
            text,
            end_tokens,
            sampling: Arc::new(sampling),
            max_tokens: u32::try_from(arguments.max_tokens).expect("the argument's limit is far below"),
            min_tokens: u32::try_from(arguments.min_tokens).expect("the argument's limit is far below"),
            logprobs: arguments.logprobs,
            prompt_logprobs: arguments.prompt_logprobs,
            stops: arguments.stop.clone(),
            constraint,
            interrupt: Interrupt::of_process()?,
        })
    }

    /// Waits until the engine has stopped.
    pub(crate) fn end(self) {
        let Running { handle, thread } = self.running;
        drop(handle);
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    }

    /// Whether answers come as text; as ids otherwise.
    pub(crate) fn has_text(&self) -> bool {
        self.text.is_ok()
    }

    /// Whether no draw is random.
    pub(crate) fn is_greedy(&self) -> bool {
        self.sampling.temperature == 0.0 && self.sampling.dynamic_temperature.is_none()
    }

    /// Tokens of the longest sequence.
    pub(crate) fn context(&self) -> usize {
        self.running.handle.context()
    }

    /// What the engine is given of a prompt.
    pub(crate) fn encode(&self, prompt: &Prompt) -> Result<Encoded, Failure> {
        match prompt {
            Prompt::Messages(messages) => self.encode_chat(messages),
            Prompt::Raw(raw) => Ok(prompt::encode_raw(self.text()?, raw)?),
            Prompt::Ids(ids) => Ok(Encoded { ids: ids.clone(), boundaries: Vec::new() }),
        }
    }

    /// A conversation, up to where the answer begins.
    pub(crate) fn encode_chat(&self, messages: &[Message]) -> Result<Encoded, Failure> {
        Ok(prompt::encode_chat(self.text()?, messages)?)
    }

    /// The tokenizer and the template, without which there are ids alone.
    pub(crate) fn text(&self) -> Result<&Text, Failure> {
        self.text.as_ref().map_err(|error| anyhow::anyhow!("{error}").into())
    }

    /// Continues a prompt; `show` is given the text as it comes.
    pub(crate) fn answer(
        &self,
        prompt: &Encoded,
        place: Place,
        show: &mut dyn FnMut(&str) -> Result<(), Failure>,
    ) -> Result<Answer, Failure> {
        let transcript = self.transcript(place)?;
        let handle = &self.running.handle;
        let (sink, events) = unbounded();
        let id = handle.submit(Request {
            sampling: self.sampling.clone(),
            seed: self.seed,
            end_tokens: self.end_tokens.clone(),
            constraint: self.constraint.as_ref().map(Constraint::copy),
            boundaries: prompt.boundaries.clone(),
            min_tokens: self.min_tokens,
            logprobs: self.logprobs,
            prompt_logprobs: self.prompt_logprobs,
            ..Request::greedy(prompt.ids.clone(), self.max_tokens, Arc::new(sink))
        })?;
        self.interrupt.watch({
            let handle = handle.clone();
            // An engine that doesn't listen any more has ended the request already.
            move || drop(handle.cancel(id))
        });
        let truncate = |generated: usize| drop(handle.truncate(id, prompt.ids.len() + generated));
        let answer = follow(&events, transcript, truncate, show);
        self.interrupt.release();
        answer
    }

    fn transcript(&self, place: Place) -> Result<Transcript, Failure> {
        Ok(match &self.text {
            Ok(text) => Transcript::Text {
                decoder: Decoder::new(&text.tokenizer, SpecialTokens::Skip, place),
                stops: StopStrings::new(self.stops.clone())?,
            },
            Err(_) => Transcript::Ids { is_begun: false },
        })
    }

    /// What ended an answer, for people.
    pub(crate) fn describe(&self, answer: &Answer) -> String {
        match answer.ending {
            Ending::EndToken(_) => "the end of the text".to_owned(),
            Ending::StopString(index) => format!("the stop string {:?}", self.stops[index]),
            Ending::Complete => "the end that its grammar sets".to_owned(),
            Ending::MaxTokens => format!("the limit of {} tokens (--max-tokens)", self.max_tokens),
            Ending::ContextFull => {
                format!("the context, which is full at {} tokens (--context)", self.context())
            }
            Ending::Interrupted => "Ctrl-C".to_owned(),
        }
    }
}
