//! What of a step outlives its forward pass: scores, hidden states and tokens on the device, and copies of what the host asks for.

use super::graphs::Graphs;
use super::jobs::Told;
use crate::driver::{Address, DeviceBuffer, Driver, Landing};
use crate::error::CudaError;
use gannet_ops::sampling::{Draw, logprobs_of};
use gannet_ops::step::{KeptIds, RowLogprobs, StepValues};
use gannet_ops::{TokenId, ValueId};
use std::sync::Arc;

/// What a kernel gives in place of a token: a score of the row is not finite; no token may be drawn.
pub(crate) const NOT_FINITE: u32 = u32::MAX;
pub(crate) const NONE_ALLOWED: u32 = u32::MAX - 1;

/// A step's values; serves a later step with its memory.
#[derive(Default)]
pub(super) struct Kept {
    /// For each value that outlives the forward pass, its memory.
    device: Vec<(ValueId, DeviceBuffer)>,
    /// The token of each output.
    tokens: Option<DeviceBuffer>,
    /// The likeliest token of each partition of each output.
    parts: Option<DeviceBuffer>,
    /// What the step's kernels read of the batch.
    lists: Option<DeviceBuffer>,
    /// What the kernels that draw read, and what they tell beside tokens.
    jobs: Option<DeviceBuffer>,
    told: Option<DeviceBuffer>,
    /// Graphs over tokens, lists and values.
    pub(super) graphs: Graphs,
    host: Vec<Fetched>,
    /// Tokens on their way to the host, and what was told.
    landed: Option<Landing>,
    /// Outputs whose draws are known.
    drawn: Vec<Option<Draw>>,
    logprobs: Vec<RowLogprobs>,
    ids: KeptIds,
}

/// Rows of a value on the host.
struct Fetched {
    id: ValueId,
    width: usize,
    /// Those of the present step that came, ascending.
    rows: Vec<usize>,
    numbers: Landing,
}

impl Kept {
    /// Makes room for a step: bytes of each value, outputs of which a token is wanted and partitions of their scores, bytes of its lists.
    pub(super) fn prepare(
        &mut self,
        driver: &Arc<dyn Driver>,
        (values, [outputs, partitions]): (&[(ValueId, usize)], [usize; 2]),
        list_bytes: usize,
    ) -> Result<(), CudaError> {
        self.host.iter_mut().for_each(|copy| copy.rows.clear());
        self.drawn.clear();
        self.logprobs.clear();
        self.ids.clear();
        let graphs = &mut self.graphs;
        for (id, bytes) in values {
            match self.device.iter_mut().find(|(known, _)| known == id) {
                Some((_, buffer)) => grow(buffer, *bytes, graphs)?,
                None => self.device.push((*id, DeviceBuffer::new(driver, *bytes)?)),
            }
        }
        let tokens = (&mut self.tokens, outputs * size_of::<u32>());
        let parts = (&mut self.parts, outputs * partitions * size_of::<u64>());
        for (buffer, bytes) in [tokens, parts, (&mut self.lists, list_bytes)] {
            match buffer {
                Some(buffer) => grow(buffer, bytes, graphs)?,
                None => *buffer = Some(DeviceBuffer::new(driver, bytes)?),
            }
        }
        Ok(())
    }

    /// Makes room for what the kernels that draw read and tell, which no graph names; where both lie.
    pub(super) fn prepare_jobs(
        &mut self,
        driver: &Arc<dyn Driver>,
        bytes: [usize; 2],
    ) -> Result<[Address; 2], CudaError> {
        let mut places = [Address::NONE; 2];
        for ((buffer, bytes), place) in
            [&mut self.jobs, &mut self.told].into_iter().zip(bytes).zip(&mut places)
        {
            if buffer.as_ref().is_none_or(|buffer| buffer.bytes() < bytes) {
                *buffer = Some(DeviceBuffer::new(driver, bytes.next_power_of_two())?);
            }
            *place = buffer.as_ref().expect("it was made above").address();
        }
        Ok(places)
    }

    /// Bytes of the device's memory.
    pub(super) fn bytes(&self) -> usize {
        let lists = [&self.tokens, &self.parts, &self.lists, &self.jobs, &self.told].into_iter().flatten();
        self.device.iter().map(|(_, buffer)| buffer).chain(lists).map(DeviceBuffer::bytes).sum()
    }

    /// Where a value lies, where it is one that outlives the forward pass.
    pub(super) fn address(&self, id: ValueId) -> Option<Address> {
        self.device.iter().find(|(known, _)| *known == id).map(|(_, buffer)| buffer.address())
    }

    /// Where the step's lists lie.
    pub(super) fn lists(&self) -> Address {
        self.lists.as_ref().expect("the step was prepared").address()
    }

    /// Where the tokens go.
    pub(super) fn tokens(&self) -> Address {
        self.tokens.as_ref().expect("the step was prepared").address()
    }

    /// Where the likeliest tokens go, and what they are found by.
    pub(super) fn greedy(&self) -> [Address; 2] {
        [self.tokens(), self.parts.as_ref().expect("the step was prepared").address()]
    }

    /// Copies rows of a value, ascending, to the host, once.
    pub(super) fn fetch(
        &mut self,
        driver: &Arc<dyn Driver>,
        id: ValueId,
        (rows, width): (Vec<usize>, usize),
    ) -> Result<(), CudaError> {
        let address = self.address(id).expect("the value outlives the forward pass");
        let place = self.host.iter().position(|copy| copy.id == id).unwrap_or(self.host.len());
        if place == self.host.len() {
            self.host.push(Fetched { id, width, rows: Vec::new(), numbers: Landing::new(driver) });
        }
        let copy = &mut self.host[place];
        if rows.iter().all(|row| copy.rows.binary_search(row).is_ok()) {
            return Ok(());
        }
        let neighbours = rows.chunk_by(|row, next| row + 1 == *next);
        let run = |run: &[usize]| (address.offset(run[0] * width * size_of::<f32>()), run.len() * width);
        copy.numbers.begin(&neighbours.map(run).collect::<Vec<_>>())?;
        copy.numbers.finish()?;
        copy.rows = rows;
        Ok(())
    }

    /// Takes over a draw that was made of a row which [`Kept::fetch`] copied.
    pub(super) fn take_draw(&mut self, output: usize, draw: Draw) {
        self.drawn.resize(self.drawn.len().max(output + 1), None);
        self.drawn[output] = Some(draw);
    }

    /// Begins to bring the tokens of all outputs to the host, and so many words of what was told.
    pub(super) fn begin_tokens(
        &mut self,
        driver: &Arc<dyn Driver>,
        outputs: usize,
        told_words: usize,
    ) -> Result<(), CudaError> {
        let tokens = (self.tokens(), outputs);
        let told = self.told.as_ref().filter(|_| told_words > 0).map(|told| (told.address(), told_words));
        let runs: Vec<(Address, usize)> = std::iter::once(tokens).chain(told).collect();
        self.landed.get_or_insert_with(|| Landing::new(driver)).begin(&runs)
    }

    /// Takes over the tokens of the outputs that the device drew, and what it told of log-probabilities, when they have come.
    pub(super) fn take_tokens(&mut self, outputs: usize, told: &Told) -> Result<(), CudaError> {
        let Some(landed) = &mut self.landed else { return Ok(()) };
        landed.finish()?;
        let (tokens, words) = landed.words().split_at(outputs);
        self.drawn.clear();
        self.drawn.extend((0..).zip(tokens).map(|(output, id)| told.is_drawn(output).then(|| drawn(*id))));
        self.logprobs.clear();
        self.logprobs.resize(outputs, RowLogprobs::Unknown);
        for asked in &told.logprobs {
            let token = tokens[asked.output];
            self.logprobs[asked.output] = if token == NOT_FINITE {
                RowLogprobs::NotFinite
            } else {
                let (score, row) = (words[asked.draw * told.words], &words[asked.job * told.words..]);
                let has_token = asked.is_scored || token != NONE_ALLOWED;
                let (ends, likeliest) = row[..2 + 2 * asked.top].split_at(2);
                let top = likeliest.as_chunks::<2>().0.iter();
                RowLogprobs::Found(logprobs_of(
                    (f32::from_bits(ends[0]), f32::from_bits(ends[1])),
                    has_token.then_some(f32::from_bits(score)),
                    top.map(|[id, score]| (TokenId(*id), f32::from_bits(*score))),
                ))
            };
        }
        Ok(())
    }
}

fn drawn(id: u32) -> Draw {
    let token = (id < NONE_ALLOWED).then_some(TokenId(id));
    Draw { token, not_finite: id == NOT_FINITE, running: None }
}

/// Makes room where there is too little, after the graphs that name what was there.
fn grow(buffer: &mut DeviceBuffer, bytes: usize, graphs: &mut Graphs) -> Result<(), CudaError> {
    if buffer.bytes() < bytes {
        graphs.clear();
    }
    buffer.grow(bytes)
}

impl StepValues for Kept {
    fn drawn(&self, _value: ValueId, row: usize) -> Option<Draw> {
        self.drawn.get(row).copied().flatten()
    }

    fn logprobs(&self, _value: ValueId, row: usize) -> RowLogprobs {
        self.logprobs.get(row).cloned().unwrap_or(RowLogprobs::Unknown)
    }

    fn row(&self, value: ValueId, row: usize) -> &[f32] {
        let place = |copy: &Fetched| copy.rows.binary_search(&row).ok();
        let found =
            self.host.iter().filter(|copy| copy.id == value).find_map(|copy| Some((copy, place(copy)?)));
        let (Fetched { width, numbers, .. }, place) = found.expect("what the host reads was copied");
        &numbers.numbers()[place * width..][..*width]
    }

    fn ids(&self, value: ValueId) -> &[Option<u32>] {
        self.ids.of(value)
    }

    fn ids_mut(&mut self, value: ValueId) -> &mut Vec<Option<u32>> {
        self.ids.of_mut(value)
    }
}
