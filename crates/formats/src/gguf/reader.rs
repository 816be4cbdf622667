//! Reads the header of a GGUF file: version, metadata, list of tensors.

use std::path::Path;

use super::byte_order::ByteOrder;
use super::cursor::{Cursor, Limit};
use super::metadata::Metadata;
use super::tensor_list;
use super::value::{Array, Strings, Value, ValueType};
use super::{ALIGNMENT_KEY, DEFAULT_ALIGNMENT};
use crate::tensor::TensorRecord;
use crate::{FormatError, limits};

/// The first bytes of every GGUF file.
pub(crate) const MAGIC: &[u8; 4] = b"GGUF";

/// Reads the whole header of the GGUF file `bytes`; `file` is what errors name.
pub(crate) fn read(file: &Path, bytes: &[u8]) -> Result<(Metadata, Vec<TensorRecord>), FormatError> {
    if !bytes.starts_with(MAGIC) {
        return Err(not_a_model(file, bytes));
    }
    let mut cursor = Cursor::new(file, bytes);
    version(&mut cursor)?;
    let tensors =
        cursor.count(Limit(limits::TENSORS, "TENSORS"), tensor_list::LEAST_BYTES, format_args!("tensors"))?;
    // The least entry has an empty key and a byte.
    let entries = cursor.count(
        Limit(limits::METADATA_ENTRIES, "METADATA_ENTRIES"),
        8 + 4 + 1,
        format_args!("metadata entries"),
    )?;
    let mut metadata = Metadata::new(file, [])?;
    for index in 0..entries {
        let limit = Limit(limits::KEY_BYTES, "KEY_BYTES");
        let key = cursor.string(limit, format_args!("metadata key {index}"))?;
        let value = value(&mut cursor, key)?;
        metadata.insert(key.to_owned(), value)?;
    }
    let alignment = alignment(&metadata)?;
    let tensors = tensor_list::read(&mut cursor, tensors, alignment, bytes.len())?;
    Ok((metadata, tensors))
}

/// Skips the magic and reads the version, which also tells the byte order: no version is as large as 3 the other way
/// round.
fn version(cursor: &mut Cursor<'_>) -> Result<(), FormatError> {
    let what = format_args!("the beginning of a GGUF file");
    cursor.take(MAGIC.len() as u64, what)?;
    let file = cursor.file.to_path_buf();
    let found = cursor.u32(what)?;
    match found {
        2 | 3 => Ok(()),
        _ if matches!(found.swap_bytes(), 2 | 3) => {
            cursor.byte_order = ByteOrder::Big;
            Ok(())
        }
        _ => Err(FormatError::GgufVersion { file, found }),
    }
}

/// The error for a file that doesn't begin as a GGUF file does.
fn not_a_model(file: &Path, bytes: &[u8]) -> FormatError {
    const SHOWN: usize = 8;
    let safetensors = file.extension().is_some_and(|extension| extension == "safetensors");
    FormatError::NotAModel {
        file: file.to_path_buf(),
        found: format!("`{}`", bytes[..bytes.len().min(SHOWN)].escape_ascii()),
        advice: if safetensors {
            "give the directory that holds this file and config.json"
        } else {
            "give a GGUF file or a directory with config.json and model.safetensors"
        },
    }
}

fn value(cursor: &mut Cursor<'_>, key: &str) -> Result<Value, FormatError> {
    let what = format_args!("the value of `{key}`");
    let number = &mut *cursor;
    Ok(match value_type(number, key)? {
        ValueType::U8 => Value::U8(u8::from_le_bytes(number.array(what)?)),
        ValueType::I8 => Value::I8(i8::from_le_bytes(number.array(what)?)),
        ValueType::U16 => Value::U16(u16::from_le_bytes(number.array(what)?)),
        ValueType::I16 => Value::I16(i16::from_le_bytes(number.array(what)?)),
        ValueType::U32 => Value::U32(u32::from_le_bytes(number.array(what)?)),
        ValueType::I32 => Value::I32(i32::from_le_bytes(number.array(what)?)),
        ValueType::F32 => Value::F32(f32::from_le_bytes(number.array(what)?)),
        ValueType::U64 => Value::U64(u64::from_le_bytes(number.array(what)?)),
        ValueType::I64 => Value::I64(i64::from_le_bytes(number.array(what)?)),
        ValueType::F64 => Value::F64(f64::from_le_bytes(number.array(what)?)),
        ValueType::Bool => {
            let [byte] = cursor.array(what)?;
            Value::Bool(bool_of(cursor, key, byte)?)
        }
        ValueType::String => Value::String(cursor.string(STRING, what)?.to_owned()),
        ValueType::Array => Value::Array(array(cursor, key)?),
    })
}

const STRING: Limit = Limit(limits::STRING_BYTES, "STRING_BYTES");

fn array(cursor: &mut Cursor<'_>, key: &str) -> Result<Array, FormatError> {
    let element = value_type(cursor, key)?;
    let limit = Limit(limits::ARRAY_ELEMENTS, "ARRAY_ELEMENTS");
    let count = cursor.count(limit, element.least_bytes(), format_args!("elements of `{key}`"))?;
    Ok(match element {
        ValueType::U8 => Array::U8(numbers(cursor, key, count, u8::from_le_bytes)?),
        ValueType::I8 => Array::I8(numbers(cursor, key, count, i8::from_le_bytes)?),
        ValueType::U16 => Array::U16(numbers(cursor, key, count, u16::from_le_bytes)?),
        ValueType::I16 => Array::I16(numbers(cursor, key, count, i16::from_le_bytes)?),
        ValueType::U32 => Array::U32(numbers(cursor, key, count, u32::from_le_bytes)?),
        ValueType::I32 => Array::I32(numbers(cursor, key, count, i32::from_le_bytes)?),
        ValueType::F32 => Array::F32(numbers(cursor, key, count, f32::from_le_bytes)?),
        ValueType::U64 => Array::U64(numbers(cursor, key, count, u64::from_le_bytes)?),
        ValueType::I64 => Array::I64(numbers(cursor, key, count, i64::from_le_bytes)?),
        ValueType::F64 => Array::F64(numbers(cursor, key, count, f64::from_le_bytes)?),
        ValueType::Bool => {
            let bytes = numbers(cursor, key, count, u8::from_le_bytes)?;
            let bools = bytes.into_iter().map(|byte| bool_of(cursor, key, byte));
            Array::Bool(bools.collect::<Result<_, _>>()?)
        }
        ValueType::String => Array::String(strings(cursor, key, count)?),
        ValueType::Array => {
            return Err(FormatError::NestedArray { file: cursor.file.to_path_buf(), key: key.to_owned() });
        }
    })
}

fn numbers<T, const N: usize>(
    cursor: &mut Cursor<'_>,
    key: &str,
    count: usize,
    from_le_bytes: fn([u8; N]) -> T,
) -> Result<Vec<T>, FormatError> {
    let bytes = cursor.take(count as u64 * N as u64, format_args!("the elements of `{key}`"))?;
    let number = |bytes: &[u8; N]| from_le_bytes(cursor.byte_order.to_little(*bytes));
    Ok(bytes.as_chunks().0.iter().map(number).collect())
}

fn strings(cursor: &mut Cursor<'_>, key: &str, count: usize) -> Result<Strings, FormatError> {
    let mut strings = Strings::with_capacity(count);
    for index in 0..count {
        strings.push(cursor.string(STRING, format_args!("string {index} of `{key}`"))?);
    }
    Ok(strings)
}

fn value_type(cursor: &mut Cursor<'_>, key: &str) -> Result<ValueType, FormatError> {
    let found = cursor.u32(format_args!("the value type of `{key}`"))?;
    ValueType::from_id(found).ok_or_else(|| FormatError::UnknownValueType {
        file: cursor.file.to_path_buf(),
        key: key.to_owned(),
        found,
    })
}

fn bool_of(cursor: &Cursor<'_>, key: &str, byte: u8) -> Result<bool, FormatError> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        found => Err(FormatError::NotABool { file: cursor.file.to_path_buf(), key: key.to_owned(), found }),
    }
}

/// The alignment of the tensor data, in bytes.
pub(super) fn alignment(metadata: &Metadata) -> Result<usize, FormatError> {
    let Some(found) = metadata.opt_u32(ALIGNMENT_KEY)? else { return Ok(DEFAULT_ALIGNMENT) };
    let file = metadata.file().to_path_buf();
    if !found.is_power_of_two() {
        return Err(FormatError::Alignment { file, found });
    }
    if found as usize > limits::ALIGNMENT {
        return Err(FormatError::OverLimit {
            file,
            what: "the alignment (general.alignment)".to_owned(),
            found: found.into(),
            limit: limits::ALIGNMENT,
            name: "ALIGNMENT",
        });
    }
    Ok(found as usize)
}
