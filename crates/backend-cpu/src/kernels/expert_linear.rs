//! `expert_linear`: each row with the matrix of its expert; see `product` for the order of its sums.
//!
//! The rows of one expert are multiplied together, so that its weights are unpacked once.

use super::Crew;
use super::product::activations::Activations;
use super::product::codes::{self, CodeProduct, Places};
use super::product::floats::{self, Pairs, Product};
use crate::panels::Panels;
use crate::weights::RowMatrix;

/// (row of x, row of the result), for the rows of one expert.
type RowPairs = Vec<(u32, u32)>;

/// x `[tokens, columns]`, or `[tokens * top_k, columns]`, by ids `[tokens * top_k]` -> out `[tokens * top_k,
/// outputs]`; the matrix stacks `[outputs, columns]` for each expert, the bias `[outputs]`.
pub(crate) fn expert_linear(
    crew: &mut Crew<'_>,
    x: &[f32],
    ids: &[Option<u32>],
    (matrix, bias): (&RowMatrix, Option<&[f32]>),
    out: &mut [f32],
) {
    let x_rows = x.len() / matrix.columns;
    if x_rows == 0 {
        return;
    }
    let outputs = out.len() / ids.len();
    let groups = by_expert(ids, ids.len() / x_rows);
    let isa = crew.isa;
    let step = floats::outputs_per_part(crew, outputs, ids.len(), matrix.columns);
    crew.columns(out, outputs, step, |mut columns, scratch| {
        for (expert, pairs) in &groups {
            let (first, rows) = (expert * outputs, Pairs::Listed(pairs));
            let bias = bias.map(|bias| &bias[first..first + outputs]);
            Product { isa, x, matrix, first, bias, rows }.part(&mut columns, scratch);
        }
    });
}

/// The same with rows as codes and matrices in panels; `sorted` is memory for the rows in the order of their experts.
pub(crate) fn expert_linear_codes(
    crew: &mut Crew<'_>,
    (x, sorted): (&Activations, &mut Activations),
    ids: &[Option<u32>],
    (panels, bias): (&Panels, Option<&[f32]>),
    out: &mut [f32],
) {
    if x.rows() == 0 {
        return;
    }
    let (outputs, isa) = (panels.rows, crew.isa);
    let groups = by_expert(ids, ids.len() / x.rows());
    let pairs: Vec<(u32, u32)> = groups.iter().flat_map(|(_, pairs)| pairs).copied().collect();
    // The rows of one expert side by side, as a product reads them.
    sorted.gather(x, pairs.iter().map(|(row, _)| *row as usize));
    let sorted = &*sorted;
    let step = codes::outputs_per_part(crew, outputs);
    crew.columns(out, outputs, step, |mut columns, _| {
        let mut start = 0;
        for (expert, group) in &groups {
            let bias = bias.map(|bias| &bias[expert * outputs..][..outputs]);
            let product = CodeProduct { isa, x: sorted, panels, matrix: *expert, bias };
            let rows = start..start + group.len();
            start = rows.end;
            product.part(rows, Places::Listed(&pairs), &mut columns);
        }
    });
}

/// The rows of each expert that is chosen; a row of x serves `results_per_row` neighbours.
fn by_expert(ids: &[Option<u32>], results_per_row: usize) -> Vec<(usize, RowPairs)> {
    let expert = |id: &Option<u32>| id.expect("every routed row has an expert");
    let mut order: Vec<(u32, u32)> = ids.iter().map(expert).zip(0..).collect();
    order.sort_unstable();
    let pairs = |group: &[(u32, u32)]| {
        let pair = |(_, row): &(u32, u32)| (row / results_per_row as u32, *row);
        (group[0].0 as usize, group.iter().map(pair).collect())
    };
    order.chunk_by(|a, b| a.0 == b.0).map(pairs).collect()
}
