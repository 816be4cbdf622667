//! The requests that wait: by priority, then in the order in which they came.

use crate::request::RequestId;
use crate::sequence::Sequence;

/// The requests that wait, the next one first.
#[derive(Default)]
pub(crate) struct Queue {
    waiting: Vec<Sequence>,
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

    pub(crate) fn take(&mut self, place: usize) -> Sequence {
        self.waiting.remove(place)
    }

    pub(crate) fn remove(&mut self, id: RequestId) -> Option<Sequence> {
        let place = self.waiting.iter().position(|sequence| sequence.id == id)?;
        Some(self.waiting.remove(place))
    }
}
