//! Weights of 8-bit floats with scales: one for the tensor, one a row, or one a block of rows and columns.
//!
//! ```text
//! NAME.weight                            [rows, columns], E4M3 or E5M2
//! NAME.weight_scale_inv or weight_scale  [], [1], [rows], [rows, 1], or [rows / block rows, columns / block columns],
//!                                        rounded up; f32, f16, bf16, or E8M0 in bytes
//! ```
//!
//! value = weight x scale, rounded once in float32, whichever of the two names the scale has. E4M3 becomes
//! [`Format::F8Scaled`]: 9 bits a weight for the file's 8, and the time of a copy. E5M2, rows that are no multiple of
//! 32 and blocks of columns that are none become single precision: four times the file's bytes.
//!
//! Source: `finegrained_fp8` and `fbgemm_fp8` of transformers; `float-quantized` of compressed-tensors; NVIDIA's ModelOpt.

use gannet_tensor::Format;

use super::{FLOATS, Module, PackedTensor, Part, Recipe, floats};
use crate::FormatError;
use crate::stored::StoredTensors;

/// A weight of 8-bit floats: where its parts are, and which scale counts for what.
#[derive(Debug)]
pub(super) struct Float8 {
    weight: usize,
    weight_format: Format,
    scale: usize,
    scale_format: Format,
    columns: usize,
    // Rows and columns that share a scale, both above 0.
    block: [usize; 2],
}

/// Elements of a block of [`Format::F8Scaled`].
const ELEMENTS: usize = Format::F8Scaled.block_elements();

/// The weight of the module whose codes are 8-bit floats. `block` is what the config says of rows and columns that
/// share a scale.
pub(super) fn scaled(module: &Module<'_>, block: Option<[usize; 2]>) -> Result<PackedTensor, FormatError> {
    let weight = module.codes;
    let shape = weight.matrix(module.stored)?;
    let scale = module.required_any(&[".weight_scale_inv", ".weight_scale"])?;
    scale.expect_format(module.stored, &FLOATS)?;
    let block = shared_by(module.stored, scale, shape, block)?;
    let weight_format = weight.tensor.format;
    let [_, columns] = shape;
    let fits = columns.is_multiple_of(ELEMENTS) && (block[1].is_multiple_of(ELEMENTS) || block[1] >= columns);
    let format = if fits && weight_format == Format::F8E4M3 { Format::F8Scaled } else { Format::F32 };
    let recipe = Float8 {
        weight: weight.place,
        weight_format,
        scale: scale.place,
        scale_format: scale.tensor.format,
        columns,
        block,
    };
    let parts = [Some(weight), Some(scale)];
    module.packed(module.weight_name(), &shape, format, &parts, Recipe::Float8(recipe))
}

/// Rows and columns that share one of the scales.
fn shared_by(
    stored: &StoredTensors,
    scale: Part<'_>,
    [rows, columns]: [usize; 2],
    said: Option<[usize; 2]>,
) -> Result<[usize; 2], FormatError> {
    let parts = |length: usize, parts: usize| {
        (0 < parts && parts <= length && length.is_multiple_of(parts)).then(|| length / parts)
    };
    let found = match *scale.tensor.shape {
        [] | [1] | [1, 1] => return Ok([rows.max(1), columns.max(1)]),
        [length] | [length, 1] if length == rows => return Ok([1, columns.max(1)]),
        [down, across] => match said {
            Some([high, wide]) => {
                (down == rows.div_ceil(high) && across == columns.div_ceil(wide)).then_some([high, wide])
            }
            None => parts(rows, down).zip(parts(columns, across)).map(|(high, wide)| [high, wide]),
        },
        _ => None,
    };
    found.ok_or_else(|| {
        let blocks =
            said.map_or("blocks that divide both".to_owned(), |block| format!("blocks of {block:?}"));
        scale.wrong_shape(
            stored,
            format!(
                "one scale, {rows} for the rows, or one for each of {blocks} of shape {:?}",
                [rows, columns]
            ),
        )
    })
}

impl Float8 {
    pub(super) fn fill(&self, stored: &StoredTensors, format: Format, out: &mut [u8]) {
        if self.columns == 0 {
            return;
        }
        let scales = floats(stored, self.scale, self.scale_format);
        let [high, wide] = self.block;
        let across = self.columns.div_ceil(wide);
        let weight = stored.bytes(self.weight);
        let out_row = format.row_bytes(self.columns).expect("rows are whole blocks of the format");
        let rows = weight.chunks_exact(self.columns).zip(out.chunks_exact_mut(out_row));
        for (row, (codes, out)) in rows.enumerate() {
            let scales = &scales[row / high * across..][..across];
            if format == Format::F8Scaled {
                scaled_row(codes, scales, wide, out);
            } else {
                self.float_row(codes, scales, wide, out);
            }
        }
    }

    fn float_row(&self, codes: &[u8], scales: &[f32], wide: usize, out: &mut [u8]) {
        let mut values = vec![0.0; codes.len()];
        self.weight_format.decode(codes, &mut values);
        for (column, (value, out)) in values.into_iter().zip(out.as_chunks_mut::<4>().0).enumerate() {
            *out = (value * scales[column / wide]).to_le_bytes();
        }
    }
}

/// A row of [`Format::F8Scaled`]: each block is the scale and the codes.
fn scaled_row(codes: &[u8], scales: &[f32], wide: usize, out: &mut [u8]) {
    let blocks = codes.as_chunks::<ELEMENTS>().0.iter();
    for (index, (codes, out)) in blocks.zip(out.chunks_exact_mut(Format::F8Scaled.block_bytes())).enumerate()
    {
        let (scale, rest) = out.split_at_mut(4);
        scale.copy_from_slice(&scales[index * ELEMENTS / wide].to_le_bytes());
        rest.copy_from_slice(codes);
    }
}
