//! The windows of time in which a thread was denied the CPU most, with its activities.

use crate::event::Tid;
use crate::timeline::{Interval, Taker};
use rustc_hash::FxHashMap;
use spangap_model::Doing;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Maximum number of pieces per window; one with more changes keeps the first ones.
const PIECES: usize = 2000;
/// Candidates per window shown, because those that a wait spans are merged.
const KEPT_FOR_EACH: usize = 16;
/// Maximum number of windows merged into one.
const JOINED: u64 = 20;

/// One activity of a thread in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Start, in nanoseconds of CLOCK_MONOTONIC.
    pub from_ns: u64,
    /// End.
    pub to_ns: u64,
    /// Activity.
    pub doing: Doing,
    /// Who had the CPU, if that was another.
    pub taker: Option<Taker>,
}

/// A window of one thread's time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    pub tid: Tid,
    /// Start, in nanoseconds of CLOCK_MONOTONIC.
    pub from_ns: u64,
    /// End.
    pub to_ns: u64,
    /// Time in which others kept the thread from running, in nanoseconds.
    pub denied_ns: u64,
    /// Activities in order; truncated if there were too many.
    pub pieces: Vec<Piece>,
}

/// Ordered by denied time, for the heap.
#[derive(PartialEq, Eq)]
struct RankedWindow(Window);

impl PartialOrd for RankedWindow {
    fn partial_cmp(&self, other: &RankedWindow) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for RankedWindow {
    fn cmp(&self, other: &RankedWindow) -> std::cmp::Ordering {
        let key =
            |RankedWindow(window): &RankedWindow| (window.denied_ns, Reverse(window.from_ns), window.tid);
        key(self).cmp(&key(other))
    }
}

/// Keeps the worst windows.
pub(super) struct Windows {
    wanted: usize,
    window_ns: u64,
    open: FxHashMap<Tid, Window>,
    worst: BinaryHeap<Reverse<RankedWindow>>,
}

impl Windows {
    pub fn new(wanted: usize, window_ns: u64) -> Windows {
        let window_ns = window_ns.max(1);
        Windows { wanted, window_ns, open: FxHashMap::default(), worst: BinaryHeap::new() }
    }

    /// Processes the next interval of a thread.
    pub fn on(&mut self, tid: Tid, interval: &Interval) {
        let denied = matches!(
            (interval.doing, interval.taker),
            (Doing::Interrupted | Doing::Throttled | Doing::Stopped, _) | (Doing::Runnable, None)
        ) || interval.doing == Doing::Runnable && interval.taker != Some(Taker::Task(0));
        let mut at_ns = interval.from_ns;
        while at_ns < interval.to_ns {
            let end_ns = (at_ns / self.window_ns + 1) * self.window_ns;
            if !denied && interval.to_ns > end_ns && !self.open.contains_key(&tid) {
                // Nothing happens in the windows up to the last one.
                at_ns = (interval.to_ns - 1) / self.window_ns * self.window_ns;
                at_ns = at_ns.max(interval.from_ns);
                if at_ns < end_ns {
                    at_ns = end_ns;
                }
                continue;
            }
            let to_ns = interval.to_ns.min(end_ns);
            let window = self.open.entry(tid).or_insert_with(|| Window {
                tid,
                from_ns: at_ns,
                to_ns: at_ns,
                denied_ns: 0,
                pieces: Vec::new(),
            });
            let piece = Piece { from_ns: at_ns, to_ns, doing: interval.doing, taker: interval.taker };
            window.denied_ns += if denied { to_ns - at_ns } else { 0 };
            window.to_ns = to_ns;
            add(&mut window.pieces, piece);
            if to_ns == end_ns {
                self.close(tid);
            }
            at_ns = to_ns;
        }
    }

    fn close(&mut self, tid: Tid) {
        let Some(window) = self.open.remove(&tid) else { return };
        if window.denied_ns == 0 {
            return;
        }
        self.worst.push(Reverse(RankedWindow(window)));
        if self.worst.len() > self.wanted * KEPT_FOR_EACH {
            self.worst.pop();
        }
    }

    /// The worst windows, worst first.
    pub fn finish(mut self) -> Vec<Window> {
        let open: Vec<Tid> = self.open.keys().copied().collect();
        for tid in open {
            self.close(tid);
        }
        let mut kept: Vec<Window> =
            self.worst.into_iter().map(|Reverse(RankedWindow(window))| window).collect();
        kept.sort_unstable_by_key(|window| (window.tid, window.from_ns));
        let mut joined: Vec<Window> = Vec::new();
        for window in kept {
            match joined.last_mut() {
                Some(last)
                    if last.tid == window.tid
                        && last.to_ns == window.from_ns
                        && goes_on(last, &window)
                        && window.to_ns - last.from_ns <= self.window_ns * JOINED =>
                {
                    last.to_ns = window.to_ns;
                    last.denied_ns += window.denied_ns;
                    for piece in window.pieces {
                        add(&mut last.pieces, piece);
                    }
                }
                _ => joined.push(window),
            }
        }
        joined.sort_by_key(|window| (Reverse(window.denied_ns), window.from_ns, window.tid));
        joined.truncate(self.wanted);
        joined
    }
}

/// Whether the same taker kept a thread from running across the end of a window.
fn goes_on(window: &Window, next: &Window) -> bool {
    let (Some(last), Some(first)) = (window.pieces.last(), next.pieces.first()) else { return false };
    last.to_ns == window.to_ns
        && (last.doing, last.taker) == (first.doing, first.taker)
        && matches!(last.doing, Doing::Runnable | Doing::Throttled | Doing::Stopped)
}

fn add(pieces: &mut Vec<Piece>, piece: Piece) {
    let has_room = pieces.len() < PIECES;
    match pieces.last_mut() {
        Some(last)
            if last.to_ns == piece.from_ns && (last.doing, last.taker) == (piece.doing, piece.taker) =>
        {
            last.to_ns = piece.to_ns;
        }
        _ if has_room => pieces.push(piece),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(told: &[(u64, Doing, Option<Taker>)], wanted: usize) -> Vec<Window> {
        let mut windows = Windows::new(wanted, 100);
        let mut from_ns = 0;
        for (to_ns, doing, taker) in told {
            let (doing, taker, to_ns) = (*doing, *taker, *to_ns);
            windows.on(1, &Interval { from_ns, to_ns, doing, taker, cpu: None });
            from_ns = to_ns;
        }
        windows.finish()
    }

    const HOG: Option<Taker> = Some(Taker::Task(7));

    #[test]
    fn windows_are_sorted_and_idle_time_does_not_count() {
        let told = [
            (50, Doing::Running, None),
            (60, Doing::Runnable, HOG),
            (1010, Doing::Blocked, None),
            (1090, Doing::Runnable, Some(Taker::Task(0))),
            (1310, Doing::Running, None),
            (1350, Doing::Runnable, HOG),
            (1400, Doing::Running, None),
        ];
        let found = windows(&told, 9);
        let denied: Vec<(u64, u64)> = found.iter().map(|window| (window.from_ns, window.denied_ns)).collect();
        assert_eq!(denied, [(1300, 40), (0, 10)]);
        let pieces: Vec<(u64, Doing)> =
            found[0].pieces.iter().map(|piece| (piece.to_ns, piece.doing)).collect();
        assert_eq!(pieces, [(1310, Doing::Running), (1350, Doing::Runnable), (1400, Doing::Running)]);
        assert_eq!(windows(&told, 1).len(), 1);
    }

    #[test]
    fn a_long_wait_is_one_window() {
        let told = [(30, Doing::Running, None), (470, Doing::Throttled, None), (900, Doing::Running, None)];
        let found = windows(&told, 3);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].from_ns, found[0].to_ns, found[0].denied_ns), (0, 500, 440));
        assert_eq!(found[0].pieces.len(), 3);
    }
}
