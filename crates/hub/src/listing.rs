//! What a repository holds at a revision: the commit, and each file's path, size and checksum.

use crate::client::Client;
use crate::error::HubError;
use crate::model_name::ModelName;
use crate::paths::url_segment;
use serde::Deserialize;

/// Pages of a listing.
const PAGES_MAX: usize = 200;
/// Files of a repository.
const FILES_MAX: usize = 100_000;
/// Bytes of a file.
const FILE_BYTES_MAX: u64 = 1 << 42;

/// A file of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepoFile {
    /// Its path in the repository; untrusted until it was chosen.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// What its content is.
    pub content: ContentHash,
}

/// A checksum in lower-case hexadecimal digits, which is also the name of the content in the cache: SHA-256 of a large
/// file's bytes, or SHA-1 of a small file as git stores it (`blob`, a space, the size, a zero byte, the bytes).
// Invariant: 64 digits or 40.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ContentHash(String);

impl ContentHash {
    fn new(digits: &str) -> Option<Self> {
        let digits = digits.to_ascii_lowercase();
        (is_hex(&digits, 64) || is_hex(&digits, 40)).then_some(Self(digits))
    }

    /// The digits.
    pub fn digits(&self) -> &str {
        &self.0
    }

    pub(crate) fn is_sha256(&self) -> bool {
        self.0.len() == 64
    }
}

/// A repository at a commit.
pub(crate) struct Listing {
    pub(crate) commit: String,
    pub(crate) files: Vec<RepoFile>,
}

#[derive(Deserialize)]
struct Revision {
    sha: String,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(rename = "type")]
    kind: String,
    path: String,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    oid: String,
    lfs: Option<LargeFile>,
}

#[derive(Deserialize)]
struct LargeFile {
    oid: String,
    size: u64,
}

/// Asks the server what `name` holds.
pub(crate) fn list(client: &Client, name: &ModelName) -> Result<Listing, HubError> {
    let base = format!("{}/api/models/{}", client.endpoint(), name.repository());
    let url = format!("{base}/revision/{}", url_segment(name.revision()));
    let (Revision { sha: commit }, _) = client.json(name, &url)?;
    if !is_hex(&commit, 40) {
        let problem = format!("the commit is {commit:?}, expected 40 hexadecimal digits");
        return Err(HubError::Answer { url, problem });
    }
    let tree = format!("{base}/tree/{commit}?recursive=true");
    let mut files = Vec::new();
    let mut next = Some(tree.clone());
    for _ in 0..PAGES_MAX {
        let Some(url) = next else { break };
        let (entries, link): (Vec<Entry>, _) = client.json(name, &url)?;
        for entry in entries.into_iter().filter(|entry| entry.kind == "file") {
            files.push(file_of(name, &url, entry)?);
        }
        check_limit(name, "the number of files", files.len() as u64, FILES_MAX as u64, "FILES_MAX")?;
        next = link.and_then(|link| next_page(&tree, &link));
    }
    match next {
        Some(url) => Err(HubError::Answer { url, problem: format!("it has more than {PAGES_MAX} pages") }),
        None => Ok(Listing { commit, files }),
    }
}

fn file_of(name: &ModelName, url: &str, entry: Entry) -> Result<RepoFile, HubError> {
    let (digits, bytes) = match entry.lfs {
        Some(large) => (large.oid, large.size),
        None => (entry.oid, entry.size),
    };
    let content = ContentHash::new(&digits).ok_or_else(|| HubError::Answer {
        url: url.to_owned(),
        problem: format!(
            "the checksum of {:?} is {digits:?}, expected 64 or 40 hexadecimal digits",
            entry.path
        ),
    })?;
    check_limit(name, "the size of a file", bytes, FILE_BYTES_MAX, "FILE_BYTES_MAX")?;
    Ok(RepoFile { path: entry.path, bytes, content })
}

fn check_limit(
    name: &ModelName,
    what: &'static str,
    found: u64,
    limit: u64,
    limit_name: &'static str,
) -> Result<(), HubError> {
    if found > limit {
        return Err(HubError::OverLimit { name: name.repository(), what, found, limit, limit_name });
    }
    Ok(())
}

/// Whether `text` is `length` lower-case hexadecimal digits.
pub(crate) fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}

/// The next page that a `Link` header names. Only its query is taken: a mirror may send its origin's address, which is
/// not ours to ask, and the token must stay at the endpoint.
fn next_page(tree: &str, link: &str) -> Option<String> {
    let next = link.split(',').find(|part| part.contains(r#"rel="next""#))?;
    let url = next.split_once('<')?.1.split_once('>')?.0;
    let (_, query) = url.split_once('?')?;
    let (path, _) = tree.split_once('?').unwrap_or((tree, ""));
    Some(format!("{path}?{query}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_page_stays_at_the_endpoint() {
        let check = |link: &str, expected: Option<&str>| {
            assert_eq!(next_page("http://here/tree/main?recursive=true", link).as_deref(), expected);
        };
        let page = Some("http://here/tree/main?recursive=true&cursor=x%3D");
        check(r#"<http://here/tree/main?recursive=true&cursor=x%3D>; rel="next""#, page);
        check(r#"<http://elsewhere/y?recursive=true&cursor=x%3D>; rel="next""#, page);
        check(r#"<http://here/tree?a=b>; rel="prev""#, None);
        check("next", None);
        check(r#"rel="next""#, None);
    }
}
