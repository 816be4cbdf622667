//! SPDX licence expressions against a list of allowed licences.
//!
//! `expression = term { OR term }`, `term = factor { AND factor }`, `factor = ( expression ) | id [ WITH exception ]`;
//! the `/` of old manifests means OR.

/// Whether the expression can be satisfied with allowed licences alone. What does not parse is not allowed.
pub(super) fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut parser = Parser { words: spaced.split_whitespace().collect(), next: 0, allowed };
    parser.expression() == Some(true) && parser.next == parser.words.len()
}

struct Parser<'a> {
    words: Vec<&'a str>,
    next: usize,
    allowed: &'a [String],
}

impl<'a> Parser<'a> {
    fn take(&mut self, word: &str) -> bool {
        let found = self.words.get(self.next) == Some(&word);
        self.next += usize::from(found);
        found
    }

    fn word(&mut self) -> Option<&'a str> {
        let word = self.words.get(self.next).copied()?;
        self.next += 1;
        Some(word)
    }

    fn expression(&mut self) -> Option<bool> {
        let mut satisfied = self.term()?;
        while self.take("OR") {
            satisfied |= self.term()?;
        }
        Some(satisfied)
    }

    fn term(&mut self) -> Option<bool> {
        let mut satisfied = self.factor()?;
        while self.take("AND") {
            satisfied &= self.factor()?;
        }
        Some(satisfied)
    }

    fn factor(&mut self) -> Option<bool> {
        if self.take("(") {
            let satisfied = self.expression()?;
            return self.take(")").then_some(satisfied);
        }
        let mut licence = self.word()?.to_owned();
        if self.take("WITH") {
            licence = format!("{licence} WITH {}", self.word()?);
        }
        Some(self.allowed.contains(&licence))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_satisfied_by_the_list() {
        let allowed =
            ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "Unicode-3.0"].map(str::to_owned);
        for (expression, expected) in [
            ("MIT", true),
            ("GPL-3.0", false),
            ("GPL-3.0 OR MIT", true),
            ("MIT/GPL-3.0", true),
            ("MIT AND GPL-3.0", false),
            ("(MIT OR GPL-3.0) AND Unicode-3.0", true),
            ("MIT OR GPL-3.0 AND Zlib", true),
            ("(MIT OR GPL-3.0) AND Zlib", false),
            ("Apache-2.0 WITH LLVM-exception", true),
            ("MIT WITH LLVM-exception", false),
            ("MIT OR", false),
            ("(MIT", false),
            ("MIT MIT", false),
            ("", false),
        ] {
            assert_eq!(is_allowed(expression, &allowed), expected, "{expression}");
        }
    }
}
