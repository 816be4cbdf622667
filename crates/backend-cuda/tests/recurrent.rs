//! Recurrent state on the device: a row's bits depend neither on its companions, nor on how its sequence is cut, nor on the
//! way through snapshots and rows that fell. On the simulated device, or on a card where `GANNET_TEST_DEVICE` is `card`.

mod made;

use gannet_backend_cuda::CudaOptions;
use gannet_ops::*;
use gannet_tensor::Format;
use gannet_testing::device::{Precision, device, device_of};
use gannet_testing::steps::{self, Steps, add_rows};
use std::borrow::Cow;
use std::sync::Arc;

const WIDTH: usize = 128;
const VOCABULARY: usize = 97;
const LAYERS: u32 = 2;
const SLOTS: u32 = 4;
const SNAPSHOTS: u32 = 2;
const CANDIDATES: u32 = 2;
const CANDIDATE_ROWS: u32 = 5;
const CONTEXT: usize = 256;

/// The sizes of a gated delta net.
#[derive(Clone, Copy, Debug)]
struct Case {
    key_heads: usize,
    value_heads: usize,
    key_dim: usize,
    value_dim: usize,
    kernel: usize,
    head_map: HeadMap,
    weights: Format,
}

const CASES: [Case; 3] = [
    Case {
        key_heads: 1,
        value_heads: 2,
        key_dim: 128,
        value_dim: 128,
        kernel: 4,
        head_map: HeadMap::Grouped,
        weights: Format::Bf16,
    },
    Case {
        key_heads: 2,
        value_heads: 6,
        key_dim: 24,
        value_dim: 20,
        kernel: 3,
        head_map: HeadMap::Tiled,
        weights: Format::F32,
    },
    Case {
        key_heads: 1,
        value_heads: 1,
        key_dim: 5,
        value_dim: 3,
        kernel: 2,
        head_map: HeadMap::Grouped,
        weights: Format::Bf16,
    },
];

impl Case {
    fn channels(&self) -> usize {
        2 * self.key_heads * self.key_dim + self.values()
    }

    fn values(&self) -> usize {
        self.value_heads * self.value_dim
    }
}

fn program(case: Case) -> Program {
    let entry = StateEntry::Recurrent(RecurrentLayout {
        conv: ConvLayout { channels: case.channels(), kernel: case.kernel },
        state: DeltaLayout {
            value_heads: case.value_heads,
            key_dim: case.key_dim,
            value_dim: case.value_dim,
        },
        rollback: Rollback::Candidates,
    });
    let entries = (0..LAYERS).map(|_| entry.clone()).collect();
    let layout = StateLayout { groups: Vec::new(), entries, sampler: None };
    let mut b = ProgramBuilder::new("target", Arc::new(layout));
    let ids = b.ids();
    let table = b.weight("embed", &[VOCABULARY, WIDTH], WeightRole::TiedEmbedding);
    let mut x = b.embed(table, &[ids]);
    for layer in 0..LAYERS {
        x = self::layer(&mut b, case, layer, x);
    }
    let norm = b.weight("norm", &[WIDTH], WeightRole::Vector);
    let x = b.rms_norm(x, norm, 1e-6);
    let x = b.select_outputs(x);
    let logits = b.linear(x, table, None);
    b.output(OutputKind::Logits, logits);
    b.finish()
}

fn layer(b: &mut ProgramBuilder, case: Case, layer: u32, x: ValueId) -> ValueId {
    let Case { key_heads, value_heads, key_dim, value_dim, kernel, head_map, .. } = case;
    let state = StateId(layer);
    let vector = |b: &mut ProgramBuilder, name: &str, width: usize| {
        b.weight(&format!("{layer}.{name}"), &[width], WeightRole::Vector)
    };
    let project = |b: &mut ProgramBuilder, name: &str, x: ValueId, shape: [usize; 2]| {
        let weight = b.weight(&format!("{layer}.{name}"), &shape, WeightRole::Matrix);
        b.linear(x, weight, None)
    };
    let norm = vector(b, "norm", WIDTH);
    let normed = b.rms_norm(x, norm, 1e-6);
    let mixed = project(b, "qkv", normed, [case.channels(), WIDTH]);
    let gate = project(b, "z", normed, [case.values(), WIDTH]);
    let strength = project(b, "b", normed, [value_heads, WIDTH]);
    let decay = project(b, "a", normed, [value_heads, WIDTH]);
    let conv = b.weight(&format!("{layer}.conv"), &[case.channels(), kernel], WeightRole::Convolution);
    let mixed = b.causal_conv(mixed, conv, state);
    let keys = key_heads * key_dim;
    let query = b.slice(mixed, 1, 0, keys);
    let key = b.slice(mixed, 1, keys, keys);
    let value = b.slice(mixed, 1, 2 * keys, case.values());
    let query = b.l2_norm(query, key_heads, 1e-6, (key_dim as f32).sqrt().recip());
    let key = b.l2_norm(key, key_heads, 1e-6, 1.0);
    let (logarithms, bias) = (vector(b, "decay", value_heads), vector(b, "bias", value_heads));
    let decay = b.decay_gate(decay, logarithms, bias);
    let rule = DeltaRule { state, key_heads, head_map };
    let read = b.gated_delta_rule([query, key, value, decay, strength], rule);
    let norm = vector(b, "gated_norm", value_dim);
    let normed = b.gated_norm(read, gate, norm, value_heads, 1e-6);
    let y = project(b, "o", normed, [WIDTH, case.values()]);
    b.add(x, y)
}

/// Weights by name: uniform numbers of a variance that keeps values small; logarithms of a decay are negative.
struct Weights {
    format: Format,
    uses: Vec<WeightUse>,
}

impl WeightSource for Weights {
    fn weight(&self, name: &str) -> Result<WeightTensor<'_>, WeightError> {
        let used = self.uses.iter().find(|used| used.name == name).expect("the program names its weights");
        let sign = if used.name.ends_with("decay") { -1.0 } else { 1.0 };
        let is_kept_exact = matches!(used.role, WeightRole::Vector | WeightRole::Convolution);
        let format = if is_kept_exact { Format::F32 } else { self.format };
        let bytes = made::plain(used, format, sign);
        Ok(WeightTensor { format, shape: used.shape.clone(), bytes: Cow::Owned(bytes) })
    }
}

/// One sequence's rows in a step: where they begin, and whether they may fall.
#[derive(Clone, Copy)]
struct Part<'a> {
    slot: u32,
    length: u32,
    tokens: &'a [u32],
    may_fall: bool,
}

impl<'a> Part<'a> {
    fn new(slot: u32, length: usize, tokens: &'a [u32]) -> Self {
        Self { slot, length: length as u32, tokens, may_fall: false }
    }
}

/// A plan over its state, and the bank of each slot with the state of its tokens so far.
struct Device {
    steps: Steps,
    banks: [u8; SLOTS as usize],
}

impl Device {
    fn new(backend: &dyn Backend, case: Case) -> Self {
        let program = fuse(&program(case), backend.fusions());
        let source = Weights { format: case.weights, uses: program.weights.clone() };
        let budget = Budget {
            recurrent_slots: SLOTS,
            snapshots: SNAPSHOTS,
            candidates: CANDIDATES,
            candidate_rows: CANDIDATE_ROWS,
            ..Budget::default()
        };
        let steps = Steps::new(backend, &program, &source, (&budget, CONTEXT));
        Self { steps, banks: [1; SLOTS as usize] }
    }

    fn bank(&self, slot: u32) -> RecurrentBank {
        RecurrentBank { slot, bank: self.banks[slot as usize] }
    }

    /// Runs a step; its number and the logits of its rows.
    fn step(&mut self, parts: &[Part<'_>]) -> (StepId, Vec<Vec<f32>>) {
        let mut batch = Batch::default();
        for part in parts {
            let recurrent = self.turn(part);
            add_rows(&mut batch, (part.length, part.tokens), Vec::new(), Some(recurrent));
        }
        self.steps.run(&batch)
    }

    fn logits(&mut self, parts: &[Part<'_>]) -> Vec<Vec<f32>> {
        self.step(parts).1
    }

    /// What a part reads and writes; its slot's other bank is the next to be read.
    fn turn(&mut self, part: &Part<'_>) -> RecurrentUse {
        let read = (part.length > 0).then(|| self.bank(part.slot));
        self.banks[part.slot as usize] = 1 - self.banks[part.slot as usize];
        let bank = self.bank(part.slot);
        let write = if part.may_fall { RecurrentWrite::Candidates(bank) } else { RecurrentWrite::Bank(bank) };
        RecurrentUse { read, write }
    }
}

fn tokens(count: usize) -> Vec<u32> {
    steps::tokens(count, VOCABULARY)
}

fn bits(logits: &[Vec<f32>]) -> Vec<u32> {
    logits.iter().flatten().map(|x| x.to_bits()).collect()
}

/// The logits of all rows of a sequence in one step.
fn whole(backend: &dyn Backend, case: Case, tokens: &[u32]) -> Vec<Vec<f32>> {
    let logits = Device::new(backend, case).logits(&[Part::new(0, 0, tokens)]);
    assert!(logits.iter().flatten().all(|x| x.is_finite()), "{case:?}");
    logits
}

#[test]
fn chunks_and_companions_dont_change_a_row() {
    let backend = device(Precision::Stored);
    for case in CASES {
        let cuts = [1, 2, 18, 33, 34, 66, 67, 83];
        let (tokens, companion) = (tokens(cuts[cuts.len() - 1]), tokens(30));
        let whole = whole(&backend, case, &tokens);
        let (mut cut, mut start) = (Device::new(&backend, case), 0);
        for (number, end) in cuts.into_iter().enumerate() {
            let rows = Part::new(2, start, &tokens[start..end]);
            // Every other step has a companion before and behind.
            let (parts, first) = match number % 2 {
                0 => (vec![rows], 0),
                _ => (vec![Part::new(0, 0, &companion), rows, Part::new(3, 0, &companion[..3])], 30),
            };
            let found = cut.logits(&parts);
            let found = bits(&found[first..first + end - start]);
            assert!(found == bits(&whole[start..end]), "{case:?}: rows of the step that ends at {end}");
            start = end;
        }
    }
}

/// Steps of few rows of several sequences, and one that is too long for a graph.
const MIXED: [&[(u32, usize)]; 6] = [
    &[(0, 20)],
    &[(0, 1)],
    &[(1, 5), (0, 2)],
    &[(0, 7), (1, 1), (2, 3)],
    &[(2, 17), (0, 1)],
    &[(1, 1), (0, 1)],
];

#[test]
fn a_graph_gives_the_bits_of_single_launches() {
    for case in CASES {
        let options = [
            CudaOptions::default(),
            CudaOptions { no_graphs: true, ..CudaOptions::default() },
            CudaOptions { serial_launches: true, ..CudaOptions::default() },
        ];
        let mut devices = options.map(|options| Device::new(&device_of(options), case));
        let (tokens, mut lengths) = (tokens(40), [0; 3]);
        for (number, step) in MIXED.into_iter().enumerate() {
            let part = |(slot, count): &(u32, usize)| {
                let length = lengths[*slot as usize];
                Part::new(*slot, length, &tokens[length..length + count])
            };
            let parts: Vec<Part<'_>> = step.iter().map(part).collect();
            let [graph, single, serial] = devices.each_mut().map(|device| bits(&device.logits(&parts)));
            assert!(graph == single, "{case:?}, step {number}: graphs have other bits");
            assert!(graph == serial, "{case:?}, step {number}: serial launches have other bits");
            step.iter().for_each(|(slot, count)| lengths[*slot as usize] += count);
        }
    }
}

#[test]
fn a_sequence_goes_on_from_a_snapshot_in_another_slot() {
    let backend = device(Precision::Stored);
    for case in CASES {
        let tokens = tokens(25);
        let whole = whole(&backend, case, &tokens);
        let mut device = Device::new(&backend, case);
        device.logits(&[Part::new(0, 0, &tokens[..11])]);
        let snapshot = device.steps.state.snapshot(device.bank(0)).expect("there is room");
        device.logits(&[Part::new(0, 11, &tokens[..9])]);
        let home = device.bank(3);
        device.steps.state.restore(snapshot, home).expect("it was taken");
        device.steps.state.forget(snapshot).expect("it was taken");
        let found = device.logits(&[Part::new(3, 11, &tokens[11..])]);
        assert!(bits(&found) == bits(&whole[11..]), "{case:?}");
    }
}

#[test]
fn rows_that_fall_leave_nothing_behind() {
    let backend = device(Precision::Stored);
    for case in CASES {
        let (tokens, drafts) = (tokens(25), [1, 2, 3, 4]);
        let whole = whole(&backend, case, &tokens);
        for start in [0, 10] {
            for standing in 0..=drafts.len() {
                let mut device = Device::new(&backend, case);
                if start > 0 {
                    device.logits(&[Part::new(0, 0, &tokens[..start])]);
                }
                let right = &tokens[start..start + standing];
                let drafted = [right, &drafts[standing..]].concat();
                let part = Part { may_fall: true, ..Part::new(0, start, &drafted) };
                let beside = Part::new(1, 0, &tokens[..3]);
                let (step, found) = device.step(&[beside, part]);
                assert!(bits(&found[3..3 + standing]) == bits(&whole[start..start + standing]), "{case:?}");
                device.steps.state.accept(step, &[3, standing as u32]).expect("the step ran");
                let rest = start + standing;
                // With no token standing at the start, the bank holds the zeros of one.
                let length = rest.max(1);
                let part = Part { length: length as u32, ..Part::new(0, rest, &tokens[rest..]) };
                let found = device.logits(&[part]);
                assert!(bits(&found) == bits(&whole[rest..]), "{case:?}: {standing} stand from {start}");
            }
        }
    }
}

#[test]
fn what_is_not_there_is_said_with_its_numbers() {
    let backend = device(Precision::Stored);
    let case = CASES[2];
    let mut device = Device::new(&backend, case);
    let tokens = tokens(8);
    let bank = |slot, bank| RecurrentBank { slot, bank };
    let submit = |device: &mut Device, count: usize, recurrent: RecurrentUse| {
        let mut batch = Batch::default();
        add_rows(&mut batch, (1, &tokens[..count]), Vec::new(), Some(recurrent));
        device.steps.plan.submit(&batch, device.steps.state.as_mut())
    };
    let refused = |device: &mut Device, count: usize, read, write| {
        submit(device, count, RecurrentUse { read: Some(read), write })
            .expect_err("it is refused")
            .to_string()
    };
    let into = RecurrentWrite::Bank;
    let found = refused(&mut device, 1, bank(0, 0), into(bank(0, 0)));
    assert!(found.contains("reads one of a slot's banks and writes the other"), "{found}");
    let found = refused(&mut device, 1, bank(4, 0), into(bank(0, 0)));
    assert!(found.contains("there are 4 slots of two banks"), "{found}");
    let found = refused(&mut device, 1, bank(0, 0), into(bank(0, 2)));
    assert!(found.contains("bank 2 was named"), "{found}");
    let waits = RecurrentWrite::Candidates(bank(0, 1));
    let found = refused(&mut device, 6, bank(0, 0), waits);
    assert!(found.contains("after 5 rows"), "{found}");
    device.logits(&[Part::new(0, 0, &tokens)]);
    for _ in 0..CANDIDATES {
        let recurrent = RecurrentUse { read: Some(device.bank(0)), write: waits };
        let mut batch = Batch::default();
        add_rows(&mut batch, (1, &tokens[..2]), Vec::new(), Some(recurrent));
        let step = device.steps.plan.submit(&batch, device.steps.state.as_mut()).expect("there is room");
        device.steps.plan.wait(step).expect("it ends");
    }
    let found = refused(&mut device, 2, bank(0, 0), waits);
    assert!(found.contains("2 sequences of steps before wait to be confirmed"), "{found}");
    let home = device.bank(0);
    let taken: Vec<SnapshotId> =
        (0..SNAPSHOTS).map(|_| device.steps.state.snapshot(home).expect("there is room")).collect();
    let found = device.steps.state.snapshot(home).expect_err("it is refused").to_string();
    assert!(found.contains("beyond the budget of 2"), "{found}");
    device.steps.state.forget(taken[0]).expect("it was taken");
    assert!(device.steps.state.restore(taken[0], home).is_err(), "it was forgotten");
    device.steps.state.snapshot(home).expect("there is room again");
}

#[test]
fn more_slots_than_memory_are_refused_with_the_numbers() {
    let backend = device(Precision::Stored);
    let program = program(CASES[0]);
    let budget = Budget { recurrent_slots: 1 << 20, snapshots: 3, ..Budget::default() };
    let refused = backend.allocate(&program.state, &budget).err().expect("it is refused").to_string();
    assert!(refused.contains("1048576 recurrent slots of two banks, 3 snapshots"), "{refused}");
}
