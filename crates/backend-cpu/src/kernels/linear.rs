//! `linear`: rows of x with a matrix; see `product` for the order of its sums.

use super::Crew;
use super::product::activations::Activations;
use super::product::codes::{self, CodeProduct};
use super::product::floats::{self, Pairs, Product};
use crate::panels::Panels;
use crate::weights::RowMatrix;

/// x `[rows, columns]` -> out `[rows, outputs]`.
pub(crate) fn linear(
    crew: &mut Crew<'_>,
    x: &[f32],
    matrix: &RowMatrix,
    bias: Option<&[f32]>,
    out: &mut [f32],
) {
    let rows = x.len() / matrix.columns;
    let product = Product { isa: crew.isa, x, matrix, first: 0, bias, rows: Pairs::Same(rows) };
    let step = floats::outputs_per_part(crew, matrix.rows, rows, matrix.columns);
    crew.columns(out, matrix.rows, step, |mut columns, scratch| product.part(&mut columns, scratch));
}

/// The same with rows as codes and a matrix in panels.
pub(crate) fn linear_codes(
    crew: &mut Crew<'_>,
    x: &Activations,
    panels: &Panels,
    bias: Option<&[f32]>,
    out: &mut [f32],
) {
    let product = CodeProduct { isa: crew.isa, x, panels, matrix: 0, bias };
    let step = codes::outputs_per_part(crew, panels.rows);
    crew.columns(out, panels.rows, step, |mut columns, _| {
        product.part(0..x.rows(), &|row| row, &mut columns)
    });
}
