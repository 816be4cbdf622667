//! Weights of 4-bit floats (E2M1), two a byte, the first one in the low half, with a scale for each 32 or 16.
//!
//! ```text
//!                      codes                              scales                          becomes
//! gpt-oss              NAME_blocks [.., columns / 32, 16] NAME_scales [.., columns / 32]  MXFP4 `NAME`
//! compressed-tensors   NAME.weight_packed [rows, columns / 2]
//!   MXFP4                                                 weight_scale [rows, columns / 32], E8M0 in bytes
//!   NVFP4                                                 weight_scale [rows, columns / 16], E4M3; weight_global_scale
//! ModelOpt             NAME.weight [rows, columns / 2]    weight_scale [rows, columns / 16], E4M3; weight_scale_2
//! ```
//!
//! MXFP4 becomes GGUF's `mxfp4`, which has other pairs of codes in a byte: as many bytes as in the file, and exact.
//! NVFP4 becomes [`Format::Nvfp4Scaled`], 5 bits a weight for the file's 4.5; rows that are no multiple of 64 become
//! single precision.
//!
//! ModelOpt's second scale is a factor. The one of compressed-tensors is a divisor; it is taken as the factor 1 / g,
//! rounded to float32, as vLLM does, so that a value may differ in its last bits from one that was divided.

use gannet_tensor::Format;

use super::{Module, PackedTensor, Part, Recipe, floats};
use crate::FormatError;
use crate::stored::StoredTensors;

/// A weight of 4-bit floats.
#[derive(Debug)]
pub(super) struct Float4 {
    codes: usize,
    scale: usize,
    whole: Option<WholeScale>,
}

/// The scale of a whole NVFP4 tensor.
#[derive(Debug)]
struct WholeScale {
    place: usize,
    is_divisor: bool,
}

/// Columns that share a scale.
const MX_GROUP: usize = 32;
const NV_GROUP: usize = 16;

/// The weight `NAME` of `NAME_blocks` and `NAME_scales`.
pub(super) fn blocks(module: &Module<'_>) -> Result<PackedTensor, FormatError> {
    let (codes, scale) = (module.codes, module.required("_scales")?);
    for part in [codes, scale] {
        part.expect_format(module.stored, &[Format::U8])?;
    }
    let [outer @ .., groups, 16] = codes.tensor.shape else {
        return Err(codes.wrong_shape(module.stored, "groups of 16 bytes"));
    };
    scale.expect_shape(module.stored, &codes.tensor.shape[..codes.tensor.shape.len() - 1])?;
    let shape: Vec<usize> = outer.iter().copied().chain([groups * MX_GROUP]).collect();
    let recipe = Recipe::Float4(Float4 { codes: codes.place, scale: scale.place, whole: None });
    module.packed(module.stem.to_owned(), &shape, Format::Mxfp4, &[Some(codes), Some(scale)], recipe)
}

/// The weight of pairs of codes in bytes, MXFP4 or NVFP4 by the type of its scales.
pub(super) fn pairs(module: &Module<'_>) -> Result<PackedTensor, FormatError> {
    let (codes, scale) = (module.codes, module.required(".weight_scale")?);
    let [rows, bytes] = codes.matrix(module.stored)?;
    let columns = bytes.checked_mul(2).ok_or_else(|| codes.wrong_shape(module.stored, "fewer columns"))?;
    let is_nv = scale.tensor.format == Format::F8E4M3;
    let group = if is_nv { NV_GROUP } else { MX_GROUP };
    if !columns.is_multiple_of(group) {
        return Err(codes.wrong_shape(module.stored, format!("a multiple of {} bytes a row", group / 2)));
    }
    scale.expect_format(module.stored, &[Format::F8E4M3, Format::U8, Format::F8E8M0])?;
    scale.expect_shape(module.stored, &[rows, columns / group])?;
    let second = if is_nv { Some(second_scale(module)?) } else { None };
    let format = match is_nv {
        false => Format::Mxfp4,
        true if columns.is_multiple_of(Format::Nvfp4Scaled.block_elements()) => Format::Nvfp4Scaled,
        true => Format::F32,
    };
    let (second, whole) = second.unzip();
    let recipe = Recipe::Float4(Float4 { codes: codes.place, scale: scale.place, whole });
    module.packed(module.weight_name(), &[rows, columns], format, &[Some(codes), Some(scale), second], recipe)
}

fn second_scale<'a>(module: &Module<'a>) -> Result<(Part<'a>, WholeScale), FormatError> {
    let part = module.required_any(&[".weight_scale_2", ".weight_global_scale"])?;
    part.expect_format(module.stored, &[Format::F32])?;
    if !matches!(part.tensor.shape, [] | [1]) {
        return Err(part.wrong_shape(module.stored, "one number"));
    }
    let is_divisor = part.tensor.name.ends_with("_global_scale");
    Ok((part, WholeScale { place: part.place, is_divisor }))
}

impl Float4 {
    pub(super) fn fill(&self, stored: &StoredTensors, format: Format, out: &mut [u8]) {
        let (codes, scales) = (stored.bytes(self.codes), stored.bytes(self.scale));
        let Some(whole) = &self.whole else { return mxfp4(codes, scales, out) };
        let [found] = floats(stored, whole.place, Format::F32)[..] else { return };
        let factor = if whole.is_divisor { 1.0 / found } else { found };
        if format == Format::Nvfp4Scaled {
            nvfp4_scaled(codes, scales, factor, out);
        } else {
            nvfp4_as_f32(codes, scales, factor, out);
        }
    }
}

/// Blocks of `mxfp4`: the scale, then byte `i` with codes `i` and `i + 16`.
fn mxfp4(codes: &[u8], scales: &[u8], out: &mut [u8]) {
    let blocks = codes.as_chunks::<16>().0.iter().zip(scales);
    for ((pairs, scale), out) in blocks.zip(out.as_chunks_mut::<17>().0) {
        let code = |index: usize| pairs[index / 2] >> (4 * (index % 2)) & 15;
        out[0] = *scale;
        for i in 0..16 {
            out[1 + i] = code(i) | code(i + 16) << 4;
        }
    }
}

fn nvfp4_scaled(codes: &[u8], scales: &[u8], factor: f32, out: &mut [u8]) {
    let blocks = codes.as_chunks::<32>().0.iter().zip(scales.as_chunks::<4>().0);
    for ((codes, scales), out) in blocks.zip(out.as_chunks_mut::<40>().0) {
        out[..4].copy_from_slice(&factor.to_le_bytes());
        out[4..8].copy_from_slice(scales);
        out[8..].copy_from_slice(codes);
    }
}

fn nvfp4_as_f32(codes: &[u8], scales: &[u8], factor: f32, out: &mut [u8]) {
    let groups = codes.as_chunks::<{ NV_GROUP / 2 }>().0.iter().zip(scales);
    for ((codes, scale), out) in groups.zip(out.chunks_exact_mut(4 * NV_GROUP)) {
        let mut scales = [0.0];
        Format::F8E4M3.decode(&[*scale], &mut scales);
        let mut values = [0.0; NV_GROUP];
        Format::F4E2M1.decode(codes, &mut values);
        for (value, out) in values.into_iter().zip(out.as_chunks_mut::<4>().0) {
            *out = (factor * scales[0] * value).to_le_bytes();
        }
    }
}
