//! The clock offset of each pair of hosts as an interval, and the split of a gap into legs.
//!
//! Let d1 = server start - client start and d2 = client end - server end, each across two clocks. A request
//! cannot arrive before it was sent nor a response before it left, so the offset theta = server clock -
//! client clock lies in [-min d2, min d1] over any period in which it is constant. Offset and path asymmetry
//! cannot be distinguished: a leg is computed from the interval's midpoint and is accurate to within half its
//! width. Request leg and response leg add up to the gap exactly.
//!
//! OpenTelemetry for JavaScript truncates the start of a span to milliseconds, and adds an exact duration: the whole span is
//! early by up to a millisecond, so d1 and d2 bound theta less closely, and each leg by as much.

use crate::ingest::origins::LiveNames;
use rustc_hash::FxHashMap;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicI64, AtomicU64, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Length of one slot of the sliding window.
const SLOT_MS: u64 = 15_000;
/// The window comprises the current slot and its predecessors: 45 to 60 s.
const SLOTS: usize = 4;
/// With fewer calls in the window, the interval says more about the calls than about the clocks.
const MIN_CALLS: u64 = 10;
/// A host pair is removed after this long without a call, by the clients' clocks.
const IDLE_MS: u64 = 3_600_000;
/// The same limit when room is short: the window, plus an allowance for slow client clocks.
const IDLE_CROWDED_MS: u64 = 120_000;
/// Maximum number of host pairs.
const MAX_HOST_PAIRS: usize = 100_000;

/// Granularity of truncated starts.
const CUT_NS: u64 = 1_000_000;

/// By how much a span may be early as a whole, nanoseconds: its start is in whole milliseconds, its duration is not.
pub fn early_ns(start_ns: u64, duration_ns: u64) -> i64 {
    let is_cut = start_ns.is_multiple_of(CUT_NS) && !duration_ns.is_multiple_of(CUT_NS);
    if is_cut { CUT_NS as i64 - 1 } else { 0 }
}

/// A call's two legs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Legs {
    /// Client start to server start, nanoseconds.
    pub request_ns: u64,
    /// Server end to client end, nanoseconds.
    pub response_ns: u64,
    /// Maximum error of each leg in either direction, nanoseconds.
    pub bound_ns: u64,
}

/// The offset interval of one host pair: `low_ns <= server clock - client clock <= high_ns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Lowest possible offset.
    pub low_ns: i64,
    /// Highest possible offset; below `low_ns` when the clocks moved within the window.
    pub high_ns: i64,
}

/// What calls of one slot's time say, or of the time one window before.
#[derive(Debug, Default)]
struct Slot {
    /// 0 if unused, or while it moves on.
    epoch: AtomicU64,
    /// Calls, counted up to [`MIN_CALLS`].
    calls: AtomicU64,
    min_d1: AtomicI64,
    min_d2: AtomicI64,
}

/// What is known of the clocks of two hosts, shared by all threads.
///
/// Most calls tell nothing new: they read, and cores do not take cache lines from one another. Whatever tells something is
/// written under a lock of the host pair.
#[derive(Debug, Default)]
struct HostPair {
    slots: [Slot; SLOTS],
    writing: Mutex<()>,
}

impl Slot {
    fn tells_nothing_new(&self, epoch: u64, d1: i64, d2: i64) -> bool {
        self.epoch.load(Acquire) == epoch
            && self.calls.load(Relaxed) >= MIN_CALLS
            && self.min_d1.load(Relaxed) <= d1
            && self.min_d2.load(Relaxed) <= d2
    }

    /// Epoch, calls and minima; `None` if the slot is moving on.
    #[inline]
    fn read(&self) -> Option<(u64, u64, i64, i64)> {
        let epoch = self.epoch.load(Acquire);
        let (calls, d1, d2) =
            (self.calls.load(Relaxed), self.min_d1.load(Relaxed), self.min_d2.load(Relaxed));
        // Minima of a later epoch were read only if the epoch is another by now.
        fence(Acquire);
        (self.epoch.load(Relaxed) == epoch).then_some((epoch, calls, d1, d2))
    }
}

impl HostPair {
    #[inline]
    fn learn(&self, epoch: u64, d1: i64, d2: i64) {
        let slot = &self.slots[epoch as usize % SLOTS];
        if !slot.tells_nothing_new(epoch, d1, d2) {
            self.write(slot, epoch, d1, d2);
        }
    }

    #[cold]
    fn write(&self, slot: &Slot, epoch: u64, d1: i64, d2: i64) {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let present = slot.epoch.load(Relaxed);
        if present < epoch {
            slot.epoch.store(0, Relaxed);
            fence(Release);
            slot.calls.store(1, Relaxed);
            slot.min_d1.store(d1, Relaxed);
            slot.min_d2.store(d2, Relaxed);
            slot.epoch.store(epoch, Release);
        } else if present == epoch {
            slot.min_d1.fetch_min(d1, Relaxed);
            slot.min_d2.fetch_min(d2, Relaxed);
            slot.calls.store((slot.calls.load(Relaxed) + 1).min(MIN_CALLS), Relaxed);
        }
        // A late call from before the window does not narrow the current interval.
    }

    /// Calls, counted up to a limit per slot, and the interval.
    #[inline]
    fn interval(&self, epoch: u64) -> (u64, Interval) {
        let is_recent = |of: u64| (of..of + SLOTS as u64).contains(&epoch);
        let recent =
            self.slots.iter().filter_map(Slot::read).filter(|(of, calls, ..)| is_recent(*of) && *calls > 0);
        let (calls, d1, d2) = recent
            .fold((0, i64::MAX, i64::MAX), |(all, d1, d2), (_, calls, min_d1, min_d2)| {
                (all + calls, d1.min(min_d1), d2.min(min_d2))
            });
        (calls, Interval { low_ns: d2.saturating_neg(), high_ns: d1 })
    }

    /// Updates the offset with a call and splits its gap; see [`KnownClocks::split`].
    #[inline]
    fn split(&self, gap: i64, d1: i64, d2: i64, early: (i64, i64), at_ms: u64) -> Option<Legs> {
        // Epochs start at 1, so that an unused slot never appears recent.
        let epoch = at_ms / SLOT_MS + 1;
        self.learn(epoch, d1.saturating_add(early.1), d2.saturating_add(early.0));
        let (calls, interval) = self.interval(epoch);
        if calls < MIN_CALLS || interval.high_ns < interval.low_ns {
            return None;
        }
        let least = d1.checked_sub(interval.high_ns)?.checked_sub(early.0)?;
        let most = d1.checked_sub(interval.low_ns)?.checked_add(early.1)?;
        within(gap, least, most)
    }
}

/// Sliding minima for each host pair, client before server.
#[derive(Debug, Default)]
pub struct Clocks(Mutex<AllHostPairs>);

#[derive(Debug, Default)]
struct AllHostPairs {
    by_hosts: FxHashMap<(u32, u32), Arc<HostPair>>,
    forgotten: u64,
    refused: u64,
}

/// The host pairs that a lane has met, so that it asks for each only once.
#[derive(Debug, Default)]
pub struct KnownClocks(FxHashMap<(u32, u32), Arc<HostPair>>);

impl KnownClocks {
    /// Updates the offset between two hosts with a call and splits its gap. `None` while too few calls are
    /// known, when calls contradict each other (a clock was stepped), or past the limit of host pairs. Calls
    /// within one host use one clock, and their legs are exact. `at_ms` is the call's start by the client's
    /// clock, so that recorded spans are treated like live ones. `early` is by how much the client's and the server's span may
    /// be early: see [`early_ns`].
    #[inline]
    pub fn split(
        &mut self,
        all: &Clocks,
        hosts: (u32, u32),
        d1: i64,
        d2: i64,
        early: (i64, i64),
        at_ms: u64,
    ) -> Option<Legs> {
        let gap = d1.checked_add(d2).filter(|gap| *gap >= 0)?;
        if hosts.0 == hosts.1 {
            return within(gap, d1.checked_sub(early.0)?, d1.checked_add(early.1)?);
        }
        match self.0.get(&hosts) {
            Some(pair) => pair.split(gap, d1, d2, early, at_ms),
            None => self.0.entry(hosts).insert_entry(all.of(hosts)?).get().split(gap, d1, d2, early, at_ms),
        }
    }

    /// Asks again for each host pair: some were forgotten.
    pub fn forget(&mut self) {
        self.0.clear();
    }
}

impl Clocks {
    fn all(&self) -> MutexGuard<'_, AllHostPairs> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The host pair; `None` past the limit.
    #[cold]
    fn of(&self, hosts: (u32, u32)) -> Option<Arc<HostPair>> {
        let mut all = self.all();
        if all.by_hosts.len() >= MAX_HOST_PAIRS && !all.by_hosts.contains_key(&hosts) {
            all.refused += 1;
            return None;
        }
        Some(all.by_hosts.entry(hosts).or_default().clone())
    }

    /// Removes idle host pairs: after an hour, or when room is short after little more than the window. True if any was
    /// removed: every lane must [forget](KnownClocks::forget) it before its next call.
    #[must_use]
    pub fn sweep(&self, now_unix_ms: u64, is_crowded: bool) -> bool {
        let mut all = self.all();
        let idle_ms =
            if is_crowded || all.by_hosts.len() > MAX_HOST_PAIRS / 4 * 3 { IDLE_CROWDED_MS } else { IDLE_MS };
        let oldest = now_unix_ms.saturating_sub(idle_ms) / SLOT_MS + 1;
        let before = all.by_hosts.len();
        all.by_hosts.retain(|_, pair| pair.slots.iter().any(|slot| slot.epoch.load(Relaxed) >= oldest));
        let forgotten = (before - all.by_hosts.len()) as u64;
        all.forgotten += forgotten;
        forgotten > 0
    }

    /// Marks the names of known hosts as in use.
    pub fn mark(&self, live: &mut LiveNames) {
        let all = self.all();
        all.by_hosts
            .keys()
            .for_each(|(client, server)| [*client, *server].into_iter().for_each(|n| live.mark(n)));
    }

    /// Current host pairs, their limit, removed pairs, and calls rejected for lack of room.
    pub fn fill(&self) -> [u64; 4] {
        let all = self.all();
        [all.by_hosts.len() as u64, MAX_HOST_PAIRS as u64, all.forgotten, all.refused]
    }
}

/// The legs of a gap whose request took at least and at most so long: neither leg is negative.
fn within(gap: i64, least: i64, most: i64) -> Option<Legs> {
    let (least, most) = (least.max(0), most.min(gap));
    let width = most.checked_sub(least).filter(|width| *width >= 0)?;
    let request_ns = least + (width - width / 2);
    Some(Legs {
        request_ns: request_ns as u64,
        response_ns: (gap - request_ns) as u64,
        bound_ns: (width - width / 2) as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The clocks as one lane sees them.
    #[derive(Default)]
    struct One(Clocks, KnownClocks);

    impl One {
        fn split(
            &mut self,
            hosts: (u32, u32),
            d1: i64,
            d2: i64,
            early: (i64, i64),
            at_ms: u64,
        ) -> Option<Legs> {
            self.1.split(&self.0, hosts, d1, d2, early, at_ms)
        }
    }

    proptest! {
        /// The true legs are within the bound of the computed ones, for any offset and legs.
        #[test]
        fn the_bound_holds(theta in -5_000_000_000i64..5_000_000_000, legs in prop::collection::vec((0i64..50_000_000, 0i64..50_000_000), 10..200)) {
            let mut offsets = One::default();
            for (i, (request, response)) in legs.iter().enumerate() {
                let got = offsets.split((1, 2), request + theta, response - theta, (0, 0), 1000 + i as u64);
                prop_assert_eq!(got.is_some(), i + 1 >= MIN_CALLS as usize);
                if let Some(got) = got {
                    prop_assert_eq!(got.request_ns + got.response_ns, (request + response) as u64);
                    prop_assert!(got.request_ns.abs_diff(*request as u64) <= got.bound_ns);
                    prop_assert!(got.response_ns.abs_diff(*response as u64) <= got.bound_ns);
                }
            }
        }
    }

    proptest! {
        /// The same where the starts of spans are truncated, at either end.
        #[test]
        fn the_bound_holds_with_truncated_starts(
            theta in -5_000_000_000i64..5_000_000_000,
            is_cut in any::<[bool; 2]>(),
            is_one_host in any::<bool>(),
            calls in prop::collection::vec((0..900_000_000u64, 0i64..3_000_000, 0i64..3_000_000, 1..2_000_000u64), 10..200),
        ) {
            let mut offsets = One::default();
            let theta = if is_one_host { 0 } else { theta };
            for (i, (start, request, response, served)) in calls.iter().enumerate() {
                let client = 6_000_000_000_000 + start;
                let server = (client as i64 + request + theta) as u64;
                let took = served + (request + response) as u64;
                let cut = |at: u64, is_cut: bool| if is_cut { at - at % CUT_NS } else { at };
                let seen = [cut(client, is_cut[0]), cut(server, is_cut[1])];
                let early = (early_ns(seen[0], took), early_ns(seen[1], *served));
                // A duration in whole milliseconds is no sign of this: the chance is one in a million.
                prop_assume!(!took.is_multiple_of(CUT_NS) && !served.is_multiple_of(CUT_NS));
                let d1 = seen[1] as i64 - seen[0] as i64;
                let d2 = (seen[0] + took) as i64 - (seen[1] + served) as i64;
                let hosts = if is_one_host { (1, 1) } else { (1, 2) };
                if let Some(got) = offsets.split(hosts, d1, d2, early, 1000 + i as u64) {
                    prop_assert_eq!(got.request_ns + got.response_ns, (request + response) as u64);
                    prop_assert!(got.request_ns.abs_diff(*request as u64) <= got.bound_ns);
                } else {
                    prop_assert!(!is_one_host && i + 1 < MIN_CALLS as usize, "known calls do not contradict each other");
                }
            }
        }
    }

    #[test]
    fn a_stepped_clock_is_unknown_until_the_window_has_passed() {
        let mut offsets = One::default();
        let mut call = |theta: i64, now| offsets.split((1, 2), 1000 + theta, 1000 - theta, (0, 0), now);
        (0..20).for_each(|i| _ = call(0, i));
        assert_eq!(call(0, 20).unwrap().bound_ns, 1000);
        assert_eq!(call(1_000_000, 30), None);
        let later = SLOT_MS * SLOTS as u64 * 2;
        (0..20).for_each(|i| _ = call(1_000_000, later + i));
        assert_eq!(
            call(1_000_000, later + 21),
            Some(Legs { request_ns: 1000, response_ns: 1000, bound_ns: 1000 })
        );
    }

    #[test]
    fn a_late_call_changes_nothing() {
        let mut offsets = One::default();
        let later = SLOT_MS * SLOTS as u64 * 10;
        (0..20).for_each(|i| _ = offsets.split((1, 2), 1000, 1000, (0, 0), later + i));
        assert_eq!(offsets.split((1, 2), 10, 10, (0, 0), 5), None, "nothing is known of its own time");
        assert_eq!(offsets.split((1, 2), 1000, 1000, (0, 0), later).unwrap().bound_ns, 1000);
    }

    #[test]
    fn one_host_has_one_clock() {
        let mut offsets = One::default();
        assert_eq!(
            offsets.split((3, 3), 5, 7, (0, 0), 0),
            Some(Legs { request_ns: 5, response_ns: 7, bound_ns: 0 })
        );
        assert_eq!(offsets.split((3, 3), -5, 7, (0, 0), 0), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20))]
        /// Threads that tell and ask at once: each bound holds, and in the end all know what one thread would.
        #[test]
        fn threads_share_what_they_know(
            theta in -5_000_000i64..5_000_000,
            legs in prop::collection::vec((0i64..50_000_000, 0i64..50_000_000), 200..800),
            step_ms in prop::sample::select(vec![50, 200]),
        ) {
            let clocks = Clocks::default();
            let at_ms = |call: usize| 1_000_000 + call as u64 * step_ms;
            std::thread::scope(|scope| {
                for thread in 0..3 {
                    let (clocks, legs) = (&clocks, &legs);
                    scope.spawn(move || {
                        let mut known = KnownClocks::default();
                        for (call, (request, response)) in legs.iter().enumerate().skip(thread).step_by(3) {
                            let (d1, d2) = (request + theta, response - theta);
                            if let Some(got) = known.split(clocks, (1, 2), d1, d2, (0, 0), at_ms(call)) {
                                assert_eq!(got.request_ns + got.response_ns, (request + response) as u64);
                                assert!(got.request_ns.abs_diff(*request as u64) <= got.bound_ns);
                            }
                        }
                    });
                }
            });
            let mut one = One::default();
            for (call, (request, response)) in legs.iter().enumerate() {
                let _ = one.split((1, 2), request + theta, response - theta, (0, 0), at_ms(call));
            }
            // A thread that lags by a whole window may find its slot taken: its calls tell nothing any more.
            let epoch = at_ms(legs.len() - 1) / SLOT_MS + 1;
            let interval = |clocks: &Clocks| clocks.of((1, 2)).expect("a host pair").interval(epoch).1;
            let (found, wanted) = (interval(&clocks), interval(&one.0));
            prop_assert!(found.low_ns <= theta && theta <= found.high_ns);
            prop_assert!(wanted.low_ns <= theta && theta <= wanted.high_ns);
            if legs.len() as u64 * step_ms < SLOT_MS * (SLOTS as u64 - 1) {
                prop_assert_eq!(found, wanted);
            }
        }
    }

    #[test]
    fn a_forgotten_host_pair_is_asked_for_again() {
        let mut one = One::default();
        (0..20).for_each(|i| _ = one.split((1, 2), 1000, 1000, (0, 0), i));
        assert!(!one.0.sweep(IDLE_MS, false));
        assert!(one.0.sweep(2 * IDLE_MS, false));
        one.1.forget();
        assert_eq!((one.split((1, 2), 1000, 1000, (0, 0), 2 * IDLE_MS), one.0.fill()[0]), (None, 1));
    }
}
