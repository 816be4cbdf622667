//! The variants that plans ask for, and those of them that are compiled before a release, so that no kernel fails on a
//! card first.

use super::variant::{Define, Variant};
use crate::codes::Units;
use crate::number::{Number, PageFormats};
use crate::weights::Stored;
use gannet_tensor::Format;

/// Files with one variant for each of these lists of defines, beside those that have functions here.
const PLAIN: [(&str, &[&[Define]]); 26] = [
    ("add", &[&[]]),
    ("add_rms_norm", &[&[("Y", "f32")], &[("Y", "f16")], &[("Y", "bf16")]]),
    // Every format of each, and not all their products.
    (
        "attention",
        &[
            &[("K", "f32"), ("V", "f32"), ("Y", "f32")],
            &[("K", "f16"), ("V", "f16"), ("Y", "bf16")],
            &[("K", "bf16"), ("V", "f16"), ("Y", "f16")],
            &[("K", "f16"), ("V", "bf16"), ("Y", "f32")],
        ],
    ),
    ("cast", &[&[("Y", "f32")], &[("Y", "f16")], &[("Y", "bf16")]]),
    ("causal_conv", &[&[]]),
    ("clamped_gate", &[&[("Y", "bf16")]]),
    ("combine_experts", &[&[]]),
    ("concat", &[&[]]),
    ("decay_gate", &[&[]]),
    ("gated_norm", &[&[("Y", "f32")], &[("Y", "f16")], &[("Y", "bf16")]]),
    ("gather_rows", &[&[("X", "f32")], &[("X", "f16")], &[("X", "bf16")]]),
    ("gelu_gate", &[&[("Y", "f32")], &[("Y", "bf16")]]),
    ("head_norm", &[&[]]),
    ("l2_norm", &[&[]]),
    ("position_scale", &[&[]]),
    ("rms_norm", &[&[("Y", "f32")], &[("Y", "f16")], &[("Y", "bf16")]]),
    ("rope", &[&[]]),
    ("route_experts", &[&[]]),
    ("sample", &[&[]]),
    ("scale", &[&[]]),
    ("sigmoid_gate", &[&[("Y", "f32")], &[("Y", "bf16")]]),
    ("silu_gate", &[&[("Y", "f32")], &[("Y", "f16")], &[("Y", "bf16")]]),
    ("slice", &[&[("Y", "f32")], &[("Y", "bf16")]]),
    ("soft_cap", &[&[]]),
    ("finish_qkv", &[&[("K", "f32"), ("V", "f32")]]),
    ("write_kv", &[&[("K", "f32"), ("V", "f32")], &[("K", "f16"), ("V", "bf16")]]),
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

/// A product of f32 of few rows or few outputs, so many rows at once.
pub(crate) fn linear_narrow(rows: usize) -> Variant {
    Variant::new("linear_narrow", &[("ROWS", text(rows))])
}

/// Rows of `linear_narrow`'s variants.
pub(crate) const NARROW_ROWS: [usize; 2] = [1, 8];

/// Elements of a state's column that a thread may have.
const DELTA_PARTS: [usize; 6] = [1, 2, 4, 8, 16, 32];

/// The delta rule, where a thread has so many elements of a column.
pub(crate) fn delta_rule(part: usize) -> Variant {
    Variant::new("gated_delta_rule", &[("PART", text(part))])
}

/// Rows of `linear_few`'s variants.
pub(crate) const FEW_ROWS: [usize; 4] = [8, 16, 32, 64];
/// Rows of `linear_codes`'s variants.
pub(crate) const CODES_ROWS: [usize; 3] = [8, 16, 32];
/// Rows, groups of 64 outputs and stages of `linear_many`'s variants, largest first, and the nanoseconds that a tile takes for 64
/// columns, measured on an H200.
pub(crate) const MANY: [([usize; 3], usize); 5] =
    [([256, 2, 4], 670), ([128, 2, 6], 360), ([128, 1, 8], 265), ([64, 2, 8], 250), ([64, 1, 8], 234)];
/// Elements of a head that the fast kernels of attention are compiled for.
pub(crate) const HEAD_DIMS: [usize; 3] = [64, 128, 256];
/// And those of them that wgmma's takes.
pub(crate) const WIDE_DIMS: [usize; 2] = [64, 128];

/// The function that one half of a product is put through before it multiplies the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    Silu,
    Gelu,
}

/// What a product makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Made {
    pub(crate) format: Number,
    pub(crate) gate: Option<Gate>,
}

impl Made {
    /// Sums as they are.
    pub(crate) const PLAIN: Self = Self { format: Number::F32, gate: None };

    fn defines(self) -> Vec<Define> {
        let gate = self.gate.map(|gate| match gate {
            Gate::Silu => ("GATE", "1"),
            Gate::Gelu => ("GATE", "2"),
        });
        [("Y", self.format.name())].into_iter().chain(gate).collect()
    }
}

/// A product of at most so many rows.
pub(crate) fn linear_few(weight: Number, made: Made, rows: usize) -> Variant {
    let shape = [("W", weight.name()), ("ROWS", text(rows))];
    Variant::new("linear_few", &[&shape[..], &made.defines()].concat())
}

/// A product of one row.
pub(crate) fn linear_one(weight: Number, made: Made) -> Variant {
    Variant::new("linear_one", &[&[("W", weight.name())], &made.defines()[..]].concat())
}

/// A product of one row with codes.
pub(crate) fn linear_one_codes(codes: &'static str) -> Variant {
    Variant::new("linear_one_codes", &[("W", codes), ("Y", Number::F32.name())])
}

/// A product of one row with codes of many outputs.
pub(crate) fn linear_one_wide(codes: &'static str, made: Made) -> Variant {
    Variant::new("linear_one_wide", &[&[("W", codes)], &made.defines()[..]].concat())
}

/// A product of many rows, in a shape of [`MANY`].
pub(crate) fn linear_many(weight: Number, made: Made, [rows, groups, stages]: [usize; 3]) -> Variant {
    let shape =
        [("W", weight.name()), ("ROWS", text(rows)), ("GROUPS", text(groups)), ("STAGES", text(stages))];
    Variant::new("linear_many", &[&shape[..], &made.defines()].concat())
}

/// A product of at most so many rows with codes, of so many units a warp.
pub(crate) fn linear_codes(codes: &'static str, made: Made, [rows, units]: [usize; 2]) -> Variant {
    let shape = [("W", codes), ("ROWS", text(rows)), ("UNITS", text(units))];
    Variant::new("linear_codes", &[&shape[..], &made.defines()].concat())
}

/// Rows of `expert_linear`'s variants.
pub(crate) const EXPERT_ROWS: [usize; 3] = [8, 16, 32];

/// A product of routed rows in a format with the matrices of their experts, so many rows at once.
pub(crate) fn expert_linear(stored: Stored, (x, made): (Number, Made), rows: usize) -> Variant {
    let (name, kind) = match stored {
        Stored::Plain(Number::F32) => (Number::F32.name(), "0"),
        Stored::Plain(number) => (number.name(), "1"),
        Stored::Codes(units) => (units.name(), "2"),
    };
    let shape = [("W", name), ("KIND", kind), ("X", x.name()), ("ROWS", text(rows))];
    Variant::new("expert_linear", &[&shape[..], &made.defines()].concat())
}

/// Rows of `route_normed`'s variants: of one step's only row, and of a cluster's.
pub(crate) const ROUTED_ROWS: [usize; 2] = [1, 4];

/// The norm, the product and the choice of a router, whose normed rows are in a format.
pub(crate) fn route_normed(made: Number, rows: usize) -> Variant {
    Variant::new("route_normed", &[("Y", made.name()), ("ROWS", text(rows))])
}

/// A product of routed rows that are many, in a shape of [`MANY`].
pub(crate) fn experts_many(weight: Number, made: Made, [rows, groups, stages]: [usize; 3]) -> Variant {
    let shape = [
        ("W", weight.name()),
        ("ROWS", text(rows)),
        ("GROUPS", text(groups)),
        ("STAGES", text(stages)),
        ("EXPERTS", "1"),
    ];
    Variant::new("linear_many", &[&shape[..], &made.defines()].concat())
}

/// What makes bf16 of codes.
pub(crate) fn unpack(codes: &'static str) -> Variant {
    Variant::new("unpack", &[("W", codes)])
}

/// What brings matrices of codes together: an entry of the same file.
pub(crate) fn place_units(codes: &'static str) -> Variant {
    unpack(codes)
}

/// A table of codes that rows are looked up in.
pub(crate) fn embed_codes(codes: &'static str) -> Variant {
    Variant::new("embed_codes", &[("W", codes), ("Y", "f32")])
}

/// What writes keys and values into pages, whose heads lie in core order where the fast kernels of attention read them.
pub(crate) fn write_pages(file: &'static str, formats: PageFormats, is_tiled: bool) -> Variant {
    let mut defines = page_defines(formats);
    defines.extend(is_tiled.then_some(("CORE", "1")));
    Variant::new(file, &defines)
}

/// The kernel of attention over plain pages.
pub(crate) fn plain_attention(formats: PageFormats, made: Number) -> Variant {
    let mut defines = page_defines(formats);
    defines.push(("Y", made.name()));
    Variant::new("attention", &defines)
}

/// How kernels are told the formats of keys and values.
fn page_defines(formats: PageFormats) -> Vec<Define> {
    match formats {
        PageFormats::Plain(key, value) => vec![("K", key.name()), ("V", value.name())],
        // What is read of open pages, and what codes become before they are multiplied.
        PageFormats::Int8 => vec![("K", Number::F16.name()), ("INT8", "1")],
    }
}

/// A fast kernel of attention.
pub(crate) fn tiled_attention(
    file: &'static str,
    (pages, made): (PageFormats, Number),
    dim: usize,
    has_soft_cap: bool,
) -> Variant {
    // Keys and values have one format here.
    let mut defines = page_defines(pages);
    defines.retain(|(name, _)| *name != "V");
    defines.extend([("Y", made.name()), ("DIM", text(dim))]);
    defines.extend(has_soft_cap.then_some(("SOFT_CAP", "1")));
    Variant::new(file, &defines)
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

/// Each shape in bf16, one of each kind in f16 too; gates in both functions, and one that is written as float32.
fn products() -> Vec<Variant> {
    let (half, other) = (Number::Bf16, Number::F16);
    let gated = |gate, format| Made { format, gate: Some(gate) };
    let kinds = [Made::PLAIN, gated(Gate::Silu, half)];
    let few = FEW_ROWS.into_iter().flat_map(|rows| kinds.map(|made| linear_few(half, made, rows)));
    let many = MANY.into_iter().flat_map(|(shape, _)| kinds.map(|made| linear_many(half, made, shape)));
    let others = [
        linear_one(half, Made::PLAIN),
        linear_one(half, gated(Gate::Silu, half)),
        linear_one(other, gated(Gate::Gelu, other)),
        linear_few(other, Made::PLAIN, FEW_ROWS[0]),
        linear_few(other, gated(Gate::Gelu, other), FEW_ROWS[1]),
        linear_few(half, gated(Gate::Silu, Number::F32), FEW_ROWS[0]),
        linear_many(other, Made::PLAIN, MANY[0].0),
        linear_many(other, gated(Gate::Gelu, other), MANY[1].0),
    ];
    few.chain(many).chain(others).collect()
}

/// Products by experts: each shape in bf16 and with codes of one format, one of each kind with others.
fn expert_products() -> Vec<Variant> {
    let (half, other) = (Number::Bf16, Number::F16);
    let gated = |gate, format| Made { format, gate: Some(gate) };
    let kinds = [Made::PLAIN, gated(Gate::Silu, half)];
    let coded = Units::of(Format::Q4K).map(Stored::Codes);
    let shapes = [Some(Stored::Plain(half)), coded].into_iter().flatten();
    let few = shapes.flat_map(|stored| {
        EXPERT_ROWS
            .into_iter()
            .flat_map(move |rows| kinds.map(|made| expert_linear(stored, (half, made), rows)))
    });
    let many = MANY.into_iter().filter(|([_, groups, _], _)| *groups == 2);
    let many = many.flat_map(|(shape, _)| kinds.map(|made| experts_many(half, made, shape)));
    let codes = code_names().filter_map(Units::named).map(Stored::Codes);
    let codes = codes.map(|stored| expert_linear(stored, (Number::F32, Made::PLAIN), EXPERT_ROWS[0]));
    let others = [
        expert_linear(Stored::Plain(Number::F32), (Number::F32, Made::PLAIN), EXPERT_ROWS[2]),
        expert_linear(Stored::Plain(other), (other, gated(Gate::Gelu, other)), EXPERT_ROWS[1]),
        experts_many(other, gated(Gate::Gelu, other), MANY[1].0),
    ];
    few.chain(many).chain(codes).chain(others).collect()
}

/// Formats of codes, by name.
fn code_names() -> impl Iterator<Item = &'static str> {
    Format::ALL.into_iter().filter(|format| Units::of(*format).is_some()).map(Format::name)
}

/// Every format: what unpacks it, and a product of each kind; all shapes of one format.
fn codes() -> Vec<Variant> {
    let gated = Made { format: Number::Bf16, gate: Some(Gate::Silu) };
    let of_each = code_names().flat_map(|name| {
        [
            unpack(name),
            embed_codes(name),
            linear_codes(name, Made::PLAIN, [8, 1]),
            linear_codes(name, gated, [16, 2]),
            linear_one_codes(name),
            linear_one_wide(name, Made::PLAIN),
            linear_one_wide(name, gated),
        ]
    });
    of_each.chain(code_products(Format::Q4K.name())).collect()
}

/// Products in each shape with codes of a format.
fn code_products(name: &'static str) -> impl Iterator<Item = Variant> {
    let gated = |gate| Made { format: Number::Bf16, gate: Some(gate) };
    let kinds = [(Made::PLAIN, 1), (Made::PLAIN, 2), (gated(Gate::Silu), 2), (gated(Gate::Gelu), 2)];
    CODES_ROWS
        .into_iter()
        .flat_map(move |rows| kinds.map(|(made, units)| linear_codes(name, made, [rows, units])))
}

/// Each size of heads in each format of pages, a soft cap and other formats of what is made once a file.
fn attentions() -> Vec<Variant> {
    let [half, other] = [Number::F16, Number::Bf16].map(|format| PageFormats::Plain(format, format));
    let mut all: Vec<Variant> = Vec::new();
    for file in ["write_kv", "finish_qkv"] {
        all.push(write_pages(file, half, true));
        all.extend([true, false].map(|is_tiled| write_pages(file, PageFormats::Int8, is_tiled)));
    }
    all.extend([Number::F32, Number::Bf16].map(|made| plain_attention(PageFormats::Int8, made)));
    let files = [
        ("attention_split", &HEAD_DIMS[..]),
        ("attention_prefill", &HEAD_DIMS),
        ("attention_wide", &WIDE_DIMS),
    ];
    for (file, dims) in files {
        for pages in [half, PageFormats::Int8] {
            all.extend(dims.iter().map(|dim| tiled_attention(file, (pages, Number::Bf16), *dim, false)));
            all.push(tiled_attention(file, (pages, Number::F32), dims[0], false));
        }
        for pages in [other, PageFormats::Int8] {
            all.push(tiled_attention(file, (pages, Number::Bf16), dims[dims.len() - 1], true));
        }
    }
    all
}

/// The variants that are compiled before a release: each way through each file's text, and not all products of the formats.
pub(super) fn tested() -> Vec<Variant> {
    let plain = |(file, lists): (&'static str, &[&[Define]])| -> Vec<Variant> {
        lists.iter().map(|list| Variant::new(file, list)).collect()
    };
    let mut all: Vec<Variant> = PLAIN.into_iter().flat_map(plain).collect();
    all.extend(Number::ALL.map(embed));
    all.extend(Number::ALL.map(linear));
    all.extend(NARROW_ROWS.map(linear_narrow));
    all.extend(ROUTED_ROWS.map(|rows| route_normed(Number::F32, rows)));
    all.push(route_normed(Number::Bf16, ROUTED_ROWS[0]));
    all.extend(DELTA_PARTS.map(delta_rule));
    all.extend(products());
    all.extend(codes());
    all.extend(expert_products());
    all.extend(attentions());
    all.sort_unstable();
    all.dedup();
    all
}

/// Beside the tested variants, products in each shape with codes of each format.
pub(super) fn carried() -> Vec<Variant> {
    let mut all = tested();
    all.extend(code_names().flat_map(code_products));
    all.sort_unstable();
    all.dedup();
    all
}
