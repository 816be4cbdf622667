//! `linear`: rows of x with a matrix; see `product` for the order of its sums.

use super::Crew;
use super::product::activations::Activations;
use super::product::codes::{self, CodeProduct, Places};
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

/// One of several products of the same rows, as codes, with matrices in panels.
pub(crate) struct Linear<'a> {
    pub(crate) panels: &'a Panels,
    pub(crate) bias: Option<&'a [f32]>,
    /// `[rows, outputs]`.
    pub(crate) out: &'a mut [f32],
}

/// Several products of the same rows, cut together: members meet once, not once a matrix.
pub(crate) fn linear_codes(crew: &mut Crew<'_>, x: &Activations, linears: Vec<Linear<'_>>) {
    let isa = crew.isa;
    let outputs = linears.iter().map(|linear| linear.panels.rows).sum();
    let step = codes::outputs_per_part(crew, outputs);
    let (products, mut outs): (Vec<_>, Vec<_>) = linears
        .into_iter()
        .map(|Linear { panels, bias, out }| {
            (CodeProduct { isa, x, panels, matrix: 0, bias }, (out, panels.rows))
        })
        .unzip();
    crew.turn.columns_of_each(&mut outs, step, |number, mut columns| {
        products[number].part(0..x.rows(), Places::Same, &mut columns);
    });
}
