//! Bytes that one side has sent and the other has not acknowledged: runs in order, each with the times the tap
//! saw it.

use super::Sent;
use std::collections::VecDeque;
use std::ops::Range;

/// Maximum runs per direction. A bulk transfer with 40 MB in flight in 64 KiB super-frames has 640.
pub const MAX_RUNS: usize = 1024;
/// Maximum runs per direction while the capture as a whole holds more than [`MAX_TOTAL_RUNS`]: enough for the
/// calls of one round trip. Only captures of many connections that lack the acknowledgements reach this state.
pub const FEW_RUNS: usize = 32;
/// Runs in all connections together that trigger [`FEW_RUNS`] (64 bytes each: 64 MiB).
pub const MAX_TOTAL_RUNS: usize = 1 << 20;
/// Capacity for runs that an idle direction keeps.
const KEPT_CAPACITY: usize = 64;

/// Records bytes seen at `time_ns` in `packet`. Returns the earliest of them that had been seen before, in its
/// previous state.
pub fn sent(
    runs: &mut VecDeque<Sent>,
    bytes: Range<u64>,
    time_ns: i64,
    packet: u64,
    limit: usize,
) -> Option<Sent> {
    let fresh = |start, end| Sent {
        start,
        end,
        time_ns,
        packet,
        last_time_ns: time_ns,
        last_packet: packet,
        sends: 1,
    };
    if bytes.is_empty() {
        return None;
    }
    if runs.back().is_none_or(|last| last.end <= bytes.start) {
        runs.push_back(fresh(bytes.start, bytes.end));
        while runs.len() > limit {
            runs.pop_front();
        }
        return None;
    }
    let mut earlier = None;
    let mut at = runs.partition_point(|run| run.end <= bytes.start);
    let mut from = bytes.start;
    while from < bytes.end {
        let Some(run) = runs.get(at).copied().filter(|run| run.start < bytes.end) else {
            runs.insert(at, fresh(from, bytes.end));
            break;
        };
        if from < run.start {
            // Bytes between two runs, seen for the first time.
            runs.insert(at, fresh(from, run.start));
            from = run.start;
            at += 1;
            continue;
        }
        // A run that is only partly retransmitted is split.
        if run.start < from {
            runs[at].end = from;
            at += 1;
            runs.insert(at, Sent { start: from, ..run });
        }
        if bytes.end < run.end {
            runs[at].end = bytes.end;
            runs.insert(at + 1, Sent { start: bytes.end, ..run });
        }
        let part = &mut runs[at];
        earlier.get_or_insert(*part);
        part.last_time_ns = time_ns;
        part.last_packet = packet;
        part.sends = part.sends.saturating_add(1);
        from = part.end;
        at += 1;
    }
    while runs.len() > limit {
        runs.pop_front();
    }
    earlier
}

/// Everything before `ack` was acknowledged at `now_ns`: moves those runs to `gone`. Returns the time since the
/// youngest of them was seen, if it was seen once (Karn's rule, RFC 6298, 3).
pub fn acknowledged(
    runs: &mut VecDeque<Sent>,
    ack: u64,
    now_ns: i64,
    mut gone: impl FnMut(Sent),
) -> Option<u64> {
    let mut youngest = None;
    while let Some(run) = runs.front_mut().filter(|run| run.start < ack) {
        youngest = Some(*run);
        if run.end > ack {
            run.start = ack;
            break;
        }
        gone(*run);
        runs.pop_front();
    }
    if runs.is_empty() && runs.capacity() > KEPT_CAPACITY {
        runs.shrink_to(KEPT_CAPACITY);
    }
    let run = youngest.filter(|run| run.sends == 1)?;
    u64::try_from(now_ns - run.time_ns).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(runs: &VecDeque<Sent>) -> Vec<(u64, u64, u8)> {
        runs.iter().map(|run| (run.start, run.end, run.sends)).collect()
    }

    #[test]
    fn a_retransmitted_part_of_a_super_frame_is_a_separate_run() {
        let mut runs = VecDeque::new();
        assert_eq!(sent(&mut runs, 100..500, 10, 1, 9), None);
        let earlier = sent(&mut runs, 200..300, 20, 2, 9).expect("seen before");
        assert_eq!(
            (earlier.start, earlier.end, earlier.time_ns, earlier.packet, earlier.sends),
            (200, 300, 10, 1, 1)
        );
        assert_eq!(ranges(&runs), [(100, 200, 1), (200, 300, 2), (300, 500, 1)]);
        assert_eq!((runs[1].time_ns, runs[1].last_time_ns, runs[1].last_packet), (10, 20, 2));
    }

    #[test]
    fn bytes_between_runs_are_new() {
        let mut runs = VecDeque::new();
        sent(&mut runs, 0..10, 1, 1, 9);
        sent(&mut runs, 20..30, 2, 2, 9);
        let earlier = sent(&mut runs, 5..40, 3, 3, 9).expect("seen before");
        assert_eq!((earlier.start, earlier.end, earlier.packet), (5, 10, 1));
        assert_eq!(ranges(&runs), [(0, 5, 1), (5, 10, 2), (10, 20, 1), (20, 30, 2), (30, 40, 1)]);
    }

    #[test]
    fn the_round_trip_uses_the_youngest_run_and_none_sent_twice() {
        let mut runs = VecDeque::new();
        sent(&mut runs, 0..10, 1, 1, 9);
        sent(&mut runs, 10..20, 5, 2, 9);
        let mut gone = Vec::new();
        assert_eq!(acknowledged(&mut runs, 15, 9, |run| gone.push(run.end)), Some(4));
        assert_eq!((ranges(&runs), gone), (vec![(15, 20, 1)], vec![10]));
        sent(&mut runs, 15..20, 20, 3, 9);
        assert_eq!(acknowledged(&mut runs, 20, 30, |_| ()), None);
        assert!(runs.is_empty());
    }

    #[test]
    fn the_oldest_are_forgotten_first() {
        let mut runs = VecDeque::new();
        (0..100u64).for_each(|i| assert_eq!(sent(&mut runs, i * 10..i * 10 + 10, 0, i, 9), None));
        assert_eq!((runs.len(), runs[0].start), (9, 910));
        sent(&mut runs, 955..956, 0, 100, 9);
        assert_eq!(runs.len(), 9);
    }
}
