//! One account of the process's memory, by class, from which every engine of the process asks.
//!
//! An engine states what it needs at least and what it wishes. It gets its wish where that is free, else as much above
//! its least as there is, or is refused with the numbers. What it gives back, and all of it when its grant is dropped, is
//! free for the next. Where a wish is more than what is free, engines that run are asked for their idle pages first; they may
//! take memory again when they need it and it is free.
//!
//! Invariants: grants never add up to more than the total; nobody waits for an engine with a lock held.
//!
//! Allocates nothing itself.

use crate::LoadError;
use crate::machine::available_bytes;
use gannet_engine::{Lender, RunnerBytes};
use gannet_ops::{PlanBytes, StateBytes};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

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

    /// With the bytes of a state.
    #[must_use]
    pub fn with_state(self, bytes: &StateBytes) -> Self {
        let StateBytes { pages, slots, candidates, snapshots } = *bytes;
        self.with(MemoryClass::Pages, pages)
            .with(MemoryClass::Slots, slots)
            .with(MemoryClass::Candidates, candidates)
            .with(MemoryClass::Snapshots, snapshots)
    }

    /// What lies in memory of a model: its weights, and what its runner says of itself.
    pub fn of_runner(weights: u64, runner: &RunnerBytes) -> Self {
        let RunnerBytes { plan: PlanBytes { scratch, graphs }, state } = runner;
        Self::default()
            .with(MemoryClass::Weights, weights)
            .with_state(state)
            .with(MemoryClass::Scratch, *scratch)
            .with(MemoryClass::Graphs, *graphs)
    }

    /// With what a process has taken beyond all classes as the margin.
    #[must_use]
    pub fn with_rest_of(self, process_bytes: u64) -> Self {
        self.with(MemoryClass::Margin, process_bytes.saturating_sub(self.total()))
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
    lenders: Mutex<Vec<Borrower>>,
}

/// An engine that has memory and gives back what lies idle.
#[derive(Clone, Debug)]
struct Borrower {
    grant: Weak<Mutex<Grant>>,
    lender: Lender,
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
        Arc::new(Self { total, granted: Mutex::default(), lenders: Mutex::default() })
    }

    /// The account of this process: of so many bytes, or of what the system has left where nothing was asked for.
    ///
    /// # Errors
    /// More was asked for than the system has.
    pub fn of_process(asked: Option<u64>) -> Result<Arc<Self>, LoadError> {
        let available = available_bytes();
        match asked {
            Some(asked) if asked > available => Err(LoadError::BudgetTooLarge { asked, available }),
            Some(asked) => Ok(Self::new(asked)),
            None => Ok(Self::new(available)),
        }
    }

    /// Bytes that nobody has.
    pub fn free(&self) -> u64 {
        self.total - *lock(&self.granted)
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
        let mut granted = lock(&self.granted);
        let free = self.total - *granted;
        let has = choose(free)?;
        if has.total() > free {
            return Err(OverBudget { needed: has.total(), free, total: self.total }.into());
        }
        *granted += has.total();
        Ok(Grant { broker: Arc::clone(self), has })
    }

    /// Asks the engines that run for idle pages until so many bytes are free, or none of them has any more. Waits for their
    /// steps.
    pub fn make_room(&self, bytes: u64) {
        let lenders = lock(&self.lenders).clone();
        for Borrower { grant, lender } in lenders {
            let lacking = bytes.saturating_sub(self.free());
            if lacking == 0 {
                return;
            }
            let given = lender.give_back(lacking);
            // An engine that has ended meanwhile has given back everything.
            grant.upgrade().into_iter().for_each(|grant| {
                lock(&grant).give_back(MemoryClass::Pages, given);
            });
        }
    }
}

impl Grant {
    /// What it was granted and has not given back.
    pub fn memory(&self) -> MemoryUse {
        self.has
    }

    /// Lets the process have what the engine with this grant doesn't use.
    pub(crate) fn lend(grant: &Arc<Mutex<Grant>>, lender: Lender) {
        let broker = Arc::clone(&lock(grant).broker);
        let mut lenders = lock(&broker.lenders);
        lenders.retain(|other| other.grant.strong_count() > 0);
        lenders.push(Borrower { grant: Arc::downgrade(grant), lender });
    }

    /// Takes bytes of a class again, where so many are free.
    pub fn take(&mut self, class: MemoryClass, bytes: u64) -> bool {
        let mut granted = lock(&self.broker.granted);
        let is_free = bytes <= self.broker.total - *granted;
        if is_free {
            *granted += bytes;
            self.has = self.has.with(class, self.has.of(class) + bytes);
        }
        is_free
    }

    /// Gives bytes of a class back, at most all that it has of it: idle pages, or what an estimate was too high by.
    /// Returns how many were given.
    pub fn give_back(&mut self, class: MemoryClass, bytes: u64) -> u64 {
        let given = bytes.min(self.has.of(class));
        self.has = self.has.with(class, self.has.of(class) - given);
        *lock(&self.broker.granted) -= given;
        given
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        *lock(&self.broker.granted) -= self.has.total();
    }
}

/// Numbers and lists that are whole at any moment, whoever panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
        assert!(!first.take(MemoryClass::Pages, 91) && first.take(MemoryClass::Pages, 80));
        assert_eq!((broker.free(), first.memory().total()), (10, 90));
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
