//! A simulation of cores that walk requests, take a lane and visit shards, for machines with more cores than this one. It knows the
//! locks and nothing else: neither caches nor memory bandwidth, which take their part on real machines.

use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// What a span costs, microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Costs {
    /// Outside any lock.
    pub free_us: f64,
    /// In a lane and a shard.
    pub locked_us: f64,
}

/// Spans in a request.
const BATCH: f64 = 512.0;
/// Requests that each core takes in.
const REQUESTS: usize = 400;
/// Time to wake a thread that was blocked.
const WAKE_US: f64 = 5.0;
/// Shards for each lane of several.
const PER_LANE: usize = 2;

#[derive(Default)]
struct Shard {
    is_held: bool,
    waiting: VecDeque<usize>,
}

/// What a core does until its next event.
#[derive(Clone, Copy, PartialEq)]
enum Doing {
    Walking,
    Waking,
    Visiting(usize),
}

struct Core {
    doing: Doing,
    /// Shards that the present request has yet to visit.
    left: Vec<usize>,
}

struct Machine {
    cores: Vec<Core>,
    shards: Vec<Shard>,
    free_lanes: usize,
    waiting: VecDeque<usize>,
    /// When each core's doing ends, in nanoseconds.
    events: BinaryHeap<Reverse<(u64, usize)>>,
    costs: Costs,
    random: u64,
}

/// How many times as much as one core with one lane these cores take in, if they do nothing else.
pub fn speedup(costs: Costs, cores: usize, lanes: usize) -> f64 {
    let shards = if lanes == 1 { 1 } else { lanes * PER_LANE };
    let mut machine = Machine {
        cores: (0..cores).map(|_| Core { doing: Doing::Walking, left: Vec::new() }).collect(),
        shards: (0..shards).map(|_| Shard::default()).collect(),
        free_lanes: lanes,
        waiting: VecDeque::new(),
        events: BinaryHeap::new(),
        costs,
        random: 0x5ba9,
    };
    (0..cores).for_each(|core| machine.walk(0, core));
    let (mut done, mut now_ns) = (0, 0);
    while done < cores * REQUESTS {
        let Some(Reverse((at_ns, core))) = machine.events.pop() else { break };
        now_ns = at_ns;
        done += usize::from(machine.step(at_ns, core));
    }
    done as f64 * BATCH * (costs.free_us + costs.locked_us) * 1e3 / now_ns.max(1) as f64
}

impl Machine {
    /// One request differs from another by a fifth.
    fn begin(&mut self, now_ns: u64, core: usize, doing: Doing, us: f64) {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let varied = 0.8 + 0.4 * (self.random >> 11) as f64 / (1u64 << 53) as f64;
        self.cores[core].doing = doing;
        self.events.push(Reverse((now_ns + (us * varied * 1e3) as u64, core)));
    }

    fn walk(&mut self, now_ns: u64, core: usize) {
        self.begin(now_ns, core, Doing::Walking, BATCH * self.costs.free_us);
    }

    fn visit(&mut self, now_ns: u64, core: usize, shard: usize, wake_us: f64) {
        self.shards[shard].is_held = true;
        let us = BATCH * self.costs.locked_us / self.shards.len() as f64;
        self.begin(now_ns, core, Doing::Visiting(shard), us + wake_us);
    }

    /// Ends what a core does; true if that was the end of a request.
    fn step(&mut self, now_ns: u64, core: usize) -> bool {
        match self.cores[core].doing {
            Doing::Walking if self.free_lanes == 0 => {
                self.waiting.push_back(core);
                return false;
            }
            Doing::Walking => {
                self.free_lanes -= 1;
                self.cores[core].left = (0..self.shards.len()).collect();
            }
            Doing::Waking => self.cores[core].left = (0..self.shards.len()).collect(),
            Doing::Visiting(shard) => {
                self.shards[shard].is_held = false;
                if let Some(next) = self.shards[shard].waiting.pop_front() {
                    self.visit(now_ns, next, shard, WAKE_US);
                }
            }
        }
        self.go_on(now_ns, core)
    }

    fn go_on(&mut self, now_ns: u64, core: usize) -> bool {
        let left = &mut self.cores[core].left;
        if let Some(at) = left.iter().position(|shard| !self.shards[*shard].is_held) {
            let shard = left.swap_remove(at);
            self.visit(now_ns, core, shard, 0.0);
        } else if !left.is_empty() {
            let shard = left.swap_remove(0);
            self.shards[shard].waiting.push_back(core);
        } else {
            match self.waiting.pop_front() {
                Some(next) => self.begin(now_ns, next, Doing::Waking, WAKE_US),
                None => self.free_lanes += 1,
            }
            self.walk(now_ns, core);
            return true;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_gain_what_the_locks_leave_them() {
        let costs = Costs { free_us: 0.2, locked_us: 0.2 };
        assert!((speedup(costs, 1, 1) - 1.0).abs() < 0.02);
        // Half of the work is in a lane: twice as much is the most that any number of cores can do in one.
        let many = speedup(costs, 16, 1);
        assert!((1.5..=2.05).contains(&many), "{many}");
        let eight = speedup(costs, 16, 8);
        assert!((11.0..=16.1).contains(&eight), "{eight}");
        // With nothing in a lane, all cores count.
        let free = speedup(Costs { free_us: 0.4, locked_us: 0.0 }, 4, 4);
        assert!((3.9..=4.1).contains(&free), "{free}");
    }
}
