//! The variants that plans ask for, and those of them that are compiled before a release, so that no kernel fails on a
//! card first: every kernel with every value of each define, but not with all their products.

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
    let tiled = if weight == Number::F32 { "0" } else { "1" };
    Variant::new("embed", &[("W", weight.name()), ("Y", "f32"), ("TILED", tiled)])
}

/// A matrix that rows are multiplied with.
pub(crate) fn linear(weight: Number) -> Variant {
    let is_f32 = if weight == Number::F32 { "1" } else { "0" };
    Variant::new("linear", &[("W", weight.name()), ("Y", "f32"), ("W_IS_F32", is_f32)])
}

/// Rows of `linear_few`'s variants.
pub(crate) const FEW_ROWS: [usize; 4] = [8, 16, 32, 64];
/// Rows, groups of 64 outputs and stages of `linear_many`'s variants, largest first.
pub(crate) const MANY: [[usize; 3]; 4] = [[256, 2, 4], [128, 2, 6], [128, 1, 8], [64, 1, 8]];
/// Elements of a head that the fast kernels of attention are compiled for.
pub(crate) const HEAD_DIMS: [usize; 3] = [64, 128, 256];
/// And those of them that wgmma's takes.
pub(crate) const WIDE_DIMS: [usize; 2] = [64, 128];

const HALVES: [Number; 2] = [Number::F16, Number::Bf16];

/// A product of at most so many rows, sixteen or eight outputs a warp.
pub(crate) fn linear_few(weight: Number, rows: usize, is_narrow: bool) -> Variant {
    let narrow = if is_narrow { "1" } else { "0" };
    Variant::new(
        "linear_few",
        &[("W", weight.name()), ("Y", "f32"), ("ROWS", text(rows)), ("NARROW", narrow)],
    )
}

/// A product of many rows, in a shape of [`MANY`].
pub(crate) fn linear_many(weight: Number, [rows, groups, stages]: [usize; 3]) -> Variant {
    let shape = [("ROWS", text(rows)), ("GROUPS", text(groups)), ("STAGES", text(stages))];
    Variant::new("linear_many", &[&[("W", weight.name()), ("Y", "f32")][..], &shape].concat())
}

/// Pages whose heads lie in core order, as the fast kernels of attention read them.
pub(crate) fn write_tiled_kv(pages: Number) -> Variant {
    Variant::new("write_kv", &[("K", pages.name()), ("V", pages.name()), ("CORE", "1")])
}

/// A fast kernel of attention.
pub(crate) fn tiled_attention(
    file: &'static str,
    (pages, made): (Number, Number),
    dim: usize,
    has_soft_cap: bool,
) -> Variant {
    let plain = [("K", pages.name()), ("Y", made.name()), ("DIM", text(dim))];
    let capped = [&plain[..], &[("SOFT_CAP", "1")]].concat();
    Variant::new(file, if has_soft_cap { &capped } else { &plain })
}

/// The numbers of variants as texts.
fn text(number: usize) -> &'static str {
    const TEXTS: [(usize, &str); 10] = [
        (1, "1"),
        (2, "2"),
        (4, "4"),
        (6, "6"),
        (8, "8"),
        (16, "16"),
        (32, "32"),
        (64, "64"),
        (128, "128"),
        (256, "256"),
    ];
    let found = TEXTS.into_iter().find(|(known, _)| *known == number);
    found.map(|(_, text)| text).expect("the numbers of variants are listed")
}

fn products() -> impl Iterator<Item = Variant> {
    HALVES.into_iter().flat_map(|weight| {
        let few = FEW_ROWS
            .into_iter()
            .flat_map(move |rows| [false, true].map(|is_narrow| linear_few(weight, rows, is_narrow)));
        few.chain(MANY.map(|shape| linear_many(weight, shape)))
    })
}

fn attentions() -> Vec<Variant> {
    let mut all: Vec<Variant> = HALVES.map(write_tiled_kv).to_vec();
    let files = [
        ("attention_split", &HEAD_DIMS[..]),
        ("attention_prefill", &HEAD_DIMS),
        ("attention_wide", &WIDE_DIMS),
    ];
    for (file, dims) in files {
        for (dim, has_soft_cap) in dims.iter().flat_map(|dim| [false, true].map(|cap| (*dim, cap))) {
            all.extend(HALVES.map(|half| tiled_attention(file, (half, half), dim, has_soft_cap)));
        }
        all.push(tiled_attention(file, (Number::F16, Number::Bf16), dims[0], false));
        all.push(tiled_attention(file, (Number::F16, Number::F32), dims[0], false));
    }
    all
}

/// The variants that are compiled before a release.
pub(super) fn tested() -> Vec<Variant> {
    let mut all: Vec<Variant> = AXES.iter().flat_map(|(file, axes)| product(file, axes)).collect();
    all.extend(Number::ALL.map(embed));
    all.extend(Number::ALL.map(linear));
    all.extend(products());
    all.extend(attentions());
    all
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
