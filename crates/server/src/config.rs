//! What a person chooses about a server.
//!
//! Keys are kept as SHA-256 sums: comparing sums of equal length takes the same time whatever was sent, and the log can
//! name a key without showing it.

use crate::limits::Limits;
use axum::http::HeaderValue;
use sha2::{Digest, Sha256};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// What a person chooses about a server.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where to listen.
    pub address: SocketAddr,
    /// Who may ask; everybody where there are none.
    pub keys: Keys,
    /// Web pages that may ask.
    pub cors_origins: Origins,
    /// Certificate and key, for TLS.
    pub tls: Option<Tls>,
    /// The bounds of everything.
    pub limits: Arc<Limits>,
    /// Most models in memory at once; the one that was not used for longest goes.
    pub loaded_models: usize,
    /// The seed of requests that name none; each of them gets one of its own where this is absent.
    pub seed: Option<u64>,
    /// Whether prompts and answers stand in the log.
    pub logs_text: bool,
    /// Where changes of prefix caches are published.
    #[cfg(feature = "kv-events")]
    pub kv_events: Option<crate::kv_events::KvEvents>,
}

/// Files in PEM form.
#[derive(Clone, Debug)]
pub struct Tls {
    /// The certificate, and those up to a known authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// Web pages that may ask, by where they come from, such as `https://example.org`; `*` is any.
#[derive(Clone, Debug, Default)]
pub struct Origins(pub(crate) Vec<HeaderValue>);

impl Origins {
    /// Takes origins as browsers send them.
    ///
    /// # Errors
    /// A text that is no scheme and host, nor `*`.
    pub fn parse(texts: &[String]) -> Result<Self, String> {
        let origin = |text: &String| {
            let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
            let is_origin = text == "*" || rest.is_some_and(|host| !host.is_empty() && !host.contains('/'));
            let value = HeaderValue::from_str(text).ok().filter(|_| is_origin);
            value.ok_or_else(|| {
                format!("`{text}` is no origin; expected one such as https://example.org, or *")
            })
        };
        texts.iter().map(origin).collect::<Result<_, _>>().map(Self)
    }
}

/// API keys, as sums.
#[derive(Clone, Debug, Default)]
pub struct Keys(Vec<[u8; 32]>);

/// Why keys are refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeysError {
    /// A key that could be guessed.
    #[error("API key {index} has {found} characters, at least {least} are needed")]
    TooShort {
        /// Its place in the list, from 1.
        index: usize,
        /// Its length.
        found: usize,
        /// The least length.
        least: usize,
    },
}

/// Characters of the shortest key.
const SHORTEST_KEY: usize = 8;
/// A key's number in the list.
pub(crate) type KeyIndex = usize;

impl Keys {
    /// Takes a key a line; empty lines and those that begin with `#` are left out.
    ///
    /// # Errors
    /// A key of less than eight characters.
    pub fn parse(text: &str) -> Result<Self, KeysError> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let sum = |(index, key): (usize, &str)| {
            let found = key.chars().count();
            if found < SHORTEST_KEY {
                return Err(KeysError::TooShort { index: index + 1, found, least: SHORTEST_KEY });
            }
            Ok(sum_of(key))
        };
        Ok(Self(lines.enumerate().map(sum).collect::<Result<_, _>>()?))
    }

    /// Whether there is a key at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Which key it is. Every key is compared in full.
    pub(crate) fn find(&self, key: &str) -> Option<KeyIndex> {
        let asked = sum_of(key);
        let differs =
            |sum: &[u8; 32]| sum.iter().zip(&asked).fold(0, |seen, (one, other)| seen | (one ^ other));
        let mut found = None;
        for (index, sum) in self.0.iter().enumerate() {
            if differs(sum) == 0 {
                found = Some(index);
            }
        }
        found
    }

    /// What the log calls a key.
    pub(crate) fn label(&self, index: KeyIndex) -> String {
        self.0[index][..4].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

fn sum_of(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_lines_and_found_by_their_whole_text() {
        let keys = Keys::parse("# ours\nfirst-key\n\n  second-key  \n").unwrap();
        assert_eq!(keys.find("first-key"), Some(0));
        assert_eq!(keys.find("second-key"), Some(1));
        for wrong in ["first-ke", "first-key ", "# ours", ""] {
            assert_eq!(keys.find(wrong), None, "{wrong:?}");
        }
        assert!(!keys.label(0).contains("first"));
    }

    #[test]
    fn a_short_key_is_refused() {
        let error = Keys::parse("long-enough\nshort").unwrap_err();
        assert_eq!(error, KeysError::TooShort { index: 2, found: 5, least: 8 });
    }
}
