//! What the machine can do at most, as the benchmark prints it and sets its figures beside.

use crate::arguments::DeviceArguments;
use crate::backend::BackendName;
use crate::failure::Failure;
use crate::quantity::{bytes, count};
use gannet_backend_cpu::machine::{HAS_BF16_KERNELS, Peaks, Rate};
use gannet_backend_cpu::{CpuOptions, IsaLevel};
use gannet_ops::cost::Machine;
use serde::Serialize;

/// The machine's limits.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Limits {
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
        let options = match device.backend {
            BackendName::Cpu => device.cpu_options(),
            BackendName::Reference => {
                CpuOptions { threads: Some(1), isa: Some(IsaLevel::Scalar), ..CpuOptions::default() }
            }
        };
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

    /// What bounds are computed from.
    pub(super) fn machine(&self) -> Machine {
        let float32 = self.float32.operations_per_second;
        let bf16 = self.bf16.as_ref().filter(|_| HAS_BF16_KERNELS);
        Machine {
            bytes_per_second: self.bytes_per_second,
            flops_per_second: float32,
            bf16_per_second: bf16.map_or(float32, |rate| rate.operations_per_second),
            int8_per_second: self.int8.operations_per_second,
        }
    }

    pub(super) fn line(&self) -> String {
        let Self { threads, isa, bytes_per_second, buffer_bytes, pages, int8, bf16, float32 } = self;
        let rate = |rate: &RateFacts| {
            format!("{}OP/s ({})", count(rate.operations_per_second as u64), rate.instruction)
        };
        format!(
            "{threads} threads with {isa} read {}B/s (over {} in {pages}); int8 {}, bf16 {}, float32 {}",
            count(*bytes_per_second as u64),
            bytes(*buffer_bytes as u64),
            rate(int8),
            bf16.as_ref().map_or("none".to_owned(), rate),
            rate(float32),
        )
    }
}
