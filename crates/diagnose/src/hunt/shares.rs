//! Shares of an excess with their intervals: a bootstrap over blocks of time, since what makes calls slow comes in clusters.

use super::Owner;
use super::account::Account;
use serde::Serialize;
use std::collections::BTreeMap;

/// Most blocks of time.
const BLOCKS: usize = 60;
/// How often they are drawn anew.
const DRAWS: usize = 200;
/// Of the draws, so much lies below an interval, and as much above it: 90 % intervals.
const TAIL: f64 = 0.05;

/// A share with its 90 % interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Share {
    /// Lower end.
    pub low: f64,
    /// As measured.
    pub mid: f64,
    /// Upper end.
    pub high: f64,
}

/// A call in one of the two groups that are compared.
pub struct Weighed<'a> {
    /// Its sheet.
    pub account: &'a Account,
    /// What it counts: above zero for a call in question, below zero for what it is compared with. The weights of either
    /// group sum to one and minus one; without a comparison all are above zero.
    pub weight: f64,
}

/// What each owner has of the difference between two groups of calls, in order of time.
pub fn shares(calls: &[Weighed<'_>]) -> BTreeMap<Owner, Share> {
    let blocks: Vec<Sum> = calls.chunks(calls.len().div_ceil(BLOCKS).max(1)).map(Sum::of).collect();
    let mid = Sum::total(blocks.iter());
    let mut drawn: BTreeMap<Owner, Vec<f64>> = BTreeMap::new();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for _ in 0..DRAWS {
        let draw = Sum::total((0..blocks.len()).map(|_| &blocks[random.below(blocks.len())]));
        for owner in mid.owners.keys() {
            drawn.entry(*owner).or_default().push(draw.share(owner));
        }
    }
    let of = |owner: &Owner| {
        let mut values = drawn.remove(owner).unwrap_or_default();
        values.sort_by(f64::total_cmp);
        let at = |quantile: f64| {
            let place = (values.len() as f64 * quantile) as usize;
            values.get(place.min(values.len().saturating_sub(1))).copied().unwrap_or(0.0)
        };
        let mid = mid.share(owner);
        Share { low: at(TAIL).min(mid), mid, high: at(1.0 - TAIL).max(mid) }
    };
    mid.owners
        .keys()
        .copied()
        .collect::<Vec<_>>()
        .into_iter()
        .map({
            let mut of = of;
            move |owner| (owner, of(&owner))
        })
        .collect()
}

/// Weighted sums of some calls.
#[derive(Clone, Default)]
struct Sum {
    owners: BTreeMap<Owner, (f64, f64)>,
    plus: f64,
    minus: f64,
}

impl Sum {
    fn of(calls: &[Weighed<'_>]) -> Sum {
        let mut sum = Sum::default();
        for call in calls {
            if call.weight >= 0.0 {
                sum.plus += call.weight
            } else {
                sum.minus -= call.weight
            }
            for (owner, ns) in call.account {
                let (plus, minus) = sum.owners.entry(*owner).or_default();
                let ns = *ns as f64 * call.weight.abs();
                if call.weight >= 0.0 { *plus += ns } else { *minus += ns }
            }
        }
        sum
    }

    fn total<'a>(blocks: impl Iterator<Item = &'a Sum>) -> Sum {
        blocks.fold(Sum::default(), |mut total, block| {
            total.plus += block.plus;
            total.minus += block.minus;
            for (owner, (plus, minus)) in &block.owners {
                let sum = total.owners.entry(*owner).or_default();
                sum.0 += plus;
                sum.1 += minus;
            }
            total
        })
    }

    /// Mean of the one group minus mean of the other.
    fn excess(&self, of: (f64, f64)) -> f64 {
        let mean = |sum: f64, weight: f64| if weight > 0.0 { sum / weight } else { 0.0 };
        mean(of.0, self.plus) - mean(of.1, self.minus)
    }

    fn share(&self, owner: &Owner) -> f64 {
        let all: f64 = self.owners.values().map(|of| self.excess(*of)).sum();
        let of = self.owners.get(owner).map_or(0.0, |of| self.excess(*of));
        if all > 0.0 { of / all } else { 0.0 }
    }
}

/// SplitMix64 (Steele, Lea and Flood, 2014): the same evidence gets the same intervals.
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % most.max(1) as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spangap_model::{Cause, Culprit, Leg, Legs};

    #[test]
    fn what_both_groups_have_explains_nothing() {
        let lost = Owner::Culprit(Culprit::of(Cause::Rto));
        let served = Owner::Place(Legs::one(Leg::ServerApp));
        let slow: Account = [(lost, 200), (served, 100)].into();
        let ordinary: Account = [(served, 100)].into();
        let calls: Vec<Weighed<'_>> = (0..100)
            .map(|n| match n % 2 {
                0 => Weighed { account: &slow, weight: 1.0 },
                _ => Weighed { account: &ordinary, weight: -1.0 },
            })
            .collect();
        let shares = shares(&calls);
        assert!((shares[&lost].mid - 1.0).abs() < 1e-9 && shares[&lost].low > 0.99, "{shares:?}");
        assert!(shares[&served].mid.abs() < 1e-9);
    }

    #[test]
    fn one_cluster_makes_a_wide_interval() {
        let lost = Owner::Culprit(Culprit::of(Cause::Rto));
        let place = Owner::Place(Legs::one(Leg::RequestWire));
        let (hit, not): (Account, Account) = ([(lost, 1_000)].into(), [(place, 100)].into());
        let calls: Vec<Weighed<'_>> =
            (0..600).map(|n| Weighed { account: if n < 60 { &hit } else { &not }, weight: 1.0 }).collect();
        let share = shares(&calls)[&lost];
        assert!(share.low < share.mid && share.mid < share.high && share.high - share.low > 0.1, "{share:?}");
    }
}
