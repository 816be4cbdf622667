//! `linear`: rows of x with a matrix; see `product` for the order of its sums.

use super::Crew;
use super::product::{Pairs, Product, outputs_per_part};
use crate::weights::Matrix;

/// x `[rows, columns]` -> out `[rows, outputs]`.
pub(crate) fn linear(crew: &mut Crew<'_>, x: &[f32], matrix: &Matrix, bias: Option<&[f32]>, out: &mut [f32]) {
    let rows = x.len() / matrix.columns;
    let product = Product { isa: crew.isa, x, matrix, first: 0, bias, rows: Pairs::Same(rows) };
    let step = outputs_per_part(crew, matrix.rows, rows, matrix.columns);
    crew.columns(out, matrix.rows, step, |mut columns, scratch| product.part(&mut columns, scratch));
}
