//! A reference backend with weights, state and the plans of some programs.

use super::batch::{HOME_PAGES, Part, batch};
use super::weights::Generated;
use gannet_ops::reference::ReferenceBackend;
use gannet_ops::sampling::{SampleRow, Sampling};
use gannet_ops::*;
use std::sync::Arc;

pub(crate) const LIMITS: BatchLimits = BatchLimits { rows: 512, sequences: 8, outputs: 64, context: 256 };

pub(crate) struct Device {
    pub(crate) layout: Arc<StateLayout>,
    pub(crate) state: Box<dyn State>,
    pub(crate) plans: Vec<Box<dyn Plan>>,
    pub(crate) sampling: Arc<Sampling>,
}

pub(crate) fn budget(layout: &StateLayout) -> Budget {
    let pages = vec![4 * HOME_PAGES; layout.groups.len()];
    Budget { pages, recurrent_slots: 4, snapshots: 1, sampler_slots: 4, ..Budget::default() }
}

impl Device {
    /// Every program over one state; each is checked as a loader would.
    pub(crate) fn new(programs: &[&Program]) -> Self {
        let backend = ReferenceBackend::new();
        let layout = programs[0].state.clone();
        let mut uses: Vec<WeightUse> = Vec::new();
        for weight in programs.iter().flat_map(|program| &program.weights) {
            if !uses.iter().any(|known| known.name == weight.name) {
                uses.push(weight.clone());
            }
        }
        let weights =
            backend.upload(&Generated::of(&uses), &uses).expect("generated weights have the right shapes");
        let plan = |program: &&Program| match verify(program) {
            Ok(()) => backend.compile(program, &weights, &LIMITS).expect("a verified program compiles"),
            Err(error) => panic!("{error}\n{}", print(program)),
        };
        let plans = programs.iter().map(plan).collect();
        let state = backend.allocate(&layout, &budget(&layout)).expect("the state is small");
        Self { layout, state, plans, sampling: Arc::new(Sampling::greedy()) }
    }

    /// Submits, samples and waits.
    pub(crate) fn step(&mut self, parts: &[Part]) -> (StepId, StepOutput) {
        let batch = batch(&self.layout, parts);
        self.run(0, &batch)
    }

    pub(crate) fn run(&mut self, plan: usize, batch: &Batch) -> (StepId, StepOutput) {
        let step = self.submit(plan, batch).expect("the batch is well formed");
        (step, self.wait(plan, step))
    }

    /// Submits and samples.
    pub(crate) fn submit(&mut self, plan: usize, batch: &Batch) -> Result<StepId, DeviceError> {
        let step = self.plans[plan].submit(batch, self.state.as_mut())?;
        let rows = self.sample_rows(batch);
        if !rows.rows.is_empty() {
            self.plans[plan].sample(step, &rows, self.state.as_mut())?;
        }
        Ok(step)
    }

    pub(crate) fn wait(&mut self, plan: usize, step: StepId) -> StepOutput {
        self.plans[plan].wait(step).expect("the step was submitted")
    }

    pub(crate) fn sample_rows(&self, batch: &Batch) -> SampleRows {
        let row = |output: &Output| SampleRow {
            sampling: self.sampling.clone(),
            seed: 7,
            choice: 0,
            index: batch.rows[output.row as usize].index + 1,
            allowed: None,
            banned: None,
        };
        SampleRows { rows: batch.outputs.iter().filter(|output| output.want.token).map(row).collect() }
    }

    /// A prompt and then so many tokens, one a step.
    pub(crate) fn generate(&mut self, home: u32, prompt: &[u32], count: usize) -> Vec<u32> {
        let mut tokens = vec![token(&self.step(&[Part::new(home, 0, prompt)]).1, 0)];
        while tokens.len() < count {
            let length = (prompt.len() + tokens.len() - 1) as u32;
            tokens.push(token(&self.step(&[Part::new(home, length, &tokens[tokens.len() - 1..])]).1, 0));
        }
        tokens
    }
}

/// The token that an output drew.
pub(crate) fn token(output: &StepOutput, number: usize) -> u32 {
    output.outputs[number].token.expect("a token was asked for").0
}

/// The scores of an output.
pub(crate) fn logits(output: &StepOutput, number: usize) -> &[f32] {
    output.outputs[number].logits.as_ref().expect("scores were asked for")
}
