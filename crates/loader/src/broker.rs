//! One account of the process's memory, by class, from which every engine of the process asks.
//!
//! An engine states what it needs at least and what it wishes. It gets its wish where that is free, else as much above
//! its least as there is, or is refused with the numbers. What it gives back, and all of it when its grant is dropped, is
//! free for the next.
//!
//! Invariant: grants never add up to more than the total.
//!
//! Allocates nothing itself.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// What memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryClass {
    /// Weights, as the device has them.
    Weights,
    /// Keys and values in pages.
    Pages,
    /// Recurrent state of running sequences.
    Slots,
    /// Recurrent states after drafted rows, until it is known which stand.
    Candidates,
    /// Recurrent state that the prefix cache keeps.
    Snapshots,
    /// Values of the largest step.
    Scratch,
    /// Captured graphs of a device.
    Graphs,
    /// What is not counted one by one: code, tokenizer, requests, the allocator's own.
    Margin,
}

impl MemoryClass {
    /// Every class, in the order in which people are shown them.
    pub const ALL: [MemoryClass; 8] = [
        MemoryClass::Weights,
        MemoryClass::Pages,
        MemoryClass::Slots,
        MemoryClass::Candidates,
        MemoryClass::Snapshots,
        MemoryClass::Scratch,
        MemoryClass::Graphs,
        MemoryClass::Margin,
    ];

    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            MemoryClass::Weights => "weights",
            MemoryClass::Pages => "pages",
            MemoryClass::Slots => "recurrent slots",
            MemoryClass::Candidates => "candidate states",
            MemoryClass::Snapshots => "snapshots",
            MemoryClass::Scratch => "scratch",
            MemoryClass::Graphs => "graphs",
            MemoryClass::Margin => "margin",
        }
    }
}

/// Bytes of each class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse([u64; MemoryClass::ALL.len()]);

impl MemoryUse {
    /// Bytes of one class.
    pub fn of(&self, class: MemoryClass) -> u64 {
        self.0[class as usize]
    }

    /// With so many bytes of one class.
    #[must_use]
    pub fn with(mut self, class: MemoryClass, bytes: u64) -> Self {
        self.0[class as usize] = bytes;
        self
    }

    /// Bytes of all classes.
    pub fn total(&self) -> u64 {
        self.0.iter().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }
}

impl fmt::Display for MemoryUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = MemoryClass::ALL.into_iter().filter(|class| self.of(*class) > 0);
        for (place, class) in used.enumerate() {
            let separator = if place == 0 { "" } else { " + " };
            write!(f, "{separator}{} {}", class.name(), self.of(class))?;
        }
        Ok(())
    }
}

/// More was asked for than there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{needed} bytes are needed at least, and {free} of {total} are free")]
pub struct OverBudget {
    /// Bytes needed at least.
    pub needed: u64,
    /// Bytes that nobody has.
    pub free: u64,
    /// Bytes of the whole budget.
    pub total: u64,
}

/// The account; one a process.
#[derive(Debug)]
pub struct MemoryBroker {
    total: u64,
    granted: Mutex<u64>,
}

/// What one engine was granted; it is given back when dropped.
#[derive(Debug)]
pub struct Grant {
    broker: Arc<MemoryBroker>,
    has: MemoryUse,
}

impl MemoryBroker {
    /// An account of so many bytes.
    pub fn new(total: u64) -> Arc<Self> {
        Arc::new(Self { total, granted: Mutex::new(0) })
    }

    /// Bytes that nobody has.
    pub fn free(&self) -> u64 {
        self.total - *self.granted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of the whole account.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Grants what `choose` makes of the free bytes, such as the longest context that fits; nobody else is granted
    /// anything meanwhile.
    pub fn grant<E: From<OverBudget>>(
        self: &Arc<Self>,
        choose: impl FnOnce(u64) -> Result<MemoryUse, E>,
    ) -> Result<Grant, E> {
        let mut granted = self.granted.lock().unwrap_or_else(PoisonError::into_inner);
        let free = self.total - *granted;
        let has = choose(free)?;
        if has.total() > free {
            return Err(OverBudget { needed: has.total(), free, total: self.total }.into());
        }
        *granted += has.total();
        Ok(Grant { broker: Arc::clone(self), has })
    }
}

impl Grant {
    /// What it was granted and has not given back.
    pub fn memory(&self) -> MemoryUse {
        self.has
    }

    /// Gives bytes of a class back, at most all that it has of it: idle pages, or what an estimate was too high by.
    /// Returns how many were given.
    pub fn give_back(&mut self, class: MemoryClass, bytes: u64) -> u64 {
        let given = bytes.min(self.has.of(class));
        self.has = self.has.with(class, self.has.of(class) - given);
        *self.broker.granted.lock().unwrap_or_else(PoisonError::into_inner) -= given;
        given
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        *self.broker.granted.lock().unwrap_or_else(PoisonError::into_inner) -= self.has.total();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: u64) -> impl FnOnce(u64) -> Result<MemoryUse, OverBudget> {
        move |_| Ok(MemoryUse::default().with(MemoryClass::Weights, 10).with(MemoryClass::Pages, bytes))
    }

    #[test]
    fn what_is_granted_is_gone_until_it_is_given_back() {
        let broker = MemoryBroker::new(100);
        let mut first = broker.grant(all(50)).expect("60 of 100 are free");
        assert_eq!(broker.free(), 40);
        let refused = broker.grant(all(31)).expect_err("40 are free");
        assert_eq!(refused, OverBudget { needed: 41, free: 40, total: 100 });
        assert_eq!(first.give_back(MemoryClass::Pages, 20), 20);
        let second = broker.grant(all(31)).expect("60 are free now");
        assert_eq!(first.give_back(MemoryClass::Pages, 1000), 30, "no more than it has");
        drop(second);
        assert_eq!((broker.free(), first.memory().total()), (90, 10));
        drop(first);
        assert_eq!(broker.free(), 100);
    }

    #[test]
    fn the_next_one_chooses_from_what_is_left() {
        let broker = MemoryBroker::new(100);
        let most =
            |free: u64| Ok::<_, OverBudget>(MemoryUse::default().with(MemoryClass::Pages, free.min(70)));
        let first = broker.grant(most).expect("there is room");
        let second = broker.grant(most).expect("there is room");
        assert_eq!((first.memory().total(), second.memory().total()), (70, 30));
    }

    #[test]
    fn classes_are_named_where_they_have_bytes() {
        let memory = MemoryUse::default().with(MemoryClass::Weights, 7).with(MemoryClass::Scratch, 5);
        assert_eq!((memory.to_string().as_str(), memory.total()), ("weights 7 + scratch 5", 12));
    }
}
