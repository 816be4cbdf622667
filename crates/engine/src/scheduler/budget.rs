//! How many rows a step may have, so that it takes about as long as it should.
//!
//! While anyone decodes, a step is to take 50 ms, since that is what a reader waits for each token; else 250 ms, which
//! still lets a cancel through quickly. The rate is measured on the steps themselves.

use std::time::Duration;

/// How long a step may take while anyone decodes.
const DECODING: Duration = Duration::from_millis(50);
/// How long a step may take while only prompts are computed.
const PREFILLING: Duration = Duration::from_millis(250);
/// Steps of fewer rows say little about the time that a row takes.
const ROWS_TO_MEASURE: usize = 16;
/// Rows that a step may have whatever the rate: a machine that slow makes its readers wait in any case.
const ROWS_MIN: usize = 16;
/// The weight of the newest measurement.
const NEWEST: f64 = 0.25;

/// The number of rows of the next step.
#[derive(Clone, Debug)]
pub(crate) struct StepBudget {
    /// Rows that a person chose.
    fixed: Option<usize>,
    most: usize,
    rows_per_second: Option<f64>,
}

impl StepBudget {
    /// `fixed` rows where a person chose; at most `most`.
    pub(crate) fn new(fixed: Option<usize>, most: usize) -> Self {
        Self { fixed, most, rows_per_second: None }
    }

    /// Rows of the next step. `decoding` of them are taken already.
    pub(crate) fn rows(&self, decoding: usize) -> usize {
        if let Some(fixed) = self.fixed {
            return fixed.min(self.most).max(decoding);
        }
        let time = if decoding > 0 { DECODING } else { PREFILLING };
        let rows = match self.rows_per_second {
            Some(rate) => (rate * time.as_secs_f64()) as usize,
            None => self.most / 4,
        };
        rows.max(ROWS_MIN).max(decoding).min(self.most)
    }

    /// A step of so many rows took so long.
    pub(crate) fn measured(&mut self, rows: usize, took: Duration) {
        if rows >= ROWS_TO_MEASURE && !took.is_zero() {
            let rate = rows as f64 / took.as_secs_f64();
            let known = self.rows_per_second.unwrap_or(rate);
            self.rows_per_second = Some(known + NEWEST * (rate - known));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_gets_the_rows_that_fit_into_its_time() {
        let mut budget = StepBudget::new(None, 512);
        assert_eq!(budget.rows(0), 128);
        budget.measured(128, Duration::from_millis(128));
        assert_eq!((budget.rows(0), budget.rows(1)), (250, 50));
        budget.measured(1, Duration::from_secs(1));
        assert_eq!(budget.rows(1), 50, "a step of one row measures nothing");
    }

    #[test]
    fn decoding_rows_and_the_limit_come_before_time() {
        let mut budget = StepBudget::new(None, 512);
        budget.measured(100, Duration::from_secs(100));
        assert_eq!((budget.rows(1), budget.rows(40)), (16, 40));
        budget.measured(1_000_000, Duration::from_millis(1));
        assert_eq!(budget.rows(1), 512);
        assert_eq!(StepBudget::new(None, 4).rows(0), 4);
        assert_eq!(StepBudget::new(Some(64), 512).rows(100), 100);
        assert_eq!(StepBudget::new(Some(1000), 512).rows(0), 512);
    }
}
