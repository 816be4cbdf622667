//! Single ops on numbers that a reader can check, against plain float64 maths written beside them.

use crate::support::batch::{Part, batch};
use crate::support::device::Device;
use crate::support::naive::{self, Row, assert_close};
use gannet_ops::*;
use std::sync::Arc;

const PAGED: StateId = StateId(0);
const RECURRENT: StateId = StateId(1);

/// One head of keys and values, and two value heads of 2 x 2 behind a convolution of 3 taps.
fn small_layout() -> Arc<StateLayout> {
    let paged = PagedLayout {
        kv_heads: 1,
        key_dim: 2,
        value_dim: 2,
        key_format: KvFormat::F32,
        value_format: KvFormat::F32,
        group: GroupId(0),
        open: None,
    };
    let recurrent = RecurrentLayout {
        conv: ConvLayout { channels: 2, kernel: 3 },
        state: DeltaLayout { value_heads: 4, key_dim: 2, value_dim: 2 },
        rollback: Rollback::Candidates,
    };
    let group = PageGroup { name: "full".to_owned(), lifetime: PageLifetime::Full };
    let entries = vec![StateEntry::Paged(paged), StateEntry::Recurrent(recurrent)];
    Arc::new(StateLayout { groups: vec![group], entries, sampler: None })
}

/// Rows in as embeddings, every row of the result out.
fn run(rows: &[Row], op: impl Fn(&mut ProgramBuilder, ValueId) -> ValueId) -> Vec<f32> {
    let mut b = ProgramBuilder::new("op", small_layout());
    let x = b.embeddings(rows[0].len());
    let y = op(&mut b, x);
    let y = b.select_outputs(y);
    b.output(OutputKind::Hidden, y);
    let mut device = Device::new(&[&b.finish()]);
    let tokens = (0..rows.len() as u32).map(TokenSource::Embedding).collect();
    let want = Want { hidden: true, ..Want::default() };
    let asked: Vec<(usize, Want)> = (0..rows.len()).map(|row| (row, want)).collect();
    let mut batch = batch(&device.layout, &[Part::of(0, Length::Exact(0), tokens).forgetful().asks(&asked)]);
    batch.embeddings = rows.iter().flatten().map(|x| *x as f32).collect();
    let (_, output) = device.run(0, &batch);
    output.outputs.into_iter().flat_map(|output| output.hidden.expect("it was asked for")).collect()
}

fn check(
    name: &str,
    rows: &[Row],
    op: impl Fn(&mut ProgramBuilder, ValueId) -> ValueId,
    truth: impl Fn(&[f64]) -> Row,
) {
    let expected: Row = rows.iter().flat_map(|row| truth(row)).collect();
    let found = run(rows, op);
    assert_eq!(found.len(), expected.len(), "{name}");
    assert_close(name, &found, &expected, 1e-6);
}

fn rows() -> Vec<Row> {
    vec![vec![0.5, -1.25, 2.0, 0.75], vec![-3.0, 0.0, 1.5, -0.25], vec![0.125, 4.0, -2.5, 1.0]]
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn each(x: &[f64], change: impl Fn(f64) -> f64) -> Row {
    x.iter().map(|x| change(*x)).collect()
}

#[test]
fn elementwise_ops_follow_their_formula() {
    check("scale", &rows(), |b, x| b.scale(x, 0.3), |x| each(x, |x| f64::from(0.3f32) * x));
    check("soft_cap", &rows(), |b, x| b.soft_cap(x, 1.5), |x| each(x, |x| 1.5 * (x / 1.5).tanh()));
    check("add", &rows(), |b, x| b.add(x, x), |x| each(x, |x| 2.0 * x));
    check("silu_gate", &rows(), |b, x| b.silu_gate(x, x), |x| each(x, |x| x * sigmoid(x) * x));
    let gelu = |x: f64| {
        let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
        0.5 * x * (1.0 + inner.tanh())
    };
    check("gelu_gate", &rows(), |b, x| b.gelu_gate(x, x), |x| each(x, |x| gelu(x) * x));
    check("sigmoid_gate", &rows(), |b, x| b.sigmoid_gate(x, x), |x| each(x, |x| x * sigmoid(x)));
    let one_column = |b: &mut ProgramBuilder, x| {
        let gate = b.slice(x, 1, 1, 1);
        b.sigmoid_gate(x, gate)
    };
    check("sigmoid_gate of one column", &rows(), one_column, |x| each(x, |element| element * sigmoid(x[1])));
}

#[test]
fn norms_follow_their_formula() {
    let root = |x: &[f64], epsilon: f64| (naive::dot(x, x) / x.len() as f64 + epsilon).sqrt();
    let by =
        |x: &[f64], root: f64, w: &[f64]| -> Row { x.iter().zip(w).map(|(x, w)| x / root * w).collect() };
    let rms = |b: &mut ProgramBuilder, x| {
        let weight = b.weight("norm.weight", &[4], WeightRole::Vector);
        b.rms_norm(x, weight, 0.01)
    };
    let whole = naive::weight("norm.weight", &[4]);
    check("rms_norm", &rows(), rms, |x| by(x, root(x, 0.01), &whole));
    let head = |b: &mut ProgramBuilder, x| {
        let weight = b.weight("head.weight", &[2], WeightRole::Vector);
        b.head_norm(x, weight, 2, 0.01)
    };
    let one = naive::weight("head.weight", &[2]);
    let heads = |x: &[f64]| x.chunks(2).flat_map(|head| by(head, root(head, 0.01), &one)).collect::<Row>();
    check("head_norm", &rows(), head, heads);
    let gated = |b: &mut ProgramBuilder, x| {
        let weight = b.weight("head.weight", &[2], WeightRole::Vector);
        b.gated_norm(x, x, weight, 2, 0.01)
    };
    let truth = |x: &[f64]| heads(x).iter().zip(x).map(|(n, z)| n * z * sigmoid(*z)).collect();
    check("gated_norm", &rows(), gated, truth);
    let unit = |x: &[f64]| {
        let head = |head: &[f64]| each(head, |x| x / (naive::dot(head, head) + 0.01).sqrt() * 0.5);
        x.chunks(2).flat_map(head).collect()
    };
    check("l2_norm", &rows(), |b, x| b.l2_norm(x, 2, 0.01, 0.5), unit);
}

#[test]
fn columns_go_where_they_are_told() {
    check("slice", &rows(), |b, x| b.slice(x, 2, 1, 1), |x| vec![x[1], x[3]]);
    let concat = |b: &mut ProgramBuilder, x| {
        let last = b.slice(x, 1, 3, 1);
        b.concat(&[last, x, last])
    };
    check("concat", &rows(), concat, |x| [&x[3..], x, &x[3..]].concat());
}

#[test]
fn linear_adds_its_bias() {
    let op = |b: &mut ProgramBuilder, x| {
        let weight = b.weight("weight", &[3, 4], WeightRole::Matrix);
        let bias = b.weight("bias", &[3], WeightRole::Vector);
        b.linear(x, weight, Some(bias))
    };
    let truth = |x: &[f64]| naive::add(&naive::matrix("weight", 3, x), &naive::weight("bias", &[3]));
    check("linear", &rows(), op, truth);
}

#[test]
fn decay_gate_follows_its_formula() {
    let op = |b: &mut ProgramBuilder, x| {
        let decay = b.weight("A_log", &[4], WeightRole::Vector);
        let bias = b.weight("dt_bias", &[4], WeightRole::Vector);
        b.decay_gate(x, decay, bias)
    };
    let truth = |x: &[f64]| {
        let (decay, bias) = (naive::weight("A_log", &[4]), naive::weight("dt_bias", &[4]));
        x.iter()
            .zip(decay.iter().zip(&bias))
            .map(|(x, (decay, bias))| decay * (x + bias).exp().ln_1p())
            .collect()
    };
    check("decay_gate", &rows(), op, truth);
}

#[test]
fn rope_rotates_each_axis_and_scales() {
    let table = RopeTable { inverse_frequencies: vec![1.0, 0.1], axes: vec![0, 2], attention_scale: 1.25 };
    let rope = Rope { heads: 1, head_dim: 6, table: Arc::new(table) };
    let mut b = ProgramBuilder::new("op", small_layout());
    let x = b.embeddings(6);
    let y = b.rope(x, rope);
    let y = b.select_outputs(y);
    b.output(OutputKind::Hidden, y);
    let mut device = Device::new(&[&b.finish()]);
    let want = Want { hidden: true, ..Want::default() };
    let part = Part::of(0, Length::Exact(0), vec![TokenSource::Embedding(0)]).forgetful().asks(&[(0, want)]);
    let mut batch = batch(&device.layout, &[part]);
    batch.rows[0].position = [3, 100, 7];
    batch.embeddings = vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    let found = device.run(0, &batch).1.outputs.remove(0).hidden.expect("it was asked for");
    // The first pair by axis 0, the second by axis 2; the rest as it came.
    let turn = |a: f64, b: f64, angle: f64| {
        (1.25 * (a * angle.cos() - b * angle.sin()), 1.25 * (b * angle.cos() + a * angle.sin()))
    };
    let ((a, c), (b, d)) = (turn(1.0, 3.0, 3.0), turn(2.0, 4.0, 0.7));
    assert_close("rope", &found, &[a, b, c, d, 5.0, 6.0], 1e-5);
}

#[test]
fn position_scale_grows_with_whole_periods() {
    let mut b = ProgramBuilder::new("op", small_layout());
    let x = b.embeddings(2);
    let y = b.position_scale(x, 0.1, 16);
    let y = b.select_outputs(y);
    b.output(OutputKind::Hidden, y);
    let mut device = Device::new(&[&b.finish()]);
    let want = Want { hidden: true, ..Want::default() };
    for (position, periods) in [(0, 0.0), (15, 0.0), (16, 1.0), (47, 2.0), (262_143, 16_383.0)] {
        let part = Part::of(0, Length::Exact(0), vec![TokenSource::Embedding(0)]);
        let mut batch = batch(&device.layout, &[part.forgetful().asks(&[(0, want)])]);
        batch.rows[0].position = [position, 3, 5];
        batch.embeddings = vec![2.0, -3.0];
        let found = device.run(0, &batch).1.outputs.remove(0).hidden.expect("it was asked for");
        let factor = 1.0 + 0.1 * (1.0_f64 + periods).ln();
        assert_close("position_scale", &found, &[2.0 * factor, -3.0 * factor], 1e-6);
    }
}

#[test]
fn sinks_and_soft_caps_change_the_softmax() {
    let attend = |sinks: bool, soft_cap: Option<f32>| {
        run(&rows(), |b, x| {
            let (k, v) = (b.slice(x, 2, 0, 1), b.slice(x, 2, 1, 1));
            b.write_kv(k, v, PAGED);
            let sinks = sinks.then(|| b.weight("sinks", &[2], WeightRole::Vector));
            let mask = Mask::Window(2);
            b.attention(&[x], Attention { state: PAGED, heads: 2, scale: 0.5, mask, sinks, soft_cap })
        })
    };
    let sinks = naive::weight("sinks", &[2]);
    let truth = |with_sinks: bool, cap: f64| {
        let rows = rows();
        let mut y = Row::new();
        for i in 0..rows.len() {
            for head in 0..2 {
                let q = &rows[i][2 * head..2 * head + 2];
                let seen = i.saturating_sub(1)..=i;
                let score = |j: usize| cap * (0.5 * (q[0] * rows[j][0] + q[1] * rows[j][2]) / cap).tanh();
                let sink = if with_sinks { sinks[head].exp() } else { 0.0 };
                let sum: f64 = seen.clone().map(|j| score(j).exp()).sum::<f64>() + sink;
                for column in [1, 3] {
                    y.push(seen.clone().map(|j| score(j).exp() / sum * rows[j][column]).sum());
                }
            }
        }
        y
    };
    assert_close("sinks", &attend(true, None), &truth(true, 1e9), 1e-6);
    assert_close("soft cap", &attend(false, Some(0.7)), &truth(false, f64::from(0.7f32)), 1e-6);
    assert_close("both", &attend(true, Some(2.0)), &truth(true, 2.0), 1e-6);
}

#[test]
fn convolution_looks_back() {
    let rows: Vec<Row> = [[1.0, -2.0], [0.5, 3.0], [-1.5, 0.25], [2.0, 1.0]].map(|row| row.to_vec()).to_vec();
    let found = run(&rows, |b, x| {
        let weight = b.weight("conv.weight", &[2, 3], WeightRole::Convolution);
        b.causal_conv(x, weight, RECURRENT)
    });
    let w = naive::weight("conv.weight", &[2, 3]);
    let mut expected = Row::new();
    for t in 0..rows.len() {
        for channel in 0..2 {
            let tap =
                |j: usize| (t + j).checked_sub(2).map_or(0.0, |t| w[3 * channel + j] * rows[t][channel]);
            expected.push(naive::silu((0..3).map(tap).sum()));
        }
    }
    assert_close("causal_conv", &found, &expected, 1e-6);
}

/// One row of the published example: q, k, v, g and beta.
type DeltaExample = ([f64; 2], [f64; 2], [f64; 2], f64, f64);

const EXAMPLE: [DeltaExample; 3] = [
    ([1.0, 0.0], [0.6, 0.8], [1.0, 2.0], -0.1, 0.9),
    ([0.6, 0.8], [1.0, 0.0], [-1.0, 0.5], -0.5, 0.5),
    ([0.0, 1.0], [0.8, -0.6], [0.25, -2.0], -0.02, 0.25),
];

/// The example's columns for four value heads that do the same; `key_heads` of q and k.
fn delta_row(row: &DeltaExample, key_heads: usize) -> Row {
    let (q, k, v, g, beta) = row;
    let logit = (beta / (1.0 - beta)).ln();
    let repeat = |x: &[f64], times: usize| x.repeat(times);
    let parts =
        [repeat(q, key_heads), repeat(k, key_heads), repeat(v, 4), repeat(&[*g], 4), repeat(&[logit], 4)];
    parts.concat()
}

fn delta_rule(b: &mut ProgramBuilder, x: ValueId, key_heads: usize, head_map: HeadMap) -> ValueId {
    let keys = 2 * key_heads;
    let (q, k) = (b.slice(x, 1, 0, keys), b.slice(x, 1, keys, keys));
    let v = b.slice(x, 1, 2 * keys, 8);
    let (g, beta) = (b.slice(x, 1, 2 * keys + 8, 4), b.slice(x, 1, 2 * keys + 12, 4));
    let q = b.scale(q, 2f32.powf(-0.5));
    b.gated_delta_rule([q, k, v, g, beta], DeltaRule { state: RECURRENT, key_heads, head_map })
}

#[test]
fn delta_rule_gives_the_published_example() {
    let mut rows: Vec<Row> = EXAMPLE.iter().map(|row| delta_row(row, 1)).collect();
    // Two more rows write nothing and read the state through unit queries.
    let root = 2f64.sqrt();
    for q in [[root, 0.0], [0.0, root]] {
        rows.push(delta_row(&(q, [0.0, 0.0], [0.0, 0.0], 0.0, 0.5), 1));
    }
    let found = run(&rows, |b, x| delta_rule(b, x, 1, HeadMap::Grouped));
    let truth = [
        [0.3818377, 0.7636753],
        [0.1043828, 0.7390958],
        [0.2209570, 0.8110448],
        [-0.1754796, 0.1782494],
        [0.3124804, 1.1469906],
    ];
    for (row, truth) in found.chunks(8).zip(truth) {
        for head in row.chunks(2) {
            assert_close("delta rule", head, &truth, 1e-6);
        }
    }
}

#[test]
fn value_heads_read_the_key_head_of_their_map() {
    // Key head 0 has the example's keys, key head 1 the same in another order of columns.
    let swapped = |x: [f64; 2]| [x[0], x[1], x[1], x[0]];
    let rows: Vec<Row> = EXAMPLE
        .iter()
        .map(|(q, k, v, g, beta)| {
            let rest = delta_row(&(*q, *k, *v, *g, *beta), 2)[8..].to_vec();
            [swapped(*q).to_vec(), swapped(*k).to_vec(), rest].concat()
        })
        .collect();
    // A head whose q and k are both swapped gives the same; swap q alone to tell heads apart.
    let crossed: Vec<Row> = rows
        .iter()
        .map(|row| {
            let mut row = row.clone();
            row.swap(2, 3);
            row
        })
        .collect();
    let plain = run(&rows, |b, x| delta_rule(b, x, 2, HeadMap::Grouped));
    for (map, own) in
        [(HeadMap::Grouped, [true, true, false, false]), (HeadMap::Tiled, [true, false, true, false])]
    {
        let found = run(&crossed, |b, x| delta_rule(b, x, 2, map));
        for (head, own) in own.into_iter().enumerate() {
            let same =
                found.chunks(8).zip(plain.chunks(8)).all(|(a, b)| a[2 * head..][..2] == b[2 * head..][..2]);
            assert_eq!(same, own, "{map:?}, value head {head}");
        }
    }
}

/// The ids of the experts that each row is routed to, as a trace shows them.
fn routed_ids(rows: &[Row]) -> Vec<usize> {
    let mut b = ProgramBuilder::new("op", small_layout());
    let x = b.embeddings(4);
    let (ids, weights) = b.route_experts(x, Router { experts: 4, top_k: 2, renormalise: true });
    let weight = b.weight("experts", &[4, 3, 4], WeightRole::Experts);
    let y = b.expert_linear(x, ids, ExpertLinear { weight, bias: None, top_k: 2 });
    let y = b.combine_experts(&[y, weights]);
    b.capture(y, CaptureId(0));
    let mut device = Device::new(&[&b.finish()]);
    let tokens = (0..rows.len() as u32).map(TokenSource::Embedding).collect();
    let mut batch = batch(&device.layout, &[Part::of(0, Length::Exact(0), tokens).forgetful().quiet()]);
    batch.embeddings = rows.iter().flatten().map(|x| *x as f32).collect();
    let mut found = Vec::new();
    let mut observe = |_: usize, node: &Node, values: &[&[f32]]| {
        if node.op.name() == "route_experts" {
            found = values[0].iter().map(|id| *id as usize).collect();
        }
    };
    device.plans[0].submit_traced(&batch, device.state.as_mut(), &mut observe).expect("it runs");
    found
}

#[test]
fn routing_takes_the_likeliest_and_the_lower_of_equals() {
    let rows: Vec<Row> = vec![vec![1.0, 3.0, 2.0, 3.0], vec![2.0, 2.0, 2.0, 2.0], vec![-1.0, 0.0, 5.0, 1.0]];
    let chosen = [[1, 3], [0, 1], [2, 3]];
    for renormalise in [false, true] {
        assert_eq!(routed_ids(&rows), chosen.concat());
        let found = run(&rows, |b, x| {
            let (ids, weights) = b.route_experts(x, Router { experts: 4, top_k: 2, renormalise });
            let weight = b.weight("experts", &[4, 3, 4], WeightRole::Experts);
            let y = b.expert_linear(x, ids, ExpertLinear { weight, bias: None, top_k: 2 });
            b.combine_experts(&[y, weights])
        });
        let matrices = naive::weight("experts", &[4, 3, 4]);
        let mut expected = Row::new();
        for (x, chosen) in rows.iter().zip(chosen) {
            let likely = naive::softmax(x);
            let whole = if renormalise { likely[chosen[0]] + likely[chosen[1]] } else { 1.0 };
            for row in 0..3 {
                let product = |expert: &usize| naive::dot(&matrices[expert * 12 + row * 4..][..4], x);
                expected.push(chosen.iter().map(|expert| likely[*expert] / whole * product(expert)).sum());
            }
        }
        assert_close("experts", &found, &expected, 2e-6);
    }
}

#[test]
fn fused_op_gives_what_its_body_gives() {
    let mut b = ProgramBuilder::new("op", small_layout());
    let x = b.embeddings(4);
    let sum = b.add(x, x);
    let weight = b.weight("norm.weight", &[4], WeightRole::Vector);
    let normed = b.rms_norm(sum, weight, 0.01);
    let y = b.add(sum, normed);
    let y = b.select_outputs(y);
    b.output(OutputKind::Hidden, y);
    let program = b.finish();
    let fused = fuse(&program, &[Fusion::AddRmsNorm]);
    let run = |program: &Program| {
        let mut device = Device::new(&[program]);
        let want = Want { hidden: true, ..Want::default() };
        let part =
            Part::of(0, Length::Exact(0), vec![TokenSource::Embedding(0)]).forgetful().asks(&[(0, want)]);
        let batch =
            Batch { embeddings: vec![0.5, -1.25, 2.0, 0.75], ..batch(&device.layout.clone(), &[part]) };
        let mut seen = Vec::new();
        let mut observe = |_: usize, node: &Node, values: &[&[f32]]| {
            seen.extend(node.outputs.iter().copied().zip(values.iter().map(|values| values.to_vec())));
        };
        let step =
            device.plans[0].submit_traced(&batch, device.state.as_mut(), &mut observe).expect("it runs");
        device.wait(0, step);
        seen.sort_by_key(|(id, _)| *id);
        seen
    };
    assert_eq!(fused.nodes.len() + 1, program.nodes.len());
    assert_eq!(run(&fused), run(&program));
}
