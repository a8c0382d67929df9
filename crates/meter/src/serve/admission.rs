//! The byte budget of requests in progress. It is charged for bytes that have arrived, not for bytes announced, and a
//! slow sender loses its share as soon as another one needs it.

use super::places::Peer;
use super::refusal::Refusal;
use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// What a request weighs besides its body: its task, its head, its stream.
const REQUEST_BYTES: u64 = 4 << 10;

/// The budget, and who holds how much of it.
#[derive(Debug)]
pub struct Admission {
    shares: Mutex<Shares>,
    limit: u64,
    slow_after: Duration,
    /// Requests that were dropped while they were still arriving, because others needed their room.
    pub displaced: AtomicU64,
    /// Requests that did not arrive within their deadlines.
    pub too_slow: AtomicU64,
}

#[derive(Debug, Default)]
struct Shares {
    bytes: u64,
    requests: FxHashMap<u64, Request>,
    next: u64,
}

#[derive(Debug)]
struct Request {
    peer: Peer,
    begun: Instant,
    bytes: u64,
    /// Still arriving: it may be dropped.
    arriving: bool,
    dropped: Arc<Notify>,
}

impl Admission {
    /// A budget of `limit` bytes. A request that has been arriving for `slow_after` may be dropped for another one.
    pub fn new(limit: u64, slow_after: Duration) -> Arc<Admission> {
        Arc::new(Admission {
            shares: Mutex::default(),
            limit,
            slow_after,
            displaced: AtomicU64::new(0),
            too_slow: AtomicU64::new(0),
        })
    }

    /// Bytes of requests in hand.
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

    /// A share for a request of this peer, with nothing in it yet but the request itself.
    ///
    /// # Errors
    /// [`Refusal::Overloaded`] when there is no room.
    pub fn permit(self: &Arc<Self>, peer: Peer) -> Result<Permit, Refusal> {
        let dropped = Arc::new(Notify::new());
        let begun = Instant::now();
        let mut shares = self.shares();
        let id = shares.next;
        shares.next += 1;
        shares
            .requests
            .insert(id, Request { peer, begun, bytes: 0, arriving: true, dropped: dropped.clone() });
        drop(shares);
        let mut permit = Permit { admission: self.clone(), id, dropped };
        permit.grow(REQUEST_BYTES)?;
        Ok(permit)
    }
}

impl Shares {
    /// Takes the share of the one request that can best be done without: of the peer with the most bytes of slow
    /// requests, the one that has been arriving for the longest. False when there is none.
    fn displace_one(&mut self, but: u64, slow_after: Duration) -> bool {
        let slow = |(id, request): &(&u64, &Request)| {
            **id != but && request.arriving && request.bytes > 0 && request.begun.elapsed() >= slow_after
        };
        let mut by_peer = FxHashMap::<Peer, u64>::default();
        for (_, request) in self.requests.iter().filter(slow) {
            *by_peer.entry(request.peer).or_default() += request.bytes;
        }
        let rank = |request: &Request| (by_peer[&request.peer], std::cmp::Reverse(request.begun));
        let worst = self.requests.iter().filter(slow).max_by_key(|(_, request)| rank(request));
        let Some(request) = worst.map(|(id, _)| *id).and_then(|id| self.requests.remove(&id)) else {
            return false;
        };
        self.bytes -= request.bytes;
        request.dropped.notify_one();
        true
    }
}

/// A share of the budget, given back when dropped.
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
    /// [`Refusal::Overloaded`] when there is no room, or when this request's own share was taken from it.
    pub fn grow(&mut self, bytes: u64) -> Result<(), Refusal> {
        let (limit, slow_after) = (self.admission.limit, self.admission.slow_after);
        let mut shares = self.admission.shares();
        loop {
            let in_flight = shares.bytes + bytes;
            let Some(own) = shares.requests.get_mut(&self.id) else { return Err(self.overloaded(in_flight)) };
            // A request alone in the house is always taken, whatever its size.
            if in_flight <= limit || in_flight == own.bytes + bytes {
                own.bytes += bytes;
                shares.bytes = in_flight;
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

    /// All of the request is here: from now on it keeps its share until it is done.
    ///
    /// # Errors
    /// [`Refusal::Overloaded`] when its share was taken just before.
    pub fn arrived(&mut self) -> Result<(), Refusal> {
        let mut shares = self.admission.shares();
        let in_flight = shares.bytes;
        match shares.requests.get_mut(&self.id) {
            Some(own) => {
                own.arriving = false;
                Ok(())
            }
            None => Err(self.overloaded(in_flight)),
        }
    }

    /// Completes when the share was taken.
    pub async fn displaced(&self) -> Refusal {
        self.dropped.notified().await;
        self.overloaded(self.admission.bytes())
    }

    /// Counts that the request did not keep its deadlines.
    pub fn is_too_slow(&self) {
        self.admission.too_slow.fetch_add(1, Relaxed);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut shares = self.admission.shares();
        if let Some(own) = shares.requests.remove(&self.id) {
            shares.bytes -= own.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEERS: [Peer; 3] =
        [Peer::of_v4([10, 0, 0, 1]), Peer::of_v4([10, 0, 0, 2]), Peer::of_v4([10, 0, 0, 3])];
    const NEVER: Duration = Duration::from_secs(86_400);

    #[test]
    fn the_budget_is_given_back() {
        let admission = Admission::new(100, NEVER);
        let mut first = admission.permit(PEERS[0]).unwrap();
        assert_eq!(first.grow(150), Ok(()), "alone in the house");
        assert!(matches!(admission.permit(PEERS[0]), Err(Refusal::Overloaded { .. })));
        assert_eq!(admission.bytes(), REQUEST_BYTES + 150);
        drop(first);
        assert_eq!(admission.bytes(), 0);
    }

    #[test]
    fn room_is_made_by_the_slowest_of_the_heaviest_peer_and_never_by_what_has_arrived() {
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
}
