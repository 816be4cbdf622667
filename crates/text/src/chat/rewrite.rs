//! Rewrites what templates write and the engine doesn't read, before it reads them.
//!
//! `{% generation %}` marks an assistant's words for training and prints nothing: an `if` that is always taken. Python's
//! `'%s' % x` is the filter `format`: `'%s'|format(x)`; it is recognised by the text on its left, which templates write
//! out. Strings, comments and raw blocks stay as they are; what isn't closed is left to the engine to refuse.
//!
//! Knows no values.

use crate::error::TextError;

/// Longest tag, in bytes outside of its strings: the engine walks an expression by recursion, a step an operator.
const MAX_TAG_BYTES: usize = 4096;

/// The template in the engine's own words.
///
/// # Errors
/// `TooLarge` for a tag whose expression is too long.
pub(super) fn rewritten(source: &str) -> Result<String, TextError> {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{{").into_iter().chain(rest.find("{%")).chain(rest.find("{#")).min() {
        let (before, tag) = rest.split_at(start);
        out.push_str(before);
        let end = match &tag[..2] {
            "{#" => tag.find("#}").map(|end| end + 2),
            "{{" => end_of_tag(tag, "}}"),
            _ => end_of_tag(tag, "%}"),
        };
        check_length(&tag[..end.unwrap_or(tag.len())])?;
        let Some(end) = end else {
            rest = tag;
            break;
        };
        let end = if word(&tag[..end]) == "raw" { end_of_raw(tag, end) } else { end };
        out.push_str(&tag_in_own_words(&tag[..end]));
        rest = &tag[end..];
    }
    out.push_str(rest);
    Ok(out)
}

fn check_length(tag: &str) -> Result<(), TextError> {
    let (mut at, mut found) = (0, 0);
    while !tag.starts_with("{#") && at < tag.len() {
        let rest = &tag[at..];
        let plain = rest.find(['\'', '"']).unwrap_or(rest.len());
        found += plain;
        at = end_of_string(tag, at + plain).unwrap_or(tag.len());
    }
    if found > MAX_TAG_BYTES {
        let what = "the length of one tag of the chat template in bytes";
        return Err(TextError::TooLarge { what, found, limit: MAX_TAG_BYTES });
    }
    Ok(())
}

/// The only word of a block tag; something else for all other tags.
fn word(tag: &str) -> &str {
    let inside = tag.strip_prefix("{%").and_then(|tag| tag.strip_suffix("%}")).unwrap_or("");
    inside.trim_matches(|letter: char| letter.is_whitespace() || matches!(letter, '-' | '+'))
}

fn tag_in_own_words(tag: &str) -> String {
    match word(tag) {
        "generation" => tag.replace("generation", "if true"),
        "endgeneration" => tag.replace("endgeneration", "endif"),
        _ if tag.starts_with("{#") || word(tag).starts_with("raw") => tag.to_owned(),
        _ => formatted(tag),
    }
}

/// Where the tag at the start of `text` ends: at the closer outside of strings and brackets.
fn end_of_tag(text: &str, closer: &str) -> Option<usize> {
    let (mut at, mut depth) = (2, 0_usize);
    while at < text.len() {
        if depth == 0 && text[at..].starts_with(closer) {
            return Some(at + 2);
        }
        let letter = text[at..].chars().next()?;
        match letter {
            '\'' | '"' => {
                at = end_of_string(text, at)?;
                continue;
            }
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += letter.len_utf8();
    }
    None
}

/// Where the string that begins at `at` ends.
fn end_of_string(text: &str, at: usize) -> Option<usize> {
    let quote = *text.as_bytes().get(at)?;
    let mut escaped = false;
    let inside = text.bytes().enumerate().skip(at + 1);
    for (place, byte) in inside {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            _ if byte == quote => return Some(place + 1),
            _ => {}
        }
    }
    None
}

/// Where the raw block whose first tag ends at `from` ends, or that tag if the block never does.
fn end_of_raw(text: &str, from: usize) -> usize {
    let mut at = from;
    while let Some(start) = text[at..].find("{%").map(|start| at + start) {
        let Some(end) = text[start..].find("%}").map(|end| start + end + 2) else {
            return from;
        };
        if word(&text[start..end]) == "endraw" {
            return end;
        }
        at = start + 2;
    }
    from
}

/// The tag with each `TEXT % OPERAND` as `TEXT|format(OPERAND)`.
fn formatted(tag: &str) -> String {
    let mut out = String::with_capacity(tag.len());
    let mut at = 0;
    while let Some(start) = tag[at..].find(['\'', '"']).map(|start| at + start) {
        let Some(end) = end_of_string(tag, start) else {
            break;
        };
        let binds_left = out_ends_with_product(&tag[..start]);
        out.push_str(&tag[at..end]);
        at = end;
        while let Some(operand) = operand_of_percent(&tag[at..]).filter(|_| !binds_left) {
            let (from, to) = (at + operand.0, at + operand.1);
            out.push_str(&format!("|format({})", arguments(&formatted(&tag[from..to]))));
            at = to;
        }
    }
    out.push_str(&tag[at..]);
    out
}

/// Whether an operator stands before the text that takes it as its right side.
fn out_ends_with_product(before: &str) -> bool {
    before.trim_end().ends_with(['*', '/', '%']) && !before.trim_end().ends_with("{%")
}

/// From where to where the operand goes, if `rest` begins with `%` as an operator.
fn operand_of_percent(rest: &str) -> Option<(usize, usize)> {
    let after = rest.trim_start().strip_prefix('%').filter(|after| !after.starts_with('}'))?;
    let operand = after.trim_start();
    let start = rest.len() - operand.len();
    Some((start, start + operand_length(operand)?))
}

/// The length of a value with its attributes, items, calls and filters.
fn operand_length(text: &str) -> Option<usize> {
    let sign = text.len() - text.trim_start_matches(['-', '+']).len();
    let first = text[sign..].chars().next()?;
    let mut at = match first {
        '\'' | '"' => end_of_string(text, sign)?,
        '(' | '[' | '{' => sign + end_of_bracket(&text[sign..])?,
        _ if first.is_alphanumeric() || first == '_' => sign + name_length(&text[sign..]),
        _ => return None,
    };
    loop {
        let rest = &text[at..];
        let spaces = rest.len() - rest.trim_start().len();
        let next = rest.trim_start().chars().next();
        at += match next {
            Some('(' | '[') => spaces + end_of_bracket(rest.trim_start())?,
            Some('.' | '|') => {
                let name = rest.trim_start()[1..].trim_start();
                rest.len() - name.len() + name_length(name)
            }
            _ => return Some(at),
        };
    }
}

/// The length of a name or number, fractions included.
fn name_length(text: &str) -> usize {
    let number = text.starts_with(|letter: char| letter.is_ascii_digit());
    let belongs = |letter: char| letter.is_alphanumeric() || letter == '_' || (number && letter == '.');
    text.find(|letter| !belongs(letter)).unwrap_or(text.len())
}

/// Where the bracket that `text` begins with is closed.
fn end_of_bracket(text: &str) -> Option<usize> {
    let (mut at, mut depth) = (0, 0_usize);
    while let Some(letter) = text[at..].chars().next() {
        match letter {
            '\'' | '"' => {
                at = end_of_string(text, at)?;
                continue;
            }
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        at += letter.len_utf8();
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// A tuple's items, as Python takes them one by one; anything else as it stands.
fn arguments(operand: &str) -> &str {
    let whole = operand.starts_with('(') && end_of_bracket(operand) == Some(operand.len());
    if !whole {
        return operand;
    }
    let inside = operand[1..operand.len() - 1].trim();
    inside.strip_suffix(',').unwrap_or(inside)
}

#[cfg(test)]
mod tests {
    use super::rewritten;

    #[test]
    fn only_what_the_engine_does_not_read_changes() {
        let check =
            |source: &str, expected: &str| assert_eq!(rewritten(source).unwrap(), expected, "{source}");
        let same = |source: &str| check(source, source);
        check("{%- generation -%}x{% endgeneration %}", "{%- if true -%}x{% endif %}");
        check("{{ '%s' % x }}", "{{ '%s'|format(x) }}");
        check("{{ '%s' % x.y[0]|upper ~ 'z' }}", "{{ '%s'|format(x.y[0]|upper) ~ 'z' }}");
        check("{{ \"%s, %s\" % (a, f('(')) }}", "{{ \"%s, %s\"|format(a, f('(')) }}");
        check("{{ '%s' % (a,) }}", "{{ '%s'|format(a) }}");
        check("{{ '%%%s' % a % b }}", "{{ '%%%s'|format(a)|format(b) }}");
        check("{{ '%s' % ('%s' % x) }}", "{{ '%s'|format('%s'|format(x)) }}");
        check("{% if '%s' % -1.5 == y %}", "{% if '%s'|format(-1.5) == y %}");
        same("{{ '{% generation %}' ~ \"'%s' % x\" }}");
        same("{# '%s' % x #}{% raw %}{{ '%s' % x }}{% endraw %}");
        same("{{ 5 % 3 }}{% set x = 'a' %}{%- set y = 'b' -%}");
        same("{{ {'a': {'b': 1}}.a.b }}");
        same("{{ 2 * '%s' % x }}");
        same("{{ 'open");
        same("{{ '%s' % ");
        same("{{ '%s' % ( }}");
        same("text with 'quotes' % and }} {");
        same("{{ 'é' }}{{ x % 'é' }}");
    }
}
