//! The machine: everything that decides what can run on it and how fast.

use super::folders::{self, FolderFacts};
use super::gpu::GpuFacts;
use super::libraries::Libraries;
use super::memory::MemoryFacts;
use super::processor::ProcessorFacts;
use crate::failure::Failure;
use crate::quantity::entry;
use gannet_loader::machine::Limits;
use gannet_loader::machine::System;
use serde::Serialize;
use std::env;

const GPU_NOTE: &str =
    "this version computes on the CPU; what is said of GPUs is what was found, not what is used";

/// What the machine offers.
#[derive(Debug, Serialize)]
pub(super) struct MachineFacts {
    version: &'static str,
    system: &'static str,
    processor: ProcessorFacts,
    memory: MemoryFacts,
    gpu: GpuFacts,
    gpu_libraries: Libraries,
    folders: Vec<FolderFacts>,
    notes: Vec<&'static str>,
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
            gpu_libraries: Libraries::find(&system, &|name| env::var(name).ok()),
            folders: folders::find(),
            notes: vec![GPU_NOTE],
        })
    }

    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = vec![entry("gannet", &format!("{} on {}", self.version, self.system))];
        lines.extend(self.processor.lines());
        lines.extend(self.memory.lines());
        lines.extend(self.gpu.lines());
        lines.extend(self.gpu_libraries.lines());
        lines.extend(self.folders.iter().map(FolderFacts::line));
        lines.extend(self.notes.iter().map(|note| entry("note", note)));
        lines
    }
}
