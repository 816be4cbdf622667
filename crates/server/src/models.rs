//! Which models there are, and those of them that are in memory.
//!
//! A model is loaded when it is first asked for, one at a time. Where there is no room, the one that was not used for
//! longest and that nobody uses now goes. A model that answers is held by its requests, so it is never among those.
//!
//! Knows no file: how a model is loaded is the caller's business.

use crate::admission::{Admission, Permit};
use crate::config::Config;
use crate::error::ApiError;
use crate::http::serve::Phase;
use crate::limits::Limits;
use crate::metrics::ModelMetrics;
use crate::names::{self, now_seconds};
use gannet_engine::{EngineHandle, PrefixFollower};
use gannet_grammar::{GrammarError, Grammars};
use gannet_ops::TokenId;
use gannet_text::text::Text;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// A model in memory, as the caller hands it over.
pub struct Model {
    /// The way into its engine.
    pub handle: EngineHandle,
    /// The engine's thread, which ends when the last handle is dropped.
    pub thread: JoinHandle<()>,
    /// Its tokenizer and template.
    pub text: Text,
    /// Tokens that end an answer.
    pub end_tokens: Vec<TokenId>,
    /// Sequences that run at once.
    pub sequences: usize,
    /// Whether what it takes to go on from inside of a prompt is to be kept where messages end: recurrent state, and the rows of
    /// windows. Other models go on from anywhere.
    pub resumes_at_messages: bool,
    /// What is told of it.
    pub facts: Facts,
}

/// What is told of a model.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// What the bits of its answers depend on beside their prompts, as one word.
    pub numerics_id: String,
    /// Bytes that its memory is planned to take, by class.
    pub memory: Vec<(&'static str, u64)>,
    /// Says what lies in memory.
    pub used_memory: Measure,
}

/// Says how many bytes of each class lie in memory of a model; nothing where its engine doesn't answer in time. May wait.
#[derive(Clone)]
pub struct Measure(pub Arc<dyn Fn() -> Vec<(&'static str, u64)> + Send + Sync>);

impl Default for Measure {
    fn default() -> Self {
        Self(Arc::new(Vec::new))
    }
}

impl fmt::Debug for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Measure")
    }
}

/// How a model comes into memory.
pub trait ModelSource: Send + Sync {
    /// Loads it; takes as long as it takes. `follower` hears what its prefix cache gains and loses.
    ///
    /// # Errors
    /// Why it can't be had.
    fn load(&self, follower: Option<PrefixFollower>) -> Result<Model, LoadFailure>;
}

/// Why a model isn't in memory.
#[derive(Debug, thiserror::Error)]
pub enum LoadFailure {
    /// There may be room when another model has gone.
    #[error("{0}")]
    NoRoom(String),
    /// It won't be better later.
    #[error("{0}")]
    Broken(String),
}

/// A model that can be asked for.
pub struct ModelEntry {
    /// What clients call it.
    pub name: String,
    /// How it comes into memory.
    pub source: Arc<dyn ModelSource>,
}

/// A model that answers.
pub(crate) struct Served {
    pub(crate) name: String,
    pub(crate) handle: EngineHandle,
    pub(crate) text: Text,
    pub(crate) end_tokens: Vec<TokenId>,
    pub(crate) resumes_at_messages: bool,
    pub(crate) facts: Facts,
    pub(crate) admission: Arc<Admission>,
    pub(crate) metrics: ModelMetrics,
    pub(crate) phase: watch::Receiver<Phase>,
    limits: Arc<Limits>,
    seed: Option<u64>,
    /// Whether prompts and answers stand in the log.
    pub(crate) logs_text: bool,
    watched: Mutex<Watched>,
    /// Page faults that were warned about.
    faults: AtomicU64,
    /// Made when a grammar is first asked for.
    grammars: OnceLock<Result<Grammars, GrammarError>>,
}

/// When the engine was last seen to have made a step.
struct Watched {
    steps: u64,
    since: Instant,
}

/// All models.
pub(crate) struct Models {
    entries: Vec<Entry>,
    loaded_most: usize,
    limits: Arc<Limits>,
    phase: watch::Receiver<Phase>,
    seed: Option<u64>,
    logs_text: bool,
    #[cfg(feature = "kv-events")]
    publisher: Option<crate::kv_events::Publisher>,
    /// Held while a model is loaded.
    loading: tokio::sync::Mutex<()>,
}

struct Entry {
    name: String,
    created: u64,
    source: Arc<dyn ModelSource>,
    slot: Mutex<Option<Loaded>>,
}

struct Loaded {
    served: Arc<Served>,
    thread: JoinHandle<()>,
    used: Instant,
}

impl Models {
    pub(crate) fn new(entries: Vec<ModelEntry>, config: &Config, phase: watch::Receiver<Phase>) -> Self {
        let entry = |ModelEntry { name, source }| Entry {
            name,
            created: now_seconds(),
            source,
            slot: Mutex::new(None),
        };
        let entries = entries.into_iter().map(entry).collect();
        Self {
            entries,
            loaded_most: config.loaded_models,
            limits: config.limits.clone(),
            phase,
            seed: config.seed,
            logs_text: config.logs_text,
            #[cfg(feature = "kv-events")]
            publisher: None,
            loading: tokio::sync::Mutex::new(()),
        }
    }

    /// Publishes the changes of all prefix caches from now on.
    #[cfg(feature = "kv-events")]
    pub(crate) fn publish(&mut self, publisher: crate::kv_events::Publisher) {
        self.publisher = Some(publisher);
    }

    /// Says that nothing is known here any more.
    #[cfg(feature = "kv-events")]
    pub(crate) async fn close(&self) {
        if let Some(publisher) = &self.publisher {
            publisher.close().await;
        }
    }

    /// Names and moments of all models.
    pub(crate) fn list(&self) -> impl Iterator<Item = (&str, u64)> {
        self.entries.iter().map(|entry| (entry.name.as_str(), entry.created))
    }

    /// Those that are in memory.
    pub(crate) fn loaded(&self) -> Vec<Arc<Served>> {
        let served = |entry: &Entry| lock(&entry.slot).as_ref().map(|loaded| loaded.served.clone());
        self.entries.iter().filter_map(served).collect()
    }

    /// The model of this name, loaded if need be.
    pub(crate) async fn get(&self, name: &str) -> Result<Arc<Served>, ApiError> {
        let entry = self.entry(name)?;
        if let Some(served) = entry.take() {
            served.warn_of_faults();
            return Ok(served);
        }
        let _loading = self.loading.lock().await;
        if let Some(served) = entry.take() {
            return Ok(served);
        }
        while self.loaded().len() >= self.loaded_most {
            if !self.unload_one().await {
                let why = format!("{} models are loaded and in use", self.loaded_most);
                return Err(ApiError::NotLoaded { model: name.to_owned(), why });
            }
        }
        self.load(entry).await
    }

    /// Whether there is a model of this name.
    pub(crate) fn contains(&self, name: &str) -> Result<(), ApiError> {
        self.entry(name).map(|_| ())
    }

    fn entry(&self, name: &str) -> Result<&Entry, ApiError> {
        self.entries.iter().find(|entry| entry.name == name).ok_or_else(|| ApiError::UnknownModel {
            asked: crate::wire::fields::shortened(name),
            known: self.entries.iter().map(|entry| entry.name.clone()).collect(),
        })
    }

    async fn load(&self, entry: &Entry) -> Result<Arc<Served>, ApiError> {
        loop {
            let source = entry.source.clone();
            let started = Instant::now();
            let follower = self.follower(&entry.name);
            let result = tokio::task::spawn_blocking(move || source.load(follower)).await;
            match result.map_err(|error| LoadFailure::Broken(error.to_string())).flatten() {
                Ok(model) => {
                    tracing::info!(
                        model = entry.name,
                        seconds = started.elapsed().as_secs_f32(),
                        "model loaded"
                    );
                    return Ok(self.put(entry, model));
                }
                Err(LoadFailure::NoRoom(_)) if self.unload_one().await => {}
                Err(LoadFailure::NoRoom(why) | LoadFailure::Broken(why)) => {
                    tracing::error!(model = entry.name, why, "model not loaded");
                    return Err(ApiError::NotLoaded { model: entry.name.clone(), why });
                }
            }
        }
    }

    /// Who hears what a model's prefix cache gains and loses.
    #[cfg(feature = "kv-events")]
    fn follower(&self, model: &str) -> Option<PrefixFollower> {
        self.publisher.as_ref().map(|publisher| publisher.follower(model))
    }

    /// Who hears what a model's prefix cache gains and loses: nobody in this build.
    #[cfg(not(feature = "kv-events"))]
    fn follower(&self, _model: &str) -> Option<PrefixFollower> {
        None
    }

    fn put(&self, entry: &Entry, model: Model) -> Arc<Served> {
        let Model { handle, thread, text, end_tokens, sequences, resumes_at_messages, facts } = model;
        let served = Arc::new(Served {
            name: entry.name.clone(),
            handle,
            text,
            end_tokens,
            resumes_at_messages,
            facts,
            admission: Admission::new(sequences, self.limits.waiting),
            metrics: ModelMetrics::default(),
            phase: self.phase.clone(),
            limits: self.limits.clone(),
            seed: self.seed,
            logs_text: self.logs_text,
            watched: Mutex::new(Watched { steps: 0, since: Instant::now() }),
            faults: AtomicU64::new(0),
            grammars: OnceLock::new(),
        });
        *lock(&entry.slot) = Some(Loaded { served: served.clone(), thread, used: Instant::now() });
        served
    }

    /// Takes the model that nobody uses, and nobody used for longest, out of memory; false where there is none.
    async fn unload_one(&self) -> bool {
        let idle = |entry: &&Entry| {
            let slot = lock(&entry.slot);
            slot.as_ref().filter(|loaded| Arc::strong_count(&loaded.served) == 1).map(|loaded| loaded.used)
        };
        let oldest = self.entries.iter().filter(|entry| idle(entry).is_some()).min_by_key(idle);
        let taken = oldest.and_then(|entry| {
            // Only a slot hands copies out, so who is alone while it is locked stays alone.
            lock(&entry.slot).take_if(|loaded| Arc::strong_count(&loaded.served) == 1)
        });
        let Some(Loaded { served, thread, .. }) = taken else { return false };
        tracing::info!(model = served.name, "model unloaded");
        drop(served);
        // Its memory is free when its engine has ended; one that panicked has ended as well.
        let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        true
    }
}

impl Entry {
    /// The model, if it is in memory.
    fn take(&self) -> Option<Arc<Served>> {
        let mut slot = lock(&self.slot);
        let loaded = slot.as_mut()?;
        loaded.used = Instant::now();
        Some(loaded.served.clone())
    }
}

impl Served {
    /// Tokens of the longest sequence that can run.
    pub(crate) fn room(&self) -> usize {
        self.handle.context().min(self.handle.longest_sequence())
    }

    /// The seed of a request that names none.
    pub(crate) fn seed(&self) -> u64 {
        self.seed.unwrap_or_else(names::random)
    }

    /// Takes places for so many answers, or says when one is expected; `path` is the parameter that asks for so many.
    pub(crate) fn admit(&self, answers: usize, path: &str) -> Result<Permit, ApiError> {
        self.admission.check(answers, path)?;
        let wait = self.handle.stats().wait;
        self.admission.admit(answers, wait).inspect_err(|_| self.metrics.refused())
    }

    /// The compiler of grammars for this model's tokens. Takes up to a second when it is first asked for.
    pub(crate) fn grammars(&self) -> Result<Grammars, GrammarError> {
        self.grammars.get_or_init(|| Grammars::new(&self.text.tokenizer, self.limits.grammar())).clone()
    }

    /// Warns of page faults since the last look that had to read a file or swapped memory: each of them held a step up.
    fn warn_of_faults(&self) {
        let faults = self.handle.stats().major_faults.unwrap_or(0);
        let before = self.faults.swap(faults, Ordering::Relaxed);
        if faults > before {
            let since = faults - before;
            tracing::warn!(model = self.name, faults = since, "page faults read a file or swapped memory");
        }
    }

    /// How long the engine has made no step although it has something to do, as far as looks at it show.
    pub(crate) fn stands_for(&self) -> Duration {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let (steps, is_busy) = (self.handle.stats().steps, self.admission.live() > 0);
        watched.stands_for(steps, is_busy, Instant::now())
    }
}

impl Watched {
    /// How long an engine with something to do has made no step.
    fn stands_for(&mut self, steps: u64, is_busy: bool, now: Instant) -> Duration {
        if steps != self.steps || !is_busy {
            *self = Watched { steps, since: now };
        }
        now - self.since
    }
}

fn lock(slot: &Mutex<Option<Loaded>>) -> MutexGuard<'_, Option<Loaded>> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_stands_still_from_its_last_step_on_and_only_while_it_has_something_to_do() {
        let start = Instant::now();
        let mut watched = Watched { steps: 0, since: start };
        let mut look = |seconds: u64, steps: u64, is_busy: bool| {
            watched.stands_for(steps, is_busy, start + Duration::from_secs(seconds)).as_secs()
        };
        assert_eq!(look(100, 0, false), 0, "it is idle, however long");
        assert_eq!(look(103, 0, true), 3, "its first step has not come");
        assert_eq!(look(110, 4, true), 0);
        assert_eq!(look(130, 4, true), 20);
        assert_eq!(look(131, 4, false), 0);
    }
}
