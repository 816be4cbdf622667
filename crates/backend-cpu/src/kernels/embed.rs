//! `embed`: a row of the weight for each id, or the embedding that the row brings.

use super::Crew;
use super::formats::{Unpack, UnpackVisitor, visit};
use super::product::floats::FillTile;
use crate::simd::Isa;
use crate::weights::{Layout, Matrix, RowMatrix};
use std::marker::PhantomData;

/// What one row is made of.
#[derive(Clone, Copy)]
pub(crate) enum Source {
    /// This row of the weight.
    Id(u32),
    /// This row of the vectors.
    Vector(usize),
}

/// sources `[tokens]`, vectors `[tokens, width]` -> out `[tokens, width]`. The caller has checked that the
/// weight has the ids.
pub(crate) fn embed(
    crew: &mut Crew<'_>,
    sources: &[Source],
    vectors: &[f32],
    matrix: &Matrix,
    out: &mut [f32],
) {
    let (isa, width) = (crew.isa, matrix.columns);
    crew.light_rows(out, width, |first, out| {
        for (out, source) in out.chunks_exact_mut(width).zip(&sources[first..]) {
            match *source {
                Source::Id(id) => match &matrix.layout {
                    Layout::Rows(matrix) => visit(matrix.format, Row { isa, matrix, id: id as usize, out })
                        .unwrap_or_else(Row::by_decoder),
                    Layout::Panels(panels) => panels.decode_row(id as usize, out),
                },
                Source::Vector(row) => out.copy_from_slice(&vectors[row * width..][..width]),
            }
        }
    });
}

struct Row<'a> {
    isa: Isa,
    matrix: &'a RowMatrix,
    id: usize,
    out: &'a mut [f32],
}

impl Row<'_> {
    /// For a format without an unpacker.
    fn by_decoder(self) {
        self.matrix.format.decode(self.matrix.row(self.id), self.out);
    }
}

impl UnpackVisitor for Row<'_> {
    type Output = ();

    fn visit<U: Unpack>(self) {
        let rows = self.id..self.id + 1;
        let (matrix, stride) = (self.matrix, self.out.len());
        self.isa.run(FillTile::<U> { matrix, rows, stride, tile: self.out, unpack: PhantomData });
    }
}
