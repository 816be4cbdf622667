//! The formulas of products with panels, stated number by number, against every format, level and row count.

use super::activations::{Activations, Terms};
use super::pairs::PairRows;
use crate::arena::Arena;
use crate::kernels::linear::{Linear, TOGETHER_MAX, linear_panels};
use crate::kernels::{Crew, Scratch};
use crate::panels::{PanelKind, Panels, bytes_of_panel, pack};
use crate::simd::{Isa, IsaLevel};
use crate::threads::Team;
use gannet_tensor::Format;

/// Every format with panels, and where in a block its f16 scales are.
const FORMATS: [(Format, &[usize]); 11] = [
    (Format::Q4_0, &[0]),
    (Format::Q4_1, &[0, 2]),
    (Format::Q5_0, &[0]),
    (Format::Q5_1, &[0, 2]),
    (Format::Q8_0, &[0]),
    (Format::Iq4Nl, &[0]),
    (Format::Mxfp4, &[]),
    (Format::Q4K, &[0, 2]),
    (Format::Q5K, &[0, 2]),
    (Format::Q6K, &[208]),
    (Format::Iq4Xs, &[0]),
];

/// Bytes of any value, but for scales that are finite.
fn checkpoint((format, halves): (Format, &[usize]), rows: usize, columns: usize) -> Vec<u8> {
    let block_bytes = format.block_bytes();
    let length = rows * format.row_bytes(columns).expect("whole blocks");
    let byte = |i: usize| ((i as u32 + 3).wrapping_mul(2_654_435_761) >> 24) as u8;
    let mut bytes: Vec<u8> = (0..length).map(byte).collect();
    for (number, block) in bytes.chunks_mut(block_bytes).enumerate() {
        for place in halves {
            let scale = half::f16::from_f32(0.01 * ((number % 13) as f32 - 5.0) + 0.001 * *place as f32);
            block[*place..place + 2].copy_from_slice(&scale.to_le_bytes());
        }
        if format == Format::Mxfp4 {
            block[0] = [0, 1, 120, 127, 128][number % 5];
        }
    }
    bytes
}

fn panels(format: Format, bytes: &[u8], rows: usize, columns: usize) -> Panels {
    let panel_bytes = bytes_of_panel(format, columns).expect("the format has panels");
    let row_bytes = format.row_bytes(columns).expect("whole blocks");
    let mut arena = Arena::default();
    let reserved =
        arena.reserve(rows.div_ceil(16) * panel_bytes, || "a test".to_owned()).expect("it is small");
    let out = arena.bytes_mut(&reserved).chunks_exact_mut(panel_bytes);
    out.zip(bytes.chunks(16 * row_bytes)).for_each(|(out, rows)| pack(format, rows, row_bytes, out));
    Panels { format, rows, columns, panel_bytes, place: arena.freeze()(reserved) }
}

/// Most alike, some nine times as large, and some so large that two terms have no room for the others.
fn numbers(count: usize) -> Vec<f32> {
    let size = |i: usize| match (i % 331, i % 97) {
        (1, _) => 4000.0,
        (_, 0) => 9.0,
        _ => 1.0,
    };
    (0..count).map(|i| ((i * i % 1009) as f32 * 0.37).sin() * size(i)).collect()
}

#[test]
fn a_row_of_panels_is_what_the_decoder_gives() {
    for (format, halves) in FORMATS.into_iter().chain([(Format::Bf16, &[] as &[usize])]) {
        let (rows, columns) = (37, if format == Format::Bf16 { 511 } else { 512 });
        let bytes = checkpoint((format, halves), rows, columns);
        let panels = panels(format, &bytes, rows, columns);
        let row_bytes = format.row_bytes(columns).expect("whole blocks");
        for (row, packed) in bytes.chunks_exact(row_bytes).enumerate() {
            let (mut expected, mut found) = (vec![0.0; columns], vec![0.0; columns]);
            format.decode(packed, &mut expected);
            panels.decode_row(row, &mut found);
            let differs = |(a, b): (&f32, &f32)| a.to_bits() != b.to_bits() && !(a.is_nan() && b.is_nan());
            assert_eq!(found.iter().zip(&expected).position(differs), None, "{format} row {row}");
        }
    }
}

fn largest<'a>(x: impl IntoIterator<Item = &'a f32>) -> f32 {
    x.into_iter().fold(0.0f32, |largest, x| largest.max(x.abs()))
}

/// The integers that 32 numbers become, and what one counts.
fn integers(block: &[f32], terms: Terms) -> (Vec<i32>, f32) {
    let words: Vec<&[f32]> = block.chunks_exact(4).collect();
    let is_far = |word: usize| {
        let half = word / 4 * 4..word / 4 * 4 + 4;
        let most = half.clone().fold(0.0f32, |most, word| most.max(largest(words[word])));
        terms == Terms::Two && half.clone().find(|word| largest(words[*word]) == most) == Some(word)
    };
    let rest = largest((0..8).filter(|word| !is_far(*word)).flat_map(|word| words[word]));
    let all = largest(block);
    let (of, most) = match terms {
        Terms::Two if rest * 256.0 <= all => (all, 32_512.0),
        Terms::One | Terms::Two => (rest, 127.0),
    };
    let integer = |x: &f32| (f64::from(*x) * f64::from(most / of)).round_ties_even() as i32;
    // A lower code of -128 isn't used.
    let allowed = |x: i32| if (x + 128) % 256 == 0 { x + 1 } else { x };
    let integers: Vec<i32> = block.iter().map(|x| allowed(integer(x))).collect();
    let is_near = |(place, integer): (usize, &i32)| is_far(place / 4) || integer.abs() <= 127;
    assert!(integers.iter().enumerate().all(is_near), "a code has 8 bits");
    (integers, of / most)
}

/// The product of one row and one output of codes, by the formula.
fn expected(format: Format, panels: &Panels, output: usize, x: &[f32], terms: Terms) -> f32 {
    let mut y = 0.0f32;
    for (number, block) in x.chunks_exact(32).enumerate() {
        let (integers, x_scale) = integers(block, terms);
        let (weights, scales, minimum) = panels.sub_block(output, number);
        let width = if format == Format::Q6K { 16 } else { 32 };
        for (part, (weights, integers)) in weights.chunks(width).zip(integers.chunks(width)).enumerate() {
            let sum: i32 = weights.iter().zip(integers).map(|(weight, integer)| weight * integer).sum();
            y = (sum as f32).mul_add(scales[part] * x_scale, y);
        }
        if let Some(minimum) = minimum {
            y = minimum.mul_add(x_scale * integers.iter().sum::<i32>() as f32, y);
        }
    }
    y
}

#[test]
fn every_format_and_level_and_row_count_gives_the_bits_of_the_formula() {
    for (format, halves) in FORMATS {
        let columns = if format.block_elements() == 256 { 768 } else { 96 };
        for (outputs, terms) in [(37, Terms::One), (37, Terms::Two), (16, Terms::Two), (1, Terms::One)] {
            let bytes = checkpoint((format, halves), outputs, columns);
            check_bits(&panels(format, &bytes, outputs, columns), terms);
        }
    }
}

#[test]
fn bf16_numbers_give_the_bits_of_their_formula() {
    for (outputs, columns) in [(37, 95), (16, 64), (1, 1)] {
        let weights = numbers(outputs * columns + 7);
        let bytes: Vec<u8> =
            weights[7..].iter().flat_map(|x| half::bf16::from_f32(*x).to_le_bytes()).collect();
        check_bits(&panels(Format::Bf16, &bytes, outputs, columns), Terms::One);
    }
}

/// The product of one row and one output of bf16 numbers, by the formula.
fn expected_of_pairs(panels: &Panels, output: usize, x: &[f32]) -> f32 {
    let mut weights = vec![0.0; panels.columns];
    panels.decode_row(output, &mut weights);
    let nearest = |x: &f32| half::bf16::from_f32(*x).to_f32();
    let pairs = weights.chunks(2).zip(x.chunks(2));
    pairs.fold(0.0, |sum, (weights, x)| {
        let odd = weights.get(1).zip(x.get(1)).map_or(sum, |(weight, x)| weight.mul_add(nearest(x), sum));
        weights[0].mul_add(nearest(&x[0]), odd)
    })
}

fn check_bits(panels: &Panels, terms: Terms) {
    let Panels { format, rows: outputs, columns, .. } = *panels;
    let rows = 130;
    let x = numbers(rows * columns);
    let row = |i: usize| &x[i / outputs * columns..][..columns];
    let of = |i: usize| match panels.kind() {
        PanelKind::Codes => expected(format, panels, i % outputs, row(i), terms),
        PanelKind::Pairs => expected_of_pairs(panels, i % outputs, row(i)),
    };
    let expected: Vec<f32> = (0..rows * outputs).map(of).collect();
    assert!(expected.iter().all(|x| x.is_finite()), "{format}");
    for (level, threads) in IsaLevel::available().flat_map(|level| [(level, 1), (level, 3)]) {
        let isa = Isa::new(level).expect("the level is available");
        for rows in [1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 31, 33, rows] {
            let found = product(isa, threads, panels, &x[..rows * columns], terms);
            let same = found.iter().zip(&expected).position(|(a, b)| a.to_bits() != b.to_bits());
            let what =
                format!("{format} at {level}, {threads} threads, {rows} rows, {outputs} outputs, {terms:?}");
            assert_eq!(same, None, "{what}");
        }
    }
}

fn product(isa: Isa, threads: usize, panels: &Panels, x: &[f32], terms: Terms) -> Vec<f32> {
    let team = Team::start(threads).expect("threads can be started");
    let mut scratch: Vec<Scratch> = (0..threads).map(|_| Scratch::default()).collect();
    let mut shared = Scratch::default();
    let mut crew = Crew { turn: team.turn(), isa, scratch: &mut scratch, shared: &mut shared };
    let mut out = vec![f32::NAN; x.len() / panels.columns * panels.rows];
    let mut linears = [const { None }; TOGETHER_MAX];
    linears[0] = Some(Linear { panels, bias: None, out: &mut out });
    match panels.kind() {
        PanelKind::Codes => {
            let mut codes = Activations::default();
            codes.fill(&mut crew, x, panels.columns, terms);
            linear_panels(&mut crew, &codes, linears);
        }
        PanelKind::Pairs => {
            let mut pairs = PairRows::default();
            pairs.fill(&mut crew, x, panels.columns);
            linear_panels(&mut crew, &pairs, linears);
        }
    }
    out
}

#[test]
fn what_is_not_finite_is_shown_and_what_vanishes_is_zero() {
    let bytes = checkpoint((Format::Q8_0, &[0]), 16, 64);
    let panels = panels(Format::Q8_0, &bytes, 16, 64);
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut x = numbers(64);
        x[40] = bad;
        assert!(product(Isa::best(), 1, &panels, &x, Terms::Two).iter().all(|y| y.is_nan()), "{bad}");
    }
    for tiny in [0.0, -0.0, 1e-36, f32::from_bits(1)] {
        assert_eq!(product(Isa::best(), 1, &panels, &[tiny; 64], Terms::Two), [0.0; 16], "{tiny}");
    }
    let largest = product(Isa::best(), 1, &panels, &[f32::MAX; 64], Terms::Two);
    assert!(largest.iter().all(|y| !y.is_nan()), "the largest numbers have codes");
}
