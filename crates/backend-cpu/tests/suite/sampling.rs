//! Draws on the team against the definition of a draw: the same token and the same bits, whatever the filters.

use crate::support::stepper::{Part, Stepper};
use crate::support::variants;
use crate::support::weights::{Generated, numbers};
use gannet_backend_cpu::ActivationFormat;
use gannet_ops::sampling::{
    Adaptive, Dry, DynamicTemperature, History, Mirostat, SampleRow, Sampling, Xtc, draw, logprobs,
};
use gannet_ops::*;
use std::sync::Arc;

/// Three partitions of the vocabulary and a part of a group.
const VOCABULARY: usize = 3 * 4096 + 37;
const ROWS: usize = 3;

/// Scores that are given as embeddings.
fn program() -> Program {
    let layout =
        StateLayout { sampler: Some(SamplerLayout { vocabulary: VOCABULARY }), ..StateLayout::default() };
    let mut b = ProgramBuilder::new("draws", Arc::new(layout));
    let x = b.embeddings(VOCABULARY);
    let logits = b.select_outputs(x);
    let tokens = b.sample(logits);
    b.output(OutputKind::Logits, logits);
    b.output(OutputKind::Tokens, tokens);
    b.finish()
}

fn samplings() -> Vec<Sampling> {
    let warm = |change: fn(&mut Sampling)| {
        let mut sampling = Sampling { temperature: 0.9, ..Sampling::greedy() };
        change(&mut sampling);
        sampling
    };
    let seen =
        |s: &mut Sampling| (s.repetition_penalty, s.presence_penalty, s.frequency_penalty) = (1.1, 0.2, 0.1);
    let mut usual = warm(|s| (s.top_k, s.top_p, s.min_p) = (40, 0.95, 0.05));
    seen(&mut usual);
    let dry = Dry { multiplier: 0.8, base: 1.75, allowed_length: 1, last_tokens: 0, breakers: Vec::new() };
    vec![
        Sampling::greedy(),
        warm(|_| ()),
        warm(|s| s.top_k = 1000),
        warm(|s| s.top_p = 0.9),
        warm(|s| s.min_p = 0.01),
        warm(|s| s.typical_p = 0.8),
        warm(|s| s.top_n_sigma = 1.0),
        warm(|s| s.xtc = Some(Xtc { probability: 0.5, threshold: 0.001 })),
        warm(|s| s.dynamic_temperature = Some(DynamicTemperature { range: 0.5, exponent: 1.0 })),
        warm(|s| s.mirostat = Some(Mirostat { target: 5.0, rate: 0.1 })),
        warm(|s| (s.min_p, s.adaptive) = (0.02, Some(Adaptive { target: 0.4, decay: 0.9 }))),
        warm(|s| s.only = vec![TokenId(5), TokenId(9000), TokenId(12_300)]),
        warm(|s| (s.banned, s.logit_bias) = (vec![TokenId(7)], vec![(TokenId(12_320), 12.0)])),
        Sampling { dry: Some(dry), ..usual.clone() },
        usual,
    ]
}

#[test]
fn every_level_and_team_draws_the_references_token() {
    let logits: Vec<f32> = numbers("scores", ROWS * VOCABULARY).map(|x| x * 6.0).collect();
    let mask: Arc<[u32]> = (0..VOCABULARY.div_ceil(32) as u32).map(|n| n.wrapping_mul(0x9e37_79b9)).collect();
    let past: Vec<TokenId> = (0..200).map(|n| TokenId(n * 61 % VOCABULARY as u32)).collect();
    for (name, backend) in variants(ActivationFormat::Float32) {
        let mut stepper = Stepper::new(&backend, &[program()], &|uses| Generated::of(uses));
        for (case, sampling) in samplings().into_iter().enumerate() {
            for allowed in [None, Some(mask.clone())] {
                let mut part = Part::new(0, 0, &[]);
                part.tokens = (0..ROWS as u32).map(TokenSource::Embedding).collect();
                let mut batch = stepper.batch(&[part]);
                batch.embeddings = logits.clone();
                let want = Want { token: true, logprobs: Some(5), ..Want::default() };
                batch.outputs.iter_mut().for_each(|output| output.want = want);
                let row = |index| SampleRow {
                    sampling: Arc::new(sampling.clone()),
                    seed: 3,
                    choice: 1,
                    index,
                    allowed: allowed.clone(),
                    banned: Some(Arc::from([TokenId(11)])),
                };
                let rows: Vec<SampleRow> = (0..ROWS as u32).map(row).collect();
                let mut history = History::new(&past, &past[..50]);
                let (plan, state) = (&mut stepper.plans[0], stepper.state.as_mut());
                state.start_history(SamplerSlot(0), history.clone()).expect("the slot exists");
                let step = plan.submit(&batch, state).expect("the step runs");
                plan.sample(step, &SampleRows { rows: rows.clone() }, state).expect("the step samples");
                let found = plan.wait(step).expect("the step ends").outputs;
                for (number, (found, row)) in found.iter().zip(&rows).enumerate() {
                    let scores = &logits[number * VOCABULARY..][..VOCABULARY];
                    let expected = draw(scores, row, &history);
                    history.stands(expected);
                    let place = format!("{name}, case {case}, row {number}");
                    assert_eq!((found.token, found.running), (expected.token, expected.running), "{place}");
                    assert_eq!(found.logprobs, Some(logprobs(scores, expected.token, 5)), "{place}");
                }
            }
        }
    }
}
