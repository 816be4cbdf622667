//! How much memory a model needs at a context length.

use crate::arguments::DeviceArguments;
use crate::backend::BackendName;
use crate::failure::Failure;
use crate::quantity::{bytes, entry};
use gannet_formats::Checkpoint;
use gannet_loader::machine::Process;
use gannet_loader::{LoadError, LoadOptions, MemoryClass, MemoryPlan, MemoryUse, Taken};
use gannet_model::Model;
use gannet_ops::KvFormat;
use serde::{Serialize, Serializer};
use std::path::Path;

/// The memory of a model that runs.
#[derive(Debug, Serialize)]
pub(crate) struct MemoryFacts {
    /// Tokens of the longest sequence.
    pub(crate) context: usize,
    weight_bytes: u64,
    /// Of keys, values and other state.
    state_bytes: u64,
    /// Of the values of the largest step.
    scratch_bytes: u64,
    /// Of each class that has any.
    classes: Vec<ClassFacts>,
    total_bytes: u64,
    available_bytes: u64,
    /// What the model has taken, where it was loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    measured: Option<MeasuredFacts>,
    /// How keys and values are kept; what was asked for, or F16, where nothing was planned.
    #[serde(serialize_with = "name")]
    pub(crate) kv_format: KvFormat,
}

/// What a loaded model has taken.
#[derive(Debug, Serialize)]
struct MeasuredFacts {
    /// Of weights, in the backend's arrangement.
    weight_bytes: u64,
    /// Of keys, values and other state; a part that was never touched is in no memory yet.
    state_bytes: u64,
    /// By how much the process's own memory grew; null where the system doesn't say.
    resident_bytes: Option<u64>,
}

/// The planned bytes of one class.
#[derive(Debug, Serialize)]
struct ClassFacts {
    class: &'static str,
    bytes: u64,
}

impl MemoryFacts {
    /// What is needed, whether or not it is there.
    pub(crate) fn plan(
        model: &Model,
        checkpoint: &Checkpoint,
        options: &LoadOptions,
    ) -> Result<Self, Failure> {
        match MemoryPlan::new(model, checkpoint, options) {
            Ok(plan) => Ok(Self::new(plan.memory, plan.context, plan.available_bytes, plan.kv_format)),
            Err(LoadError::OutOfMemory { memory, context, available, .. }) => {
                Ok(Self::new(memory, context, available, options.kv_format.unwrap_or(KvFormat::F16)))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn new(memory: MemoryUse, context: usize, available_bytes: u64, kv_format: KvFormat) -> Self {
        let state = [MemoryClass::Pages, MemoryClass::Slots, MemoryClass::Candidates, MemoryClass::Snapshots];
        let facts = |class: MemoryClass| ClassFacts { class: class.name(), bytes: memory.of(class) };
        Self {
            context,
            weight_bytes: memory.of(MemoryClass::Weights),
            state_bytes: state.into_iter().map(|class| memory.of(class)).fold(0, u64::saturating_add),
            scratch_bytes: memory.of(MemoryClass::Scratch),
            classes: MemoryClass::ALL.into_iter().map(facts).filter(|facts| facts.bytes > 0).collect(),
            total_bytes: memory.total(),
            available_bytes,
            measured: None,
            kv_format,
        }
    }

    /// Loads the model and looks at what it takes.
    pub(crate) fn measured(self, path: &Path, options: &LoadOptions) -> Result<Self, Failure> {
        let device =
            DeviceArguments { backend: BackendName::Cpu, threads: None, activations: None, cpu_isa: None };
        let backend = device.open()?;
        let before = Process::measure();
        let loaded = gannet_loader::load(path, backend.as_ref(), options, &|_| ())?;
        let grown = before
            .zip(Process::measure())
            .map(|(before, now)| now.own_bytes.saturating_sub(before.own_bytes));
        let Taken { weights: weight_bytes, state: state_bytes } = loaded.taken;
        Ok(Self {
            measured: Some(MeasuredFacts { weight_bytes, state_bytes, resident_bytes: grown }),
            ..self
        })
    }

    /// That it doesn't fit.
    pub(crate) fn warning(&self) -> Option<String> {
        let lacks = self.total_bytes > self.available_bytes;
        lacks.then(|| format!("not enough memory: {} are available", bytes(self.available_bytes)))
    }

    /// One line.
    pub(crate) fn lines(&self) -> Vec<String> {
        let [total, weights, state, scratch] =
            [self.total_bytes, self.weight_bytes, self.state_bytes, self.scratch_bytes].map(bytes);
        let context = self.context;
        vec![entry(
            "memory",
            &format!(
                "{total} at a context of {context}: weights {weights}, keys and values in {} {state}, scratch {scratch}",
                self.kv_format.name()
            ),
        )]
    }

    /// A line a class.
    pub(crate) fn class_lines(&self) -> Vec<String> {
        let line = |facts: &ClassFacts| entry(&format!("  {}", facts.class), &bytes(facts.bytes));
        let mut lines: Vec<String> = self.classes.iter().map(line).collect();
        lines.push(entry("  available", &bytes(self.available_bytes)));
        if let Some(measured) = &self.measured {
            let resident = measured.resident_bytes.map_or("unknown".to_owned(), bytes);
            let [weights, state] = [measured.weight_bytes, measured.state_bytes].map(bytes);
            let text = format!("weights {weights}, state {state}; {resident} resident");
            lines.push(entry("  taken", &text));
        }
        lines
    }
}

fn name<S: Serializer>(format: &KvFormat, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(format.name())
}
