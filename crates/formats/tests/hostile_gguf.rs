//! Made-up GGUF files that lie: each gives the one error that says what is wrong, before anything is allocated for it.

use std::fs;

use gannet_formats::{Checkpoint, FormatError};
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
    check(
        &Bytes::default().raw(b"GGUF").raw(&3u32.to_be_bytes()).u64(0),
        "`FILE` is a big-endian GGUF file, expected little-endian; convert the model again for this machine",
    );
    check(
        &Bytes::file(0, 2).entry_u32("split.count", 3).entry_u32("split.no", 1),
        "`FILE` is part 2 of 3 of a split GGUF model, which can't be opened in parts; \
         merge the parts first (`llama-gguf-split --merge`)",
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
        .tensor("codes", &[256], 17, 0)
        .tensor("later", &[256], 99, 96)
        .tensor("plain", &[8], 0, 96)
        .data(128);
    let (_directory, result) = open(&bytes);
    let checkpoint = result.unwrap();
    assert_eq!(checkpoint.tensor("plain").unwrap().unwrap().bytes.len(), 32);
    assert!(checkpoint.tensor("absent").unwrap().is_none());
    let unsupported: Vec<_> = checkpoint.unsupported().map(|tensor| (tensor.name, tensor.kind)).collect();
    assert_eq!(unsupported, [("codes", "iq2_xs (17)"), ("later", "number 99")]);
    let error = checkpoint.tensor("codes").unwrap_err().to_string();
    assert!(
        error.ends_with(
            "tensor `codes` has the type iq2_xs (17), which is not supported; supported are f32, f16, bf16, q4_0, \
             q4_1, q5_0, q5_1, q8_0, q4_k, q5_k, q6_k"
        ),
        "{error}"
    );
}
