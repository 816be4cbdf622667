//! The rope op at positions far beyond any trained context, against the reference implementation's float32 module.

use crate::toy::hugging_face;
use gannet_model::recognise;
use gannet_ops::reference::ReferenceBackend;
use gannet_ops::*;
use gannet_testing::goldens;
use serde::Deserialize;
use serde_json::Value;
use std::borrow::Cow;
use std::sync::Arc;

const TOLERANCE: f32 = 1e-5;

/// One entry of `goldens/ropes.json`.
#[derive(Deserialize)]
struct Golden {
    name: String,
    config: Value,
    context: usize,
    positions: Vec<u32>,
    cos: Vec<Vec<f32>>,
    sin: Vec<Vec<f32>>,
}

/// An embedding whose only row has ones in its first half: rotated, it shows cosines and then sines.
struct Halves(usize);

impl WeightSource for Halves {
    fn weight(&self, _: &str) -> Result<WeightTensor<'_>, WeightError> {
        let values = (0..self.0).map(|column| if column < self.0 / 2 { 1f32 } else { 0.0 });
        let bytes = Cow::Owned(values.flat_map(f32::to_le_bytes).collect());
        Ok(WeightTensor { format: gannet_tensor::Format::F32, shape: vec![1, self.0], bytes })
    }
}

/// The rotated rows at these positions.
fn rotated(table: RopeTable, positions: &[u32]) -> Vec<Vec<f32>> {
    let head_dim = 2 * table.inverse_frequencies.len();
    let mut b = ProgramBuilder::new("rope", Arc::new(StateLayout::default()));
    let ids = b.ids();
    let weight = b.weight("halves", &[1, head_dim], WeightRole::Embedding);
    let x = b.embed(weight, &[ids]);
    let y = b.rope(x, Rope { heads: 1, head_dim, table: Arc::new(table) });
    let y = b.select_outputs(y);
    b.output(OutputKind::Hidden, y);
    let program = b.finish();
    let backend = ReferenceBackend::new();
    let weights = backend.upload(&Halves(head_dim), &program.weights).unwrap();
    let budget = Budget::default();
    let mut state = backend.allocate(&program.state, &budget).unwrap();
    let rows = positions.len();
    let limits = BatchLimits { rows, sequences: 1, outputs: rows, context: rows };
    let mut plan = backend.compile(&program, &weights, &limits).unwrap();
    let step = plan.submit(&batch(positions), state.as_mut()).unwrap();
    plan.wait(step).unwrap().outputs.into_iter().map(|result| result.hidden.unwrap()).collect()
}

fn batch(positions: &[u32]) -> Batch {
    let row = |(index, position): (usize, &u32)| Row {
        sequence: 0,
        token: TokenSource::Known(TokenId(0)),
        index: index as u32,
        position: [*position; 3],
        kind: RowKind::Prompt,
    };
    let sequence = SequenceRows {
        rows: 0..positions.len() as u32,
        length: Length::Exact(0),
        tables: vec![],
        recurrent: None,
        sampler: None,
        adapter: None,
    };
    let want = Want { hidden: true, ..Want::default() };
    Batch {
        rows: positions.iter().enumerate().map(row).collect(),
        sequences: vec![sequence],
        outputs: (0..positions.len() as u32).map(|row| Output { row, want }).collect(),
        ..Batch::default()
    }
}

#[test]
fn every_scaling_turns_far_positions_as_the_reference_implementation_does() {
    let golden = std::fs::read(goldens::folder().join("ropes.json")).unwrap();
    let golden: Vec<Golden> = serde_json::from_slice(&golden).unwrap();
    assert!(golden.len() >= 6);
    for golden in golden {
        let toy = hugging_face(&golden.config, &[]);
        let table = recognise(&toy.checkpoint).unwrap().config.ropes[0].table(golden.context);
        let found = rotated(table, &golden.positions);
        for (place, position) in golden.positions.iter().enumerate() {
            let expected = golden.cos[place].iter().chain(&golden.sin[place]);
            for (element, (found, expected)) in found[place].iter().zip(expected).enumerate() {
                let error = (found - expected).abs();
                assert!(
                    error < TOLERANCE,
                    "{} at {position}, element {element}: off by {error:e}",
                    golden.name
                );
            }
        }
    }
}
