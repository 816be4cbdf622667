//! The command line as types: which commands there are, and the arguments that several of them share.

pub(crate) mod values;

use crate::backend::{ActivationsName, BackendName, LaunchesName};
use crate::commands::{bench, doctor, embed, eval, inspect, models, pull, rm, run, serve};
use crate::failure::Failure;
use crate::model_reference::ModelReference;
use clap::{Args, Parser, Subcommand};
use gannet_backend_cpu::IsaLevel;
use gannet_loader::LoadOptions;
use gannet_model::RopeOverride;
use gannet_ops::KvFormat;

/// An LLM inference engine: loads an open-weights model and runs it
#[derive(Debug, Parser)]
#[command(name = "gannet", version, after_help = "Example: gannet run model.gguf \"Why is the sky blue?\"")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Box<run::RunArguments>),
    Serve(Box<serve::ServeArguments>),
    Embed(embed::EmbedArguments),
    Inspect(inspect::InspectArguments),
    Eval(eval::EvalArguments),
    Bench(Box<bench::BenchArguments>),
    Pull(pull::PullArguments),
    Models(models::ModelsArguments),
    Rm(rm::RmArguments),
    Doctor(doctor::DoctorArguments),
}

/// A model and how to run it.
#[derive(Debug, Args)]
pub(crate) struct ModelArguments {
    /// A .gguf file, a folder with config.json and safetensors, or a name on the hub: ORG/REPO[:QUANT][@REVISION]
    #[arg(value_name = "MODEL")]
    pub(crate) reference: ModelReference,
    #[command(flatten)]
    pub(crate) device: DeviceArguments,
}

/// Where a model runs.
#[derive(Clone, Debug, Args)]
pub(crate) struct DeviceArguments {
    /// What computes: the CPU's vector units, an NVIDIA card, or the slow reference that defines each operation
    #[arg(long, value_enum, default_value_t = BackendName::Cpu)]
    pub(crate) backend: BackendName,
    /// Threads that compute [default: one a physical core that this process may use]
    #[arg(long, value_name = "N", value_parser = values::threads)]
    pub(crate) threads: Option<usize>,
    /// What rows are made before the CPU multiplies them with quantised weights [default: int8; `eval logits`: f32]; with
    /// --backend cuda, f32 makes every matrix single precision
    #[arg(long, value_enum)]
    pub(crate) activations: Option<ActivationsName>,
    /// Instructions to use of those that the processor has, for comparisons [default: the fastest]
    #[arg(long, value_name = "LEVEL", value_parser = values::isa_level)]
    pub(crate) cpu_isa: Option<IsaLevel>,

    /// How the kernels of a step are launched on a card, to find out where time goes: all give the same results [default: graphs]
    #[arg(long, value_enum, hide = true)]
    pub(crate) cuda_launches: Option<LaunchesName>,
}

/// How much a sequence may hold.
#[derive(Debug, Args)]
pub(crate) struct ContextArguments {
    /// Tokens of the longest sequence, prompt and answer together [default: the model's own, with
    /// --rope-scaling as far as that reaches, or what memory allows]
    #[arg(long, value_name = "TOKENS", value_parser = values::token_count)]
    pub(crate) context: Option<usize>,
    /// Stretch the rope for contexts beyond the model's own: yarn:FACTOR, linear:FACTOR or dynamic:FACTOR
    #[arg(long, value_name = "KIND:FACTOR")]
    pub(crate) rope_scaling: Option<RopeOverride>,
    /// Take a --context beyond what the model and its rope were made for, where answers get worse
    #[arg(long, requires = "context")]
    pub(crate) force_context: bool,
    #[command(flatten)]
    pub(crate) kv: KvArguments,
}

/// How much memory a model may take.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct MemoryArguments {
    /// Memory that models may take, weights and all, such as 800MiB or 4GiB [default: what is free]
    #[arg(long = "memory", value_name = "SIZE", value_parser = values::memory_bytes)]
    pub(crate) bytes: Option<u64>,
}

/// How exactly a sequence's keys and values are kept.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct KvArguments {
    /// Format of keys and values [default: f16, or f32 where the weights are f32]
    #[arg(long = "kv", value_name = "FORMAT", value_parser = values::kv_format())]
    pub(crate) format: Option<KvFormat>,
}

impl ContextArguments {
    pub(crate) fn load_options(&self) -> LoadOptions {
        LoadOptions {
            context: self.context,
            rope_scaling: self.rope_scaling,
            force_context: self.force_context,
            kv_format: self.kv.format,
            ..LoadOptions::default()
        }
    }
}

/// Checks that a step has room for a token of each sequence; `flag` is the one that says how many there are.
pub(crate) fn check_step_tokens(tokens: usize, (flag, sequences): (&str, usize)) -> Result<(), Failure> {
    if tokens >= sequences {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "steps of --step-tokens {tokens} have no room for a token of each of {sequences} sequences ({flag}); \
         raise the one or lower the other"
    )))
}
