//! `Backend` for one card: the driver, the kernels that are loaded, and the numbers of steps, shared by all plans.

use crate::driver::simulated::Simulated;
use crate::driver::{Card, DeviceBuffer, Driver, Kernel, Properties, WGMMA_SHARED_BYTES};
use crate::error::{CudaError, NAME};
use crate::jit::{Jit, Variant};
use crate::libraries::Places;
use crate::options::{CudaOptions, KernelFolders};
use crate::plan::CudaPlan;
use crate::plan::jobs::JOB_WORDS;
use crate::state::CudaState;
use crate::weights::CudaWeights;
use gannet_ops::numerics::VOCABULARY_PARTITION;
use gannet_ops::sampling::passes::GROUP;
use gannet_ops::{
    Backend, BatchLimits, Budget, DeviceError, Fusion, Plan, Program, Rollback, State, StateLayout, StepId,
    WeightSource, WeightUse, Weights,
};
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What is copied to measure a device's memory, and how often; the best counts.
const COPIED_BYTES: usize = 1 << 30;
const COPIES: usize = 5;

/// What is kept back of a device's memory for what is not counted one by one: machine code, a step's lists, and the partial
/// sums of rows that are split over their keys (170 MB for 64 sequences of 40,960 tokens of a model with 32 heads of 128).
const RESERVED_BYTES: u64 = 1 << 30;

/// Steps that may be on their way at once: one that the device computes, and the next.
pub(crate) const STEPS_IN_FLIGHT: usize = 2;

/// Rows of the largest step of cards with at least so many bytes: what keeps tensor cores busy, and leaves memory for pages.
const STEP_ROWS: [(u64, usize); 2] = [(32 << 30, 2048), (14 << 30, 1024)];

/// Bytes of a simulated device.
const SIMULATED_BYTES: u64 = 4 << 30;

/// A card, or a simulated one; one a process and device.
pub struct CudaBackend {
    device: Arc<Device>,
}

/// What plans, states and weights share.
pub(crate) struct Device {
    pub(crate) driver: Arc<dyn Driver>,
    jit: Jit,
    kernels: Mutex<HashMap<Need, Kernel>>,
    numbers: AtomicU64,
    /// Every matrix is made float32.
    pub(crate) single_precision: bool,
    /// Steps are launched kernel by kernel.
    pub(crate) no_graphs: bool,
    /// What steps share is no number before each.
    pub(crate) poisons_scratch: bool,
}

/// An entry of a variant.
pub(crate) type Need = (Variant, &'static str);

impl CudaBackend {
    /// Opens the driver and a card, and looks for the compiler.
    ///
    /// # Errors
    /// What is missing, and where it was looked for. A missing compiler is none until code is needed that nobody kept.
    pub fn open(options: &CudaOptions) -> Result<Self, CudaError> {
        let places = Places::here();
        let driver = Arc::new(Card::open(options, &places)?);
        Ok(Self::over(driver, Jit::new(&options.kernels, &places), options))
    }

    /// A device in the machine's memory whose kernels are the reference's loops, for tests of everything but kernels.
    pub fn simulated(options: &CudaOptions) -> Self {
        Self::simulated_with(WGMMA_SHARED_BYTES, options)
    }

    /// The same with so many bytes of shared memory a block, beyond which no launch is taken.
    pub fn simulated_with(shared_bytes: u32, options: &CudaOptions) -> Self {
        let jit = Jit::new(&KernelFolders::default(), &Places::default());
        Self::over(Arc::new(Simulated::new(SIMULATED_BYTES, shared_bytes)), jit, options)
    }

    fn over(driver: Arc<dyn Driver>, jit: Jit, options: &CudaOptions) -> Self {
        let CudaOptions { single_precision, no_graphs, poisons_scratch, .. } = *options;
        let (kernels, numbers) = (Mutex::default(), AtomicU64::new(0));
        let device = Device { driver, jit, kernels, numbers, single_precision, no_graphs, poisons_scratch };
        Self { device: Arc::new(device) }
    }

    /// Bytes a second that copies within the device read and write together.
    ///
    /// # Errors
    /// Too little memory for a copy that no cache holds, or a driver that fails.
    pub fn copy_rate(&self) -> Result<f64, CudaError> {
        let driver = &self.device.driver;
        let from = DeviceBuffer::new(driver, COPIED_BYTES)?;
        let to = DeviceBuffer::new(driver, COPIED_BYTES)?;
        let mut best = Duration::MAX;
        for _ in 0..COPIES {
            let start = driver.mark()?;
            driver.copy(to.address(), from.address(), COPIED_BYTES)?;
            let times = driver.times(vec![start, driver.mark()?])?;
            best = best.min(times[1]);
        }
        Ok(2.0 * COPIED_BYTES as f64 / best.as_secs_f64())
    }

    /// A program ready to run, as [`Backend::compile`] makes it.
    pub(crate) fn plan(
        &self,
        program: &Program,
        weights: &dyn Weights,
        limits: &BatchLimits,
    ) -> Result<CudaPlan, DeviceError> {
        CudaPlan::new(&self.device, program, weights, limits)
    }

    /// What the card is.
    pub fn properties(&self) -> &Properties {
        self.device.driver.properties()
    }

    /// The compiler's version and place, or why there is none.
    ///
    /// # Errors
    /// Why there is none, and where it was looked for.
    pub fn compiler(&self) -> Result<(String, String), String> {
        self.device.jit.compiler()
    }
}

impl Device {
    /// These kernels, ready to run, in order.
    pub(crate) fn kernels(&self, needs: &[Need]) -> Result<Vec<Kernel>, CudaError> {
        let mut loaded = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        let missing: BTreeSet<&Need> = needs.iter().filter(|need| !loaded.contains_key(*need)).collect();
        let missing: Vec<&Need> = missing.into_iter().collect();
        let variants: Vec<Variant> = missing.iter().map(|(variant, _)| *variant).collect();
        let codes = match self.driver.properties().architecture {
            Some(architecture) => self.jit.code(architecture, &variants)?,
            None => vec![Vec::new(); variants.len()],
        };
        for (need, code) in missing.into_iter().zip(codes) {
            loaded.insert(*need, self.driver.load(&need.0, need.1, &code)?);
        }
        Ok(needs.iter().map(|need| loaded[need].clone()).collect())
    }

    /// The number of a new step.
    pub(crate) fn next_step(&self) -> StepId {
        StepId(self.next_number())
    }

    /// A number that nothing else of the device has.
    pub(crate) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }
}

impl Backend for CudaBackend {
    fn name(&self) -> &'static str {
        NAME
    }

    fn numerics(&self) -> String {
        let precision = if self.device.single_precision { "f32" } else { "stored" };
        format!("{}-{precision}", self.properties().architecture())
    }

    fn fusions(&self) -> &[Fusion] {
        &[Fusion::AddRmsNorm, Fusion::QueryKeyValue, Fusion::GatedLinear, Fusion::GatedExperts]
    }

    fn steps_in_flight(&self) -> usize {
        STEPS_IN_FLIGHT
    }

    fn step_rows(&self) -> usize {
        let memory = self.device.driver.properties().memory_bytes;
        let found = STEP_ROWS.into_iter().find(|(least, _)| memory >= *least);
        found.map_or(512, |(_, rows)| rows)
    }

    /// A word a token and a bit, for each sequence that penalties look back in; scores' maxima and partial sums, masks and jobs of each row of
    /// both steps in flight.
    fn draw_bytes(&self, vocabulary: usize, sequences: usize) -> u64 {
        let words = vocabulary + vocabulary.div_ceil(32);
        let room = vocabulary.div_ceil(GROUP) * 2 + 2 * vocabulary.div_ceil(VOCABULARY_PARTITION);
        let jobs = STEPS_IN_FLIGHT * (vocabulary.div_ceil(32) + JOB_WORDS);
        let of_sequence = (words + room + jobs).saturating_mul(size_of::<u32>());
        of_sequence.saturating_mul(sequences) as u64
    }

    fn rollback(&self) -> Rollback {
        Rollback::Candidates
    }

    fn free_bytes(&self) -> Option<u64> {
        // A driver that fails here fails again where it can be said.
        Some(self.device.driver.free_bytes().unwrap_or(0).saturating_sub(RESERVED_BYTES))
    }

    fn upload(&self, source: &dyn WeightSource, uses: &[WeightUse]) -> Result<Arc<dyn Weights>, DeviceError> {
        Ok(Arc::new(CudaWeights::upload(&self.device, source, uses)?))
    }

    fn allocate(&self, layout: &StateLayout, budget: &Budget) -> Result<Box<dyn State>, DeviceError> {
        Ok(Box::new(CudaState::new(&self.device, layout, budget)?))
    }

    fn compile(
        &self,
        program: &Program,
        weights: &Arc<dyn Weights>,
        limits: &BatchLimits,
    ) -> Result<Box<dyn Plan>, DeviceError> {
        Ok(Box::new(self.plan(program, weights.as_ref(), limits)?))
    }
}
