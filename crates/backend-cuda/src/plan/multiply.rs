//! The launches of products: one for each matrix that a node reads as one, and for codes and many rows one that unpacks them before it.

use super::launches::{Call, Frame, arguments, strided, word};
use super::matrices::Product;
use super::products::{self, Choice};
use crate::codes::Units;
use crate::driver::Argument;
use crate::driver::{Address, TensorMap};
use crate::jit::{Made, Variant};
use crate::number::Number;
use crate::weights::{Stored, Weight};
use gannet_ops::placement::rows_at_most;
use gannet_ops::{Node, ValueId};

/// What a product reads and writes, but for its weights.
struct Sides {
    /// Where x lies in the format of the product.
    read: Address,
    x: ValueId,
    y: Address,
    bias: Address,
    made: Made,
    m: usize,
    k: usize,
    /// Numbers of a row of y.
    stride: usize,
}

impl Sides {
    /// Those of the outputs from `first` on.
    fn from(&self, first: usize) -> Self {
        let bias = match self.bias {
            Address::NONE => Address::NONE,
            bias => bias.offset(first * Number::F32.bytes()),
        };
        let written = if self.made.gate.is_some() { first / 2 } else { first };
        Self { y: self.y.offset(written * self.made.format.bytes()), bias, ..*self }
    }
}

impl Frame<'_> {
    /// The product that a node is or begins with, into memory for numbers of a format; after its input was rounded to the
    /// matrix's format where it isn't in that.
    pub(super) fn product(&self, node: &Node, y: Address, format: Number) -> Vec<Call> {
        let product = self.weights.product(node).expect("the node has a product");
        let (x, k, reads) = (product.x, product.columns(), product.reads());
        let m = self.rows_of(x);
        let mut calls = Vec::new();
        let mut read = (self.values)(x);
        if self.format(x) != reads {
            let need = (Variant::new("cast", &[("Y", reads.name())]), "cast");
            calls.push(strided(need, m * k, arguments![self.rounded, read, (m * k) as u64]));
            read = self.rounded;
        }
        let outputs = product.outputs();
        let stride = if product.gate.is_some() { outputs / 2 } else { outputs };
        let Product { bias, .. } = product;
        let sides = Sides { read, x, y, bias, made: product.made(format), m, k, stride };
        let mut first = 0;
        for part in &product.parts {
            calls.extend(self.part(part, &sides.from(first)));
            first += part.shape[0];
        }
        calls
    }

    fn part(&self, part: &Weight, sides: &Sides) -> Vec<Call> {
        let (n, address) = (part.shape[0], part.buffer.address());
        let sizes = [sides.m, n, sides.k];
        match part.stored {
            Stored::Plain(format) => {
                vec![self.multiply(
                    products::choose(self.device, format, sides.made, sizes),
                    sides,
                    (address, n),
                )]
            }
            Stored::Codes(units) => match products::choose_codes(self.device, units, sides.made, sizes) {
                Some(choice) => vec![self.multiply(choice, sides, (address, n))],
                None => self.unpacked_product((units, address, n), sides),
            },
        }
    }

    /// Some outputs after the other, each unpacked and multiplied.
    fn unpacked_product(&self, (units, codes, n): (Units, Address, usize), sides: &Sides) -> Vec<Call> {
        let (most, _) = products::unpacked([n, sides.k]);
        let mut calls = Vec::new();
        for first in (0..n).step_by(most) {
            let count = most.min(n - first);
            let Choice { variant, entry, grid, block, .. } = products::choose_unpack(units, [count, sides.k]);
            let from = codes.offset(units.matrix_bytes([first, sides.k]));
            let padded = count.next_multiple_of(crate::codes::PAIR_OUTPUTS);
            let arguments = arguments![self.unpacked, from, word(padded), word(sides.k)];
            let (need, grid) = ((variant, entry), [word(grid[0]), 1, 1]);
            calls.push(Call { need, grid, block: word(block), shared_bytes: 0, arguments });
            let choice = products::choose_unpacked(self.device, sides.made, [sides.m, count, sides.k]);
            calls.push(self.multiply(choice, &sides.from(first), (self.unpacked, count)));
        }
        calls
    }

    /// A product with so many outputs of a matrix.
    fn multiply(&self, choice: Choice, sides: &Sides, (matrix, n): (Address, usize)) -> Call {
        let is_of_one_row = choice.is_of_one_row();
        let Choice { variant, entry, box_rows, grid, block, shared_bytes, after } = choice;
        let rows = rows_at_most(self.of(sides.x).rows, self.limits);
        let Sides { read, m, k, y, bias, .. } = *sides;
        let sizes = [m, n, k, sides.stride].map(|size| Argument::from(word(size)));
        let mut arguments = match box_rows {
            None if is_of_one_row => self.one_row([y, read, matrix, bias], [word(n), word(k)], sides.x),
            None => [arguments![y, read, matrix, bias], sizes.to_vec()].concat(),
            Some(box_rows) => {
                let x = self.maps.of(&TensorMap { address: read, rows, columns: k, box_rows });
                [arguments![y, x, matrix, bias], sizes.to_vec()].concat()
            }
        };
        arguments.extend(after.into_iter().map(|number| Argument::from(word(number))));
        let grid = [word(grid[0]), word(grid[1]), 1];
        Call { need: (variant, entry), grid, block: word(block), shared_bytes: word(shared_bytes), arguments }
    }
}
