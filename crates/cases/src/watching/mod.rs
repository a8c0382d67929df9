//! All pairs of the meter, watched slot by slot: those that left their baseline, exceed the threshold, or are
//! back to normal.

use crate::report::{GapRow, Measure, Spread};
use crate::trigger::{Counts, Figure, LEAST_CALLS, Left, Remembered, State, Watch, Window};
use rustc_hash::FxHashMap;
use spangap_meter::engine::Meter;
use spangap_model::PairKey;
use spangap_model::pair::OTHER;

/// Length of a slot.
pub const SLOT_MS: u64 = 5_000;
/// A window with too few calls is abandoned after this many slots.
const MOST_SLOTS: u32 = 12;
/// Consecutive usual windows until a pair is back.
const BACK: u32 = 12;
/// Maximum number of watched pairs: each takes some ten kilobytes.
const MOST_PAIRS: usize = 4_096;
/// Pairs processed per acquisition of the engine's lock.
const AT_ONCE: u32 = 128;
/// A pair without calls for this many slots (ten minutes) may be replaced by another, if there is no room.
const IDLE_SLOTS: u32 = 120;

/// The change of a pair in a slot.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The pair.
    pub pair: PairKey,
    /// The change.
    pub what: What,
}

/// A change of a pair.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// One window was outside: a case may follow.
    Doubtful,
    /// The doubt was unfounded: windows are within the baseline again.
    Within,
    /// The pair is outside its baseline.
    Out {
        /// The figure that left it.
        left: Left,
        /// Whether an excursion begins.
        is_new: bool,
        /// End of the first window outside, Unix milliseconds.
        since_unix_ms: u64,
        /// Total excess of this window's unusual calls over the usual, nanoseconds.
        lost_ns: u64,
    },
    /// Calls exceeded the threshold.
    Over {
        /// Number of calls in this slot.
        calls: u64,
    },
    /// The pair has been as usual for a minute after an excursion, without a remedy on trial: by each window, and by all calls of
    /// the minute together.
    Back {
        /// By what the pair left its baseline, and is back.
        by: Measure,
        /// Whether the other measure is clearly slower than usual.
        other_is_slower: bool,
        /// The pair before the excursion.
        usual: Box<GapRow>,
        /// The pair during the excursion.
        before: GapRow,
        /// The pair since then.
        after: GapRow,
    },
    /// The pair's figures are still those of the excursion, which have become usual.
    Accustomed {
        /// Start of the excursion, Unix milliseconds.
        since_unix_ms: u64,
    },
}

/// Why a pair's usual figures are unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoUsual {
    /// It was watched for less than half a minute before.
    #[error("there were too few calls before these")]
    TooFew,
    /// Slow calls may be among those.
    #[error("earlier calls took as long, as far back as the meter remembers")]
    AsSlow,
}

/// All watched pairs.
#[derive(Debug, Default)]
pub struct Watched {
    pairs: FxHashMap<u32, Pair>,
    /// Pairs rejected for lack of room, since the start.
    pub not_watched: u64,
    /// Whether some were replaced, and may return.
    had_to_make_room: bool,
}

#[derive(Debug, Default)]
struct Pair {
    before: [Counts; 2],
    /// Slots since the last call.
    idle: u32,
    partial: [Counts; 2],
    slots: u32,
    watch: Watch,
    /// Start and end of the first window outside.
    first_out_unix_ms: Option<[u64; 2]>,
    /// Whether a remedy was on trial during this window.
    is_tried: bool,
    excursion: Option<Excursion>,
    over_until_unix_ms: u64,
}

#[derive(Debug)]
struct Excursion {
    /// The usual figures when it began.
    usual: Remembered,
    /// The figure that left them.
    figure: Figure,
    /// Start of the first window outside.
    began_unix_ms: u64,
    from_unix_ms: u64,
    slow: [Counts; 2],
    slow_to_unix_ms: u64,
    fine: [Counts; 2],
    fine_from_unix_ms: u64,
    windows_fine: u32,
    /// Consecutive windows that are usual now, but were not when it began.
    windows_accustomed: u32,
}

fn add(all: &mut [Counts; 2], more: &[Counts; 2]) {
    all.iter_mut().zip(more).for_each(|(all, more)| all.add(more));
}

/// A row with gaps and client durations of the same calls.
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

/// Excess of unusual calls over the usual.
fn lost_ns(left: &Left, counts: &[Counts; 2]) -> u64 {
    counts[left.figure.of()].over(left.level_ns()).saturating_mul(left.now_ns.saturating_sub(left.usual_ns))
}

fn spread(counts: &Counts) -> Spread {
    Spread {
        p50_ns: counts.quantile_ns(0.5) as u64,
        p99_ns: counts.quantile_ns(0.99) as u64,
        mean_ns: counts.mean_ns() as u64,
    }
}

impl Watched {
    /// Processes the slot that ends now. `is_tried` says that a remedy is on trial: calls may then be as
    /// usual because of it, including those of other pairs, since changes on a host affect more than one
    /// pair.
    pub fn slot(
        &mut self,
        meter: &Meter,
        over_ns: Option<u64>,
        is_tried: bool,
        now_unix_ms: u64,
    ) -> Vec<Event> {
        let mut events = Vec::new();
        if self.pairs.len() >= MOST_PAIRS {
            let before = self.pairs.len();
            self.pairs.retain(|_, pair| pair.idle < IDLE_SLOTS);
            self.had_to_make_room |= self.pairs.len() < before;
        }
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
                let now = [Counts::of(gap), Counts::of(client)];
                let had_to_make_room = self.had_to_make_room;
                let pair = self.pairs.entry(number).or_insert_with(|| match had_to_make_room {
                    // Calls before it was replaced do not belong to this slot.
                    true => Pair { before: now.clone(), ..Pair::default() },
                    false => Pair::default(),
                });
                pair.slot(now, over_ns, is_tried, now_unix_ms, &mut |what| {
                    events.push(Event { pair: key.clone(), what })
                });
            });
        }
        events
    }

    /// A pair before the calls in question, and since. These began at the given time, or when the pair left
    /// its usual figures; if neither is known, at `look_back_unix_ms`.
    ///
    /// # Errors
    /// When the usual figures cannot be known.
    pub fn rows(
        &self,
        meter: &Meter,
        pair: &PairKey,
        since_unix_ms: Option<u64>,
        look_back_unix_ms: u64,
        now_unix_ms: u64,
    ) -> Result<[GapRow; 2], NoUsual> {
        let mut found = None;
        let mut from = Some(0);
        while let Some(first) = from {
            from = meter.durations(first, AT_ONCE, |number, key, _, _| {
                if key == pair {
                    found = Some(number);
                }
            });
        }
        let pair = found.and_then(|number| self.pairs.get(&number)).ok_or(NoUsual::TooFew)?;
        pair.rows(since_unix_ms, look_back_unix_ms, now_unix_ms)
    }
}

impl Pair {
    fn rows(
        &self,
        since_unix_ms: Option<u64>,
        look_back_unix_ms: u64,
        now_unix_ms: u64,
    ) -> Result<[GapRow; 2], NoUsual> {
        let began = match &self.excursion {
            Some(out) => Some(out.began_unix_ms),
            None => self.first_out_unix_ms.map(|[from, _]| from),
        };
        let since_unix_ms = match (since_unix_ms, began) {
            (Some(one), Some(other)) => one.min(other),
            (one, other) => one.or(other).unwrap_or(look_back_unix_ms),
        };
        let usual = self.watch.usual(since_unix_ms).ok_or(NoUsual::TooFew)?;
        let slow = match &self.excursion {
            Some(out) => row(&out.slow, out.from_unix_ms, out.slow_to_unix_ms),
            None => {
                let mut slow = self.watch.since(since_unix_ms).counts;
                add(&mut slow, &self.partial);
                if !Watch::are_slower(&slow, &usual.counts) {
                    return Err(NoUsual::AsSlow);
                }
                row(&slow, since_unix_ms, now_unix_ms)
            }
        };
        Ok([row(&usual.counts, usual.from_unix_ms, usual.to_unix_ms), slow])
    }

    fn slot(
        &mut self,
        now: [Counts; 2],
        over_ns: Option<u64>,
        is_tried: bool,
        at: u64,
        tell: &mut dyn FnMut(What),
    ) {
        let new = [now[0].since(&self.before[0]), now[1].since(&self.before[1])];
        self.before = now;
        self.idle = if new[0].calls == 0 { self.idle.saturating_add(1) } else { 0 };
        if let Some(over_ns) = over_ns {
            self.look_for_over(new[0].over(over_ns), at, tell);
        }
        add(&mut self.partial, &new);
        self.slots += 1;
        self.is_tried |= is_tried;
        if self.partial[0].calls < LEAST_CALLS {
            if self.slots >= MOST_SLOTS {
                self.partial = Default::default();
                self.slots = 0;
                self.is_tried = false;
            }
            return;
        }
        let counts = std::mem::take(&mut self.partial);
        let began = at.saturating_sub(u64::from(std::mem::take(&mut self.slots)) * SLOT_MS);
        let is_tried = std::mem::take(&mut self.is_tried);
        let Some(window) = Window::of(counts[0].clone(), counts[1].clone()) else { return };
        let window = window.between(began, at);
        let is_still_out = self.excursion.as_ref().is_some_and(|out| out.usual.is_out(&window, out.figure));
        let state = if is_tried { self.watch.take_tried(window) } else { self.watch.take(window) };
        match state {
            State::Out(left) => self.is_out(left, &counts, is_tried, at, tell),
            State::Doubtful => {
                self.first_out_unix_ms = Some([began, at]);
                if self.excursion.is_none() {
                    tell(What::Doubtful);
                }
            }
            State::Within => {
                if self.first_out_unix_ms.take().is_some() && self.excursion.is_none() {
                    tell(What::Within);
                }
                self.is_within(&counts, [is_tried, is_still_out], [began, at], tell);
            }
            State::Learning => {}
        }
    }

    /// Counts calls over the threshold, and tells of them once in a minute at most.
    fn look_for_over(&mut self, calls: u64, at: u64, tell: &mut dyn FnMut(What)) {
        if self.watch.is_over(calls, (60_000 / SLOT_MS) as usize) {
            if at > self.over_until_unix_ms {
                tell(What::Over { calls });
            }
            self.over_until_unix_ms = at + 60_000;
        }
    }

    /// A window out of the baseline: an excursion begins, or goes on.
    fn is_out(
        &mut self,
        left: Left,
        counts: &[Counts; 2],
        is_tried: bool,
        at: u64,
        tell: &mut dyn FnMut(What),
    ) {
        let is_new = self.excursion.is_none();
        let [began_unix_ms, since_unix_ms] = self.first_out_unix_ms.unwrap_or_else(|| self.watch.row_began());
        let out = self.excursion.get_or_insert_with(|| Excursion {
            usual: self.watch.remembered(),
            figure: left.figure,
            began_unix_ms,
            from_unix_ms: since_unix_ms,
            slow: Default::default(),
            slow_to_unix_ms: at,
            fine: Default::default(),
            fine_from_unix_ms: at,
            windows_fine: 0,
            windows_accustomed: 0,
        });
        if !is_tried {
            add(&mut out.slow, counts);
            out.slow_to_unix_ms = at;
        }
        out.windows_fine = 0;
        out.windows_accustomed = 0;
        tell(What::Out { left, is_new, since_unix_ms, lost_ns: lost_ns(&left, counts) });
    }

    /// A window within the current baseline: an excursion ends after enough of them, or has become usual.
    fn is_within(
        &mut self,
        counts: &[Counts; 2],
        [is_tried, is_still_out]: [bool; 2],
        [began, at]: [u64; 2],
        tell: &mut dyn FnMut(What),
    ) {
        let Some(out) = &mut self.excursion else { return };
        if is_tried {
            // Whether windows are usual without a remedy shows only after the last undo.
            out.windows_fine = 0;
            out.windows_accustomed = 0;
            return;
        }
        if is_still_out {
            out.windows_fine = 0;
            out.windows_accustomed += 1;
            let since_unix_ms = out.from_unix_ms;
            if out.windows_accustomed >= BACK {
                self.excursion = None;
                tell(What::Accustomed { since_unix_ms });
            }
            return;
        }
        if out.windows_fine == 0 {
            out.fine = Default::default();
            out.fine_from_unix_ms = began;
        }
        out.windows_accustomed = 0;
        out.windows_fine += 1;
        add(&mut out.fine, counts);
        if out.windows_fine < BACK {
            return;
        }
        let of = out.figure.of();
        if out.usual.are_slower(&out.fine, of) {
            // A window may have too few calls for a p99, a minute has more: it was not as usual, and the next one may be.
            out.windows_fine = 0;
            return;
        }
        if let Some(out) = self.excursion.take() {
            let usual = out.usual.stretch();
            tell(What::Back {
                by: out.figure.measure(),
                other_is_slower: out.usual.are_slower(&out.fine, 1 - of),
                usual: Box::new(row(&usual.counts, usual.from_unix_ms, usual.to_unix_ms)),
                before: row(&out.slow, out.from_unix_ms, out.slow_to_unix_ms),
                after: row(&out.fine, out.fine_from_unix_ms, at),
            });
        }
    }
}

#[cfg(test)]
mod tests;
