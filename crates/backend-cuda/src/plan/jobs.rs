//! Draws as the device makes them: who draws what, and the words that the kernels of `sample.cu` read.
//!
//! An output whose parameters the kernels know is a job, and so are the log-probabilities of one; the likeliest token by the
//! model's own scores is found in every step. What is left is the host's: filters that look at the whole distribution or steer, and
//! draws that look back at others of the same step.

use crate::driver::Address;
use gannet_ops::sampling::{SampleRow, Sampling};
use gannet_ops::{Batch, RowKind, SamplerSlot, Want};
use std::sync::Arc;

/// Words of a job.
pub(crate) const JOB_WORDS: usize = 24;
/// Most likely tokens that are told, at most.
const TOP_MAX: u32 = 256;
/// Kinds of jobs, as `sample.cuh` has them.
pub(crate) const LIKELIEST: u32 = 0;
pub(crate) const DRAWN: u32 = 1;
pub(crate) const SCORED: u32 = 2;
pub(crate) const LOGPROBS: u32 = 3;

/// Who draws the token of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Nobody: none is asked for.
    None,
    /// The forward pass did: it is the likeliest.
    Likeliest,
    /// A job, which may look back at the counts of a slot.
    Job { counts: Option<SamplerSlot> },
    /// The host.
    Host,
}

/// What comes back of the jobs beside tokens.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Of each job.
    pub(super) words: usize,
    pub(super) logprobs: Vec<AskedLogprobs>,
    /// Who draws each output.
    pub(super) ways: Vec<Way>,
}

/// Log-probabilities that a job tells.
#[derive(Clone, Copy, Debug)]
pub(super) struct AskedLogprobs {
    pub(super) output: usize,
    /// The job that tells the score of the token, and the one that tells the rest.
    pub(super) draw: usize,
    pub(super) job: usize,
    pub(super) top: usize,
    /// Whether the token was given.
    pub(super) is_scored: bool,
}

impl Told {
    /// Whether the device drew the token of an output.
    pub(super) fn is_drawn(&self, output: usize) -> bool {
        match self.ways[output] {
            Way::Likeliest | Way::Job { .. } => true,
            Way::None | Way::Host => false,
        }
    }

    /// Outputs whose scores the host reads.
    pub(super) fn host_rows(&self) -> Vec<usize> {
        (0..self.ways.len()).filter(|output| self.ways[*output] == Way::Host).collect()
    }
}

/// Who draws each output of a step; `rows` says how, for each that wants a token.
pub(super) fn ways(batch: &Batch, rows: &[SampleRow]) -> Vec<Way> {
    let mut rows = rows.iter();
    let sequence_of = |output: usize| batch.rows[batch.outputs[output].row as usize].sequence;
    let slots: Vec<Option<SamplerSlot>> = batch.sequences.iter().map(|sequence| sequence.sampler).collect();
    let way = |(output, asked): (usize, &gannet_ops::Output)| {
        let Want { token, logprobs, .. } = asked.want;
        let is_told = logprobs.is_none_or(|top| top <= TOP_MAX);
        if !token {
            let is_scored = logprobs.is_some() && batch.outputs.iter().any(|output| output.want.token);
            return if !is_scored {
                Way::None
            } else if is_told {
                Way::Job { counts: None }
            } else {
                Way::Host
            };
        }
        let row = rows.next().expect("there is a row for each output that wants a token");
        let sequence = sequence_of(output);
        let slot = slots[sequence as usize];
        // Alone in its sequence and its slot, a draw looks back at nothing of this step.
        let is_alone = !matches!(batch.rows[asked.row as usize].kind, RowKind::Draft(_))
            && [output.checked_sub(1), Some(output + 1)].into_iter().flatten().all(|other| {
                other >= batch.outputs.len()
                    || !batch.outputs[other].want.token
                    || sequence_of(other) != sequence
            })
            && (slot.is_none() || slots.iter().filter(|other| **other == slot).count() == 1);
        let looks_back = row.sampling.counts_tokens();
        if !is_told || !is_on_device(row) || looks_back && !is_alone {
            Way::Host
        } else if row.is_plain() && logprobs.is_none() {
            Way::Likeliest
        } else {
            Way::Job { counts: slot.filter(|_| looks_back) }
        }
    };
    batch.outputs.iter().enumerate().map(way).collect()
}

/// Whether the kernels have the filters of a row.
fn is_on_device(row: &SampleRow) -> bool {
    let Sampling { dry, dynamic_temperature, temperature, top_n_sigma, typical_p, .. } = &*row.sampling;
    let Sampling { xtc, mirostat, adaptive, logit_bias, .. } = &*row.sampling;
    let steers = xtc.is_some() || mirostat.is_some() || adaptive.is_some();
    let narrows = *top_n_sigma > 0.0 || *typical_p < 1.0 || steers;
    let mut biased: Vec<u32> = logit_bias.iter().map(|(token, _)| token.0).collect();
    biased.sort_unstable();
    let is_once = biased.windows(2).all(|pair| pair[0] != pair[1]);
    dry.is_none() && dynamic_temperature.is_none() && (*temperature == 0.0 || !narrows) && is_once
}

/// Jobs, and the lists that they name: masks, changes.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    jobs: Vec<Job>,
    lists: Vec<u32>,
    masks: Vec<(Arc<[u32]>, Place)>,
}

/// A list among the lists.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    start: usize,
    count: usize,
}

#[derive(Debug)]
struct Job {
    kind: u32,
    output: usize,
    row: Option<SampleRow>,
    mask: Option<Place>,
    changes: Place,
    counts: Address,
    token: u32,
    top: u32,
}

impl Jobs {
    /// The jobs of a step. `counts` says where the counts of a slot lie.
    pub(super) fn new(
        batch: &Batch,
        rows: &[SampleRow],
        ways: Vec<Way>,
        vocabulary: usize,
        mut counts: impl FnMut(SamplerSlot) -> Address,
    ) -> (Self, Told) {
        let mut jobs = Self::default();
        let mut told = Told { ways, ..Told::default() };
        let mut rows = rows.iter();
        for (output, asked) in batch.outputs.iter().enumerate() {
            let row = if asked.want.token { rows.next() } else { None };
            let Way::Job { counts: slot } = told.ways[output] else { continue };
            let draw = jobs.jobs.len();
            match row {
                Some(row) => jobs.add_draw(output, row, slot.map_or(Address::NONE, &mut counts), vocabulary),
                None => jobs.add(SCORED, output, asked.want.scored.map_or(0, |token| token.0), 0),
            }
            if let Some(top) = asked.want.logprobs {
                let top = top.min(vocabulary as u32);
                let (job, is_scored) = (jobs.jobs.len(), row.is_none());
                told.words = told.words.max(2 + 2 * top as usize);
                told.logprobs.push(AskedLogprobs { output, draw, job, top: top as usize, is_scored });
                jobs.add(LOGPROBS, output, 0, top);
            }
        }
        (jobs, told)
    }

    pub(super) fn count(&self) -> usize {
        self.jobs.len()
    }

    fn add(&mut self, kind: u32, output: usize, token: u32, top: u32) {
        let (row, mask, changes, counts) = (None, None, Place::default(), Address::NONE);
        self.jobs.push(Job { kind, output, row, mask, changes, counts, token, top });
    }

    fn add_draw(&mut self, output: usize, row: &SampleRow, counts: Address, vocabulary: usize) {
        let kind = if row.sampling.temperature == 0.0 { LIKELIEST } else { DRAWN };
        let (mask, changes) = (self.mask(row, vocabulary), self.changes(row));
        let row = Some(SampleRow { allowed: None, ..row.clone() });
        self.jobs.push(Job { kind, output, row, mask, changes, counts, token: 0, top: 0 });
    }

    fn list(&mut self, words: &[u32]) -> Place {
        let start = self.lists.len();
        self.lists.extend_from_slice(words);
        Place { start, count: words.len() }
    }

    /// The row's mask and the request's own list of tokens as one mask; rows may share one.
    fn mask(&mut self, row: &SampleRow, vocabulary: usize) -> Option<Place> {
        let only = &row.sampling.only;
        if only.is_empty() {
            let mask = row.allowed.as_ref()?;
            let known =
                self.masks.iter().find(|(known, _)| Arc::ptr_eq(known, mask)).map(|(_, place)| *place);
            return Some(known.unwrap_or_else(|| {
                let place = self.list(mask);
                self.masks.push((Arc::clone(mask), place));
                place
            }));
        }
        let mut words = vec![0; vocabulary.div_ceil(32)];
        for token in only {
            let (word, bit) = (token.0 as usize / 32, token.0 % 32);
            let allowed = row.allowed.as_ref().map_or(u32::MAX, |mask| mask.get(word).copied().unwrap_or(0));
            if let Some(place) = words.get_mut(word) {
                *place |= allowed & 1 << bit;
            }
        }
        Some(self.list(&words))
    }

    /// Pairs of token and what is added to its score, ascending: minus infinity where it is banned.
    fn changes(&mut self, row: &SampleRow) -> Place {
        let bans = row.sampling.banned.iter().chain(row.banned.as_deref().unwrap_or_default());
        let biases = row.sampling.logit_bias.iter().map(|(token, bias)| (token.0, *bias));
        let mut changes: Vec<(u32, f32)> =
            bans.map(|token| (token.0, f32::NEG_INFINITY)).chain(biases).collect();
        // A ban comes before what is added, and is what counts.
        changes.sort_by_key(|(token, _)| *token);
        changes.dedup_by_key(|(token, _)| *token);
        let words: Vec<u32> = changes.iter().flat_map(|(token, added)| [*token, added.to_bits()]).collect();
        let Place { start, count } = self.list(&words);
        Place { start, count: count / 2 }
    }

    /// Words of jobs and lists.
    pub(super) fn word_count(&self) -> usize {
        self.jobs.len() * JOB_WORDS + self.lists.len()
    }

    /// Jobs and lists as the kernels read them, lying at `start`.
    pub(super) fn words(&self, start: Address) -> Vec<u32> {
        let lists = start.offset(self.jobs.len() * JOB_WORDS * size_of::<u32>());
        let at = |place: Place| lists.offset(place.start * size_of::<u32>());
        let mut words = Vec::with_capacity(self.word_count());
        let greedy = Sampling::greedy();
        for job in &self.jobs {
            let sampling = job.row.as_ref().map_or(&greedy, |row| &*row.sampling);
            let (seed, choice, index) =
                job.row.as_ref().map_or((0, 0, 0), |row| (row.seed, row.choice, row.index));
            let [seed, mask, counts, changes] =
                [seed, job.mask.map_or(0, |place| at(place).0), job.counts.0, at(job.changes).0]
                    .map(|number| [number as u32, (number >> 32) as u32]);
            let Sampling { temperature, top_p, min_p, top_k, .. } = sampling;
            words.extend([
                job.kind,
                job.output as u32,
                temperature.to_bits(),
                top_p.to_bits(),
                min_p.to_bits(),
                *top_k,
            ]);
            words.extend([seed, mask, counts, changes].concat());
            words.extend([job.mask.map_or(0, |place| place.count as u32), job.changes.count as u32]);
            let penalties =
                [sampling.repetition_penalty, sampling.presence_penalty, sampling.frequency_penalty];
            words.extend(penalties.map(f32::to_bits));
            words.extend([job.token, job.top, choice, index, 0]);
        }
        words.extend_from_slice(&self.lists);
        words
    }
}
