//! Bytes as base64 text and back: the standard alphabet with padding (RFC 4648, section 4), as tokenizer files use it.
//!
//! Knows no file.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The bytes that `text` stands for; `None` for another character, a missing end, or bits beyond the last byte.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let text = text.as_bytes();
    let digits = text.iter().rposition(|&letter| letter != b'=').map_or(0, |last| last + 1);
    if !text.len().is_multiple_of(4) || text.len() - digits > 2 {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits * 3 / 4);
    let (mut bits, mut waiting) = (0u32, 0);
    for &letter in &text[..digits] {
        bits = bits << 6 | value(letter)?;
        waiting += 6;
        if waiting >= 8 {
            waiting -= 8;
            bytes.push((bits >> waiting) as u8);
            bits &= (1 << waiting) - 1;
        }
    }
    (bits == 0).then_some(bytes)
}

/// `bytes` as text.
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let mut padded = [0; 4];
        padded[1..=group.len()].copy_from_slice(group);
        let bits = u32::from_be_bytes(padded);
        for place in 0..4 {
            let digit = ALPHABET[(bits >> (18 - 6 * place)) as usize & 63];
            text.push(if place <= group.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

fn value(letter: u8) -> Option<u32> {
    let value = match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(u32::from(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_standard_hold() {
        // RFC 4648, section 10.
        let examples = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ];
        for (bytes, text) in examples {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text).as_deref(), Some(bytes.as_bytes()));
        }
    }

    #[test]
    fn what_is_no_base64_is_refused() {
        for text in ["Z", "Zg", "Zg=", "Zh==", "Z===", "====", "Zg==Zg==", "Zm9v\n", "Zm9-", "Zm9é"] {
            assert_eq!(decode(text), None, "{text:?}");
        }
    }
}
