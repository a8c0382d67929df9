//! The byte budget of requests in progress. Bytes are charged when they arrive, not when they are announced,
//! and a slow sender loses its share as soon as another one needs it.

use super::places::Peer;
use super::refusal::Refusal;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Overhead of a request besides its body: its task, its head, its stream.
const REQUEST_BYTES: u64 = 4 << 10;

/// The budget, and the shares in it.
#[derive(Debug)]
pub struct Admission {
    shares: Mutex<Shares>,
    limit: u64,
    slow_after: Duration,
    /// Requests dropped while still arriving, because others needed their room.
    pub displaced: AtomicU64,
    /// Requests that missed their deadlines.
    pub too_slow: AtomicU64,
}

/// The next request to drop is always known: finding it must not take longer the more requests there are.
#[derive(Debug, Default)]
struct Shares {
    bytes: u64,
    requests: FxHashMap<u64, Request>,
    next: u64,
    /// Requests still arriving that were not slow at the last check. The oldest has the smallest number.
    young: BTreeSet<u64>,
    slow: FxHashMap<Peer, Slow>,
    /// The peers in `slow`, ordered by bytes.
    heaviest: BTreeSet<(u64, Peer)>,
}

/// The slow requests of a peer.
#[derive(Debug, Default)]
struct Slow {
    bytes: u64,
    requests: BTreeSet<u64>,
}

#[derive(Debug)]
struct Request {
    peer: Peer,
    begun: Instant,
    bytes: u64,
    stage: Stage,
    dropped: Arc<Notify>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Young,
    /// Arriving for so long that it may be dropped in favour of another one.
    Slow,
    Whole,
}

impl Admission {
    /// A budget of `limit` bytes. A request that has been arriving for `slow_after` may be dropped in favour
    /// of another one.
    pub fn new(limit: u64, slow_after: Duration) -> Arc<Admission> {
        Arc::new(Admission {
            shares: Mutex::default(),
            limit,
            slow_after,
            displaced: AtomicU64::new(0),
            too_slow: AtomicU64::new(0),
        })
    }

    /// Bytes of requests in progress.
    pub fn bytes(&self) -> u64 {
        self.shares().bytes
    }

    /// The budget in bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    fn shares(&self) -> MutexGuard<'_, Shares> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A share for a request of this peer, which charges only the overhead so far.
    ///
    /// # Errors
    /// [`Refusal::Overloaded`] when there is no room.
    pub fn permit(self: &Arc<Self>, peer: Peer) -> Result<Permit, Refusal> {
        let dropped = Arc::new(Notify::new());
        let mut shares = self.shares();
        let id = shares.next;
        shares.next += 1;
        // The time is read under the lock, so that a larger number never means an older request.
        let request =
            Request { peer, begun: Instant::now(), bytes: 0, stage: Stage::Young, dropped: dropped.clone() };
        shares.requests.insert(id, request);
        shares.young.insert(id);
        drop(shares);
        let mut permit = Permit { admission: self.clone(), id, dropped };
        permit.grow(REQUEST_BYTES)?;
        Ok(permit)
    }
}

impl Shares {
    /// Changes the slow requests of a peer, and updates its position in the order.
    fn of_peer(&mut self, peer: Peer, change: impl FnOnce(&mut Slow)) {
        let slow = self.slow.entry(peer).or_default();
        self.heaviest.remove(&(slow.bytes, peer));
        change(slow);
        if slow.requests.is_empty() {
            self.slow.remove(&peer);
        } else {
            self.heaviest.insert((slow.bytes, peer));
        }
    }

    /// Marks requests that have become slow since the last check.
    fn age(&mut self, slow_after: Duration) {
        while let Some(&id) = self.young.first() {
            let Some(request) = self.requests.get_mut(&id) else { return };
            if request.begun.elapsed() < slow_after {
                return;
            }
            self.young.pop_first();
            request.stage = Stage::Slow;
            let (peer, bytes) = (request.peer, request.bytes);
            self.of_peer(peer, |slow| {
                slow.bytes += bytes;
                slow.requests.insert(id);
            });
        }
    }

    /// Charges bytes to a request.
    fn charge(&mut self, id: u64, bytes: u64) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        request.bytes += bytes;
        self.bytes += bytes;
        if request.stage == Stage::Slow {
            let peer = request.peer;
            self.of_peer(peer, |slow| slow.bytes += bytes);
        }
    }

    /// Marks a request as complete: it may no longer be dropped.
    fn settle(&mut self, id: u64) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        let (peer, bytes, was) = (request.peer, request.bytes, request.stage);
        request.stage = Stage::Whole;
        match was {
            Stage::Young => {
                self.young.remove(&id);
            }
            Stage::Slow => self.of_peer(peer, |slow| {
                slow.bytes -= bytes;
                slow.requests.remove(&id);
            }),
            Stage::Whole => {}
        }
    }

    /// Removes a request and its share.
    fn remove(&mut self, id: u64) -> Option<Request> {
        self.settle(id);
        let request = self.requests.remove(&id)?;
        self.bytes -= request.bytes;
        Some(request)
    }

    /// Drops one request: of the peer with the most bytes of slow requests, the one that has been arriving
    /// for the longest. False if there is none.
    fn displace_one(&mut self, but: u64, slow_after: Duration) -> bool {
        self.age(slow_after);
        let oldest_of = |(_, peer): &(u64, Peer)| {
            let mut slow = self.slow.get(peer)?.requests.iter();
            slow.find(|id| **id != but).copied()
        };
        let Some(worst) = self.heaviest.iter().rev().find_map(oldest_of) else { return false };
        if let Some(request) = self.remove(worst) {
            request.dropped.notify_one();
        }
        true
    }
}

/// A share of the budget, returned on drop.
#[derive(Debug)]
pub struct Permit {
    admission: Arc<Admission>,
    id: u64,
    dropped: Arc<Notify>,
}

impl Permit {
    /// Charges bytes that have arrived.
    ///
    /// # Errors
    /// [`Refusal::Overloaded`] when there is no room, or when this request itself was dropped.
    pub fn grow(&mut self, bytes: u64) -> Result<(), Refusal> {
        let (limit, slow_after) = (self.admission.limit, self.admission.slow_after);
        let mut shares = self.admission.shares();
        loop {
            let in_flight = shares.bytes + bytes;
            let Some(own) = shares.requests.get(&self.id) else { return Err(self.overloaded(in_flight)) };
            // A single request is always accepted, whatever its size.
            if in_flight <= limit || in_flight == own.bytes + bytes {
                shares.charge(self.id, bytes);
                return Ok(());
            }
            if !shares.displace_one(self.id, slow_after) {
                return Err(self.overloaded(in_flight));
            }
            self.admission.displaced.fetch_add(1, Relaxed);
        }
    }

    fn overloaded(&self, in_flight: u64) -> Refusal {
        Refusal::Overloaded { in_flight, limit: self.admission.limit }
    }

    /// Marks the request as complete: it keeps its share until it is done.
    ///
    /// # Errors
    /// [`Refusal::Overloaded`] when it has just been dropped.
    pub fn arrived(&mut self) -> Result<(), Refusal> {
        let mut shares = self.admission.shares();
        let in_flight = shares.bytes;
        if !shares.requests.contains_key(&self.id) {
            return Err(self.overloaded(in_flight));
        }
        shares.settle(self.id);
        Ok(())
    }

    /// Completes when the request is dropped in favour of another.
    pub async fn displaced(&self) -> Refusal {
        self.dropped.notified().await;
        self.overloaded(self.admission.bytes())
    }

    /// Counts a missed deadline.
    pub fn is_too_slow(&self) {
        self.admission.too_slow.fetch_add(1, Relaxed);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.admission.shares().remove(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::time::{ClockId, clock_gettime};

    const PEERS: [Peer; 3] =
        [Peer::of_v4([10, 0, 0, 1]), Peer::of_v4([10, 0, 0, 2]), Peer::of_v4([10, 0, 0, 3])];
    const NEVER: Duration = Duration::from_secs(86_400);

    #[test]
    fn the_budget_is_returned() {
        let admission = Admission::new(100, NEVER);
        let mut first = admission.permit(PEERS[0]).unwrap();
        assert_eq!(first.grow(150), Ok(()), "alone in the house");
        assert!(matches!(admission.permit(PEERS[0]), Err(Refusal::Overloaded { .. })));
        assert_eq!(admission.bytes(), REQUEST_BYTES + 150);
        drop(first);
        assert_eq!(admission.bytes(), 0);
    }

    #[test]
    fn the_oldest_slow_request_of_the_heaviest_peer_makes_room_and_never_a_complete_one() {
        let admission = Admission::new(100 + 5 * REQUEST_BYTES, Duration::ZERO);
        let mut whole = admission.permit(PEERS[0]).unwrap();
        whole.grow(40).unwrap();
        whole.arrived().unwrap();
        let mut of_two: Vec<Permit> = [10, 25]
            .map(|bytes| {
                let mut permit = admission.permit(PEERS[1]).unwrap();
                permit.grow(bytes).unwrap();
                permit
            })
            .into();
        let mut light = admission.permit(PEERS[2]).unwrap();
        light.grow(20).unwrap();

        let mut new = admission.permit(PEERS[2]).unwrap();
        assert_eq!(new.grow(10), Ok(()), "the first of the heaviest peer makes room");
        assert!(of_two[0].grow(1).is_err() && of_two[0].arrived().is_err());
        assert_eq!(admission.displaced.load(Relaxed), 1);
        drop(of_two.remove(0));
        assert_eq!(admission.bytes(), 40 + 25 + 20 + 10 + 4 * REQUEST_BYTES, "nothing is given back twice");
        assert_eq!(new.grow(50 + 2 * REQUEST_BYTES), Ok(()));
        assert_eq!((admission.bytes(), admission.displaced.load(Relaxed)), (100 + 4 * REQUEST_BYTES, 3));
        assert!(new.grow(1 + REQUEST_BYTES).is_err(), "what has arrived stays");
        drop((whole, of_two, light, new));
        assert_eq!(admission.bytes(), 0);
    }

    /// CPU time of this thread until now; `schedstat` has it as of the last tick.
    fn cpu_ns() -> u64 {
        let used = clock_gettime(ClockId::ThreadCPUTime);
        used.tv_sec.unsigned_abs() * 1_000_000_000 + used.tv_nsec.unsigned_abs()
    }

    /// CPU time in which 500 requests displace as many others, while `held` are in progress.
    fn cost_of_making_room(held: u64) -> u64 {
        let admission = Admission::new(held * REQUEST_BYTES, Duration::ZERO);
        let new = |i: u64| admission.permit(PEERS[i as usize % 2]).expect("there is room");
        let mut permits: Vec<Permit> = (0..held).map(new).collect();
        // Marks all that have become slow.
        permits.push(new(0));
        let before = cpu_ns();
        permits.extend((0..500).map(new));
        let cost_ns = cpu_ns() - before;
        assert_eq!((admission.bytes(), admission.displaced.load(Relaxed)), (held * REQUEST_BYTES, 501));
        drop(permits);
        let shares = admission.shares();
        assert!(shares.bytes == 0 && shares.requests.is_empty());
        assert!(shares.young.is_empty() && shares.slow.is_empty() && shares.heaviest.is_empty());
        cost_ns
    }

    /// A peer that opens thousands of streams must not make each further one more expensive.
    #[test]
    fn making_room_costs_no_more_with_forty_times_as_many_requests() {
        let least = |held| (0..3).map(|_| cost_of_making_room(held)).min().expect("three rounds");
        let (few, many) = (least(500), least(20_000));
        assert!(many < 10 * few, "{few} ns among 500 requests, {many} ns among 20,000");
    }
}
