//! Members that step aside where something else runs on their processor.
//!
//! A piece of work ends when its last part does. A member that the system puts aside in the middle of a part, because
//! another process wants its processor, keeps all others waiting for a time slice, which is as long as hundreds of
//! pieces. Where that happens all the time, one thread fewer loses less. So each member keeps account of the time that
//! others waited for it while it was put aside, and where it is more than resting costs, it rests for a while; its
//! parts go to the others. Rests double while they end the same way.
//!
//! Late alone is no reason: parts differ in length. That a thread was put aside is what the system counts as an
//! involuntary switch, which is asked for where somebody waited only, since asking is a system call. To rest after each
//! such wait was tried: on a machine that is quiet but for a stray process now and then it lost a third of the speed.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A wait for the last member that is worth asking why.
const LATE: Duration = Duration::from_micros(100);
/// How fast an account forgets: by a factor of e.
const MEMORY: Duration = Duration::from_millis(50);
/// Lost time in an account that is worth a rest: a quarter of the time that it remembers.
const LOST: Duration = Duration::from_micros(12_500);
/// The first rest, and the longest.
const REST_MIN: Duration = Duration::from_millis(20);
const REST_MAX: Duration = Duration::from_millis(640);
/// A member that worked for so many times its last rest undisturbed begins with the first rest again.
const CALM: u32 = 4;

/// What members tell each other about being late.
pub(super) struct Lateness {
    since: Instant,
    /// Nanoseconds after `since` when the first member came back from the present piece; 0 for none yet.
    first_back: AtomicU64,
    /// Members that shall rest in place of the caller, who can't.
    asked_to_rest: AtomicU32,
    /// Members that don't rest, without the caller.
    awake: AtomicU32,
}

impl Lateness {
    /// For a team with so many members beside the caller.
    pub(super) fn new(others: u32) -> Self {
        Self {
            since: Instant::now(),
            first_back: AtomicU64::new(0),
            asked_to_rest: AtomicU32::new(0),
            awake: AtomicU32::new(others),
        }
    }

    /// Whether the caller is alone.
    pub(super) fn all_rest(&self) -> bool {
        self.awake.load(Ordering::Relaxed) == 0
    }

    /// A new piece of work begins.
    pub(super) fn begin(&self) {
        self.first_back.store(0, Ordering::Relaxed);
    }

    /// A thread has done its last part; how long another one has waited for it, if for long.
    fn late(&self) -> Option<Duration> {
        let now = (self.since.elapsed().as_nanos() as u64).max(1);
        let first = self.first_back.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        let waited = first.err().map(|first| Duration::from_nanos(now.saturating_sub(first)));
        waited.filter(|waited| *waited > LATE)
    }

    /// The caller has done its last part; where it is put aside too often, another member makes room. `switches`
    /// counts how often the thread that calls was put aside.
    pub(super) fn caller_is_back(&self, account: &mut Account, switches: impl FnOnce() -> i64) {
        if self.late().is_some_and(|late| account.is_full(late, switches(), Instant::now())) {
            self.asked_to_rest.store(1, Ordering::Relaxed);
        }
    }

    /// A member has done its last part; how long it shall rest, if at all.
    pub(super) fn member_is_back(
        &self,
        (account, rests): (&mut Account, &mut Rests),
        switches: impl FnOnce() -> i64,
    ) -> Option<Duration> {
        let now = Instant::now;
        let is_disturbed = self.late().is_some_and(|late| account.is_full(late, switches(), now()));
        let is_asked = self.asked_to_rest.load(Ordering::Relaxed) > 0
            && self.asked_to_rest.swap(0, Ordering::Relaxed) > 0;
        (is_disturbed || is_asked).then(|| rests.next(now()))
    }

    /// Calls `rest` as a member that isn't counted meanwhile.
    pub(super) fn while_resting(&self, rest: impl FnOnce()) {
        self.awake.fetch_sub(1, Ordering::Relaxed);
        rest();
        self.awake.fetch_add(1, Ordering::Relaxed);
    }
}

/// The time that a thread cost the others lately, because it was put aside.
pub(super) struct Account {
    /// How often that was, when it was last asked for.
    switches: i64,
    lost: Duration,
    /// When it was `lost`.
    at: Instant,
}

impl Account {
    pub(super) fn new(switches: i64) -> Self {
        Self { switches, lost: Duration::ZERO, at: Instant::now() }
    }

    /// Adds a wait where the thread was put aside; whether that is enough for a rest, which empties the account.
    fn is_full(&mut self, late: Duration, switches: i64, now: Instant) -> bool {
        if std::mem::replace(&mut self.switches, switches) == switches {
            return false;
        }
        let age = now.saturating_duration_since(self.at).as_secs_f64() / MEMORY.as_secs_f64();
        let lost = self.lost.mul_f64((-age).exp()) + late;
        let is_full = lost > LOST;
        (self.lost, self.at) = (if is_full { Duration::ZERO } else { lost }, now);
        is_full
    }
}

/// The rests of one member.
pub(super) struct Rests {
    last: Duration,
    /// When the last one ended.
    ended: Instant,
}

impl Rests {
    pub(super) fn new() -> Self {
        Self { last: Duration::ZERO, ended: Instant::now() }
    }

    /// How long the rest is that begins now.
    fn next(&mut self, now: Instant) -> Duration {
        let is_calm = now.saturating_duration_since(self.ended) > CALM * self.last;
        let rest = if is_calm { REST_MIN } else { (2 * self.last).clamp(REST_MIN, REST_MAX) };
        (self.last, self.ended) = (rest, now + rest);
        rest
    }
}

/// How often the system has put the thread that calls aside for another.
#[cfg(target_os = "linux")]
pub(super) fn involuntary_switches() -> i64 {
    // SAFETY: an all-zero `rusage` is valid; the call writes at most its size, of the calling thread.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
        usage.ru_nivcsw as i64
    }
}

/// Zero on systems that don't count it by thread, where nobody rests.
#[cfg(not(target_os = "linux"))]
pub(super) fn involuntary_switches() -> i64 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A team whose first member came back a second ago.
    fn waited_for() -> Lateness {
        let lateness = Lateness::new(2);
        lateness.first_back.store(1, Ordering::Relaxed);
        Lateness { since: Instant::now() - Duration::from_secs(1), ..lateness }
    }

    #[test]
    fn rests_double_while_they_end_the_same_way() {
        let mut rests = Rests::new();
        let mut now = rests.ended;
        for times in [1, 2, 4, 8, 16, 32] {
            let rest = rests.next(now);
            assert_eq!(rest, times * REST_MIN);
            now += rest;
        }
        for _ in 0..5 {
            now += rests.next(now);
        }
        assert_eq!(rests.last, REST_MAX);
        assert_eq!(rests.next(now + (CALM + 1) * REST_MAX), REST_MIN);
    }

    #[test]
    fn an_account_is_full_where_a_quarter_of_the_time_is_lost() {
        let check = |every: Duration, late: Duration, expected: bool| {
            let mut account = Account::new(0);
            let start = account.at;
            let is_full = (1..50).any(|time| account.is_full(late, time, start + every * time as u32));
            assert_eq!(is_full, expected, "{late:?} every {every:?}");
        };
        let ms = Duration::from_millis;
        check(ms(8), ms(3), true);
        check(ms(30), ms(3), false);
        check(ms(1000), ms(12), false);
        check(ms(1000), ms(13), true);
    }

    #[test]
    fn a_member_rests_where_it_was_late_because_it_was_put_aside() {
        let (mut account, mut rests) = (Account::new(7), Rests::new());
        let mut back =
            |team: &Lateness, switches| team.member_is_back((&mut account, &mut rests), || switches);
        assert_eq!(back(&waited_for(), 7), None, "late, and not put aside");
        assert_eq!(back(&waited_for(), 8), Some(REST_MIN), "late and put aside");
        let early = Lateness::new(1);
        early.begin();
        assert_eq!(back(&early, 9), None, "put aside, and nobody waited");
    }

    #[test]
    fn a_caller_that_is_put_aside_sends_one_member_to_rest() {
        let team = waited_for();
        let mut caller = Account::new(0);
        let back = || team.member_is_back((&mut Account::new(7), &mut Rests::new()), || 7);
        team.caller_is_back(&mut caller, || 0);
        assert_eq!(back(), None);
        team.caller_is_back(&mut caller, || 1);
        assert_eq!(back(), Some(REST_MIN));
        assert_eq!(back(), None);
    }

    #[test]
    fn the_caller_is_alone_while_all_others_rest() {
        let team = Lateness::new(1);
        team.while_resting(|| assert!(team.all_rest()));
        assert!(!team.all_rest());
    }
}
