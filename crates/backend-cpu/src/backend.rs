//! `Backend` for this machine: the team, its instructions, and the numbers of steps, shared by all plans.

use crate::kernels::{Crew, Scratch};
use crate::options::{ActivationFormat, CpuError, CpuOptions};
use crate::plan::CpuPlan;
use crate::simd::{Isa, IsaLevel};
use crate::state::CpuState;
use crate::threads::Team;
use crate::weights::CpuWeights;
use gannet_ops::{
    Backend, BatchLimits, Budget, DeviceError, Fusion, Plan, Program, State, StateLayout, StepId,
    WeightSource, WeightUse, Weights,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The name that people choose the backend by.
pub(crate) const NAME: &str = "cpu";

/// This machine's processors; one a process.
pub struct CpuBackend {
    machine: Arc<Machine>,
}

/// What plans and states share.
pub(crate) struct Machine {
    team: Team,
    isa: Isa,
    activations: ActivationFormat,
    /// One a member; locked by whoever has the team's turn.
    scratch: Mutex<Vec<Scratch>>,
    /// What members write for each other; locked alike.
    shared: Mutex<Scratch>,
    steps: AtomicU64,
}

impl CpuBackend {
    /// Starts the threads.
    pub fn new(options: CpuOptions) -> Result<Self, CpuError> {
        let (threads, isa) = (options.checked_threads()?, options.checked_isa()?);
        let team = Team::start(threads).map_err(|source| CpuError::Spawn { threads, source })?;
        let scratch = Mutex::new((0..threads).map(|_| Scratch::default()).collect());
        let activations = options.activations;
        let (shared, steps) = (Mutex::default(), AtomicU64::new(0));
        Ok(Self { machine: Arc::new(Machine { team, isa, activations, scratch, shared, steps }) })
    }

    /// Threads that compute, the caller's included.
    pub fn threads(&self) -> usize {
        self.machine.team.members()
    }

    /// The instructions that kernels use.
    pub fn isa(&self) -> IsaLevel {
        self.machine.isa.level()
    }

    /// What rows are made before they are multiplied with a matrix of codes.
    pub fn activations(&self) -> ActivationFormat {
        self.machine.activations
    }
}

impl Machine {
    /// Calls `work` with the team, when nobody else uses it.
    pub(crate) fn with_crew<R>(&self, work: impl FnOnce(&mut Crew<'_>) -> R) -> R {
        let turn = self.team.turn();
        let mut scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        work(&mut Crew { turn, isa: self.isa, scratch: &mut scratch, shared: &mut shared })
    }

    /// The number of a new step.
    pub(crate) fn next_step(&self) -> StepId {
        StepId(self.steps.fetch_add(1, Ordering::Relaxed))
    }
}

impl gannet_ops::Team for Machine {
    fn each(&self, parts: usize, work: &(dyn Fn(usize) + Sync)) {
        self.team.turn().each_member(parts, |_, part| work(part));
    }
}

impl Backend for CpuBackend {
    fn name(&self) -> &'static str {
        NAME
    }

    fn numerics(&self) -> String {
        // Every level of instructions gives the same bits, so the level is no part of it. Angles of ropes
        // come from the platform's mathematical library.
        let library = if cfg!(target_env = "musl") { "musl" } else { std::env::consts::OS };
        match self.machine.activations {
            ActivationFormat::Int8 => format!("f32x16-a8b32-bf16-{library}"),
            ActivationFormat::Float32 => format!("f32x16-{library}"),
        }
    }

    fn fusions(&self) -> &[Fusion] {
        &[Fusion::AddRmsNorm]
    }

    fn steps_in_flight(&self) -> usize {
        1
    }

    fn free_bytes(&self) -> Option<u64> {
        None
    }

    fn upload(&self, source: &dyn WeightSource, uses: &[WeightUse]) -> Result<Arc<dyn Weights>, DeviceError> {
        let activations = self.machine.activations;
        let upload = |crew: &mut Crew<'_>| CpuWeights::upload(crew, activations, source, uses);
        Ok(Arc::new(self.machine.with_crew(upload)?))
    }

    fn allocate(&self, layout: &StateLayout, budget: &Budget) -> Result<Box<dyn State>, DeviceError> {
        Ok(Box::new(CpuState::new(&self.machine, layout, budget)?))
    }

    fn compile(
        &self,
        program: &Program,
        weights: &Arc<dyn Weights>,
        limits: &BatchLimits,
    ) -> Result<Box<dyn Plan>, DeviceError> {
        Ok(Box::new(CpuPlan::new(&self.machine, program, weights.as_ref(), limits)?))
    }
}

/// The error for something that isn't there.
pub(crate) fn unknown(what: &'static str, number: impl Into<u64>, reason: impl Into<String>) -> DeviceError {
    DeviceError::Unknown { what, number: number.into(), reason: reason.into() }
}

/// The error for something that this backend can't do.
pub(crate) fn unsupported(op: &str, reason: impl Into<String>) -> DeviceError {
    DeviceError::Unsupported { backend: NAME, op: op.to_owned(), reason: reason.into() }
}
