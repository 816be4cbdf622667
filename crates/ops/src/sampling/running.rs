//! Samplers that steer towards an aim from token to token: their parameters run along with the sequence.
//!
//! Both apply to what the filters leave. The running parameter of a sequence is part of its history: it moves when a
//! token stands, so a rejected draft leaves no trace, and a preempted sequence takes it along.

use super::filters::{Candidate, by_likelihood, probabilities};
use super::{Adaptive, Mirostat, Sampling};

/// A running parameter. A sequence without one is at its beginning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Running {
    /// The largest surprise in bits that mirostat lets through.
    Mirostat {
        /// Begins at twice the target.
        surprise_max: f32,
    },
    /// The moving mean of the probabilities of drawn tokens, as a weighted sum and its weight.
    Adaptive {
        /// Begins as if the target had been reached all along.
        sum: f32,
        /// Goes towards `1 / (1 - decay)`, where it begins.
        weight: f32,
    },
}

/// The largest decay of the moving mean, which then spans a hundred tokens.
pub const ADAPTIVE_DECAY_MAX: f32 = 0.99;
/// Probabilities this far from the target have half of the steepest slope behind them.
const ADAPTIVE_WIDTH: f32 = 0.3;
const ADAPTIVE_PEAK: f32 = 5.0;
const ADAPTIVE_SHARPNESS: f32 = 10.0;

/// What a steering sampler needs to move on once a token is drawn.
#[derive(Debug, Default)]
pub(super) enum Steered {
    /// Nothing is steered.
    #[default]
    Free,
    Mirostat {
        mirostat: Mirostat,
        surprise_max: f32,
        /// Of the candidates, ascending by token.
        shares: Vec<f32>,
    },
    Adaptive {
        adaptive: Adaptive,
        sum: f32,
        weight: f32,
        /// Of the candidates before they were steered, ascending by token.
        shares: Vec<f32>,
    },
}

/// Narrows or rescores the candidates, as the request steers; they are ascending by token afterwards where it does.
pub(super) fn steer(
    candidates: &mut Vec<Candidate>,
    sampling: &Sampling,
    running: Option<Running>,
) -> Steered {
    if let Some(mirostat) = sampling.mirostat {
        candidates.sort_unstable_by_key(|candidate| candidate.token);
        return limit_surprise(candidates, mirostat, running);
    }
    if let Some(adaptive) = sampling.adaptive {
        candidates.sort_unstable_by_key(|candidate| candidate.token);
        return favour_target(candidates, adaptive, running);
    }
    Steered::Free
}

/// Mirostat 2 (Basu et al., 2021): leaves out tokens with a surprise above the running limit, never the likeliest.
fn limit_surprise(candidates: &mut Vec<Candidate>, mirostat: Mirostat, running: Option<Running>) -> Steered {
    let surprise_max = match running {
        Some(Running::Mirostat { surprise_max }) => surprise_max,
        Some(Running::Adaptive { .. }) | None => 2.0 * mirostat.target,
    };
    if let Some(likeliest) = candidates.iter().min_by(|a, b| by_likelihood(a, b)).copied() {
        let shares = probabilities(candidates);
        let mut shares = shares.iter();
        candidates.retain(|candidate| {
            let share = shares.next().expect("each candidate has its share");
            candidate.token == likeliest.token || -share.log2() <= surprise_max
        });
    }
    Steered::Mirostat { mirostat, surprise_max, shares: probabilities(candidates) }
}

/// Adaptive-p: scores become `peak - sharpness * d^2 / (1 + d)` with d the distance of a token's probability from the
/// target, which is moved against the mean of what was drawn so far.
fn favour_target(candidates: &mut [Candidate], adaptive: Adaptive, running: Option<Running>) -> Steered {
    let Adaptive { target, decay } = adaptive;
    let (sum, weight) = match running {
        Some(Running::Adaptive { sum, weight }) => (sum, weight),
        Some(Running::Mirostat { .. }) | None => (target / (1.0 - decay), 1.0 / (1.0 - decay)),
    };
    let moved = (2.0 * target - sum / weight).clamp(0.0, 1.0);
    let shares = probabilities(candidates);
    for (candidate, share) in candidates.iter_mut().zip(&shares) {
        let distance = (share - moved).abs() / ADAPTIVE_WIDTH;
        candidate.score = ADAPTIVE_PEAK - ADAPTIVE_SHARPNESS * distance * distance / (1.0 + distance);
    }
    Steered::Adaptive { adaptive, sum, weight, shares }
}

impl Steered {
    /// The running parameter after the candidate at a place, ascending by token, was drawn.
    pub(super) fn drawn(&self, place: impl FnOnce() -> usize) -> Option<Running> {
        match self {
            Steered::Free => None,
            Steered::Mirostat { mirostat, surprise_max, shares } => {
                let error = -shares[place()].log2() - mirostat.target;
                Some(Running::Mirostat { surprise_max: surprise_max - mirostat.rate * error })
            }
            Steered::Adaptive { adaptive, sum, weight, shares } => Some(Running::Adaptive {
                sum: adaptive.decay.mul_add(*sum, shares[place()]),
                weight: adaptive.decay.mul_add(*weight, 1.0),
            }),
        }
    }
}
