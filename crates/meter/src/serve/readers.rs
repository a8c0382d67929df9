//! Answers on their way to their readers. Their number is limited, because each fills buffers here and in the kernel.
//!
//! How long a reader waits does not depend on how many idle readers there are. The next place goes to the
//! peer that holds the fewest and has recently lost the fewest; among equals, to the newest and the oldest
//! request in turn. While somebody waits, a reader that takes nothing or little loses its place: one of the
//! heaviest peer first.

use super::places::Peer;
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep};

/// Answers of one kind that are read at once. Each fills about 128 KiB of buffers here, and as much in the kernel.
const READERS: usize = 256;
/// Requests of one kind that wait for a place.
const LINE: usize = 1024;
/// A reader that has taken nothing for this long may lose its place.
const STALLED_AFTER: Duration = Duration::from_millis(100);
/// So may one that has been reading for this long at less than [`LEAST_PER_S`],
const SLOW_AFTER: Duration = Duration::from_secs(1);
/// and any that has been reading for this long.
const LONG_AFTER: Duration = Duration::from_secs(5);
/// Pieces a second: 1 MiB.
const LEAST_PER_S: f64 = 16.0;
/// Interval between checks of the readers while somebody waits.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Half of the places that a peer lost no longer count after this long.
const HALF_LIFE: Duration = Duration::from_secs(10);
/// Weight of a place in the burden of its peer.
const PLACE: u64 = 100;
/// Peers whose lost places are remembered, and those who have been served.
const REMEMBERED: usize = 4096;
/// Requests in line that a peer that has been served before may have without being heavier than a new one with none: a page asks several
/// things at once.
const ALLOWANCE: u64 = 8 * PLACE;
/// Whoever was served this long ago makes room for others among the known.
const KNOWN_FOR: Duration = Duration::from_secs(60);

/// Limits of one kind of answer.
#[derive(Clone, Copy, Debug)]
struct Limits {
    places: usize,
    line: usize,
    stalled_after: Duration,
    slow_after: Duration,
    long_after: Duration,
}

/// The places of one kind of answer.
#[derive(Debug)]
pub struct Readers {
    limits: Limits,
    began: Instant,
    state: Mutex<State>,
    /// Answers that were cut off because others waited.
    pub displaced: AtomicU64,
    /// Requests refused because too many waited.
    pub turned_away: AtomicU64,
}

/// Too many requests are already waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineFull;

/// Both by number, so the oldest comes first.
#[derive(Debug, Default)]
struct State {
    next: u64,
    reading: BTreeMap<u64, Reader>,
    waiting: BTreeMap<u64, Waiting>,
    /// Whether the newest of equals comes next, rather than the oldest.
    is_newest_next: bool,
    /// Time of the last check of the readers.
    looked: Option<Instant>,
    /// Places that each peer lost, as of a moment.
    lost: FxHashMap<Peer, (f64, Instant)>,
    /// When each peer last had its place for as long as it needed.
    served: FxHashMap<Peer, Instant>,
}

#[derive(Debug)]
struct Reader {
    peer: Peer,
    told: Arc<Notify>,
    is_told: bool,
    pace: Arc<Pace>,
}

#[derive(Debug)]
struct Waiting {
    peer: Peer,
    place: oneshot::Sender<Place>,
}

/// No time.
const NONE: u64 = u64::MAX;

/// Milliseconds since the start.
#[derive(Debug)]
struct Pace {
    /// First piece.
    begun_ms: AtomicU64,
    /// Since when its writer has been waiting for the reader, if it is.
    stalled_ms: AtomicU64,
    /// Number of pieces that the reader took.
    pieces: AtomicU64,
}

impl State {
    fn lost(&self, peer: Peer, now: Instant) -> f64 {
        let halved = |(lost, at): &(f64, Instant)| {
            lost * 0.5_f64.powf(now.duration_since(*at).as_secs_f64() / HALF_LIFE.as_secs_f64())
        };
        self.lost.get(&peer).map_or(0.0, halved)
    }

    /// Records that a peer lost a place. If there are too many peers, those without a recent loss are
    /// forgotten.
    fn loses(&mut self, peer: Peer, now: Instant) {
        let lost = self.lost(peer, now) + 1.0;
        if self.lost.len() >= REMEMBERED && !self.lost.contains_key(&peer) {
            self.lost.retain(|_, (_, at)| now.duration_since(*at) < HALF_LIFE);
        }
        if self.lost.len() < REMEMBERED || self.lost.contains_key(&peer) {
            self.lost.insert(peer, (lost, now));
        }
    }

    /// Records that a peer needs its place no more. Addresses are free: if there are too many, those who come regularly stay known.
    fn serves(&mut self, peer: Peer, now: Instant) {
        let is_full =
            |served: &FxHashMap<Peer, Instant>| served.len() >= REMEMBERED && !served.contains_key(&peer);
        if is_full(&self.served) {
            self.served.retain(|_, at| now.duration_since(*at) < KNOWN_FOR);
        }
        if !is_full(&self.served) {
            self.served.insert(peer, now);
        }
    }

    /// The burden of a peer on others: places that it holds, and places that it recently lost.
    fn burden(&self, peer: Peer, now: Instant) -> u64 {
        let holds = self.reading.values().filter(|reader| reader.peer == peer).count();
        ((holds as f64 + self.lost(peer, now)) * PLACE as f64) as u64
    }

    /// The burden of each peer among these.
    fn burdens(&self, peers: impl Iterator<Item = Peer>, now: Instant) -> FxHashMap<Peer, u64> {
        let mut burdens = FxHashMap::default();
        for peer in peers {
            burdens.entry(peer).or_insert_with(|| self.burden(peer, now));
        }
        burdens
    }

    /// The request that gets the next place.
    fn next(&mut self, now: Instant) -> Option<Waiting> {
        let burdens = self.burdens(self.waiting.values().map(|waiting| waiting.peer), now);
        let rank = |(number, waiting): (&u64, &Waiting)| (burdens[&waiting.peer], *number);
        let ranks = self.waiting.iter().map(rank);
        let (_, number) = match self.is_newest_next {
            true => ranks.min_by_key(|(burden, number)| (*burden, Reverse(*number))),
            false => ranks.min(),
        }?;
        self.is_newest_next = !self.is_newest_next;
        self.waiting.remove(&number)
    }

    /// Sends away one waiting request: the oldest of the peer with the most requests, which is the likeliest
    /// to be abandoned. A crowd of new addresses sends away nobody who has been served before.
    fn turn_away(&mut self, now: Instant) {
        let mut requests = self.burdens(self.waiting.values().map(|waiting| waiting.peer), now);
        self.waiting.values().for_each(|waiting| *requests.entry(waiting.peer).or_default() += PLACE);
        for (_, requests) in requests.iter_mut().filter(|(peer, _)| self.served.contains_key(peer)) {
            *requests = requests.saturating_sub(ALLOWANCE);
        }
        let rank = |(number, waiting): (&u64, &Waiting)| (requests[&waiting.peer], Reverse(*number));
        if let Some((_, Reverse(number))) = self.waiting.iter().map(rank).max() {
            self.waiting.remove(&number);
        }
    }
}

impl Readers {
    /// Nobody reads yet.
    pub fn new() -> Arc<Readers> {
        Readers::of(Limits {
            places: READERS,
            line: LINE,
            stalled_after: STALLED_AFTER,
            slow_after: SLOW_AFTER,
            long_after: LONG_AFTER,
        })
    }

    /// Turns for work, which nobody loses.
    pub fn turns(places: usize, line: usize) -> Arc<Readers> {
        let never = Duration::MAX;
        Readers::of(Limits { places, line, stalled_after: never, slow_after: never, long_after: never })
    }

    fn of(limits: Limits) -> Arc<Readers> {
        Arc::new(Readers {
            limits,
            began: Instant::now(),
            state: Mutex::default(),
            displaced: AtomicU64::new(0),
            turned_away: AtomicU64::new(0),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    /// A place, as soon as there is one; if necessary, that of a slow reader.
    pub async fn enter(self: &Arc<Self>, peer: Peer) -> Result<Place, LineFull> {
        let (given, mut place) = oneshot::channel();
        let number = {
            let mut state = self.state();
            let number = state.next;
            state.next += 1;
            state.waiting.insert(number, Waiting { peer, place: given });
            number
        };
        let _leaves = Leaves { line: self, number };
        self.give();
        {
            let mut state = self.state();
            if state.waiting.len() > self.limits.line {
                state.turn_away(Instant::now());
                self.turned_away.fetch_add(1, Relaxed);
            }
        }
        loop {
            let look = self.make_room();
            tokio::select! {
                biased;
                place = &mut place => return place.map_err(|_| LineFull),
                () = sleep(look) => {}
            }
        }
    }

    /// Gives free places to waiting requests.
    fn give(self: &Arc<Self>) {
        loop {
            let given = {
                let mut state = self.state();
                if state.reading.len() >= self.limits.places {
                    return;
                }
                let Some(next) = state.next(Instant::now()) else { return };
                let number = state.next;
                state.next += 1;
                let pace = Pace {
                    begun_ms: AtomicU64::new(NONE),
                    stalled_ms: AtomicU64::new(NONE),
                    pieces: AtomicU64::new(0),
                };
                let (told, pace) = (Arc::new(Notify::new()), Arc::new(pace));
                let reader =
                    Reader { peer: next.peer, told: told.clone(), is_told: false, pace: pace.clone() };
                state.reading.insert(number, reader);
                (next.place, Place { of: self.clone(), number, told, pace })
            };
            let (to, place) = given;
            if let Err(place) = to.send(place) {
                // Its request has just been abandoned.
                self.state().reading.remove(&place.number);
            }
        }
    }

    /// Tells readers to go whose places others need; returns when to check again.
    fn make_room(&self) -> Duration {
        let (now, now_ms) = (Instant::now(), self.now_ms());
        let mut state = self.state();
        // One of the waiting requests checks on behalf of all.
        if state.looked.is_some_and(|looked| now.duration_since(looked) < LOOK_EVERY) {
            return 2 * LOOK_EVERY;
        }
        state.looked = Some(now);
        let mut going = state.reading.values().filter(|reader| reader.is_told).count();
        let burdens = state.burdens(state.reading.values().map(|reader| reader.peer), now);
        // A waiting request takes no place from a lighter peer.
        let waiting = state.burdens(state.waiting.values().map(|waiting| waiting.peer), now);
        let lightest = waiting.into_values().min().unwrap_or(u64::MAX);
        while going < state.waiting.len() {
            let since = |from_ms: u64| Duration::from_millis(now_ms.saturating_sub(from_ms));
            let rank = |(number, reader): (&u64, &Reader)| {
                let begun_ms = reader.pace.begun_ms.load(Relaxed);
                let stalled_ms = reader.pace.stalled_ms.load(Relaxed);
                let burden = burdens[&reader.peer];
                // A reader no heavier than those who wait may merely have been scheduled late.
                let patience = if burden > lightest.saturating_add(PLACE) { 1 } else { 2 };
                let is_stalled = stalled_ms != NONE
                    && since(stalled_ms) >= self.limits.stalled_after.saturating_mul(patience);
                let reads_for = if begun_ms == NONE { Duration::ZERO } else { since(begun_ms) };
                let pieces_per_s =
                    reader.pace.pieces.load(Relaxed) as f64 / reads_for.as_secs_f64().max(1e-3);
                let is_slow = reads_for >= self.limits.slow_after && pieces_per_s < LEAST_PER_S;
                let is_overdue =
                    is_stalled || begun_ms != NONE && (is_slow || reads_for >= self.limits.long_after);
                let may_go = !reader.is_told && is_overdue && burden >= lightest;
                may_go.then_some((burden, is_stalled, Reverse(begun_ms), Reverse(*number)))
            };
            let Some((.., Reverse(number))) = state.reading.iter().filter_map(rank).max() else { break };
            let Some(reader) = state.reading.get_mut(&number) else { break };
            reader.is_told = true;
            reader.told.notify_one();
            let peer = reader.peer;
            state.loses(peer, now);
            self.displaced.fetch_add(1, Relaxed);
            going += 1;
        }
        LOOK_EVERY
    }
}

/// Leaves the line when its request is abandoned.
struct Leaves<'a> {
    line: &'a Readers,
    number: u64,
}

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.line.state().waiting.remove(&self.number);
    }
}

/// The place of one reader, released when dropped.
#[derive(Debug)]
pub struct Place {
    of: Arc<Readers>,
    number: u64,
    told: Arc<Notify>,
    pace: Arc<Pace>,
}

impl Place {
    /// Completes when somebody else needs the place more.
    pub async fn told_to_go(&self) {
        self.told.notified().await;
    }

    /// Counts an answer that is cut off for another reason than a place.
    pub fn is_displaced(&self) {
        self.of.displaced.fetch_add(1, Relaxed);
    }

    /// From now on the writer waits for the reader.
    pub fn waits_for_reader(&self) {
        let now_ms = self.of.now_ms();
        let _ = self.pace.begun_ms.compare_exchange(NONE, now_ms, Relaxed, Relaxed);
        self.pace.stalled_ms.store(now_ms, Relaxed);
    }

    /// The reader has taken a piece.
    pub fn goes_on(&self) {
        self.pace.pieces.fetch_add(1, Relaxed);
        self.pace.stalled_ms.store(NONE, Relaxed);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let had = {
            let mut state = self.of.state();
            let had = state.reading.remove(&self.number);
            if let Some(reader) = had.as_ref().filter(|reader| !reader.is_told) {
                state.serves(reader.peer, Instant::now());
            }
            had
        };
        if had.is_some() {
            self.of.give();
        }
    }
}

#[cfg(test)]
mod tests;
