//! What a model's memory is used for, priced before anything large is allocated.
//!
//! Without a wish the context is the model's own, or the longest that fits; a wish that doesn't fit is refused with
//! the numbers.

use crate::broker::{MemoryClass, MemoryUse};
use crate::machine::{FaultCounter, available_bytes};
use crate::{DEFAULT_STEP_ROWS, LoadError, LoadOptions};
use gannet_engine::budget::{self, Wish};
use gannet_engine::{MajorFaults, NumericsId, Pooling, Runner};
use gannet_formats::Checkpoint;
use gannet_model::{Model, ProgramOptions};
use gannet_ops::placement::Placement;
use gannet_ops::{BatchLimits, Budget, KvFormat, Plan, Program, Rollback, State};
use gannet_tensor::Format;
use std::collections::HashMap;

/// Recurrent snapshots that the prefix cache has room for, for each sequence.
const SNAPSHOTS: u32 = 8;

/// Rows of the largest step of a model that reads a text in one step, where nothing else is chosen: what published ones
/// take at most.
const WHOLE_STEP_ROWS: usize = 8192;

/// What is kept back for what is not counted one by one: code, requests, the allocator's own.
const MARGIN_BYTES: u64 = 32 << 20;

/// And for each entry of the vocabulary, what reading a tokenizer leaves: an estimate from the resident memory of models
/// of 49,152 and of 262,144 entries.
const MARGIN_BYTES_PER_ENTRY: u64 = 128;

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
    /// How drafted rows are taken back from recurrent state.
    pub rollback: Rollback,
    /// How much state there is.
    pub budget: Budget,
    /// Bytes of each class.
    pub memory: MemoryUse,
    /// Bytes that the system, or a limit on the process, left when this was planned.
    pub available_bytes: u64,
}

/// What was asked for, with what stands where nothing was.
pub(crate) struct Wanted {
    context: usize,
    /// Where it doesn't fit it is refused, in place of made shorter.
    context_is_asked: bool,
    step_rows: usize,
    pub(crate) sequences: usize,
    /// Where the context doesn't fit for all of them, half as many are taken.
    fewer_sequences: bool,
    kv_format: KvFormat,
    /// Rows of each sequence that a step may draft.
    drafts: u32,
    pub(crate) steps_in_flight: usize,
    /// What drawing takes of the device's memory for all sequences.
    pub(crate) draw_bytes: u64,
    pub(crate) rollback: Rollback,
    /// Bytes that may be taken, at most.
    memory: Option<u64>,
}

impl Wanted {
    /// # Errors
    /// A context of 0 or beyond the model's own.
    pub(crate) fn new(
        model: &Model,
        checkpoint: &Checkpoint,
        options: &LoadOptions,
        default_rows: usize,
    ) -> Result<Self, LoadError> {
        let own = model.default_context(options.rope_scaling.as_ref());
        let context = options.context.unwrap_or(own);
        check_context(context, if options.force_context { usize::MAX } else { model.context_limit() })?;
        // A model that reads a text in one step needs steps as long as its texts.
        let step_rows = match model.config.takes_chunks() {
            true => default_rows,
            false => context.clamp(default_rows, WHOLE_STEP_ROWS),
        };
        let sequences = options.sequences.unwrap_or(1);
        Ok(Self {
            context,
            context_is_asked: options.context.is_some(),
            // Each sequence has a row in every step.
            step_rows: options
                .step_rows
                .unwrap_or(step_rows)
                .min(context.saturating_mul(sequences))
                .max(sequences),
            sequences,
            fewer_sequences: options.fewer_sequences,
            kv_format: options.kv_format.unwrap_or_else(|| kv_format_for(checkpoint)),
            drafts: options.drafts,
            steps_in_flight: 1,
            draw_bytes: 0,
            rollback: Rollback::Replay,
            memory: options.memory,
        })
    }

    /// What the program is made for, should all of it fit.
    pub(crate) fn program_options(&self) -> ProgramOptions {
        ProgramOptions { context: self.context, kv_format: self.kv_format, rollback: self.rollback }
    }
}

impl MemoryPlan {
    /// Plans the memory of a model with what the system has left.
    ///
    /// # Errors
    /// A context of 0 or beyond the model's own, a budget beyond what there is, and `OutOfMemory` where not even one page
    /// fits or a wish doesn't.
    pub fn new(model: &Model, checkpoint: &Checkpoint, options: &LoadOptions) -> Result<Self, LoadError> {
        Self::within(model, checkpoint, options, available_bytes())
    }

    /// The same with so many bytes.
    pub(crate) fn within(
        model: &Model,
        checkpoint: &Checkpoint,
        options: &LoadOptions,
        available_bytes: u64,
    ) -> Result<Self, LoadError> {
        let wanted = Wanted::new(model, checkpoint, options, DEFAULT_STEP_ROWS)?;
        let program = model.program(&wanted.program_options())?;
        Self::fit(&wanted, &program, checkpoint.tensor_bytes() as u64, available_bytes)
    }

    /// Plans the memory of a program that was made for what is wanted.
    pub(crate) fn fit(
        wanted: &Wanted,
        program: &Program,
        weight_bytes: u64,
        available_bytes: u64,
    ) -> Result<Self, LoadError> {
        let available_bytes = match wanted.memory {
            Some(asked) if asked > available_bytes => {
                return Err(LoadError::BudgetTooLarge { asked, available: available_bytes });
            }
            Some(asked) => asked,
            None => available_bytes,
        };
        let mut sequences = wanted.sequences;
        loop {
            let plan = Self::fit_for(sequences, wanted, (program, weight_bytes), available_bytes);
            let is_whole = plan.as_ref().is_ok_and(|plan| plan.context == wanted.context);
            if is_whole || !wanted.fewer_sequences || sequences <= 1 {
                return plan;
            }
            sequences /= 2;
        }
    }

    /// The plan for so many sequences, with the context that fits.
    fn fit_for(
        sequences: usize,
        wanted: &Wanted,
        (program, weight_bytes): (&Program, u64),
        available_bytes: u64,
    ) -> Result<Self, LoadError> {
        let &Wanted { step_rows, kv_format, rollback, .. } = wanted;
        let scratch =
            scratch_bytes(program, step_rows, sequences, wanted.context).saturating_add(wanted.draw_bytes);
        let fixed = MemoryUse::default()
            .with(MemoryClass::Weights, weight_bytes)
            .with(MemoryClass::Scratch, scratch)
            .with(MemoryClass::Margin, margin_bytes(program));
        let left = available_bytes.saturating_sub(fixed.total());
        let slots = sequences as u32;
        let wish = Wish {
            context: wanted.context,
            step_rows,
            depth: wanted.steps_in_flight,
            sequences: slots,
            snapshots: SNAPSHOTS * slots,
            drafts: wanted.drafts,
        };
        let fitting = budget::largest_context(&program.state, &wish, left);
        let is_refused = if wanted.context_is_asked { fitting < wanted.context } else { fitting == 0 };
        let context = if is_refused { wanted.context } else { fitting };
        let budget = budget::for_wish(&program.state, &Wish { context, ..wish });
        let memory = fixed.with_state(&budget::bytes(&program.state, &budget));
        if is_refused {
            return Err(LoadError::OutOfMemory { memory, context, sequences, available: available_bytes });
        }
        Ok(Self { context, step_rows, sequences, kv_format, rollback, budget, memory, available_bytes })
    }

    /// The program for the context that fits: as it is, or made again where that is shorter, since ropes may follow it.
    pub(crate) fn fitted(
        &self,
        program: Program,
        wanted: &Wanted,
        model: &Model,
    ) -> Result<Program, LoadError> {
        match self.context == wanted.context {
            true => Ok(program),
            false => Ok(model.program(&self.program_options())?),
        }
    }

    /// What the program is made for.
    pub fn program_options(&self) -> ProgramOptions {
        ProgramOptions { context: self.context, kv_format: self.kv_format, rollback: self.rollback }
    }

    pub(crate) fn limits(&self) -> BatchLimits {
        let (rows, context) = (self.step_rows, self.context);
        BatchLimits { rows, sequences: self.sequences, outputs: rows, context }
    }

    pub(crate) fn runner(
        &self,
        (plan, state, steps_in_flight): (Box<dyn Plan>, Box<dyn State>, usize),
        (program, numerics_id): (&Program, NumericsId),
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
            steps_in_flight,
            pooling: Pooling::of(program, self.step_rows),
            numerics_id,
            major_faults: FaultCounter::open().map_or_else(never, FaultCounter::counting),
            prefix_follower: None,
        }
    }
}

/// Where the system counts no page faults.
fn never() -> MajorFaults {
    Box::new(|| None)
}

fn margin_bytes(program: &Program) -> u64 {
    let entries = program.state.sampler.map_or(0, |sampler| sampler.vocabulary as u64);
    MARGIN_BYTES.saturating_add(entries.saturating_mul(MARGIN_BYTES_PER_ENTRY))
}

/// Bytes of the buffers that the values of the largest step share, and of the scores that are kept from its end until tokens
/// are drawn from them.
fn scratch_bytes(program: &Program, step_rows: usize, sequences: usize, context: usize) -> u64 {
    let limits = BatchLimits { rows: step_rows, sequences, outputs: sequences, context };
    let shared = Placement::of_floats(program, &limits).bytes.iter().map(|bytes| *bytes as u64).sum::<u64>();
    let vocabulary = program.state.sampler.map_or(0, |sampler| sampler.vocabulary);
    let kept = (sequences as u64).saturating_mul((vocabulary * size_of::<f32>()) as u64);
    shared.saturating_add(kept)
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn golden() -> Checkpoint {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens/llama");
        Checkpoint::open(&path).expect("the golden is committed")
    }

    fn plan(context: Option<usize>, available: u64) -> Result<MemoryPlan, LoadError> {
        plan_with(&LoadOptions { context, ..LoadOptions::default() }, available)
    }

    fn plan_with(options: &LoadOptions, available: u64) -> Result<MemoryPlan, LoadError> {
        let checkpoint = golden();
        let mut model = gannet_model::recognise(&checkpoint).expect("the golden is a model");
        crate::apply(options, &mut model)?;
        MemoryPlan::within(&model, &checkpoint, options, available)
    }

    #[test]
    fn without_a_wish_the_context_is_what_fits() {
        let whole = plan(None, u64::MAX).expect("everything fits");
        assert_eq!(whole.context, 512);
        let pages = whole.memory.of(MemoryClass::Pages);
        let half = plan(None, whole.memory.total() - pages.div_ceil(2)).expect("a part fits");
        assert_eq!(half.context, 256);
    }

    #[test]
    fn a_wish_that_does_not_fit_is_refused_with_the_numbers() {
        let whole = plan(None, u64::MAX).expect("everything fits");
        let available = whole.memory.total() - whole.memory.of(MemoryClass::Pages) / 2;
        let error = plan(Some(512), available).expect_err("the wish does not fit").to_string();
        let classes = [MemoryClass::Weights, MemoryClass::Pages, MemoryClass::Scratch];
        for number in classes.map(|class| whole.memory.of(class)).into_iter().chain([available]) {
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
    fn a_budget_is_kept_and_one_beyond_what_is_there_is_refused_with_both_numbers() {
        let with = |memory, context| LoadOptions { memory: Some(memory), context, ..LoadOptions::default() };
        let whole = plan(None, u64::MAX).expect("everything fits");
        let (total, pages) = (whole.memory.total(), whole.memory.of(MemoryClass::Pages));
        let half = plan_with(&with(total - pages / 2, None), u64::MAX).expect("a part fits");
        assert_eq!((half.context, half.available_bytes), (256, total - pages / 2));
        let refused = plan_with(&with(total - 1, Some(512)), u64::MAX).expect_err("a byte is missing");
        assert!(
            matches!(refused, LoadError::OutOfMemory { available, .. } if available == total - 1),
            "{refused}"
        );
        let refused = plan_with(&with(2 * total, None), total).expect_err("it is not there");
        let numbers = (2 * total, total);
        assert!(
            matches!(refused, LoadError::BudgetTooLarge { asked, available } if (asked, available) == numbers),
            "{refused}"
        );
    }

    #[test]
    fn sequences_become_fewer_before_the_context_becomes_shorter() {
        let options = LoadOptions { sequences: Some(8), fewer_sequences: true, ..LoadOptions::default() };
        let all = plan_with(&options, u64::MAX).expect("everything fits");
        assert_eq!((all.sequences, all.context), (8, 512));
        let found = |available| {
            let plan = plan_with(&options, available).expect("a page fits");
            (plan.sequences, plan.context)
        };
        assert_eq!(found(all.memory.total() - 1), (4, 512));
        let alone = plan(None, u64::MAX).expect("everything fits").memory;
        assert_eq!(found(alone.total()), (1, 512));
        assert_eq!(found(alone.total() - alone.of(MemoryClass::Pages) / 2), (1, 256));
        let exact = LoadOptions { fewer_sequences: false, ..options };
        assert_eq!(plan_with(&exact, all.memory.total() - 1).expect("a part fits").sequences, 8);
    }

    #[test]
    fn a_step_has_a_row_of_each_sequence() {
        for (sequences, asked, expected) in
            [(1, None, 512), (1000, None, 1000), (7, Some(3), 7), (7, Some(9), 9)]
        {
            let options =
                LoadOptions { sequences: Some(sequences), step_rows: asked, ..LoadOptions::default() };
            let plan = plan_with(&options, u64::MAX).expect("everything fits");
            assert_eq!((plan.step_rows, plan.limits().rows), (expected, expected), "{sequences} sequences");
        }
    }

    #[test]
    fn an_asked_scaling_stretches_the_context_and_force_takes_any() {
        let scaled = |text: &str, context| LoadOptions {
            context,
            rope_scaling: Some(text.parse().expect("the scaling is well-formed")),
            ..LoadOptions::default()
        };
        let context = |options| plan_with(&options, u64::MAX).map(|plan| plan.context);
        for (text, expected) in [("yarn:4", 2048), ("linear:2", 1024), ("dynamic:3", 1536)] {
            assert_eq!(context(scaled(text, None)).expect("everything fits"), expected, "{text}");
        }
        assert_eq!(context(scaled("yarn:4", Some(2048))).expect("it reaches so far"), 2048);
        let error = context(scaled("yarn:4", Some(2049))).expect_err("it reaches less far");
        assert!(matches!(error, LoadError::ContextTooLong { asked: 2049, limit: 2048 }), "{error}");
        let forced = LoadOptions { context: Some(600), force_context: true, ..LoadOptions::default() };
        assert_eq!(context(forced).expect("it is forced"), 600);
        // Where memory is short, the stretched context is what fits of it.
        let whole = plan_with(&scaled("yarn:4", None), u64::MAX).expect("everything fits");
        let half = whole.memory.total() - whole.memory.of(MemoryClass::Pages).div_ceil(2);
        assert_eq!(plan_with(&scaled("yarn:4", None), half).expect("a part fits").context, 1024);
    }
}
