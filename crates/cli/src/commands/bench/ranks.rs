//! Percentiles by the nearest rank: always one of the numbers that were measured.

/// The least number that so many percent of them don't exceed, of numbers that ascend; none where there are none.
pub(super) fn nearest_rank(ascending: &[f64], percent: usize) -> Option<f64> {
    let rank = (ascending.len() * percent).div_ceil(100);
    ascending.get(rank.saturating_sub(1)).copied()
}
