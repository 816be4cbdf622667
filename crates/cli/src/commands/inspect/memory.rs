//! How much memory a model needs at a context length.

use crate::arguments::DeviceArguments;
use crate::backend::BackendName;
use crate::failure::Failure;
use crate::quantity::{bytes, entry};
use crossbeam_channel::unbounded;
use gannet_engine::{EngineOptions, Event, FinishReason, Request, Runner, RunnerBytes};
use gannet_formats::Checkpoint;
use gannet_loader::machine::Process;
use gannet_loader::{LoadError, LoadOptions, Loaded, MemoryClass, MemoryPlan, MemoryUse, Running};
use gannet_model::Model;
use gannet_ops::{KvFormat, TokenId};
use serde::{Serialize, Serializer};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

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
    /// What lies in memory of the model, where it was loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    measured: Option<MeasuredFacts>,
    /// How keys and values are kept; what was asked for, or F16, where nothing was planned.
    #[serde(serialize_with = "name")]
    pub(crate) kv_format: KvFormat,
}

/// What a model that has answered lies in memory with.
#[derive(Debug, Serialize)]
struct MeasuredFacts {
    /// Of each class that has any; a part that was never touched is in no memory yet.
    classes: Vec<ClassFacts>,
    /// By how much the process's own memory grew; null where the system doesn't say.
    resident_bytes: Option<u64>,
}

/// The bytes of one class.
#[derive(Debug, Serialize)]
struct ClassFacts {
    class: &'static str,
    bytes: u64,
}

fn class_facts(memory: &MemoryUse) -> Vec<ClassFacts> {
    let facts = |class: MemoryClass| ClassFacts { class: class.name(), bytes: memory.of(class) };
    MemoryClass::ALL.into_iter().map(facts).filter(|facts| facts.bytes > 0).collect()
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
        Self {
            context,
            weight_bytes: memory.of(MemoryClass::Weights),
            state_bytes: state.into_iter().map(|class| memory.of(class)).fold(0, u64::saturating_add),
            scratch_bytes: memory.of(MemoryClass::Scratch),
            classes: class_facts(&memory),
            total_bytes: memory.total(),
            available_bytes,
            measured: None,
            kv_format,
        }
    }

    /// Loads the model, lets each of its sequences answer, and looks at what lies in memory then.
    pub(crate) fn measured(self, path: &Path, options: &LoadOptions) -> Result<Self, Failure> {
        let device = DeviceArguments {
            backend: BackendName::Cpu,
            threads: None,
            activations: None,
            cpu_isa: None,
            cuda_launches: None,
        };
        let backend = device.open()?;
        let before = Process::measure();
        let Loaded { runner, memory, weight_bytes, .. } =
            gannet_loader::load(path, backend.as_ref(), options, &|_| ())?;
        let (runner, after) = answer(runner, memory.sequences)?;
        let grown = before.zip(after).map(|(before, now)| now.own_bytes.saturating_sub(before.own_bytes));
        let taken = MemoryUse::of_runner(weight_bytes, &runner);
        let taken = grown.map_or(taken, |bytes| taken.with_rest_of(bytes));
        let measured = MeasuredFacts { classes: class_facts(&taken), resident_bytes: grown };
        Ok(Self { measured: Some(measured), ..self })
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
        let of = |classes: &[ClassFacts], class: MemoryClass| {
            classes.iter().find(|facts| facts.class == class.name()).map_or(0, |facts| facts.bytes)
        };
        let line = |class: MemoryClass| {
            let planned = of(&self.classes, class);
            let measured = self.measured.as_ref().map(|measured| of(&measured.classes, class));
            let text = |measured: u64| format!("planned {}, measured {}", bytes(planned), bytes(measured));
            let is_shown = planned > 0 || measured.is_some_and(|measured| measured > 0);
            is_shown.then(|| {
                entry(&format!("  {}", class.name()), &measured.map_or_else(|| bytes(planned), text))
            })
        };
        let mut lines: Vec<String> = MemoryClass::ALL.into_iter().filter_map(line).collect();
        if let Some(measured) = &self.measured {
            let resident = measured.resident_bytes.map_or("unknown".to_owned(), bytes);
            let text = format!("planned {}, measured {resident}", bytes(self.total_bytes));
            lines.push(entry("  in all", &text));
        }
        lines.push(entry("  available", &bytes(self.available_bytes)));
        lines
    }
}

/// How long an idle engine may take to say what lies in memory.
const PATIENCE: Duration = Duration::from_secs(10);
/// Tokens of the prompt that each sequence answers.
const PROMPT_TOKENS: usize = 64;

/// Lets each sequence answer a short prompt; what lies in memory of the runner afterwards, and of the process.
fn answer(runner: Runner, sequences: usize) -> Result<(RunnerBytes, Option<Process>), Failure> {
    let prompt_tokens = PROMPT_TOKENS.min(runner.context - 1);
    let prompt = vec![TokenId(0); prompt_tokens];
    let options = EngineOptions { sequences, waiting: sequences, ..EngineOptions::default() };
    let Running { handle, thread } = gannet_loader::start(runner, options)?;
    let (sink, events) = unbounded();
    let sink = Arc::new(sink);
    for salt in 0..sequences as u64 {
        // Each computes its own prompt.
        handle.submit(Request { cache_salt: salt, ..Request::greedy(prompt.clone(), 1, sink.clone()) })?;
    }
    drop(sink);
    // All have ended when nobody holds the sink any more.
    let failure = events.iter().find_map(|event| match event {
        Event::Finished { reason: FinishReason::Failed(why), .. } => Some(why),
        Event::Started { .. } | Event::Prefilled { .. } | Event::Token { .. } | Event::Finished { .. } => {
            None
        }
    });
    let (measured, process) = (handle.measure(PATIENCE), Process::measure());
    drop(handle);
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
    match (failure, measured) {
        (Some(why), _) => Err(anyhow::anyhow!("the model doesn't answer: {why}").into()),
        (None, None) => Err(anyhow::anyhow!("the engine doesn't say what lies in its memory").into()),
        (None, Some(measured)) => Ok((measured, process)),
    }
}

fn name<S: Serializer>(format: &KvFormat, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(format.name())
}
