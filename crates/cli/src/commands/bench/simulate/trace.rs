//! Requests that nobody made: when they arrive, how long they are, and what their prompts have in common.
//!
//! The same seed gives the same trace on every machine.

use gannet_ops::TokenId;
use std::time::Duration;

/// What a trace looks like.
pub(super) struct Shape {
    pub(super) requests: usize,
    /// Arrivals a second; 0 is all at once.
    pub(super) rate: f64,
    /// The middle of the prompts' lengths.
    pub(super) prompt_tokens: usize,
    /// The middle of the answers' lengths.
    pub(super) answer_tokens: usize,
    /// Share of the middle prompt that all begin with.
    pub(super) shared: f64,
    pub(super) seed: u64,
    /// Tokens of one prompt more, in the middle.
    pub(super) long_prompt: Option<usize>,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    /// From the trace's beginning.
    pub(super) after: Duration,
    pub(super) prompt_tokens: usize,
    pub(super) answer_tokens: usize,
    /// Tokens that the prompt begins with as all others do.
    shared_tokens: usize,
    number: usize,
    /// Whether it is the one with the long prompt.
    pub(super) is_long: bool,
}

/// The requests in the order of their arrival. The times between them are exponential, so that they come in bursts as
/// those of people do.
pub(super) fn trace(shape: &Shape) -> Vec<Arrival> {
    let mut random = Random(shape.seed);
    let mut seconds = 0.0;
    let mut arrival = |number| {
        if number > 0 && shape.rate > 0.0 {
            seconds -= (1.0 - random.share()).ln() / shape.rate;
        }
        let prompt_tokens = random.around(shape.prompt_tokens);
        Arrival {
            after: Duration::from_secs_f64(seconds),
            prompt_tokens,
            answer_tokens: random.around(shape.answer_tokens),
            shared_tokens: ((shape.prompt_tokens as f64 * shape.shared) as usize).min(prompt_tokens),
            number,
            is_long: false,
        }
    };
    let mut arrivals: Vec<Arrival> = (0..shape.requests).map(&mut arrival).collect();
    if let Some(prompt_tokens) = shape.long_prompt {
        let middle = arrivals.len() / 2;
        let (after, number) = (arrivals[middle].after, arrivals.len());
        let long =
            Arrival { after, prompt_tokens, answer_tokens: 1, shared_tokens: 0, number, is_long: true };
        arrivals.insert(middle, long);
    }
    arrivals
}

impl Arrival {
    /// A request at once, with nothing beside it.
    pub(super) fn alone(prompt_tokens: usize, answer_tokens: usize) -> Self {
        Self {
            after: Duration::ZERO,
            prompt_tokens,
            answer_tokens,
            shared_tokens: 0,
            number: 0,
            is_long: false,
        }
    }

    /// One of the same length whose tokens none of a trace has, where this is the trace's long one.
    pub(super) fn anew(&self) -> Self {
        Self { number: self.number + 1, ..self.clone() }
    }

    /// Its tokens: first those of all requests, then its own.
    pub(super) fn prompt(&self, vocabulary: usize) -> Vec<TokenId> {
        let token = |index: usize| {
            let own = if index < self.shared_tokens { 0 } else { self.number + 1 };
            TokenId(((index * 7919 + own * 104_729 + 1) % vocabulary) as u32)
        };
        (0..self.prompt_tokens).map(token).collect()
    }
}

/// SplitMix64 (Steele, Lea and Flood, 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// From 0 up to, not including, 1.
    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// From half of the middle to one and a half of it; at least 1.
    fn around(&mut self, middle: usize) -> usize {
        let least = middle.div_ceil(2);
        least + (self.share() * (middle + 1) as f64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(rate: f64) -> Shape {
        Shape {
            requests: 1000,
            rate,
            prompt_tokens: 100,
            answer_tokens: 10,
            shared: 0.3,
            seed: 7,
            long_prompt: None,
        }
    }

    #[test]
    fn requests_arrive_at_their_rate_and_with_their_lengths() {
        let arrivals = trace(&shape(5.0));
        assert!(arrivals.windows(2).all(|pair| pair[0].after <= pair[1].after));
        let last = arrivals.last().unwrap().after.as_secs_f64();
        assert!((180.0..220.0).contains(&last), "1000 requests at 5 a second took {last} s");
        assert!(arrivals.iter().all(|arrival| (50..=150).contains(&arrival.prompt_tokens)));
        assert!(arrivals.iter().all(|arrival| (5..=15).contains(&arrival.answer_tokens)));
        let mean = arrivals.iter().map(|arrival| arrival.prompt_tokens).sum::<usize>() as f64 / 1000.0;
        assert!((95.0..105.0).contains(&mean), "{mean}");
    }

    #[test]
    fn all_at_once_and_the_same_each_time() {
        let arrivals = trace(&shape(0.0));
        assert!(arrivals.iter().all(|arrival| arrival.after.is_zero()));
        assert_eq!(arrivals, trace(&shape(0.0)));
        assert_ne!(arrivals, trace(&Shape { seed: 8, ..shape(0.0) }));
    }

    #[test]
    fn a_long_prompt_comes_in_the_middle() {
        let arrivals = trace(&Shape { long_prompt: Some(4000), ..shape(5.0) });
        let long = &arrivals[500];
        assert_eq!((arrivals.len(), long.prompt_tokens, long.answer_tokens), (1001, 4000, 1));
        assert_eq!(long.after, arrivals[501].after);
        let anew = long.anew().prompt(1_000_000);
        assert_eq!(anew.len(), 4000);
        assert!(arrivals.iter().all(|other| other.prompt(1_000_000)[0] != anew[0]));
    }

    #[test]
    fn prompts_share_their_beginning_and_no_more() {
        let arrivals = trace(&shape(0.0));
        let (first, second) = (arrivals[0].prompt(1000), arrivals[1].prompt(1000));
        assert_eq!(first[..30], second[..30]);
        assert_ne!(first[30], second[30]);
        assert!(first.iter().all(|token| token.0 < 1000));
    }
}
