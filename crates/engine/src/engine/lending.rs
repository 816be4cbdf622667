//! Memory of idle pages, which goes back to the process while others need it and is asked for again.

use super::Engine;
use crossbeam_channel::{Receiver, Sender, bounded, never, unbounded};

/// What the engine is asked for.
#[derive(Debug)]
pub(crate) struct Asked {
    bytes: u64,
    answer: Sender<u64>,
}

/// Asks an engine for memory, from another thread.
#[derive(Clone, Debug)]
pub struct Lender(Sender<Asked>);

impl Lender {
    /// Has the engine give back the memory of pages that nobody runs on, at least so many bytes where it has them beyond
    /// what one sequence of the whole context needs. Returns the bytes that were given, 0 where the engine has ended. Waits
    /// for the step in progress.
    pub fn give_back(&self, bytes: u64) -> u64 {
        let (answer, given) = bounded(1);
        match self.0.send(Asked { bytes, answer }) {
            // An engine that ends in between drops the question.
            Ok(()) => given.recv().unwrap_or(0),
            Err(_) => 0,
        }
    }
}

/// An engine's side of it.
pub(super) struct Lending {
    pub(super) asked: Receiver<Asked>,
    /// Whether so many bytes may be taken again.
    ask: Box<dyn FnMut(u64) -> bool + Send>,
}

impl Default for Lending {
    fn default() -> Self {
        Self { asked: never(), ask: Box::new(|_| false) }
    }
}

impl Engine {
    /// Lets others have the memory of pages that nobody runs on. `ask` says whether so many bytes of what was given may be
    /// taken again.
    pub fn lend(&mut self, ask: impl FnMut(u64) -> bool + Send + 'static) -> Lender {
        let (sender, asked) = unbounded();
        self.lending = Lending { asked, ask: Box::new(ask) };
        Lender(sender)
    }

    /// Gives back what others asked for since the last turn.
    pub(super) fn answer_askers(&mut self) {
        while let Ok(asked) = self.lending.asked.try_recv() {
            self.give_back(asked);
        }
    }

    pub(super) fn give_back(&mut self, Asked { bytes, answer }: Asked) {
        let sizes = (&*self.runner.layout, self.runner.context);
        let given = self.state.lend(bytes, sizes, self.runner.state.as_mut());
        let given = given.unwrap_or_else(|error| {
            self.fail_all(&error);
            0
        });
        self.publish_stats();
        // Who asked may have gone; the pages are given all the same.
        let _ = answer.send(given);
    }

    /// Nobody can ask any more.
    pub(super) fn nobody_asks(&mut self) {
        self.lending.asked = never();
    }

    /// Takes memory for some pages that were given back, where there is any.
    pub(super) fn take_lent(&mut self) -> bool {
        self.state.take_lent(&self.runner.layout, &mut self.lending.ask)
    }
}
