//! How many rows a step may have, so that it takes about as long as it should.
//!
//! While only prompts are computed, a step is to take 250 ms, which still lets a cancel through quickly. While anyone
//! decodes, it is to take 2.5 times what decoding alone takes, at least 15 ms and at most 250 ms: then the slowest steps
//! stay under three of the usual ones, and a prompt gets three fifths of the time, so that it comes in less than twice the
//! time that it takes alone, small chunks being slower. Both parts of a step are measured on the steps themselves: what
//! decoding takes, as the lower quartile of a few, and what each row of a prompt adds, which grows with what it reads.
//! Where a short prompt begins beside a long one, rows are cheap for a moment, which says little of those that follow. What
//! decoding takes grows too, as answers get longer, so that while a prompt is computed every 32nd step is without it, and
//! the eighth where more or fewer decode than when it was last looked at.

use std::collections::VecDeque;
use std::time::Duration;

/// How much longer than decoding alone a step may take.
const OF_DECODING: f64 = 2.5;
/// How long a step may take while anyone decodes, whatever decoding takes: at least, in seconds.
const DECODING: f64 = 0.015;
/// Steps with rows of prompts after which one is without them.
const STEPS_UNTIL_ALONE: u32 = 31;
/// The same where another number of sequences decodes than when it was last looked at.
const STEPS_UNTIL_ALONE_ANEW: u32 = 7;
/// How long a step may take while only prompts are computed, in seconds.
const PREFILLING: f64 = 0.250;
/// Rows of prompts that a step may have however slow they are, so that prompts don't stand still.
const PROMPT_ROWS_MIN: usize = 4;
/// The least share of a step's time that its rows of prompts are taken to need.
const PROMPT_SHARE_MIN: f64 = 0.1;
/// The weight of the newest measurement of what a row of a prompt adds.
const NEWEST: f64 = 0.25;
/// The same where rows of several prompts were cheaper than those before.
const NEWEST_OF_SEVERAL: f64 = 0.02;
/// Steps of decoding alone, of which a quarter were faster than what it takes: the others may have admitted or ended
/// requests, or met a busy machine.
const DECODING_STEPS: usize = 9;
/// The same among steps with rows of prompts: what was before them is long ago, and was one moment of the machine.
const DECODING_STEPS_APART: usize = 5;

/// The number of rows of the next step.
#[derive(Clone, Debug)]
pub(crate) struct StepBudget {
    /// Rows that a person chose.
    fixed: Option<usize>,
    most: usize,
    /// Seconds of the last steps in which all decoded, the newest last.
    decoding: VecDeque<f64>,
    /// Sequences that decoded when it was looked at last.
    decoding_rows: usize,
    /// Seconds that a row of a prompt adds to a step.
    prompt_row: Option<f64>,
    /// Steps with rows of prompts since the last one without.
    mixed_steps: u32,
}

/// The rows of a step, by what they are there for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StepRows {
    pub(crate) decoding: usize,
    pub(crate) prompts: usize,
    /// Prompts that have rows.
    pub(crate) chunks: usize,
}

impl StepBudget {
    /// `fixed` rows where a person chose; at most `most`.
    pub(crate) fn new(fixed: Option<usize>, most: usize) -> Self {
        Self {
            fixed,
            most,
            decoding: VecDeque::with_capacity(DECODING_STEPS),
            decoding_rows: 0,
            prompt_row: None,
            mixed_steps: 0,
        }
    }

    /// Rows of the next step. `decoding` of them are taken already.
    pub(crate) fn rows(&self, decoding: usize) -> usize {
        if let Some(fixed) = self.fixed {
            return fixed.min(self.most).max(decoding);
        }
        let is_known = decoding == self.decoding_rows;
        let steps_until_alone = if is_known { STEPS_UNTIL_ALONE } else { STEPS_UNTIL_ALONE_ANEW };
        if decoding > 0 && self.mixed_steps >= steps_until_alone {
            return decoding;
        }
        let left = if decoding == 0 {
            PREFILLING
        } else {
            let alone = self.decoding_seconds();
            (alone * OF_DECODING).clamp(DECODING, PREFILLING) - alone
        };
        let prompts = match self.prompt_row {
            Some(seconds) => (left / seconds).round() as usize,
            None => self.most / 4,
        };
        decoding.saturating_add(prompts.max(PROMPT_ROWS_MIN)).min(self.most).max(decoding)
    }

    /// How long a step takes in which all decode, as far as that is known.
    pub(crate) fn decoding(&self) -> Duration {
        Duration::from_secs_f64(self.decoding_seconds())
    }

    fn decoding_seconds(&self) -> f64 {
        let mut steps = [0.0; DECODING_STEPS];
        let count = self.decoding.len();
        steps.iter_mut().zip(&self.decoding).for_each(|(step, seconds)| *step = *seconds);
        steps[..count].sort_unstable_by(f64::total_cmp);
        steps[count / 4]
    }

    /// A step of these rows took so long.
    pub(crate) fn measured(&mut self, rows: StepRows, took: Duration) {
        let took = took.as_secs_f64();
        if rows.prompts == 0 {
            if rows.decoding.abs_diff(self.decoding_rows) * 8 > self.decoding_rows {
                self.decoding.clear();
            }
            let most = if self.mixed_steps > 0 { DECODING_STEPS_APART } else { DECODING_STEPS };
            while self.decoding.len() >= most {
                self.decoding.pop_front();
            }
            self.decoding.push_back(took);
            (self.decoding_rows, self.mixed_steps) = (rows.decoding, 0);
            return;
        }
        self.mixed_steps = if rows.decoding > 0 { self.mixed_steps + 1 } else { 0 };
        let alone = if rows.decoding > 0 { self.decoding_seconds() } else { 0.0 };
        let prompts = (took - alone).max(took * PROMPT_SHARE_MIN);
        if prompts > 0.0 {
            let row = prompts / rows.prompts as f64;
            let is_mixture = rows.chunks > 1 && self.prompt_row.is_some_and(|before| row < before);
            follow(&mut self.prompt_row, row, if is_mixture { NEWEST_OF_SEVERAL } else { NEWEST });
        }
    }
}

/// Moves what is known towards what was just measured, by the weight that this has.
fn follow(known: &mut Option<f64>, newest: f64, weight: f64) {
    let before = known.unwrap_or(newest);
    *known = Some(before + weight * (newest - before));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measure(budget: &mut StepBudget, decoding: usize, prompts: usize, milliseconds: u64) {
        let rows = StepRows { decoding, prompts, chunks: prompts.min(1) };
        budget.measured(rows, Duration::from_millis(milliseconds));
    }

    #[test]
    fn a_step_gets_the_rows_that_fit_into_its_time() {
        let mut budget = StepBudget::new(None, 512);
        assert_eq!(budget.rows(0), 128);
        measure(&mut budget, 0, 128, 128);
        assert_eq!(budget.rows(0), 250, "a millisecond a row");
        measure(&mut budget, 8, 0, 20);
        assert_eq!(budget.rows(8), 8 + 30, "20 ms of 50 are decoding");
        measure(&mut budget, 8, 30, 20 + 30);
        assert_eq!(budget.rows(8), 8 + 30, "what was expected came true");
        measure(&mut budget, 8, 30, 20 + 30 * 5);
        assert_eq!(budget.rows(8), 8 + 15, "a quarter of the way to 5 ms a row");
        let of_two = |milliseconds| {
            let mut budget = budget.clone();
            let rows = StepRows { decoding: 8, prompts: 16, chunks: 2 };
            budget.measured(rows, Duration::from_millis(milliseconds));
            budget.rows(8)
        };
        assert_eq!(of_two(20 + 4), 8 + 15, "cheap rows of two prompts say little");
        assert_eq!(of_two(20 + 64), 8 + 12, "dear ones are as dear as those of one");
    }

    #[test]
    fn fast_and_slow_decoding_have_their_bounds() {
        let rows = |decoding: u64| {
            let mut budget = StepBudget::new(None, 512);
            measure(&mut budget, 0, 100, 100);
            measure(&mut budget, 1, 0, decoding);
            budget.rows(1) - 1
        };
        assert_eq!([rows(1), rows(5), rows(20), rows(40)], [14, 10, 30, 60]);
        assert_eq!([rows(210), rows(400)], [40, 4], "prompts don't stand still");
    }

    #[test]
    fn what_decoding_takes_is_looked_at_while_a_prompt_is_computed() {
        let mut budget = StepBudget::new(None, 512);
        measure(&mut budget, 8, 0, 20);
        measure(&mut budget, 0, 100, 100);
        for _ in 0..31 {
            assert_eq!(budget.rows(8), 8 + 30);
            measure(&mut budget, 8, 30, 20 + 30);
        }
        assert_eq!(budget.rows(8), 8);
        measure(&mut budget, 8, 0, 20);
        measure(&mut budget, 8, 0, 200);
        assert_eq!(budget.rows(8), 8 + 30, "one slow step changes nothing");
        for _ in 0..4 {
            measure(&mut budget, 8, 0, 40);
        }
        assert_eq!(budget.rows(8), 8 + 30, "two of seven took 20 ms");
        measure(&mut budget, 8, 0, 40);
        assert_eq!(budget.rows(8), 8 + 60, "two of eight are a quarter");
        for _ in 0..7 {
            assert!(budget.rows(6) > 6);
            measure(&mut budget, 6, 50, 40 + 50);
        }
        assert_eq!(budget.rows(6), 6, "others decode than before");
        measure(&mut budget, 6, 0, 16);
        assert_eq!(budget.rows(6), 6 + 24, "what so many fewer take is known of one step");
        assert_eq!(StepBudget::new(Some(20), 512).rows(8), 20, "what a person chose stays");
    }

    #[test]
    fn steps_before_a_prompt_count_less_than_those_beside_it() {
        let mut budget = StepBudget::new(None, 512);
        (0..9).for_each(|_| measure(&mut budget, 8, 0, 30));
        for known in [30, 20] {
            measure(&mut budget, 8, 30, known + 30);
            measure(&mut budget, 8, 0, 20);
            assert_eq!(
                budget.decoding(),
                Duration::from_millis(known),
                "one fast step may be chance, two are not"
            );
        }
    }

    #[test]
    fn decoding_rows_and_the_limit_come_before_time() {
        let mut budget = StepBudget::new(None, 512);
        measure(&mut budget, 0, 100, 100_000);
        assert_eq!((budget.rows(0), budget.rows(1), budget.rows(600)), (4, 5, 600));
        measure(&mut StepBudget::new(None, 512), 0, 1_000_000, 0);
        assert_eq!(StepBudget::new(None, 4).rows(0), 4);
        assert_eq!(StepBudget::new(Some(64), 512).rows(100), 100);
        assert_eq!(StepBudget::new(Some(1000), 512).rows(0), 512);
    }
}
