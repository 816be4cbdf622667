//! Each kernel as the reference loop of its operation, over memory at addresses.
//!
//! The arguments are taken in the order of the kernel's signature; a formula is that of `gannet_ops::reference`.

use super::super::{Address, Argument, Launch};
use super::attention::{
    attention, attention_fold, attention_prefill, attention_split, finish_qkv, quantise_keys, write_kv,
};
use super::experts::{
    combine_experts, expert_linear, experts_many, group_experts, route_experts, route_normed,
};
use super::memory::Memory;
use super::recurrent::{causal_conv, decay_gate, gated_delta_rule, gated_norm, l2_norm};
use super::sample::{
    argmax, argmax_parts, count_tokens, sample_maxima, sample_parts, sample_tokens, take_tokens,
};
use crate::codes::Units;
use crate::error::CudaError;
use crate::jit::Variant;
use crate::number::Number;
use gannet_ops::reference::values::Numbers;
use gannet_ops::reference::{gates, linear, norms, position_scale, rope, rows};
use gannet_ops::{Rope, RopeTable, Row, RowKind, TokenId, TokenSource};
use std::sync::Arc;

pub(super) type Outcome = Result<(), CudaError>;

/// A kernel's work on the device's memory.
type Simulation = fn(&mut Call<'_>) -> Outcome;

/// What each entry does.
const KERNELS: [(&str, Simulation); 53] = [
    ("add", |call| pairwise(call, gates::add)),
    ("add_rms_norm", add_rms_norm),
    ("argmax", argmax),
    ("argmax_parts", argmax_parts),
    ("attention", attention),
    ("attention_fold", attention_fold),
    ("attention_prefill", attention_prefill),
    ("attention_split", attention_split),
    ("cast", |call| elementwise(call, |x, _| x)),
    ("causal_conv", causal_conv),
    ("clamped_gate", clamped_gate),
    ("combine_experts", combine_experts),
    ("concat", concat),
    ("count_tokens", count_tokens),
    ("decay_gate", decay_gate),
    ("embed", embed),
    ("embed_codes", embed),
    ("expert_linear", expert_linear),
    ("finish_qkv", finish_qkv),
    ("gated_delta_rule", gated_delta_rule),
    ("gated_norm", gated_norm),
    ("gather_rows", gather_rows),
    ("gelu_gate", |call| pairwise(call, gates::gelu_gate)),
    ("group_experts", group_experts),
    ("head_norm", head_norm),
    ("l2_norm", l2_norm),
    ("linear", matrix_product),
    ("linear_codes", mapped_product),
    ("linear_few", mapped_product),
    ("linear_many", mapped_product),
    ("linear_narrow", matrix_product),
    ("linear_one", product_of_one),
    ("linear_one_codes", product_of_one),
    ("linear_one_wide", product_of_one),
    ("place_units", place_units),
    ("position_scale", scale_by_position),
    ("quantise_keys", quantise_keys),
    ("repack", repack),
    ("rms_norm", rms_norm),
    ("rope", rotate),
    ("route_experts", route_experts),
    ("route_normed", route_normed),
    ("sample_maxima", sample_maxima),
    ("sample_parts", sample_parts),
    ("sample_tokens", sample_tokens),
    ("scale", |call| elementwise(call, |x, factor| factor * x)),
    ("sigmoid_gate", sigmoid_gate),
    ("silu_gate", |call| pairwise(call, gates::silu_gate)),
    ("slice", slice),
    ("soft_cap", |call| elementwise(call, gates::soft_cap)),
    ("take_tokens", take_tokens),
    ("unpack", unpack),
    ("write_kv", write_kv),
];

/// Whether there is such an entry.
pub(super) fn check(variant: &Variant, entry: &'static str) -> Outcome {
    let known = KERNELS.iter().any(|(name, _)| *name == entry);
    known.then_some(()).ok_or_else(|| {
        let reason = format!("variant `{variant}` has no entry of this name");
        CudaError::Simulated { what: entry, reason }
    })
}

/// Blocks of a cluster, as the kernel's file declares them.
pub(super) fn cluster(entry: &str) -> u32 {
    if entry == "route_normed" { super::experts::CLUSTER_BLOCKS } else { 1 }
}

/// Runs a kernel to its end.
pub(super) fn run(memory: &mut Memory, launch: &Launch<'_>) -> Outcome {
    let entry = launch.kernel.entry;
    let (_, kernel) = KERNELS.iter().find(|(name, _)| *name == entry).expect("it was loaded");
    let arguments = launch.arguments.iter().copied();
    let mut call = Call { memory, variant: &launch.kernel.variant, entry, grid: launch.grid, arguments };
    kernel(&mut call)?;
    match call.arguments.next() {
        None => Ok(()),
        Some(argument) => Err(call.odd(format!("{argument:?} is one argument too many"))),
    }
}

/// A kernel's arguments, taken one after the other, and the memory.
pub(super) struct Call<'a> {
    pub(super) memory: &'a mut Memory,
    variant: &'a Variant,
    pub(super) entry: &'static str,
    grid: [u32; 3],
    arguments: std::iter::Copied<std::slice::Iter<'a, Argument>>,
}

impl Call<'_> {
    pub(super) fn odd(&self, reason: String) -> CudaError {
        CudaError::Simulated { what: self.entry, reason }
    }

    pub(super) fn address(&mut self) -> Result<Address, CudaError> {
        match self.arguments.next() {
            Some(Argument::Address(address)) => Ok(address),
            other => Err(self.odd(format!("{other:?} where an address is expected"))),
        }
    }

    pub(super) fn addresses<const N: usize>(&mut self) -> Result<[Address; N], CudaError> {
        let mut found = [Address::NONE; N];
        for address in &mut found {
            *address = self.address()?;
        }
        Ok(found)
    }

    pub(super) fn u32(&mut self) -> Result<usize, CudaError> {
        match self.arguments.next() {
            Some(Argument::U32(number)) => Ok(number as usize),
            other => Err(self.odd(format!("{other:?} where a number of 32 bits is expected"))),
        }
    }

    pub(super) fn sizes<const N: usize>(&mut self) -> Result<[usize; N], CudaError> {
        let mut found = [0; N];
        for size in &mut found {
            *size = self.u32()?;
        }
        Ok(found)
    }

    pub(super) fn u64(&mut self) -> Result<usize, CudaError> {
        match self.arguments.next() {
            Some(Argument::U64(number)) => Ok(number as usize),
            other => Err(self.odd(format!("{other:?} where a number of 64 bits is expected"))),
        }
    }

    pub(super) fn f32(&mut self) -> Result<f32, CudaError> {
        match self.arguments.next() {
            Some(Argument::F32(number)) => Ok(number),
            other => Err(self.odd(format!("{other:?} where a float is expected"))),
        }
    }

    /// The format that a define names; float32 where the kernel has none of it.
    pub(super) fn number(&self, define: &str) -> Number {
        let name = self.variant.define(define);
        Number::ALL.into_iter().find(|number| Some(number.name()) == name).unwrap_or(Number::F32)
    }

    /// Blocks.
    pub(super) fn grid(&self) -> [u32; 3] {
        self.grid
    }

    /// The value of a define.
    pub(super) fn define(&self, define: &str) -> Option<&'static str> {
        self.variant.define(define)
    }

    /// Whether a define is there.
    pub(super) fn has(&self, define: &str) -> bool {
        self.variant.define(define).is_some()
    }

    /// The size that a define names.
    pub(super) fn size_define(&self, define: &str) -> Result<usize, CudaError> {
        let size = self.variant.define(define).and_then(|text| text.parse().ok());
        size.ok_or_else(|| self.odd(format!("variant `{}` has no size `{define}`", self.variant)))
    }

    /// Float32 numbers.
    pub(super) fn floats(&self, from: Address, count: usize) -> Result<Vec<f32>, CudaError> {
        self.memory.numbers(self.entry, Number::F32, (from, count))
    }

    pub(super) fn matrix(&self, from: Address, count: usize, width: usize) -> Result<Numbers, CudaError> {
        Ok(Numbers::new(width, self.floats(from, count * width)?))
    }

    /// Numbers where there are any.
    pub(super) fn optional(&self, from: Address, count: usize) -> Result<Option<Vec<f32>>, CudaError> {
        (from != Address::NONE).then(|| self.floats(from, count)).transpose()
    }

    pub(super) fn words(&self, from: Address, count: usize) -> Result<Vec<u32>, CudaError> {
        self.memory.words(self.entry, from, count)
    }

    pub(super) fn word(&self, from: Address, place: usize) -> Result<u32, CudaError> {
        Ok(self.words(from.offset(place * size_of::<u32>()), 1)?[0])
    }

    /// Writes numbers in the format that a define names.
    pub(super) fn put(&mut self, define: &str, to: Address, numbers: &[f32]) -> Outcome {
        let bytes = self.number(define).encode(numbers);
        self.memory.write(self.entry, to, &bytes)
    }

    pub(super) fn put_floats(&mut self, to: Address, numbers: &[f32]) -> Outcome {
        self.memory.write(self.entry, to, &Number::F32.encode(numbers))
    }
}

fn elementwise(call: &mut Call<'_>, change: impl Fn(f32, f32) -> f32) -> Outcome {
    let ([y, x], count) = (call.addresses()?, call.u64()?);
    let parameter = if call.entry == "cast" { 0.0 } else { call.f32()? };
    let x = call.floats(x, count)?;
    let made: Vec<f32> = x.into_iter().map(|x| change(x, parameter)).collect();
    call.put("Y", y, &made)
}

fn pairwise(call: &mut Call<'_>, combine: fn(&Numbers, &Numbers) -> Numbers) -> Outcome {
    let ([y, a, b], count) = (call.addresses()?, call.u64()?);
    let [a, b] = [call.matrix(a, 1, count)?, call.matrix(b, 1, count)?];
    call.put("Y", y, &combine(&a, &b).data)
}

fn clamped_gate(call: &mut Call<'_>) -> Outcome {
    let ([y, gate, up], count, alpha, limit) = (call.addresses()?, call.u64()?, call.f32()?, call.f32()?);
    let [gate, up] = [call.matrix(gate, 1, count)?, call.matrix(up, 1, count)?];
    call.put("Y", y, &gates::clamped_gate(&gate, &up, alpha, limit).data)
}

fn sigmoid_gate(call: &mut Call<'_>) -> Outcome {
    let ([y, x, gate], [rows, width, gate_width]) = (call.addresses()?, call.sizes()?);
    let [x, gate] = [call.matrix(x, rows, width)?, call.matrix(gate, rows, gate_width)?];
    call.put("Y", y, &gates::sigmoid_gate(&x, &gate).data)
}

fn rms_norm(call: &mut Call<'_>) -> Outcome {
    let ([y, x, weight], [rows, width], epsilon) = (call.addresses()?, call.sizes()?, call.f32()?);
    let (x, weight) = (call.matrix(x, rows, width)?, call.floats(weight, width)?);
    call.put("Y", y, &norms::rms_norm(&x, &weight, epsilon).data)
}

fn head_norm(call: &mut Call<'_>) -> Outcome {
    let ([y, x, weight], [rows, heads, dim], epsilon) = (call.addresses()?, call.sizes()?, call.f32()?);
    let (x, weight) = (call.matrix(x, rows, heads * dim)?, call.floats(weight, dim)?);
    call.put_floats(y, &norms::rms_norm(&x, &weight, epsilon).data)
}

fn add_rms_norm(call: &mut Call<'_>) -> Outcome {
    let ([sum, y, a, b, weight], [rows, width], epsilon) = (call.addresses()?, call.sizes()?, call.f32()?);
    let [a, b] = [call.matrix(a, rows, width)?, call.matrix(b, rows, width)?];
    let (added, weight) = (gates::add(&a, &b), call.floats(weight, width)?);
    call.put_floats(sum, &added.data)?;
    call.put("Y", y, &norms::rms_norm(&added, &weight, epsilon).data)
}

/// The place of an element of a matrix of so many columns in tile order.
fn tile_place(row: usize, column: usize, columns: usize) -> usize {
    let tile = row / 16 * columns.div_ceil(64) + column / 64;
    let core = row % 16 / 8 * 8 + column % 64 / 8;
    tile * 1024 + core * 64 + row % 8 * 8 + column % 8
}

fn repack(call: &mut Call<'_>) -> Outcome {
    let ([out, source], [n, k, first, gated]) = (call.addresses()?, call.sizes()?);
    let bytes = call.memory.read(call.entry, source, n * k * 2)?.to_vec();
    for row in 0..n {
        let to = if gated == 1 { row / 8 * 16 + first + row % 8 } else { first + row };
        for column in 0..k.next_multiple_of(64) {
            let from = (row * k + column) * 2;
            let element = if column < k { [bytes[from], bytes[from + 1]] } else { [0; 2] };
            call.memory.write(call.entry, out.offset(tile_place(to, column, k) * 2), &element)?;
        }
    }
    Ok(())
}

/// A weight as the kernels find it, row-major.
pub(super) fn weight(call: &Call<'_>, from: Address, n: usize, k: usize) -> Result<Vec<f32>, CudaError> {
    if let Some(units) = call.define("W").and_then(Units::named).filter(|_| call.number("W") == Number::F32) {
        let bytes = call.memory.read(call.entry, from, units.matrix_bytes([n, k]))?;
        return Ok(units.read(bytes, [n, k]));
    }
    let number = call.number("W");
    if number == Number::F32 {
        return call.floats(from, n * k);
    }
    let padded = n.next_multiple_of(64) * k.next_multiple_of(64);
    let packed = call.memory.numbers(call.entry, number, (from, padded))?;
    Ok((0..n)
        .flat_map(|row| (0..k).map(move |column| (row, column)))
        .map(|(row, column)| packed[tile_place(row, column, k)])
        .collect())
}

/// x is named by a tensor map.
fn mapped_product(call: &mut Call<'_>) -> Outcome {
    let ([y, map, matrix, bias], sizes) = (call.addresses()?, call.sizes()?);
    let [low, high] = [call.word(map, 0)?, call.word(map, 1)?].map(u64::from);
    if call.has("EXPERTS") {
        return experts_many(call, [y, Address(high << 32 | low), matrix, bias], sizes);
    }
    if call.entry != "linear_many" {
        let [_chunk, stages] = call.sizes()?;
        if stages < 2 {
            return Err(call.odd("a ring of less than two stages".to_owned()));
        }
    }
    product(call, [y, Address(high << 32 | low), matrix, bias], sizes)
}

/// A row that is there, or the norm of a sum, which is made on the way.
fn product_of_one(call: &mut Call<'_>) -> Outcome {
    let [y, sum, x, a, b, norm, matrix, bias] = call.addresses()?;
    let ([n, k], epsilon) = (call.sizes()?, call.f32()?);
    let number = match call.entry {
        "linear_one_codes" => {
            let [chains, helpers, ahead] = call.sizes()?;
            if chains * helpers * ahead == 0 {
                return Err(call.odd("no warp that multiplies, or none that unpacks what comes".to_owned()));
            }
            Number::Bf16
        }
        "linear_one_wide" => {
            if call.u32()? == 0 {
                return Err(call.odd("no warp that has outputs".to_owned()));
            }
            Number::Bf16
        }
        _ => {
            let [_chunk, stages, warps] = call.sizes()?;
            if stages < 2 || warps == 0 {
                return Err(call.odd("a ring of less than two stages, or of no warp".to_owned()));
            }
            call.number("W")
        }
    };
    if a == Address::NONE {
        let x = call.memory.numbers(call.entry, number, (x, k))?;
        return product_of(call, [y, matrix, bias], Numbers::new(k, x), [n, n]);
    }
    let [a, b] = [call.matrix(a, 1, k)?, call.matrix(b, 1, k)?];
    let (added, weight) = (gates::add(&a, &b), call.floats(norm, k)?);
    call.put_floats(sum, &added.data)?;
    let rounded = number.decode(&number.encode(&norms::rms_norm(&added, &weight, epsilon).data));
    product_of(call, [y, matrix, bias], Numbers::new(k, rounded), [n, n])
}

fn matrix_product(call: &mut Call<'_>) -> Outcome {
    let (addresses, sizes) = (call.addresses()?, call.sizes()?);
    product(call, addresses, sizes)
}

fn product(call: &mut Call<'_>, [y, x, matrix, bias]: [Address; 4], sizes: [usize; 4]) -> Outcome {
    let [m, n, k, stride] = sizes;
    let reads = if call.entry == "linear_codes" { Number::Bf16 } else { call.number("W") };
    let x = call.memory.numbers(call.entry, reads, (x, m * k))?;
    product_of(call, [y, matrix, bias], Numbers::new(k, x), [n, stride])
}

/// What a product makes, put through its gate where it has one.
pub(super) fn gated(call: &Call<'_>, made: Numbers) -> Numbers {
    let gate = match call.define("GATE") {
        None => return made,
        Some("1") => gates::silu_gate,
        Some(_) => gates::gelu_gate,
    };
    // Eight outputs are gates, eight are gated, and so on.
    let half = |first: usize| {
        let columns =
            made.rows().flat_map(|row| row.chunks(16).flat_map(move |tile| &tile[first..first + 8]));
        Numbers::new(made.width / 2, columns.copied().collect())
    };
    gate(&half(0), &half(8))
}

fn product_of(
    call: &mut Call<'_>,
    [y, matrix, bias]: [Address; 3],
    x: Numbers,
    [n, stride]: [usize; 2],
) -> Outcome {
    let (matrix, bias) = (weight(call, matrix, n, x.width)?, call.optional(bias, n)?);
    let made = linear::linear(&x, &matrix, bias.as_deref());
    let made = gated(call, made);
    put_rows(call, y, &made, stride)
}

/// Rows that lie so many numbers apart.
fn put_rows(call: &mut Call<'_>, y: Address, rows: &Numbers, stride: usize) -> Outcome {
    let bytes = stride * call.number("Y").bytes();
    rows.rows().enumerate().try_for_each(|(number, row)| call.put("Y", y.offset(number * bytes), row))
}

fn units(call: &Call<'_>) -> Result<Units, CudaError> {
    let found = call.define("W").and_then(Units::named);
    found.ok_or_else(|| call.odd(format!("variant `{}` names no format of codes", call.variant)))
}

fn unpack(call: &mut Call<'_>) -> Outcome {
    let ([out, codes], [n, k]) = (call.addresses()?, call.sizes()?);
    let units = units(call)?;
    let weights = units.read(call.memory.read(call.entry, codes, units.matrix_bytes([n, k]))?, [n, k]);
    let mut tiles = vec![0; n.next_multiple_of(16) * k.next_multiple_of(64) * 2];
    for (place, weight) in weights.iter().enumerate() {
        let at = tile_place(place / k, place % k, k) * 2;
        tiles[at..at + 2].copy_from_slice(&Number::Bf16.encode(&[*weight]));
    }
    call.memory.write(call.entry, out, &tiles)
}

fn place_units(call: &mut Call<'_>) -> Outcome {
    let ([out, source], [eights, runs, first, every]) = (call.addresses()?, call.sizes()?);
    let bytes = units(call)?.bytes();
    let place = |eight: usize, run: usize| ((eight / 2 * runs + run) * 2 + eight % 2) * bytes;
    for (eight, run) in (0..eights).flat_map(|eight| (0..runs).map(move |run| (eight, run))) {
        let unit = call.memory.read(call.entry, source.offset(place(eight, run)), bytes)?.to_vec();
        call.memory.write(call.entry, out.offset(place(first + eight * every, run)), &unit)?;
    }
    Ok(())
}

fn embed(call: &mut Call<'_>) -> Outcome {
    let ([y, ids, matrix, embeddings], [rows, vocabulary, width]) = (call.addresses()?, call.sizes()?);
    let (ids, matrix) = (call.words(ids, rows)?, weight(call, matrix, vocabulary, width)?);
    let embeddings = call.optional(embeddings, rows * width)?;
    let mut made = Vec::new();
    for (row, id) in ids.iter().enumerate() {
        let brought = embeddings.as_ref().map(|all| &all[row * width..][..width]);
        match (matrix.chunks_exact(width).nth(*id as usize), brought) {
            (Some(found), _) => made.extend_from_slice(found),
            (None, Some(brought)) => made.extend_from_slice(brought),
            (None, None) => return Err(call.odd(format!("row {row} has no id and brings no embedding"))),
        }
    }
    call.put("Y", y, &made)
}

/// Rows of which nothing but the position counts.
pub(super) fn rows_at(call: &Call<'_>, positions: Address, rows: usize) -> Result<Vec<Row>, CudaError> {
    let positions = call.words(positions, rows * 3)?;
    let row = |position: &[u32; 3]| Row {
        sequence: 0,
        token: TokenSource::Known(TokenId(0)),
        index: 0,
        position: *position,
        kind: RowKind::Prompt,
    };
    Ok(positions.as_chunks::<3>().0.iter().map(row).collect())
}

fn rotate(call: &mut Call<'_>) -> Outcome {
    let ([y, x, positions, frequencies, axes], [rows, heads, head_dim, pairs], attention_scale) =
        (call.addresses()?, call.sizes()?, call.f32()?);
    let table = RopeTable {
        inverse_frequencies: call.floats(frequencies, pairs)?,
        axes: call.words(axes, pairs)?.into_iter().map(|axis| axis as u8).collect(),
        attention_scale,
    };
    let op = Rope { heads, head_dim, table: Arc::new(table) };
    let x = call.matrix(x, rows, heads * head_dim)?;
    let made = rope::rope(&x, &op, &rows_at(call, positions, rows)?);
    call.put_floats(y, &made.data)
}

fn scale_by_position(call: &mut Call<'_>) -> Outcome {
    let ([y, x, positions], [rows, width, period], slope) = (call.addresses()?, call.sizes()?, call.f32()?);
    let (x, rows) = (call.matrix(x, rows, width)?, rows_at(call, positions, rows)?);
    call.put_floats(y, &position_scale::position_scale(&x, slope, period as u32, &rows).data)
}

fn gather_rows(call: &mut Call<'_>) -> Outcome {
    let ([y, x, map], [rows, width]) = (call.addresses()?, call.sizes()?);
    let bytes = width * call.number("X").bytes();
    for row in 0..rows {
        let from = call.word(map, row)? as usize;
        let found = call.memory.read(call.entry, x.offset(from * bytes), bytes)?.to_vec();
        call.memory.write(call.entry, y.offset(row * bytes), &found)?;
    }
    Ok(())
}

fn slice(call: &mut Call<'_>) -> Outcome {
    let ([y, x], [rows, groups, group_width, start, width]) = (call.addresses()?, call.sizes()?);
    let x = call.matrix(x, rows, groups * group_width)?;
    call.put("Y", y, &rows::slice(&x, groups, start, width).data)
}

fn concat(call: &mut Call<'_>) -> Outcome {
    let ([y, x], [rows, x_width, y_width, y_start]) = (call.addresses()?, call.sizes()?);
    let x = call.matrix(x, rows, x_width)?;
    let place = |row: usize| y.offset((row * y_width + y_start) * size_of::<f32>());
    x.rows().enumerate().try_for_each(|(row, x)| call.put_floats(place(row), x))
}
