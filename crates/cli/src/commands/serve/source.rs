//! How a model of a server comes into memory.

use crate::commands::end_token_ids;
use crate::model_reference::ModelReference;
use gannet_engine::{EngineOptions, PrefixFollower};
use gannet_loader::{LoadError, LoadOptions, Loaded, MemoryBroker, MemoryClass, MemoryUse, Purpose, Running};
use gannet_ops::{Backend, PoolKind};
use gannet_server::{Facts, LoadFailure, Measure, Model, ModelSource};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// How long an engine's step is waited for to ask for its memory.
const PATIENCE: Duration = Duration::from_millis(500);

/// A model and what clients call it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NamedModel {
    pub(super) name: String,
    pub(super) reference: ModelReference,
}

impl NamedModel {
    /// A model that is called as its file is, without the ending, or by its name on the hub.
    pub(super) fn unnamed(reference: ModelReference) -> Self {
        let text = reference.to_string();
        let path = Path::new(&text);
        let stem = if text.ends_with(".gguf") { path.file_stem() } else { path.file_name() };
        let stem = stem.map(|stem| stem.to_string_lossy().into_owned());
        let name = if path.exists() { stem.unwrap_or_else(|| text.clone()) } else { text.clone() };
        Self { name, reference }
    }
}

impl FromStr for NamedModel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((name, reference)) if !name.is_empty() && !reference.is_empty() => {
                Ok(Self { name: name.to_owned(), reference: ModelReference::from_text(reference) })
            }
            Some(_) | None => Err("expected NAME=MODEL, such as small=small.gguf".to_owned()),
        }
    }
}

/// A model's files and how to run them.
pub(super) struct Source {
    pub(super) path: PathBuf,
    pub(super) backend: Arc<dyn Backend>,
    /// The account of the process's memory, which all models share.
    pub(super) broker: Arc<MemoryBroker>,
    pub(super) options: LoadOptions,
    /// Requests that may wait.
    pub(super) waiting: usize,
    /// Tokens of a step; as many as fit into its time where absent.
    pub(super) step_tokens: Option<usize>,
    /// Whether it makes vectors, and of which rows; text where absent, and where its files say no other.
    pub(super) vectors: Option<Pooled>,
}

/// Which rows of a text make its vector; those that the model's files name where absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pooled(pub(super) Option<PoolKind>);

impl Source {
    /// Finds out whether the model can ever be loaded, before anybody asks for it.
    pub(super) fn check(&self) -> Result<(), LoadError> {
        self.for_its_purpose(|options| gannet_loader::check(&self.path, options, self.broker.total()))
    }

    /// Does something with a model for what it was made for.
    fn for_its_purpose<T>(&self, act: impl Fn(&LoadOptions) -> Result<T, LoadError>) -> Result<T, LoadError> {
        let vectors = |pooling| Purpose::Vectors { pooling };
        let purpose = self.vectors.map_or(Purpose::Text, |Pooled(pooling)| vectors(pooling));
        match act(&LoadOptions { purpose, ..self.options }) {
            // A model that makes no text was made for vectors.
            Err(LoadError::MakesNoText { .. }) => {
                act(&LoadOptions { purpose: vectors(None), ..self.options })
            }
            done => done,
        }
    }
}

impl ModelSource for Source {
    fn load(&self, follower: Option<PrefixFollower>) -> Result<Model, LoadFailure> {
        let loaded = self.for_its_purpose(|options| {
            gannet_loader::load_within(&self.broker, &self.path, self.backend.as_ref(), options, &|_| ())
        });
        let Loaded { model, text, mut runner, memory, weight_bytes, grant, .. } = loaded.map_err(failure)?;
        runner.prefix_follower = follower;
        let sequences = memory.sequences;
        let numerics_id = runner.numerics_id.to_string();
        let text = text.map_err(failure)?;
        let end_tokens = end_token_ids(&model, Some(&text));
        let resumes_at_messages = runner.layout.is_recurrent() || runner.layout.has_windows();
        let options = EngineOptions {
            sequences,
            waiting: sequences + self.waiting,
            step_rows: self.step_tokens,
            ..EngineOptions::default()
        };
        let Running { handle, thread } =
            gannet_loader::start_lending(runner, options, grant).map_err(failure)?;
        let measured = handle.clone();
        let used_memory = Measure(Arc::new(move || {
            let used = |runner| by_class(&MemoryUse::of_runner(weight_bytes, &runner));
            measured.measure(PATIENCE).map(used).unwrap_or_default()
        }));
        let facts = Facts { numerics_id, memory: by_class(&memory.memory), used_memory };
        Ok(Model { handle, thread, text, end_tokens, sequences, resumes_at_messages, facts })
    }
}

/// The classes that have any bytes.
fn by_class(memory: &MemoryUse) -> Vec<(&'static str, u64)> {
    let class = |class: MemoryClass| (class.name(), memory.of(class));
    MemoryClass::ALL.into_iter().map(class).filter(|(_, bytes)| *bytes > 0).collect()
}

fn failure(error: LoadError) -> LoadFailure {
    match error {
        LoadError::OutOfMemory { .. } | LoadError::BudgetTooLarge { .. } | LoadError::OverBudget(_) => {
            LoadFailure::NoRoom(error.to_string())
        }
        LoadError::Format(_)
        | LoadError::Model(_)
        | LoadError::Text(_)
        | LoadError::NoTokenizer { .. }
        | LoadError::MakesNoText { .. }
        | LoadError::NoPooling { .. }
        | LoadError::Device(_)
        | LoadError::ContextTooLong { .. }
        | LoadError::NoContext
        | LoadError::Options(_)
        | LoadError::Thread(_) => LoadFailure::Broken(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_called_by_its_name_or_its_file() {
        let named = |text: &str| text.parse::<NamedModel>().map(|model| model.name);
        assert_eq!(named("small=a/b.gguf"), Ok("small".to_owned()));
        for wrong in ["small", "=a", "small="] {
            assert!(named(wrong).is_err(), "{wrong}");
        }
        let unnamed = |text: &str| NamedModel::unnamed(ModelReference::from_text(text)).name;
        // The tests run in the folder of this crate.
        assert_eq!(unnamed("../../goldens/small.gguf"), "small");
        assert_eq!(unnamed("../../goldens/real"), "real");
        assert_eq!(unnamed("org/repo:Q4_K_M"), "org/repo:Q4_K_M");
    }
}
