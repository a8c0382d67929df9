//! One row for each cause. A bad node has pods, addresses and a zone, and the calls of each of them are slow, too: the value that
//! explains the most leads, and those that explain nothing without it follow. What is left of the calls is then asked again, all
//! values anew, so that neither a row's many names nor its large share of the excess hides another cause or lends it significance.

use super::attributes::{Group, Numbered, Pool};
use super::chance::{held_to_false_discoveries, ranks_above, rises};
use super::effects::Effects;
use super::{Difference, FALSE_DISCOVERIES, LEAST_CALLS, LEAST_SHARE, Named, SHOWN};

/// Calls of a value that rank this high among those of the row that it follows are a cause of their own. Each row is asked, and
/// has few calls: a pod of twenty bad nodes must not stand out by chance.
const OF_ITS_OWN: f64 = 0.01;
/// Values that follow one row.
const FOLLOWING: usize = 10;

/// Where causes are looked for.
pub struct Search<'a> {
    pub pool: &'a Pool<'a>,
    pub effects: &'a Effects,
    /// Values, by the calls that carry them.
    pub groups: &'a [Group],
    /// Attributes that are numbers.
    pub numbers: &'a [Numbered],
}

/// A number with which the gap rises or falls.
#[derive(Clone, Copy, Debug)]
pub struct Rising {
    /// Which.
    pub number: usize,
    /// Rank correlation.
    pub correlation: f64,
    /// Corrected for all that was tested with it.
    pub probability: f64,
}

/// A value that slow calls carry more often, by its group.
#[derive(Clone, Copy, Debug)]
struct Apart {
    group: usize,
    probability: f64,
    /// A value on all calls has all of the excess and explains nothing.
    beyond_its_calls: f64,
}

/// A value that leads, with those that follow it.
#[derive(Clone, Debug)]
pub struct Row {
    leader: Apart,
    followers: Vec<Apart>,
}

fn and(some: &[bool], others: &[bool]) -> Vec<bool> {
    some.iter().zip(others).map(|(is, other)| *is && *other).collect()
}

fn without(some: &[bool], others: &[bool]) -> Vec<bool> {
    some.iter().zip(others).map(|(is, other)| *is && !other).collect()
}

fn count(marked: &[bool]) -> usize {
    marked.iter().filter(|is| **is).count()
}

impl Search<'_> {
    fn members(&self, one: &Apart) -> &[bool] {
        &self.groups[one.group].members
    }

    /// Rows in the order in which they are shown, and numbers: among all calls, or among those that no row explains.
    pub fn found(&self) -> (Vec<Row>, Vec<Rising>) {
        let mut left = vec![true; self.pool.calls.len()];
        let (mut candidates, mut rising) = self.apart(&left);
        let mut rising_last = Vec::new();
        let mut rows = Vec::new();
        while rows.len() < SHOWN
            && let Some(leader) = self.leader(&candidates, &left)
        {
            left = without(&left, self.members(&leader));
            let (next, rising_now) = self.apart(&left);
            rising_last = rising_now;
            let is_next = |one: &Apart| next.iter().any(|other| other.group == one.group);
            let followers =
                candidates.into_iter().filter(|one| one.group != leader.group && !is_next(one)).collect();
            rows.extend(self.split(Row { leader, followers }));
            candidates = next;
        }
        rows.truncate(SHOWN);
        rising_last.retain(|one: &Rising| rising.iter().all(|other| other.number != one.number));
        rising.extend(rising_last);
        (rows, rising)
    }

    /// Values that slow calls carry more often than others, among some calls, the most telling first; and numbers.
    fn apart(&self, among: &[bool]) -> (Vec<Apart>, Vec<Rising>) {
        let enough = |group: &Group| {
            let with = count(&and(&group.members, among));
            with >= LEAST_CALLS && count(among) - with >= LEAST_CALLS
        };
        let tested: Vec<usize> = (0..self.groups.len()).filter(|at| enough(&self.groups[*at])).collect();
        let of_groups = tested.iter().map(|at| ranks_above(self.pool, &self.groups[*at].members, among));
        let of_numbers = self.numbers.iter().map(|number| rises(self.pool, &number.values, among));
        let (correlations, of_numbers): (Vec<f64>, Vec<f64>) = of_numbers.unzip();
        let corrected = held_to_false_discoveries(of_groups.chain(of_numbers).collect());
        let (of_groups, of_numbers) = corrected.split_at(tested.len());
        let mut apart: Vec<Apart> = Vec::new();
        for (group, probability) in tested.into_iter().zip(of_groups) {
            if *probability > FALSE_DISCOVERIES {
                continue;
            }
            if let Some(beyond_its_calls) = self.has_more(&self.groups[group].members, among) {
                apart.push(Apart { group, probability: *probability, beyond_its_calls });
            }
        }
        apart.sort_by(|a, b| b.beyond_its_calls.total_cmp(&a.beyond_its_calls));
        let rising = correlations.into_iter().zip(of_numbers).enumerate();
        let rising = rising.filter(|(_, (_, probability))| **probability <= FALSE_DISCOVERIES);
        let rising = rising.map(|(number, (correlation, probability))| Rising {
            number,
            correlation,
            probability: *probability,
        });
        (apart, rising.collect())
    }

    /// How much more of the excess of some calls those with a mark have than as many others; `None` unless it is sure to be more.
    /// Gaps may lie a little higher all over without having more of it.
    fn has_more(&self, marked: &[bool], among: &[bool]) -> Option<f64> {
        let share = self.effects.share_among(marked, among);
        let of_calls = self.effects.share_of_calls_among(marked, among);
        (share.high >= LEAST_SHARE && share.low > of_calls).then_some(share.mid - of_calls)
    }

    /// The value with the most of the excess; a finer one, such as a pod of a node, where that is all there is to it.
    fn leader(&self, candidates: &[Apart], left: &[bool]) -> Option<Apart> {
        let mut leader = *candidates.first()?;
        while let Some(finer) = self.all_there_is(&leader, candidates, left) {
            leader = finer;
        }
        Some(leader)
    }

    fn is_within(&self, finer: &Apart, coarser: &Apart) -> bool {
        let (finer, coarser) = (self.members(finer), self.members(coarser));
        finer != coarser && finer.iter().zip(coarser).all(|(finer, coarser)| !finer || *coarser)
    }

    /// The value inside a coarser one whose calls rank above the other calls of that one, while these others do not rank above
    /// calls that carry neither.
    fn all_there_is(&self, coarser: &Apart, candidates: &[Apart], left: &[bool]) -> Option<Apart> {
        let inside: Vec<Apart> =
            candidates.iter().filter(|one| self.is_within(one, coarser)).copied().collect();
        let among = and(self.members(coarser), left);
        let probabilities = self.above_the_rest(&inside, &among);
        let explains = inside.into_iter().zip(probabilities).filter(|(one, probability)| {
            let rest = without(&among, self.members(one));
            let others = without(left, self.members(one));
            *probability <= FALSE_DISCOVERIES && ranks_above(self.pool, &rest, &others) > FALSE_DISCOVERIES
        });
        explains.map(|(one, _)| one).max_by(|a, b| a.beyond_its_calls.total_cmp(&b.beyond_its_calls))
    }

    /// Probability that calls with each of these values rank this high among some by chance, corrected for all of them.
    fn above_the_rest(&self, values: &[Apart], among: &[bool]) -> Vec<f64> {
        let above = values.iter().map(|one| ranks_above(self.pool, self.members(one), among));
        held_to_false_discoveries(above.collect())
    }

    /// Followers that have something of their own, such as one pod that is slower than the others of a slow node, get a row of
    /// their own.
    fn split(&self, Row { leader, followers }: Row) -> Vec<Row> {
        let (inside, beside): (Vec<Apart>, Vec<Apart>) =
            followers.into_iter().partition(|one| self.is_within(one, &leader));
        let among = self.members(&leader);
        let probabilities = self.above_the_rest(&inside, among);
        let mut rows = vec![Row { leader, followers: Vec::new() }];
        for (one, probability) in inside.into_iter().zip(probabilities) {
            match probability <= OF_ITS_OWN {
                true => rows.push(Row { leader: one, followers: Vec::new() }),
                false => rows[0].followers.push(one),
            }
        }
        rows[0].followers.extend(beside);
        rows
    }

    fn difference(&self, one: &Apart, follows: Option<Named>) -> Difference {
        let members = self.members(one);
        let (first, same_calls) = self.groups[one.group].named(self.pool);
        Difference {
            share_of_excess: self.effects.share(members),
            share_of_calls: self.effects.share_of_calls(members),
            sampled: count(members) as u64,
            median_gap_ns: self.effects.median_ns(|call| members[call]),
            median_gap_without_ns: self.effects.median_ns(|call| !members[call]),
            probability: one.probability,
            same_calls,
            attribute: first.attribute,
            value: first.value,
            follows,
        }
    }
}

impl Row {
    /// What is shown of it, the value that leads first.
    pub fn differences(&self, search: &Search<'_>) -> Vec<Difference> {
        let first = search.difference(&self.leader, None);
        let named = Named { attribute: first.attribute.clone(), value: first.value.clone() };
        let followers = self.followers.iter().take(FOLLOWING);
        let followers = followers.map(|one| search.difference(one, Some(named.clone())));
        std::iter::once(first).chain(followers).collect()
    }
}
