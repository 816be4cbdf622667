//! Weights that a checkpoint holds in parts, codes here, scales and zeros there, as one tensor each.
//!
//! `quantization_config` of config.json names the method ([`Method`]); which weights are packed, and how, is seen from
//! their tensors, so that lists of exceptions need no reading. A part that no weight takes is an error: the weight
//! beside it would be read without its scale.
//!
//! What a weight becomes is decided by exactness: a block format that holds the stored codes, scales and zeros as they
//! are, else single precision. Nothing is rounded that the method itself doesn't round (`float4` names the exception).
//! Parts are checked when the checkpoint is opened; a weight is put together when its bytes are asked for.
//!
//! Knows no architecture; the names of modules say nothing here.

mod codes;
mod float4;
mod float8;
mod method;
mod nvfp4;

use std::path::Path;

use gannet_tensor::Format;
use serde_json::{Map, Value};

use crate::FormatError;
use crate::stored::StoredTensors;
use crate::tensor::Tensor;
use codes::Codes;
use float4::Float4;
use float8::Float8;
use method::{Awq, Method};
use nvfp4::Nvfp4;

/// A weight that is stored in parts.
#[derive(Debug)]
pub(crate) struct PackedTensor {
    /// The name that it would have in one: `NAME.weight`, or `NAME` for `NAME_blocks`.
    pub(crate) name: String,
    /// The dimensions, outermost first.
    pub(crate) shape: Vec<usize>,
    /// What it becomes.
    pub(crate) format: Format,
    /// The bytes of that.
    pub(crate) byte_length: usize,
    /// The places of its parts, at least one, the codes first.
    pub(crate) parts: Vec<usize>,
    recipe: Recipe,
}

#[derive(Debug)]
enum Recipe {
    Codes(Codes),
    Float8(Float8),
    Float4(Float4),
    Nvfp4(Nvfp4),
}

impl PackedTensor {
    /// Puts the weight together in `out`, which is zeroed and has [`byte_length`](Self::byte_length) bytes.
    pub(crate) fn fill(&self, stored: &StoredTensors, out: &mut [u8]) {
        match &self.recipe {
            Recipe::Codes(codes) => codes.fill(stored, self.format, out),
            Recipe::Float8(float8) => float8.fill(stored, self.format, out),
            Recipe::Float4(float4) => float4.fill(stored, self.format, out),
            Recipe::Nvfp4(nvfp4) => nvfp4.fill(stored, out),
        }
    }
}

/// Finds the packed weights among `stored`; `file` is the config.json that `config` is of.
pub(crate) fn find(
    file: &Path,
    config: &Map<String, Value>,
    stored: &StoredTensors,
) -> Result<Vec<PackedTensor>, FormatError> {
    let method = Method::read(file, config)?;
    let mut packed = Vec::new();
    let mut taken = vec![false; stored.len()];
    for place in 0..stored.len() {
        let Some(module) = Module::of(stored, &method, place) else { continue };
        let tensor = module.pack(&method)?;
        if stored.place(&tensor.name).is_some_and(|other| other != place) {
            let file = stored.file_of(place).path().to_path_buf();
            return Err(FormatError::DuplicateTensor { file, tensor: tensor.name });
        }
        tensor.parts.iter().for_each(|&part| taken[part] = true);
        packed.push(tensor);
    }
    match (0..stored.len()).find(|&place| !taken[place] && is_part(&method, stored.name(place))) {
        None => Ok(packed),
        Some(place) => Err(FormatError::StrayPart {
            file: stored.file_of(place).path().to_path_buf(),
            tensor: stored.name(place).to_owned(),
            why: method.why_stray(),
        }),
    }
}

/// Finds the packed weights of a GGUF file.
pub(crate) fn find_in_gguf(stored: &StoredTensors) -> Result<Vec<PackedTensor>, FormatError> {
    let mut packed = Vec::new();
    for place in 0..stored.len() {
        let Ok(tensor) = stored.tensor(place) else { continue };
        let Some(stem) = tensor.name.strip_suffix(".weight") else { continue };
        if tensor.format == Format::Nvfp4 {
            packed.extend(nvfp4::scaled(&Module { stored, stem, codes: Part { place, tensor } })?);
        }
    }
    Ok(packed)
}

/// Whether a tensor of this name only has a meaning beside others.
fn is_part(method: &Method, name: &str) -> bool {
    const ENDINGS: [&str; 9] = [
        ".qweight",
        ".qzeros",
        ".g_idx",
        ".weight_packed",
        ".weight_scale",
        ".weight_scale_inv",
        ".weight_scale_2",
        ".weight_global_scale",
        ".weight_zero_point",
    ];
    // Names that say nothing by themselves.
    let own = match method {
        Method::Gptq(_) | Method::Awq(_) => name.ends_with(".scales"),
        Method::Mxfp4 => name.ends_with("_scales"),
        Method::Plain | Method::Float8(_) | Method::CompressedTensors | Method::ModelOpt => false,
    };
    own || ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// Tensors that say something about activations, which are not quantised here.
const ABOUT_ACTIVATIONS: [&str; 4] =
    [".input_scale", ".input_zero_point", ".input_global_scale", ".activation_scale"];

/// The tensors of one packed weight, found by the one that holds its codes.
struct Module<'a> {
    stored: &'a StoredTensors,
    /// What the names of all parts begin with.
    stem: &'a str,
    codes: Part<'a>,
}

/// One of them.
#[derive(Clone, Copy)]
struct Part<'a> {
    place: usize,
    tensor: Tensor<'a>,
}

impl<'a> Module<'a> {
    /// The packed weight whose codes are at `place`, if they are codes of the method.
    fn of(stored: &'a StoredTensors, method: &Method, place: usize) -> Option<Self> {
        let tensor = stored.tensor(place).ok()?;
        let stem = method.stem(tensor.name, tensor.format)?;
        Some(Self { stored, stem, codes: Part { place, tensor } })
    }

    fn pack(&self, method: &Method) -> Result<PackedTensor, FormatError> {
        let mut packed = match (method, self.codes.tensor.format) {
            (Method::Gptq(gptq), _) => codes::gptq(self, *gptq),
            (Method::Awq(Awq::Gemm), _) => codes::awq(self),
            (Method::Awq(Awq::Gemv(group)), _) => codes::awq_rows(self, *group),
            (Method::Mxfp4, _) => float4::blocks(self),
            (_, Format::I32) => codes::packed_rows(self),
            (_, Format::I8) => codes::bytes(self),
            (_, Format::U8) => float4::pairs(self),
            _ => float8::scaled(self, method.block()),
        }?;
        for ending in ABOUT_ACTIVATIONS {
            packed.parts.extend(self.optional(ending)?.map(|part| part.place));
        }
        Ok(packed)
    }

    /// The part whose name ends so, if it is there.
    fn optional(&self, ending: &str) -> Result<Option<Part<'a>>, FormatError> {
        let name = format!("{}{ending}", self.stem);
        let Some(place) = self.stored.place(&name) else { return Ok(None) };
        match self.stored.tensor(place) {
            Ok(tensor) => Ok(Some(Part { place, tensor })),
            Err(unsupported) => Err(FormatError::UnsupportedTensor {
                file: self.stored.file_of(place).path().to_path_buf(),
                tensor: name,
                kind: unsupported.kind.to_owned(),
                supported: Format::ALL.map(Format::name).join(", "),
            }),
        }
    }

    fn required(&self, ending: &str) -> Result<Part<'a>, FormatError> {
        self.optional(ending)?.ok_or_else(|| FormatError::MissingPart {
            file: self.stored.file_of(self.codes.place).path().to_path_buf(),
            tensor: self.codes.tensor.name.to_owned(),
            part: format!("{}{ending}", self.stem),
        })
    }

    /// The one of these parts that is there; the last one is named where none is.
    fn required_any(&self, endings: &[&str]) -> Result<Part<'a>, FormatError> {
        let (last, others) = endings.split_last().expect("a part has a name");
        for ending in others {
            if let Some(part) = self.optional(ending)? {
                return Ok(part);
            }
        }
        self.required(last)
    }

    /// The packed weight `name` of these parts. Its bytes are at most eight times those of its codes, which are there.
    fn packed(
        &self,
        name: String,
        shape: &[usize],
        format: Format,
        parts: &[Option<Part<'_>>],
        recipe: Recipe,
    ) -> Result<PackedTensor, FormatError> {
        let file = self.stored.file_of(self.codes.place).path();
        let byte_length = crate::tensor::byte_length(file, &name, shape, format)?;
        let parts = parts.iter().flatten().map(|part| part.place).collect();
        Ok(PackedTensor { name, shape: shape.to_vec(), format, byte_length, parts, recipe })
    }

    fn weight_name(&self) -> String {
        format!("{}.weight", self.stem)
    }
}

impl Part<'_> {
    /// An error unless the part is in one of `formats`.
    fn expect_format(&self, stored: &StoredTensors, formats: &[Format]) -> Result<(), FormatError> {
        if formats.contains(&self.tensor.format) {
            return Ok(());
        }
        Err(FormatError::PartFormat {
            file: stored.file_of(self.place).path().to_path_buf(),
            tensor: self.tensor.name.to_owned(),
            found: self.tensor.format.name(),
            expected: formats.iter().map(|format| format.name()).collect::<Vec<_>>().join(" or "),
        })
    }

    fn expect_shape(&self, stored: &StoredTensors, shape: &[usize]) -> Result<(), FormatError> {
        if self.tensor.shape == shape { Ok(()) } else { Err(self.wrong_shape(stored, format!("{shape:?}"))) }
    }

    fn wrong_shape(&self, stored: &StoredTensors, expected: impl Into<String>) -> FormatError {
        FormatError::PartShape {
            file: stored.file_of(self.place).path().to_path_buf(),
            tensor: self.tensor.name.to_owned(),
            found: self.tensor.shape.to_vec(),
            expected: expected.into(),
        }
    }

    /// Rows and columns.
    fn matrix(&self, stored: &StoredTensors) -> Result<[usize; 2], FormatError> {
        self.tensor.shape.try_into().map_err(|_| self.wrong_shape(stored, "two dimensions"))
    }
}

/// A tensor of floats as single-precision numbers, bytes as powers of two (E8M0), which some writers have for want of a
/// type.
fn floats(stored: &StoredTensors, place: usize, format: Format) -> Vec<f32> {
    let format = if format == Format::U8 { Format::F8E8M0 } else { format };
    let bytes = stored.bytes(place);
    let mut values = vec![0.0; bytes.len() / format.block_bytes()];
    format.decode(bytes, &mut values);
    values
}

/// Formats of scales.
const FLOATS: [Format; 5] = [Format::F32, Format::F16, Format::Bf16, Format::F8E8M0, Format::U8];
