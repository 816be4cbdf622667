//! GGUF files: the golden of the Python package `gguf` (`goldens/formats.py`) is read and written as it is there, what
//! is written comes back, and files that are wrong give an error that says what.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use gannet_formats::gguf::{Array, GgufLayout, GgufWriter, Metadata, Strings, Value, ValueType};
use gannet_formats::{Checkpoint, FormatError, Source};
use gannet_tensor::Format;
use proptest::prelude::*;
use serde_json::Value as Json;
use tempfile::TempDir;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../goldens/small.gguf");

fn metadata(checkpoint: &Checkpoint) -> &Metadata {
    match &checkpoint.source {
        Source::Gguf(metadata) => metadata,
        Source::HuggingFace(_) => panic!("a GGUF file was opened"),
    }
}

/// A value as the Python package prints it.
fn json(value: &Value) -> Json {
    match value {
        Value::U8(n) => (*n).into(),
        Value::I8(n) => (*n).into(),
        Value::U16(n) => (*n).into(),
        Value::I16(n) => (*n).into(),
        Value::U32(n) => (*n).into(),
        Value::I32(n) => (*n).into(),
        Value::U64(n) => (*n).into(),
        Value::I64(n) => (*n).into(),
        Value::F32(n) => (*n).into(),
        Value::F64(n) => (*n).into(),
        Value::Bool(b) => (*b).into(),
        Value::String(text) => text.as_str().into(),
        Value::Array(Array::String(strings)) => strings.iter().collect(),
        Value::Array(Array::I32(numbers)) => numbers.clone().into(),
        Value::Array(Array::F32(numbers)) => numbers.clone().into(),
        Value::Array(Array::Bool(bools)) => bools.clone().into(),
        Value::Array(array) => panic!("the golden has no array of {}", array.element_type()),
    }
}

/// The types of a value as the Python package names them: its own, and that of the elements.
fn type_names(value: &Value) -> Vec<String> {
    let name = |kind: ValueType| {
        let short = kind.to_string();
        match (short.as_bytes()[0], short.strip_prefix(['u', 'i', 'f'])) {
            (b'u', Some(bits)) => format!("uint{bits}"),
            (b'i', Some(bits)) => format!("int{bits}"),
            (b'f', Some(bits)) => format!("float{bits}"),
            _ => short,
        }
    };
    let mut names = vec![name(value.value_type())];
    if let Value::Array(array) = value {
        names.push(name(array.element_type()));
    }
    names
}

#[test]
fn the_golden_reads_as_the_reference_reads_it() {
    let file = fs::read(GOLDEN).unwrap();
    let expected: Json =
        serde_json::from_slice(&fs::read(Path::new(GOLDEN).with_extension("json")).unwrap()).unwrap();
    let checkpoint = Checkpoint::open(Path::new(GOLDEN)).unwrap();

    let entries: serde_json::Map<String, Json> = metadata(&checkpoint)
        .entries()
        .map(|(key, value)| {
            (key.to_owned(), serde_json::json!({ "types": type_names(value), "value": json(value) }))
        })
        .collect();
    assert_eq!(Json::Object(entries), expected["metadata"]);

    let tensors = expected["tensors"].as_array().unwrap();
    assert_eq!(checkpoint.tensors().count(), tensors.len());
    for (tensor, expected) in checkpoint.tensors().zip(tensors) {
        assert_eq!(tensor.name, expected["name"]);
        assert_eq!(tensor.format.name(), expected["format"]);
        assert_eq!(serde_json::json!(tensor.shape), expected["shape"]);
        let place = |key: &str| usize::try_from(expected[key].as_u64().unwrap()).unwrap();
        assert_eq!(*tensor.bytes().unwrap(), file[place("offset")..][..place("bytes")], "{}", tensor.name);
    }
}

#[test]
fn a_big_endian_file_holds_what_its_little_endian_twin_holds() {
    let open = |name: &str| Checkpoint::open(&Path::new(GOLDEN).with_file_name(name)).unwrap();
    let (little, big) = (open("little-endian.gguf"), open("big-endian.gguf"));
    let entries =
        |checkpoint: &Checkpoint| format!("{:?}", metadata(checkpoint).entries().collect::<Vec<_>>());
    assert_eq!(entries(&big), entries(&little));
    assert_eq!(big.tensors().count(), 9);
    for (big, little) in big.tensors().zip(little.tensors()) {
        assert_eq!((big.name, big.format, big.shape), (little.name, little.format, little.shape));
        assert_eq!(big.bytes().unwrap(), little.bytes().unwrap(), "{}", big.name);
    }
}

#[test]
fn the_scale_beside_an_nvfp4_weight_counts() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("m.gguf");
    let blocks: Vec<u8> = (0..2 * 3 * 36u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 25) as u8).collect();
    let scales = [0.5f32, 0.25].map(f32::to_le_bytes).concat();
    let write = |scale: &[u8]| {
        let mut writer = GgufWriter::new(&path);
        writer.push_tensor("plain.weight", Format::Nvfp4, &[2, 3, 64], &blocks).unwrap();
        writer.push_tensor("a.weight", Format::Nvfp4, &[2, 3, 64], &blocks).unwrap();
        writer.push_tensor("a.scale", Format::F32, &[scale.len() / 4], scale).unwrap();
        writer.push_tensor("a.input_scale", Format::F32, &[1], &[0; 4]).unwrap();
        writer.write(File::create(&path).unwrap()).unwrap();
        Checkpoint::open(&path)
    };
    for (scale, factors) in [(&scales[..], [0.5, 0.25]), (&scales[..4], [0.5, 0.5])] {
        let checkpoint = write(scale).unwrap();
        let names: Vec<_> = checkpoint.tensors().map(|tensor| (tensor.name, tensor.format)).collect();
        assert_eq!(names, [("plain.weight", Format::Nvfp4), ("a.weight", Format::Nvfp4Scaled)]);
        let values = |name: &str| checkpoint.tensor(name).unwrap().unwrap().decode().unwrap();
        let plain = values("plain.weight").into_iter().enumerate();
        // Powers of two, so that no product is rounded.
        let expected: Vec<f32> = plain.map(|(i, value)| value * factors[i / (3 * 64)]).collect();
        assert_eq!(values("a.weight"), expected);
    }
    let error = write(&[0; 12]).unwrap_err().to_string();
    assert!(error.ends_with("`a.scale` has the shape [3], expected one number, or one an expert"), "{error}");
}

#[test]
fn the_golden_is_written_byte_for_byte_as_the_reference_writes_it() {
    let checkpoint = Checkpoint::open(Path::new(GOLDEN)).unwrap();
    let mut writer = GgufWriter::new(Path::new("again.gguf"));
    for (key, value) in metadata(&checkpoint).entries() {
        writer.push_entry(key, value.clone()).unwrap();
    }
    let tensors: Vec<_> = checkpoint.tensors().map(|tensor| (tensor, tensor.bytes().unwrap())).collect();
    for (tensor, bytes) in &tensors {
        writer.push_tensor(tensor.name, tensor.format, tensor.shape, bytes).unwrap();
    }
    let mut again = Vec::new();
    writer.write(&mut again).unwrap();
    assert_eq!(again, fs::read(GOLDEN).unwrap());
}

fn any_array() -> impl Strategy<Value = Array> {
    let count = 0..6usize;
    prop_oneof![
        prop::collection::vec(any::<u8>(), count.clone()).prop_map(Array::U8),
        prop::collection::vec(any::<i8>(), count.clone()).prop_map(Array::I8),
        prop::collection::vec(any::<u16>(), count.clone()).prop_map(Array::U16),
        prop::collection::vec(any::<i16>(), count.clone()).prop_map(Array::I16),
        prop::collection::vec(any::<u32>(), count.clone()).prop_map(Array::U32),
        prop::collection::vec(any::<i32>(), count.clone()).prop_map(Array::I32),
        prop::collection::vec(any::<f32>(), count.clone()).prop_map(Array::F32),
        prop::collection::vec(any::<bool>(), count.clone()).prop_map(Array::Bool),
        prop::collection::vec(any::<u64>(), count.clone()).prop_map(Array::U64),
        prop::collection::vec(any::<i64>(), count.clone()).prop_map(Array::I64),
        prop::collection::vec(any::<f64>(), count.clone()).prop_map(Array::F64),
        prop::collection::vec(".{0,12}", count)
            .prop_map(|texts| Array::String(texts.iter().map(String::as_str).collect())),
    ]
}

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u8>().prop_map(Value::U8),
        any::<i8>().prop_map(Value::I8),
        any::<u16>().prop_map(Value::U16),
        any::<i16>().prop_map(Value::I16),
        any::<u32>().prop_map(Value::U32),
        any::<i32>().prop_map(Value::I32),
        any::<f32>().prop_map(Value::F32),
        any::<bool>().prop_map(Value::Bool),
        ".{0,40}".prop_map(Value::String),
        any::<u64>().prop_map(Value::U64),
        any::<i64>().prop_map(Value::I64),
        any::<f64>().prop_map(Value::F64),
        any_array().prop_map(Value::Array),
    ]
}

/// Formats that only files of other kinds, or weights in parts, are read into.
const NO_GGUF_TYPE: [Format; 9] = [
    Format::U8,
    Format::F8E4M3,
    Format::F8E5M2,
    Format::F8E8M0,
    Format::F4E2M1,
    Format::Q4Z,
    Format::Q8Z,
    Format::F8Scaled,
    Format::Nvfp4Scaled,
];

/// A format, a shape of up to four dimensions in it, and bytes.
fn any_tensor() -> impl Strategy<Value = (Format, Vec<usize>, Vec<u8>)> {
    let in_gguf = |format: &Format| !NO_GGUF_TYPE.contains(format);
    let format = prop::sample::select(Format::ALL.into_iter().filter(in_gguf).collect::<Vec<_>>());
    (format, prop::collection::vec(0..3usize, 0..=3), 1..3usize, any::<u8>()).prop_map(
        |(format, mut shape, blocks, seed)| {
            let length = shape.iter().product::<usize>() * blocks * format.block_bytes();
            shape.push(blocks * format.block_elements());
            let bytes = (0..length).map(|i| seed.wrapping_mul(31).wrapping_add(i as u8)).collect();
            (format, shape, bytes)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read_back(
        entries in prop::collection::btree_map("[a-z.]{1,20}", any_value(), 0..8),
        tensors in prop::collection::btree_map(".{0,20}", any_tensor(), 0..6),
        alignment in prop::option::of(0..9u32),
    ) {
        let mut entries: Vec<(String, Value)> = entries.into_iter().collect();
        entries.extend(alignment.map(|power| ("general.alignment".to_owned(), Value::U32(1 << power))));
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("model.gguf");
        let mut writer = GgufWriter::new(&path);
        for (key, value) in &entries {
            writer.push_entry(key, value.clone()).unwrap();
        }
        for (name, (format, shape, bytes)) in &tensors {
            writer.push_tensor(name, *format, shape, bytes).unwrap();
        }
        writer.write(File::create(&path).unwrap()).unwrap();

        let checkpoint = Checkpoint::open(&path).unwrap();
        let read: Vec<_> = metadata(&checkpoint).entries().collect();
        // Compared as text, where NaN equals itself.
        prop_assert_eq!(format!("{read:?}"), format!("{:?}", entries.iter().map(|(k, v)| (k, v)).collect::<Vec<_>>()));
        prop_assert_eq!(checkpoint.tensors().count(), tensors.len());
        for (tensor, (name, (format, shape, bytes))) in checkpoint.tensors().zip(&tensors) {
            prop_assert_eq!((tensor.name, tensor.format, tensor.shape), (name.as_str(), *format, shape.as_slice()));
            prop_assert_eq!(&*tensor.bytes().unwrap(), bytes.as_slice());
            prop_assert_eq!(tensor.elements(), shape.iter().product::<usize>());
        }
    }
}

fn sample_metadata() -> Metadata {
    let entries: [(&str, Value); 10] = [
        ("n", 7u32.into()),
        ("wide", (1u64 << 40).into()),
        ("minus", (-1i32).into()),
        ("half", 0.5f64.into()),
        ("yes", true.into()),
        ("text", "gannet".into()),
        ("texts", ["a", "b"].into_iter().collect::<Strings>().into()),
        ("counts", vec![1i32, 2].into()),
        ("signed", vec![-1i32, 2].into()),
        ("scores", vec![0.5f32].into()),
    ];
    let entries = entries.into_iter().map(|(key, value)| (key.to_owned(), value));
    Metadata::new(Path::new("m.gguf"), entries).expect("the keys differ")
}

#[test]
fn integers_convert_where_the_value_fits() {
    let metadata = sample_metadata();
    assert_eq!(metadata.u32("n").unwrap(), 7);
    assert_eq!(metadata.u64("n").unwrap(), 7);
    assert_eq!(metadata.i32("n").unwrap(), 7);
    assert_eq!(metadata.u64("wide").unwrap(), 1 << 40);
    assert_eq!(metadata.i32("minus").unwrap(), -1);
    assert_eq!(metadata.f32("half").unwrap(), 0.5);
    assert_eq!(*metadata.u32s("counts").unwrap(), [1, 2]);
    assert_eq!(*metadata.i32s("signed").unwrap(), [-1, 2]);
    assert_eq!(metadata.f32s("scores").unwrap(), [0.5]);
    assert_eq!(metadata.strings("texts").unwrap().iter().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(metadata.strings("texts").unwrap().get(2), None);
    assert_eq!(metadata.opt_u32("missing").unwrap(), None);
}

#[test]
fn an_accessor_names_key_found_and_expected() {
    let metadata = sample_metadata();
    let check = |error: FormatError, expect: &str| assert_eq!(error.to_string(), format!("`m.gguf`{expect}"));
    check(
        metadata.u32("missing").unwrap_err(),
        " has no metadata key `missing`, expected an integer from 0 to 2^32 - 1",
    );
    check(
        metadata.u32("wide").unwrap_err(),
        ": metadata key `wide` is the u64 1099511627776, expected an integer from 0 to 2^32 - 1",
    );
    check(
        metadata.opt_u64("minus").unwrap_err(),
        ": metadata key `minus` is the i32 -1, expected an integer from 0 to 2^64 - 1",
    );
    check(metadata.f32("n").unwrap_err(), ": metadata key `n` is the u32 7, expected a float");
    check(metadata.bool("n").unwrap_err(), ": metadata key `n` is the u32 7, expected a bool");
    check(
        metadata.str("texts").unwrap_err(),
        ": metadata key `texts` is an array of 2 x string, expected a string",
    );
    check(
        metadata.u32s("signed").unwrap_err(),
        ": metadata key `signed` is an array of 2 x i32, expected an array of integers from 0 to 2^32 - 1",
    );
}

/// The bytes of a small file: an entry of 4 bytes and two tensors, the last one without padding.
fn small_file() -> Vec<u8> {
    let mut writer = GgufWriter::new(Path::new("small.gguf"));
    writer.push_entry("toy.width", 32u32).expect("a new key");
    writer.push_entry("toy.names", ["a", "b"].into_iter().collect::<Strings>()).expect("a new key");
    writer.push_tensor("a", Format::Q8_0, &[2, 32], &[1; 68]).expect("68 bytes");
    writer.push_tensor("b", Format::F32, &[8], &[2; 32]).expect("32 bytes");
    let mut bytes = Vec::new();
    writer.write(&mut bytes).expect("memory takes all");
    bytes
}

/// A directory with the small file in it, its path, and the file open for damage in place.
fn small_file_on_disk() -> (TempDir, PathBuf, File) {
    let directory = TempDir::new().expect("a temporary directory");
    let path = directory.path().join("model.gguf");
    fs::write(&path, small_file()).expect("the directory is there");
    let file = File::options().write(true).open(&path).expect("the file is there");
    (directory, path, file)
}

#[test]
fn a_file_cut_off_anywhere_is_an_error() {
    let (_directory, path, file) = small_file_on_disk();
    assert!(Checkpoint::open(&path).is_ok());
    for length in (0..small_file().len()).rev() {
        file.set_len(length as u64).unwrap();
        assert!(Checkpoint::open(&path).is_err(), "{length} bytes");
    }
}

#[test]
fn a_flipped_bit_gives_an_error_or_tensors_within_the_file() {
    let (_directory, path, mut file) = small_file_on_disk();
    for (place, byte) in small_file().into_iter().enumerate() {
        for flipped in (0..8).map(|bit| byte ^ (1 << bit)).chain([byte]) {
            file.seek(SeekFrom::Start(place as u64)).unwrap();
            file.write_all(&[flipped]).unwrap();
            let Ok(checkpoint) = Checkpoint::open(&path) else { continue };
            for tensor in checkpoint.tensors() {
                assert_eq!(tensor.bytes().unwrap().len(), tensor.byte_length());
            }
        }
    }
    assert!(Checkpoint::open(&path).is_ok(), "the last byte of each round is the right one");
}

#[test]
fn the_writer_refuses_what_the_reader_would() {
    let path = PathBuf::from("w.gguf");
    let mut writer = GgufWriter::new(&path);
    writer.push_entry("k", 1u32).unwrap();
    writer.push_tensor("t", Format::F32, &[1], &[0; 4]).unwrap();
    let check = |error: Result<(), FormatError>, expect: &str| {
        assert_eq!(error.unwrap_err().to_string(), format!("`w.gguf`: {expect}"));
    };
    check(writer.push_entry("k", 2u32), "metadata key `k` occurs twice");
    check(writer.push_tensor("t", Format::F32, &[1], &[0; 4]), "tensor `t` occurs twice");
    check(
        writer.push_tensor("u", Format::F32, &[2], &[0; 4]),
        "tensor `u` has 4 bytes, expected 8 for its shape",
    );
    check(
        writer.push_tensor("u", Format::Q4K, &[128], &[0; 72]),
        "tensor `u` has 128 columns, expected a multiple of 256, the block of `q4_k`",
    );
    check(
        writer.push_tensor("u", Format::F32, &[1, 1, 1, 1, 1], &[0; 4]),
        "the number of dimensions is 5, above the limit of 4 (DIMENSIONS)",
    );
    for format in NO_GGUF_TYPE {
        check(
            writer.push_tensor("u", format, &[format.block_elements()], &[0; 40][..format.block_bytes()]),
            &format!("tensor `u` is in `{format}`, for which GGUF has no type"),
        );
    }
    writer.push_entry("general.alignment", 24u32).unwrap();
    check(writer.write(Vec::new()), "alignment (general.alignment) is 24, expected a power of two");
}

/// Two tensors around one without elements.
fn small_layout() -> GgufLayout {
    let mut layout = GgufLayout::new(Path::new("small.gguf"));
    layout.push_entry("toy.width", 32u32).expect("a new name");
    layout.declare_tensor("a", Format::Q8_0, &[2, 32]).expect("a new name");
    layout.declare_tensor("none", Format::F32, &[0]).expect("a new name");
    layout.declare_tensor("b", Format::F32, &[8]).expect("a new name");
    layout
}

#[test]
fn a_file_that_is_written_in_pieces_is_the_file_that_is_written_at_once() {
    let mut writer = GgufWriter::new(Path::new("small.gguf"));
    writer.push_entry("toy.width", 32u32).unwrap();
    writer.push_tensor("a", Format::Q8_0, &[2, 32], &[1; 68]).unwrap();
    writer.push_tensor("none", Format::F32, &[0], &[]).unwrap();
    writer.push_tensor("b", Format::F32, &[8], &[2; 32]).unwrap();
    let mut whole = Vec::new();
    writer.write(&mut whole).unwrap();
    for piece_bytes in [1, 5, 34, 68] {
        let mut bytes = Vec::new();
        let layout = small_layout();
        let mut stream = layout.begin(&mut bytes).unwrap();
        for piece in [1; 68].chunks(piece_bytes).chain([2; 32].chunks(piece_bytes)) {
            stream.write(piece).unwrap();
        }
        stream.finish().unwrap();
        assert_eq!(bytes, whole, "pieces of {piece_bytes} bytes");
    }
}

#[test]
fn a_stream_takes_exactly_the_bytes_of_its_tensors() {
    let check = |pieces: &[usize], expect: &str| {
        let layout = small_layout();
        let mut stream = layout.begin(Vec::new()).unwrap();
        let written = pieces.iter().try_for_each(|&bytes| stream.write(&[0; 100][..bytes]));
        let error = written.and_then(|()| stream.finish()).unwrap_err().to_string();
        assert_eq!(error, format!("`small.gguf`: tensor {expect} for its shape"), "{pieces:?}");
    };
    check(&[69], "`a` has 69 bytes, expected 68");
    check(&[60, 9], "`a` has 69 bytes, expected 68");
    check(&[67], "`a` has 67 bytes, expected 68");
    check(&[68, 31], "`b` has 31 bytes, expected 32");
    check(&[68], "`b` has 0 bytes, expected 32");
    check(&[68, 32, 4], "`b` has 36 bytes, expected 32");
}

#[test]
fn a_large_header_is_opened_whole() {
    let (tokens, tensors) = (300_000, 20_000);
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("large.gguf");
    let data: Vec<[u8; 32]> = (0..tensors).map(|index| [index as u8; 32]).collect();
    let mut writer = GgufWriter::new(&path);
    let texts: Vec<String> = (0..tokens).map(|id| format!("token{id}")).collect();
    let texts: Strings = texts.iter().map(String::as_str).collect();
    writer.push_entry("tokenizer.ggml.tokens", texts).unwrap();
    writer.push_entry("tokenizer.ggml.scores", vec![0.5f32; tokens]).unwrap();
    for (index, data) in data.iter().enumerate() {
        writer.push_tensor(&format!("blk.{index}.weight"), Format::F32, &[8], data).unwrap();
    }
    writer.write(File::create(&path).unwrap()).unwrap();

    let checkpoint = Checkpoint::open(&path).unwrap();
    assert_eq!(checkpoint.tensors().count(), tensors);
    let last = checkpoint.tensor("blk.19999.weight").unwrap().unwrap();
    assert_eq!(*last.bytes().unwrap(), [19_999_usize as u8; 32]);
    for (key, value) in metadata(&checkpoint).entries() {
        let Value::Array(list) = value else { panic!("{key} is no list") };
        assert_eq!(list.len(), tokens, "{key}");
    }
}
