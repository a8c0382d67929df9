//! What becomes of pairs from slot to slot: excursions that open cases, cases that are fixed or regress, and pairs in doubt, of which every
//! call is kept.

use super::{CLOSELY, Cases, Inner, NotOpened, is_of, moment, pair_row};
use crate::report::{CaseReport, CaseRow, GapRow, Measure, Moment, PairRow, Spread, State, Trigger};
use crate::trigger::Left;
use crate::watching::{Event, SLOT_MS, What};
use spangap_meter::usual::{Usual, UsualOfPairs};
use spangap_model::PairKey;
use spangap_model::duration::format_ns;
use std::cmp::Reverse;

/// A pair that is still out, and whose case came to nothing, gets another one after this time, so many times.
const AGAIN_MS: u64 = 60_000;
const AGAIN: u32 = 2;
/// Sooner, if it loses so many times as much as when that one was opened.
const MUCH_WORSE: u64 = 4;

/// What was measured of a pair that is back: the mean and the p99 of what it had left its baseline by.
fn fixed_words(by: Measure, other_is_slower: bool, usual: &GapRow, after: &GapRow) -> String {
    let of = |measure: Measure| match measure {
        Measure::Gap => ("gap", &usual.gap, &after.gap),
        Measure::ClientDuration => ("client duration", &usual.client_duration, &after.client_duration),
    };
    let figures = |(name, usual, now): (&str, &Spread, &Spread)| {
        let [mean, p99] = [[now.mean_ns, usual.mean_ns], [now.p99_ns, usual.p99_ns]]
            .map(|[now, usual]| format!("{} (usually {})", format_ns(now), format_ns(usual)));
        format!("{name} mean {mean}, p99 {p99}")
    };
    let other = match by {
        Measure::Gap => Measure::ClientDuration,
        Measure::ClientDuration => Measure::Gap,
    };
    let but = if other_is_slower {
        format!("; but not in the other measure: {}", figures(of(other)))
    } else {
        String::new()
    };
    format!(
        "fixed: for a minute the pair has been as usual in what its case was opened for: {}{but}",
        figures(of(by))
    )
}

/// Cases whose usual figures the table of pairs gets to know.
const TOLD: usize = 256;
/// What was usual longer ago says nothing of now.
const TOLD_FOR_MS: u64 = 24 * 3_600_000;

impl Inner {
    /// Usual figures of pairs with a case that is not fixed: of the oldest one of each, since the later ones may have begun slow.
    pub(super) fn usual(&self, now_ms: u64) -> UsualOfPairs {
        let mut told = UsualOfPairs::new();
        let mut cases: Vec<&CaseReport> = self.cases.values().collect();
        cases.sort_by_key(|case| Reverse(case.row.opened_unix_ms));
        let is_told = |case: &&CaseReport| {
            !matches!(case.row.state, State::Fixed) && case.row.opened_unix_ms + TOLD_FOR_MS > now_ms
        };
        for case in cases.into_iter().filter(is_told).take(TOLD) {
            let (Some(usual), CaseRow { pair, method, .. }) = (&case.usual, &case.row) else { continue };
            let key = PairKey {
                client: pair.client.as_str().into(),
                server: pair.server.as_str().into(),
                method: method.as_deref().map(Into::into),
            };
            let usual = Usual {
                client_mean_ns: usual.client_duration.mean_ns,
                gap_mean_ns: usual.gap.mean_ns,
                since_unix_ms: usual.to_unix_ms,
            };
            told.insert(key, usual);
        }
        told
    }
}

impl Cases {
    /// What became of the pairs since the last one. [`Cases::run`] has it every five seconds.
    pub fn slot(&self, now_ms: u64) {
        let events = {
            let mut watched = self.watched();
            let is_tried = self.experiments.is_tried_since(now_ms.saturating_sub(SLOT_MS));
            let events = watched.slot(&self.meter, self.settings.over_ns, is_tried, now_ms);
            let not_watched = watched.not_watched;
            self.agents.count(|refused| refused.pairs_not_watched = not_watched);
            events
        };
        self.follow_all(events, now_ms);
        self.make_room();
        self.meter.set_usual(self.inner().usual(now_ms));
    }

    /// Where the budget does not do for all that are out, those go first that have had no case, and of these the ones that lost the most:
    /// which pair the meter happened to see first says nothing.
    fn follow_all(&self, mut events: Vec<Event>, now_ms: u64) {
        {
            let inner = self.inner();
            events.sort_by_cached_key(|Event { pair, what }| match what {
                What::Out { lost_ns, .. } => {
                    let had = inner.of_excursion.get(pair).map_or(0, |(_, times, _)| 1 + times);
                    (1 + had, Reverse(*lost_ns))
                }
                _ => (0, Reverse(0)),
            });
        }
        let mut waiting = Vec::new();
        for event in events {
            waiting.extend(self.follow(event, now_ms));
        }
        self.inner().waiting = waiting;
    }

    /// The pair, if it is out and the budget does not allow a case of it now.
    fn follow(&self, Event { pair, what }: Event, now_ms: u64) -> Option<PairRow> {
        match what {
            What::Out { left, is_new, since_unix_ms, lost_ns } => {
                if is_new {
                    self.regressed(&pair, now_ms);
                }
                let times = self.times_before(&pair, is_new, lost_ns, now_ms)?;
                return self.begin_out(pair, left, since_unix_ms, (times, lost_ns), now_ms);
            }
            What::Doubtful => self.watch_closely(&pair, now_ms),
            What::Within => self.watch_no_more(&pair),
            What::Over { calls } => self.begin_over(&pair, calls, now_ms),
            What::Back { by, other_is_slower, usual, before, after } => {
                let what = fixed_words(by, other_is_slower, &usual, &after);
                self.is_fixed(&pair, [*usual, before, after], &what, now_ms);
            }
            What::Accustomed { since_unix_ms } => self.is_accustomed(&pair, since_unix_ms, now_ms),
        }
        None
    }

    /// How many cases beyond the first this excursion of the pair has had; `None` if it gets no other one now.
    fn times_before(&self, pair: &PairKey, is_new: bool, lost_ns: u64, now_ms: u64) -> Option<u32> {
        if is_new {
            return Some(0);
        }
        let before = self.inner().of_excursion.get(pair).cloned();
        let Some((id, times, lost_then_ns)) = before else { return Some(0) };
        let is_worth_another =
            self.came_to_nothing(&id, now_ms) || self.is_much_worse(&id, lost_then_ns, lost_ns);
        (times < AGAIN && is_worth_another).then_some(times + 1)
    }

    /// Opens the case of a pair that has left its baseline. Returns the pair if the budget does not allow it.
    fn begin_out(
        &self,
        pair: PairKey,
        left: Left,
        since_unix_ms: u64,
        (times, lost_ns): (u32, u64),
        now_ms: u64,
    ) -> Option<PairRow> {
        let (now, usual) = (format_ns(left.now_ns), format_ns(left.usual_ns));
        let why = format!("triggered: {} {now} instead of {usual}", left.figure);
        let first =
            Moment { unix_ms: since_unix_ms, what: "the first window outside the baseline ended".into() };
        let time_line = vec![first, moment(now_ms, why)];
        let slow = (left.figure.measure(), Some(left.level_ns()));
        match self.begin(&pair, Trigger::Baseline, slow, time_line, now_ms) {
            Ok(id) => drop(self.inner().of_excursion.insert(pair, (id, times, lost_ns))),
            Err(NotOpened::Budget(_)) => return Some(pair_row(&pair)),
            // That it cannot be written is counted, and tried again.
            Err(_) => {}
        }
        None
    }

    /// Opens the case of a pair with calls over the threshold.
    fn begin_over(&self, pair: &PairKey, calls: u64, now_ms: u64) {
        let over = format_ns(self.settings.over_ns.unwrap_or(0));
        let why =
            format!("triggered: {calls} calls with gaps over {over} in the last window, three in a minute");
        let slow = (Measure::Gap, self.settings.over_ns);
        // One over budget is counted.
        let _ = self.begin(pair, Trigger::Threshold, slow, vec![moment(now_ms, why)], now_ms);
    }

    /// The excursion is over: its cases are fixed.
    fn is_fixed(&self, pair: &PairKey, [usual, before, after]: [GapRow; 3], what: &str, now_ms: u64) {
        let mut inner = self.inner();
        inner.of_excursion.remove(pair);
        let of_pair = |case: &&mut CaseReport| {
            is_of(pair, case)
                && case.row.trigger == Trigger::Baseline
                && matches!(case.row.state, State::Explained | State::Unknown | State::Proven)
                && case.row.opened_unix_ms >= before.from_unix_ms
        };
        let mut changed = Vec::new();
        for case in inner.cases.values_mut().filter(of_pair) {
            case.row.state = State::Fixed;
            case.usual.get_or_insert_with(|| usual.clone());
            case.before = Some(before.clone());
            case.after = Some(after.clone());
            case.time_line.push(moment(now_ms, what));
            changed.push(case.clone());
        }
        drop(inner);
        changed.iter().for_each(|case| self.save(case));
    }

    /// What was an excursion is usual by now: its case is not fixed, and the next excursion gets one of its own.
    fn is_accustomed(&self, pair: &PairKey, since_unix_ms: u64, now_ms: u64) {
        let mut inner = self.inner();
        let Some((id, ..)) = inner.of_excursion.remove(pair) else { return };
        let Some(case) = inner.cases.get_mut(&id) else { return };
        let minutes = now_ms.saturating_sub(since_unix_ms) / 60_000;
        let what = format!("not fixed: after {minutes} minutes, these figures are the pair's usual ones");
        case.time_line.push(moment(now_ms, what));
        let case = case.clone();
        drop(inner);
        self.save(&case);
    }

    /// Keeps every call of a pair from now on, where no other pair is in doubt already. A sample has few calls of each connection,
    /// and how calls of one connection wait for each other shows in neighbours alone.
    pub(super) fn watch_closely(&self, pair: &PairKey, now_ms: u64) {
        let mut inner = self.inner();
        if inner.closely.is_none()
            && self.experiments.running().is_none()
            && self.meter.follow(Some((pair, CLOSELY)))
        {
            inner.closely = Some((pair.clone(), now_ms));
        }
    }

    fn watch_no_more(&self, pair: &PairKey) {
        let mut inner = self.inner();
        if inner.closely.take_if(|(closely, _)| closely == pair).is_some()
            && self.experiments.running().is_none()
        {
            self.meter.follow(None);
        }
    }

    /// Since when every call of a pair is kept, if it is; it is not kept on.
    pub(crate) fn kept_since(&self, pair: &PairKey) -> Option<u64> {
        let since_ms =
            self.inner().closely.as_ref().filter(|(closely, _)| closely == pair).map(|(_, since)| *since);
        self.watch_no_more(pair);
        since_ms
    }

    /// What was fixed at this pair is not: a new excursion began. Cases that a person has asked for meanwhile change nothing.
    pub(super) fn regressed(&self, pair: &PairKey, now_ms: u64) {
        let mut inner = self.inner();
        let mut changed = Vec::new();
        let of_pair = |case: &&mut CaseReport| is_of(pair, case) && case.row.state == State::Fixed;
        for case in inner.cases.values_mut().filter(of_pair) {
            case.row.state = State::Regressed;
            case.time_line.push(moment(now_ms, "regressed: the pair has left its usual figures again"));
            changed.push(case.clone());
        }
        drop(inner);
        changed.iter().for_each(|case| self.save(case));
    }

    /// Noise may have opened a case just before something happened: what that has to say is not about this.
    fn is_much_worse(&self, id: &str, lost_then_ns: u64, lost_ns: u64) -> bool {
        let is_over = self.inner().cases.get(id).is_none_or(|case| case.row.state != State::Open);
        is_over && lost_ns > MUCH_WORSE * lost_then_ns
    }

    fn came_to_nothing(&self, id: &str, now_ms: u64) -> bool {
        let inner = self.inner();
        inner.cases.get(id).is_none_or(|case| {
            case.row.state == State::Unknown && now_ms.saturating_sub(case.row.opened_unix_ms) >= AGAIN_MS
        })
    }
}
