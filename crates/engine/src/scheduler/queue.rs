//! The requests that wait: by priority, then in the order in which they came; and how long they will.
//!
//! While requests wait, the time between two that leave the queue says how fast it moves. A request waits for as many of
//! these times as it has places before it and its own.

use crate::request::RequestId;
use crate::sequence::Sequence;
use std::time::{Duration, Instant};

/// The weight of the newest time between two that leave.
const NEWEST: f64 = 0.25;

/// The requests that wait, the next one first.
#[derive(Default)]
pub(crate) struct Queue {
    waiting: Vec<Sequence>,
    pace: Pace,
}

/// How fast requests leave the queue while others wait.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Pace {
    /// When one left last that left others waiting.
    last: Option<Instant>,
    seconds: Option<f64>,
}

impl Queue {
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Sequence> {
        self.waiting.iter()
    }

    pub(crate) fn find(&mut self, id: RequestId) -> Option<&mut Sequence> {
        self.waiting.iter_mut().find(|sequence| sequence.id == id)
    }

    pub(crate) fn pace(&self) -> Pace {
        self.pace
    }

    pub(crate) fn push(&mut self, sequence: Sequence) {
        let key = |sequence: &Sequence| (-i64::from(sequence.request.priority), sequence.id);
        let place = self.waiting.partition_point(|other| key(other) < key(&sequence));
        self.waiting.insert(place, sequence);
    }

    /// The first for which `may_start` holds.
    pub(crate) fn first(&self, may_start: impl Fn(&Sequence) -> bool) -> Option<usize> {
        self.waiting.iter().position(may_start)
    }

    pub(crate) fn get(&self, place: usize) -> &Sequence {
        &self.waiting[place]
    }

    /// Takes out one that starts.
    pub(crate) fn take(&mut self, place: usize) -> Sequence {
        let sequence = self.waiting.remove(place);
        self.pace.one_leaves(Instant::now(), !self.waiting.is_empty());
        sequence
    }

    pub(crate) fn remove(&mut self, id: RequestId) -> Option<Sequence> {
        let place = self.waiting.iter().position(|sequence| sequence.id == id)?;
        Some(self.waiting.remove(place))
    }
}

impl Pace {
    /// A request leaves the queue to start, and others go on waiting or none does.
    fn one_leaves(&mut self, now: Instant, others_wait: bool) {
        if let Some(last) = self.last {
            let seconds = (now - last).as_secs_f64();
            let known = self.seconds.unwrap_or(seconds);
            self.seconds = Some(known + NEWEST * (seconds - known));
        }
        // Without others the time to the next one says when clients come, not how fast the queue moves.
        self.last = others_wait.then_some(now);
    }

    /// How long one waits that has so many before it; none where nothing is known yet.
    pub(crate) fn wait(&self, before: usize, now: Instant) -> Option<Duration> {
        let passed = self.last.map_or(0.0, |last| (now - last).as_secs_f64());
        Some(Duration::from_secs_f64(((before + 1) as f64 * self.seconds? - passed).max(0.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_as_many_departures_as_there_are_places() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut pace = Pace::default();
        pace.one_leaves(at(0), true);
        assert_eq!(pace.wait(0, at(1)), None, "one departure says nothing");
        pace.one_leaves(at(10), true);
        assert_eq!(pace.wait(0, at(10)), Some(Duration::from_secs(10)));
        assert_eq!(pace.wait(2, at(14)), Some(Duration::from_secs(26)), "a part of it has passed");
        assert_eq!(pace.wait(0, at(50)), Some(Duration::ZERO));
        pace.one_leaves(at(14), true);
        assert_eq!(pace.wait(0, at(14)), Some(Duration::from_millis(8500)), "a quarter of the way to 4 s");
    }

    #[test]
    fn the_time_in_which_nobody_waited_does_not_count() {
        let start = Instant::now();
        let mut pace = Pace::default();
        pace.one_leaves(start, false);
        pace.one_leaves(start + Duration::from_secs(1000), true);
        pace.one_leaves(start + Duration::from_secs(1002), false);
        assert_eq!(pace.wait(0, start + Duration::from_secs(2000)), Some(Duration::from_secs(2)));
    }
}
