//! Made-up GGUF files that lie: each gives the one error that says what is wrong, before anything is allocated for it.

use std::fs;

use gannet_formats::{Checkpoint, FormatError, Source};
use tempfile::TempDir;

/// A GGUF file written field by field, so that each may be wrong.
#[derive(Clone, Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    /// Magic, version 3 and the two counts.
    fn file(tensors: u64, entries: u64) -> Self {
        Bytes(b"GGUF".to_vec()).u32(3).u64(tensors).u64(entries)
    }

    fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    fn u32(self, number: u32) -> Self {
        self.raw(&number.to_le_bytes())
    }

    fn u64(self, number: u64) -> Self {
        self.raw(&number.to_le_bytes())
    }

    fn text(self, text: &[u8]) -> Self {
        self.u64(text.len() as u64).raw(text)
    }

    fn entry_u32(self, key: &str, value: u32) -> Self {
        self.text(key.as_bytes()).u32(4).u32(value)
    }

    /// An item of the tensor list, dimensions innermost first.
    fn tensor(self, name: &str, dimensions: &[u64], kind: u32, offset: u64) -> Self {
        let start = self.text(name.as_bytes()).u32(dimensions.len() as u32);
        dimensions.iter().fold(start, |bytes, &n| bytes.u64(n)).u32(kind).u64(offset)
    }

    /// Padding to the alignment and `count` bytes of data.
    fn data(mut self, count: usize) -> Self {
        let start = self.0.len().next_multiple_of(32);
        self.0.resize(start + count, 0);
        self
    }
}

fn open(bytes: &Bytes) -> (TempDir, Result<Checkpoint, FormatError>) {
    let directory = TempDir::new().expect("a temporary directory");
    let path = directory.path().join("x.gguf");
    fs::write(&path, &bytes.0).expect("the directory is there");
    let result = Checkpoint::open(&path);
    (directory, result)
}

/// Opens `bytes` and compares the error, in which `FILE` stands for the path.
#[track_caller]
fn check(bytes: &Bytes, expect: &str) {
    let (directory, result) = open(bytes);
    let path = directory.path().join("x.gguf").display().to_string();
    let error = result.expect_err("the file is wrong").to_string();
    assert_eq!(error.replace(&path, "FILE"), expect);
}

#[test]
fn what_is_no_gguf_file_of_ours_is_named() {
    check(&Bytes::default(), "`FILE` is empty");
    check(
        &Bytes::default().raw(b"PK\x03\x04 archive"),
        "`FILE` is no model that can be opened: it begins with `PK\\x03\\x04 arc`, expected `GGUF`; \
         give a GGUF file or a directory with config.json and model.safetensors",
    );
    check(
        &Bytes::default().raw(b"GGUF").u32(1).u64(0),
        "`FILE` is GGUF version 1, expected 2 or 3; convert the model again",
    );
}

#[test]
fn version_2_has_the_layout_of_version_3() {
    let mut bytes = Bytes::file(1, 0).tensor("t", &[8], 0, 0).data(32);
    bytes.0[4] = 2;
    let (_directory, result) = open(&bytes);
    assert_eq!(result.unwrap().tensor("t").unwrap().unwrap().shape, [8]);
}

#[test]
fn a_count_or_length_beyond_the_file_is_refused() {
    check(
        &Bytes::file(u64::MAX, 0),
        "`FILE`: the number of tensors is 18446744073709551615, above the limit of 131072 (TENSORS)",
    );
    check(
        &Bytes::file(100_000, 0),
        "`FILE` ends too early: expected 2400000 bytes for 100000 tensors from byte 16 on, found 8; \
         it was cut off or damaged, so fetch it again",
    );
    check(
        &Bytes::file(0, 70_000),
        "`FILE`: the number of metadata entries is 70000, above the limit of 65536 (METADATA_ENTRIES)",
    );
    check(
        &Bytes::file(0, 1).u64(1 << 50).raw(&[0; 32]),
        "`FILE`: the length of metadata key 0 is 1125899906842624, above the limit of 65535 (KEY_BYTES)",
    );
    check(
        &Bytes::file(0, 1).text(b"k").u32(8).u64(1 << 20),
        "`FILE` ends too early: expected 1048576 bytes for the value of `k` from byte 45 on, found 0; \
         it was cut off or damaged, so fetch it again",
    );
    check(
        &Bytes::file(0, 1).text(b"k").u32(9).u32(6).u64(u64::MAX),
        "`FILE`: the number of elements of `k` is 18446744073709551615, above the limit of 16777216 (ARRAY_ELEMENTS)",
    );
    check(
        &Bytes::file(0, 1).text(b"k").u32(9).u32(8).u64(1 << 23),
        "`FILE` ends too early: expected 67108864 bytes for 8388608 elements of `k` from byte 49 on, found 0; it was cut off or damaged, so fetch it again",
    );
}

#[test]
fn a_malformed_entry_is_named() {
    check(
        &Bytes::file(0, 1).text(b"k").u32(13).u32(0),
        "`FILE`: metadata key `k` has the value type 13, expected 0 to 12",
    );
    check(
        &Bytes::file(0, 1).text(b"k").u32(9).u32(9).u64(1).u32(4).u64(0),
        "`FILE`: metadata key `k` is an array of arrays, which no model uses",
    );
    check(
        &Bytes::file(0, 1).text(b"k").u32(7).raw(&[2]),
        "`FILE`: metadata key `k` holds the bool 2, expected 0 or 1",
    );
    check(&Bytes::file(0, 1).text(b"\xff").u32(7).raw(&[1]), "`FILE`: metadata key 0 is not UTF-8 text");
    check(
        &Bytes::file(0, 1).text(b"k").u32(9).u32(8).u64(1).text(b"\xc3"),
        "`FILE`: string 0 of `k` is not UTF-8 text",
    );
    check(&Bytes::file(0, 2).entry_u32("k", 1).entry_u32("k", 2), "`FILE`: metadata key `k` occurs twice");
    let alignment = |alignment| Bytes::file(0, 1).entry_u32("general.alignment", alignment);
    check(&alignment(0), "`FILE`: alignment (general.alignment) is 0, expected a power of two");
    check(&alignment(48), "`FILE`: alignment (general.alignment) is 48, expected a power of two");
    check(
        &alignment(1 << 21),
        "`FILE`: the alignment (general.alignment) is 2097152, above the limit of 1048576 (ALIGNMENT)",
    );
}

#[test]
fn a_tensor_that_cannot_be_is_named() {
    let one =
        |dimensions: &[u64], kind, offset| Bytes::file(1, 0).tensor("t", dimensions, kind, offset).data(64);
    check(
        &one(&[1; 5], 0, 0),
        "`FILE`: the number of dimensions of tensor `t` is 5, above the limit of 4 (DIMENSIONS)",
    );
    check(
        &one(&[u64::MAX / 2, 4], 0, 0),
        "`FILE`: tensor `t` of shape [4, 9223372036854775807] is larger than the address space",
    );
    check(
        &one(&[100], 12, 0),
        "`FILE`: tensor `t` has 100 columns, expected a multiple of 256, the block of `q4_k`",
    );
    check(
        &one(&[100], 17, 0),
        "`FILE`: tensor `t` has 100 columns, expected a multiple of 256, the block of `iq2_xs`",
    );
    check(&one(&[4], 0, 8), "`FILE`: tensor `t` starts at offset 8, expected a multiple of the alignment 32");
    check(
        &one(&[16], 0, 32),
        "`FILE` ends too early: expected 64 bytes for tensor `t` from byte 96 on, found 32; \
         it was cut off or damaged, so fetch it again",
    );
    check(
        &one(&[16], 0, u64::MAX - 31),
        &format!(
            "`FILE` ends too early: expected 64 bytes for tensor `t` from byte {} on, found 0; \
             it was cut off or damaged, so fetch it again",
            usize::MAX
        ),
    );
    let two = |name: &str, offset| {
        Bytes::file(2, 0).tensor("t", &[16], 0, 0).tensor(name, &[8], 0, offset).data(96)
    };
    check(&two("t", 64), "`FILE`: tensor `t` occurs twice");
    check(&two("u", 32), "`FILE`: tensors `t` and `u` overlap");
}

#[test]
fn a_tensor_of_an_unsupported_type_fails_when_it_is_asked_for() {
    let bytes = Bytes::file(3, 0)
        .tensor("codes", &[256], 36, 0)
        .tensor("later", &[256], 99, 96)
        .tensor("plain", &[8], 0, 96)
        .data(128);
    let (_directory, result) = open(&bytes);
    let checkpoint = result.unwrap();
    assert_eq!(checkpoint.tensor("plain").unwrap().unwrap().byte_length(), 32);
    assert!(checkpoint.tensor("absent").unwrap().is_none());
    let unsupported: Vec<_> = checkpoint.unsupported().map(|tensor| (tensor.name, tensor.kind)).collect();
    assert_eq!(unsupported, [("codes", "iq4_nl_4_4 (36)"), ("later", "number 99")]);
    let error = checkpoint.tensor("codes").unwrap_err().to_string();
    let start =
        "tensor `codes` has the type iq4_nl_4_4 (36), which is not supported; supported are f32, f16, bf16, ";
    assert!(error.contains(start), "{error}");
}

/// A file of a big-endian machine with one tensor, which has `kind` and 256 elements.
fn big_endian(kind: u32) -> Bytes {
    let u64 = |number: u64| number.to_be_bytes();
    Bytes(b"GGUF".to_vec())
        .raw(&3u32.to_be_bytes())
        .raw(&[u64(1), u64(1), u64(1)].concat())
        .raw(b"k")
        .raw(&[4u32, 7].map(u32::to_be_bytes).concat())
        .raw(&u64(1))
        .raw(b"t")
        .raw(&1u32.to_be_bytes())
        .raw(&u64(256))
        .raw(&kind.to_be_bytes())
        .raw(&u64(0))
        .data(512)
}

#[test]
fn a_big_endian_file_is_checked_as_any_other() {
    let (_directory, result) = open(&big_endian(25));
    let checkpoint = result.unwrap();
    assert_eq!(checkpoint.tensor("t").unwrap().unwrap().bytes().unwrap().len(), 512);
    let bytes = big_endian(25);
    for length in (0..bytes.0.len()).rev() {
        assert!(open(&Bytes(bytes.0[..length].to_vec())).1.is_err(), "{length} bytes");
    }
    let mut many = big_endian(25);
    many.0[8..16].copy_from_slice(&u64::MAX.to_be_bytes());
    check(
        &many,
        "`FILE`: the number of tensors is 18446744073709551615, above the limit of 131072 (TENSORS)",
    );
    let (_directory, result) = open(&big_endian(16));
    let error = result.unwrap().tensor("t").unwrap_err().to_string();
    assert!(error.contains("tensor `t` has the type iq2_xxs (16) in a big-endian file"), "{error}");
}

/// Part `number` of `count` with a tensor `name`, and with `entries` more.
fn part(number: u32, count: u32, tensor: &str, entries: &[(&str, u32)]) -> Bytes {
    let start = Bytes::file(1, 2 + entries.len() as u64)
        .entry_u32("split.no", number)
        .entry_u32("split.count", count);
    let all = entries.iter().fold(start, |bytes, (key, value)| bytes.entry_u32(key, *value));
    all.tensor(tensor, &[8], 0, 0).data(32)
}

/// Opens `opened` of a directory with these files and compares the error, in which `DIR` stands for the directory.
#[track_caller]
fn check_parts(files: &[(&str, Bytes)], opened: &str, expect: &str) {
    let directory = TempDir::new().expect("a temporary directory");
    for (name, bytes) in files {
        fs::write(directory.path().join(name), &bytes.0).expect("the directory is there");
    }
    let error = Checkpoint::open(&directory.path().join(opened)).expect_err("a part is wrong").to_string();
    assert_eq!(error.replace(&directory.path().display().to_string(), "DIR"), expect);
}

#[test]
fn any_part_of_a_split_model_opens_the_whole() {
    let directory = TempDir::new().unwrap();
    let names = ["m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"];
    for (number, (name, tensor)) in names.iter().zip(["a", "b", "c"]).enumerate() {
        let own = [("split.tensors.count", 3), ("toy.part", number as u32)];
        fs::write(directory.path().join(name), part(number as u32, 3, tensor, &own).0).unwrap();
    }
    for name in names {
        let checkpoint = Checkpoint::open(&directory.path().join(name)).unwrap();
        let tensors: Vec<_> = checkpoint.tensors().map(|tensor| tensor.name).collect();
        assert_eq!(tensors, ["a", "b", "c"], "{name}");
        let Source::Gguf(metadata) = &checkpoint.source else { panic!("a GGUF file was opened") };
        assert_eq!(metadata.u32("toy.part").unwrap(), 0, "the metadata of the first part");
    }
}

#[test]
fn a_part_that_is_missing_or_of_another_model_is_named() {
    let one = "m-00001-of-00002.gguf";
    let two = "m-00002-of-00002.gguf";
    let first = part(0, 2, "a", &[("split.tensors.count", 2)]);
    let second = part(1, 2, "b", &[("split.tensors.count", 2)]);
    let checked =
        |other: Bytes, expect: &str| check_parts(&[(one, first.clone()), (two, other)], one, expect);
    check_parts(&[(one, first.clone())], one, "`DIR/m-00002-of-00002.gguf` doesn't exist");
    check_parts(&[(two, second.clone())], two, "`DIR/m-00001-of-00002.gguf` doesn't exist");
    check_parts(
        &[("renamed.gguf", second.clone())],
        "renamed.gguf",
        "`DIR/renamed.gguf` is part 2 of 2 of a split GGUF model; expected a name that ends with \
         `-00002-of-00002.gguf`, by which the other parts are found",
    );
    let stranger = |key: &str, found: &str, expected: &str| {
        format!(
            "`DIR/{two}` doesn't belong to this split GGUF model: `{key}` is {found}, expected {expected}; \
             fetch all parts from one place"
        )
    };
    checked(first.clone(), &stranger("split.no", "0", "1"));
    checked(part(1, 3, "b", &[]), &stranger("split.count", "3", "2"));
    checked(
        part(1, 2, "b", &[("split.tensors.count", 9)]),
        &stranger("split.tensors.count", "9", "2 as in the first part"),
    );
    let named = Bytes::file(1, 4)
        .entry_u32("split.no", 1)
        .entry_u32("split.count", 2)
        .entry_u32("split.tensors.count", 2)
        .text(b"general.architecture")
        .u32(8)
        .text(b"other")
        .tensor("b", &[8], 0, 0)
        .data(32);
    checked(named, &stranger("general.architecture", "`other`", "`missing` as in the first part"));
    checked(part(1, 2, "a", &[("split.tensors.count", 2)]), &format!("`DIR/{two}`: tensor `a` occurs twice"));
    let short = |number| part(number, 2, if number == 0 { "a" } else { "b" }, &[("split.tensors.count", 7)]);
    check_parts(
        &[(one, short(0)), (two, short(1))],
        one,
        "`DIR/m-00001-of-00002.gguf` and the other parts of this split GGUF model have 2 tensors, expected 7 \
         (`split.tensors.count`); fetch all parts from one place",
    );
    check_parts(
        &[("m-00001-of-4000000000.gguf", part(0, 4_000_000_000, "a", &[]))],
        "m-00001-of-4000000000.gguf",
        "`DIR/m-00001-of-4000000000.gguf`: the number of parts (`split.count`) is 4000000000, above the limit of 4096 \
         (SHARDS)",
    );
}
