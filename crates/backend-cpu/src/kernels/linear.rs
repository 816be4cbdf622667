//! `linear`: rows of x with a matrix; see `product` for the order of its sums.

use super::Crew;
use super::product::floats::{self, Pairs, Product};
use super::product::tiles::{PanelProduct, PanelRows, Places, tile_of_part};
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

/// Products of the same rows that are cut together, at most: those of a layer that read one value, in lists that take no
/// memory.
pub(crate) const TOGETHER_MAX: usize = 6;

/// One of several products of the same rows with matrices in panels.
pub(crate) struct Linear<'a> {
    pub(crate) panels: &'a Panels,
    pub(crate) bias: Option<&'a [f32]>,
    /// `[rows, outputs]`.
    pub(crate) out: &'a mut [f32],
}

/// Several products of the same rows, cut together: members meet once, not once a matrix.
pub(crate) fn linear_panels<X: PanelRows>(
    crew: &mut Crew<'_>,
    x: &X,
    mut linears: [Option<Linear<'_>>; TOGETHER_MAX],
) {
    let isa = crew.isa;
    let outputs = linears.iter().flatten().map(|linear| linear.panels.rows).sum();
    let steps = tile_of_part(crew, x.rows(), outputs);
    let products = linears.each_ref().map(|linear| {
        let Linear { panels, bias, .. } = linear.as_ref()?;
        Some(PanelProduct { isa, x, panels, matrix: 0, bias: *bias })
    });
    let outs = linears.each_mut().map(|linear| linear.as_mut().map(|it| (&mut *it.out, it.panels.rows)));
    crew.turn.tiles_of_each(outs, steps, |number, mut columns| {
        let product = products[number].as_ref().expect("each buffer has its product");
        product.part(columns.rows(), Places::Same, &mut columns);
    });
}
