//! The list of tensors in a GGUF header, checked against the file: names, shapes, types, and where the data is.

use std::collections::HashSet;
use std::ops::Range;

use super::byte_order::{ByteOrder, has_big_endian};
use super::cursor::{Cursor, Limit};
use super::tensor_type::{self, TensorType};
use crate::tensor::{Encoding, TensorRecord, byte_length};
use crate::{FormatError, limits};

/// Bytes of the shortest item of the list: empty name, no dimension.
pub(super) const LEAST_BYTES: u64 = 8 + 4 + 4 + 8;

/// An item as it stands in the file.
struct Item {
    name: String,
    // Outermost first.
    shape: Vec<u64>,
    kind: u32,
    offset: u64,
}

/// The data section: where it begins, how offsets in it are aligned, and where the file ends.
struct Data {
    start: usize,
    alignment: usize,
    end: usize,
}

/// Reads `count` items at the cursor and places them in a file of `file_bytes`.
pub(super) fn read(
    cursor: &mut Cursor<'_>,
    count: usize,
    alignment: usize,
    file_bytes: usize,
) -> Result<Vec<TensorRecord>, FormatError> {
    let mut names = HashSet::new();
    let mut items = Vec::new();
    for index in 0..count {
        let item = item(cursor, index)?;
        if !names.insert(item.name.clone()) {
            let file = cursor.file.to_path_buf();
            return Err(FormatError::DuplicateTensor { file, tensor: item.name });
        }
        items.push(item);
    }
    let start = cursor.position().next_multiple_of(alignment);
    let data = Data { start, alignment, end: file_bytes };
    let records = items.into_iter().map(|item| place(cursor, item, &data));
    let records = records.collect::<Result<Vec<_>, _>>()?;
    refuse_overlap(cursor, &records)?;
    Ok(records)
}

fn item(cursor: &mut Cursor<'_>, index: usize) -> Result<Item, FormatError> {
    let limit = Limit(limits::TENSOR_NAME_BYTES, "TENSOR_NAME_BYTES");
    let name = cursor.string(limit, format_args!("the name of tensor {index}"))?;
    let what = format_args!("the entry of tensor `{name}`");
    let dimensions = cursor.u32(what)?;
    let limit = Limit(limits::DIMENSIONS, "DIMENSIONS");
    let dimensions = cursor.limited(
        dimensions.into(),
        limit,
        format_args!("the number of dimensions of tensor `{name}`"),
    )?;
    let mut shape = (0..dimensions).map(|_| cursor.u64(what)).collect::<Result<Vec<_>, _>>()?;
    shape.reverse();
    Ok(Item { name: name.to_owned(), shape, kind: cursor.u32(what)?, offset: cursor.u64(what)? })
}

fn place(cursor: &Cursor<'_>, item: Item, data: &Data) -> Result<TensorRecord, FormatError> {
    let file = cursor.file;
    let shape: Option<Vec<usize>> = item.shape.iter().map(|&n| usize::try_from(n).ok()).collect();
    let shape = shape.ok_or_else(|| FormatError::SizeOverflow {
        file: file.to_path_buf(),
        tensor: item.name.clone(),
        shape: item.shape.clone(),
    })?;
    let kind = tensor_type::find(item.kind);
    let bytes = match kind.and_then(|kind| kind.format) {
        Some(format) => byte_length(file, &item.name, &shape, format)?,
        None => 0,
    };
    let encoding = encoding(kind, item.kind, cursor.byte_order);
    let range = range(cursor, &item, bytes, data)?;
    Ok(TensorRecord { name: item.name, shape, encoding, range })
}

fn encoding(kind: Option<&TensorType>, id: u32, byte_order: ByteOrder) -> Encoding {
    let Some(TensorType { name, format, .. }) = kind else {
        return Encoding::Unsupported(format!("number {id}"));
    };
    match (*format, byte_order) {
        (None, ByteOrder::Little | ByteOrder::Big) => Encoding::Unsupported(format!("{name} ({id})")),
        (Some(format), ByteOrder::Little) => Encoding::Known(format),
        (Some(format), ByteOrder::Big) if has_big_endian(format) => Encoding::BigEndian(format),
        (Some(_), ByteOrder::Big) => Encoding::Unsupported(format!("{name} ({id}) in a big-endian file")),
    }
}

/// Where the `bytes` of `item` are, which must be in the file.
fn range(cursor: &Cursor<'_>, item: &Item, bytes: usize, data: &Data) -> Result<Range<usize>, FormatError> {
    if !item.offset.is_multiple_of(data.alignment as u64) {
        return Err(FormatError::Unaligned {
            file: cursor.file.to_path_buf(),
            tensor: item.name.clone(),
            offset: item.offset,
            alignment: data.alignment,
        });
    }
    let start = usize::try_from(item.offset).ok().and_then(|offset| data.start.checked_add(offset));
    let end = start.and_then(|start| start.checked_add(bytes));
    match start.zip(end) {
        Some((start, end)) if end <= data.end || bytes == 0 => Ok(start.min(data.end)..end.min(data.end)),
        Some(_) | None => Err(FormatError::Truncated {
            file: cursor.file.to_path_buf(),
            what: format!("tensor `{}`", item.name),
            offset: start.unwrap_or(usize::MAX),
            needed: bytes as u64,
            left: data.end.saturating_sub(start.unwrap_or(usize::MAX)),
        }),
    }
}

fn refuse_overlap(cursor: &Cursor<'_>, records: &[TensorRecord]) -> Result<(), FormatError> {
    let mut placed: Vec<&TensorRecord> = records.iter().filter(|record| !record.range.is_empty()).collect();
    placed.sort_by_key(|record| record.range.start);
    match placed.windows(2).find(|pair| pair[0].range.end > pair[1].range.start) {
        None => Ok(()),
        Some(pair) => Err(FormatError::Overlap {
            file: cursor.file.to_path_buf(),
            first: pair[0].name.clone(),
            second: pair[1].name.clone(),
        }),
    }
}
