//! Where in a JSON text a byte stands, by the names and numbers that lead there: what a parser's complaint is about.

use super::fields::shortened;

/// Steps of a path that are shown; what is nested more deeply is left out.
const STEPS: usize = 8;

/// A list or an object that is open.
enum Open {
    List(usize),
    /// The name whose value comes, once it was read.
    Object(Option<String>),
}

/// The path to the value that a byte belongs to, such as `messages[0].content`; none for the text as a whole.
pub(super) fn path_at(text: &[u8], end: usize) -> Option<String> {
    let text = &text[..end.min(text.len())];
    let mut open: Vec<Open> = Vec::new();
    let mut at = 0;
    while at < text.len() {
        match text[at] {
            b'{' => open.push(Open::Object(None)),
            b'[' => open.push(Open::List(0)),
            b'}' | b']' => drop(open.pop()),
            b',' => match open.last_mut() {
                Some(Open::List(place)) => *place += 1,
                Some(Open::Object(name)) => *name = None,
                None => {}
            },
            b'"' => {
                let length = string_length(&text[at + 1..]);
                if let (Some(Open::Object(name @ None)), Some(length)) = (open.last_mut(), length) {
                    *name = Some(String::from_utf8_lossy(&text[at + 1..at + 1 + length]).into_owned());
                }
                at += length.map_or(text.len(), |length| length + 1);
            }
            _ => {}
        }
        at += 1;
    }
    shown(&open)
}

/// Bytes of a string up to the mark that ends it; none where it doesn't end.
fn string_length(text: &[u8]) -> Option<usize> {
    let mut escaped = false;
    text.iter().position(|byte| {
        let ends = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        ends
    })
}

fn shown(open: &[Open]) -> Option<String> {
    let mut path = String::new();
    for level in open.iter().take(STEPS) {
        match level {
            Open::List(place) => path += &format!("[{place}]"),
            Open::Object(None) => break,
            Open::Object(Some(name)) => {
                let dot = if path.is_empty() { "" } else { "." };
                path += &format!("{dot}{}", shortened(name));
            }
        }
    }
    if open.len() > STEPS {
        path += "...";
    }
    Some(path).filter(|path| !path.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_belongs_to_the_value_that_is_open_there() {
        let check = |text: &str, expected: Option<&str>| {
            // The place is marked by `@`.
            let at = text.find('@').unwrap();
            assert_eq!(path_at(text.as_bytes(), at).as_deref(), expected, "{text}");
        };
        check("@{}", None);
        check("{@", None);
        check(r#"{"temperature": @NaN}"#, Some("temperature"));
        check(r#"{"a": 1, "b": {"c": "x@"#, Some("b.c"));
        check(r#"{"messages": [{}, {"content": "\"\\@"#, Some("messages[1].content"));
        check(r#"{"a": {"b": []}, "c": @"#, Some("c"));
        check(r#"{"a": [1, 2, @"#, Some("a[2]"));
        check(r#"{"a,[{": "]},", "b": @"#, Some("b"));
        check(r#"[[[[[[[[[[@"#, Some("[0][0][0][0][0][0][0][0]..."));
        check(r#"{"a": 1, @"#, None);
    }
}
