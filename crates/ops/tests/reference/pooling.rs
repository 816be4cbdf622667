//! Embedding models: a whole prompt that sees itself in both directions, as one vector of unit length.

use crate::goldens::PROMPT;
use crate::support::batch::{POOLED, Part, batch};
use crate::support::device::Device;
use crate::support::models::*;
use crate::support::naive::{self, assert_close};
use gannet_ops::*;
use std::sync::Arc;

fn embedder_layout() -> Arc<StateLayout> {
    let mixer = Mixer { mask: Mask::Block, ..mixer(16, rope_table(1e6, 16, 1.0)) };
    layout(&model(vec![Kind::Attention(mixer)]), &[], Rollback::Candidates, KvFormat::F32)
}

/// One layer of attention in which nothing is written to any page.
fn embedder(kind: PoolKind, mask: Mask) -> Program {
    let mut b = ProgramBuilder::new("embed", embedder_layout());
    b.whole_prompt_only();
    let mixer = Mixer { mask, ..mixer(16, rope_table(1e6, 16, 1.0)) };
    let (ids, table) = (b.ids(), embedding(&mut b));
    let x = b.embed(table, &[ids]);
    let (q, _) = queries(&mut b, &mixer, x, "layer.");
    let q = rotated(&mut b, &mixer, q, mixer.heads);
    let (k, v) = keys_and_values(&mut b, &mixer, x, "layer.");
    let y = b.attention(&[q, k, v], attention(&mixer, StateId(0)));
    let pooled = b.pool(y, kind);
    b.output(OutputKind::Pooled, pooled);
    b.finish()
}

/// One vector a token, over the keys that its place sees.
fn truth(tokens: &[u32], sees: impl Fn(usize, usize) -> bool) -> Vec<naive::Row> {
    let embeddings = naive::weight("model.embed_tokens.weight", &[VOCABULARY, HIDDEN]);
    let project = |name: &str, rows: usize| -> Vec<naive::Row> {
        let row = |id: &u32| {
            let x = &embeddings[*id as usize * HIDDEN..][..HIDDEN];
            naive::matrix(&format!("layer.{name}.weight"), rows, x)
        };
        tokens.iter().map(row).collect()
    };
    let rotate = |rows: Vec<naive::Row>| -> Vec<naive::Row> {
        rows.iter().enumerate().map(|(place, x)| naive::rope(x, 16, 1e6, place as f64)).collect()
    };
    let (q, k, v) = (rotate(project("q_proj", 64)), rotate(project("k_proj", 32)), project("v_proj", 32));
    let attend = |(i, q): (usize, &naive::Row)| {
        let seen = |rows: &[naive::Row]| -> Vec<naive::Row> {
            rows.iter().enumerate().filter(|(j, _)| sees(i, *j)).map(|(_, row)| row.clone()).collect()
        };
        naive::attention(q, &seen(&k), &seen(&v), 4, 2)
    };
    q.iter().enumerate().map(attend).collect()
}

fn unit(x: &[f64]) -> naive::Row {
    let length = naive::dot(x, x).sqrt();
    x.iter().map(|x| x / length).collect()
}

fn pooled(tokens: &[u32], kind: PoolKind, mask: Mask) -> Vec<f32> {
    let mut device = Device::new(&[&embedder(kind, mask)]);
    // A companion before it, so that its rows don't start at 0.
    let parts = [Part::new(1, 0, &[3, 2, 1]).quiet(), Part::new(0, 0, tokens).asks(&[(0, POOLED)])];
    let (_, output) = device.run(0, &batch(&device.layout.clone(), &parts));
    output.outputs[0].pooled.clone().expect("it was asked for")
}

#[test]
fn both_directions_are_seen_and_the_mean_is_taken() {
    let rows = truth(&PROMPT, |_, _| true);
    let sum = rows.iter().skip(1).fold(rows[0].clone(), |sum, row| naive::add(&sum, row));
    assert_close("mean", &pooled(&PROMPT, PoolKind::Mean, Mask::Block), &unit(&sum), 1e-5);
    assert_close("first", &pooled(&PROMPT, PoolKind::First, Mask::Block), &unit(&rows[0]), 1e-5);
    assert_close("last", &pooled(&PROMPT, PoolKind::Last, Mask::Block), &unit(&rows[11]), 1e-5);
}

#[test]
fn window_reaches_to_both_sides() {
    let rows = truth(&PROMPT, |i, j| i.abs_diff(j) < 3);
    for (kind, row) in [(PoolKind::First, 0), (PoolKind::Last, 11)] {
        assert_close("window", &pooled(&PROMPT, kind, Mask::BlockWindow(3)), &unit(&rows[row]), 1e-5);
    }
}

#[test]
fn causal_rows_that_are_not_written_see_what_came_before() {
    let rows = truth(&PROMPT, |i, j| j <= i);
    assert_close("causal", &pooled(&PROMPT, PoolKind::Last, Mask::Causal), &unit(&rows[11]), 1e-5);
    let rows = truth(&PROMPT, |i, j| j <= i && i - j < 5);
    assert_close("window", &pooled(&PROMPT, PoolKind::Last, Mask::Window(5)), &unit(&rows[11]), 1e-5);
}
