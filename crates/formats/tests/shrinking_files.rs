//! A file that becomes shorter while it is mapped: the process says so, and exits with 1. The test runs itself again as
//! the process that reads.

#![cfg(unix)]

use gannet_formats::gguf::GgufWriter;
use gannet_formats::{Checkpoint, explain_shrunk_files};
use gannet_tensor::Format;
use std::fs::OpenOptions;
use std::path::Path;
use std::process::Command;

/// Set to the file to read, in the process that reads.
const READ: &str = "GANNET_TEST_READ_SHRUNK";

#[test]
fn reading_what_is_gone_names_the_file() {
    if let Some(path) = std::env::var_os(READ) {
        return read_shrunk(Path::new(&path));
    }
    let folder = tempfile::tempdir().expect("a folder can be had");
    let path = folder.path().join("toy.gguf");
    let mut writer = GgufWriter::new(&path);
    let bytes = vec![1; 4 * 100_000];
    writer.push_tensor("a", Format::F32, &[100, 1000], &bytes).expect("the tensor is well formed");
    writer
        .write(std::fs::File::create(&path).expect("the file can be made"))
        .expect("the file can be written");
    let output = Command::new(std::env::current_exe().expect("the test is a file"))
        .args(["--exact", "reading_what_is_gone_names_the_file", "--nocapture"])
        .env(READ, &path)
        .output()
        .expect("the test can be run again");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let expected = format!("gannet: `{}` became shorter while it was in use", path.display());
    assert!(text.contains(&expected), "{text}");
}

fn read_shrunk(path: &Path) {
    explain_shrunk_files();
    let checkpoint = Checkpoint::open(path).expect("the file is whole when it is opened");
    let file = OpenOptions::new().write(true).open(path).expect("the file can be opened");
    file.set_len(4096).expect("the file can be cut");
    let tensor = checkpoint.tensor("a").expect("the type is known").expect("the tensor is there");
    let bytes = tensor.bytes().expect("the bytes are mapped");
    let sum: u64 = bytes.iter().map(|byte| u64::from(*byte)).sum();
    panic!("what is gone was read as {sum}");
}
