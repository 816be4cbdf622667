//! The kernels of attention and of the pages it reads, on the simulated device.
//!
//! One function attends for a row over a range of keys and leaves partial sums, another folds them: the plain kernel, the
//! split one and the one for many rows differ in nothing but who calls them.

use super::super::Address;
use super::kernels::{Call, Outcome, rows_at};
use crate::error::CudaError;
use crate::number::Number;
use gannet_ops::numerics::KEY_SPLIT;
use gannet_ops::reference::gates::soft_cap;
use gannet_ops::reference::values::{Numbers, dot};
use gannet_ops::reference::{norms, rope};
use gannet_ops::{PAGE_TOKENS, Rope, RopeTable, int8};
use half::f16;
use std::ops::Range;
use std::sync::Arc;

/// Where the keys and values of a layer lie.
struct Pages {
    layer: Address,
    /// Each row's sequence, the group's pages, and where each sequence's begin.
    lists: [Address; 3],
    row_index: Address,
    formats: (Number, Number),
    dims: (usize, usize),
    page_bytes: usize,
    value_offset: usize,
    is_tiled: bool,
    /// Where keys are codes: the open pages.
    open: Option<OpenPages>,
}

/// Pages with keys in half precision.
struct OpenPages {
    layer: Address,
    scratch: Address,
    table_base: Address,
    page_bytes: usize,
    scratch_from: usize,
}

impl OpenPages {
    /// The last arguments of a kernel over pages in int8.
    fn take(call: &mut Call<'_>) -> Result<Option<Self>, CudaError> {
        if !call.has("INT8") {
            return Ok(None);
        }
        let [layer, scratch, table_base] = call.addresses()?;
        let (page_bytes, scratch_from) = (call.u64()?, call.u32()?);
        Ok(Some(Self { layer, scratch, table_base, page_bytes, scratch_from }))
    }
}

/// The codes of a head: of keys with a scale a channel, of values with one a token.
#[derive(Clone, Copy)]
struct Coded {
    dim: usize,
    are_keys: bool,
}

/// What a byte is more than its code.
const CODE_OFFSET: i16 = 128;

impl Coded {
    /// Bytes of a head.
    fn bytes(self) -> usize {
        let scales = if self.are_keys { self.dim } else { PAGE_TOKENS };
        PAGE_TOKENS * self.dim + scales * size_of::<f16>()
    }

    /// Where the scale of an element lies. How codes lie among themselves is the kernels' alone.
    fn scale(self, element: usize) -> usize {
        let number = if self.are_keys { element % self.dim } else { element / self.dim };
        PAGE_TOKENS * self.dim + number * size_of::<f16>()
    }

    /// Writes codes of some numbers that share a scale.
    fn write(self, call: &mut Call<'_>, head: Address, numbers: &[(usize, f32)]) -> Outcome {
        let scale = int8::scale(int8::largest(numbers.iter().map(|(_, x)| *x)));
        call.memory.write(
            call.entry,
            head.offset(self.scale(numbers[0].0)),
            &scale.to_bits().to_le_bytes(),
        )?;
        numbers.iter().try_for_each(|(element, x)| {
            let byte = (i16::from(int8::code(*x, scale.to_f32())) + CODE_OFFSET) as u8;
            call.memory.write(call.entry, head.offset(*element), &[byte])
        })
    }

    /// The numbers of a token.
    fn read(self, call: &Call<'_>, head: Address, slot: usize) -> Result<Vec<f32>, CudaError> {
        let number = |element: usize| {
            let byte = call.memory.read(call.entry, head.offset(element), 1)?[0];
            let scale = head.offset(self.scale(element));
            let scale = call.memory.numbers(call.entry, Number::F16, (scale, 1))?[0];
            Ok(f32::from(i16::from(byte) - CODE_OFFSET) * scale)
        };
        (slot * self.dim..(slot + 1) * self.dim).map(number).collect()
    }
}

impl Pages {
    /// The page with the key of this index of a sequence.
    fn page(&self, call: &Call<'_>, sequence: usize, index: usize) -> Result<Address, CudaError> {
        let [_, pages, table_base] = self.lists;
        let page = number(call, (pages, table_base), (sequence, index))?;
        Ok(self.layer.offset(page * self.page_bytes))
    }

    /// The keys of a head in the open page with this index of a sequence.
    fn open_head(
        &self,
        call: &Call<'_>,
        (open, kv_heads): (&OpenPages, usize),
        (sequence, index): (usize, usize),
        kv_head: usize,
    ) -> Result<Address, CudaError> {
        let page = number(call, (self.lists[1], open.table_base), (sequence, index))?;
        let head_bytes = PAGE_TOKENS * self.dims.0 * size_of::<f16>();
        let page = match page.checked_sub(open.scratch_from) {
            None => open.layer.offset(page * open.page_bytes),
            Some(page) => open.scratch.offset(page * kv_heads * head_bytes),
        };
        Ok(page.offset(kv_head * head_bytes))
    }

    fn coded(&self, are_keys: bool) -> Coded {
        Coded { dim: if are_keys { self.dims.0 } else { self.dims.1 }, are_keys }
    }

    fn sequence(&self, call: &Call<'_>, row: usize) -> Result<usize, CudaError> {
        Ok(call.word(self.lists[0], row)? as usize)
    }

    fn index(&self, call: &Call<'_>, row: usize) -> Result<usize, CudaError> {
        Ok(call.word(self.row_index, row)? as usize)
    }

    /// Where each element of a row begins in its head, in elements.
    fn elements(&self, index: usize, dim: usize) -> Vec<usize> {
        let slot = index % PAGE_TOKENS;
        let tiled = |column: usize| (slot / 8 * (dim / 8) + column / 8) * 64 + slot % 8 * 8 + column % 8;
        let plain = |column: usize| slot * dim + column;
        (0..dim).map(|column| if self.is_tiled { tiled(column) } else { plain(column) }).collect()
    }

    /// Writes the keys and values of a row to its page.
    fn write(&self, call: &mut Call<'_>, row: usize, [keys, values]: [&[f32]; 2]) -> Outcome {
        let (index, sequence) = (self.index(call, row)?, self.sequence(call, row)?);
        let page = self.page(call, sequence, index)?;
        let (key_dim, value_dim) = self.dims;
        let kv_heads = keys.len() / key_dim;
        for (kv_head, x) in keys.chunks(key_dim).enumerate() {
            let head = match &self.open {
                Some(open) => self.open_head(call, (open, kv_heads), (sequence, index), kv_head)?,
                None => page.offset(kv_head * PAGE_TOKENS * key_dim * self.formats.0.bytes()),
            };
            self.write_head(call, (head, self.formats.0), index, x)?;
        }
        let values_start = page.offset(self.value_offset);
        for (kv_head, x) in values.chunks(value_dim).enumerate() {
            if self.open.is_some() {
                let (coded, slot) = (self.coded(false), index % PAGE_TOKENS);
                let numbers: Vec<(usize, f32)> = (slot * value_dim..).zip(x.iter().copied()).collect();
                coded.write(call, values_start.offset(kv_head * coded.bytes()), &numbers)?;
                continue;
            }
            let head = values_start.offset(kv_head * PAGE_TOKENS * value_dim * self.formats.1.bytes());
            self.write_head(call, (head, self.formats.1), index, x)?;
        }
        Ok(())
    }

    fn write_head(
        &self,
        call: &mut Call<'_>,
        (head, format): (Address, Number),
        index: usize,
        x: &[f32],
    ) -> Outcome {
        for (element, x) in self.elements(index, x.len()).into_iter().zip(x) {
            call.memory.write(call.entry, head.offset(element * format.bytes()), &format.encode(&[*x]))?;
        }
        Ok(())
    }

    /// The key of an index, as a row of the same sequence at another index sees it.
    fn key(
        &self,
        call: &Call<'_>,
        (sequence, index, seen_from): (usize, usize, usize),
        (kv_head, kv_heads): (usize, usize),
    ) -> Result<Vec<f32>, CudaError> {
        let page = self.page(call, sequence, index)?;
        let head = match &self.open {
            Some(open) if index / PAGE_TOKENS == seen_from / PAGE_TOKENS => {
                self.open_head(call, (open, kv_heads), (sequence, index), kv_head)?
            }
            Some(_) => {
                let coded = self.coded(true);
                return coded.read(call, page.offset(kv_head * coded.bytes()), index % PAGE_TOKENS);
            }
            None => page.offset(kv_head * PAGE_TOKENS * self.dims.0 * self.formats.0.bytes()),
        };
        read(call, head, (self.formats.0, self.elements(index, self.dims.0)))
    }

    fn value(
        &self,
        call: &Call<'_>,
        (sequence, index): (usize, usize),
        kv_head: usize,
    ) -> Result<Vec<f32>, CudaError> {
        let start = self.page(call, sequence, index)?.offset(self.value_offset);
        if self.open.is_some() {
            let coded = self.coded(false);
            return coded.read(call, start.offset(kv_head * coded.bytes()), index % PAGE_TOKENS);
        }
        let head = start.offset(kv_head * PAGE_TOKENS * self.dims.1 * self.formats.1.bytes());
        read(call, head, (self.formats.1, self.elements(index, self.dims.1)))
    }
}

/// The number of the page with this index of a sequence.
fn number(
    call: &Call<'_>,
    (pages, table_base): (Address, Address),
    (sequence, index): (usize, usize),
) -> Result<usize, CudaError> {
    let base = call.word(table_base, sequence)? as i32;
    let place = i64::from(base) + (index / PAGE_TOKENS) as i64;
    let place = usize::try_from(place).map_err(|_| call.odd(format!("index {index} was released")))?;
    Ok(call.word(pages, place)? as usize)
}

/// Elements of a head.
fn read(
    call: &Call<'_>,
    head: Address,
    (format, elements): (Number, Vec<usize>),
) -> Result<Vec<f32>, CudaError> {
    // From the first element to the last one, since they lie near each other.
    let (first, count) = (elements[0], elements[elements.len() - 1] + 1 - elements[0]);
    let place = (head.offset(first * format.bytes()), count);
    let numbers = call.memory.numbers(call.entry, format, place)?;
    Ok(elements.into_iter().map(|element| numbers[element - first]).collect())
}

pub(super) fn write_kv(call: &mut Call<'_>) -> Outcome {
    let [layer, k, v, row_sequence, row_index, pages, base] = call.addresses()?;
    let [rows, kv_heads, key_dim, value_dim] = call.sizes()?;
    let (page_bytes, value_offset) = (call.u64()?, call.u64()?);
    let formats = (call.number("K"), call.number("V"));
    let (is_tiled, open) = (call.has("CORE"), OpenPages::take(call)?);
    let (lists, dims) = ([row_sequence, pages, base], (key_dim, value_dim));
    let pages = Pages { layer, lists, row_index, formats, dims, page_bytes, value_offset, is_tiled, open };
    let [k, v] = [call.matrix(k, rows, kv_heads * key_dim)?, call.matrix(v, rows, kv_heads * value_dim)?];
    (0..rows).try_for_each(|row| pages.write(call, row, [k.row(row), v.row(row)]))
}

/// Codes of the keys of full pages.
pub(super) fn quantise_keys(call: &mut Call<'_>) -> Outcome {
    let [layer, fills, row_sequence, row_index, pages, base] = call.addresses()?;
    let ([kv_heads, dim], page_bytes) = (call.sizes()?, call.u64()?);
    let (formats, lists) = ((call.number("K"), Number::F32), [row_sequence, pages, base]);
    let (is_tiled, open) = (call.has("CORE"), OpenPages::take(call)?);
    let pages = Pages {
        layer,
        lists,
        row_index,
        formats,
        dims: (dim, 0),
        page_bytes,
        value_offset: 0,
        is_tiled,
        open,
    };
    let coded = pages.coded(true);
    for place in 0..call.grid()[0] as usize {
        let row = call.word(fills, place)?;
        if row == u32::MAX {
            continue;
        }
        let (sequence, last) = (pages.sequence(call, row as usize)?, pages.index(call, row as usize)?);
        let page = pages.page(call, sequence, last)?;
        for kv_head in 0..kv_heads {
            let first = last + 1 - PAGE_TOKENS;
            let key = |index| pages.key(call, (sequence, index, last), (kv_head, kv_heads));
            let keys = (first..=last).map(key).collect::<Result<Vec<_>, _>>()?;
            for channel in 0..dim {
                let of_slot = |(slot, key): (usize, &Vec<f32>)| (slot * dim + channel, key[channel]);
                let numbers: Vec<(usize, f32)> = keys.iter().enumerate().map(of_slot).collect();
                coded.write(call, page.offset(kv_head * coded.bytes()), &numbers)?;
            }
        }
    }
    Ok(())
}

/// `head_norm`, `rope` and `write_kv` of stacked queries, keys and values.
pub(super) fn finish_qkv(call: &mut Call<'_>) -> Outcome {
    let [q, k, layer, qkv, query_norm, key_norm, positions, frequencies, axes] = call.addresses()?;
    let [row_sequence, row_index, pages, base] = call.addresses()?;
    let [heads, kv_heads, dim, pairs] = call.sizes()?;
    let (attention_scale, epsilon) = (call.f32()?, call.f32()?);
    let (page_bytes, value_offset) = (call.u64()?, call.u64()?);
    let (formats, lists) = ((call.number("K"), call.number("V")), [row_sequence, pages, base]);
    let (is_tiled, open) = (call.has("CORE"), OpenPages::take(call)?);
    let dims = (dim, dim);
    let pages = Pages { layer, lists, row_index, formats, dims, page_bytes, value_offset, is_tiled, open };
    let rows = call.grid()[1] as usize;
    let stacked = call.matrix(qkv, rows, (heads + 2 * kv_heads) * dim)?;
    let part = |start: usize, heads: usize| {
        let columns = stacked.rows().flat_map(|row| &row[start * dim..(start + heads) * dim]);
        Numbers::new(heads * dim, columns.copied().collect())
    };
    let placed = |x: Numbers, norm: Address, heads: usize| -> Result<Numbers, CudaError> {
        let weight = call.optional(norm, dim)?;
        let x = weight.map_or(x.clone(), |weight| norms::rms_norm(&x, &weight, epsilon));
        if pairs == 0 {
            return Ok(x);
        }
        let table = RopeTable {
            inverse_frequencies: call.floats(frequencies, pairs)?,
            axes: call.words(axes, pairs)?.into_iter().map(|axis| axis as u8).collect(),
            attention_scale,
        };
        let op = Rope { heads, head_dim: dim, table: Arc::new(table) };
        Ok(rope::rope(&x, &op, &rows_at(call, positions, rows)?))
    };
    let query = placed(part(0, heads), query_norm, heads)?;
    let key = placed(part(heads, kv_heads), key_norm, kv_heads)?;
    let value = part(heads + kv_heads, kv_heads);
    call.put_floats(q, &query.data)?;
    if k != Address::NONE {
        call.put_floats(k, &key.data)?;
    }
    (0..rows).try_for_each(|row| pages.write(call, row, [key.row(row), value.row(row)]))
}

/// How scores are made.
#[derive(Clone, Copy)]
struct Rule {
    heads: usize,
    kv_heads: usize,
    scale: f32,
    soft_cap: f32,
    window: usize,
}

impl Rule {
    fn seen(&self, index: usize) -> Range<usize> {
        (index + 1).saturating_sub(self.window)..index + 1
    }

    /// The splits of keys that a row at an index sees.
    fn splits(&self, index: usize) -> Range<usize> {
        let seen = self.seen(index);
        seen.start / KEY_SPLIT..(seen.end - 1) / KEY_SPLIT + 1
    }
}

/// Sums over some keys: weighted values, the largest score, and the weights'.
struct Partial {
    y: Vec<f32>,
    max: f32,
    sum: f32,
}

/// The sums of a head of a row over those keys of a split that the row sees; none where it sees none.
fn partial(
    call: &Call<'_>,
    (pages, rule): (&Pages, Rule),
    (sequence, index, split): (usize, usize, usize),
    (head, q): (usize, &[f32]),
) -> Result<Option<Partial>, CudaError> {
    let seen = rule.seen(index);
    let keys = seen.start.max(split * KEY_SPLIT)..seen.end.min((split + 1) * KEY_SPLIT);
    let kv_head = head / (rule.heads / rule.kv_heads);
    let (mut scores, mut values) = (Vec::new(), Vec::new());
    for key in keys {
        let found = pages.key(call, (sequence, key, index), (kv_head, rule.kv_heads))?;
        let score = rule.scale * dot(q, &found);
        scores.push(if rule.soft_cap > 0.0 { soft_cap(score, rule.soft_cap) } else { score });
        values.push(pages.value(call, (sequence, key), kv_head)?);
    }
    if scores.is_empty() {
        return Ok(None);
    }
    let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weights: Vec<f32> = scores.iter().map(|score| (score - max).exp()).collect();
    let mut y = vec![0.0; pages.dims.1];
    for (value, weight) in values.iter().zip(&weights) {
        y.iter_mut().zip(value).for_each(|(y, x)| *y += weight * x);
    }
    Ok(Some(Partial { y, max, sum: weights.iter().sum() }))
}

/// Folds sums from left to right, the sink last.
fn folded(partials: Vec<Partial>, sink: Option<f32>, dim: usize) -> Vec<f32> {
    let (mut max, mut sum, mut y) = (f32::NEG_INFINITY, 0.0, vec![0.0; dim]);
    let sinks = sink.map(|sink| Partial { y: vec![0.0; dim], max: sink, sum: 1.0 });
    for partial in partials.into_iter().chain(sinks) {
        let to = max.max(partial.max);
        let (old, new) = (if sum == 0.0 { 0.0 } else { (max - to).exp() }, (partial.max - to).exp());
        y.iter_mut().zip(&partial.y).for_each(|(y, x)| *y = *y * old + x * new);
        (max, sum) = (to, sum * old + partial.sum * new);
    }
    y.iter().map(|y| y / sum).collect()
}

/// A head of a row over all keys that it sees.
fn whole(
    call: &Call<'_>,
    (pages, rule): (&Pages, Rule),
    (sequence, index): (usize, usize),
    (head, q, sink): (usize, &[f32], Option<f32>),
) -> Result<Vec<f32>, CudaError> {
    let mut partials = Vec::new();
    for split in rule.splits(index) {
        partials.extend(partial(call, (pages, rule), (sequence, index, split), (head, q))?);
    }
    Ok(folded(partials, sink, pages.dims.1))
}

pub(super) fn attention(call: &mut Call<'_>) -> Outcome {
    let [y, q, layer, row_sequence, row_index, pages, base, sinks] = call.addresses()?;
    let [rows, heads, kv_heads, key_dim, value_dim] = call.sizes()?;
    let (page_bytes, value_offset) = (call.u64()?, call.u64()?);
    let (scale, soft_cap, window) = (call.f32()?, call.f32()?, call.u32()?);
    let formats = (call.number("K"), call.number("V"));
    let (lists, dims, open) = ([row_sequence, pages, base], (key_dim, value_dim), OpenPages::take(call)?);
    let is_tiled = false;
    let pages = Pages { layer, lists, row_index, formats, dims, page_bytes, value_offset, is_tiled, open };
    let rule = Rule { heads, kv_heads, scale, soft_cap, window };
    let (q, sinks) = (call.matrix(q, rows, heads * key_dim)?, call.optional(sinks, heads)?);
    let mut made = Vec::new();
    for row in 0..rows {
        let place = (pages.sequence(call, row)?, pages.index(call, row)?);
        for (head, q) in q.row(row).chunks(key_dim).enumerate() {
            let sink = sinks.as_ref().map(|sinks| sinks[head]);
            made.extend(whole(call, (&pages, rule), place, (head, q, sink))?);
        }
    }
    call.put("Y", y, &made)
}

/// The pages and the rule of a kernel over pages in core order; `lines` come before the open pages where a kernel takes them.
fn tiled(
    call: &mut Call<'_>,
    layer: Address,
    (lists, row_index): ([Address; 3], Address),
) -> Result<(Pages, Rule, usize), CudaError> {
    let [heads, kv_heads] = call.sizes()?;
    let (page_bytes, value_offset) = (call.u64()?, call.u64()?);
    let (scale, soft_cap, window) = (call.f32()?, call.f32()?, call.u32()?);
    if call.has("SOFT_CAP") != (soft_cap > 0.0) {
        return Err(call.odd("a soft cap and a variant without one, or the other way round".to_owned()));
    }
    let lines = if call.entry == "attention_split" { call.u32()? } else { 0 };
    let (format, dim, open) = (call.number("K"), call.size_define("DIM")?, OpenPages::take(call)?);
    let (formats, dims, is_tiled) = ((format, format), (dim, dim), true);
    let pages = Pages { layer, lists, row_index, formats, dims, page_bytes, value_offset, is_tiled, open };
    Ok((pages, Rule { heads, kv_heads, scale, soft_cap, window }, lines))
}

/// An item of a list of work.
fn item(call: &Call<'_>, work: Address, number: usize) -> Result<[usize; 4], CudaError> {
    let words = call.words(work.offset(number * 16), 4)?;
    Ok([0, 1, 2, 3].map(|place| words[place] as usize))
}

pub(super) fn attention_split(call: &mut Call<'_>) -> Outcome {
    let [y, scratch, q, layer, row_index, pages, base, sinks, work, count, offsets, lengths] =
        call.addresses()?;
    let (pages, rule, lines) = tiled(call, layer, ([Address::NONE, pages, base], row_index))?;
    let (dim, sinks) = (pages.dims.0, call.optional(sinks, rule.heads)?);
    for number in 0..call.word(count, 0)? as usize {
        let [first, rows, sequence, split] = item(call, work, number)?;
        if rows * (rule.heads / rule.kv_heads) > lines {
            return Err(call.odd(format!("an item of {rows} rows has more than {lines} lines")));
        }
        for row in first..first + rows {
            let index = pages.index(call, row)?;
            if index < call.word(lengths, sequence)? as usize {
                return Err(call.odd(format!("row {row} lies before what its sequence has already")));
            }
            let is_whole = rule.splits(index).len() == 1;
            for head in 0..rule.heads {
                let element = (row * rule.heads + head) * dim;
                let q = call.floats(q.offset(element * size_of::<f32>()), dim)?;
                let found = partial(call, (&pages, rule), (sequence, index, split), (head, &q))?;
                let Some(found) = found else { continue };
                if is_whole {
                    let sink = sinks.as_ref().map(|sinks| sinks[head]);
                    let place = y.offset(element * call.number("Y").bytes());
                    call.put("Y", place, &folded(vec![found], sink, dim))?;
                    continue;
                }
                let partial = call.word(offsets, row)?.wrapping_add(split as u32) as usize;
                let place = (partial * rule.heads + head) * (dim + 2) * size_of::<f32>();
                call.put_floats(scratch.offset(place), &[&found.y[..], &[found.max, found.sum]].concat())?;
            }
        }
    }
    Ok(())
}

/// Rows that see one split only are done.
pub(super) fn attention_fold(call: &mut Call<'_>) -> Outcome {
    let [y, scratch, row_index, offsets, sinks] = call.addresses()?;
    let (heads, window, dim) = (call.u32()?, call.u32()?, call.size_define("DIM")?);
    let sinks = call.optional(sinks, heads)?;
    let rule = Rule { heads, kv_heads: 1, scale: 1.0, soft_cap: 0.0, window };
    for row in 0..call.grid()[0] as usize {
        let splits = rule.splits(call.word(row_index, row)? as usize);
        if splits.len() == 1 {
            continue;
        }
        for head in 0..heads {
            let mut partials = Vec::new();
            for split in splits.clone() {
                let partial = call.word(offsets, row)?.wrapping_add(split as u32) as usize;
                let place = (partial * heads + head) * (dim + 2) * size_of::<f32>();
                let mut y = call.floats(scratch.offset(place), dim + 2)?;
                let (sum, max) = (y.remove(dim + 1), y.remove(dim));
                partials.push(Partial { y, max, sum });
            }
            let made = folded(partials, sinks.as_ref().map(|sinks| sinks[head]), dim);
            let place = (row * heads + head) * dim * call.number("Y").bytes();
            call.put("Y", y.offset(place), &made)?;
        }
    }
    Ok(())
}

pub(super) fn attention_prefill(call: &mut Call<'_>) -> Outcome {
    let [y, q, layer, row_sequence, row_index, pages, base, sinks, work] = call.addresses()?;
    let (pages, rule, _) = tiled(call, layer, ([row_sequence, pages, base], row_index))?;
    let (sinks, dim) = (call.optional(sinks, rule.heads)?, pages.dims.0);
    for number in 0..call.grid()[0] as usize {
        let [first, rows, sequence, _] = item(call, work, number)?;
        for row in first..first + rows {
            let place = (sequence, pages.index(call, row)?);
            for head in 0..rule.heads {
                let element = (row * rule.heads + head) * dim;
                let q = call.floats(q.offset(element * size_of::<f32>()), dim)?;
                let sink = sinks.as_ref().map(|sinks| sinks[head]);
                let made = whole(call, (&pages, rule), place, (head, &q, sink))?;
                let bytes = call.number("Y").bytes();
                call.put("Y", y.offset(element * bytes), &made)?;
            }
        }
    }
    Ok(())
}
