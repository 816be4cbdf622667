//! Rotary embeddings in words.

use gannet_model::{RopeConfig, RopeScaling};

/// The rope with its scaling, and what follows for a context where that matters.
pub(crate) fn describe(rope: &RopeConfig, context: usize) -> String {
    let scaling = rope.choice(context).unwrap_or_else(|| scaling(&rope.scaling));
    let attention = match rope.attention_scale {
        1.0 => String::new(),
        scale => format!(", attention scaled by {scale}"),
    };
    format!("theta {} on {} elements of a head, {scaling}{attention}", rope.theta, rope.dims)
}

/// The scaling's own name with its parameters; a list of divisors by its length.
fn scaling(scaling: &RopeScaling) -> String {
    if *scaling == RopeScaling::None {
        return "not scaled".to_owned();
    }
    if let RopeScaling::Divisors(divisors) = scaling {
        return format!("{} divisors from the file", divisors.len());
    }
    let text = format!("{scaling:?}").to_lowercase();
    let parameters = text.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    parameters.map_or(text.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gannet_model::Yarn;

    #[test]
    fn a_rope_that_depends_on_the_context_says_what_was_chosen() {
        let scaling = RopeScaling::Dynamic { factor: 2.0, trained: 32 };
        let rope = RopeConfig { theta: 10000.0, dims: 16, attention_scale: 1.0, scaling };
        assert!(describe(&rope, 32).contains("not scaled"));
        assert!(describe(&rope, 64).contains("64"));
    }

    #[test]
    fn other_ropes_say_how_they_are_scaled() {
        let check = |scaling: RopeScaling, expected: &str| {
            let rope = RopeConfig { theta: 1e6, dims: 128, attention_scale: 1.0, scaling };
            assert_eq!(describe(&rope, 1), format!("theta 1000000 on 128 elements of a head, {expected}"));
        };
        check(RopeScaling::None, "not scaled");
        check(RopeScaling::Linear { factor: 2.0 }, "linear { factor: 2.0 }");
        let yarn = Yarn { factor: 4.0, original: 32.0, beta_fast: 32.0, beta_slow: 1.0, truncate: true };
        check(
            RopeScaling::Yarn(yarn),
            "yarn { factor: 4.0, original: 32.0, beta_fast: 32.0, beta_slow: 1.0, truncate: true }",
        );
        check(RopeScaling::Divisors(vec![1.0; 64]), "64 divisors from the file");
    }
}
