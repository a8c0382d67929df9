//! Comparing two groups requires equal coverage: anything that a recording shows for one group, and that
//! nobody recorded for the other, would look like a difference.

use super::population::{EFFECTIVE, LEAST, Row, effective};
use super::recorded::known_and_all_ns;
use super::suspects::is_by_host;
use super::{Owner, RECORDED};
use spangap_model::Side;
use spangap_model::evidence::CallRecord;
use std::collections::BTreeMap;

/// A call counts as recorded if the unrecorded part of its time on a host is less than this share.
const LITTLE: f64 = 0.05;
/// Omitted calls must not behave differently: the mean of the remaining ones must be within this factor of
/// theirs.
const FACTOR: f64 = 2.0;

/// Calls that are compared.
#[derive(Clone)]
pub struct Compared<'p, 'a> {
    /// Those in question.
    pub rows: Vec<&'p Row<'a>>,
    /// The calls they are compared with; empty if there is no comparison.
    pub others: Vec<&'p Row<'a>>,
    /// How many of all these calls were omitted because a host was not recorded at the time.
    pub left_out: usize,
}

impl<'p, 'a> Compared<'p, 'a> {
    /// Nothing omitted yet.
    pub fn new(rows: Vec<&'p Row<'a>>, others: Vec<&'p Row<'a>>) -> Self {
        Compared { rows, others, left_out: 0 }
    }

    /// Omits calls without a recording if others have one, provided that enough of both groups remain and
    /// that the omitted ones are not slow for reasons of their own. Otherwise all of them stay; [`unseen_ns`]
    /// gives the cost of that.
    pub fn alike(self) -> Self {
        Side::ALL.into_iter().fold(self, |all, side| all.recorded_at(side).unwrap_or(all))
    }

    /// Whether, at each end, recordings cover all of them or none.
    pub fn is_alike(&self) -> bool {
        Side::ALL
            .into_iter()
            .all(|side| !self.is_recorded(side) || !self.all().any(|row| is_unseen(row.call.record, side)))
    }

    fn all(&self) -> impl Iterator<Item = &'p Row<'a>> {
        self.rows.iter().chain(&self.others).copied()
    }

    /// Whether that end's host was recorded during any of these calls.
    fn is_recorded(&self, side: Side) -> bool {
        self.all().any(|row| known_and_all_ns(row.call.record, side).0 > 0)
    }

    fn recorded_at(&self, side: Side) -> Option<Self> {
        let seen = |of: &[&'p Row<'a>]| -> Vec<&'p Row<'a>> {
            of.iter().copied().filter(|row| !is_unseen(row.call.record, side)).collect()
        };
        let (mut rows, others) = (seen(&self.rows), seen(&self.others));
        let is_mixed = rows.len() + others.len() < self.rows.len() + self.others.len();
        if !is_mixed || !self.is_recorded(side) {
            return None;
        }
        if !self.others.is_empty() {
            let mut of_kind: BTreeMap<usize, usize> = BTreeMap::new();
            for row in &others {
                *of_kind.entry(row.stratum).or_default() += 1;
            }
            rows.retain(|row| of_kind.get(&row.stratum).is_some_and(|count| *count >= LEAST));
        }
        let enough = effective(&rows, |row| row.call.duration_ns as f64) >= EFFECTIVE
            && is_same_story(&self.rows, &rows)
            && (self.others.is_empty() || is_same_story(&self.others, &others));
        let left_out = self.left_out + self.all().count() - rows.len() - others.len();
        enough.then_some(Compared { rows, others, left_out })
    }
}

/// Whether the remaining calls of a group are as slow as all of it.
fn is_same_story(all: &[&Row<'_>], rest: &[&Row<'_>]) -> bool {
    let mean = |of: &[&Row<'_>]| {
        let calls: f64 = of.iter().map(|row| row.call.weight).sum();
        of.iter().map(|row| row.call.weight * row.call.duration_ns as f64).sum::<f64>()
            / calls.max(f64::MIN_POSITIVE)
    };
    let (all, rest) = (mean(all), mean(rest));
    rest <= FACTOR * all && all <= FACTOR * rest
}

fn is_unseen(call: &CallRecord, side: Side) -> bool {
    let (known, all) = known_and_all_ns(call, side);
    let unseen = all.saturating_sub(known) as f64;
    (known as f64) < RECORDED * all as f64 && unseen >= LITTLE * call.duration_ns as f64
}

/// Mean unrecorded time of a call on that end's host, nanoseconds: a recording might show anything in it.
fn mean_unseen_ns(of: &[(&Row<'_>, f64)], side: Side) -> f64 {
    let unseen = |call: &CallRecord| {
        let (known, all) = known_and_all_ns(call, side);
        all.saturating_sub(known) as f64
    };
    let weight: f64 = of.iter().map(|(_, weight)| weight).sum();
    of.iter().map(|(row, weight)| weight * unseen(row.call.record)).sum::<f64>()
        / weight.max(f64::MIN_POSITIVE)
}

/// How much time an owner may have in calls whose host was not recorded, nanoseconds per call: in those in
/// question, and in the others. Only for owners that nothing but a recording shows.
pub fn unseen_ns(owner: &Owner, unseen: &[(f64, f64); 2]) -> (f64, f64) {
    match owner {
        Owner::Culprit(culprit) | Owner::Noise(culprit) if is_by_host(culprit.cause) => match culprit.side {
            Some(side) => unseen[side.index()],
            None => (unseen[0].0 + unseen[1].0, unseen[0].1 + unseen[1].1),
        },
        _ => (0.0, 0.0),
    }
}

/// The same for all owners, by end.
pub fn unseen_by_side(rows: &[(&Row<'_>, f64)], others: &[(&Row<'_>, f64)]) -> [(f64, f64); 2] {
    Side::ALL.map(|side| (mean_unseen_ns(rows, side), mean_unseen_ns(others, side)))
}

#[cfg(test)]
mod tests {
    use super::super::innocents::running;
    use super::super::tests::{call, leg, of};
    use super::super::{Hunt, Kind};
    use super::*;
    use spangap_model::evidence::{HostPart, HostTime, LegRecord};
    use spangap_model::{Cause, Culprit, Doing, Leg};

    fn stopped(ms: i64, is_recorded: bool) -> LegRecord {
        let part = HostPart { doing: Doing::Stopped, ..running(ms) };
        let host = HostTime { parts: vec![part], ..HostTime::default() };
        LegRecord { host: is_recorded.then_some(host), ..leg(Leg::ClientAppIn, ms) }
    }

    /// Four hundred calls during stops, every eighth of which lasts longer; `is_recorded` says which were
    /// recorded.
    fn hunt(is_recorded: impl Fn(i64, bool) -> bool) -> Hunt {
        of((0..400).map(|n| -> CallRecord {
            let is_slow = n % 8 == 0;
            let ms = if is_slow { 40 } else { 16 };
            call(n, "/a", vec![leg(Leg::ServerApp, 1), stopped(ms, is_recorded(n, is_slow))], Vec::new())
        }))
    }

    const STOPPED: Culprit = Culprit::at(Cause::Stopped, Side::Client);

    #[test]
    fn calls_that_nobody_recorded_are_left_out_where_others_were() {
        // As with an agent that takes a while to follow a new process.
        let hunt = hunt(|n, _| n >= 250);
        assert_eq!(hunt.verdict, Kind::One, "{hunt:#?}");
        let share = hunt.culprits[0].share;
        assert_eq!(hunt.culprits[0].culprit, STOPPED);
        assert!(share.mid > 0.95 && share.mid < 1.05, "{share:?}");
        assert_eq!(hunt.coverage.without_recording, 250);
    }

    #[test]
    fn what_only_the_slow_calls_recordings_show_may_be_in_the_others_too() {
        let share =
            |hunt: &Hunt| hunt.culprits.iter().find(|one| one.culprit == STOPPED).map(|one| one.share);
        // 40 ms, minus up to 16 ms, of 24 ms: the whole of it, and no more.
        let wide = share(&hunt(|_, is_slow| is_slow)).expect("even the least of it is most");
        assert!(wide.low < 1.0 && wide.mid == 1.0 && wide.high < 1.2, "{wide:?}");
    }
}
