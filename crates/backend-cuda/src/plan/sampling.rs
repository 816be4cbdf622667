//! The draws of a step, from its parameters to its tokens.
//!
//! What the device draws stays there until somebody waits for the step: later steps take its tokens from where they lie. What the
//! host draws, it draws at once, after the steps before, so that its histories are whole.

use super::CudaPlan;
use super::draws::Drawers;
use super::jobs::{Jobs, Told, Way, ways};
use super::kept::Kept;
use super::launches::{Call, arguments, word};
use crate::backend::Need;
use crate::driver::{Address, Argument, Mark};
use crate::error::unknown;
use crate::jit::Variant;
use crate::state::{CudaState, Memory, lock};
use gannet_ops::numerics::VOCABULARY_PARTITION;
use gannet_ops::sampling::SampleRow;
use gannet_ops::sampling::passes::{GROUP, PlainPasses};
use gannet_ops::step::{PendingStep, ReadyDraws, StepValues};
use gannet_ops::{
    Batch, DeviceError, Length, Program, SampleRows, SamplerSlot, StepId, TokenSource, ValueId,
};
use std::sync::{Arc, Mutex};

/// Threads of the kernels' blocks.
const THREADS: u32 = 256;

/// A step between its submission and the moment when it is waited for.
pub(super) struct Flight {
    pub(super) step: PendingStep<Kept>,
    /// Draws that the host has not looked at.
    pub(super) drawn: Option<Drawn>,
    /// Comes when it has ended, where it draws nothing.
    pub(super) ended: Option<Mark>,
}

/// Draws on the device, and what they are part of.
pub(super) struct Drawn {
    rows: SampleRows,
    told: Told,
    memory: Arc<Mutex<Memory>>,
}

/// The kernels that draw and that bring tokens from step to step.
pub(super) fn needs() -> impl Iterator<Item = Need> {
    [
        "argmax_parts",
        "argmax",
        "sample_maxima",
        "sample_parts",
        "sample_tokens",
        "take_tokens",
        "count_tokens",
    ]
    .map(need)
    .into_iter()
}

fn need(entry: &'static str) -> Need {
    (Variant::new("sample", &[]), entry)
}

fn call(entry: &'static str, grid: [usize; 2], arguments: Vec<Argument>) -> Call {
    let grid = [word(grid[0]), word(grid[1]), 1];
    Call { need: need(entry), grid, block: THREADS, shared_bytes: 0, arguments }
}

impl CudaPlan {
    /// Says how the tokens of a step are drawn: begins what the device does, and does what the host does.
    pub(super) fn draw(
        &mut self,
        step: StepId,
        flight: &mut Flight,
        rows: &SampleRows,
        state: &mut CudaState,
    ) -> Result<(), DeviceError> {
        let memory = state.shared_memory();
        let Some(logits) = self.sampled else {
            return decide((&self.program, &mut self.drawers), (step, &mut flight.step), rows, &memory);
        };
        let drawn_rows = flight.step.draw_rows(rows)?.into_owned();
        let ways = ways(flight.step.batch(), &drawn_rows);
        self.bring_counts(&ways, flight, state)?;
        let told = self.begin_jobs((logits, &drawn_rows), ways, flight, state)?;
        let host_rows = told.host_rows();
        if host_rows.is_empty() {
            lock(&memory).steps.get_mut(step)?.draw_on_device();
            flight.drawn = Some(Drawn { rows: rows.clone(), told, memory });
            return Ok(());
        }
        // What the host draws looks back at what was drawn before.
        self.settle_all()?;
        let (width, outputs) = (self.program.value(logits).width, flight.step.batch().outputs.len());
        flight.step.values.fetch(&self.device.driver, logits, (host_rows, width))?;
        flight.step.values.take_tokens(outputs, &told)?;
        self.draw_here(logits, flight, (rows, &told), &memory)?;
        decide((&self.program, &mut self.drawers), (step, &mut flight.step), rows, &memory)
    }

    /// Makes the host's draws that depend on no other draw of the step.
    fn draw_here(
        &mut self,
        logits: ValueId,
        flight: &mut Flight,
        (rows, told): (&SampleRows, &Told),
        memory: &Mutex<Memory>,
    ) -> Result<(), DeviceError> {
        let memory = lock(memory);
        let is_ours = |output: usize| told.ways[output] == Way::Host;
        let ready = ReadyDraws::of(&flight.step, rows, &memory.histories)?.only(is_ours);
        let values = &flight.step.values;
        let draws = self.drawers.draw(&ready, &|output| values.row(logits, output));
        draws.into_iter().for_each(|(output, draw)| flight.step.values.take_draw(output, draw));
        Ok(())
    }

    /// Brings the counts that draws look back at to the device, where it has none or others were drawn since.
    fn bring_counts(
        &mut self,
        ways: &[Way],
        flight: &Flight,
        state: &mut CudaState,
    ) -> Result<(), DeviceError> {
        let vocabulary = self.draw_width();
        let bytes = (vocabulary + vocabulary.div_ceil(32)) * size_of::<u32>();
        for (asked, way) in flight.step.batch().outputs.iter().zip(ways) {
            let batch = flight.step.batch();
            let sequence = batch.rows[asked.row as usize].sequence as usize;
            let Way::Job { counts: Some(slot) } = way else {
                if let (true, Some(slot)) = (asked.want.token, batch.sequences[sequence].sampler) {
                    state.forget_counts(slot);
                }
                continue;
            };
            let (counts, are_current) = state.counts(*slot, bytes)?;
            if !are_current {
                self.settle_all()?;
                self.count(state, *slot, (counts, bytes))?;
            }
        }
        Ok(())
    }

    /// Writes the counts of a slot's history.
    fn count(
        &mut self,
        state: &CudaState,
        slot: SamplerSlot,
        (counts, bytes): (Address, usize),
    ) -> Result<(), DeviceError> {
        let driver = &self.device.driver;
        driver.clear(counts, bytes)?;
        let memory = state.memory();
        let seen = memory.histories.get(slot.0 as usize).map_or(&[][..], |history| history.counts());
        let pairs: Vec<u32> = seen.iter().flat_map(|(token, generated)| [token.0, generated + 1]).collect();
        if pairs.is_empty() {
            return Ok(());
        }
        self.count_room.grow((pairs.len() * size_of::<u32>()).next_power_of_two())?;
        let list = self.count_room.address();
        driver.upload(list, bytemuck::cast_slice(&pairs))?;
        let arguments = arguments![counts, list, word(seen.len()), word(self.draw_width())];
        let grid = [seen.len().div_ceil(THREADS as usize), 1];
        Ok(driver.launch(&self.launch(&call("count_tokens", grid, arguments)))?)
    }

    /// Launches the draws that are the device's, and begins to bring what they find to the host.
    fn begin_jobs(
        &mut self,
        (logits, rows): (ValueId, &[SampleRow]),
        ways: Vec<Way>,
        flight: &mut Flight,
        state: &mut CudaState,
    ) -> Result<Told, DeviceError> {
        let driver = Arc::clone(&self.device.driver);
        let vocabulary = self.draw_width();
        let bytes = (vocabulary + vocabulary.div_ceil(32)) * size_of::<u32>();
        let mut failed = Ok(());
        let counts = |slot| match state.counts(slot, bytes) {
            Ok((address, _)) => address,
            Err(error) => {
                failed = Err(error);
                Address::NONE
            }
        };
        let batch = flight.step.batch();
        let outputs = batch.outputs.len();
        let (jobs, told) = Jobs::new(batch, rows, ways, vocabulary, counts);
        failed?;
        let kept = &mut flight.step.values;
        let told_words = jobs.count() * told.words;
        if jobs.count() > 0 {
            let sizes = [jobs.word_count(), told_words].map(|words| words * size_of::<u32>());
            let [start, told_at] = kept.prepare_jobs(&driver, sizes)?;
            driver.upload(start, bytemuck::cast_slice(&jobs.words(start)))?;
            let scores = kept.address(logits).expect("scores outlive the forward pass");
            let places = [kept.tokens(), told_at, start, scores];
            self.mark_work()?;
            for call in self.draw_calls(jobs.count(), told.words, places)? {
                driver.launch(&self.launch(&call))?;
            }
            self.mark_work()?;
        }
        kept.begin_tokens(&driver, outputs, told_words)?;
        Ok(told)
    }

    /// The three kernels of a step's draws.
    fn draw_calls(
        &mut self,
        jobs: usize,
        told_words: usize,
        [tokens, told, start, scores]: [Address; 4],
    ) -> Result<[Call; 3], DeviceError> {
        let vocabulary = self.draw_width();
        let (groups, partitions) = (vocabulary.div_ceil(GROUP), vocabulary.div_ceil(VOCABULARY_PARTITION));
        let parts_bytes = jobs * partitions * size_of::<u64>();
        // Other memory waits for the steps in flight, so it comes seldom.
        self.draw_room.grow((parts_bytes + jobs * groups * size_of::<u32>()).next_power_of_two())?;
        let parts = self.draw_room.address();
        let maxima = parts.offset(parts_bytes);
        let width = word(vocabulary);
        Ok([
            call("sample_maxima", [partitions, jobs], arguments![maxima, start, tokens, scores, width]),
            call("sample_parts", [partitions, jobs], arguments![parts, start, tokens, scores, maxima, width]),
            call(
                "sample_tokens",
                [jobs, 1],
                arguments![tokens, told, start, scores, maxima, parts, width, word(told_words)],
            ),
        ])
    }

    /// Scores of a row.
    fn draw_width(&self) -> usize {
        self.sampled.map_or(0, |logits| self.program.value(logits).width)
    }

    /// Brings the tokens that rows take of earlier steps to where their ids are read; the lists were filled.
    pub(super) fn take_tokens(
        &self,
        ids: Address,
        kept: &Kept,
        vocabulary: usize,
    ) -> Result<(), DeviceError> {
        for (step, start, count) in self.metadata.taken() {
            let from = self.flights.get(step).ok_or_else(|| super::not_pending(*step))?;
            let pairs = kept.lists().offset(start * size_of::<u32>());
            let vocabulary = u32::try_from(vocabulary).unwrap_or(u32::MAX);
            let arguments = arguments![ids, from.step.values.tokens(), pairs, word(*count), vocabulary];
            let taken = call("take_tokens", [count.div_ceil(THREADS as usize), 1], arguments);
            self.device.driver.launch(&self.launch(&taken))?;
        }
        Ok(())
    }

    /// Looks at the draws that lengths of a batch depend on, and checks the outputs that rows take tokens of.
    pub(super) fn settle_for(&mut self, batch: &Batch) -> Result<(), DeviceError> {
        for sequence in &batch.sequences {
            if let Length::AtMost { after, .. } = sequence.length {
                self.settle(after)?;
            }
        }
        for row in &batch.rows {
            if let TokenSource::Sampled { step, output } = row.token
                && let Some(flight) = self.flights.get(&step)
            {
                let wanted = flight.step.batch().outputs.get(output as usize);
                wanted.filter(|output| output.want.token).ok_or_else(|| {
                    unknown("output", output, format!("step {} samples no token there", step.0))
                })?;
            }
        }
        Ok(())
    }

    /// Looks at all that was drawn up to a step.
    pub(super) fn settle(&mut self, last: StepId) -> Result<(), DeviceError> {
        for (step, flight) in self.flights.range_mut(..=last) {
            let Some(Drawn { rows, told, memory }) = flight.drawn.take() else { continue };
            let outputs = flight.step.batch().outputs.len();
            flight.step.values.take_tokens(outputs, &told)?;
            decide((&self.program, &mut self.drawers), (*step, &mut flight.step), &rows, &memory)?;
        }
        Ok(())
    }

    fn settle_all(&mut self) -> Result<(), DeviceError> {
        self.flights.keys().next_back().copied().map_or(Ok(()), |last| self.settle(last))
    }
}

/// Writes down what was drawn, and draws what is left, one after the other.
fn decide(
    (program, drawers): (&Program, &mut Drawers),
    (step, pending): (StepId, &mut PendingStep<Kept>),
    rows: &SampleRows,
    memory: &Mutex<Memory>,
) -> Result<(), DeviceError> {
    let mut passes = PlainPasses;
    let mut drawer = drawers.first(&mut passes);
    let mut memory = lock(memory);
    let Memory { histories, steps } = &mut *memory;
    let with = (&mut histories[..], &mut drawer);
    steps.get_mut(step)?.decide(|sampled| pending.sample(program, rows, with, sampled))
}
