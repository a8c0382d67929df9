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

#[derive(Clone, Copy, Debug)]
struct Slot {
    epoch: u64,
    calls: u64,
    min_d1: i64,
    min_d2: i64,
}

const EMPTY: Slot = Slot { epoch: 0, calls: 0, min_d1: i64::MAX, min_d2: i64::MAX };

/// Sliding minima for each host pair.
#[derive(Debug, Default)]
pub struct Offsets {
    by_hosts: FxHashMap<(u32, u32), [Slot; SLOTS]>,
    forgotten: u64,
    refused: u64,
}

impl Offsets {
    /// Updates the offset between two hosts with a call and splits its gap. `None` while too few calls are
    /// known, when calls contradict each other (a clock was stepped), or past the limit of host pairs. Calls
    /// within one host use one clock, and their legs are exact. `at_ms` is the call's start by the client's
    /// clock, so that recorded spans are treated like live ones. `early` is by how much the client's and the server's span may
    /// be early: see [`early_ns`].
    pub fn split(
        &mut self,
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
        if self.by_hosts.len() >= MAX_HOST_PAIRS && !self.by_hosts.contains_key(&hosts) {
            self.refused += 1;
            return None;
        }
        let slots = self.by_hosts.entry(hosts).or_insert([EMPTY; SLOTS]);
        // Epochs start at 1, so that an unused slot never appears recent.
        let epoch = at_ms / SLOT_MS + 1;
        let slot = &mut slots[epoch as usize % SLOTS];
        if slot.epoch < epoch {
            *slot = Slot { epoch, ..EMPTY };
        }
        // A late call from before the window does not narrow the current interval.
        if slot.epoch == epoch {
            slot.calls += 1;
            slot.min_d1 = slot.min_d1.min(d1.saturating_add(early.1));
            slot.min_d2 = slot.min_d2.min(d2.saturating_add(early.0));
        }
        let (calls, interval) = interval(slots, epoch);
        if calls < MIN_CALLS || interval.high_ns < interval.low_ns {
            return None;
        }
        let least = d1.checked_sub(interval.high_ns)?.checked_sub(early.0)?;
        let most = d1.checked_sub(interval.low_ns)?.checked_add(early.1)?;
        within(gap, least, most)
    }

    /// Removes idle host pairs: after an hour, or when room is short after little more than the window.
    pub fn sweep(&mut self, now_unix_ms: u64, is_crowded: bool) {
        let idle_ms = if is_crowded || self.by_hosts.len() > MAX_HOST_PAIRS / 4 * 3 {
            IDLE_CROWDED_MS
        } else {
            IDLE_MS
        };
        let oldest = now_unix_ms.saturating_sub(idle_ms) / SLOT_MS + 1;
        let before = self.by_hosts.len();
        self.by_hosts.retain(|_, slots| slots.iter().any(|s| s.epoch >= oldest));
        self.forgotten += (before - self.by_hosts.len()) as u64;
    }

    /// Marks the names of known hosts as in use.
    pub fn mark(&self, live: &mut LiveNames) {
        self.by_hosts
            .keys()
            .for_each(|(client, server)| [*client, *server].into_iter().for_each(|n| live.mark(n)));
    }

    /// Current host pairs, their limit, removed pairs, and calls rejected for lack of room.
    pub fn fill(&self) -> [u64; 4] {
        [self.by_hosts.len() as u64, MAX_HOST_PAIRS as u64, self.forgotten, self.refused]
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

fn interval(slots: &[Slot; SLOTS], epoch: u64) -> (u64, Interval) {
    let recent = slots.iter().filter(|s| (s.epoch..s.epoch + SLOTS as u64).contains(&epoch) && s.calls > 0);
    let (calls, d1, d2) = recent.fold((0, i64::MAX, i64::MAX), |(calls, d1, d2), s| {
        (calls + s.calls, d1.min(s.min_d1), d2.min(s.min_d2))
    });
    (calls, Interval { low_ns: d2.saturating_neg(), high_ns: d1 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The true legs are within the bound of the computed ones, for any offset and legs.
        #[test]
        fn the_bound_holds(theta in -5_000_000_000i64..5_000_000_000, legs in prop::collection::vec((0i64..50_000_000, 0i64..50_000_000), 10..200)) {
            let mut offsets = Offsets::default();
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
            let mut offsets = Offsets::default();
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
        let mut offsets = Offsets::default();
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
        let mut offsets = Offsets::default();
        let later = SLOT_MS * SLOTS as u64 * 10;
        (0..20).for_each(|i| _ = offsets.split((1, 2), 1000, 1000, (0, 0), later + i));
        assert_eq!(offsets.split((1, 2), 10, 10, (0, 0), 5), None, "nothing is known of its own time");
        assert_eq!(offsets.split((1, 2), 1000, 1000, (0, 0), later).unwrap().bound_ns, 1000);
    }

    #[test]
    fn one_host_has_one_clock() {
        let mut offsets = Offsets::default();
        assert_eq!(
            offsets.split((3, 3), 5, 7, (0, 0), 0),
            Some(Legs { request_ns: 5, response_ns: 7, bound_ns: 0 })
        );
        assert_eq!(offsets.split((3, 3), -5, 7, (0, 0), 0), None);
    }
}
