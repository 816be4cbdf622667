//! What hostile listings say.

use crate::Place;
use crate::server::{COMMIT, Content, Files, Reply, Request, Site};

/// The error for a listing whose text is `listing`.
fn error_of(listing: &str) -> String {
    let listing = listing.to_owned();
    let fault = move |request: &Request, reply: Reply| {
        if request.target.contains("/tree/") { Reply::new(200, listing.clone()) } else { reply }
    };
    let site = Site::start(Files::new(), fault, |_, reply| reply);
    let place = Place::of(&site);
    let error = place.pull_error("org/repo");
    place.check_nothing_final();
    error
}

fn file(path: &str, size: &str, hash: &str) -> String {
    let path = serde_json::Value::from(path);
    format!(r#"[{{"type": "file", "path": {path}, "size": 1, "lfs": {{"oid": "{hash}", "size": {size}}}}}]"#)
}

#[test]
fn hostile_file_names_write_nothing() {
    let hash = "a".repeat(64);
    for path in [
        "../m.gguf",
        "/m.gguf",
        "a/../../m.gguf",
        "..\\m.gguf",
        "C:\\m.gguf",
        "nul.gguf",
        "a\0.gguf",
        "x/.gguf/",
    ] {
        let error = error_of(&file(path, "1", &hash));
        assert!(
            error.contains("can't be stored safely") || error.contains("has no model"),
            "{path:?}: {error}"
        );
        assert!(!error.contains('\0'), "{path:?}");
    }
}

#[test]
fn hostile_hashes_sizes_and_shapes_are_refused() {
    let hash = "a".repeat(64);
    let check = |listing: &str, part: &str| {
        let error = error_of(listing);
        assert!(error.contains(part), "{error}");
    };
    check(&file("m.gguf", "1", "../../../x"), "expected 64 or 40 hexadecimal digits");
    check(&file("m.gguf", "1", ""), "expected 64 or 40 hexadecimal digits");
    check(
        &file("m.gguf", "18446744073709551615", &hash),
        "above the limit of 4398046511104 (FILE_BYTES_MAX)",
    );
    check(&file("m.gguf", "-1", &hash), "can't be understood");
    check("{}", "can't be understood");
    check("[[[[", "can't be understood");
}

#[test]
fn a_listing_without_end_is_left() {
    let fault = |request: &Request, reply: Reply| {
        let page = request.number;
        let link = format!(r#"</x?cursor={page}>; rel="next""#);
        if request.target.contains("/tree/") { Reply::new(200, "[]").with("Link", link) } else { reply }
    };
    let site = Site::start(Files::new(), fault, |_, reply| reply);
    let error = Place::of(&site).pull_error("org/repo");
    assert!(error.contains("more than 200 pages"), "{error}");
}

#[test]
fn a_hostile_commit_is_refused() {
    let fault = |_: &Request, _: Reply| Reply::new(200, r#"{"sha": "../../x"}"#);
    let site = Site::start(Files::new(), fault, |_, reply| reply);
    let error = Place::of(&site).pull_error("org/repo");
    assert!(error.contains("expected 40 hexadecimal digits"), "{error}");
}

#[test]
fn hostile_shard_names_write_nothing() {
    let index = r#"{"weight_map": {"a": "../../../x.safetensors"}}"#;
    let files = Files::from([
        ("config.json", Content::small("{}")),
        ("model.safetensors.index.json", Content::small(index)),
    ]);
    let site = Site::healthy(files);
    let place = Place::of(&site);
    let error = place.pull_error("org/repo");
    assert!(error.contains("can't be stored safely: it leaves its folder"), "{error}");
    assert!(!place.repo().join("snapshots").join(COMMIT).join("config.json").exists());
}
