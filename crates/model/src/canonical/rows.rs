//! Which stored rows a weight's rows are: parts of larger tensors, groups a head, pairs of an interleaved rope.
//!
//! A weight is a stack of matrices (of one, where it is no stack of experts), or a vector, whose elements are its rows.
//! An order maps a row of a matrix to the stored row; what is stored in a tensor an expert is counted through.
//! Nothing is decoded but where rows are columns.

use crate::config::{DeltaNetConfig, Mixer};
use crate::names::Part;
use gannet_tensor::Format;
use std::borrow::Cow;

/// The stored order of a weight's rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowOrder {
    /// Rows of a matrix of the weight.
    rows: usize,
    /// Rows of a stored matrix.
    stored_rows: usize,
    part: Part,
    /// The first stored row, for parts that lie together.
    first: usize,
    delta: Option<DeltaNetConfig>,
    interleaved: Option<Interleaved>,
}

/// Heads of so many rows, in which row i of the first half of `dims` lies beside row i of the second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interleaved {
    pub(super) rows: usize,
    pub(super) dims: usize,
}

impl RowOrder {
    pub(super) fn new(
        shape: &[usize],
        part: Part,
        mixer: Option<&Mixer>,
        interleaved: Option<Interleaved>,
    ) -> Self {
        let rows = rows_of(shape);
        let (attention, delta) = match mixer {
            Some(Mixer::Attention(attention)) => (Some(attention), None),
            Some(Mixer::GatedDeltaNet(delta)) => (None, Some(*delta)),
            None => (None, None),
        };
        let widths = attention.map_or([0; 3], |it| [it.query_rows(), it.key_width(), it.value_width()]);
        let grouped = delta.map_or(0, |delta| 2 * (delta.key_width() + delta.value_width()));
        let (stored_rows, first) = match part {
            Part::All => (rows, 0),
            Part::Query => (widths.iter().sum(), 0),
            Part::Key => (widths.iter().sum(), widths[0]),
            Part::Value => (widths.iter().sum(), widths[0] + widths[1]),
            Part::Gate => (2 * rows, 0),
            Part::Up => (2 * rows, rows),
            Part::EvenRows | Part::OddRows | Part::GroupedStrength | Part::GroupedDecay => (2 * rows, 0),
            Part::GroupedQueryKeyValue | Part::GroupedOutputGate => (grouped, 0),
        };
        Self { rows, stored_rows, part, first, delta, interleaved }
    }

    /// Whether the stored bytes are the weight's.
    pub(super) fn is_stored_order(&self) -> bool {
        self.part == Part::All && self.interleaved.is_none()
    }

    /// The shape that a stored tensor has which this part is of.
    pub(super) fn stored_shape(&self, shape: &[usize], transposed: bool) -> Vec<usize> {
        let mut stored = shape.to_vec();
        let place = row_dimension(shape);
        stored[place] = self.stored_rows;
        if transposed && shape.len() == 3 {
            stored.swap(1, 2);
        }
        stored
    }

    /// The weight's bytes from its tensors: one for all matrices, or one each.
    pub(super) fn gather(&self, tensors: &[Cow<'_, [u8]>], format: Format, shape: &[usize]) -> Vec<u8> {
        let columns: usize = shape[row_dimension(shape) + 1..].iter().product();
        let row_bytes = format.row_bytes(columns).expect("the shape was checked");
        let matrices: usize = shape.iter().product::<usize>() / (self.rows * columns).max(1);
        let mut bytes = Vec::with_capacity(matrices * self.rows * row_bytes);
        for matrix in 0..matrices {
            let (tensor, first) = match tensors {
                [tensor] => (tensor, matrix * self.stored_rows),
                _ => (&tensors[matrix], 0),
            };
            if self.is_stored_order() {
                let matrix_bytes = self.rows * row_bytes;
                bytes.extend_from_slice(&tensor[first * row_bytes..first * row_bytes + matrix_bytes]);
                continue;
            }
            for row in 0..self.rows {
                let stored = first + self.stored_row(row);
                bytes.extend_from_slice(&tensor[stored * row_bytes..(stored + 1) * row_bytes]);
            }
        }
        bytes
    }

    /// The bytes of a stack `[matrices, rows, columns]` that is stored as `[matrices, columns, stored rows]`.
    pub(super) fn columns(&self, tensor: &[u8], format: Format, shape: &[usize]) -> Vec<u8> {
        let (matrices, columns) = (shape[0], shape[2]);
        let element = format.block_bytes();
        let mut bytes = Vec::with_capacity(matrices * self.rows * columns * element);
        for matrix in 0..matrices {
            for row in 0..self.rows {
                let stored = self.stored_row(row);
                for column in 0..columns {
                    let at = ((matrix * columns + column) * self.stored_rows + stored) * element;
                    bytes.extend_from_slice(&tensor[at..at + element]);
                }
            }
        }
        bytes
    }

    /// The stored row of a row of the weight.
    fn stored_row(&self, row: usize) -> usize {
        let row = self.interleaved.map_or(row, |interleaved| interleaved.stored_row(row));
        match (self.part, self.delta) {
            (Part::All | Part::Query | Part::Key | Part::Value | Part::Gate | Part::Up, _) => {
                self.first + row
            }
            (Part::EvenRows, _) => 2 * row,
            (Part::OddRows, _) => 2 * row + 1,
            (part, Some(delta)) => grouped_row(part, &delta, row),
            (
                Part::GroupedQueryKeyValue
                | Part::GroupedOutputGate
                | Part::GroupedStrength
                | Part::GroupedDecay,
                None,
            ) => row,
        }
    }
}

impl Interleaved {
    fn stored_row(self, row: usize) -> usize {
        let (head, place) = (row / self.rows, row % self.rows);
        let half = self.dims / 2;
        let stored = if place < self.dims { 2 * (place % half) + place / half } else { place };
        head * self.rows + stored
    }
}

/// A group has q and k of one key head, then v and z of its value heads; or b and then a of its value heads.
fn grouped_row(part: Part, delta: &DeltaNetConfig, row: usize) -> usize {
    let each = delta.value_heads / delta.key_heads;
    let (key_dim, value_dim) = (delta.key_dim, delta.value_dim);
    let group_rows = 2 * (key_dim + each * value_dim);
    let value_row = |row: usize, before: usize| {
        let (head, place) = (row / value_dim, row % value_dim);
        head / each * group_rows + before + head % each * value_dim + place
    };
    let keys = delta.key_width();
    match part {
        Part::GroupedQueryKeyValue if row < keys => row / key_dim * group_rows + row % key_dim,
        Part::GroupedQueryKeyValue if row < 2 * keys => {
            let row = row - keys;
            row / key_dim * group_rows + key_dim + row % key_dim
        }
        Part::GroupedQueryKeyValue => value_row(row - 2 * keys, 2 * key_dim),
        Part::GroupedOutputGate => value_row(row, 2 * key_dim + each * value_dim),
        Part::GroupedStrength => row / each * 2 * each + row % each,
        Part::GroupedDecay => row / each * 2 * each + each + row % each,
        Part::All
        | Part::Query
        | Part::Key
        | Part::Value
        | Part::Gate
        | Part::Up
        | Part::EvenRows
        | Part::OddRows => row,
    }
}

/// The dimension of a weight that counts the rows of a matrix.
fn row_dimension(shape: &[usize]) -> usize {
    shape.len().saturating_sub(2)
}

fn rows_of(shape: &[usize]) -> usize {
    shape.get(row_dimension(shape)).copied().unwrap_or(1)
}
