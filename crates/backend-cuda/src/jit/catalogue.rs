//! Every variant that a plan may ask for: what is compiled before a release, so that no kernel fails on a card first.

use super::variant::{Define, Variant};
use crate::number::Number;

/// The defines of a file's variants, each over all formats.
const AXES: [(&str, &[&str]); 19] = [
    ("add", &[]),
    ("add_rms_norm", &["Y"]),
    ("attention", &["K", "V", "Y"]),
    ("cast", &["Y"]),
    ("clamped_gate", &["Y"]),
    ("concat", &[]),
    ("gather_rows", &["X"]),
    ("gelu_gate", &["Y"]),
    ("head_norm", &[]),
    ("position_scale", &[]),
    ("rms_norm", &["Y"]),
    ("rope", &[]),
    ("sample", &[]),
    ("scale", &[]),
    ("sigmoid_gate", &["Y"]),
    ("silu_gate", &["Y"]),
    ("slice", &["Y"]),
    ("soft_cap", &[]),
    ("write_kv", &["K", "V"]),
];

/// A table that rows are looked up in.
pub(crate) fn embed(weight: Number) -> Variant {
    let core = if weight == Number::F32 { "0" } else { "1" };
    Variant::new("embed", &[("W", weight.name()), ("Y", "f32"), ("CORE", core)])
}

/// A matrix that rows are multiplied with.
pub(crate) fn linear(weight: Number) -> Variant {
    let is_f32 = if weight == Number::F32 { "1" } else { "0" };
    Variant::new("linear", &[("W", weight.name()), ("Y", "f32"), ("W_IS_F32", is_f32)])
}

/// All variants.
pub(super) fn all() -> Vec<Variant> {
    let mut all: Vec<Variant> = AXES.iter().flat_map(|(file, axes)| product(file, axes)).collect();
    all.extend(Number::ALL.map(embed));
    all.extend(Number::ALL.map(linear));
    all
}

/// Whether a variant is compiled before a release.
pub(crate) fn is_known(variant: &Variant) -> bool {
    all().contains(variant)
}

fn product(file: &'static str, axes: &[&'static str]) -> Vec<Variant> {
    let mut lists: Vec<Vec<Define>> = vec![Vec::new()];
    for axis in axes {
        let with =
            |list: &Vec<Define>| Number::ALL.map(|number| [&list[..], &[(*axis, number.name())]].concat());
        lists = lists.iter().flat_map(with).collect();
    }
    lists.iter().map(|list| Variant::new(file, list)).collect()
}
