//! What a model's memory is used for, priced before anything large is allocated.
//!
//! Without a wish the context is the model's own, or the longest that fits; a wish that doesn't fit is refused with
//! the numbers.

use crate::{DEFAULT_STEP_ROWS, LoadError, LoadOptions};
use gannet_engine::Runner;
use gannet_engine::budget::{self, Wish};
use gannet_formats::Checkpoint;
use gannet_model::{Model, ProgramOptions};
use gannet_ops::{BatchLimits, Budget, KvFormat, Plan, Program, Rollback, State};
use gannet_tensor::Format;
use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// Recurrent snapshots that the prefix cache has room for, for each sequence.
const SNAPSHOTS: u32 = 8;

/// The inputs of drafted rows take less memory than the state after each.
const ROLLBACK: Rollback = Rollback::Replay;

/// What a model's memory is used for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Tokens of the longest sequence.
    pub context: usize,
    /// Rows of the largest step.
    pub step_rows: usize,
    /// Sequences of that length that run at once.
    pub sequences: usize,
    /// Encoding of keys and values.
    pub kv_format: KvFormat,
    /// How much state there is.
    pub budget: Budget,
    /// Bytes of weights.
    pub weight_bytes: u64,
    /// Bytes of pages and other state.
    pub state_bytes: u64,
    /// Bytes of values of the largest step.
    pub scratch_bytes: u64,
    /// Bytes that the system, or a limit on the process, left when this was planned.
    pub available_bytes: u64,
}

impl MemoryPlan {
    /// Plans the memory of a model with what the system has left.
    ///
    /// # Errors
    /// A context of 0 or beyond the model's own, and `OutOfMemory` where not even one page fits or a wish doesn't.
    pub fn new(model: &Model, checkpoint: &Checkpoint, options: &LoadOptions) -> Result<Self, LoadError> {
        Self::within(model, checkpoint, options, available_bytes())
    }

    fn within(
        model: &Model,
        checkpoint: &Checkpoint,
        options: &LoadOptions,
        available_bytes: u64,
    ) -> Result<Self, LoadError> {
        let wished = options.context.unwrap_or(model.config.context_length);
        check_context(wished, model.context_limit())?;
        let step_rows = options.step_rows.unwrap_or(DEFAULT_STEP_ROWS).min(wished);
        let kv_format = options.kv_format.unwrap_or_else(|| kv_format_for(checkpoint));
        let program = model.program(&ProgramOptions { context: wished, kv_format, rollback: ROLLBACK })?;
        let weight_bytes = checkpoint.tensor_bytes() as u64;
        let sequences = options.sequences.unwrap_or(1);
        let scratch_bytes = program.peak_value_bytes(step_rows, sequences);
        let left = available_bytes.saturating_sub(weight_bytes + scratch_bytes);
        let slots = sequences as u32;
        let wish =
            Wish { context: wished, step_rows, depth: 1, sequences: slots, snapshots: SNAPSHOTS * slots };
        let fitting = budget::largest_context(&program.state, &wish, left);
        let is_refused = if options.context.is_some() { fitting < wished } else { fitting == 0 };
        let context = if is_refused { wished } else { fitting };
        let budget = budget::for_wish(&program.state, &Wish { context, ..wish });
        let state_bytes = budget::bytes(&program.state, &budget);
        if is_refused {
            return Err(LoadError::OutOfMemory {
                weights: weight_bytes,
                state: state_bytes,
                scratch: scratch_bytes,
                context,
                available: available_bytes,
            });
        }
        Ok(Self {
            context,
            step_rows,
            sequences,
            kv_format,
            budget,
            weight_bytes,
            state_bytes,
            scratch_bytes,
            available_bytes,
        })
    }

    /// What the program is made for.
    pub fn program_options(&self) -> ProgramOptions {
        ProgramOptions { context: self.context, kv_format: self.kv_format, rollback: ROLLBACK }
    }

    pub(crate) fn limits(&self) -> BatchLimits {
        let (rows, context) = (self.step_rows, self.context);
        BatchLimits { rows, sequences: self.sequences, outputs: rows, context }
    }

    pub(crate) fn runner(
        &self,
        plan: Box<dyn Plan>,
        state: Box<dyn State>,
        program: &Program,
        model: &Model,
    ) -> Runner {
        Runner {
            plan,
            state,
            layout: program.state.clone(),
            budget: self.budget.clone(),
            vocabulary: model.config.vocabulary,
            context: self.context,
            step_rows: self.step_rows,
        }
    }
}

fn check_context(asked: usize, limit: usize) -> Result<(), LoadError> {
    if asked == 0 {
        return Err(LoadError::NoContext);
    }
    if asked > limit { Err(LoadError::ContextTooLong { asked, limit }) } else { Ok(()) }
}

/// Keys and values are kept as exactly as the weights: in single precision where most weight bytes are.
fn kv_format_for(checkpoint: &Checkpoint) -> KvFormat {
    let mut bytes: HashMap<Format, usize> = HashMap::new();
    for tensor in checkpoint.tensors() {
        *bytes.entry(tensor.format).or_default() += tensor.byte_length();
    }
    match bytes.into_iter().max_by_key(|(_, bytes)| *bytes) {
        Some((Format::F32, _)) => KvFormat::F32,
        Some(_) | None => KvFormat::F16,
    }
}

/// Bytes of memory that can still be used: what the system has available, or what a control group leaves.
pub fn available_bytes() -> u64 {
    let system = fs::read_to_string("/proc/meminfo").ok().and_then(|text| meminfo_available(&text));
    let group = |limit: &str, used: &str| {
        let number = |path: &str| fs::read_to_string(Path::new(path)).ok()?.trim().parse::<u64>().ok();
        Some(number(limit)?.saturating_sub(number(used)?))
    };
    let unified = group("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current");
    let legacy =
        group("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes");
    [system, unified, legacy].into_iter().flatten().min().unwrap_or(u64::MAX)
}

fn meminfo_available(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn golden() -> Checkpoint {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens/llama");
        Checkpoint::open(&path).expect("the golden is committed")
    }

    fn plan(context: Option<usize>, available: u64) -> Result<MemoryPlan, LoadError> {
        let checkpoint = golden();
        let model = gannet_model::recognise(&checkpoint).expect("the golden is a model");
        MemoryPlan::within(&model, &checkpoint, &LoadOptions { context, ..LoadOptions::default() }, available)
    }

    #[test]
    fn without_a_wish_the_context_is_what_fits() {
        let whole = plan(None, u64::MAX).expect("everything fits");
        assert_eq!(whole.context, 512);
        let needed = whole.weight_bytes + whole.scratch_bytes;
        let half = plan(None, needed + whole.state_bytes / 2).expect("a part fits");
        assert_eq!(half.context, 256);
    }

    #[test]
    fn a_wish_that_does_not_fit_is_refused_with_the_numbers() {
        let whole = plan(None, u64::MAX).expect("everything fits");
        let available = whole.weight_bytes + whole.scratch_bytes + whole.state_bytes / 2;
        let error = plan(Some(512), available).expect_err("the wish does not fit").to_string();
        for number in [whole.weight_bytes, whole.state_bytes, whole.scratch_bytes, available] {
            assert!(error.contains(&number.to_string()), "{number} is not in `{error}`");
        }
        assert!(plan(None, 1000).expect_err("nothing fits").to_string().starts_with("not enough memory"));
        assert!(matches!(
            plan(Some(513), u64::MAX),
            Err(LoadError::ContextTooLong { asked: 513, limit: 512 })
        ));
        assert!(matches!(plan(Some(0), u64::MAX), Err(LoadError::NoContext)));
    }

    #[test]
    fn available_memory_is_read_in_bytes() {
        let text = "MemTotal:       24000000 kB\nMemAvailable:   123456 kB\n";
        assert_eq!(meminfo_available(text), Some(123_456 * 1024));
        assert_eq!(meminfo_available("MemTotal: 1 kB\n"), None);
    }
}
