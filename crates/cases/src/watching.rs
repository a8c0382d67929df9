//! All pairs of the meter, watched slot by slot: which left its baseline, which has calls over the threshold, which is back.

use crate::report::{GapRow, Spread};
use crate::trigger::{Counts, LEAST_CALLS, Left, State, Watch, Window};
use rustc_hash::FxHashMap;
use spangap_meter::engine::Meter;
use spangap_model::PairKey;
use spangap_model::pair::OTHER;

/// Length of a slot.
pub const SLOT_MS: u64 = 5_000;
/// A window that has too few calls after so many slots is given up.
const MOST_SLOTS: u32 = 12;
/// Windows as usual, one after the other, until a pair is back.
const BACK: u32 = 12;
/// Pairs watched at most: each takes some ten kilobytes.
const MOST_PAIRS: usize = 4_096;
/// Pairs looked at under one hold of the engine's lock.
const AT_ONCE: u32 = 128;

/// What became of a pair in a slot.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Which pair.
    pub pair: PairKey,
    /// What.
    pub what: What,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// It is out of its baseline.
    Out {
        /// In which figure.
        left: Left,
        /// It was not, before: an excursion begins.
        is_new: bool,
        /// When the first window that was out ended, Unix milliseconds.
        since_unix_ms: u64,
    },
    /// Calls were over the threshold.
    Over {
        /// So many in this slot.
        calls: u64,
    },
    /// It has been as usual for a minute after an excursion.
    Back {
        /// The pair when it was out.
        before: GapRow,
        /// The pair since.
        after: GapRow,
    },
}

/// All of them.
#[derive(Debug, Default)]
pub struct Watched {
    pairs: FxHashMap<u32, Pair>,
    /// Pairs for which there was no room, since the start.
    pub not_watched: u64,
}

#[derive(Debug, Default)]
struct Pair {
    before: [Counts; 2],
    partial: [Counts; 2],
    slots: u32,
    watch: Watch,
    /// When the last window ended that was as usual.
    usual_until_unix_ms: u64,
    first_out_unix_ms: Option<u64>,
    excursion: Option<Excursion>,
    over_until_unix_ms: u64,
}

#[derive(Debug)]
struct Excursion {
    from_unix_ms: u64,
    slow: [Counts; 2],
    slow_to_unix_ms: u64,
    fine: [Counts; 2],
    fine_from_unix_ms: u64,
    windows_fine: u32,
}

fn add(all: &mut [Counts; 2], more: &[Counts; 2]) {
    all.iter_mut().zip(more).for_each(|(all, more)| all.add(more));
}

/// Of gaps and client durations of the same calls.
fn row([gap, client]: &[Counts; 2], from_unix_ms: u64, to_unix_ms: u64) -> GapRow {
    GapRow {
        from_unix_ms,
        to_unix_ms,
        calls: gap.calls,
        gap: spread(gap),
        client_duration: spread(client),
        lost_ns_total: (gap.mean_ns() * gap.calls as f64) as u64,
    }
}

fn spread(counts: &Counts) -> Spread {
    Spread {
        p50_ns: counts.quantile_ns(0.5) as u64,
        p99_ns: counts.quantile_ns(0.99) as u64,
        mean_ns: counts.mean_ns() as u64,
    }
}

impl Watched {
    /// Takes what came in the slot that ends now.
    pub fn slot(&mut self, meter: &Meter, over_ns: Option<u64>, now_unix_ms: u64) -> Vec<Event> {
        let mut events = Vec::new();
        let mut from = Some(0);
        while let Some(first) = from {
            from = meter.durations(first, AT_ONCE, |number, key, gap, client| {
                if &*key.client == OTHER || &*key.server == OTHER {
                    return;
                }
                let is_new = !self.pairs.contains_key(&number);
                if is_new && self.pairs.len() >= MOST_PAIRS {
                    self.not_watched += 1;
                    return;
                }
                let pair = self.pairs.entry(number).or_default();
                let now = [Counts::of(gap), Counts::of(client)];
                pair.slot(now, over_ns, now_unix_ms, &mut |what| {
                    events.push(Event { pair: key.clone(), what })
                });
            });
        }
        events
    }

    /// A pair as it usually is, and as it was when it was last out.
    pub fn rows(&self, meter: &Meter, pair: &PairKey, now_unix_ms: u64) -> [Option<GapRow>; 2] {
        let mut found = None;
        let mut from = Some(0);
        while let Some(first) = from {
            from = meter.durations(first, AT_ONCE, |number, key, _, _| {
                if key == pair {
                    found = Some(number);
                }
            });
        }
        let Some(pair) = found.and_then(|number| self.pairs.get(&number)) else { return [None, None] };
        let usual = pair.watch.usual();
        let to = pair.usual_until_unix_ms;
        let usual = (usual[0].calls > 0).then(|| row(&usual, to.saturating_sub(600_000), to));
        let slow = pair.excursion.as_ref().map(|out| row(&out.slow, out.from_unix_ms, now_unix_ms));
        [usual, slow]
    }
}

impl Pair {
    fn slot(&mut self, now: [Counts; 2], over_ns: Option<u64>, at: u64, tell: &mut dyn FnMut(What)) {
        let new = [now[0].since(&self.before[0]), now[1].since(&self.before[1])];
        self.before = now;
        if let Some(over_ns) = over_ns {
            let calls = new[0].over(over_ns);
            if self.watch.is_over(calls, (60_000 / SLOT_MS) as usize) {
                if at > self.over_until_unix_ms {
                    tell(What::Over { calls });
                }
                self.over_until_unix_ms = at + 60_000;
            }
        }
        add(&mut self.partial, &new);
        self.slots += 1;
        if self.partial[0].calls < LEAST_CALLS {
            if self.slots >= MOST_SLOTS {
                self.partial = Default::default();
                self.slots = 0;
            }
            return;
        }
        let counts = std::mem::take(&mut self.partial);
        let began = at.saturating_sub(u64::from(std::mem::take(&mut self.slots)) * SLOT_MS);
        let Some(window) = Window::of(counts[0].clone(), counts[1].clone()) else { return };
        match self.watch.take(window) {
            State::Out(left) => {
                let is_new = self.excursion.is_none();
                let since_unix_ms = self.first_out_unix_ms.unwrap_or(at);
                let out = self.excursion.get_or_insert_with(|| Excursion {
                    from_unix_ms: since_unix_ms,
                    slow: Default::default(),
                    slow_to_unix_ms: at,
                    fine: Default::default(),
                    fine_from_unix_ms: at,
                    windows_fine: 0,
                });
                add(&mut out.slow, &counts);
                out.slow_to_unix_ms = at;
                out.windows_fine = 0;
                tell(What::Out { left, is_new, since_unix_ms });
            }
            State::Doubtful => self.first_out_unix_ms = Some(at),
            State::Within => {
                self.first_out_unix_ms = None;
                self.usual_until_unix_ms = at;
                let Some(out) = &mut self.excursion else { return };
                if out.windows_fine == 0 {
                    out.fine = Default::default();
                    out.fine_from_unix_ms = began;
                }
                out.windows_fine += 1;
                add(&mut out.fine, &counts);
                if out.windows_fine >= BACK
                    && let Some(out) = self.excursion.take()
                {
                    tell(What::Back {
                        before: row(&out.slow, out.from_unix_ms, out.slow_to_unix_ms),
                        after: row(&out.fine, out.fine_from_unix_ms, at),
                    });
                }
            }
            State::Learning => self.usual_until_unix_ms = at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spangap_model::Histogram;

    struct Calls([Histogram; 2]);

    impl Calls {
        /// So many more calls with gaps around so many milliseconds.
        fn more(&mut self, calls: u64, gap_ms: f64) -> [Counts; 2] {
            for n in 0..calls {
                let gap_ns = (gap_ms * (0.9 + 0.2 * n as f64 / calls as f64) * 1e6) as u64;
                self.0[0].record(gap_ns);
                self.0[1].record(gap_ns + 2_000_000);
            }
            [Counts::of(&self.0[0]), Counts::of(&self.0[1])]
        }
    }

    #[test]
    fn a_pair_leaves_its_baseline_comes_back_and_leaves_again() {
        let (mut pair, mut calls, mut at) = (Pair::default(), Calls([Histogram::new(), Histogram::new()]), 0);
        let mut slots = |slots: usize, gap_ms: f64| {
            let mut told = Vec::new();
            for _ in 0..slots {
                at += SLOT_MS;
                pair.slot(calls.more(100, gap_ms), None, at, &mut |what| told.push((at, what)));
            }
            told
        };
        assert!(slots(30, 1.0).is_empty());
        let out = slots(4, 40.0);
        assert_eq!(out.len(), 3, "from the second on: {out:?}");
        let What::Out { left, is_new: true, since_unix_ms } = out[0].1 else { panic!("{out:?}") };
        assert_eq!(since_unix_ms, 31 * SLOT_MS, "the first one's end");
        assert!(left.usual_ns < 1_300_000 && left.now_ns > 35_000_000, "{left:?}");
        assert!(matches!(out[1].1, What::Out { is_new: false, .. }));
        let back = slots(13, 1.0);
        let [(_, What::Back { before, after })] = &back[..] else { panic!("{back:?}") };
        assert!(before.gap.p50_ns > 30_000_000 && after.gap.p99_ns < 2_000_000, "{before:?} {after:?}");
        assert_eq!((before.calls, after.calls), (300, 1200));
        assert_eq!(after.to_unix_ms - after.from_unix_ms, 60_000);
        assert!(matches!(slots(2, 40.0)[..], [(_, What::Out { is_new: true, .. })]));
    }

    #[test]
    fn the_threshold_is_told_once_a_minute() {
        let (mut pair, mut calls) = (Pair::default(), Calls([Histogram::new(), Histogram::new()]));
        let mut told = Vec::new();
        for slot in 1..=12 {
            pair.slot(calls.more(1, 40.0), Some(20_000_000), slot * SLOT_MS, &mut |what| {
                told.push((slot, what))
            });
        }
        assert_eq!(told, [(3, What::Over { calls: 1 })]);
        assert!(pair.watch.usual()[0].calls == 0, "one call each five seconds: no window within a minute");
    }
}
