//! The thread team: a fixed number of members that run one piece of work together, the caller among them.
//!
//! One team a backend, used in turns: [`Team::turn`] waits until no other plan runs. Work is cut into parts
//! that don't depend on the number of members, and a member takes the next part that is left, first of its own share; so
//! threads decide who computes a part, never what it computes. Shares are runs of equal length, so that a member meets
//! in its own caches what it made of the same rows before.
//!
//! A member that sleeps, or that the system runs something else on, is not waited for: the others take its
//! parts, and it finds the gate closed when it comes. One that is put aside in the middle of a part has to be
//! waited for, and stays away for a while afterwards ([`rest`]).
//!
//! Invariants: a member between two pieces of work spins for [`SPIN`], then sleeps, and where the process has
//! less processor time than members it doesn't spin at all; an idle team uses no processor time. [`Turn`] returns only when nobody is behind the gate, so work may borrow from its
//! caller.
//!
//! Knows no operation.

mod available;
mod gate;
mod rest;
mod split;

use available::quota;
pub(crate) use available::{allowed_cpus, default_threads};
pub(crate) use split::Columns;

use gate::Gate;
use rest::{Account, Lateness, Rests, involuntary_switches};
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a waiting thread spins before it sleeps: several times what waking a sleeper takes.
const SPIN: Duration = Duration::from_micros(60);

/// Work for each member, by its number. The lifetime is that of the call to [`Turn::run`].
type Work<'a> = dyn Fn(usize) + Sync + 'a;

/// What the members share.
struct Shared {
    /// Counts pieces of work; a new number wakes the members.
    start: Gate,
    /// Open while there is a piece of work; who is behind it may use `work`.
    gate: Gate,
    /// The present piece; `None` tells the members to end.
    work: UnsafeCell<Option<&'static Work<'static>>>,
    lateness: Lateness,
    /// How many parts of each member's share of the present piece are taken.
    taken: Box<[Taken]>,
    /// Whether the team ends; a member that rests looks.
    ends: AtomicBool,
    /// What a member panicked with.
    panic: Mutex<Option<Box<dyn std::any::Any + Send>>>,
}

/// A count in a line of its own, because members that count beside each other would wait for the line.
#[derive(Default)]
#[repr(align(128))]
struct Taken(AtomicUsize);

// SAFETY: `work` is written by the holder of the turn alone, while the gate is closed and nobody is behind
// it, and read by members behind the gate alone. Opening it orders the write before the read, and leaving it
// the read before the next write.
unsafe impl Sync for Shared {}

/// A persistent team of threads.
pub(crate) struct Team {
    shared: Arc<Shared>,
    /// Held by who calls; with it goes the account of the caller.
    turn: Mutex<Account>,
    handles: Vec<JoinHandle<()>>,
}

impl Team {
    /// Starts `members - 1` threads; the caller of each piece of work is the first member.
    pub(crate) fn start(members: usize) -> std::io::Result<Self> {
        // Where time is short, a thread that spins uses up what another one needs to get on.
        let spin = if quota().is_some_and(|quota| quota < members as f64) { Duration::ZERO } else { SPIN };
        let shared = Arc::new(Shared {
            start: Gate::new(spin),
            gate: Gate::new(spin),
            work: UnsafeCell::new(None),
            lateness: Lateness::new(members.saturating_sub(1) as u32),
            taken: (0..members).map(|_| Taken::default()).collect(),
            ends: AtomicBool::new(false),
            panic: Mutex::new(None),
        });
        let mut team = Self { shared, turn: Mutex::new(Account::new(0)), handles: Vec::new() };
        for member in 1..members {
            let shared = Arc::clone(&team.shared);
            let thread = std::thread::Builder::new().name(format!("gannet-cpu-{member}"));
            team.handles.push(thread.spawn(move || member_loop(member, &shared))?);
        }
        Ok(team)
    }

    /// Threads that work at once.
    pub(crate) fn members(&self) -> usize {
        self.handles.len() + 1
    }

    /// Waits until nobody else uses the team.
    pub(crate) fn turn(&self) -> Turn<'_> {
        // A panic inside a turn leaves the team as it was: `run` returns or unwinds with all members at rest.
        let guard = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        Turn { team: self, account: guard }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        // SAFETY: `&mut self` means that no turn is held, so the gate is closed, nobody is behind it and
        // nobody else writes.
        unsafe { *self.shared.work.get() = None };
        self.shared.ends.store(true, Ordering::Relaxed);
        self.shared.gate.open();
        self.shared.start.advance();
        for handle in self.handles.drain(..) {
            handle.thread().unpark();
            // A member catches what its work panics with, so joining can't fail.
            let _ = handle.join();
        }
    }
}

/// The right to use the team.
pub(crate) struct Turn<'a> {
    team: &'a Team,
    account: MutexGuard<'a, Account>,
}

impl Turn<'_> {
    pub(crate) fn members(&self) -> usize {
        self.team.members()
    }

    /// Whether no other member would come.
    fn is_alone(&self) -> bool {
        self.members() == 1 || self.team.shared.lateness.all_rest()
    }

    /// Calls `work` on the caller and on each member that comes before the caller is done, and returns when
    /// all are.
    fn run(&mut self, work: &Work<'_>) {
        let shared = &*self.team.shared;
        shared.lateness.begin();
        // SAFETY: the lifetime is extended for members behind the gate, and this function returns, or
        // unwinds, only after it was closed and all came back: no member has the reference then. The turn is
        // held and nobody is behind the gate yet, so nobody else accesses `work`.
        unsafe { *shared.work.get() = Some(std::mem::transmute::<&Work<'_>, &'static Work<'static>>(work)) };
        shared.gate.open();
        shared.start.advance();
        let own = catch_unwind(AssertUnwindSafe(|| work(0)));
        shared.lateness.caller_is_back(&mut self.account, involuntary_switches);
        shared.gate.close();
        let panic = shared.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(payload) = own.err().or(panic) {
            resume_unwind(payload);
        }
    }
}

fn member_loop(member: usize, shared: &Shared) {
    let mut seen = 0;
    let (mut account, mut rests) = (Account::new(involuntary_switches()), Rests::new());
    loop {
        seen = shared.start.wait(|number| number != seen);
        if !shared.gate.enter() {
            continue;
        }
        // SAFETY: this member is behind the gate, so `work` was written before and isn't until it leaves.
        let Some(work) = (unsafe { *shared.work.get() }) else { return };
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| work(member))) {
            *shared.panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(payload);
        }
        let rest = shared.lateness.member_is_back((&mut account, &mut rests), involuntary_switches);
        shared.gate.leave();
        if let Some(rest) = rest {
            shared.lateness.while_resting(|| sleep(rest, &shared.ends));
        }
    }
}

/// Sleeps for so long, or until the team ends.
fn sleep(rest: Duration, ends: &AtomicBool) {
    let until = Instant::now() + rest;
    while !ends.load(Ordering::Relaxed) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::park_timeout(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_is_done_once_by_any_number_of_members() {
        for members in [1, 2, 3, 5] {
            let team = Team::start(members).expect("threads can be started");
            let mut turn = team.turn();
            for parts in [0, 1, 2, 7, 100] {
                let counts: Vec<AtomicUsize> = (0..parts).map(|_| AtomicUsize::new(0)).collect();
                turn.each_member(parts, |_, part| {
                    counts[part].fetch_add(1, Ordering::Relaxed);
                });
                assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1), "{members} {parts}");
            }
        }
    }

    #[test]
    fn a_panic_in_a_part_reaches_the_caller_and_leaves_the_team_usable() {
        let team = Team::start(3).expect("threads can be started");
        let failed = catch_unwind(AssertUnwindSafe(|| {
            team.turn().each_member(10, |_, part| assert!(part != 7, "part 7 fails"));
        }));
        assert!(failed.is_err());
        let done = AtomicUsize::new(0);
        team.turn().each_member(10, |_, _| {
            done.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(done.into_inner(), 10);
    }

    #[test]
    fn several_callers_take_turns() {
        let team = Team::start(2).expect("threads can be started");
        let total = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        team.turn().each_member(5, |_, _| {
                            total.fetch_add(1, Ordering::Relaxed);
                        });
                    }
                });
            }
        });
        assert_eq!(total.into_inner(), 4 * 50 * 5);
    }

    #[test]
    fn rows_and_columns_reach_every_element() {
        let team = Team::start(3).expect("threads can be started");
        let mut turn = team.turn();
        let mut out = vec![0usize; 7 * 10];
        turn.rows(&mut out, 10, 2, &mut [(); 3], |first, rows, ()| {
            for (i, row) in rows.chunks_mut(10).enumerate() {
                row.fill(first + i + 1);
            }
        });
        assert!((0..70).all(|i| out[i] == i / 10 + 1));
        turn.columns(&mut out, 10, 4, &mut [(); 3], |mut columns, ()| {
            for row in 0..7 {
                let first = columns.range().start;
                for (i, x) in columns.row(row).iter_mut().enumerate() {
                    *x += 100 * (first + i);
                }
            }
        });
        assert!((0..70).all(|i| out[i] == i / 10 + 1 + 100 * (i % 10)));
        let mut other = vec![0usize; 7 * 4];
        let both = [Some((&mut out[..], 10)), None, Some((&mut other[..], 4))];
        turn.tiles_of_each(both, (3, 3), |number, mut columns| {
            for row in columns.rows() {
                let first = columns.range().start;
                let numbers = columns.row(row).iter_mut().enumerate();
                numbers.for_each(|(i, x)| *x = 1000 * (number / 2 + 1) + 10 * row + first + i);
            }
        });
        assert!((0..70).all(|i| out[i] == 1000 + i / 10 * 10 + i % 10));
        assert!((0..28).all(|i| other[i] == 2000 + i / 4 * 10 + i % 4));
    }
}
