//! The machine: everything that decides what can run on it and how fast.

use super::cuda::CudaFacts;
use super::folders::{self, FolderFacts};
use super::gpu::GpuFacts;
use super::libraries::Libraries;
use super::memory::MemoryFacts;
use super::processor::ProcessorFacts;
use crate::failure::Failure;
use crate::quantity::entry;
use gannet_backend_cuda::libraries::Places;
use gannet_loader::machine::Limits;
use gannet_loader::machine::System;
use serde::Serialize;
use std::env;

/// What the machine offers.
#[derive(Debug, Serialize)]
pub(super) struct MachineFacts {
    version: &'static str,
    system: &'static str,
    processor: ProcessorFacts,
    memory: MemoryFacts,
    gpu: GpuFacts,
    gpu_libraries: Libraries,
    cuda: CudaFacts,
    folders: Vec<FolderFacts>,
}

impl MachineFacts {
    pub(super) fn find() -> Result<Self, Failure> {
        let system = System::here();
        let limits = Limits::find(&system);
        Ok(Self {
            version: env!("CARGO_PKG_VERSION"),
            system: env::consts::OS,
            processor: ProcessorFacts::find(&system, &limits)?,
            memory: MemoryFacts::find(&system, &limits),
            gpu: GpuFacts::find(&system),
            gpu_libraries: Libraries::find(&Places::here()),
            cuda: CudaFacts::find(),
            folders: folders::find(),
        })
    }

    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = vec![entry("gannet", &format!("{} on {}", self.version, self.system))];
        lines.extend(self.processor.lines());
        lines.extend(self.memory.lines());
        lines.extend(self.gpu.lines());
        lines.extend(self.gpu_libraries.lines());
        lines.extend(self.cuda.lines());
        lines.extend(self.folders.iter().map(FolderFacts::line));
        lines
    }
}
