//! NVFP4 in GGUF: `NAME.weight` in blocks with 8-bit scales, and beside it `NAME.scale`, one number or one an expert.
//!
//! They become [`Format::Nvfp4Scaled`], 5 bits a weight for the file's 4.5. A weight that has no such scale stays
//! [`Format::Nvfp4`]. Source: the llama.cpp project, which multiplies the product with the weight by the scale.

use gannet_tensor::Format;

use super::{Module, PackedTensor, Recipe};
use crate::FormatError;
use crate::stored::StoredTensors;

/// An NVFP4 weight and its scales.
#[derive(Debug)]
pub(super) struct Nvfp4 {
    codes: usize,
    scales: Vec<f32>,
}

/// The weight of the module, if it has a scale of its own.
pub(super) fn scaled(module: &Module<'_>) -> Result<Option<PackedTensor>, FormatError> {
    let codes = module.codes;
    let Some(scale) = module.optional(".scale")? else { return Ok(None) };
    scale.expect_format(module.stored, &[Format::F32])?;
    let shape = codes.tensor.shape;
    let is_one_each = shape.len() == 3 && scale.tensor.shape == &shape[..1] && shape[0] > 0;
    if !is_one_each && scale.tensor.elements() != 1 {
        return Err(scale.wrong_shape(module.stored, "one number, or one an expert"));
    }
    let recipe = Recipe::Nvfp4(Nvfp4 { codes: codes.place, scales: scale.tensor.decode()? });
    let parts = [Some(codes), Some(scale), module.optional(".input_scale")?];
    module.packed(module.weight_name(), shape, Format::Nvfp4Scaled, &parts, recipe).map(Some)
}

impl Nvfp4 {
    pub(super) fn fill(&self, stored: &StoredTensors, out: &mut [u8]) {
        let blocks = stored.bytes(self.codes).as_chunks::<36>().0;
        let in_one = (blocks.len() / self.scales.len()).max(1);
        for (index, (block, out)) in blocks.iter().zip(out.as_chunks_mut::<40>().0).enumerate() {
            out[..4].copy_from_slice(&self.scales[index / in_one].to_le_bytes());
            for sub_block in 0..4 {
                out[4 + sub_block] = without_sign(block[sub_block]);
                let codes = &block[4 + 8 * sub_block..][..8];
                let code = |i: usize| codes[i % 8] >> (4 * (i / 8)) & 15;
                for pair in 0..8 {
                    out[8 + 8 * sub_block + pair] = code(2 * pair) | code(2 * pair + 1) << 4;
                }
            }
        }
    }
}

/// A scale of GGUF, which has no sign and is 0 where it would be no number.
fn without_sign(scale: u8) -> u8 {
    let magnitude = scale & 0x7f;
    if magnitude == 0x7f { 0 } else { magnitude }
}
