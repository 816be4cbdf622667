//! Programs that follow another one: they read what it captured, over a state that they share.

use crate::goldens::PROMPT;
use crate::support::batch::{Part, TOKEN, batch};
use crate::support::device::{Device, logits, token};
use crate::support::models::*;
use crate::support::naive::{self, assert_close};
use gannet_ops::*;
use std::sync::Arc;

/// What an observing or drafting step is handed, and which of its rows each row takes.
fn handed(step: StepId, capture: CaptureId, row_map: impl IntoIterator<Item = u32>) -> Handed {
    Handed { step, capture, row_map: row_map.into_iter().collect() }
}

const CHAIN: CaptureId = CaptureId(7);

/// Hidden state of position p and the token after it give the hidden state of position p + 1 (`CHAIN`).
fn chained(layout: &Arc<StateLayout>, model: &Model) -> Program {
    let mut b = ProgramBuilder::new("draft", layout.clone());
    let (ids, hidden) = (b.ids(), b.handed(0, HIDDEN));
    let table = embedding(&mut b);
    let e = b.embed(table, &[ids]);
    let e = norm(&mut b, e, "mtp.pre_fc_norm_embedding.weight");
    let m = b.gather_rows(hidden, 0);
    let m = norm(&mut b, m, "mtp.pre_fc_norm_hidden.weight");
    let both = b.concat(&[e, m]);
    let x = linear(&mut b, both, "mtp.fc", [HIDDEN, 2 * HIDDEN]);
    let kind = Kind::Attention(gated_mixer());
    let x = layer(&mut b, model, &kind, x, "mtp.layers.0.", model.layers.len());
    let x = norm(&mut b, x, "mtp.norm.weight");
    b.capture(x, CHAIN);
    let x = b.select_outputs(x);
    let scores = linear(&mut b, x, "lm_head", [VOCABULARY, HIDDEN]);
    draws(&mut b, scores);
    b.finish()
}

#[test]
fn chained_drafts_match() {
    let model = Model { captures_hidden: true, ..hybrid() };
    let layout = layout(&model, &[gated_mixer()], Rollback::Candidates, KvFormat::F32);
    let (target, draft) = (target(&model, &layout), chained(&layout, &model));
    let mut device = Device::new(&[&target, &draft]);
    let prompt = device.submit(0, &batch(&layout, &[Part::new(0, 0, &PROMPT)])).expect("it runs");

    // Each position's hidden state with the token after it; the last one was only just sampled.
    let mut tokens: Vec<TokenSource> =
        PROMPT[1..].iter().map(|id| TokenSource::Known(TokenId(*id))).collect();
    tokens.push(TokenSource::Sampled { step: prompt, output: 0 });
    let mut observe = batch(&layout, &[Part::of(0, Length::Exact(0), tokens).forgetful()]);
    observe.handed.push(handed(prompt, HIDDEN_CAPTURE, 0..12));
    let first = device.submit(1, &observe).expect("it runs");

    // The drafted token on top of the drafter's own hidden state, before anybody has read the token.
    let drafted = vec![TokenSource::Sampled { step: first, output: 0 }];
    let mut next = batch(&layout, &[Part::of(0, Length::Exact(12), drafted).forgetful()]);
    next.handed.push(handed(first, CHAIN, [11]));
    let second = device.submit(1, &next).expect("it runs");

    assert_eq!(token(&device.wait(0, prompt), 0), 53);
    let (first, second) = (device.wait(1, first), device.wait(1, second));
    let truth = [0.22978, -0.01683, 0.74072, -0.60053, 0.68877, -0.54510];
    assert_close("first draft", logits(&first, 0), &truth, 1e-4);
    let truth = [-0.17736, -0.42662, -0.45937, 1.13569, 0.24010, 0.28447];
    assert_close("second draft", logits(&second, 0), &truth, 1e-4);
    assert_eq!([token(&first, 0), token(&second, 0)], [51, 63]);
}

/// Observing rows follow the drafts that fell: their length, token and handed row move down together.
#[test]
fn observed_row_moves_down_with_its_sequence() {
    let model = Model { captures_hidden: true, ..dense() };
    let layout = layout(&model, &[gated_mixer()], Rollback::Candidates, KvFormat::F32);
    let programs = [&target(&model, &layout), &chained(&layout, &model)];
    let run = |length: fn(StepId) -> Length, row: u32| {
        let mut device = Device::new(&programs);
        let prompt = device.step(&[Part::new(0, 0, &PROMPT)]).0;
        let pairs = PROMPT[1..].iter().chain(&[39]).map(|id| TokenSource::Known(TokenId(*id))).collect();
        let mut observe = batch(&layout, &[Part::of(0, Length::Exact(0), pairs).forgetful()]);
        observe.handed.push(handed(prompt, HIDDEN_CAPTURE, 0..12));
        device.run(1, &observe);
        // 45 is confirmed, 1 and 2 are not.
        let verify = batch(&layout, &[Part::new(0, 12, &[39, 45, 1, 2]).drafts(3)]);
        let verify = device.submit(0, &verify).expect("it runs");
        let sampled = TokenSource::Sampled { step: verify, output: row };
        let mut follow = batch(&layout, &[Part::of(0, length(verify), vec![sampled]).forgetful()]);
        follow.handed.push(handed(verify, HIDDEN_CAPTURE, [row]));
        device.run(1, &follow).1
    };
    let exact = run(|_| Length::Exact(13), 1);
    let at_most = run(|step| Length::AtMost { length: 15, after: step, sequence: 0 }, 3);
    assert_eq!(at_most, exact);
}

const BLOCK: [u32; 4] = [39, 63, 63, 63];
const TAPS: [usize; 2] = [0, 2];

fn block_mixer() -> Mixer {
    Mixer { head_norms: true, mask: Mask::Block, ..mixer(16, rope_table(1e6, 16, 1.0)) }
}

/// Keys and values of committed tokens, from what the target's layers said of them.
fn inject(layout: &Arc<StateLayout>) -> Program {
    let mut b = ProgramBuilder::new("observe", layout.clone());
    let taps: Vec<ValueId> = (0..2).map(|number| b.handed(number, HIDDEN)).collect();
    let taps: Vec<ValueId> = taps.iter().zip(0..).map(|(tap, number)| b.gather_rows(*tap, number)).collect();
    let features = b.concat(&taps);
    let c = linear(&mut b, features, "fc", [HIDDEN, 2 * HIDDEN]);
    let c = norm(&mut b, c, "hidden_norm.weight");
    for number in 0..2 {
        let (k, v) = keys_and_values(&mut b, &block_mixer(), c, &format!("layers.{number}.self_attn."));
        b.write_kv(k, v, StateId(4 + number));
    }
    b.finish()
}

/// All drafts of a block at once; its rows see each other and are not kept.
fn block(layout: &Arc<StateLayout>) -> Program {
    let mut b = ProgramBuilder::new("draft", layout.clone());
    let (mixer, ids, table) = (block_mixer(), b.ids(), embedding(&mut b));
    let mut x = b.embed(table, &[ids]);
    for number in 0..2u32 {
        let prefix = format!("layers.{number}.");
        let normed = norm(&mut b, x, &format!("{prefix}input_layernorm.weight"));
        let (q, _) = queries(&mut b, &mixer, normed, &format!("{prefix}self_attn."));
        let q = rotated(&mut b, &mixer, q, mixer.heads);
        let (k, v) = keys_and_values(&mut b, &mixer, normed, &format!("{prefix}self_attn."));
        let y = b.attention(&[q, k, v], attention(&mixer, StateId(4 + number)));
        let y =
            linear(&mut b, y, &format!("{prefix}self_attn.o_proj"), [HIDDEN, mixer.heads * mixer.head_dim]);
        x = b.add(x, y);
        let normed = norm(&mut b, x, &format!("{prefix}post_attention_layernorm.weight"));
        let y = second_half(&mut b, Inner::Silu, normed, &format!("{prefix}mlp."));
        x = b.add(x, y);
    }
    let x = norm(&mut b, x, "norm.weight");
    let x = b.select_outputs(x);
    let scores = linear(&mut b, x, "lm_head", [VOCABULARY, HIDDEN]);
    draws(&mut b, scores);
    b.finish()
}

#[test]
fn drafted_block_matches() {
    let model = Model { captured: TAPS.to_vec(), ..dense() };
    let layout = layout(&model, &[block_mixer(), block_mixer()], Rollback::Candidates, KvFormat::F32);
    let mut device = Device::new(&[&target(&model, &layout), &inject(&layout), &block(&layout)]);
    let prompt = device.step(&[Part::new(0, 0, &PROMPT)]).0;
    // In two pieces, because injection is an ordinary program.
    for rows in [0..5u32, 5..12] {
        let tokens = vec![TokenSource::Known(TokenId(0)); rows.len()];
        let part = Part::of(0, Length::Exact(rows.start), tokens).forgetful().quiet();
        let mut observe = batch(&layout, &[part]);
        observe.handed = TAPS.map(|tap| handed(prompt, CaptureId(tap as u32), rows.clone())).to_vec();
        device.run(1, &observe);
    }
    let part = Part::new(0, 12, &BLOCK).forgetful().asks(&[(1, TOKEN), (2, TOKEN), (3, TOKEN)]);
    let draft = batch(&layout, &[part]);
    let (_, output) = device.run(2, &draft);
    let truth = [
        [0.16872, 0.13386, -0.23950, -1.19996],
        [0.17821, 0.08424, -0.28515, -1.20498],
        [0.21100, -0.02993, -0.29654, -1.14043],
    ];
    for (slot, truth) in truth.iter().enumerate() {
        assert_close(&format!("slot {}", slot + 1), logits(&output, slot), truth, 1e-4);
        assert_eq!(token(&output, slot), 4);
    }
    // Nothing of the block was kept, so it can be drafted again.
    assert_eq!(device.run(2, &draft).1, output);
}

const EAGLE_VOCABULARY: usize = 16;
const EAGLE_TAPS: [usize; 3] = [0, 1, 2];

fn eagle_mixer() -> Mixer {
    Mixer { input: 2 * HIDDEN, ..mixer(16, rope_table(1e6, 16, 1.0)) }
}

/// The drafter's ids, spread over the target's.
fn eagle_table() -> Arc<[u32]> {
    (0..EAGLE_VOCABULARY as u32).map(|id| 3 * id + 5).collect()
}

/// One layer over the embedding and a feature of three of the target's layers, with a small vocabulary.
fn eagle(layout: &Arc<StateLayout>) -> Program {
    let mut b = ProgramBuilder::new("draft", layout.clone());
    let (ids, table, mixer, state) = (b.ids(), embedding(&mut b), eagle_mixer(), StateId(4));
    let taps: Vec<ValueId> = (0..3).map(|number| b.handed(number, HIDDEN)).collect();
    let taps: Vec<ValueId> = taps.iter().zip(0..).map(|(tap, number)| b.gather_rows(*tap, number)).collect();
    let features = b.concat(&taps);
    let g = linear(&mut b, features, "eagle.fc", [HIDDEN, 3 * HIDDEN]);
    let e = b.embed(table, &[ids]);
    let e = norm(&mut b, e, "eagle.input_layernorm.weight");
    let n = norm(&mut b, g, "eagle.hidden_norm.weight");
    let both = b.concat(&[e, n]);
    let (q, _) = queries(&mut b, &mixer, both, "eagle.self_attn.");
    let q = rotated(&mut b, &mixer, q, mixer.heads);
    let (k, v) = keys_and_values(&mut b, &mixer, both, "eagle.self_attn.");
    b.write_kv(k, v, state);
    let y = b.attention(&[q], attention(&mixer, state));
    let y = linear(&mut b, y, "eagle.self_attn.o_proj", [HIDDEN, 64]);
    let x = b.add(g, y);
    let normed = norm(&mut b, x, "eagle.post_attention_layernorm.weight");
    let y = second_half(&mut b, Inner::Silu, normed, "eagle.mlp.");
    let x = b.add(x, y);
    b.capture(x, CHAIN);
    let x = norm(&mut b, x, "eagle.norm.weight");
    let x = b.select_outputs(x);
    let scores = linear(&mut b, x, "eagle.lm_head", [EAGLE_VOCABULARY, HIDDEN]);
    b.output(OutputKind::Logits, scores);
    let drawn = b.sample(scores);
    let mapped = b.map_ids(drawn, eagle_table());
    b.output(OutputKind::Tokens, mapped);
    b.finish()
}

/// The same layer in plain float64, for the last of the positions.
fn eagle_truth(features: &[naive::Row], tokens: &[u32]) -> naive::Row {
    let (mut keys, mut values, mut last) = (Vec::new(), Vec::new(), Vec::new());
    let embeddings = naive::weight("model.embed_tokens.weight", &[VOCABULARY, HIDDEN]);
    for (position, (features, id)) in features.iter().zip(tokens).enumerate() {
        let g = naive::matrix("eagle.fc.weight", HIDDEN, features);
        let e = &embeddings[*id as usize * HIDDEN..][..HIDDEN];
        let both = [
            naive::rms_norm("eagle.input_layernorm.weight", e),
            naive::rms_norm("eagle.hidden_norm.weight", &g),
        ]
        .concat();
        let project =
            |name: &str, rows| naive::matrix(&format!("eagle.self_attn.{name}.weight"), rows, &both);
        keys.push(naive::rope(&project("k_proj", 32), 16, 1e6, position as f64));
        values.push(project("v_proj", 32));
        let q = naive::rope(&project("q_proj", 64), 16, 1e6, position as f64);
        let y = naive::attention(&q, &keys, &values, 4, 2);
        let x = naive::add(&g, &naive::matrix("eagle.self_attn.o_proj.weight", HIDDEN, &y));
        let normed = naive::rms_norm("eagle.post_attention_layernorm.weight", &x);
        last = naive::add(&x, &naive::silu_mlp("eagle.mlp.", INNER, &normed));
    }
    naive::matrix("eagle.lm_head.weight", EAGLE_VOCABULARY, &naive::rms_norm("eagle.norm.weight", &last))
}

#[test]
fn features_of_several_layers_give_mapped_drafts() {
    let model = Model { captured: EAGLE_TAPS.to_vec(), ..dense() };
    let layout = layout(&model, &[eagle_mixer()], Rollback::Candidates, KvFormat::F32);
    let target = target(&model, &layout);
    let mut device = Device::new(&[&target, &eagle(&layout)]);

    // What the target's layers said, by the trace: the inputs of its captures.
    let taken: Vec<ValueId> = target
        .nodes
        .iter()
        .filter(|node| matches!(node.op, Op::Capture { .. }))
        .map(|node| node.inputs[0])
        .collect();
    let mut features = vec![naive::Row::new(); PROMPT.len()];
    let prompt = batch(&layout, &[Part::new(0, 0, &PROMPT).quiet()]);
    let mut observe = |_: usize, node: &Node, values: &[&[f32]]| {
        if node.outputs.first().is_some_and(|id| taken.contains(id)) {
            for (row, values) in features.iter_mut().zip(values[0].chunks(HIDDEN)) {
                row.extend(values.iter().map(|x| f64::from(*x)));
            }
        }
    };
    let step = device.plans[0].submit_traced(&prompt, device.state.as_mut(), &mut observe).expect("it runs");
    device.wait(0, step);

    let tokens: Vec<u32> = PROMPT[1..].iter().copied().chain([39]).collect();
    let mut draft = batch(&layout, &[Part::new(0, 0, &tokens).forgetful()]);
    draft.handed = EAGLE_TAPS.map(|tap| handed(step, CaptureId(tap as u32), 0..12)).to_vec();
    let (_, output) = device.run(1, &draft);
    let truth = eagle_truth(&features, &tokens);
    assert_close("draft", logits(&output, 0), &truth, 1e-4);
    let best = (0..EAGLE_VOCABULARY).max_by(|a, b| truth[*a].total_cmp(&truth[*b])).expect("there are ids");
    assert_eq!(token(&output, 0), eagle_table()[best]);
}
