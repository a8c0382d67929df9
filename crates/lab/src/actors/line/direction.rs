//! One direction of a line: which packet leaves when. Pure arithmetic; the caller passes the time.

use super::packet::{Tcp, tcp};
use super::way::{Count, Shape, Way};
use serde::{Deserialize, Serialize};
use std::collections::{BinaryHeap, VecDeque};
use std::net::SocketAddr;

/// Maximum number of packets in transit, whatever the flags say.
pub const MOST_PACKETS: usize = 16_384;
/// Maximum number of bytes in transit.
pub const MOST_BYTES: usize = 64 << 20;
/// Maximum time that a packet to be swapped waits for its successor.
const SWAP_PATIENCE_NS: u64 = 20_000_000;
/// Number of lost packets remembered until they are retransmitted.
const MOST_LOST: usize = 64;
/// An exponential jitter is truncated at this multiple of its mean.
const EXPONENTIAL_CUT: f64 = 20.0;

/// Fate of a packet, other than the constant delay alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "what")]
pub enum Fate {
    /// Lost.
    Dropped {
        /// Its number among the counted packets, if it is counted.
        number: u64,
        /// Reason.
        because: Loss,
    },
    /// Delayed beyond the constant delay.
    Delayed {
        /// Its number among the counted packets, or 0.
        number: u64,
        /// Additional delay.
        by_ns: u64,
    },
    /// Duplicated.
    Twice { number: u64 },
    /// Swapped with its successor.
    Swapped { number: u64 },
    /// Retransmission of a lost packet.
    Again {
        /// Time since the loss (the first one, if there were several).
        after_ns: u64,
    },
}

/// Reason of a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// Its number was listed.
    Named,
    /// Its connection is black-holed.
    Hole,
    /// It exceeds the maximum size.
    TooLarge,
    /// Random loss.
    Chance,
    /// The rate's queue was full.
    Queue,
    /// The line was full.
    Full,
}

/// Number of packets by fate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// Packets that entered the line.
    pub received: u64,
    /// Of these, packets that lists and chance apply to.
    pub counted: u64,
    /// Packets that left the line, including duplicates.
    pub passed: u64,
    /// Lost because their number was listed.
    pub dropped_named: u64,
    /// Lost with their connection.
    pub dropped_hole: u64,
    /// Lost because they were too large.
    pub dropped_too_large: u64,
    /// Lost at random.
    pub dropped_chance: u64,
    /// Lost because the rate's queue was full.
    pub dropped_queue: u64,
    /// Lost because the line was full.
    pub dropped_full: u64,
    /// Duplicated.
    pub twice: u64,
    /// Swapped with their successor.
    pub swapped: u64,
    /// Delayed beyond the constant delay.
    pub delayed: u64,
    /// Retransmissions of lost packets.
    pub again: u64,
    /// In transit at the end.
    pub left: u64,
}

/// A packet to leave the line.
#[derive(Debug, PartialEq, Eq)]
pub struct Packet {
    pub due_ns: u64,
    order: u64,
    /// Whole packet.
    pub bytes: Box<[u8]>,
}

/// The heap has its largest element on top: the packet due first, and among equals the one that arrived first.
impl Ord for Packet {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.due_ns, other.order).cmp(&(self.due_ns, self.order))
    }
}

impl PartialOrd for Packet {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// One direction.
pub struct Direction {
    way: Way,
    /// One random generator per purpose, so that another jitter loses the same packets.
    losing: fastrand::Rng,
    jittering: fastrand::Rng,
    /// No packet leaves before this.
    behind_ns: u64,
    /// Due time of the last packet.
    last_due_ns: u64,
    /// Time at which the rate has passed all queued packets.
    free_ns: u64,
    /// Waits for its successor.
    swapped: Option<Packet>,
    waiting: BinaryHeap<Packet>,
    waiting_bytes: usize,
    order: u64,
    lost: VecDeque<(Tcp, u64)>,
    /// Black-holed connections, by their addresses.
    holes: Vec<(SocketAddr, SocketAddr)>,
    counts: Counts,
}

impl Direction {
    /// A direction without traffic so far.
    pub fn new(way: Way, seed: u64) -> Direction {
        let mut chance = fastrand::Rng::with_seed(seed);
        Direction {
            way,
            losing: chance.fork(),
            jittering: chance.fork(),
            behind_ns: 0,
            last_due_ns: 0,
            free_ns: 0,
            swapped: None,
            waiting: BinaryHeap::new(),
            waiting_bytes: 0,
            order: 0,
            lost: VecDeque::new(),
            holes: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// Processes an arriving packet. Reports its fate, if it is anything but the constant delay.
    pub fn arrived(&mut self, now_ns: u64, bytes: &[u8], mut say: impl FnMut(Option<Tcp>, Fate)) {
        self.counts.received += 1;
        let tcp = tcp(bytes);
        let number = self.number(tcp.as_ref());
        if let Some(because) = self.loses(now_ns, number, bytes.len(), tcp.as_ref()) {
            *match because {
                Loss::Named => &mut self.counts.dropped_named,
                Loss::Hole => &mut self.counts.dropped_hole,
                Loss::TooLarge => &mut self.counts.dropped_too_large,
                Loss::Chance => &mut self.counts.dropped_chance,
                Loss::Queue => &mut self.counts.dropped_queue,
                Loss::Full => &mut self.counts.dropped_full,
            } += 1;
            if let Some(tcp) = tcp {
                self.remember(tcp, now_ns);
            }
            return say(tcp, Fate::Dropped { number, because });
        }
        if let Some(after_ns) = tcp.and_then(|tcp| self.sent_again(&tcp, now_ns)) {
            self.counts.again += 1;
            say(tcp, Fate::Again { after_ns });
        }
        let due_ns = self.due_ns(now_ns, number, bytes.len());
        let by_ns = due_ns - now_ns - ns(self.way.delay);
        if by_ns > 0 {
            self.counts.delayed += 1;
            say(tcp, Fate::Delayed { number, by_ns });
        }
        if self.swapped.is_none() && named(&self.way.swap, number) {
            self.counts.swapped += 1;
            say(tcp, Fate::Swapped { number });
            self.swapped = Some(self.packet(due_ns.saturating_add(SWAP_PATIENCE_NS), bytes));
            return;
        }
        let copies = if named(&self.way.twice, number) { 2 } else { 1 };
        for _ in 0..copies {
            let packet = self.packet(due_ns, bytes);
            self.waiting.push(packet);
        }
        if copies == 2 {
            self.counts.twice += 1;
            say(tcp, Fate::Twice { number });
        }
        if let Some(swapped) = self.swapped.take() {
            let order = self.next_order();
            self.waiting.push(Packet { due_ns, order, ..swapped });
        }
    }

    /// Due time of the next packet.
    pub fn next_due_ns(&self) -> Option<u64> {
        let swapped = self.swapped.as_ref().map(|packet| packet.due_ns);
        let waiting = self.waiting.peek().map(|packet| packet.due_ns);
        swapped.into_iter().chain(waiting).min()
    }

    /// The next packet due by now.
    pub fn release(&mut self, now_ns: u64) -> Option<Packet> {
        if self.swapped.as_ref().is_some_and(|packet| packet.due_ns <= now_ns) {
            self.waiting.extend(self.swapped.take());
        }
        if self.waiting.peek()?.due_ns > now_ns {
            return None;
        }
        let packet = self.waiting.pop()?;
        self.waiting_bytes -= packet.bytes.len();
        self.counts.passed += 1;
        Some(packet)
    }

    /// Number of packets by fate so far.
    pub fn counts(&self) -> Counts {
        Counts { left: (self.waiting.len() + usize::from(self.swapped.is_some())) as u64, ..self.counts }
    }

    /// Its number in lists; 0 for a packet that is not counted.
    fn number(&mut self, tcp: Option<&Tcp>) -> u64 {
        let bounds = self.way.least_bytes..=self.way.most_bytes;
        let counts = tcp.is_some_and(|tcp| match self.way.count {
            Count::Payload => bounds.contains(&tcp.payload_bytes.into()),
            Count::Syn => tcp.syn,
        });
        if !counts {
            return 0;
        }
        self.counts.counted += 1;
        self.counts.counted
    }

    fn loses(&mut self, now_ns: u64, number: u64, bytes: usize, tcp: Option<&Tcp>) -> Option<Loss> {
        // Drawn for every counted packet, so that lists do not shift the random losses.
        let unlucky = number > 0 && self.losing.f64() < self.way.loss;
        // Two draws, for a possible duplicate.
        let packets = self.waiting.len() + usize::from(self.swapped.is_some()) + 2;
        if self.is_in_hole(number, tcp) {
            Some(Loss::Hole)
        } else if bytes as u64 > self.way.largest_bytes {
            Some(Loss::TooLarge)
        } else if named(&self.way.drop, number) {
            Some(Loss::Named)
        } else if unlucky {
            Some(Loss::Chance)
        } else if packets > MOST_PACKETS || self.waiting_bytes + 2 * bytes > MOST_BYTES {
            Some(Loss::Full)
        } else {
            let rate = self.way.rate_bytes_per_s?;
            let queued = u128::from(self.free_ns.saturating_sub(now_ns)) * u128::from(rate) / 1_000_000_000;
            (queued + bytes as u128 > u128::from(self.way.queue_bytes)).then_some(Loss::Queue)
        }
    }

    fn is_in_hole(&mut self, number: u64, tcp: Option<&Tcp>) -> bool {
        let Some(ends) = tcp.map(|tcp| (tcp.source, tcp.destination)) else { return false };
        if named(&self.way.hole, number) && !self.holes.contains(&ends) {
            self.holes.push(ends);
        }
        self.holes.contains(&ends)
    }

    fn due_ns(&mut self, now_ns: u64, number: u64, bytes: usize) -> u64 {
        let mut due_ns = now_ns;
        if let Some(rate) = self.way.rate_bytes_per_s {
            let takes = (bytes as u128 * 1_000_000_000).div_ceil(rate.into());
            self.free_ns = self.free_ns.max(now_ns).saturating_add(u64::try_from(takes).unwrap_or(u64::MAX));
            due_ns = self.free_ns;
        }
        due_ns = due_ns.saturating_add(ns(self.way.delay)).saturating_add(self.jitter_ns());
        let spike = self.way.spike_every > 0 && number > 0 && number.is_multiple_of(self.way.spike_every);
        let late = named(&self.way.late, number);
        if spike || late {
            let by = if spike { ns(self.way.spike) } else { 0 } + if late { ns(self.way.late_by) } else { 0 };
            self.behind_ns = self.behind_ns.max(due_ns.saturating_add(by));
        }
        due_ns = due_ns.max(self.behind_ns);
        if !self.way.overtake {
            due_ns = due_ns.max(self.last_due_ns);
        }
        self.last_due_ns = self.last_due_ns.max(due_ns);
        match ns(self.way.clump) {
            0 => due_ns,
            clump => (due_ns / clump).saturating_add(1).saturating_mul(clump),
        }
    }

    fn jitter_ns(&mut self) -> u64 {
        let jitter = self.way.jitter.as_nanos() as f64;
        if jitter == 0.0 {
            return 0;
        }
        let share = self.jittering.f64();
        let longer = match self.way.shape {
            Shape::Uniform => share,
            Shape::Exponential => (-(1.0 - share).ln()).min(EXPONENTIAL_CUT),
        };
        (jitter * longer) as u64
    }

    fn packet(&mut self, due_ns: u64, bytes: &[u8]) -> Packet {
        self.waiting_bytes += bytes.len();
        Packet { due_ns, order: self.next_order(), bytes: bytes.into() }
    }

    fn next_order(&mut self) -> u64 {
        self.order += 1;
        self.order
    }

    fn remember(&mut self, tcp: Tcp, now_ns: u64) {
        // Lost again: the time of the first loss counts.
        if self.lost.iter().any(|(lost, _)| tcp.covers(lost)) {
            return;
        }
        if self.lost.len() == MOST_LOST {
            self.lost.pop_front();
        }
        self.lost.push_back((tcp, now_ns));
    }

    fn sent_again(&mut self, tcp: &Tcp, now_ns: u64) -> Option<u64> {
        let at = self.lost.iter().position(|(lost, _)| tcp.covers(lost))?;
        self.lost.remove(at).map(|(_, lost_ns)| now_ns.saturating_sub(lost_ns))
    }
}

fn ns(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Whether a list contains a number; none contains 0.
fn named(list: &[u64], number: u64) -> bool {
    list.binary_search(&number).is_ok()
}

#[cfg(test)]
mod tests;
