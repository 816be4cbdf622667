//! The kernels that draw, as `gannet_ops::sampling` on the words of their jobs.

use super::super::Address;
use super::kernels::{Call, Outcome};
use crate::error::CudaError;
use crate::plan::jobs::{DRAWN, JOB_WORDS, LIKELIEST, LOGPROBS, SCORED};
use crate::plan::kept::{NONE_ALLOWED, NOT_FINITE};
use gannet_ops::TokenId;
use gannet_ops::numerics::VOCABULARY_PARTITION;
use gannet_ops::sampling::passes::{GROUP, MaskedRow, Passes, PlainPasses, Scale};
use gannet_ops::sampling::{History, SampleRow, Sampling, draw};
use std::sync::Arc;

/// The likeliest token of each partition of a row, and its score; two words a partition.
pub(super) fn argmax_parts(call: &mut Call<'_>) -> Outcome {
    let ([parts, logits], [rows, vocabulary]) = (call.addresses()?, call.sizes()?);
    let logits = call.matrix(logits, rows, vocabulary)?;
    let likeliest = |(part, scores): (usize, &[f32])| {
        if scores.iter().any(|score| !score.is_finite()) {
            return [NOT_FINITE, 0];
        }
        let mut best = 0;
        for (id, score) in scores.iter().enumerate() {
            best = if *score > scores[best] { id } else { best };
        }
        [(part * VOCABULARY_PARTITION + best) as u32, scores[best].to_bits()]
    };
    let found = logits.rows().flat_map(|row| row.chunks(VOCABULARY_PARTITION).enumerate().map(likeliest));
    put_words(call, parts, &found.flatten().collect::<Vec<u32>>())
}

pub(super) fn argmax(call: &mut Call<'_>) -> Outcome {
    let ([tokens, parts], [rows, partitions]) = (call.addresses()?, call.sizes()?);
    let parts = call.words(parts, rows * partitions * 2)?;
    let likeliest = |row: &[u32]| {
        let mut best = (row[0], f32::from_bits(row[1]));
        for part in row.as_chunks::<2>().0 {
            let (id, score) = (part[0], f32::from_bits(part[1]));
            best =
                if id == NOT_FINITE || (best.0 != NOT_FINITE && score > best.1) { (id, score) } else { best };
        }
        best.0
    };
    let found: Vec<u32> = parts.chunks(partitions * 2).map(likeliest).collect();
    put_words(call, tokens, &found)
}

fn put_words(call: &mut Call<'_>, to: Address, words: &[u32]) -> Outcome {
    call.memory.write(call.entry, to, bytemuck::cast_slice(words))
}

/// Writes what is left to `sample_tokens` here, so that its place is known to be there.
pub(super) fn sample_maxima(call: &mut Call<'_>) -> Outcome {
    let ([maxima, _jobs, _tokens, _logits], vocabulary) = (call.addresses()?, call.u32()?);
    let count = call.grid()[1] as usize * vocabulary.div_ceil(GROUP);
    put_words(call, maxima, &vec![0; count])
}

pub(super) fn sample_parts(call: &mut Call<'_>) -> Outcome {
    let ([parts, _jobs, _tokens, _logits, _maxima], vocabulary) = (call.addresses()?, call.u32()?);
    let count = call.grid()[1] as usize * vocabulary.div_ceil(VOCABULARY_PARTITION);
    put_words(call, parts, &vec![0; 2 * count])
}

/// A job's words, and what they name.
struct Job {
    kind: u32,
    row: usize,
    how: SampleRow,
    counts: Address,
    history: History,
    token: u32,
    top: usize,
}

fn job(call: &Call<'_>, at: Address, vocabulary: usize) -> Result<Job, CudaError> {
    let words = call.words(at, JOB_WORDS)?;
    let float = |place: usize| f32::from_bits(words[place]);
    let long = |place: usize| u64::from(words[place + 1]) << 32 | u64::from(words[place]);
    let [mask, counts, changes] = [8, 10, 12].map(|place| Address(long(place)));
    let changes = call.words(changes, if words[15] > 0 { 2 * words[15] as usize } else { 0 });
    let changes = if words[15] > 0 { changes? } else { Vec::new() };
    if !changes.as_chunks::<2>().0.is_sorted_by(|a, b| a[0] < b[0]) {
        return Err(call.odd("changes don't ascend".to_owned()));
    }
    let (bans, biases): (Vec<_>, Vec<_>) = changes
        .as_chunks::<2>()
        .0
        .iter()
        .map(|[token, added]| (TokenId(*token), f32::from_bits(*added)))
        .partition(|(_, added)| *added == f32::NEG_INFINITY);
    let sampling = Sampling {
        temperature: if words[0] == LIKELIEST { 0.0 } else { float(2) },
        top_p: float(3),
        min_p: float(4),
        top_k: words[5],
        logit_bias: biases,
        banned: bans.into_iter().map(|(token, _)| token).collect(),
        repetition_penalty: float(16),
        presence_penalty: float(17),
        frequency_penalty: float(18),
        ..Sampling::greedy()
    };
    let allowed =
        (mask != Address::NONE).then(|| call.words(mask, words[14] as usize).map(Arc::from)).transpose()?;
    let (seed, choice, index) = (long(6), words[21], words[22]);
    let how = SampleRow { sampling: Arc::new(sampling), seed, choice, index, allowed, banned: None };
    let history = history(call, counts, vocabulary)?;
    let (row, top) = (words[1] as usize, words[20] as usize);
    Ok(Job { kind: words[0], row, how, counts, history, token: words[19], top })
}

/// A history with these counts.
fn history(call: &Call<'_>, counts: Address, vocabulary: usize) -> Result<History, CudaError> {
    if counts == Address::NONE {
        return Ok(History::default());
    }
    let words = call.words(counts, vocabulary + vocabulary.div_ceil(32))?;
    let (counts, seen) = words.split_at(vocabulary);
    let is_seen = |token: usize| seen[token / 32] >> (token % 32) & 1 == 1;
    if (0..vocabulary).any(|token| is_seen(token) != (counts[token] > 0)) {
        return Err(call.odd("a token's bit says otherwise than its count".to_owned()));
    }
    let tokens = || (0..).map(TokenId).zip(counts).filter(|(_, count)| **count > 0);
    let prompt: Vec<TokenId> = tokens().map(|(token, _)| token).collect();
    let generated = tokens().flat_map(|(token, count)| std::iter::repeat_n(token, *count as usize - 1));
    Ok(History::new(&prompt, &generated.collect::<Vec<_>>()))
}

pub(super) fn sample_tokens(call: &mut Call<'_>) -> Outcome {
    let ([tokens, told, jobs, logits, maxima, parts], [vocabulary, told_words]) =
        (call.addresses()?, call.sizes()?);
    let count = call.grid()[0] as usize;
    call.words(maxima, count * vocabulary.div_ceil(GROUP))?;
    call.words(parts, 2 * count * vocabulary.div_ceil(VOCABULARY_PARTITION))?;
    for number in 0..count {
        let job = job(call, jobs.offset(number * JOB_WORDS * size_of::<u32>()), vocabulary)?;
        let token_at = tokens.offset(job.row * size_of::<u32>());
        if call.word(token_at, 0)? == NOT_FINITE {
            continue;
        }
        let scores = call.floats(logits.offset(job.row * vocabulary * size_of::<f32>()), vocabulary)?;
        let told = told.offset(number * told_words * size_of::<u32>());
        match job.kind {
            LOGPROBS => put_words(call, told, &likeliest(&scores, job.top))?,
            SCORED => tell_score(call, told, told_words, scores.get(job.token as usize))?,
            LIKELIEST | DRAWN => {
                let token = draw(&scores, &job.how, &job.history).token;
                put_words(call, token_at, &[token.map_or(NONE_ALLOWED, |token| token.0)])?;
                tell_score(call, told, told_words, token.map(|token| &scores[token.0 as usize]))?;
                if let (true, Some(token)) = (job.counts != Address::NONE, token) {
                    count_one(call, job.counts, token.0, vocabulary)?;
                }
            }
            kind => return Err(call.odd(format!("a job of kind {kind}"))),
        }
    }
    Ok(())
}

fn tell_score(call: &mut Call<'_>, told: Address, told_words: usize, score: Option<&f32>) -> Outcome {
    score.filter(|_| told_words > 0).map_or(Ok(()), |score| put_words(call, told, &[score.to_bits()]))
}

/// The largest score, the sum of exponentials, and the likeliest tokens with their scores.
fn likeliest(scores: &[f32], top: usize) -> Vec<u32> {
    let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sums = vec![0.0; scores.len().div_ceil(VOCABULARY_PARTITION)];
    PlainPasses.exponentials(MaskedRow { scores, mask: None }, Scale { temperature: 1.0, max }, &mut sums);
    let sum: f32 = sums.iter().fold(0.0, |sum, part| sum + part);
    let mut ranked: Vec<usize> = (0..scores.len()).collect();
    ranked.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b)));
    let ends = [max.to_bits(), sum.to_bits()];
    ends.into_iter().chain(ranked[..top].iter().flat_map(|id| [*id as u32, scores[*id].to_bits()])).collect()
}

/// Counts a generated token.
fn count_one(call: &mut Call<'_>, counts: Address, token: u32, vocabulary: usize) -> Outcome {
    let count = call.word(counts, token as usize)?.max(1) + 1;
    set_count(call, counts, (token, count), vocabulary)
}

fn set_count(call: &mut Call<'_>, counts: Address, (token, count): (u32, u32), vocabulary: usize) -> Outcome {
    let place = |word: usize| counts.offset(word * size_of::<u32>());
    let bits = vocabulary + token as usize / 32;
    let seen = call.word(counts, bits)? | 1 << (token % 32);
    put_words(call, place(token as usize), &[count])?;
    put_words(call, place(bits), &[seen])
}

pub(super) fn count_tokens(call: &mut Call<'_>) -> Outcome {
    let ([counts, pairs], [count, vocabulary]) = (call.addresses()?, call.sizes()?);
    for [token, times] in call.words(pairs, 2 * count)?.as_chunks::<2>().0 {
        set_count(call, counts, (*token, *times), vocabulary)?;
    }
    Ok(())
}

pub(super) fn take_tokens(call: &mut Call<'_>) -> Outcome {
    let ([ids, tokens, pairs], [count, vocabulary]) = (call.addresses()?, call.sizes()?);
    for [row, output] in call.words(pairs, 2 * count)?.as_chunks::<2>().0 {
        let token = call.word(tokens, *output as usize)?;
        let token = if (token as usize) < vocabulary { token } else { 0 };
        put_words(call, ids.offset(*row as usize * size_of::<u32>()), &[token])?;
    }
    Ok(())
}
