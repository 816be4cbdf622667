//! Each kernel as the reference loop of its operation, over memory at addresses.
//!
//! The arguments are taken in the order of the kernel's signature; a formula is that of `gannet_ops::reference`.

use super::super::{Address, Argument, Launch};
use super::memory::Memory;
use crate::error::CudaError;
use crate::jit::Variant;
use crate::number::Number;
use gannet_ops::reference::values::{Numbers, dot, softmax};
use gannet_ops::reference::{gates, linear, norms, position_scale, rope, rows};
use gannet_ops::{PAGE_TOKENS, Rope, RopeTable, Row, RowKind, TokenId, TokenSource};
use std::sync::Arc;

type Outcome = Result<(), CudaError>;

/// What each entry does.
const KERNELS: [(&str, fn(&mut Call<'_>) -> Outcome); 22] = [
    ("add", |call| pairwise(call, gates::add)),
    ("add_rms_norm", add_rms_norm),
    ("argmax", argmax),
    ("attention", attention),
    ("cast", |call| elementwise(call, |x, _| x)),
    ("clamped_gate", clamped_gate),
    ("concat", concat),
    ("embed", embed),
    ("gather_rows", gather_rows),
    ("gelu_gate", |call| pairwise(call, gates::gelu_gate)),
    ("head_norm", head_norm),
    ("linear", matrix_product),
    ("position_scale", scale_by_position),
    ("repack", repack),
    ("rms_norm", rms_norm),
    ("rope", rotate),
    ("scale", |call| elementwise(call, |x, factor| factor * x)),
    ("sigmoid_gate", sigmoid_gate),
    ("silu_gate", |call| pairwise(call, gates::silu_gate)),
    ("slice", slice),
    ("soft_cap", |call| elementwise(call, gates::soft_cap)),
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

/// Runs a kernel to its end.
pub(super) fn run(memory: &mut Memory, launch: &Launch<'_>) -> Outcome {
    let entry = launch.kernel.entry;
    let (_, kernel) = KERNELS.iter().find(|(name, _)| *name == entry).expect("it was loaded");
    let arguments = launch.arguments.iter().copied();
    let mut call = Call { memory, variant: &launch.kernel.variant, entry, arguments };
    kernel(&mut call)?;
    match call.arguments.next() {
        None => Ok(()),
        Some(argument) => Err(call.odd(format!("{argument:?} is one argument too many"))),
    }
}

/// A kernel's arguments, taken one after the other, and the memory.
struct Call<'a> {
    memory: &'a mut Memory,
    variant: &'a Variant,
    entry: &'static str,
    arguments: std::iter::Copied<std::slice::Iter<'a, Argument>>,
}

impl Call<'_> {
    fn odd(&self, reason: String) -> CudaError {
        CudaError::Simulated { what: self.entry, reason }
    }

    fn address(&mut self) -> Result<Address, CudaError> {
        match self.arguments.next() {
            Some(Argument::Address(address)) => Ok(address),
            other => Err(self.odd(format!("{other:?} where an address is expected"))),
        }
    }

    fn addresses<const N: usize>(&mut self) -> Result<[Address; N], CudaError> {
        let mut found = [Address::NONE; N];
        for address in &mut found {
            *address = self.address()?;
        }
        Ok(found)
    }

    fn u32(&mut self) -> Result<usize, CudaError> {
        match self.arguments.next() {
            Some(Argument::U32(number)) => Ok(number as usize),
            other => Err(self.odd(format!("{other:?} where a number of 32 bits is expected"))),
        }
    }

    fn sizes<const N: usize>(&mut self) -> Result<[usize; N], CudaError> {
        let mut found = [0; N];
        for size in &mut found {
            *size = self.u32()?;
        }
        Ok(found)
    }

    fn u64(&mut self) -> Result<usize, CudaError> {
        match self.arguments.next() {
            Some(Argument::U64(number)) => Ok(number as usize),
            other => Err(self.odd(format!("{other:?} where a number of 64 bits is expected"))),
        }
    }

    fn f32(&mut self) -> Result<f32, CudaError> {
        match self.arguments.next() {
            Some(Argument::F32(number)) => Ok(number),
            other => Err(self.odd(format!("{other:?} where a float is expected"))),
        }
    }

    /// The format that a define names; float32 where the kernel has none of it.
    fn number(&self, define: &str) -> Number {
        let name = self.variant.define(define);
        Number::ALL.into_iter().find(|number| Some(number.name()) == name).unwrap_or(Number::F32)
    }

    /// Float32 numbers.
    fn floats(&self, from: Address, count: usize) -> Result<Vec<f32>, CudaError> {
        self.memory.numbers(self.entry, Number::F32, (from, count))
    }

    fn matrix(&self, from: Address, count: usize, width: usize) -> Result<Numbers, CudaError> {
        Ok(Numbers::new(width, self.floats(from, count * width)?))
    }

    /// Numbers where there are any.
    fn optional(&self, from: Address, count: usize) -> Result<Option<Vec<f32>>, CudaError> {
        (from != Address::NONE).then(|| self.floats(from, count)).transpose()
    }

    fn words(&self, from: Address, count: usize) -> Result<Vec<u32>, CudaError> {
        self.memory.words(self.entry, from, count)
    }

    fn word(&self, from: Address, place: usize) -> Result<u32, CudaError> {
        Ok(self.words(from.offset(place * size_of::<u32>()), 1)?[0])
    }

    /// Writes numbers in the format that a define names.
    fn put(&mut self, define: &str, to: Address, numbers: &[f32]) -> Outcome {
        let bytes = self.number(define).encode(numbers);
        self.memory.write(self.entry, to, &bytes)
    }

    fn put_floats(&mut self, to: Address, numbers: &[f32]) -> Outcome {
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

/// The place of an element of a matrix of so many columns in core order.
fn core_place(row: usize, column: usize, columns: usize) -> usize {
    let core = row / 8 * (columns.next_multiple_of(64) / 8) + column / 8;
    core * 64 + row % 8 * 8 + column % 8
}

fn repack(call: &mut Call<'_>) -> Outcome {
    let ([out, source], [n, k]) = (call.addresses()?, call.sizes()?);
    let bytes = call.memory.read(call.entry, source, n * k * 2)?;
    let mut packed = vec![0; n.next_multiple_of(64) * k.next_multiple_of(64) * 2];
    for row in 0..n {
        for column in 0..k {
            let (to, from) = (core_place(row, column, k) * 2, (row * k + column) * 2);
            packed[to..to + 2].copy_from_slice(&bytes[from..from + 2]);
        }
    }
    call.memory.write(call.entry, out, &packed)
}

/// A weight as the kernels find it, row-major.
fn weight(call: &Call<'_>, from: Address, n: usize, k: usize) -> Result<Vec<f32>, CudaError> {
    let number = call.number("W");
    if number == Number::F32 {
        return call.floats(from, n * k);
    }
    let padded = n.next_multiple_of(64) * k.next_multiple_of(64);
    let packed = call.memory.numbers(call.entry, number, (from, padded))?;
    Ok((0..n)
        .flat_map(|row| (0..k).map(move |column| (row, column)))
        .map(|(row, column)| packed[core_place(row, column, k)])
        .collect())
}

fn matrix_product(call: &mut Call<'_>) -> Outcome {
    let ([y, x, matrix, bias], [m, n, k]) = (call.addresses()?, call.sizes()?);
    let x = call.memory.numbers(call.entry, call.number("W"), (x, m * k))?;
    let (matrix, bias) = (weight(call, matrix, n, k)?, call.optional(bias, n)?);
    let made = linear::linear(&Numbers::new(k, x), &matrix, bias.as_deref());
    call.put("Y", y, &made.data)
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
fn rows_at(call: &Call<'_>, positions: Address, rows: usize) -> Result<Vec<Row>, CudaError> {
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

fn argmax(call: &mut Call<'_>) -> Outcome {
    let ([tokens, logits], [rows, vocabulary]) = (call.addresses()?, call.sizes()?);
    let logits = call.matrix(logits, rows, vocabulary)?;
    let likeliest = |row: &[f32]| {
        if row.iter().any(|score| !score.is_finite()) {
            return u32::MAX;
        }
        let mut best = 0;
        for (id, score) in row.iter().enumerate() {
            best = if *score > row[best] { id } else { best };
        }
        best as u32
    };
    let found: Vec<u8> = logits.rows().flat_map(|row| likeliest(row).to_le_bytes()).collect();
    call.memory.write(call.entry, tokens, &found)
}

/// Where the keys and values of a layer lie.
struct Pages {
    layer: Address,
    tables: [Address; 4],
    key: Number,
    value: Number,
    key_dim: usize,
    value_dim: usize,
    page_bytes: usize,
    value_offset: usize,
}

impl Pages {
    /// The page with the key of this index of a row's sequence.
    fn page(&self, call: &Call<'_>, row: usize, index: usize) -> Result<Address, CudaError> {
        let [row_sequence, _, pages, table_base] = self.tables;
        let base = call.word(table_base, call.word(row_sequence, row)? as usize)? as i32;
        let place = i64::from(base) + (index / PAGE_TOKENS) as i64;
        let place = usize::try_from(place).map_err(|_| call.odd(format!("index {index} was released")))?;
        Ok(self.layer.offset(call.word(pages, place)? as usize * self.page_bytes))
    }

    fn index(&self, call: &Call<'_>, row: usize) -> Result<usize, CudaError> {
        Ok(call.word(self.tables[1], row)? as usize)
    }

    fn key_place(&self, page: Address, kv_head: usize, index: usize) -> Address {
        page.offset((kv_head * PAGE_TOKENS + index % PAGE_TOKENS) * self.key_dim * self.key.bytes())
    }

    fn value_place(&self, page: Address, kv_head: usize, index: usize) -> Address {
        let row = kv_head * PAGE_TOKENS + index % PAGE_TOKENS;
        page.offset(self.value_offset + row * self.value_dim * self.value.bytes())
    }
}

fn write_kv(call: &mut Call<'_>) -> Outcome {
    let ([layer, k, v], tables) = (call.addresses()?, call.addresses()?);
    let [rows, kv_heads, key_dim, value_dim] = call.sizes()?;
    let (page_bytes, value_offset) = (call.u64()?, call.u64()?);
    let (key, value) = (call.number("K"), call.number("V"));
    let pages = Pages { layer, tables, key, value, key_dim, value_dim, page_bytes, value_offset };
    let [k, v] = [call.matrix(k, rows, kv_heads * key_dim)?, call.matrix(v, rows, kv_heads * value_dim)?];
    for row in 0..rows {
        let index = pages.index(call, row)?;
        let page = pages.page(call, row, index)?;
        for kv_head in 0..kv_heads {
            let keys = &k.row(row)[kv_head * key_dim..][..key_dim];
            call.put("K", pages.key_place(page, kv_head, index), keys)?;
            let values = &v.row(row)[kv_head * value_dim..][..value_dim];
            call.put("V", pages.value_place(page, kv_head, index), values)?;
        }
    }
    Ok(())
}

fn attention(call: &mut Call<'_>) -> Outcome {
    let ([y, q, layer], tables) = (call.addresses()?, call.addresses()?);
    let sinks = call.address()?;
    let [rows, heads, kv_heads, key_dim, value_dim] = call.sizes()?;
    let (page_bytes, value_offset) = (call.u64()?, call.u64()?);
    let (scale, soft_cap, window) = (call.f32()?, call.f32()?, call.u32()?);
    let (key, value) = (call.number("K"), call.number("V"));
    let pages = Pages { layer, tables, key, value, key_dim, value_dim, page_bytes, value_offset };
    let (q, sinks) = (call.matrix(q, rows, heads * key_dim)?, call.optional(sinks, heads)?);
    let mut made = Vec::new();
    for row in 0..rows {
        let index = pages.index(call, row)?;
        let seen = (index + 1).saturating_sub(window)..index + 1;
        for (head, q) in q.row(row).chunks(key_dim).enumerate() {
            let kv_head = head / (heads / kv_heads);
            let (mut scores, mut values) = (Vec::new(), Vec::new());
            for index in seen.clone() {
                let page = pages.page(call, row, index)?;
                let place = (pages.key_place(page, kv_head, index), key_dim);
                let score = scale * dot(q, &call.memory.numbers(call.entry, key, place)?);
                scores.push(if soft_cap > 0.0 { gates::soft_cap(score, soft_cap) } else { score });
                let place = (pages.value_place(page, kv_head, index), value_dim);
                values.push(call.memory.numbers(call.entry, value, place)?);
            }
            scores.extend(sinks.as_ref().map(|sinks| sinks[head]));
            let weights = softmax(&scores);
            made.extend((0..value_dim).map(|column| {
                values.iter().zip(&weights).map(|(value, weight)| weight * value[column]).sum::<f32>()
            }));
        }
    }
    call.put("Y", y, &made)
}
