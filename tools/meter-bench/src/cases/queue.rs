//! A simulation of cores that walk requests and visit shards, for machines with more cores than this one. It knows the locks and
//! nothing else: neither caches nor memory bandwidth, which take their part on real machines.

use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// What a span costs, microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Costs {
    /// Outside any lock.
    pub free_us: f64,
    /// In a shard.
    pub locked_us: f64,
}

/// Spans in a request.
const BATCH: f64 = 512.0;
/// Requests that each core takes in.
const REQUESTS: usize = 400;
/// Time to wake a thread that was blocked.
const WAKE_US: f64 = 5.0;

#[derive(Default)]
struct Shard {
    is_held: bool,
    waiting: VecDeque<usize>,
}

struct Core {
    requests: usize,
    /// Shards that the present request has yet to visit.
    left: Vec<usize>,
    holds: Option<usize>,
}

/// How many times as much as one core and one shard these take in, if they do nothing else.
pub fn speedup(costs: Costs, cores: usize, shards: usize) -> f64 {
    let mut rng = numbers(0x5ba9);
    let mut states: Vec<Shard> = (0..shards).map(|_| Shard::default()).collect();
    let mut all: Vec<Core> =
        (0..cores).map(|_| Core { requests: 0, left: Vec::new(), holds: None }).collect();
    // Nanoseconds, so that events have an order.
    let ns = |us: f64| (us * 1e3) as u64;
    let mut events: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    let walk = |rng: &mut dyn FnMut() -> f64| ns(BATCH * costs.free_us * (0.8 + 0.4 * rng()));
    let visit =
        |rng: &mut dyn FnMut() -> f64| ns(BATCH * costs.locked_us / shards as f64 * (0.8 + 0.4 * rng()));
    (0..cores).for_each(|core| events.push(Reverse((walk(&mut rng), core))));
    let (mut done, mut now) = (0usize, 0);
    while done < cores * REQUESTS {
        let Some(Reverse((at, number))) = events.pop() else { break };
        now = at;
        // The core has walked a request, or has finished a visit.
        match all[number].holds.take() {
            None => all[number].left = (0..shards).collect(),
            Some(shard) => {
                states[shard].is_held = false;
                if let Some(next) = states[shard].waiting.pop_front() {
                    states[shard].is_held = true;
                    all[next].holds = Some(shard);
                    events.push(Reverse((now + ns(WAKE_US) + visit(&mut rng), next)));
                }
            }
        }
        let core = &mut all[number];
        let free = core.left.iter().position(|shard| !states[*shard].is_held);
        match (free, core.left.is_empty()) {
            (Some(at), _) => {
                let shard = core.left.swap_remove(at);
                states[shard].is_held = true;
                core.holds = Some(shard);
                events.push(Reverse((now + visit(&mut rng), number)));
            }
            (None, false) => {
                let shard = core.left.swap_remove(0);
                states[shard].waiting.push_back(number);
            }
            (None, true) => {
                core.requests += 1;
                done += 1;
                events.push(Reverse((now + walk(&mut rng), number)));
            }
        }
    }
    let alone_us = BATCH * (costs.free_us + costs.locked_us);
    done as f64 * alone_us * 1e3 / now.max(1) as f64
}

/// Numbers from 0 to 1.
fn numbers(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_gain_what_the_lock_leaves_them() {
        let costs = Costs { free_us: 0.2, locked_us: 0.2 };
        assert!((speedup(costs, 1, 1) - 1.0).abs() < 0.02);
        // Half of the work is under one lock: twice as much is the most that any number of cores can do.
        let many = speedup(costs, 16, 1);
        assert!((1.5..=2.05).contains(&many), "{many}");
        let sharded = speedup(costs, 16, 32);
        assert!((13.0..=16.1).contains(&sharded), "{sharded}");
        // With nothing under a lock, all cores count.
        let free = speedup(Costs { free_us: 0.4, locked_us: 0.0 }, 4, 1);
        assert!((3.9..=4.1).contains(&free), "{free}");
    }
}
