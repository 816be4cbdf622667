//! What a person calls a model: `ORG/REPO[:QUANT][@REVISION]`.

use crate::error::HubError;
use std::fmt::{self, Display, Formatter};

/// The branch that is meant where no revision is named.
const DEFAULT_REVISION: &str = "main";
/// Characters of an organisation or repository.
const PART_LENGTH_MAX: usize = 96;
/// Characters of a quantisation or revision.
const SUFFIX_LENGTH_MAX: usize = 200;

/// A model repository, perhaps one quantisation of it, at a revision.
// Invariant: every part is safe as a part of a URL and as (with its slashes) a path below a folder.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ModelName {
    organisation: String,
    repository: String,
    quant: Option<String>,
    revision: Option<String>,
}

impl ModelName {
    /// Reads `ORG/REPO[:QUANT][@REVISION]`. QUANT is a quantisation (`Q4_K_M`), a file's name, or `safetensors`;
    /// REVISION is a branch, a tag or a commit.
    ///
    /// # Errors
    /// [`HubError::Name`] says which part is wrong.
    pub fn parse(name: &str) -> Result<Self, HubError> {
        let fail = |problem| HubError::Name { name: name.escape_debug().to_string(), problem };
        let (rest, revision) = match name.split_once('@') {
            Some((rest, revision)) => (rest, Some(revision)),
            None => (name, None),
        };
        let (rest, quant) = match rest.split_once(':') {
            Some((rest, quant)) => (rest, Some(quant)),
            None => (rest, None),
        };
        let (organisation, repository) = rest.split_once('/').ok_or(fail("it has no `/`"))?;
        check_part(organisation).map_err(fail)?;
        check_part(repository).map_err(fail)?;
        quant.map_or(Ok(()), check_quant).map_err(fail)?;
        revision.map_or(Ok(()), check_revision).map_err(fail)?;
        Ok(Self {
            organisation: organisation.to_owned(),
            repository: repository.to_owned(),
            quant: quant.map(str::to_owned),
            revision: revision.map(str::to_owned),
        })
    }

    /// `ORG/REPO`.
    pub fn repository(&self) -> String {
        format!("{}/{}", self.organisation, self.repository)
    }

    /// The quantisation or file that was asked for.
    pub fn quant(&self) -> Option<&str> {
        self.quant.as_deref()
    }

    /// The branch, tag or commit; `main` where none was named.
    pub fn revision(&self) -> &str {
        self.revision.as_deref().unwrap_or(DEFAULT_REVISION)
    }

    /// The repository's folder in the cache.
    pub(crate) fn folder(&self) -> String {
        format!("models--{}--{}", self.organisation, self.repository)
    }

    /// The name whose folder is `folder`, if it is one of a model.
    pub(crate) fn of_folder(folder: &str) -> Option<Self> {
        let name = folder.strip_prefix("models--")?.replacen("--", "/", 1);
        Self::parse(&name).ok()
    }
}

impl Display for ModelName {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.organisation, self.repository)?;
        if let Some(quant) = &self.quant {
            write!(f, ":{quant}")?;
        }
        match &self.revision {
            Some(revision) => write!(f, "@{revision}"),
            None => Ok(()),
        }
    }
}

fn is_plain(text: &str) -> bool {
    text.chars().all(|letter| letter.is_ascii_alphanumeric() || "._-".contains(letter))
}

fn check_part(part: &str) -> Result<(), &'static str> {
    if part.is_empty() {
        return Err("the organisation or the repository is empty");
    }
    if part.contains('/') {
        return Err("it has more than one `/`");
    }
    if !is_plain(part) {
        return Err("organisation and repository consist of letters, digits, `.`, `_` and `-`");
    }
    if part.starts_with(['.', '-']) || part.ends_with(['.', '-']) {
        return Err("organisation and repository neither begin nor end with `.` or `-`");
    }
    // The cache joins both with two dashes, so that they would be ambiguous inside one.
    if part.contains("--") || part.contains("..") {
        return Err("organisation and repository contain no `--` and no `..`");
    }
    if part.len() > PART_LENGTH_MAX {
        return Err("organisation and repository have at most 96 characters");
    }
    Ok(())
}

fn check_quant(quant: &str) -> Result<(), &'static str> {
    if quant.is_empty() {
        return Err("nothing follows the `:`");
    }
    if !is_plain(quant) || quant.len() > SUFFIX_LENGTH_MAX {
        return Err("a quantisation consists of at most 200 letters, digits, `.`, `_` and `-`");
    }
    Ok(())
}

fn check_revision(revision: &str) -> Result<(), &'static str> {
    if revision.is_empty() {
        return Err("nothing follows the `@`");
    }
    let is_safe =
        |part: &str| !part.is_empty() && is_plain(part) && !part.starts_with('.') && !part.ends_with('.');
    if !revision.split('/').all(is_safe) || revision.contains("..") || revision.len() > SUFFIX_LENGTH_MAX {
        return Err(
            "a revision is a branch, a tag or a commit of at most 200 letters, digits, `.`, `_`, `-` and `/`",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written() {
        let check = |name: &str, repository: &str, quant: Option<&str>, revision: &str| {
            let parsed = ModelName::parse(name).unwrap();
            assert_eq!(parsed.repository(), repository);
            assert_eq!((parsed.quant(), parsed.revision()), (quant, revision));
            assert_eq!(parsed.to_string(), name);
        };
        check("a/b", "a/b", None, "main");
        check("Qwen/Qwen3-0.6B-GGUF:Q8_0", "Qwen/Qwen3-0.6B-GGUF", Some("Q8_0"), "main");
        check("a/b@v1.0", "a/b", None, "v1.0");
        check("a/b:x.gguf@refs/pr/1", "a/b", Some("x.gguf"), "refs/pr/1");
    }

    #[test]
    fn wrong_names_are_refused_with_the_reason() {
        let check = |name: &str, problem: &str| {
            let error = ModelName::parse(name).unwrap_err().to_string();
            assert!(error.contains(problem), "{name}: {error}");
        };
        check("gpt2", "no `/`");
        check("", "no `/`");
        check("/b", "is empty");
        check("a/", "is empty");
        check("a/b/c", "more than one `/`");
        check("../b", "neither begin nor end");
        check("a/..", "neither begin nor end");
        check("a/-b", "neither begin nor end");
        check("a/b--c", "no `--`");
        check("a\\b/c", "consist of letters");
        check("a/b\0", "consist of letters");
        check("a/ü", "consist of letters");
        check("a/b:", "nothing follows the `:`");
        check("a/b:x/y", "a quantisation consists");
        check("a/b@", "nothing follows the `@`");
        check("a/b@../../x", "a revision is");
        check("a/b@x/", "a revision is");
        check("a/b@/x", "a revision is");
        check("a/b@x?y", "a revision is");
        check(&format!("a/{}", "b".repeat(97)), "at most 96");
    }

    #[test]
    fn cache_folders_and_names_belong_together() {
        let check = |folder: &str, name: Option<&str>| {
            let found = ModelName::of_folder(folder);
            assert_eq!(found.as_ref().map(ToString::to_string).as_deref(), name, "{folder}");
            if let Some(found) = found {
                assert_eq!(found.folder(), folder);
            }
        };
        check("models--a--b-c", Some("a/b-c"));
        check("models--gpt2", None);
        check("datasets--a--b", None);
        check("models--a--b--c", None);
        check("models--..--..", None);
    }
}
