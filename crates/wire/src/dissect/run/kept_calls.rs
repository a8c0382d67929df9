//! Selects the calls to keep: the slowest, and in addition some drawn at random from all others.
//!
//! The slowest are not a sample: what they have in common may be common to all calls. A call that does not stay
//! among the slowest draws a number, and those with the lowest numbers stay. The number derives from the ids that
//! the call carries, so that all attempts of a call stay or go together, and the same captures give the same
//! sample.

use crate::dissect::unsettled::UnsettledCall;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A kept call. Among equally long ones, the first comes first.
pub(in crate::dissect) struct KeptCall {
    pub duration_ns: u64,
    /// Whether it got no response: among equally long calls, these come first.
    pub unanswered: bool,
    order: Reverse<u64>,
    pub call: UnsettledCall,
}

impl KeptCall {
    fn weight(&self) -> (u64, bool, Reverse<u64>) {
        (self.duration_ns, self.unanswered, self.order)
    }
}

impl PartialEq for KeptCall {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for KeptCall {}

impl PartialOrd for KeptCall {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for KeptCall {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.weight().cmp(&other.weight())
    }
}

/// A call of the sample, with the largest number on top of the heap.
struct Drawn {
    number: u64,
    kept: KeptCall,
}

impl PartialEq for Drawn {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Drawn {}

impl PartialOrd for Drawn {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Drawn {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.number, self.kept.order).cmp(&(other.number, other.kept.order))
    }
}

/// The slowest calls, and a sample of the others.
#[derive(Default)]
pub(in crate::dissect) struct Keeper {
    slowest: BinaryHeap<Reverse<KeptCall>>,
    sample: BinaryHeap<Drawn>,
    most_slow: usize,
    most_drawn: usize,
}

impl Keeper {
    /// Keeps this many of the slowest calls, and this many of the others.
    pub fn new(slowest: usize, sample: usize) -> Keeper {
        Keeper { most_slow: slowest, most_drawn: sample, ..Keeper::default() }
    }

    /// Offers a call with its duration, whether it got no response, and its overall number. Returns the call that
    /// is dropped, this one or another.
    pub fn offer(
        &mut self,
        call: UnsettledCall,
        (duration_ns, unanswered): (u64, bool),
        number: u64,
    ) -> Option<UnsettledCall> {
        let kept = KeptCall { duration_ns, unanswered, order: Reverse(number), call };
        if self.slowest.len() < self.most_slow {
            self.slowest.push(Reverse(kept));
            return None;
        }
        let weight = (duration_ns, unanswered);
        let is_slower = |least: &Reverse<KeptCall>| (least.0.duration_ns, least.0.unanswered) < weight;
        if !self.slowest.peek().is_some_and(is_slower) {
            return self.draw(kept);
        }
        let least = self.slowest.pop();
        self.slowest.push(Reverse(kept));
        least.and_then(|Reverse(least)| self.draw(least))
    }

    fn draw(&mut self, kept: KeptCall) -> Option<UnsettledCall> {
        if self.most_drawn == 0 {
            return Some(kept.call);
        }
        let number = number(&kept);
        let mut out = None;
        if self.sample.len() >= self.most_drawn {
            if self.sample.peek().is_some_and(|largest| largest.number <= number) {
                return Some(kept.call);
            }
            out = self.sample.pop().map(|drawn| drawn.kept.call);
        }
        self.sample.push(Drawn { number, kept });
        out
    }

    /// Merges the calls of another keeper, as if they had been offered here.
    pub fn add(&mut self, other: Keeper) {
        let Keeper { slowest, sample, .. } = other;
        for Reverse(kept) in slowest {
            self.slowest.push(Reverse(kept));
            if self.slowest.len() > self.most_slow
                && let Some(Reverse(least)) = self.slowest.pop()
            {
                self.draw(least);
            }
        }
        for drawn in sample {
            self.draw(drawn.kept);
        }
    }

    /// The slowest, slowest first; then the sample, slowest first.
    pub fn take(&mut self) -> (Vec<KeptCall>, Vec<KeptCall>) {
        let slowest = std::mem::take(&mut self.slowest).into_sorted_vec();
        let slowest = slowest.into_iter().map(|Reverse(kept)| kept).collect();
        let mut sample: Vec<KeptCall> =
            std::mem::take(&mut self.sample).into_iter().map(|drawn| drawn.kept).collect();
        sample.sort_by(|one, other| other.cmp(one));
        (slowest, sample)
    }
}

/// The number that a call draws: from its ids, or from its overall number if it carries none.
fn number(kept: &KeptCall) -> u64 {
    let trace = kept.call.halves.exchanges.iter().flatten().find_map(|half| half.trace);
    match trace {
        Some(trace) => {
            let whole = u128::from_be_bytes(trace.trace_id);
            mixed((whole >> 64) as u64 ^ mixed(whole as u64 ^ mixed(u64::from_be_bytes(trace.span_id))))
        }
        None => mixed(kept.order.0 ^ mixed(kept.call.section as u64)),
    }
}

/// The last step of SplitMix64 (Steele, Lea and Flood, 2014), which makes each bit depend on all.
fn mixed(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Halves;
    use proptest::prelude::*;

    fn call() -> UnsettledCall {
        let halves = Box::<Halves>::default();
        UnsettledCall { section: 0, link: 0, ends: None, halves, findings: Vec::new(), hops: Vec::new() }
    }

    fn kept(durations: &[u64], slowest: usize, sample: usize, split: usize) -> (Vec<u64>, Vec<u64>) {
        let mut keepers = [Keeper::new(slowest, sample), Keeper::new(slowest, sample)];
        for (number, duration) in (0..).zip(durations) {
            keepers[usize::from(number as usize >= split)].offer(call(), (*duration, false), number);
        }
        let [mut one, other] = keepers;
        one.add(other);
        let (slow, drawn) = one.take();
        let numbers = |of: Vec<KeptCall>| of.into_iter().map(|kept| kept.order.0).collect();
        (numbers(slow), numbers(drawn))
    }

    proptest! {
        #[test]
        fn the_slowest_stay_and_the_sample_comes_from_the_others(
            durations in prop::collection::vec(0_u64..50, 0..200), slowest in 0_usize..20, sample in 0_usize..20,
            split in 0_usize..200,
        ) {
            let (slow, drawn) = kept(&durations, slowest, sample, split);
            let mut order: Vec<u64> = (0..durations.len() as u64).collect();
            order.sort_by_key(|number| (Reverse(durations[*number as usize]), *number));
            let (first, rest) = order.split_at(slowest.min(order.len()));
            prop_assert_eq!(&slow[..], first);
            // Of the others, those with the lowest numbers.
            let mut rest = rest.to_vec();
            rest.sort_by_key(|number| mixed(number ^ mixed(0)));
            let mut least = rest[..sample.min(rest.len())].to_vec();
            let mut drawn = drawn;
            least.sort_unstable();
            drawn.sort_unstable();
            prop_assert_eq!(drawn, least);
        }
    }

    #[test]
    fn a_sample_is_representative_of_quick_and_slow_calls() {
        // One call in ten takes long; calls arrive in order of time, as in a capture.
        let durations: Vec<u64> = (0..20_000).map(|n| if n % 10 == 0 { 100 } else { 1 }).collect();
        let (_, drawn) = kept(&durations, 50, 1_000, 20_000);
        let slow = drawn.iter().filter(|n| durations[**n as usize] == 100).count();
        assert!((60..=140).contains(&slow), "{slow} of 1,000");
        let late = drawn.iter().filter(|n| **n >= 10_000).count();
        assert!((420..=580).contains(&late), "{late} of 1,000 in the second half");
    }
}
