//! Python's literals to JSON: strings, numbers, `True`, `False`, `None`, lists, tuples and dicts.

use serde_json::{Map, Value};

/// Nesting of lists and dicts.
const DEPTH_MAX: usize = 64;

/// The value that the text spells from its beginning to its end.
pub(super) fn to_json(text: &str) -> Option<Value> {
    let mut reader = Reader { rest: text };
    let value = reader.value(0)?;
    reader.skip_space();
    reader.rest.is_empty().then_some(value)
}

struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    fn value(&mut self, depth: usize) -> Option<Value> {
        if depth > DEPTH_MAX {
            return None;
        }
        self.skip_space();
        match self.rest.chars().next()? {
            '"' | '\'' => self.strings(),
            '[' => self.list(']', depth),
            '(' => self.list(')', depth),
            '{' => self.dict(depth),
            _ => self.word(),
        }
    }

    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    /// Takes a letter after white space, if it is the next.
    fn take(&mut self, letter: char) -> bool {
        self.skip_space();
        match self.rest.strip_prefix(letter) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Strings that stand beside each other are one.
    fn strings(&mut self) -> Option<Value> {
        let mut text = String::new();
        while let Some(quote) = self.rest.chars().next().filter(|letter| matches!(letter, '"' | '\'')) {
            self.rest = &self.rest[1..];
            self.string(quote, &mut text)?;
            self.skip_space();
        }
        Some(Value::String(text))
    }

    fn string(&mut self, quote: char, text: &mut String) -> Option<()> {
        let mut letters = self.rest.chars();
        loop {
            let letter = letters.next()?;
            match letter {
                _ if letter == quote => break,
                '\\' => text.push(escape(&mut letters)?),
                _ => text.push(letter),
            }
        }
        self.rest = letters.as_str();
        Some(())
    }

    fn list(&mut self, close: char, depth: usize) -> Option<Value> {
        self.rest = &self.rest[1..];
        let mut items = Vec::new();
        while !self.take(close) {
            items.push(self.value(depth + 1)?);
            if !self.take(',') {
                return self.take(close).then_some(Value::Array(items));
            }
        }
        Some(Value::Array(items))
    }

    fn dict(&mut self, depth: usize) -> Option<Value> {
        self.rest = &self.rest[1..];
        let mut entries = Map::new();
        while !self.take('}') {
            let Value::String(key) = self.value(depth + 1)? else { return None };
            if !self.take(':') {
                return None;
            }
            entries.insert(key, self.value(depth + 1)?);
            if !self.take(',') {
                return self.take('}').then_some(Value::Object(entries));
            }
        }
        Some(Value::Object(entries))
    }

    fn word(&mut self) -> Option<Value> {
        let is_end = |letter: char| !(letter.is_ascii_alphanumeric() || "+-._".contains(letter));
        let end = self.rest.find(is_end).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        match word {
            "True" | "true" => Some(Value::Bool(true)),
            "False" | "false" => Some(Value::Bool(false)),
            "None" | "null" => Some(Value::Null),
            _ => serde_json::from_str(&word.replace('_', "")).ok().filter(Value::is_number),
        }
    }
}

fn escape(letters: &mut std::str::Chars<'_>) -> Option<char> {
    let number = |letters: &mut std::str::Chars<'_>, digits: usize| {
        let text: String = letters.take(digits).collect();
        u32::from_str_radix(&text, 16).ok().and_then(char::from_u32)
    };
    match letters.next()? {
        'n' => Some('\n'),
        't' => Some('\t'),
        'r' => Some('\r'),
        'x' => number(letters, 2),
        'u' => number(letters, 4),
        'U' => number(letters, 8),
        other => Some(other),
    }
}
