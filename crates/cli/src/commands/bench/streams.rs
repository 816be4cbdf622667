//! Sequences of made-up tokens on the bare plan: what a step takes, with nothing around it.
//!
//! A stream owns an equal part of each page group, and its pages follow each other in it as in a ring: a page whose
//! keys have left the window is written anew. So a stream can go back to an earlier depth as long as the ring still
//! holds what a row there sees, and repeated measurements start from the same state.
//!
//! Knows no scheduler, no prefix cache and no text.

use clap::ValueEnum;
use gannet_engine::Runner;
use gannet_ops::sampling::{History, SampleRow, Sampling};
use gannet_ops::{
    Batch, DeviceError, Length, NodeTime, Output, OutputResult, PAGE_TOKENS, PageId, PageLifetime, PageTable,
    RecurrentBank, RecurrentUse, RecurrentWrite, Row, RowKind, SampleRows, SamplerSlot, SequenceRows,
    SnapshotId, StepId, TokenId, TokenSource, Want,
};
use serde::Serialize;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// All streams of a runner.
pub(super) struct Streams {
    pub(super) runner: Runner,
    streams: Vec<Stream>,
    sampling: Arc<Sampling>,
    /// Bits of the tokens that may be drawn, where a mask is in the way.
    mask: Option<Arc<[u32]>>,
    /// The steps since recording began, where it did.
    recorded: Option<Vec<StepTimes>>,
}

/// How a bench draws its tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Draws {
    /// The most likely token
    #[default]
    Greedy,
    /// With temperature, top-k, top-p, min-p and penalties
    Sampled,
    /// Sampled, through a mask as a grammar makes one
    Masked,
}

/// When the parts of a step ended, from its beginning.
#[derive(Clone, Debug)]
pub(super) struct StepTimes {
    pub(super) begun: Instant,
    /// The batch was made.
    pub(super) assembled: Duration,
    /// The forward pass was done, or handed over.
    pub(super) submitted: Duration,
    pub(super) sampled: Duration,
    pub(super) ended: Duration,
    /// Of each node before sampling, from `assembled` on.
    pub(super) nodes: Vec<NodeTime>,
}

impl StepTimes {
    pub(super) fn whole(&self) -> Duration {
        self.ended
    }
}

/// One sequence.
#[derive(Default)]
struct Stream {
    /// Tokens that it holds.
    tokens: usize,
    /// The most tokens that it held since it began.
    reached: usize,
    /// The bank with its recurrent state; none before the first step.
    bank: Option<u8>,
    /// Its open page.
    open: Open,
    /// Its recurrent state at the depth that it goes back to.
    kept: Option<Kept>,
}

/// Which of a stream's two open pages has the keys of a page that isn't full, and that page's number.
#[derive(Clone, Copy, Default)]
struct Open {
    place: usize,
    number: usize,
}

#[derive(Clone, Copy)]
struct Kept {
    depth: usize,
    snapshot: SnapshotId,
}

/// What follows the rows of a step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Draw {
    Nothing,
    Token,
    /// One after each row, as when drafts are checked.
    EachRow,
}

/// A stream's rows in a step.
struct Part {
    stream: usize,
    tokens: Vec<TokenSource>,
    kind: RowKind,
}

impl Open {
    /// Where the keys are after a step with these rows: its first page keeps its place, the last one has the other.
    fn after(self, rows: Range<usize>) -> Self {
        let number = (rows.end.max(rows.start + 1) - 1) / PAGE_TOKENS;
        let stays = number == rows.start / PAGE_TOKENS && !rows.start.is_multiple_of(PAGE_TOKENS);
        Self { place: if stays { self.place } else { 1 - self.place }, number }
    }
}

impl Streams {
    /// `count` streams over a runner whose budget is for as many.
    pub(super) fn new(runner: Runner, count: usize) -> Self {
        let streams = (0..count).map(|_| Stream::default()).collect();
        Self { runner, streams, sampling: Arc::new(Sampling::greedy()), mask: None, recorded: None }
    }

    /// How the next tokens are drawn.
    pub(super) fn draw_as(&mut self, draws: Draws) {
        let words = self.runner.vocabulary.div_ceil(u32::BITS as usize) as u32;
        // Half of the tokens, without a pattern.
        let mask = || (0..words).map(|word| word.wrapping_mul(0x9e37_79b9)).collect();
        let (sampling, mask) = match draws {
            Draws::Greedy => (Sampling::greedy(), None),
            Draws::Sampled => (usual_sampling(), None),
            Draws::Masked => (usual_sampling(), Some(mask())),
        };
        (self.sampling, self.mask) = (Arc::new(sampling), mask);
    }

    /// The runner, with nothing kept in it.
    pub(super) fn into_runner(mut self) -> Result<Runner, DeviceError> {
        (0..self.streams.len()).try_for_each(|stream| self.begin(stream))?;
        Ok(self.runner)
    }

    /// Records the steps that `work` runs, each node timed.
    pub(super) fn record(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<(), DeviceError>,
    ) -> Result<Vec<StepTimes>, DeviceError> {
        self.recorded = Some(Vec::new());
        let done = work(self);
        let recorded = self.recorded.take().unwrap_or_default();
        done.map(|()| recorded)
    }

    /// The share of the device's time in which it had nothing to compute while `work` ran, where it has a clock.
    pub(super) fn idle_share(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<(), DeviceError>,
    ) -> Result<Option<f64>, DeviceError> {
        self.runner.plan.watch(true)?;
        work(self)?;
        let seen = self.runner.plan.watch(false)?;
        Ok(seen
            .map(|seen| 1.0 - seen.working.as_secs_f64() / seen.whole.as_secs_f64().max(f64::MIN_POSITIVE)))
    }

    /// The token at an index of a stream's made-up text.
    pub(super) fn token(&self, stream: usize, index: usize) -> TokenId {
        TokenId(((index * 7919 + stream * 104_729 + 1) % self.runner.vocabulary) as u32)
    }

    /// Brings the first `count` streams to `depth` tokens, by going back where that is possible.
    pub(super) fn prepare(&mut self, count: usize, depth: usize) -> Result<(), DeviceError> {
        for stream in 0..count {
            if !self.go_back(stream, depth)? {
                self.begin(stream)?;
                self.extend(stream, depth, Draw::Nothing)?;
                self.keep(stream)?;
            }
            let text: Vec<TokenId> = (0..depth).map(|index| self.token(stream, index)).collect();
            self.runner.state.start_history(SamplerSlot(stream as u32), History::new(&text, &[]))?;
        }
        Ok(())
    }

    /// Computes `tokens` more tokens of the first stream's text and draws what follows them.
    pub(super) fn prefill(&mut self, tokens: usize) -> Result<TokenId, DeviceError> {
        let drawn = self.extend(0, self.streams[0].tokens + tokens, Draw::Token)?;
        Ok(drawn.expect("a token was asked for"))
    }

    /// Draws `steps` tokens of each of the first `count` streams, one a step, and returns them by step. As many steps are in
    /// flight as the device is for, but one where each is timed.
    pub(super) fn decode(&mut self, count: usize, steps: usize) -> Result<Vec<Vec<TokenId>>, DeviceError> {
        let first = |stream: usize| TokenSource::Known(self.token(stream, self.streams[stream].tokens));
        let mut last: Vec<TokenSource> = (0..count).map(first).collect();
        let mut drawn = Vec::new();
        let mut in_flight = VecDeque::new();
        for _ in 0..steps {
            let part = |(stream, token): (usize, &TokenSource)| Part {
                stream,
                tokens: vec![*token],
                kind: RowKind::Decode,
            };
            let parts: Vec<Part> = last.iter().enumerate().map(part).collect();
            if self.recorded.is_some() {
                let tokens = self.step(&parts, Draw::Token)?;
                last = tokens.iter().copied().map(TokenSource::Known).collect();
                drawn.push(tokens);
                continue;
            }
            let step = self.begin_step(&parts, Draw::Token)?;
            last = (0..count as u32).map(|output| TokenSource::Sampled { step, output }).collect();
            in_flight.push_back(step);
            if in_flight.len() >= self.runner.steps_in_flight {
                drawn.extend(in_flight.pop_front().map(|step| self.end_step(step)).transpose()?);
            }
        }
        for step in in_flight {
            drawn.push(self.end_step(step)?);
        }
        Ok(drawn)
    }

    /// Checks the first stream's text as drafts that all stand, `rows` of them a step, for so many steps.
    pub(super) fn check(&mut self, rows: usize, steps: usize) -> Result<(), DeviceError> {
        for _ in 0..steps {
            let start = self.streams[0].tokens;
            let tokens =
                (start..start + rows).map(|index| TokenSource::Known(self.token(0, index))).collect();
            self.step(&[Part { stream: 0, tokens, kind: RowKind::Decode }], Draw::EachRow)?;
        }
        Ok(())
    }

    /// Submits and samples.
    fn begin_step(&mut self, parts: &[Part], draw: Draw) -> Result<StepId, DeviceError> {
        let (batch, draws) = self.assemble(parts, draw);
        let Runner { plan, state, .. } = &mut self.runner;
        let step = plan.submit(&batch, state.as_mut())?;
        plan.sample(step, &draws, state.as_mut())?;
        self.go_on(parts);
        Ok(step)
    }

    fn end_step(&mut self, step: StepId) -> Result<Vec<TokenId>, DeviceError> {
        Ok(tokens_of(self.runner.plan.wait(step)?.outputs))
    }

    /// Computes a stream's text up to `end` in the largest steps; returns what the last one drew.
    fn extend(&mut self, stream: usize, end: usize, draw: Draw) -> Result<Option<TokenId>, DeviceError> {
        let mut drawn = None;
        while self.streams[stream].tokens < end {
            let start = self.streams[stream].tokens;
            let stop = end.min(start + self.runner.step_rows);
            let tokens = (start..stop).map(|index| TokenSource::Known(self.token(stream, index))).collect();
            let draw = if stop == end { draw } else { Draw::Nothing };
            let part = Part { stream, tokens, kind: RowKind::Prompt };
            drawn = self.step(&[part], draw)?.pop();
        }
        Ok(drawn)
    }

    /// Whether a stream could go back to a depth, which it then has.
    fn go_back(&mut self, number: usize, depth: usize) -> Result<bool, DeviceError> {
        let is_held = (0..self.runner.layout.groups.len()).all(|group| self.holds(number, group, depth));
        let stream = &mut self.streams[number];
        if depth == 0 || stream.tokens < depth || !is_held {
            return Ok(false);
        }
        if self.runner.layout.is_recurrent() {
            let Some(kept) = stream.kept.filter(|kept| kept.depth == depth) else { return Ok(false) };
            let bank = stream.bank.expect("a stream with kept state was computed");
            self.runner.state.restore(kept.snapshot, RecurrentBank { slot: number as u32, bank })?;
        }
        stream.tokens = depth;
        Ok(true)
    }

    /// Whether the ring of a group still has what a row at `depth` sees.
    fn holds(&self, stream: usize, group: usize, depth: usize) -> bool {
        if self.runner.layout.groups[group].lifetime == PageLifetime::Open {
            let is_between = depth.is_multiple_of(PAGE_TOKENS);
            return is_between || self.streams[stream].open.number == depth / PAGE_TOKENS;
        }
        let newest = self.streams[stream].reached.div_ceil(PAGE_TOKENS);
        self.first_page(group, depth) + self.ring(group) >= newest
    }

    /// Empties a stream.
    fn begin(&mut self, number: usize) -> Result<(), DeviceError> {
        let kept = std::mem::take(&mut self.streams[number]).kept;
        kept.map_or(Ok(()), |kept| self.runner.state.forget(kept.snapshot))?;
        self.runner.state.start_history(SamplerSlot(number as u32), History::default())
    }

    /// Keeps the recurrent state of a stream, to go back to.
    fn keep(&mut self, number: usize) -> Result<(), DeviceError> {
        let Stream { tokens: depth, bank, .. } = self.streams[number];
        if let (true, Some(bank)) = (self.runner.layout.is_recurrent(), bank) {
            let snapshot = self.runner.state.snapshot(RecurrentBank { slot: number as u32, bank })?;
            self.streams[number].kept = Some(Kept { depth, snapshot });
        }
        Ok(())
    }

    /// Runs one step and returns what it drew, in the order of the rows.
    fn step(&mut self, parts: &[Part], draw: Draw) -> Result<Vec<TokenId>, DeviceError> {
        let begun = Instant::now();
        let (batch, draws) = self.assemble(parts, draw);
        let outputs = self.compute(begun, &batch, &draws)?;
        self.go_on(parts);
        Ok(tokens_of(outputs))
    }

    /// The streams have these rows too.
    fn go_on(&mut self, parts: &[Part]) {
        for part in parts {
            let stream = &mut self.streams[part.stream];
            stream.open = stream.open.after(stream.tokens..stream.tokens + part.tokens.len());
            stream.tokens += part.tokens.len();
            stream.reached = stream.reached.max(stream.tokens);
            let is_recurrent = self.runner.layout.is_recurrent();
            stream.bank = is_recurrent.then(|| stream.bank.map_or(0, |bank| 1 - bank));
        }
    }

    /// Submits, samples and waits, with a look at the clock after each where steps are recorded.
    fn compute(
        &mut self,
        begun: Instant,
        batch: &Batch,
        draws: &SampleRows,
    ) -> Result<Vec<OutputResult>, DeviceError> {
        let Runner { plan, state, .. } = &mut self.runner;
        let Some(recorded) = &mut self.recorded else {
            let step = plan.submit(batch, state.as_mut())?;
            plan.sample(step, draws, state.as_mut())?;
            return Ok(plan.wait(step)?.outputs);
        };
        let mut nodes = Vec::new();
        let assembled = begun.elapsed();
        let step = plan.submit_timed(batch, state.as_mut(), &mut nodes)?;
        let submitted = begun.elapsed();
        plan.sample(step, draws, state.as_mut())?;
        let sampled = begun.elapsed();
        let outputs = plan.wait(step)?.outputs;
        recorded.push(StepTimes { begun, assembled, submitted, sampled, ended: begun.elapsed(), nodes });
        Ok(outputs)
    }

    fn assemble(&self, parts: &[Part], draw: Draw) -> (Batch, SampleRows) {
        let mut batch = Batch::default();
        let mut draws = SampleRows::default();
        for part in parts {
            self.push(&mut batch, part);
            let count = match draw {
                Draw::Nothing => 0,
                Draw::Token => 1,
                Draw::EachRow => part.tokens.len(),
            };
            for place in part.tokens.len() - count..part.tokens.len() {
                let row = (batch.rows.len() - part.tokens.len() + place) as u32;
                batch.outputs.push(Output { row, want: Want { token: true, ..Want::default() } });
                draws.rows.push(SampleRow {
                    sampling: Arc::clone(&self.sampling),
                    seed: 0,
                    choice: 0,
                    index: (self.streams[part.stream].tokens + place + 1) as u32,
                    allowed: self.mask.clone(),
                    banned: None,
                });
            }
        }
        (batch, draws)
    }

    fn push(&self, batch: &mut Batch, part: &Part) {
        let start = self.streams[part.stream].tokens;
        let (sequence, first) = (batch.sequences.len() as u32, batch.rows.len() as u32);
        for (place, token) in part.tokens.iter().enumerate() {
            let index = (start + place) as u32;
            let kind = match (part.kind, place) {
                (RowKind::Decode, 1..) => RowKind::Draft(place as u32 - 1),
                (kind, _) => kind,
            };
            batch.rows.push(Row { sequence, token: *token, index, position: [index; 3], kind });
        }
        let range = start..start + part.tokens.len();
        let groups = self.runner.layout.groups.len();
        let tables = (0..groups)
            .map(|group| self.table(&mut batch.pages, part.stream, group, range.clone()))
            .collect();
        batch.sequences.push(SequenceRows {
            rows: first..batch.rows.len() as u32,
            length: Length::Exact(start as u32),
            tables,
            recurrent: self.banks(part.stream),
            sampler: self.runner.layout.sampler.map(|_| SamplerSlot(part.stream as u32)),
            adapter: None,
        });
    }

    /// The pages that rows at these indices read and write.
    fn table(&self, pages: &mut Vec<PageId>, stream: usize, group: usize, rows: Range<usize>) -> PageTable {
        let ring = self.ring(group);
        let places = self.first_page(group, rows.start)..rows.end.div_ceil(PAGE_TOKENS);
        if self.runner.layout.groups[group].lifetime == PageLifetime::Open {
            let (open, released, start) =
                (self.streams[stream].open, places.start as u32, pages.len() as u32);
            let place = |number: usize| open.after(rows.start..number * PAGE_TOKENS + 1).place;
            let page =
                |number: usize| if number == places.start { place(number) } else { place(places.end - 1) };
            pages.extend(places.clone().map(|number| PageId((stream * ring + page(number)) as u32)));
            return PageTable { released, pages: start..pages.len() as u32 };
        }
        let (released, start) = (places.start as u32, pages.len() as u32);
        pages.extend(places.map(|place| PageId((stream * ring + place % ring) as u32)));
        PageTable { released, pages: start..pages.len() as u32 }
    }

    /// Pages of a group that each stream owns.
    fn ring(&self, group: usize) -> usize {
        self.runner.budget.pages[group] as usize / self.streams.len()
    }

    /// The first page that a row at an index reads.
    fn first_page(&self, group: usize, index: usize) -> usize {
        match self.runner.layout.groups[group].lifetime {
            PageLifetime::Full => 0,
            PageLifetime::Window(window) => (index + 1).saturating_sub(window as usize) / PAGE_TOKENS,
            PageLifetime::Open => index / PAGE_TOKENS,
        }
    }

    fn banks(&self, number: usize) -> Option<RecurrentUse> {
        let slot = number as u32;
        let bank = self.streams[number].bank;
        self.runner.layout.is_recurrent().then(|| RecurrentUse {
            read: bank.map(|bank| RecurrentBank { slot, bank }),
            write: RecurrentWrite::Bank(RecurrentBank { slot, bank: bank.map_or(0, |bank| 1 - bank) }),
        })
    }
}

fn tokens_of(outputs: Vec<OutputResult>) -> Vec<TokenId> {
    let drawn = |token: Option<TokenId>| token.expect("a token was asked for of each output");
    outputs.into_iter().map(|output| drawn(output.token)).collect()
}

/// The parameters that chats are mostly run with.
fn usual_sampling() -> Sampling {
    Sampling {
        temperature: 0.8,
        top_k: 40,
        top_p: 0.95,
        min_p: 0.05,
        repetition_penalty: 1.1,
        presence_penalty: 0.1,
        frequency_penalty: 0.1,
        ..Sampling::greedy()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gannet_backend_cpu::{CpuBackend, CpuOptions};
    use gannet_loader::LoadOptions;
    use gannet_ops::KvFormat;
    use std::path::Path;

    fn load((model, kv_format): (&str, KvFormat), sequences: usize) -> Runner {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens").join(model);
        let backend = CpuBackend::new(CpuOptions { threads: Some(2), ..CpuOptions::default() }).unwrap();
        let options = LoadOptions {
            context: Some(200),
            step_rows: Some(48),
            sequences: Some(sequences),
            kv_format: Some(kv_format),
            ..LoadOptions::default()
        };
        gannet_loader::load(&path, &backend, &options, &|_| {}).unwrap().runner
    }

    /// The token of the highest score, by the engine's own way through the plan.
    fn expected(model: (&str, KvFormat), tokens: &[TokenId]) -> TokenId {
        let mut best = None;
        gannet_engine::evaluate(&mut load(model, 1), tokens, tokens.len() - 1, |_, scores| {
            let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            best = scores.iter().position(|score| *score == largest);
        })
        .unwrap();
        TokenId(best.unwrap() as u32)
    }

    #[test]
    fn streams_draw_what_the_engine_draws_each_time_that_they_go_back() {
        // Whole sequences, windows, and recurrent state beside pages.
        let models = [
            ("llama", KvFormat::F32),
            ("gemma3", KvFormat::F16),
            ("qwen3_5", KvFormat::F16),
            ("gemma3", KvFormat::Int8),
            ("qwen3_5", KvFormat::Int8),
        ];
        for model in models {
            let mut streams = Streams::new(load(model, 3), 3);
            let (count, depth, steps) = (3, 130, 5);
            streams.prepare(count, depth).unwrap();
            let first = streams.decode(count, steps).unwrap();
            for stream in 0..count {
                let mut tokens: Vec<TokenId> =
                    (0..=depth).map(|index| streams.token(stream, index)).collect();
                for drawn in &first {
                    assert_eq!(drawn[stream], expected(model, &tokens), "{model:?}, stream {stream}");
                    tokens.push(drawn[stream]);
                }
            }
            streams.prepare(count, depth).unwrap();
            assert_eq!(streams.decode(count, steps).unwrap(), first, "{model:?}");
            streams.prepare(1, depth).unwrap();
            streams.check(4, 2).unwrap();
            let tokens: Vec<TokenId> = (0..depth + 8 + 3).map(|index| streams.token(0, index)).collect();
            assert_eq!(streams.prefill(3).unwrap(), expected(model, &tokens), "{model:?}");
            streams.prepare(1, 7).unwrap();
            let tokens: Vec<TokenId> = (0..7 + 60).map(|index| streams.token(0, index)).collect();
            assert_eq!(streams.prefill(60).unwrap(), expected(model, &tokens), "{model:?}");
        }
    }
}
