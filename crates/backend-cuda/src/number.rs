//! The formats in which the device keeps numbers of weights, values and pages.

use gannet_ops::{KvFormat, PAGE_TOKENS, PagedLayout};
use gannet_tensor::Format;
use half::{bf16, f16};

/// A format of plain numbers, named as the kernels name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Number {
    F32,
    F16,
    Bf16,
}

impl Number {
    /// All formats.
    pub(crate) const ALL: [Number; 3] = [Number::F32, Number::F16, Number::Bf16];
    /// The type's name in the kernels.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Number::F32 => "f32",
            Number::F16 => "f16",
            Number::Bf16 => "bf16",
        }
    }

    pub(crate) const fn bytes(self) -> usize {
        match self {
            Number::F32 => 4,
            Number::F16 | Number::Bf16 => 2,
        }
    }

    /// The format of a checkpoint's tensor, where it is one of plain numbers.
    pub(crate) fn of_tensor(format: Format) -> Option<Self> {
        Self::ALL.into_iter().find(|number| number.tensor_format() == format)
    }

    const fn tensor_format(self) -> Format {
        match self {
            Number::F32 => Format::F32,
            Number::F16 => Format::F16,
            Number::Bf16 => Format::Bf16,
        }
    }

    /// The format of keys or values, where it is one of plain numbers.
    const fn of_kv(format: KvFormat) -> Option<Self> {
        match format {
            KvFormat::F32 => Some(Number::F32),
            KvFormat::F16 => Some(Number::F16),
            KvFormat::Bf16 => Some(Number::Bf16),
            KvFormat::Int8 => None,
        }
    }

    /// Numbers from little-endian bytes.
    pub(crate) fn decode(self, bytes: &[u8]) -> Vec<f32> {
        let halves = || bytes.as_chunks::<2>().0.iter().map(|pair| u16::from_le_bytes(*pair));
        match self {
            Number::F32 => bytes.as_chunks::<4>().0.iter().map(|word| f32::from_le_bytes(*word)).collect(),
            Number::F16 => halves().map(|bits| f16::from_bits(bits).to_f32()).collect(),
            Number::Bf16 => halves().map(|bits| bf16::from_bits(bits).to_f32()).collect(),
        }
    }

    /// Numbers to little-endian bytes, each rounded to the nearest.
    pub(crate) fn encode(self, numbers: &[f32]) -> Vec<u8> {
        let halves =
            |bits: &dyn Fn(f32) -> u16| numbers.iter().flat_map(|x| bits(*x).to_le_bytes()).collect();
        match self {
            Number::F32 => numbers.iter().flat_map(|x| x.to_le_bytes()).collect(),
            Number::F16 => halves(&|x| f16::from_f32(x).to_bits()),
            Number::Bf16 => halves(&|x| bf16::from_f32(x).to_bits()),
        }
    }
}

/// How the keys and the values of a layer are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PageFormats {
    /// Plain numbers of these formats.
    Plain(Number, Number),
    /// Both as codes with scales, and keys in half precision beside them until their page is full.
    Int8,
}

impl PageFormats {
    /// Those of a layer, where there are kernels for them.
    pub(crate) const fn of(layout: &PagedLayout) -> Option<Self> {
        if let (KvFormat::Int8, KvFormat::Int8) = (layout.key_format, layout.value_format) {
            return Some(Self::Int8);
        }
        match (Number::of_kv(layout.key_format), Number::of_kv(layout.value_format)) {
            (Some(key), Some(value)) => Some(Self::Plain(key, value)),
            _ => None,
        }
    }

    /// Bytes of the keys of a head in a page, with their scales.
    pub(crate) const fn key_bytes(self, layout: &PagedLayout) -> usize {
        match self {
            Self::Plain(key, _) => PAGE_TOKENS * layout.key_dim * key.bytes(),
            Self::Int8 => (PAGE_TOKENS + size_of::<f16>()) * layout.key_dim,
        }
    }
}
