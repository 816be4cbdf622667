//! Programs as data: checked, printed, rewritten and priced.

use gannet_ops::cost::{Arithmetic, BatchShape, Bound, Cost, Machine, costs, shape};
use gannet_ops::*;
use gannet_tensor::Format;
use std::sync::Arc;

fn layout() -> StateLayout {
    let paged = PagedLayout {
        kv_heads: 1,
        key_dim: 4,
        value_dim: 4,
        key_format: KvFormat::F16,
        value_format: KvFormat::F16,
        group: GroupId(0),
        open: None,
    };
    let recurrent = RecurrentLayout {
        conv: ConvLayout { channels: 8, kernel: 4 },
        state: DeltaLayout { value_heads: 2, key_dim: 4, value_dim: 4 },
        rollback: Rollback::Replay,
    };
    let group = PageGroup { name: "full".to_owned(), lifetime: PageLifetime::Full };
    let entries = vec![StateEntry::Paged(paged), StateEntry::Recurrent(recurrent)];
    StateLayout { groups: vec![group], entries, sampler: Some(SamplerLayout { vocabulary: 16 }) }
}

fn table() -> Arc<RopeTable> {
    Arc::new(RopeTable { inverse_frequencies: vec![1.0, 0.5], axes: vec![0, 0], attention_scale: 1.0 })
}

const CAUSAL: Attention =
    Attention { state: StateId(0), heads: 2, scale: 0.5, mask: Mask::Causal, sinks: None, soft_cap: None };

/// One layer of attention between an embedding and a tied head.
fn small() -> Program {
    let mut b = ProgramBuilder::new("target", Arc::new(layout()));
    let ids = b.ids();
    let embedding = b.weight("embedding.weight", &[16, 8], WeightRole::Embedding);
    let x = b.embed(embedding, &[ids]);
    let norm = b.weight("layers.0.norm.weight", &[8], WeightRole::Vector);
    let normed = b.rms_norm(x, norm, 1e-6);
    let qkv = b.weight("layers.0.qkv.weight", &[16, 8], WeightRole::Matrix);
    let bias = b.weight("layers.0.qkv.bias", &[16], WeightRole::Vector);
    let qkv = b.linear(normed, qkv, Some(bias));
    let q = b.slice(qkv, 1, 0, 8);
    let (k, v) = (b.slice(qkv, 1, 8, 4), b.slice(qkv, 1, 12, 4));
    let q = b.rope(q, Rope { heads: 2, head_dim: 4, table: table() });
    b.write_kv(k, v, StateId(0));
    let y = b.attention(&[q], CAUSAL);
    let x = b.add(x, y);
    b.capture(x, CaptureId(3));
    let last = b.weight("norm.weight", &[8], WeightRole::Vector);
    let normed = b.rms_norm(x, last, 1e-5);
    let both = b.add(x, normed);
    let rows = b.select_outputs(both);
    let head = b.weight("embedding.weight", &[16, 8], WeightRole::Matrix);
    let logits = b.linear(rows, head, None);
    b.output(OutputKind::Logits, logits);
    let tokens = b.sample(logits);
    b.output(OutputKind::Tokens, tokens);
    let accepted = b.accept(tokens);
    b.output(OutputKind::Accepted, accepted);
    b.finish()
}

const PRINTED: &str = "\
program target
inputs
  %0 = ids : [tokens, 1] id
state
  group 0 `full`, whole sequence
  s0 = paged keys 1 x 4 f16, values 1 x 4 f16, group 0
  s1 = recurrent window 3 x 8, matrices 2 x 4 x 4, replay
  sampler of 16 tokens
weights
  embedding.weight : [16, 8] tied embedding
  layers.0.norm.weight : [8] vector
  layers.0.qkv.weight : [16, 8] matrix
  layers.0.qkv.bias : [16] vector
  norm.weight : [8] vector
nodes
  %1 = embed %0, embedding.weight : [tokens, 8]
  %2 = rms_norm %1, layers.0.norm.weight, epsilon=1e-6 : [tokens, 8]
  %3 = linear %2, layers.0.qkv.weight, layers.0.qkv.bias : [tokens, 16]
  %4 = slice %3, groups=1, columns=0..8 : [tokens, 8]
  %5 = slice %3, groups=1, columns=8..12 : [tokens, 4]
  %6 = slice %3, groups=1, columns=12..16 : [tokens, 4]
  %7 = rope %4, heads=2, dims=4, frequencies=1e0..5e-1 : [tokens, 8]
  write_kv %5, %6, s0
  %8 = attention %7, s0, heads=2, scale=0.5, mask=causal : [tokens, 8]
  %9 = add %1, %8 : [tokens, 8]
  capture %9, capture=3
  %10 = rms_norm %9, norm.weight, epsilon=1e-5 : [tokens, 8]
  %11 = add %9, %10 : [tokens, 8]
  %12 = select_outputs %11 : [outputs, 8]
  %13 = linear %12, embedding.weight : [outputs, 16]
  %14 = sample %13 : [outputs, 1] id
  %15 = accept %14 : [sequences, 1] id
outputs
  logits = %13
  tokens = %14
  accepted = %15
";

#[test]
fn program_prints_as_text() {
    assert_eq!(verify(&small()), Ok(()));
    assert_eq!(print(&small()), PRINTED);
}

#[test]
fn sum_and_its_norm_become_one_node() {
    let before = "\
  %9 = add %1, %8 : [tokens, 8]
  capture %9, capture=3
  %10 = rms_norm %9, norm.weight, epsilon=1e-5 : [tokens, 8]
  %11 = add %9, %10 : [tokens, 8]
";
    let after = "\
  %9, %10 = add_rms_norm %1, %8 : [tokens, 8], [tokens, 8]
    %9 = add %1, %8 : [tokens, 8]
    %10 = rms_norm %9, norm.weight, epsilon=1e-5 : [tokens, 8]
  capture %9, capture=3
  %11 = add %9, %10 : [tokens, 8]
";
    let fused = fuse(&small(), &[Fusion::AddRmsNorm]);
    assert_eq!(verify(&fused), Ok(()));
    assert_eq!(print(&fused), PRINTED.replace(before, after));
    assert_eq!(fuse(&fused, &[Fusion::AddRmsNorm]), fused);
    assert_eq!(fuse(&small(), &[]), small());
}

/// A layer's projections with norms and rotations, and its gated feed-forward; `returns_keys` has a reader of keys outside.
fn layer(returns_keys: bool) -> Program {
    let mut b = ProgramBuilder::new("target", Arc::new(layout()));
    let x = b.embeddings(8);
    let matrix = |b: &mut ProgramBuilder, name: &str, rows: usize, columns: usize| {
        b.weight(name, &[rows, columns], WeightRole::Matrix)
    };
    let [q, k, v] = [("q", 8), ("k", 4), ("v", 4)].map(|(name, rows)| {
        let weight = matrix(&mut b, name, rows, 8);
        b.linear(x, weight, None)
    });
    let [q_norm, k_norm] = ["q_norm", "k_norm"].map(|name| b.weight(name, &[4], WeightRole::Vector));
    let rope = |heads| Rope { heads, head_dim: 4, table: table() };
    let q = b.head_norm(q, q_norm, 2, 1e-6);
    let q = b.rope(q, rope(2));
    let k = b.head_norm(k, k_norm, 1, 1e-6);
    let k = b.rope(k, rope(1));
    b.write_kv(k, v, StateId(0));
    let y = b.attention(&[q], CAUSAL);
    let [gate, up] = ["gate", "up"].map(|name| {
        let weight = matrix(&mut b, name, 16, 8);
        b.linear(y, weight, None)
    });
    let y = b.gelu_gate(gate, up);
    let y = b.slice(y, 1, 0, 4);
    let y = if returns_keys { b.add(y, k) } else { y };
    let y = b.select_outputs(y);
    b.output(OutputKind::Hidden, y);
    b.finish()
}

#[test]
fn projections_and_gates_become_one_node_where_nobody_else_reads_what_is_inside() {
    let fusions = [Fusion::QueryKeyValue, Fusion::GatedLinear];
    let names = |program: &Program| program.nodes.iter().map(|node| node.op.name()).collect::<Vec<_>>();
    let plain = layer(false);
    assert_eq!(verify(&plain), Ok(()));
    let fused = fuse(&plain, &fusions);
    assert_eq!(verify(&fused), Ok(()));
    assert_eq!(names(&fused), ["query_key_value", "attention", "gated_linear", "slice", "select_outputs"]);
    assert_eq!(fuse(&fused, &fusions), fused);
    assert_eq!(unfuse(&fused, &|_, _| true), fused);
    assert_eq!(unfuse(&fused, &|_, _| false), plain);
    let kept = unfuse(&fused, &|kind, _| kind == FusedKind::GatedLinear);
    assert_eq!(kept, fuse(&plain, &[Fusion::GatedLinear]));
    let read = layer(true);
    assert_eq!(verify(&read), Ok(()));
    let with_keys = fuse(&read, &fusions);
    assert_eq!(verify(&with_keys), Ok(()));
    assert_eq!(names(&with_keys)[..2], ["query_key_value", "attention"]);
    let made: Vec<usize> = [&fused, &with_keys].map(|program| program.nodes[0].outputs.len()).to_vec();
    assert_eq!(made, [1, 2], "keys are made for others where these read them");
    assert_eq!(unfuse(&with_keys, &|_, _| false), read);
    let swapped = |change: &dyn Fn(&mut Vec<Node>)| {
        let mut program = fused.clone();
        let Op::Fused { body, .. } = &mut program.nodes[0].op else { panic!("the first node is fused") };
        change(body);
        verify(&program).expect_err("the body is another").to_string()
    };
    let error = "node 0 (`query_key_value`): projections, norms, rotations and pages as its body: expected true, found false";
    assert_eq!(swapped(&|body| drop(body.pop())), error);
    assert_eq!(
        swapped(&|body| body[5].op = Op::HeadNorm { weight: WeightId(4), heads: 1, epsilon: 0.5 }),
        error
    );
}

/// The op at a place, for a change to it.
fn op(program: &mut Program, place: usize) -> &mut Op {
    &mut program.nodes[place].op
}

type Change = fn(&mut Program);

/// A change to the small program, and what is then wrong with it.
const CONTRADICTIONS: &[(Change, &str)] = &[
    (|p| p.nodes[1].inputs[0] = ValueId(9), "node 1 (`rms_norm`) reads %9, which nothing before it makes"),
    (|p| p.nodes[1].inputs[0] = ValueId(99), "node 1 (`rms_norm`) reads %99, which nothing before it makes"),
    (|p| p.nodes[1].outputs[0] = ValueId(1), "node 1 (`rms_norm`) makes %1, which exists already"),
    (|p| p.nodes[9].outputs.clear(), "node 9 (`add`): number of outputs: expected 1, found 0"),
    (
        |p| p.values[9].width = 9,
        "node 9 (`add`): type of its output: expected Value { rows: Tokens, width: 8, element: F32 }, \
             found Value { rows: Tokens, width: 9, element: F32 }",
    ),
    (
        |p| p.values[12].rows = Rows::Tokens,
        "node 13 (`select_outputs`): type of its output: expected Value { rows: Outputs, width: 8, element: F32 }, \
             found Value { rows: Tokens, width: 8, element: F32 }",
    ),
    (|p| p.weights[1].shape = vec![7], "node 1 (`rms_norm`): shape of its weight: expected [8], found [7]"),
    (
        |p| p.weights[1].role = WeightRole::Matrix,
        "node 1 (`rms_norm`): role of its weight: expected [Vector], found Matrix",
    ),
    (
        |p| p.weights[0].role = WeightRole::Embedding,
        "node 14 (`linear`): role of its weight: expected [Matrix, TiedEmbedding], found Embedding",
    ),
    (
        |p| p.weights[2].shape = vec![16, 9],
        "node 2 (`linear`): shape of its weight: expected [16, 8], found [16, 9]",
    ),
    (
        |p| *op(p, 5) = Op::Slice { groups: 1, start: 13, width: 4 },
        "node 5 (`slice`): columns within a group: expected true, found false",
    ),
    (
        |p| *op(p, 3) = Op::Slice { groups: 3, start: 0, width: 4 },
        "node 3 (`slice`): columns left over by its heads: expected 0, found 1",
    ),
    (
        |p| {
            let table = RopeTable { axes: vec![0], ..table().as_ref().clone() };
            *op(p, 6) = Op::Rope(Rope { heads: 2, head_dim: 4, table: Arc::new(table) });
        },
        "node 6 (`rope`): axes of its table: expected 2, found 1",
    ),
    (
        |p| *op(p, 6) = Op::Rope(Rope { heads: 4, head_dim: 2, table: table() }),
        "node 6 (`rope`): pairs within half a head: expected true, found false",
    ),
    (
        |p| *op(p, 7) = Op::WriteKv { state: StateId(1) },
        "node 7 (`write_kv`): state entry: expected paged, found recurrent",
    ),
    (
        |p| *op(p, 7) = Op::WriteKv { state: StateId(2) },
        "node 7 (`write_kv`): state entry: expected below 2, found 2",
    ),
    (|p| drop(p.nodes.remove(7)), "node 7 (`attention`): rows written before: expected true, found false"),
    (
        |p| *op(p, 8) = Op::Attention(Attention { mask: Mask::Block, ..CAUSAL }),
        "node 8 (`attention`): program that needs a whole prompt: expected true, found false",
    ),
    (
        |p| *op(p, 8) = Op::Attention(Attention { mask: Mask::Window(0), ..CAUSAL }),
        "node 8 (`attention`): window above zero: expected true, found false",
    ),
    (
        |p| {
            let node = p.nodes[10].clone();
            p.nodes.insert(10, node);
        },
        "node 11 (`capture`): first capture of its number: expected true, found false",
    ),
    (|p| p.nodes.swap(15, 10), "node 10 (`sample`) reads %13, which nothing before it makes"),
    (
        |p| {
            let capture = p.nodes.remove(10);
            p.nodes.push(capture);
        },
        "node 16 (`capture`): after sampling come only sample, map_ids and accept: expected true, found false",
    ),
    (|p| p.outputs.truncate(2), "%15 is never read; don't make it, or return it"),
    (
        |p| p.outputs[0].1 = ValueId(11),
        "output Logits: type: expected Value { rows: Outputs, width: 8, element: F32 }, \
             found Value { rows: Tokens, width: 8, element: F32 }",
    ),
    (|p| p.outputs[1] = p.outputs[0], "output Logits: declared twice: expected false, found true"),
    (
        |p| p.inputs.push((InputKind::Ids, ValueId(0))),
        "input Ids: declared twice: expected false, found true",
    ),
    (
        |p| p.weights.push(WeightUse { name: "more".to_owned(), shape: vec![1], role: WeightRole::Vector }),
        "weight `more` is never read; don't declare it",
    ),
    (
        |p| Arc::make_mut(&mut p.state).groups.clear(),
        "state entry 0: group exists: expected true, found false",
    ),
    (
        |p| *op(p, 12) = Op::Fused { kind: FusedKind::AddRmsNorm, body: Vec::new() },
        "node 12 (`add_rms_norm`): ops of its body: expected [\"add\", \"rms_norm\"], found []",
    ),
];

#[test]
fn contradictions_are_found() {
    for (change, expected) in CONTRADICTIONS {
        let mut program = small();
        change(&mut program);
        let found = verify(&program).map_or_else(|error| error.to_string(), |()| String::new());
        assert_eq!(&found, expected);
    }
}

/// What is wrong with a program of one op over two values of these types, `None` where nothing is.
fn fault(op: Op, weight: &[usize], role: WeightRole, inputs: &[Value], outputs: &[Value]) -> Option<String> {
    let values = [inputs, outputs].concat();
    let ids: Vec<ValueId> = (0..values.len() as u32).map(ValueId).collect();
    let (read, made) = ids.split_at(inputs.len());
    let kinds = [InputKind::Handed(0), InputKind::Handed(1), InputKind::Handed(2)];
    let program = Program {
        name: "op".to_owned(),
        values,
        weights: vec![WeightUse { name: "weight".to_owned(), shape: weight.to_vec(), role }],
        state: Arc::new(layout()),
        inputs: kinds.into_iter().zip(read.iter().copied()).collect(),
        nodes: vec![Node { op, inputs: read.to_vec(), outputs: made.to_vec() }],
        outputs: Vec::new(),
        whole_prompt_only: false,
    };
    match verify(&program) {
        Err(ProgramError::Unused { .. } | ProgramError::UnusedWeight { .. }) | Ok(()) => None,
        Err(error) => Some(error.to_string()),
    }
}

#[test]
fn types_of_single_ops_are_checked() {
    let handed = |width| Value { rows: Rows::Handed, width, element: Element::F32 };
    let tokens = |width| Value { rows: Rows::Tokens, width, element: Element::F32 };
    let (vector, experts) = (WeightRole::Vector, WeightRole::Experts);
    let head = |heads| Op::HeadNorm { weight: WeightId(0), heads, epsilon: 1e-6 };
    assert_eq!(fault(head(2), &[4], vector, &[handed(8)], &[handed(8)]), None);
    assert_eq!(fault(Op::GatherRows { handed: 0 }, &[1], vector, &[handed(8)], &[tokens(8)]), None);
    let rule =
        |key_heads| Op::GatedDeltaRule(DeltaRule { state: StateId(1), key_heads, head_map: HeadMap::Tiled });
    let router = |top_k| Op::RouteExperts(Router { experts: 8, top_k, renormalise: true });
    let linear = Op::ExpertLinear(ExpertLinear { weight: WeightId(0), bias: None, top_k: 2 });
    type Case<'a> = (Op, &'a [usize], WeightRole, Vec<Value>, &'a str);
    let cases: [Case<'_>; 12] = [
        (head(3), &[4], vector, vec![handed(8)], "(`head_norm`): columns left over by its heads"),
        (head(0), &[4], vector, vec![handed(8)], "(`head_norm`): heads above zero"),
        (Op::SiluGate, &[1], vector, vec![handed(8), handed(7)], "(`silu_gate`): type of its second input"),
        (Op::SigmoidGate, &[1], vector, vec![handed(8), handed(2)], "(`sigmoid_gate`): type of an input"),
        (Op::Concat, &[1], vector, vec![], "(`concat`): inputs above zero"),
        (
            Op::GatherRows { handed: 5 },
            &[1],
            vector,
            vec![handed(8)],
            "(`gather_rows`): handed input of its number",
        ),
        (
            Op::Pool { kind: PoolKind::Mean },
            &[1],
            vector,
            vec![handed(8)],
            "(`pool`): program that needs a whole",
        ),
        (router(9), &[1], vector, vec![handed(8)], "(`route_experts`): type of an input"),
        (linear, &[8, 3, 4], experts, vec![handed(5), handed(1)], "(`expert_linear`): shape of its weight"),
        (
            rule(1),
            &[1],
            vector,
            vec![handed(4)],
            "(`gated_delta_rule`): number of inputs: expected 5, found 1",
        ),
        (
            Op::PositionScale { slope: 0.1, period: 0 },
            &[1],
            vector,
            vec![handed(4)],
            "(`position_scale`): period above zero",
        ),
        (Op::SoftCap { cap: 0.0 }, &[1], vector, vec![handed(4)], "(`soft_cap`): cap above zero"),
    ];
    for (op, weight, role, inputs, expected) in cases {
        let found = fault(op, weight, role, &inputs, &[]).unwrap_or_default();
        assert!(found.contains(expected), "`{found}` doesn't say `{expected}`");
    }
}

#[test]
fn cost_counts_what_has_to_move() {
    let batch = BatchShape { tokens: 3, outputs: 2, sequences: 1, context: 100 };
    let program = small();
    let found = costs(&program, batch, &|_| Format::F16);
    let rows =
        |place: usize| (program.nodes[place].op.name(), shape(&program, &program.nodes[place]), found[place]);
    let cost = |flops, weight_bytes, value_bytes, state_bytes| Cost {
        flops,
        weight_bytes,
        value_bytes,
        state_bytes,
        ..Cost::default()
    };
    let expected = [
        // Three rows of 8 halves; three ids and three rows of 8 floats.
        (0, ("embed", "[tokens, 8]".to_owned(), cost(0, 3 * 16, 4 * (3 + 24), 0))),
        // 3 x 16 x 8 multiply-adds; the matrix and its bias in halves.
        (2, ("linear", "[tokens, 16]".to_owned(), cost(2 * 384, 256 + 32, 4 * (24 + 48), 0))),
        // A key and a value of 4 halves for each row.
        (7, ("write_kv", String::new(), cost(0, 0, 4 * 24, 3 * 16))),
        // Three rows, two heads, 99 keys on average, 4 + 4 elements each; 100 keys and values from the pages.
        (8, ("attention", "[tokens, 8]".to_owned(), cost(2 * 3 * 2 * 99 * 8, 0, 4 * 48, 100 * 16))),
        (14, ("linear", "[outputs, 16]".to_owned(), cost(2 * 2 * 16 * 8, 256, 4 * (16 + 32), 0))),
    ];
    for (place, expected) in expected {
        assert_eq!(rows(place), expected);
    }
}

#[test]
fn fused_op_moves_the_sum_once() {
    let batch = BatchShape { tokens: 1, outputs: 1, sequences: 1, context: 1 };
    let price = |program: &Program| {
        let nodes = program.nodes.iter().zip(costs(program, batch, &|_| Format::F32));
        let adds = nodes.filter(|(node, _)| matches!(node.op.name(), "add" | "rms_norm" | "add_rms_norm"));
        adds.fold((0, 0), |(flops, bytes), (_, cost)| (flops + cost.flops, bytes + cost.bytes()))
    };
    let (plain, fused) = (price(&small()), price(&fuse(&small(), &[Fusion::AddRmsNorm])));
    assert_eq!(fused.0, plain.0);
    assert_eq!(fused.1, plain.1 - 4 * 8);
}

#[test]
fn bound_is_the_slower_of_two() {
    let machine = Machine {
        bytes_per_second: 10.0,
        flops_per_second: 100.0,
        bf16_per_second: 200.0,
        int8_per_second: 400.0,
    };
    let check = |flops, arithmetic, bound, seconds| {
        let cost = Cost { flops, arithmetic, weight_bytes: 50, value_bytes: 30, state_bytes: 20 };
        assert_eq!((cost.bound(&machine), cost.seconds(&machine)), (bound, seconds));
    };
    check(900, Arithmetic::Float32, Bound::Memory, 10.0);
    check(2000, Arithmetic::Float32, Bound::Arithmetic, 20.0);
    check(2000, Arithmetic::Bf16, Bound::Memory, 10.0);
    check(4000, Arithmetic::Bf16, Bound::Arithmetic, 20.0);
    check(8000, Arithmetic::Int8, Bound::Arithmetic, 20.0);
}

#[test]
fn products_are_priced_by_the_format_of_their_weight() {
    let batch = BatchShape { tokens: 1, outputs: 1, sequences: 1, context: 1 };
    let program = small();
    let arithmetic = |format| {
        let found = costs(&program, batch, &|_| format);
        program
            .nodes
            .iter()
            .zip(found)
            .map(|(node, cost)| (node.op.name(), cost.arithmetic))
            .collect::<Vec<_>>()
    };
    let check = |format, expected| {
        for (op, found) in arithmetic(format) {
            let expected = if op == "linear" { expected } else { Arithmetic::Float32 };
            assert_eq!(found, expected, "{op} with {format:?}");
        }
    };
    check(Format::F32, Arithmetic::Float32);
    check(Format::F16, Arithmetic::Float32);
    check(Format::Bf16, Arithmetic::Bf16);
    check(Format::Q4K, Arithmetic::Int8);
}
