//! File names from a server, before they become paths: below their folder on every system, or refused.

use crate::error::HubError;

/// Bytes of a file's path in its repository.
const PATH_BYTES_MAX: usize = 1024;
/// Bytes of one part of it.
const PART_BYTES_MAX: usize = 255;
/// Parts of it.
const PARTS_MAX: usize = 16;

/// Names that stand for devices on Windows, whatever their extension.
const DEVICES: [&str; 6] = ["CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"];

/// Refuses a path of repository `name` that isn't plainly one below a folder, on any system.
pub(crate) fn check_path(name: &str, path: &str) -> Result<(), HubError> {
    let problem = if path.len() > PATH_BYTES_MAX {
        Some("it is longer than 1024 bytes")
    } else if path.split('/').count() > PARTS_MAX {
        Some("it is deeper than 16 folders")
    } else {
        path.split('/').find_map(part_problem)
    };
    match problem {
        Some(problem) => {
            let file = path.chars().take(PART_BYTES_MAX).collect();
            Err(HubError::UnsafeName { name: name.to_owned(), file, problem })
        }
        None => Ok(()),
    }
}

fn part_problem(part: &str) -> Option<&'static str> {
    if part.is_empty() {
        return Some("it is absolute or has an empty part");
    }
    if part == "." || part == ".." {
        return Some("it leaves its folder");
    }
    if part.len() > PART_BYTES_MAX {
        return Some("a part of it is longer than 255 bytes");
    }
    if part.chars().any(|letter| letter.is_control() || "\\:*?\"<>|".contains(letter)) {
        return Some("it has a character that some file systems give a meaning");
    }
    if part.ends_with(['.', ' ']) || part.starts_with(' ') {
        return Some("a part of it begins with a space, or ends with one or with a dot");
    }
    is_device(part).then_some("it is the name of a device")
}

fn is_device(part: &str) -> bool {
    let stem = part.split('.').next().unwrap_or(part).trim_end().to_ascii_uppercase();
    let numbered = stem.strip_prefix("COM").or_else(|| stem.strip_prefix("LPT"));
    let is_numbered =
        numbered.is_some_and(|number| number.len() == 1 && number.as_bytes()[0].is_ascii_digit());
    DEVICES.contains(&stem.as_str()) || is_numbered
}

/// `path` as a part of a URL: everything but unreserved characters and slashes is escaped.
pub(crate) fn url_path(path: &str) -> String {
    escape(path, b"/-._~")
}

/// `text` as one segment of a URL, its slashes escaped as well.
pub(crate) fn url_segment(text: &str) -> String {
    escape(text, b"-._~")
}

fn escape(text: &str, kept: &[u8]) -> String {
    let mut escaped = String::with_capacity(text.len());
    for &byte in text.as_bytes() {
        if byte.is_ascii_alphanumeric() || kept.contains(&byte) {
            escaped.push(byte.into());
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_paths_are_refused() {
        for path in
            ["model.gguf", "Q4_K_M/a-00001-of-00002.gguf", "a b/ü.txt", ".gitattributes", "console.json"]
        {
            assert!(check_path("a/b", path).is_ok(), "{path}");
        }
        let long = "x".repeat(256);
        let deep = vec!["x"; 17].join("/");
        let huge = vec!["x".repeat(200); 6].join("/");
        let hostile = [
            "",
            "/etc/passwd",
            "..",
            "../x",
            "a/../../x",
            "a/./b",
            "a//b",
            "a/",
            "a\\b",
            "..\\x",
            "C:/x",
            "c:x",
            "a\0b",
            "a\nb",
            "\u{1b}[2J",
            "nul",
            "NUL.gguf",
            "a/con.json",
            "Com1.txt",
            "lpt9",
            "x.",
            "x ",
            " x",
            "a|b",
            "a*",
            &long,
            &deep,
            &huge,
        ];
        for path in hostile {
            assert!(check_path("a/b", path).is_err(), "{path:?}");
        }
    }

    #[test]
    fn urls_are_escaped() {
        assert_eq!(url_path("a b/ü#?%.gguf"), "a%20b/%C3%BC%23%3F%25.gguf");
        assert_eq!(url_segment("refs/pr/1"), "refs%2Fpr%2F1");
    }
}
