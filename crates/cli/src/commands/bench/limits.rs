//! What the machine can do at most, as the benchmark prints it and sets its figures beside.

use crate::arguments::DeviceArguments;
use crate::backend::BackendName;
use crate::failure::Failure;
use crate::quantity::{bytes, count};
use gannet_backend_cpu::machine::{Peaks, Rate};
use gannet_backend_cpu::{CpuOptions, IsaLevel};
use gannet_backend_cuda::CudaBackend;
use gannet_ops::cost::Machine;
use serde::Serialize;

/// The limits of what computes.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Limits {
    Processor(ProcessorLimits),
    Card(CardLimits),
}

/// A card's limits.
#[derive(Clone, Debug, Serialize)]
pub(super) struct CardLimits {
    card: String,
    architecture: String,
    driver_version: u32,
    /// Bytes a second that a copy within the card reads and writes together.
    bytes_per_second: f64,
}

/// The machine's limits.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ProcessorLimits {
    threads: usize,
    isa: &'static str,
    /// Bytes a second that the threads read together.
    bytes_per_second: f64,
    /// Of the buffer that was read.
    buffer_bytes: usize,
    /// The kind of page that it got.
    pages: String,
    int8: RateFacts,
    /// Null where no instruction does it.
    bf16: Option<RateFacts>,
    float32: RateFacts,
}

/// One kind of arithmetic.
#[derive(Clone, Debug, Serialize)]
struct RateFacts {
    operations_per_second: f64,
    instruction: &'static str,
}

impl From<Rate> for RateFacts {
    fn from(rate: Rate) -> Self {
        Self { operations_per_second: rate.operations_per_second, instruction: rate.instruction }
    }
}

impl Limits {
    /// Measures what the chosen backend would use; takes a second or two.
    pub(super) fn measure(device: &DeviceArguments) -> Result<Self, Failure> {
        let one = CpuOptions { threads: Some(1), isa: Some(IsaLevel::Scalar), ..CpuOptions::default() };
        match device.backend {
            BackendName::Cpu => ProcessorLimits::measure(device.cpu_options()).map(Limits::Processor),
            BackendName::Reference => ProcessorLimits::measure(one).map(Limits::Processor),
            BackendName::Cuda => CardLimits::measure(device).map(Limits::Card),
            BackendName::Auto if CudaBackend::open(&device.cuda_options()?).is_ok() => {
                CardLimits::measure(device).map(Limits::Card)
            }
            BackendName::Auto => ProcessorLimits::measure(device.cpu_options()).map(Limits::Processor),
        }
    }

    /// What bounds are computed from.
    pub(super) fn machine(&self) -> Machine {
        match self {
            Limits::Processor(limits) => limits.machine(),
            Limits::Card(limits) => limits.machine(),
        }
    }

    pub(super) fn line(&self) -> String {
        match self {
            Limits::Processor(limits) => limits.line(),
            Limits::Card(limits) => limits.line(),
        }
    }
}

impl CardLimits {
    fn measure(device: &DeviceArguments) -> Result<Self, Failure> {
        let backend = CudaBackend::open(&device.cuda_options()?).map_err(anyhow::Error::from)?;
        let properties = backend.properties();
        Ok(Self {
            card: properties.name.clone(),
            architecture: properties.architecture(),
            driver_version: properties.driver_version,
            bytes_per_second: backend.copy_rate().map_err(anyhow::Error::from)?,
        })
    }

    /// Bounds by memory alone: how fast a card multiplies is not measured here.
    fn machine(&self) -> Machine {
        let unbounded = f64::INFINITY;
        Machine {
            bytes_per_second: self.bytes_per_second,
            flops_per_second: unbounded,
            bf16_per_second: unbounded,
            int8_per_second: unbounded,
        }
    }

    fn line(&self) -> String {
        let Self { card, architecture, driver_version, bytes_per_second } = self;
        let (major, minor) = (driver_version / 1000, driver_version % 1000 / 10);
        let rate = count(*bytes_per_second as u64);
        format!(
            "{card} ({architecture}, driver for CUDA {major}.{minor}) copies {rate}B/s; bounds are those of memory"
        )
    }
}

impl ProcessorLimits {
    fn measure(options: CpuOptions) -> Result<Self, Failure> {
        let memory = usize::try_from(gannet_loader::machine::available_bytes() / 2).unwrap_or(usize::MAX);
        let Peaks { threads, level, bytes_per_second, buffer_bytes, pages, int8, bf16, float32 } =
            Peaks::measure(options, memory).map_err(anyhow::Error::from)?;
        Ok(Self {
            threads,
            isa: level.name(),
            bytes_per_second,
            buffer_bytes,
            pages: pages.to_string(),
            int8: int8.into(),
            bf16: bf16.map(Into::into),
            float32: float32.into(),
        })
    }

    fn machine(&self) -> Machine {
        let float32 = self.float32.operations_per_second;
        Machine {
            bytes_per_second: self.bytes_per_second,
            flops_per_second: float32,
            bf16_per_second: self.bf16.as_ref().map_or(float32, |rate| rate.operations_per_second),
            int8_per_second: self.int8.operations_per_second,
        }
    }

    fn line(&self) -> String {
        let Self { threads, isa, bytes_per_second, buffer_bytes, pages, int8, bf16, float32 } = self;
        let rate = |rate: &RateFacts| {
            format!("{}OP/s ({})", count(rate.operations_per_second as u64), rate.instruction)
        };
        format!(
            "{threads} threads with {isa} read {}B/s (over {} in {pages}); int8 {}, bf16 {}, float32 {}",
            count(*bytes_per_second as u64),
            bytes(*buffer_bytes as u64),
            rate(int8),
            bf16.as_ref().map_or("as float32".to_owned(), rate),
            rate(float32),
        )
    }
}
