//! Which calls are slow, and the stretch of time to ask hosts for.

use crate::report::Measure;
use crate::samples::Sample;
use std::collections::BTreeMap;
use std::ops::Range;

/// A slice begins so long before the first slow call, and ends so long after the last one, nanoseconds.
const BEFORE_NS: i64 = 2_000_000_000;
const AFTER_NS: i64 = 1_000_000_000;
/// Maximum length of a slice, nanoseconds: the last slow calls count most.
const LONGEST_NS: i64 = 30_000_000_000;
/// Margin at either end of a stretch in which every call has its spans, nanoseconds: a call beside them would have none.
const AROUND_NS: i64 = 50_000_000;
/// Such a stretch has at least so many calls of a connection, and this length, nanoseconds.
const LEAST_KEPT: u64 = 100;
const LEAST_KEPT_NS: u64 = 1_500_000_000;
/// Slow calls, other calls, and calls of a connection in a stretch that is known by spans.
const LEAST_OF_EACH: u64 = 20;

/// Which calls are slow.
#[derive(Clone, Copy, Debug)]
pub(super) struct By {
    pub measure: Measure,
    /// Those that took longer than this are, if that is known, nanoseconds.
    pub over_ns: Option<u64>,
}

/// How many of them, from the first on, took well more than the median, or more than what is known to be slow: where most calls
/// are, those beyond twice their median are the outliers among them, and may be from before.
pub(super) fn slow(samples: &[Sample], by: By) -> usize {
    let median = samples.get(samples.len() / 2).map_or(0, |sample| sample.took_ns(by.measure));
    let level = by.over_ns.unwrap_or(u64::MAX).min(2 * median);
    let slow = samples.iter().take_while(|sample| sample.took_ns(by.measure) > level).count();
    // When all calls are slow, the largest half of them is.
    if slow == 0 || slow == samples.len() { samples.len().div_ceil(2) } else { slow }
}

/// The stretch to ask for on either side, by the clock of its host: around the slow calls that are still in the rings of both, which
/// reach back to `reach`; where none is, around the calls that are.
pub(super) fn windows(
    samples: &[Sample],
    opened_ms: u64,
    by: By,
    reach: [Option<i64>; 2],
) -> [(i64, i64); 2] {
    let is_held = |sample: &&Sample| {
        let begins = |side: usize| i64::try_from(sample.sides[side].start_unix_ns).unwrap_or(i64::MAX);
        [0, 1].into_iter().all(|side| reach[side].is_none_or(|from| begins(side) >= from))
    };
    let slow = &samples[..slow(samples, by)];
    let mut chosen: Vec<&Sample> = slow.iter().filter(is_held).collect();
    if chosen.is_empty() {
        chosen = samples.iter().filter(is_held).collect();
    }
    if chosen.is_empty() {
        chosen = slow.iter().collect();
    }
    [0, 1].map(|side| {
        let sides = || chosen.iter().map(|sample| &sample.sides[side]);
        let first = sides().map(|half| half.start_unix_ns as i64).min();
        let last = sides().map(|half| half.end_unix_ns as i64).max();
        let (Some(first), Some(last)) = (first, last) else {
            let now = (opened_ms * 1_000_000) as i64;
            return (now.saturating_sub(LONGEST_NS), now);
        };
        let to = last.saturating_add(AFTER_NS);
        ((first.saturating_sub(BEFORE_NS)).max(to.saturating_sub(LONGEST_NS)), to)
    })
}

/// The part of a stretch in which the spans of all calls are there, if some connection has several calls under way at a time. Why
/// they wait for each other shows in neighbours, and a call without spans beside them would be taken for a quick one.
pub(super) fn shared(samples: &[Sample], kept: Range<u64>) -> Option<Range<u64>> {
    let mut by_connection = BTreeMap::<Option<u64>, (u64, u64, u64)>::new();
    for sample in samples {
        let began = sample.sides[0].start_unix_ns;
        if (kept.start..=kept.end).contains(&began) {
            let (calls, ns, last) = by_connection.entry(sample.client_port()).or_default();
            *calls += 1;
            *ns += sample.took_ns(Measure::ClientDuration);
            *last = began.max(*last);
        }
    }
    let length_ns = kept.end - kept.start;
    let several = |(calls, ns, _): &&(u64, u64, u64)| *calls >= LEAST_KEPT && *ns >= 2 * length_ns;
    // Each client sends its spans at a time of its own: of the last seconds, those of some are missing.
    let end = by_connection.values().filter(several).map(|(_, _, last)| *last).min()?;
    (end - kept.start >= LEAST_KEPT_NS).then_some(kept.start..end)
}

/// The part of a stretch in which the spans of all calls are there, if the calls are slow by what their client waited and not by
/// their gap, so that the server took the time: spans alone tell what a server did. A slow call without them counts as unexplained.
/// `None` where the stretch has too few slow or too few other calls.
pub(super) fn known_by_spans(samples: &[Sample], kept: Range<u64>, by: By) -> Option<Range<u64>> {
    if by.measure != Measure::ClientDuration {
        return None;
    }
    // Whoever asks for a case goes by what the client waited, whoever took the time.
    let slow_calls = &samples[..slow(samples, by)];
    let total = |ns: fn(&Sample) -> u64| slow_calls.iter().map(|call| u128::from(ns(call))).sum::<u128>();
    if 2 * total(|call| call.gap_ns) > total(|call| call.took_ns(Measure::ClientDuration)) {
        return None;
    }
    // Each client sends its spans at a time of its own.
    let mut of_connection = BTreeMap::<Option<u64>, (u64, u64)>::new();
    for sample in samples {
        let began = sample.sides[0].start_unix_ns;
        if (kept.start..=kept.end).contains(&began) {
            let (calls, last) = of_connection.entry(sample.client_port()).or_default();
            (*calls, *last) = (*calls + 1, began.max(*last));
        }
    }
    let end =
        of_connection.values().filter(|(calls, _)| *calls >= LEAST_OF_EACH).map(|(_, last)| *last).min()?;
    let in_it = |sample: &&Sample| (kept.start..=end).contains(&sample.sides[0].start_unix_ns);
    let others = &samples[slow_calls.len()..];
    let is_enough =
        [slow_calls, others].iter().all(|some| some.iter().filter(in_it).count() as u64 >= LEAST_OF_EACH);
    (is_enough && end >= kept.start + LEAST_KEPT_NS).then_some(kept.start..end)
}

/// The stretch in which these calls began, by the clock of either host.
pub(super) fn windows_of(samples: &[Sample], kept: &Range<u64>) -> [(i64, i64); 2] {
    [0, 1].map(|side| {
        let of_kept =
            samples.iter().filter(|sample| (kept.start..=kept.end).contains(&sample.sides[0].start_unix_ns));
        let sides = of_kept.map(|sample| &sample.sides[side]);
        let first = sides.clone().map(|half| half.start_unix_ns as i64).min().unwrap_or(0);
        let last = sides.map(|half| half.end_unix_ns as i64).max().unwrap_or(0);
        ((first - AROUND_NS).max(last - LONGEST_NS), last + AROUND_NS)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pursuit::sample_calls::{call, call_port};

    const MS: u64 = 1_000_000;
    const GAP: By = By { measure: Measure::Gap, over_ns: None };

    #[test]
    fn calls_that_share_a_connection_are_asked_for_where_all_have_their_spans() {
        // Eight at a time on one connection, each for 64 ms; another client calls now and then, and sends its spans later.
        let busy = |until_ms: u64| (0..until_ms / 8).map(|n| call(1, 8 * n, 8 * n + 64));
        let rare = (0..40).map(|n| call(2, 50 * n, 50 * n + 10));
        let samples: Vec<Sample> = busy(4_000).chain(rare.clone()).collect();
        let kept = shared(&samples, 500 * MS..3_992 * MS).expect("they wait for each other");
        assert_eq!(kept, 500 * MS..3_992 * MS);
        let windows = windows_of(&samples, &kept);
        assert_eq!(windows[0], windows[1]);
        assert_eq!(windows[0], ((500 - 50) * MS as i64, (3_992 + 64 + 50) * MS as i64));
        // The spans of a second busy connection have come up to an earlier moment.
        let second = busy(3_000).map(|mut call| {
            call.sides.iter_mut().for_each(|half| {
                if let Some((_, span)) = &mut half.whole {
                    span.attributes[0].value = call_port(3);
                }
            });
            call
        });
        let both: Vec<Sample> = samples.iter().cloned().chain(second).collect();
        assert_eq!(shared(&both, 500 * MS..3_992 * MS), Some(500 * MS..2_992 * MS));
        // One at a time, or for too short a time, nobody waits for anybody.
        let alone: Vec<Sample> = (0..400).map(|n| call(1, 10 * n, 10 * n + 9)).collect();
        assert_eq!(shared(&alone, 0..3_990 * MS), None);
        assert_eq!(shared(&samples, 3_000 * MS..3_992 * MS), None);
        assert_eq!(shared(&rare.collect::<Vec<_>>(), 0..2_000 * MS), None);
    }

    /// A third of the calls takes the server 60 ms. All spans are there from the second second on, those of another client up to the
    /// fourth.
    #[test]
    fn where_the_server_takes_the_time_every_call_has_its_spans() {
        let long = call(1, 0, 30).sides[0].end_unix_ns;
        let both = [(1, 6_000), (2, 4_000)].into_iter().flat_map(|(port, until_ms)| {
            (0..until_ms / 20).map(move |n| call(port, 20 * n, 20 * n + if n % 3 == 0 { 60 } else { 2 }))
        });
        // The server's span is as long as the client's.
        let mut samples: Vec<Sample> = both.map(|call| Sample { gap_ns: 0, ..call }).collect();
        samples.sort_by_key(|sample| std::cmp::Reverse(sample.took_ns(Measure::ClientDuration)));
        let by = By { measure: Measure::ClientDuration, over_ns: Some(long) };
        let kept = 2_000 * MS..5_980 * MS;
        assert_eq!(known_by_spans(&samples, kept.clone(), by), Some(2_000 * MS..3_980 * MS));
        // Packets tell where else time goes; one second is too short; and there must be both kinds of calls.
        assert_eq!(known_by_spans(&samples, kept.clone(), By { measure: Measure::Gap, ..by }), None);
        assert_eq!(known_by_spans(&samples, 3_000 * MS..5_980 * MS, by), None);
        // As long for the client, and most of it is outside of the server's span: its client was stopped, or its event loop was busy.
        let outside: Vec<Sample> = samples
            .iter()
            .map(|one| Sample { gap_ns: 3 * one.took_ns(Measure::ClientDuration) / 4, ..one.clone() })
            .collect();
        assert_eq!(known_by_spans(&outside, kept.clone(), by), None);
        let slow = samples.partition_point(|sample| sample.took_ns(Measure::ClientDuration) > long);
        assert_eq!(known_by_spans(&samples[..slow + 10], kept, by), None);
    }

    #[test]
    fn where_most_calls_are_slow_the_outliers_from_before_are_not_all_of_them() {
        // Two pauses of the machine; then every call takes up to 40 ms, and not 1 ms as before.
        let pauses = [10_000, 10_500].map(|at_ms| call(1, at_ms, at_ms + 100));
        let usual = (0..100).map(|n| call(1, 10_000 + 25 * n, 10_001 + 25 * n));
        let fault = (0..200).map(|n| call(1, 20_000 + 25 * n, 20_005 + 25 * n + n % 36));
        let mut samples: Vec<Sample> = pauses.into_iter().chain(usual).chain(fault).collect();
        samples.sort_by_key(|sample| std::cmp::Reverse(sample.gap_ns));
        let asked = |over_ns: Option<u64>| {
            let by = By { over_ns, ..GAP };
            let [(_, to), _] = windows(&samples, 30_000, by, [None, None]);
            (slow(&samples, by), to / MS as i64)
        };
        assert_eq!(asked(Some(4 * MS)).0, 202);
        assert!(
            asked(Some(4 * MS)).1 > 24_900,
            "the fault is in what is asked for: {:?}",
            asked(Some(4 * MS))
        );
        // Whatever is said to be slow, twice the median is; and where all calls are, the largest half of them.
        assert_eq!(asked(Some(u64::MAX)), asked(None));
        assert_eq!(asked(Some(0)).0, samples.len().div_ceil(2));
    }

    #[test]
    fn slow_calls_that_no_ring_holds_any_more_are_not_asked_for() {
        let slow = [10_000, 11_000, 40_000].map(|at_ms| call(1, at_ms, at_ms + 500));
        let quick = (0..400).map(|n| call(1, 100 * n, 100 * n + 1));
        let samples: Vec<Sample> = slow.into_iter().chain(quick).collect();
        let asked = |reach: [Option<i64>; 2]| {
            windows(&samples, 60_000, GAP, reach).map(|(from, to)| (from / MS as i64, to / MS as i64))
        };
        let ms = |at_ms: i64| Some(at_ms * MS as i64);
        assert_eq!(asked([None, None]), [(11_500, 41_500); 2], "as long as a slice may be");
        assert_eq!(asked([ms(10_500), None]), [(11_500, 41_500); 2]);
        assert_eq!(asked([ms(10_500), ms(20_000)]), [(38_000, 41_500); 2], "one alone is held by both");
        assert_eq!(asked([ms(39_000), ms(40_100)]), [(11_500, 41_500); 2], "none of any kind is");
        // The slow ones are gone, and what goes on now is looked at instead.
        let early: Vec<Sample> = samples[..2].iter().chain(&samples[3..]).cloned().collect();
        let (from, to) = windows(&early, 60_000, GAP, [ms(30_000), None])[0];
        assert_eq!((from, to), (28_000 * MS as i64, 40_901 * MS as i64));
    }
}
