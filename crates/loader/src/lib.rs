//! A path and a backend -> a running engine.
//!
//! [`load`] is the start-up story, top to bottom: open the checkpoint, recognise the model, build the program, size the
//! memory, rewrite the program for the backend, upload weights, compile; the text side is read beside it, on a thread of
//! its own. [`open`] is what touches no device.
//!
//! Knows no family, no kernel and no request.

mod broker;
mod error;
pub mod machine;
mod memory;
mod numerics;
mod progress;
pub mod random;
mod text;

pub use broker::{Grant, MemoryBroker, MemoryClass, MemoryUse, OverBudget};
pub use error::LoadError;
pub use memory::MemoryPlan;
pub use progress::Progress;

use gannet_engine::{Engine, EngineHandle, EngineOptions, Runner};
use gannet_formats::Checkpoint;
use gannet_model::{Model, RopeOverride};
use gannet_ops::{Backend, KvFormat, PoolKind, Program, Readiness, WeightSource, fuse};
use gannet_text::text::Text;
use memory::Wanted;
use progress::WatchedWeights;
use random::{RandomFormat, RandomWeights};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Builder, JoinHandle};

/// Rows of the largest step, where nothing else is chosen.
pub const DEFAULT_STEP_ROWS: usize = 512;

/// What a person may choose about a model's start.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadOptions {
    /// Tokens of the longest sequence; the model's own context, or what memory allows, where absent.
    pub context: Option<usize>,
    /// Rows of the largest step; [`DEFAULT_STEP_ROWS`] where absent.
    pub step_rows: Option<usize>,
    /// Sequences that run at once, each with the whole context; 1 where absent.
    pub sequences: Option<usize>,
    /// Takes half as many sequences, and again, down to one, where the context doesn't fit for all of them.
    pub fewer_sequences: bool,
    /// Bytes that the model may take, weights and all; what the system has where absent. More than that is refused.
    pub memory: Option<u64>,
    /// Encoding of keys and values; that of the weights (float32, else half precision) where absent.
    pub kv_format: Option<KvFormat>,
    /// How the rope is stretched, in place of what the files say; as they say where absent.
    pub rope_scaling: Option<RopeOverride>,
    /// Takes a `context` beyond what the model and its rope were made for, where answers get worse.
    pub force_context: bool,
    /// Random weights in place of those of the files, of which the description alone is read; for measurements.
    pub random_weights: Option<RandomFormat>,
    /// What the model is to make.
    pub purpose: Purpose,
    /// Rows of each sequence that a step may draft; 0 where nothing drafts.
    pub drafts: u32,
}

/// What a model is loaded for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// To continue texts.
    #[default]
    Text,
    /// To make vectors of texts.
    Vectors {
        /// Which rows of a text make its vector; those that the files name where absent.
        pooling: Option<PoolKind>,
    },
}

/// A checkpoint whose model and text are understood; no weight has been read.
pub struct Opened {
    /// The files.
    pub checkpoint: Checkpoint,
    /// What they hold.
    pub model: Model,
    /// The tokenizer and chat template, or why there is none.
    pub text: Result<Text, LoadError>,
}

/// A model on a device, ready to run.
pub struct Loaded {
    /// What it is.
    pub model: Model,
    /// The tokenizer and chat template, or why there is none.
    pub text: Result<Text, LoadError>,
    /// The program that runs, as rewritten for the backend.
    pub program: Program,
    /// The plan with its state.
    pub runner: Runner,
    /// What its memory is planned for.
    pub memory: MemoryPlan,
    /// Bytes of its weights in the device's arrangement.
    pub weight_bytes: u64,
    /// Its part of the process's memory, which is free again when this is dropped.
    pub grant: Grant,
    /// Tensors of the checkpoint that the program doesn't read, by name.
    pub unused: Vec<String>,
    /// What a person should know about how the weights lie on the device, a sentence each.
    pub remarks: Vec<String>,
}

/// An engine on its own thread.
pub struct Running {
    /// The way in; the engine stops when the last copy of it is dropped.
    pub handle: EngineHandle,
    /// Its thread, to wait for the end.
    pub thread: JoinHandle<()>,
}

/// Opens a model file or folder and understands it.
pub fn open(path: &Path) -> Result<Opened, LoadError> {
    let checkpoint = Checkpoint::open(path)?;
    let model = gannet_model::recognise(&checkpoint)?;
    let text = text::read(&checkpoint);
    Ok(Opened { checkpoint, model, text })
}

/// Loads the only model of a process onto a backend; `watch` hears how far the weights are.
pub fn load(
    path: &Path,
    backend: &dyn Backend,
    options: &LoadOptions,
    watch: &(dyn Fn(Progress) + Sync),
) -> Result<Loaded, LoadError> {
    load_within(&MemoryBroker::new(available_bytes(backend)), path, backend, options, watch)
}

/// Loads one of several models, with what the process's broker has left.
pub fn load_within(
    broker: &Arc<MemoryBroker>,
    path: &Path,
    backend: &dyn Backend,
    options: &LoadOptions,
    watch: &(dyn Fn(Progress) + Sync),
) -> Result<Loaded, LoadError> {
    let described =
        if options.random_weights.is_some() { Checkpoint::describe(path) } else { Checkpoint::open(path) };
    let checkpoint = described?;
    let mut model = gannet_model::recognise(&checkpoint)?;
    apply(options, &mut model)?;
    // A large vocabulary takes as long as the weights of a small model, and neither needs the other.
    thread::scope(|scope| {
        let text =
            Builder::new().name("gannet-text".to_owned()).spawn_scoped(scope, || text::read(&checkpoint));
        let device = on_device(broker, (&checkpoint, &model), backend, options, watch);
        let text = match text {
            Ok(text) => text.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(_) => text::read(&checkpoint),
        };
        machine::heap::give_back();
        let OnDevice { program, runner, memory, weight_bytes, grant, unused, remarks } = device?;
        Ok(Loaded { model, text, program, runner, memory, weight_bytes, grant, unused, remarks })
    })
}

/// A model's part of [`Loaded`] that a backend holds.
struct OnDevice {
    program: Program,
    runner: Runner,
    memory: MemoryPlan,
    weight_bytes: u64,
    grant: Grant,
    unused: Vec<String>,
    remarks: Vec<String>,
}

/// Plans the memory, uploads the weights and compiles.
fn on_device(
    broker: &Arc<MemoryBroker>,
    (checkpoint, model): (&Checkpoint, &Model),
    backend: &dyn Backend,
    options: &LoadOptions,
    watch: &(dyn Fn(Progress) + Sync),
) -> Result<OnDevice, LoadError> {
    let mut wanted = Wanted::new(model, checkpoint, options, backend.step_rows())?;
    wanted.steps_in_flight = backend.steps_in_flight();
    wanted.draw_bytes = backend.draw_bytes(model.config.vocabulary, wanted.sequences);
    wanted.rollback = backend.rollback();
    let program = model.program(&wanted.program_options())?;
    let made_up = options.random_weights.unwrap_or_default();
    let stored = match options.random_weights {
        Some(_) => None,
        None => Some(model.weights_of(checkpoint, &program.weights)?),
    };
    let tensor_bytes = match stored {
        Some(_) => checkpoint.tensor_bytes() as u64,
        None => random::bytes(&program, made_up),
    };
    if let Ok(wish) = MemoryPlan::fit(&wanted, &program, tensor_bytes, u64::MAX) {
        broker.make_room(wish.memory.total());
    }
    let mut planned = None;
    let grant = broker.grant::<LoadError>(|free| {
        let plan = MemoryPlan::fit(&wanted, &program, tensor_bytes, free)?;
        Ok(planned.insert(plan).memory)
    })?;
    let memory = planned.expect("a granted plan was made");
    let program = memory.fitted(program, &wanted, model)?;
    let program = fuse(&program, backend.fusions());
    checkpoint.prefetch();
    let random = RandomWeights::new(&program, made_up);
    let weights: &dyn WeightSource = stored.as_ref().map_or(&random, |stored| stored);
    let watched = WatchedWeights::new(weights, &program, watch);
    let uploaded = backend.upload(&watched, &program.weights)?;
    let mut state = backend.allocate(&program.state, &memory.budget)?;
    let mut plan = backend.compile(&program, &uploaded, &memory.limits())?;
    while plan.make_ready(state.as_mut())? == Readiness::Needed {}
    let (weight_bytes, remarks) = (uploaded.bytes(), uploaded.remarks());
    let numerics_id = numerics::numerics_id(checkpoint, &program, backend);
    let runner = memory.runner((plan, state, wanted.steps_in_flight), (&program, numerics_id), model);
    let unused = stored.iter().flat_map(|stored| stored.unused()).map(str::to_owned).collect();
    Ok(OnDevice { program, runner, memory, weight_bytes, grant, unused, remarks })
}

/// Finds out whether a model can be loaded at all, with so many bytes: reads no weight.
///
/// # Errors
/// Those of [`load`] that its files and what was chosen bring about.
pub fn check(path: &Path, options: &LoadOptions, available_bytes: u64) -> Result<(), LoadError> {
    let checkpoint = Checkpoint::open(path)?;
    let mut model = gannet_model::recognise(&checkpoint)?;
    apply(options, &mut model)?;
    MemoryPlan::within(&model, &checkpoint, options, available_bytes).map(drop)
}

/// Bytes that a backend has for models: those of its device, or those of the machine.
pub fn available_bytes(backend: &dyn Backend) -> u64 {
    backend.free_bytes().unwrap_or_else(machine::available_bytes)
}

/// Does to a model what was chosen about it.
fn apply(options: &LoadOptions, model: &mut Model) -> Result<(), LoadError> {
    if let Some(scaling) = &options.rope_scaling {
        model.scale_rope(scaling)?;
    }
    let family = model.family;
    match (options.purpose, &model.config.pooling) {
        (Purpose::Text, None) | (Purpose::Vectors { pooling: None }, Some(_)) => Ok(()),
        (Purpose::Text, Some(_)) => Err(LoadError::MakesNoText { family }),
        (Purpose::Vectors { pooling: None }, None) => Err(LoadError::NoPooling { family }),
        (Purpose::Vectors { pooling: Some(kind) }, _) => {
            model.pool_by(kind);
            Ok(())
        }
    }
}

/// Starts an engine over a runner on a thread of its own.
pub fn start(runner: Runner, options: EngineOptions) -> Result<Running, LoadError> {
    options.check(&runner)?;
    let (engine, handle) = Engine::new(runner, options);
    run(engine, handle)
}

/// As [`start`], of one of several models: the engine holds its part of the process's memory, and gives others that of idle
/// pages when they load.
pub fn start_lending(runner: Runner, options: EngineOptions, grant: Grant) -> Result<Running, LoadError> {
    options.check(&runner)?;
    let (mut engine, handle) = Engine::new(runner, options);
    let grant = Arc::new(Mutex::new(grant));
    let account = Arc::clone(&grant);
    let take =
        move |bytes| account.lock().unwrap_or_else(PoisonError::into_inner).take(MemoryClass::Pages, bytes);
    Grant::lend(&grant, engine.lend(take));
    run(engine, handle)
}

fn run(engine: Engine, handle: EngineHandle) -> Result<Running, LoadError> {
    let thread = Builder::new().name("engine".to_owned()).spawn(move || engine.run())?;
    Ok(Running { handle, thread })
}
