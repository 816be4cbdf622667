//! Tokens that a plan draws are those that `ops::sampling` draws of the scores which the same step answers, one by one: with
//! histories, penalties, masks and log-probabilities. On the simulated device, or on a card where `GANNET_TEST_DEVICE` is
//! `card`.

use gannet_ops::sampling::{History, SampleRow, Sampling, draw, logprobs};
use gannet_ops::*;
use gannet_tensor::Format;
use gannet_testing::device::{Precision, device};
use std::borrow::Cow;
use std::sync::Arc;

const VOCABULARY: usize = 5_000;
const WIDTH: usize = 16;

/// The table that ids are looked up in and that scores are products with.
struct Table;

impl WeightSource for Table {
    fn weight(&self, _name: &str) -> Result<WeightTensor<'_>, WeightError> {
        let number = |place: usize| ((place * 7919 % 2_003) as f32 - 1_001.0) / 700.0;
        let bytes: Vec<u8> = (0..VOCABULARY * WIDTH).flat_map(|place| number(place).to_le_bytes()).collect();
        Ok(WeightTensor { format: Format::F32, shape: vec![VOCABULARY, WIDTH], bytes: Cow::Owned(bytes) })
    }
}

fn program() -> Program {
    let layout = StateLayout {
        groups: Vec::new(),
        entries: Vec::new(),
        sampler: Some(SamplerLayout { vocabulary: VOCABULARY }),
    };
    let mut b = ProgramBuilder::new("target", Arc::new(layout));
    let ids = b.ids();
    let table = b.weight("table", &[VOCABULARY, WIDTH], WeightRole::TiedEmbedding);
    let x = b.embed(table, &[ids]);
    let x = b.select_outputs(x);
    let logits = b.linear(x, table, None);
    b.output(OutputKind::Logits, logits);
    let tokens = b.sample(logits);
    b.output(OutputKind::Tokens, tokens);
    b.finish()
}

/// One row a sequence, each with a sampler.
fn batch(ids: &[u32], index: u32) -> Batch {
    let rows = ids.iter().enumerate().map(|(number, id)| Row {
        sequence: number as u32,
        token: TokenSource::Known(TokenId(*id)),
        index,
        position: [index; 3],
        kind: RowKind::Decode,
    });
    let sequence = |number: u32| SequenceRows {
        rows: number..number + 1,
        length: Length::Exact(index),
        tables: Vec::new(),
        recurrent: None,
        sampler: Some(SamplerSlot(number)),
        adapter: None,
    };
    let want = |row: u32| Want {
        token: true,
        logits: true,
        logprobs: (row % 3 == 1).then_some(4),
        ..Want::default()
    };
    let count = ids.len() as u32;
    Batch {
        rows: rows.collect(),
        sequences: (0..count).map(sequence).collect(),
        outputs: (0..count).map(|row| Output { row, want: want(row) }).collect(),
        ..Batch::default()
    }
}

/// Rows differ in what they ask for; every fifth is greedy.
fn parameters(row: u32, index: u32) -> SampleRow {
    let sampling = Sampling {
        temperature: if row % 5 == 4 { 0.0 } else { 0.9 },
        top_k: [0, 40][row as usize % 2],
        top_p: [1.0, 0.95, 0.8][row as usize % 3],
        min_p: [0.0, 0.05][row as usize / 2 % 2],
        repetition_penalty: 1.2,
        frequency_penalty: 0.2,
        ..Sampling::greedy()
    };
    let mask = (0..VOCABULARY as u32 / 32 + 1).map(|word| (word + row).wrapping_mul(0x9e37_79b9));
    let allowed = (row % 4 == 3).then(|| mask.collect::<Arc<[u32]>>());
    SampleRow {
        sampling: Arc::new(sampling),
        seed: u64::from(row / 2),
        choice: 0,
        index,
        allowed,
        banned: None,
    }
}

#[test]
fn tokens_are_those_of_draws_one_by_one() {
    let (backend, program) = (device(Precision::Stored), program());
    let weights = backend.upload(&Table, &program.weights).expect("they can be uploaded");
    let limits = BatchLimits { rows: 40, sequences: 40, outputs: 40, context: 64 };
    let mut plan = backend.compile(&program, &weights, &limits).expect("it can be compiled");
    for count in [1, 3, 20] {
        let budget = Budget { sampler_slots: count, ..Budget::default() };
        let mut state = backend.allocate(&program.state, &budget).expect("it has histories alone");
        let mut histories = vec![History::default(); count as usize];
        let mut ids: Vec<u32> = (0..count).map(|row| row * 37 + 1).collect();
        for index in 0..8 {
            let step = plan.submit(&batch(&ids, index), state.as_mut()).expect("it runs");
            let rows = SampleRows { rows: (0..count).map(|row| parameters(row, index)).collect() };
            plan.sample(step, &rows, state.as_mut()).expect("it draws");
            let output = plan.wait(step).expect("it ends");
            for (row, found) in output.outputs.iter().enumerate() {
                let scores = found.logits.as_deref().expect("they were asked for");
                let expected = draw(scores, &rows.rows[row], &histories[row]);
                assert_eq!(found.token, expected.token, "row {row} of {count}, token {index}");
                let top = (row % 3 == 1).then(|| logprobs(scores, expected.token, 4));
                assert_eq!(found.logprobs, top, "row {row} of {count}, token {index}");
                histories[row].stands(expected);
                ids[row] = expected.token.expect("one is allowed").0;
            }
        }
    }
}

/// Parameters of all kinds, a request each: some that the device draws by, some that the host has to, one of the likeliest alone.
fn request(row: u32, index: u32) -> SampleRow {
    let mut how = parameters(row, index);
    let mut sampling = (*how.sampling).clone();
    match row % 6 {
        0 => sampling = Sampling::greedy(),
        1 => (sampling.repetition_penalty, sampling.frequency_penalty) = (1.0, 0.0),
        2 => sampling.logit_bias = vec![(TokenId(row + 40), 2.5), (TokenId(7), -3.0)],
        3 => sampling.banned = vec![TokenId(row * 9), TokenId(index), TokenId(4_999)],
        4 => sampling.only = (0..900).map(|id| TokenId(id * 5)).collect(),
        _ => {}
    }
    how.sampling = Arc::new(sampling);
    how
}

/// Tokens of steps by requests, each step submitted when `depth` steps before are no longer in flight; with a request that the
/// host draws for where `has_host_rows`.
fn answers(depth: usize, count: u32, has_host_rows: bool) -> Vec<Vec<OutputResult>> {
    const STEPS: u32 = 12;
    let (backend, program) = (device(Precision::Stored), program());
    let weights = backend.upload(&Table, &program.weights).expect("they can be uploaded");
    let limits = BatchLimits { rows: 40, sequences: 40, outputs: 40, context: 64 };
    let mut plan = backend.compile(&program, &weights, &limits).expect("it can be compiled");
    let budget = Budget { sampler_slots: count, ..Budget::default() };
    let mut state = backend.allocate(&program.state, &budget).expect("it has histories alone");
    for slot in 0..count {
        let prompt: Vec<TokenId> = (0..slot * 3).map(|token| TokenId(token * 11 % 5_000)).collect();
        state.start_history(SamplerSlot(slot), History::new(&prompt, &[])).expect("there is a slot");
    }
    let (mut in_flight, mut found) = (std::collections::VecDeque::new(), Vec::new());
    let mut tokens: Vec<TokenSource> =
        (0..count).map(|row| TokenSource::Known(TokenId(row * 37 + 1))).collect();
    for index in 0..STEPS {
        let mut batch = batch(&vec![0; count as usize], index);
        batch.rows.iter_mut().zip(&tokens).for_each(|(row, token)| row.token = *token);
        batch.outputs.iter_mut().for_each(|output| output.want.logits = false);
        let step = plan.submit(&batch, state.as_mut()).expect("it runs");
        let mut rows = SampleRows { rows: (0..count).map(|row| request(row, index)).collect() };
        if has_host_rows {
            let sampling = Sampling { typical_p: 0.7, ..(*parameters(0, index).sampling).clone() };
            rows.rows[count as usize / 2].sampling = Arc::new(sampling);
        }
        plan.sample(step, &rows, state.as_mut()).expect("it draws");
        tokens = (0..count).map(|output| TokenSource::Sampled { step, output }).collect();
        in_flight.push_back(step);
        if in_flight.len() >= depth {
            let oldest = in_flight.pop_front().expect("there is one");
            found.push(plan.wait(oldest).expect("it ends").outputs);
        }
    }
    found.extend(in_flight.into_iter().map(|step| plan.wait(step).expect("it ends").outputs));
    found
}

#[test]
fn steps_that_are_launched_ahead_draw_the_same_tokens() {
    for (count, has_host_rows) in [(1, false), (12, false), (13, true)] {
        let expected = answers(1, count, has_host_rows);
        assert!(expected.iter().flatten().all(|output| output.token.is_some()));
        for depth in [2, 3] {
            let found = answers(depth, count, has_host_rows);
            assert_eq!(found, expected, "{count} sequences, {depth} steps in flight");
        }
    }
}

#[test]
fn a_row_without_a_token_ends_its_request_and_no_other() {
    let (backend, program) = (device(Precision::Stored), program());
    let weights = backend.upload(&Table, &program.weights).expect("they can be uploaded");
    let limits = BatchLimits { rows: 4, sequences: 4, outputs: 4, context: 64 };
    let mut plan = backend.compile(&program, &weights, &limits).expect("it can be compiled");
    let budget = Budget { sampler_slots: 2, ..Budget::default() };
    let mut state = backend.allocate(&program.state, &budget).expect("it has histories alone");
    let mut rows = SampleRows { rows: (0..2).map(|row| request(row, 0)).collect() };
    rows.rows[0].allowed = Some(Arc::from([0u32]));
    let first = plan.submit(&batch(&[5, 9], 0), state.as_mut()).expect("it runs");
    plan.sample(first, &rows, state.as_mut()).expect("it draws");
    let mut next = batch(&[0, 0], 1);
    for (row, output) in next.rows.iter_mut().zip(0..) {
        row.token = TokenSource::Sampled { step: first, output };
    }
    let second = plan.submit(&next, state.as_mut()).expect("it runs");
    let rows = SampleRows { rows: (0..2).map(|row| request(row, 1)).collect() };
    plan.sample(second, &rows, state.as_mut()).expect("it draws");
    let outputs = plan.wait(first).expect("it ends").outputs;
    assert_eq!((outputs[0].token, outputs[0].not_finite), (None, false));
    assert!(outputs[1].token.is_some());
    assert!(plan.wait(second).expect("it ends").outputs[1].token.is_some());
}
