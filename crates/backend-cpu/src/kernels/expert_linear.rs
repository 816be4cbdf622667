//! `expert_linear`: each row with the matrix of its expert; see `product` for the order of its sums.
//!
//! The rows of one expert are multiplied together, so that its weights are unpacked once.

use super::Crew;
use super::product::activations::Activations;
use super::product::floats::{self, Pairs, Product};
use super::product::pairs::PairRows;
use super::product::tiles::{PanelProduct, PanelRows, Places, outputs_per_part};
use crate::panels::Panels;
use crate::weights::RowMatrix;
use std::ops::Range;

/// Rows in the order of their experts, in memory that later products use again.
#[derive(Default)]
pub(crate) struct ByExpert {
    pub(crate) order: Order,
    /// The rows of x as codes, as the pairs of the order have them.
    pub(crate) codes: Activations,
    /// The same as bf16 numbers.
    pub(crate) pairs: PairRows,
}

/// Which rows each expert has.
#[derive(Default)]
pub(crate) struct Order {
    /// (expert, row of the result), ascending.
    sorted: Vec<(u32, u32)>,
    /// (row of x, row of the result).
    pairs: Vec<(u32, u32)>,
    /// Each expert that is chosen, and which of the pairs are its.
    groups: Vec<(usize, Range<usize>)>,
}

impl Order {
    /// Sorts the rows; one of x serves `results_per_row` neighbours.
    fn sort(&mut self, ids: &[Option<u32>], results_per_row: usize) {
        let Self { sorted: order, pairs, groups } = self;
        let expert = |id: &Option<u32>| id.expect("every routed row has an expert");
        order.clear();
        order.extend(ids.iter().map(expert).zip(0..));
        order.sort_unstable();
        pairs.clear();
        pairs.extend(order.iter().map(|(_, row)| (row / results_per_row as u32, *row)));
        groups.clear();
        let mut start = 0;
        for group in order.chunk_by(|a, b| a.0 == b.0) {
            groups.push((group[0].0 as usize, start..start + group.len()));
            start += group.len();
        }
    }
}

/// x `[tokens, columns]`, or `[tokens * top_k, columns]`, by ids `[tokens * top_k]` -> out `[tokens * top_k,
/// outputs]`; the matrix stacks `[outputs, columns]` for each expert, the bias `[outputs]`.
pub(crate) fn expert_linear(
    crew: &mut Crew<'_>,
    (x, order): (&[f32], &mut Order),
    ids: &[Option<u32>],
    (matrix, bias): (&RowMatrix, Option<&[f32]>),
    out: &mut [f32],
) {
    let x_rows = x.len() / matrix.columns;
    if x_rows == 0 {
        return;
    }
    let outputs = out.len() / ids.len();
    order.sort(ids, ids.len() / x_rows);
    let Order { pairs, groups, .. } = order;
    let isa = crew.isa;
    let step = floats::outputs_per_part(crew, outputs, ids.len(), matrix.columns);
    crew.columns(out, outputs, step, |mut columns, scratch| {
        for (expert, range) in &*groups {
            let (first, rows) = (expert * outputs, Pairs::Listed(&pairs[range.clone()]));
            let bias = bias.map(|bias| &bias[first..first + outputs]);
            Product { isa, x, matrix, first, bias, rows }.part(&mut columns, scratch);
        }
    });
}

/// The same with matrices in panels, and rows in their form.
pub(crate) fn expert_linear_panels<X: PanelRows>(
    crew: &mut Crew<'_>,
    (x, order, gathered): (&X, &mut Order, &mut X),
    ids: &[Option<u32>],
    (panels, bias): (&Panels, Option<&[f32]>),
    out: &mut [f32],
) {
    if x.rows() == 0 {
        return;
    }
    let (outputs, isa) = (panels.rows, crew.isa);
    order.sort(ids, ids.len() / x.rows());
    let Order { pairs, groups, .. } = &*order;
    // The rows of one expert side by side, as a product reads them.
    gathered.gather(x, groups.iter().map(|(_, rows)| &pairs[rows.clone()]));
    let x = &*gathered;
    let step = outputs_per_part(crew, outputs);
    crew.columns(out, outputs, step, |mut columns, _| {
        let mut start = 0;
        for (expert, rows) in groups {
            let bias = bias.map(|bias| &bias[expert * outputs..][..outputs]);
            let product = PanelProduct { isa, x, panels, matrix: *expert, bias };
            let places = Places::Listed(&pairs[rows.clone()]);
            product.part(start..start + rows.len(), places, &mut columns);
            start += rows.len().next_multiple_of(x.group());
        }
    });
}
