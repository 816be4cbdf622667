//! The penalty on going on with a passage that stood before.

use super::Dry;
use crate::TokenId;
use std::collections::{HashMap, HashSet};

/// Passages are compared up to this length; longer ones are punished like it.
const LONGEST_PASSAGE: usize = 256;

/// For each token, the longest passage at the end of `tokens` that stood before it elsewhere, where it is long enough.
pub(crate) fn repeats(dry: &Dry, tokens: &[TokenId]) -> HashMap<TokenId, usize> {
    let from = if dry.last_tokens == 0 { 0 } else { tokens.len().saturating_sub(dry.last_tokens as usize) };
    let tokens = &tokens[from..];
    let breakers: HashSet<TokenId> = dry.breakers.iter().copied().collect();
    let mut longest = HashMap::new();
    for end in 1..tokens.len() {
        let length = common_end(&tokens[..end], tokens, &breakers);
        if length >= dry.allowed_length.max(1) as usize {
            let known = longest.entry(tokens[end]).or_insert(length);
            *known = length.max(*known);
        }
    }
    longest
}

/// Tokens that both end with, up to a breaker.
fn common_end(a: &[TokenId], b: &[TokenId], breakers: &HashSet<TokenId>) -> usize {
    let pairs = a.iter().rev().zip(b.iter().rev()).take(LONGEST_PASSAGE);
    pairs.take_while(|(a, b)| a == b && !breakers.contains(a)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(tokens: &[u32], change: impl FnOnce(&mut Dry), expected: &[(u32, usize)]) {
        let mut dry =
            Dry { multiplier: 1.0, base: 2.0, allowed_length: 2, last_tokens: 0, breakers: Vec::new() };
        change(&mut dry);
        let tokens: Vec<TokenId> = tokens.iter().copied().map(TokenId).collect();
        let found = repeats(&dry, &tokens);
        let expected: HashMap<TokenId, usize> =
            expected.iter().map(|(token, n)| (TokenId(*token), *n)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn the_longest_passage_counts() {
        check(&[1, 2, 3, 9, 1, 2], |_| (), &[(3, 2)]);
        check(&[5, 1, 2, 7, 8, 1, 2, 6, 5, 1, 2], |_| (), &[(7, 3), (6, 2)]);
        check(&[1, 2, 3, 9, 4, 2], |_| (), &[]);
    }

    #[test]
    fn breakers_and_the_last_tokens_limit_a_passage() {
        check(&[4, 1, 2, 3, 9, 4, 1, 2], |dry| dry.breakers = vec![TokenId(1)], &[]);
        check(&[4, 1, 2, 3, 9, 4, 1, 2], |dry| dry.breakers = vec![TokenId(4)], &[(3, 2)]);
        check(&[1, 2, 3, 9, 1, 2], |dry| dry.last_tokens = 4, &[]);
    }
}
