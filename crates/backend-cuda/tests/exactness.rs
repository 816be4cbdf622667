//! A row's bits don't depend on its companions, on how its sequence is cut, nor on where its pages lie; over pages and sizes
//! for which the fast kernels are made. On the simulated device, or on a card where `GANNET_TEST_DEVICE` is `card`.

mod made;

use gannet_backend_cuda::{CudaBackend, CudaOptions};
use gannet_ops::reference::ReferenceBackend;
use gannet_ops::*;
use gannet_tensor::Format;
use gannet_tensor::decode::codes::{Coding, bf16_bits};
use gannet_tensor::decode::random_blocks;
use gannet_testing::device::{Precision, device, device_of, is_card};
use gannet_testing::steps::{self, Steps, add_rows};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

const VOCABULARY: usize = 331;
const HEADS: usize = 6;
const KV_HEADS: usize = 2;
const PAGES: u32 = 48;
const CONTEXT: usize = 1024;

/// What a model of two layers is made of.
#[derive(Clone, Copy, Debug)]
struct Case {
    dim: usize,
    pages: KvFormat,
    weights: Format,
    window: Option<u32>,
    soft_cap: Option<f32>,
    mixture: Option<Mixture>,
    /// Matrices have more outputs than a card has warps, and columns of several pieces.
    is_wide: bool,
}

/// Experts of a layer, and of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mixture {
    experts: usize,
    top_k: u32,
}

/// So few that steps of the tests give each none, few and many rows.
const MIXTURE: Mixture = Mixture { experts: 12, top_k: 3 };
/// A mixture that computes what a dense model of the same weights does.
const ALONE: Mixture = Mixture { experts: 1, top_k: 1 };

impl Case {
    /// Columns of most matrices: no multiple of a tile, or of blocks.
    fn width(&self) -> usize {
        match self.weights.block_elements() {
            256 if self.is_wide => 768,
            256 => 256,
            _ => 192,
        }
    }

    /// Keys of pages that fill have pages of their own.
    fn has_open_pages(&self) -> bool {
        self.pages == KvFormat::Int8
    }

    fn inner(&self) -> usize {
        match (self.weights.block_elements(), self.mixture) {
            (256, None) if self.is_wide => 4352,
            (256, Some(MIXTURE)) => 256,
            (32, Some(MIXTURE)) => 160,
            (_, Some(MIXTURE)) => 200,
            (256, _) => 512,
            _ => 320,
        }
    }

    /// The format of a matrix: of values another one than of queries and keys, where both are codes; routers beside codes are numbers, as in files.
    fn format(&self, used: &WeightUse) -> Format {
        let is_wide = used.name.ends_with(".v") || used.name.ends_with(".down");
        let is_router = used.name.ends_with(".router") && Coding::of(self.weights).is_some();
        if used.role == WeightRole::Vector || is_router {
            Format::F32
        } else if self.weights == Format::Q4K && is_wide {
            Format::Q6K
        } else {
            self.weights
        }
    }
}

const PLAIN: Case = Case {
    dim: 64,
    pages: KvFormat::F16,
    weights: Format::Bf16,
    window: None,
    soft_cap: None,
    mixture: None,
    is_wide: false,
};

const CASES: [Case; 12] = [
    PLAIN,
    Case { mixture: Some(MIXTURE), ..PLAIN },
    Case { dim: 128, pages: KvFormat::Bf16, window: Some(300), ..PLAIN },
    Case { dim: 256, weights: Format::F16, soft_cap: Some(20.0), ..PLAIN },
    Case { dim: 40, window: Some(70), ..PLAIN },
    Case { pages: KvFormat::F32, weights: Format::F32, ..PLAIN },
    Case { weights: Format::F16, mixture: Some(MIXTURE), ..PLAIN },
    Case { pages: KvFormat::F32, weights: Format::F32, mixture: Some(MIXTURE), ..PLAIN },
    Case { dim: 128, pages: KvFormat::Int8, ..PLAIN },
    Case { pages: KvFormat::Int8, window: Some(300), soft_cap: Some(20.0), ..PLAIN },
    Case { dim: 256, pages: KvFormat::Int8, weights: Format::F16, window: Some(40), ..PLAIN },
    Case { dim: 40, pages: KvFormat::Int8, window: Some(70), ..PLAIN },
];

fn program(case: Case) -> Program {
    let lifetime = case.window.map_or(PageLifetime::Full, PageLifetime::Window);
    let paged = StateEntry::Paged(PagedLayout {
        kv_heads: KV_HEADS,
        key_dim: case.dim,
        value_dim: case.dim,
        key_format: case.pages,
        value_format: case.pages,
        group: GroupId(0),
        open: case.has_open_pages().then_some(GroupId(1)),
    });
    let mut groups = vec![PageGroup { name: "all".to_owned(), lifetime }];
    let open = PageGroup { name: "open keys".to_owned(), lifetime: PageLifetime::Open };
    groups.extend(case.has_open_pages().then_some(open));
    let layout = StateLayout { groups, entries: vec![paged.clone(), paged], sampler: None };
    let mut b = ProgramBuilder::new("target", Arc::new(layout));
    let ids = b.ids();
    let table = b.weight("embed", &[VOCABULARY, case.width()], WeightRole::TiedEmbedding);
    let mut x = b.embed(table, &[ids]);
    for layer in 0..2 {
        x = self::layer(&mut b, case, layer, x);
    }
    let weight = b.weight("norm", &[case.width()], WeightRole::Vector);
    let x = b.rms_norm(x, weight, 1e-6);
    let x = b.select_outputs(x);
    let logits = b.linear(x, table, None);
    b.output(OutputKind::Logits, logits);
    b.finish()
}

fn layer(b: &mut ProgramBuilder, case: Case, layer: u32, x: ValueId) -> ValueId {
    let state = StateId(layer);
    let matrix = |b: &mut ProgramBuilder, name: &str, shape: [usize; 2]| {
        b.weight(&format!("{layer}.{name}"), &shape, WeightRole::Matrix)
    };
    let norm = b.weight(&format!("{layer}.norm"), &[case.width()], WeightRole::Vector);
    let normed = b.rms_norm(x, norm, 1e-6);
    let [q, k, v] = [("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)].map(|(name, heads)| {
        let weight = matrix(b, name, [heads * case.dim, case.width()]);
        b.linear(normed, weight, None)
    });
    let frequencies = (0..case.dim / 2).map(|pair| 0.5f32.powi(pair as i32 % 12));
    let table = Arc::new(RopeTable {
        inverse_frequencies: frequencies.collect(),
        axes: vec![0; case.dim / 2],
        attention_scale: 1.0,
    });
    let rope = |heads| Rope { heads, head_dim: case.dim, table: Arc::clone(&table) };
    let (q, k) = (b.rope(q, rope(HEADS)), b.rope(k, rope(KV_HEADS)));
    b.write_kv(k, v, state);
    let attention = Attention {
        state,
        heads: HEADS,
        scale: (case.dim as f32).sqrt().recip(),
        mask: case.window.map_or(Mask::Causal, Mask::Window),
        sinks: None,
        soft_cap: case.soft_cap,
    };
    let y = b.attention(&[q], attention);
    let weight = matrix(b, "o", [case.width(), HEADS * case.dim]);
    let y = b.linear(y, weight, None);
    let x = b.add(x, y);
    let norm = b.weight(&format!("{layer}.mlp_norm"), &[case.width()], WeightRole::Vector);
    let normed = b.rms_norm(x, norm, 1e-6);
    if let Some(mixture) = case.mixture {
        let y = experts(b, (case, mixture), layer, normed);
        return b.add(x, y);
    }
    let [gate, up] = ["gate", "up"].map(|name| {
        let weight = matrix(b, name, [case.inner(), case.width()]);
        b.linear(normed, weight, None)
    });
    let y = b.silu_gate(gate, up);
    let weight = b.weight(&format!("{layer}.down"), &[case.width(), case.inner()], WeightRole::Matrix);
    let y = b.linear(y, weight, None);
    b.add(x, y)
}

fn experts(b: &mut ProgramBuilder, (case, mixture): (Case, Mixture), layer: u32, x: ValueId) -> ValueId {
    let Mixture { experts, top_k } = mixture;
    let router = b.weight(&format!("{layer}.router"), &[experts, case.width()], WeightRole::Matrix);
    let logits = b.linear(x, router, None);
    let (ids, weights) = b.route_experts(logits, Router { experts, top_k, renormalise: true });
    let product = |b: &mut ProgramBuilder, name: &str, x: ValueId, [rows, columns]: [usize; 2]| {
        let weight = b.weight(&format!("{layer}.{name}"), &[experts, rows, columns], WeightRole::Experts);
        b.expert_linear(x, ids, ExpertLinear { weight, bias: None, top_k })
    };
    let [gate, up] = ["gate", "up"].map(|name| product(b, name, x, [case.inner(), case.width()]));
    let y = b.silu_gate(gate, up);
    let y = product(b, "down", y, [case.width(), case.inner()]);
    b.combine_experts(&[y, weights])
}

/// Weights by name: random numbers of a variance that keeps values small.
struct Weights {
    case: Case,
    uses: Vec<WeightUse>,
    /// Codes become what is multiplied with.
    are_rounded: bool,
}

impl WeightSource for Weights {
    fn weight(&self, name: &str) -> Result<WeightTensor<'_>, WeightError> {
        let used = self.uses.iter().find(|used| used.name == name).expect("the program names its weights");
        let count: usize = used.shape.iter().product();
        let format = self.case.format(used);
        let blocks =
            random_blocks(format, count / format.block_elements(), made::deviation(used), made::seed(name));
        let (format, bytes): (Format, Vec<u8>) = match blocks {
            Some(blocks) if self.are_rounded => {
                let mut numbers = vec![0.0; count];
                format.decode_as_bf16(&blocks, &mut numbers);
                let bits = numbers.into_iter().flat_map(|x| bf16_bits(x).to_le_bytes());
                (Format::Bf16, bits.collect())
            }
            Some(blocks) => (format, blocks),
            None => (format, made::plain(used, format, 1.0)),
        };
        Ok(WeightTensor { format, shape: used.shape.clone(), bytes: Cow::Owned(bytes) })
    }
}

/// One sequence's rows in a step, and the first of its pages.
struct Part<'a> {
    length: u32,
    tokens: &'a [u32],
    first_page: u32,
}

/// The pages with keys in half precision that sequences have: as the engine gives them, pages that a step begins share one.
#[derive(Default)]
struct OpenPages {
    /// For each sequence, by its first page, the one of the page that fills.
    of: HashMap<u32, PageId>,
    taken: u32,
}

impl OpenPages {
    /// The table of a part.
    fn table(&mut self, part: &Part<'_>, batch: &mut Batch) -> PageTable {
        let tokens = PAGE_TOKENS as u32;
        let end = part.length + part.tokens.len() as u32;
        let (released, start) = (part.length / tokens, batch.pages.len() as u32);
        let listed = end.div_ceil(tokens) - released;
        let begun = self.of.get(&part.first_page).copied().filter(|_| !part.length.is_multiple_of(tokens));
        if listed > u32::from(begun.is_some()) {
            self.taken = (self.taken + 1) % PAGES;
            self.of.insert(part.first_page, PageId(self.taken));
        }
        let last = self.of[&part.first_page];
        batch.pages.extend((0..listed).map(|place| begun.filter(|_| place == 0).unwrap_or(last)));
        PageTable { released, pages: start..batch.pages.len() as u32 }
    }
}

fn batch(parts: &[Part<'_>], window: Option<u32>, mut open: Option<&mut OpenPages>) -> Batch {
    let mut batch = Batch::default();
    for part in parts {
        let end = part.length + part.tokens.len() as u32;
        let released =
            window.map_or(0, |window| (part.length + 1).saturating_sub(window) / PAGE_TOKENS as u32);
        let start = batch.pages.len() as u32;
        let listed = released..end.div_ceil(PAGE_TOKENS as u32);
        // Scattered: every fifth page, so that neighbours in the sequence are none in memory.
        batch.pages.extend(listed.map(|page| PageId((part.first_page + page * 5) % PAGES)));
        let table = PageTable { released, pages: start..batch.pages.len() as u32 };
        let mut tables = vec![table];
        tables.extend(open.as_mut().map(|open| open.table(part, &mut batch)));
        add_rows(&mut batch, (part.length, part.tokens), tables, None);
    }
    batch
}

/// A plan over its state.
struct Device {
    steps: Steps,
    window: Option<u32>,
    open: Option<OpenPages>,
}

impl Device {
    fn new(backend: &dyn Backend, case: Case) -> Self {
        Self::with(backend, case, false)
    }

    fn with(backend: &dyn Backend, case: Case, are_rounded: bool) -> Self {
        let program = fuse(&program(case), backend.fusions());
        let source = Weights { case, uses: program.weights.clone(), are_rounded };
        let budget = Budget { pages: vec![PAGES; program.state.groups.len()], ..Budget::default() };
        let steps = Steps::new(backend, &program, &source, (&budget, CONTEXT));
        let open = case.has_open_pages().then(OpenPages::default);
        Self { steps, window: case.window, open }
    }

    fn logits(&mut self, parts: &[Part<'_>]) -> Vec<Vec<f32>> {
        self.steps.run(&batch(parts, self.window, self.open.as_mut())).1
    }
}

fn tokens(count: usize) -> Vec<u32> {
    steps::tokens(count, VOCABULARY)
}

fn check(case: Case, cuts: &[usize]) {
    let backend = device(Precision::Stored);
    let tokens = tokens(*cuts.last().expect("there is an end"));
    let whole = Device::new(&backend, case).logits(&[Part { length: 0, tokens: &tokens, first_page: 0 }]);
    assert!(whole.iter().flatten().all(|x| x.is_finite()), "{case:?}");
    let mut cut = Device::new(&backend, case);
    let (companion, mut start) = (self::tokens(30), 0);
    for (number, end) in cuts.iter().enumerate() {
        let rows = Part { length: start as u32, tokens: &tokens[start..*end], first_page: 0 };
        // Every other step has a companion before and behind.
        let beside = |count: usize, first_page| Part { length: 0, tokens: &companion[..count], first_page };
        let (parts, first) = match number % 2 {
            0 => (vec![rows], 0),
            _ => (vec![beside(30, 1), rows, beside(3, 2)], 30),
        };
        let found = cut.logits(&parts);
        for (row, found) in found[first..first + end - start].iter().enumerate() {
            let expected = &whole[start + row];
            let same =
                found.iter().zip(expected).all(|(found, expected)| found.to_bits() == expected.to_bits());
            assert!(same, "{case:?}: row {} has other bits in the step that ends at {end}", start + row);
        }
        start = *end;
    }
}

#[test]
fn chunks_companions_and_scattered_pages_dont_change_a_row() {
    for case in CASES {
        check(case, &[1, 2, 18, 33, 34, 97, 98, 114, 180, 181, 197]);
    }
}

/// A device with as little shared memory as one has that fetches blocks of memory takes every launch of every case; the simulated one would refuse some.
#[test]
fn a_device_with_99_kib_of_shared_memory_takes_every_launch() {
    let backend = CudaBackend::simulated_with(99 << 10, &CudaOptions::default());
    let coded = [Format::Q4K, Format::Q8_0].map(|weights| Case { dim: 128, weights, ..PLAIN });
    for case in CASES.into_iter().chain(coded) {
        let tokens = tokens(90);
        let mut device = Device::new(&backend, case);
        let mut start = 0;
        for count in [1, 9, 20, 60] {
            let part = Part { length: start as u32, tokens: &tokens[start..start + count], first_page: 0 };
            let found = device.logits(&[part]);
            assert!(found.iter().flatten().all(|x| x.is_finite()), "{case:?}, {count} rows");
            start += count;
        }
    }
}

#[test]
fn keys_in_int8_are_read_by_the_page_of_the_row_alone() {
    for case in CASES.into_iter().filter(Case::has_open_pages) {
        // Pages that one step begins and fills, edges of pages inside of steps of few rows and of many, and single rows over them.
        check(case, &[60, 63, 64, 65, 126, 130, 330, 383, 384, 390, 500]);
    }
}

#[test]
fn attention_over_int8_is_the_references_within_tolerance() {
    let backend = device(Precision::Stored);
    for case in CASES.into_iter().filter(Case::has_open_pages) {
        let tokens = tokens(330);
        let whole = || [Part { length: 0, tokens: &tokens, first_page: 0 }];
        let expected = Device::new(&ReferenceBackend::as_bf16(), case).logits(&whole());
        let plain = Device::new(&ReferenceBackend::as_bf16(), Case { pages: KvFormat::F32, ..case });
        let lossless = { plain }.logits(&whole());
        let mut found = Device::new(&backend, case).logits(&whole());
        let mut stepped = Device::new(&backend, case);
        let mut one_by_one = stepped.logits(&[Part { length: 0, tokens: &tokens[..300], first_page: 0 }]);
        for length in 300..330 {
            let part = Part { length: length as u32, tokens: &tokens[length..=length], first_page: 0 };
            one_by_one.extend(stepped.logits(&[part]));
        }
        assert!(found == one_by_one, "{case:?}");
        let distance = |a: &[Vec<f32>], b: &[Vec<f32>]| {
            let pairs = a.iter().flatten().zip(b.iter().flatten());
            let (error, all) = pairs.fold((0.0f64, 0.0f64), |(error, all), (a, b)| {
                (error + f64::from(a - b).powi(2), all + f64::from(*b).powi(2))
            });
            (error / all).sqrt()
        };
        // What is rounded to bf16 between the products is several times what int8 loses; the wrong form of a key would be more.
        let off = distance(&found, &expected);
        assert!(off <= 0.02, "{case:?}: off by {off}");
        found.truncate(64);
        let first = distance(&found, &expected[..64]);
        let lost = distance(&expected, &lossless);
        assert!(first <= 0.02 && lost > 0.0, "{case:?}: off by {first}, int8 loses {lost}");
    }
}

#[test]
fn splits_and_tiles_give_the_same_bits_across_their_edges() {
    for case in CASES {
        check(case, &[250, 251, 255, 256, 257, 273, 340]);
    }
}

/// Steps of few rows of several sequences, across the edge of a split, and one that is too long for a graph.
const MIXED: [&[(u32, usize)]; 7] = [
    &[(0, 250)],
    &[(0, 1)],
    &[(1, 5), (0, 2)],
    &[(0, 7), (1, 1), (2, 3)],
    &[(0, 1), (1, 1), (2, 16)],
    &[(2, 17), (0, 1)],
    &[(1, 1), (0, 1), (2, 1)],
];

/// Steps of one to five sequences over and over, on the first sixteen tokens of each.
fn check_replays(case: Case, replays: usize) {
    let options = CudaOptions { poisons_scratch: true, ..CudaOptions::default() };
    let mut device = Device::new(&device_of(options), case);
    let tokens = tokens(16);
    let mut known: Vec<Option<Vec<Vec<f32>>>> = vec![None; 5];
    for replay in 0..replays {
        let count = replay % known.len();
        let part = |sequence: usize| Part {
            length: 0,
            tokens: &tokens[..1 + sequence],
            first_page: sequence as u32,
        };
        let found = device.logits(&(0..=count).map(part).collect::<Vec<_>>());
        assert!(found.iter().flatten().all(|x| x.is_finite()), "{case:?}, replay {replay}");
        let expected = known[count].get_or_insert_with(|| found.clone());
        assert!(found == *expected, "{case:?}: replay {replay} has other bits");
    }
}

#[test]
fn graphs_over_poisoned_scratch_give_the_same_bits() {
    check_replays(CASES[0], 10);
    check_replays(CASES[5], 10);
}

#[test]
fn ten_thousand_graphs_over_poisoned_scratch_give_the_same_bits() {
    if std::env::var_os("GANNET_LONG_RUN").is_some() {
        CASES[..3].iter().for_each(|case| check_replays(*case, 10_000));
    }
}

#[test]
fn a_graph_gives_the_bits_of_single_launches() {
    for case in &CASES[..3] {
        let options = [
            CudaOptions::default(),
            CudaOptions { no_graphs: true, ..CudaOptions::default() },
            CudaOptions { serial_launches: true, ..CudaOptions::default() },
        ];
        let mut devices = options.map(|options| Device::new(&device_of(options), *case));
        let tokens = tokens(300);
        let mut lengths = [0; 3];
        for (number, step) in MIXED.into_iter().enumerate() {
            let part = |(sequence, count): &(u32, usize)| {
                let length = lengths[*sequence as usize];
                Part { length: length as u32, tokens: &tokens[length..length + count], first_page: *sequence }
            };
            let parts: Vec<Part<'_>> = step.iter().map(part).collect();
            let [graph, single, serial] = devices.each_mut().map(|device| device.logits(&parts));
            let bits =
                |logits: &[Vec<f32>]| logits.concat().iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
            assert!(graph.iter().flatten().all(|x| x.is_finite()), "{case:?}, step {number}");
            assert!(bits(&graph) == bits(&single), "{case:?}, step {number}: graphs have other bits");
            assert!(
                bits(&graph) == bits(&serial),
                "{case:?}, step {number}: serial launches have other bits"
            );
            step.iter().for_each(|(sequence, count)| lengths[*sequence as usize] += count);
        }
    }
}

/// A case for each format of codes; on the simulated device, whose kernels know nothing of formats, for one of each order in memory.
fn coded() -> impl Iterator<Item = Case> {
    let few = [Format::Q4K, Format::Q8_0];
    let taken = move |format: &Format| is_card() || few.contains(format);
    let formats = Format::ALL.into_iter().filter(|format| Coding::of(*format).is_some()).filter(taken);
    formats.map(|weights| Case { dim: 128, weights, ..PLAIN })
}

/// The same of dense models and of mixtures.
fn coded_and_mixed() -> impl Iterator<Item = Case> {
    coded().flat_map(|case| [case, Case { mixture: Some(MIXTURE), ..case }])
}

#[test]
fn one_expert_gives_the_bits_of_a_dense_model() {
    let backend = device(Precision::Stored);
    for case in [PLAIN, CASES[3], CASES[5]].into_iter().chain(coded()) {
        let mut devices = [None, Some(ALONE)].map(|mixture| Device::new(&backend, Case { mixture, ..case }));
        let (tokens, mut start) = (tokens(200), 0);
        for count in [1, 2, 3, 9, 33, 100] {
            let part =
                || [Part { length: start as u32, tokens: &tokens[start..start + count], first_page: 0 }];
            let [expected, found] = devices.each_mut().map(|device| device.logits(&part()));
            assert!(expected.iter().flatten().all(|x| x.is_finite()), "{case:?}");
            let bits =
                |logits: &[Vec<f32>]| logits.concat().iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
            assert!(bits(&found) == bits(&expected), "{case:?}, {count} rows");
            start += count;
        }
    }
}

#[test]
fn codes_give_the_bits_of_the_same_weights_in_bf16_for_every_number_of_rows() {
    let backend = device(Precision::Stored);
    for case in coded_and_mixed() {
        let [mut codes, mut rounded] = [false, true].map(|rounded| Device::with(&backend, case, rounded));
        let (tokens, mut start) = (tokens(440), 0);
        let counts: &[usize] =
            if is_card() { &[1, 2, 7, 8, 9, 16, 17, 32, 33, 64, 100, 150] } else { &[1, 9, 33] };
        for count in counts.iter().copied() {
            let part = Part { length: start as u32, tokens: &tokens[start..start + count], first_page: 0 };
            let [found, expected] =
                [&mut codes, &mut rounded].map(|device| device.logits(&[Part { ..part }]));
            assert!(expected.iter().flatten().all(|x| x.is_finite()), "{case:?}");
            let is_same = |(found, expected): (&f32, &f32)| found.to_bits() == expected.to_bits();
            let same =
                found.iter().flatten().zip(expected.iter().flatten()).filter(|pair| is_same(*pair)).count();
            assert_eq!(same, found.iter().flatten().count(), "{case:?}, {count} rows");
            start += count;
        }
    }
}

#[test]
fn rows_of_codes_are_the_same_alone_and_among_others() {
    for case in coded_and_mixed() {
        check(case, &[1, 18, 51, 52]);
    }
}

/// With more outputs than the kernel of few takes.
#[test]
fn a_row_of_wide_codes_is_the_same_alone_and_among_others() {
    let formats: &[Format] =
        if is_card() { &[Format::Q4K, Format::Q5K, Format::Q6K] } else { &[Format::Q4K] };
    for weights in formats {
        check(Case { dim: 128, weights: *weights, is_wide: true, ..PLAIN }, &[1, 2, 18, 19]);
    }
}

#[test]
fn codes_are_close_to_the_reference_over_the_same_rounded_weights() {
    let backend = device(Precision::Stored);
    for case in coded() {
        let tokens = tokens(40);
        let part = || [Part { length: 0, tokens: &tokens, first_page: 0 }];
        let found = Device::new(&backend, case).logits(&part());
        let expected = Device::new(&ReferenceBackend::as_bf16(), case).logits(&part());
        let largest = expected.iter().flatten().fold(0.0f32, |most, x| most.max(x.abs()));
        let errors = found
            .iter()
            .flatten()
            .zip(expected.iter().flatten())
            .map(|(found, expected)| (found - expected).abs());
        let worst = errors.fold(0.0, f32::max);
        // Values are rounded to bf16 between the products.
        assert!(largest > 0.0 && worst <= 0.03 * largest, "{case:?}: off by {worst} of {largest}");
    }
}
