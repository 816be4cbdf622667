//! Weights out of nothing, in a format that follows from the name.

use gannet_ops::{WeightError, WeightRole, WeightSource, WeightTensor, WeightUse};
use gannet_tensor::Format;
use std::borrow::Cow;
use std::collections::HashMap;

/// A checkpoint that has what some programs ask for; matrices are in whichever format fits their columns and
/// comes next.
pub(crate) struct Generated {
    uses: HashMap<String, (WeightUse, Format)>,
}

impl Generated {
    pub(crate) fn of(uses: &[WeightUse]) -> Self {
        let format = |(place, weight): (usize, &WeightUse)| {
            let columns = *weight.shape.last().expect("a weight has dimensions");
            let fits =
                |format: &Format| format.row_bytes(columns).is_some() && weight.role != WeightRole::Vector;
            let fitting: Vec<Format> = RECIPES.iter().map(|recipe| recipe.format).filter(fits).collect();
            fitting.get(place % fitting.len().max(1)).copied().unwrap_or(Format::F32)
        };
        let with_format = |(place, weight)| (format((place, weight)), weight);
        let entries = uses.iter().enumerate().map(with_format);
        Self {
            uses: entries.map(|(format, weight)| (weight.name.clone(), (weight.clone(), format))).collect(),
        }
    }

    /// All matrices in one format.
    pub(crate) fn in_format(uses: &[WeightUse], format: Format) -> Self {
        let entry = |weight: &WeightUse| {
            let is_vector = weight.role == WeightRole::Vector;
            (weight.name.clone(), (weight.clone(), if is_vector { Format::F32 } else { format }))
        };
        Self { uses: uses.iter().map(entry).collect() }
    }
}

impl WeightSource for Generated {
    fn weight(&self, name: &str) -> Result<WeightTensor<'_>, WeightError> {
        let missing = || WeightError::Missing { name: name.to_owned(), file: "nothing".to_owned() };
        let (weight, format) = self.uses.get(name).ok_or_else(missing)?;
        let elements: usize = weight.shape.iter().product();
        let bytes = match weight.shape.len() {
            1 => numbers(name, elements).flat_map(|x| (1.0 + 0.5 * x).to_le_bytes()).collect(),
            _ => blocks(name, *format, elements),
        };
        Ok(WeightTensor { format: *format, shape: weight.shape.clone(), bytes: Cow::Owned(bytes) })
    }
}

/// Uniform in [-1, 1), determined by name and place.
pub(crate) fn numbers(name: &str, count: usize) -> impl Iterator<Item = f32> + use<> {
    words(name, count).map(|word| (word >> 8) as f32 / (1 << 23) as f32 - 1.0)
}

fn words(name: &str, count: usize) -> impl Iterator<Item = u32> + use<> {
    let hash = |seed: u32, byte: u8| (seed ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let mut state = u64::from(name.bytes().fold(0x811c_9dc5, hash)) << 20;
    (0..count).map(move |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 32) as u32
    })
}

/// A format, and where in a block its f16 scales are; 0 to 2 of them. The second is a minimum.
pub(crate) struct Recipe {
    pub(crate) format: Format,
    scales: &'static [usize],
    /// Keeps values small.
    scale: f32,
}

const fn recipe(format: Format, scales: &'static [usize], scale: f32) -> Recipe {
    Recipe { format, scales, scale }
}

/// Formats of every kind; the last ones have no unpacker of their own.
pub(crate) const RECIPES: [Recipe; 15] = [
    recipe(Format::F32, &[], 0.1),
    recipe(Format::F16, &[], 0.1),
    recipe(Format::Bf16, &[], 0.1),
    recipe(Format::Q4_0, &[0], 0.01),
    recipe(Format::Q4_1, &[0, 2], 0.01),
    recipe(Format::Q5_0, &[0], 0.01),
    recipe(Format::Q5_1, &[0, 2], 0.01),
    recipe(Format::Q8_0, &[0], 0.001),
    recipe(Format::Q4K, &[0, 2], 0.0005),
    recipe(Format::Q5K, &[0, 2], 0.0005),
    recipe(Format::Q6K, &[208], 0.0001),
    recipe(Format::Iq4Nl, &[0], 0.001),
    recipe(Format::Iq4Xs, &[0], 0.0001),
    recipe(Format::Mxfp4, &[], 0.1),
    recipe(Format::Tq2_0, &[64], 0.1),
];

/// Numbers, or random codes with scales that keep values small.
fn blocks(name: &str, format: Format, elements: usize) -> Vec<u8> {
    let recipe =
        RECIPES.iter().find(|recipe| recipe.format == format).expect("tests use formats with a recipe");
    let plain = || numbers(name, elements).map(|x| recipe.scale * x);
    if format == Format::F32 {
        return plain().flat_map(f32::to_le_bytes).collect();
    }
    if format == Format::F16 {
        return plain().flat_map(|x| half::f16::from_f32(x).to_le_bytes()).collect();
    }
    if format == Format::Bf16 {
        return plain().flat_map(|x| half::bf16::from_f32(x).to_le_bytes()).collect();
    }
    let length = elements / format.block_elements() * format.block_bytes();
    let mut bytes: Vec<u8> = words(name, length).map(|word| (word >> 24) as u8).collect();
    for (number, block) in bytes.chunks_mut(format.block_bytes()).enumerate() {
        if format == Format::Mxfp4 {
            block[0] = 120 + (number % 7) as u8;
        }
        let size = recipe.scale * (1.0 + 0.1 * (number % 7) as f32);
        for (place, scale) in recipe.scales.iter().zip([size, -size]) {
            block[*place..place + 2].copy_from_slice(&half::f16::from_f32(scale).to_le_bytes());
        }
    }
    bytes
}
