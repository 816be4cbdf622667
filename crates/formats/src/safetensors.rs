//! Safetensors: one file, or shards that model.safetensors.index.json lists.
//!
//! ```text
//! header length:u64   header: JSON, name -> dtype, shape, data offsets   data, without gaps
//! ```
//!
//! The `safetensors` crate reads each tensor's entry and checks that the tensors cover the data without gap or overlap,
//! each with the bytes of its shape; that no name occurs twice is checked here, since it would take the last. The names of shards are paths from a stranger: only plain names are followed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::path::{Component, Path};

use gannet_tensor::Format;
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::Value;

use crate::hugging_face::TextFile;
use crate::tensor::{Encoding, TensorRecord, byte_length};
use crate::{FormatError, limits};

/// Bytes of the header's length.
const LENGTH_BYTES: usize = 8;

/// Reads the header of the safetensors file `bytes`; the tensors come in the order of their data.
pub(crate) fn read(file: &Path, bytes: &[u8]) -> Result<Vec<TensorRecord>, FormatError> {
    let header = header(file, bytes)?;
    let data_start = LENGTH_BYTES + header.len();
    let Header(metadata) = serde_json::from_slice(header)
        .map_err(|source| FormatError::SafetensorsHeader { file: file.to_path_buf(), source })?;
    let data_bytes = bytes.len() - data_start;
    if metadata.data_len() > data_bytes {
        return Err(FormatError::Truncated {
            file: file.to_path_buf(),
            what: "the tensor data".to_owned(),
            offset: data_start,
            needed: metadata.data_len() as u64,
            left: data_bytes,
        });
    }
    if metadata.data_len() < data_bytes {
        let (expected, found) = (metadata.data_len(), data_bytes);
        return Err(FormatError::TrailingBytes { file: file.to_path_buf(), expected, found });
    }
    let names = metadata.offset_keys();
    limited(file, "the number of tensors", names.len(), limits::TENSORS, "TENSORS")?;
    let records = names.into_iter().map(|name| {
        let info = metadata.info(&name).expect("the name is from the same list");
        record(file, name, info, data_start)
    });
    records.collect()
}

/// The JSON of the header.
fn header<'a>(file: &Path, bytes: &'a [u8]) -> Result<&'a [u8], FormatError> {
    let truncated = |what: &str, offset, needed, left| FormatError::Truncated {
        file: file.to_path_buf(),
        what: what.to_owned(),
        offset,
        needed,
        left,
    };
    let (length, rest) = bytes
        .split_first_chunk::<LENGTH_BYTES>()
        .ok_or_else(|| truncated("the header's length", 0, LENGTH_BYTES as u64, bytes.len()))?;
    let found = u64::from_le_bytes(*length);
    let (limit, name) = (limits::SAFETENSORS_HEADER_BYTES, "SAFETENSORS_HEADER_BYTES");
    let length = usize::try_from(found).unwrap_or(usize::MAX);
    limited(file, "the length of the safetensors header", length, limit, name)?;
    rest.get(..length).ok_or_else(|| truncated("the header", LENGTH_BYTES, found, rest.len()))
}

/// The tensors that a header lists, checked against each other.
struct Header(Metadata);

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut tensors = deserializer.deserialize_map(Entries)?;
        tensors.sort_by_key(|(_, info)| info.data_offsets);
        Metadata::new(None, tensors).map(Self).map_err(D::Error::custom)
    }
}

/// Reads the entries of a header in their order.
struct Entries;

impl<'de> Visitor<'de> for Entries {
    type Value = Vec<(String, TensorInfo)>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let (mut tensors, mut seen) = (Vec::new(), HashSet::new());
        while let Some(name) = entries.next_key::<String>()? {
            if !seen.insert(name.clone()) {
                return Err(gannet_json::twice(&name));
            }
            if name == "__metadata__" {
                // Free text of whoever wrote the file, for nobody here; only its form is checked.
                entries.next_value::<Option<HashMap<String, String>>>()?;
            } else {
                tensors.push((name, entries.next_value()?));
            }
        }
        Ok(tensors)
    }
}

fn record(
    file: &Path,
    name: String,
    info: &TensorInfo,
    data_start: usize,
) -> Result<TensorRecord, FormatError> {
    let (start, end) = info.data_offsets;
    let encoding = match format_of(info.dtype) {
        Some(format) => {
            // The crate counts the bits of all elements; a row has to be whole bytes as well.
            byte_length(file, &name, &info.shape, format)?;
            Encoding::Known(format)
        }
        None => Encoding::Unsupported(format!("{:?}", info.dtype)),
    };
    Ok(TensorRecord {
        name,
        shape: info.shape.clone(),
        encoding,
        range: data_start + start..data_start + end,
    })
}

fn format_of(dtype: Dtype) -> Option<Format> {
    let known = [
        (Dtype::F64, Format::F64),
        (Dtype::F32, Format::F32),
        (Dtype::F16, Format::F16),
        (Dtype::BF16, Format::Bf16),
        (Dtype::F8_E4M3, Format::F8E4M3),
        (Dtype::F8_E5M2, Format::F8E5M2),
        (Dtype::F8_E8M0, Format::F8E8M0),
        (Dtype::F4, Format::F4E2M1),
        (Dtype::U8, Format::U8),
        (Dtype::I8, Format::I8),
        (Dtype::I16, Format::I16),
        (Dtype::I32, Format::I32),
        (Dtype::I64, Format::I64),
    ];
    known.into_iter().find(|(known, _)| *known == dtype).map(|(_, format)| format)
}

/// Reads an index file: the names of the shards in ascending order, each with the tensors that it holds.
pub(crate) fn read_index(index: &TextFile) -> Result<BTreeMap<String, Vec<String>>, FormatError> {
    let file = &index.path;
    let mut json = index.read_object()?;
    let wrong = || FormatError::WrongJson {
        file: file.clone(),
        found: "no map from tensors to files",
        expected: "`weight_map`",
    };
    let Some(Value::Object(places)) = json.remove("weight_map") else { return Err(wrong()) };
    limited(file, "the number of tensors", places.len(), limits::TENSORS, "TENSORS")?;
    let mut shards: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (tensor, shard) in places {
        let Value::String(shard) = shard else { return Err(wrong()) };
        if !is_plain_name(&shard) {
            return Err(FormatError::ShardName { file: file.clone(), shard });
        }
        shards.entry(shard).or_default().push(tensor);
    }
    limited(file, "the number of shards", shards.len(), limits::SHARDS, "SHARDS")?;
    Ok(shards)
}

/// Whether `name` is a file in the same directory on every system.
fn is_plain_name(name: &str) -> bool {
    let mut components = Path::new(name).components();
    let one = matches!((components.next(), components.next()), (Some(Component::Normal(_)), None));
    one && !name.contains(['/', '\\', ':', '\0'])
}

fn limited(
    file: &Path,
    what: &str,
    found: usize,
    limit: usize,
    name: &'static str,
) -> Result<(), FormatError> {
    if found <= limit {
        return Ok(());
    }
    let (file, what) = (file.to_path_buf(), what.to_owned());
    Err(FormatError::OverLimit { file, what, found: found as u64, limit, name })
}
