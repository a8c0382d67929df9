//! Halves that find no mate because it reached another meter.
//!
//! Behind a balancer that routes by trace id, a change of its list of meters moves some ids. Of a trace that is under way then, some
//! spans reach one meter and some another. So meters tell each other which halves found no mate in their time to live: a keyed digest of
//! the call, the side, and the age. A half whose mate is told by a peer is *apart*. A half whose mate may have reached a peer that no
//! longer answers is *unresolved*. Any other half has no mate at any meter. Until that is known, for another time to live, it is pending.
//!
//! Halves are told as ages, so clocks of hosts need not agree. There is no IO here: whoever asks the peers passes their answers on.

use crate::entry::Key;
use crate::report::{Note, PeerCoverage, PeerState, PeersCoverage};
use rustc_hash::FxHashMap;
use sha2::{Digest, Sha256};
use spangap_model::Side;
use std::collections::VecDeque;
use std::fmt::Write;
use subtle::ConstantTimeEq;

/// Path of [`Peers::tell`] below the address of the API.
pub const PATH: &str = "/api/v1/halves";
/// Least length of the secret that meters share, in bytes.
pub const LEAST_SECRET_BYTES: usize = 32;
/// Largest answer of a peer, in bytes.
pub const MOST_ANSWER_BYTES: usize = HEAD_BYTES + MOST_TOLD * HALF_BYTES;

/// Halves of one's own, and of peers, that are remembered; 100 bytes each or less.
const MOST_HALVES: usize = 1 << 20;
const MOST_TOLD: usize = 1 << 16;
/// One meter joins mates that are so much later than the time to live, because its time passes in steps.
const TOLERANCE_MS: u64 = 250;
/// From one round of questions to the next.
pub const ROUND_MS: u64 = 1_000;
/// Wait for a peer that does not answer, beyond the time in which its halves are due.
const PATIENCE_MS: u64 = 5_000;
const MAGIC: u64 = u64::from_le_bytes(*b"SPGHALF1");
const HEAD_BYTES: usize = 40;
const HALF_BYTES: usize = 16;

/// A half that found no mate here in its time to live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expired {
    /// The call.
    pub key: Key,
    /// The half.
    pub side: Side,
    /// The number of its shard.
    pub shard: u8,
    /// The number of its origin.
    pub origin: u32,
    /// Arrival, engine milliseconds.
    pub arrival_ms: u64,
}

/// What became of a half that found no mate here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Its mate reached no meter.
    Alone,
    /// Its mate reached another meter.
    Apart,
    /// Its mate may have reached a meter that does not answer.
    Unresolved,
}

/// One side of a call, as a word of its key whose lowest bit is the side.
type Told = (u64, u32);

fn told(key: Key, side: Side) -> Told {
    let (digest, tag) = key.words();
    (digest, tag & !1 | (side == Side::Server) as u32)
}

fn mate_of((digest, tag): Told) -> Told {
    (digest, tag ^ 1)
}

#[derive(Debug)]
struct Own {
    half: Expired,
    apart: bool,
}

/// A run of another meter.
#[derive(Debug)]
struct Peer {
    instance: u64,
    address: String,
    /// What it told last, by its own count.
    next: u64,
    /// All its halves that arrived before are known, if they were not given up.
    known_ms: u64,
    heard_ms: u64,
    /// Since when it runs no longer.
    gone_ms: Option<u64>,
    problem: Option<String>,
}

/// Halves without a mate, here and at peers.
#[derive(Debug)]
pub struct Peers {
    token: String,
    instance: u64,
    ttl_ms: u64,
    own: VecDeque<Own>,
    /// Number of the first of `own`.
    first: u64,
    own_by_call: FxHashMap<Told, u64>,
    /// Those whose fate is decided early, for lack of room.
    early: Vec<(Expired, Fate)>,
    theirs: VecDeque<(Told, u64)>,
    theirs_by_call: FxHashMap<Told, u64>,
    /// Mates of halves that arrived until then may have been given up.
    blind_ms: u64,
    /// Halves that arrived before are all in `own`, or were.
    expired_to_ms: u64,
    peers: Vec<Peer>,
    /// Addresses where no other meter has been heard yet, with the reason.
    unheard: Vec<(String, String)>,
    given_up: u64,
}

/// What a peer tells.
struct Answer<'a> {
    instance: u64,
    next: u64,
    complete_age_ms: u64,
    ttl_ms: u64,
    has_lost: bool,
    has_more: bool,
    halves: &'a [[u8; HALF_BYTES]],
}

impl Peers {
    /// Of a run with this random number; halves wait for `ttl_ms`.
    pub fn new(secret: &[u8], instance: u64, ttl_ms: u64) -> Peers {
        let digest = Sha256::new().chain_update("spangap peer").chain_update(secret).finalize();
        let mut token = String::new();
        for byte in digest {
            let _ = write!(token, "{byte:02x}");
        }
        Peers {
            token,
            instance,
            ttl_ms,
            own: VecDeque::new(),
            first: 0,
            own_by_call: FxHashMap::default(),
            early: Vec::new(),
            theirs: VecDeque::new(),
            theirs_by_call: FxHashMap::default(),
            blind_ms: 0,
            expired_to_ms: 0,
            peers: Vec::new(),
            unheard: Vec::new(),
            given_up: 0,
        }
    }

    /// What peers present to each other, derived from their secret.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Whether this is the token of a peer.
    pub fn knows(&self, token: &[u8]) -> bool {
        bool::from(self.token.as_bytes().ct_eq(token))
    }

    /// Takes over a half that has just expired.
    pub fn add(&mut self, half: Expired) {
        if self.own.len() >= MOST_HALVES
            && let Some(oldest) = self.pop_own()
        {
            self.given_up += !oldest.apart as u64;
            let fate = if oldest.apart { Fate::Apart } else { Fate::Unresolved };
            self.early.push((oldest.half, fate));
        }
        let call = told(half.key, half.side);
        let apart = self
            .theirs_by_call
            .get(&mate_of(call))
            .is_some_and(|at_ms| self.are_mates(half.arrival_ms, *at_ms));
        self.own_by_call.insert(call, self.first + self.own.len() as u64);
        self.own.push_back(Own { half, apart });
    }

    fn are_mates(&self, one_ms: u64, other_ms: u64) -> bool {
        one_ms.abs_diff(other_ms) <= self.ttl_ms + TOLERANCE_MS
    }

    fn pop_own(&mut self) -> Option<Own> {
        let own = self.own.pop_front()?;
        let call = told(own.half.key, own.half.side);
        if self.own_by_call.get(&call) == Some(&self.first) {
            self.own_by_call.remove(&call);
        }
        self.first += 1;
        Some(own)
    }

    /// All halves that arrived before `arrival_ms` have expired and were added, or found their mate.
    pub fn expired_to(&mut self, arrival_ms: u64) {
        self.expired_to_ms = arrival_ms;
    }

    /// The answer to a peer that knows what was told before the number `after`.
    pub fn tell(&self, after: u64, now_ms: u64) -> Vec<u8> {
        // A number from an earlier run means nothing here.
        let after = if after > self.first + self.own.len() as u64 { 0 } else { after };
        let from = after.max(self.first);
        let new = self.own.iter().skip((from - self.first) as usize);
        let (count, has_lost) = (new.len().min(MOST_TOLD), after > 0 && after < self.first);
        let flags = has_lost as u32 | ((new.len() > count) as u32) << 1;
        let age = |arrival_ms: u64| u32::try_from(now_ms.saturating_sub(arrival_ms)).unwrap_or(u32::MAX);
        let mut out = Vec::with_capacity(HEAD_BYTES + count * HALF_BYTES);
        out.extend_from_slice(&MAGIC.to_le_bytes());
        out.extend_from_slice(&self.instance.to_le_bytes());
        out.extend_from_slice(&(from + count as u64).to_le_bytes());
        out.extend_from_slice(&age(self.expired_to_ms).to_le_bytes());
        out.extend_from_slice(&u32::try_from(self.ttl_ms).unwrap_or(u32::MAX).to_le_bytes());
        out.extend_from_slice(&flags.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        for Own { half, .. } in new.take(count) {
            let (digest, tag) = told(half.key, half.side);
            out.extend_from_slice(&digest.to_le_bytes());
            out.extend_from_slice(&tag.to_le_bytes());
            out.extend_from_slice(&age(half.arrival_ms).to_le_bytes());
        }
        out
    }

    /// What to ask a meter at this address for: everything after this number.
    pub fn after(&self, address: &str) -> u64 {
        self.running(address).map_or(0, |at| self.peers[at].next)
    }

    fn running(&self, address: &str) -> Option<usize> {
        self.peers.iter().position(|peer| peer.address == address && peer.gone_ms.is_none())
    }

    /// Takes over the answer of the meter at this address, which was asked for what it tells `after` this number. Returns whether it
    /// is to be asked again at once.
    ///
    /// # Errors
    /// When the answer is none.
    pub fn hear(
        &mut self,
        address: &str,
        after: u64,
        answer: &[u8],
        asked_ms: u64,
        now_ms: u64,
    ) -> Result<bool, String> {
        let answer =
            Answer::read(answer).ok_or("expected an answer of a meter of the same version with --peers")?;
        self.unheard.retain(|(other, _)| other != address);
        if answer.instance == self.instance {
            return Ok(false);
        }
        let known = self.peers.iter().position(|peer| peer.instance == answer.instance);
        let at = known.unwrap_or(self.peers.len());
        if let Some(peer) = self.peers.get(at)
            && peer.address != address
            && peer.gone_ms.is_none()
            && now_ms.saturating_sub(peer.heard_ms) < PATIENCE_MS
        {
            // Another address of a meter that is asked anyway.
            return Ok(false);
        }
        if let Some(other) = self.running(address)
            && other != at
        {
            self.peers[other].gone_ms = Some(asked_ms);
        }
        if known.is_none() {
            self.peers.push(Peer {
                instance: answer.instance,
                address: address.to_owned(),
                next: 0,
                known_ms: 0,
                heard_ms: now_ms,
                gone_ms: None,
                problem: None,
            });
        }
        let ttl_ms = self.ttl_ms;
        let peer = &mut self.peers[at];
        (peer.gone_ms, peer.heard_ms) = (None, now_ms);
        address.clone_into(&mut peer.address);
        if after != peer.next {
            // The number was that of another run.
            return Ok(true);
        }
        peer.next = answer.next;
        peer.problem = (answer.ttl_ms != ttl_ms).then(|| {
            format!(
                "its --join-ttl is {} ms, and {ttl_ms} ms here: expected the same everywhere",
                answer.ttl_ms
            )
        });
        if !answer.has_more {
            peer.known_ms = peer.known_ms.max(asked_ms.saturating_sub(answer.complete_age_ms));
        }
        if answer.has_lost {
            self.blind_ms = self.blind_ms.max(now_ms);
        }
        for half in answer.halves {
            let (call, age_ms) = Answer::half(half);
            self.add_theirs(call, now_ms.saturating_sub(age_ms));
        }
        Ok(answer.has_more)
    }

    fn add_theirs(&mut self, call: Told, arrival_ms: u64) {
        if self.theirs.len() >= MOST_HALVES
            && let Some((oldest, at_ms)) = self.theirs.pop_front()
        {
            self.theirs_by_call.remove(&oldest);
            self.blind_ms = self.blind_ms.max(at_ms + self.ttl_ms);
            self.given_up += 1;
        }
        if let Some(number) = self.own_by_call.get(&mate_of(call))
            && let Some(own) = self.own.get_mut((number - self.first) as usize)
            && own.half.arrival_ms.abs_diff(arrival_ms) <= self.ttl_ms + TOLERANCE_MS
        {
            own.apart = true;
        }
        self.theirs_by_call.insert(call, arrival_ms);
        self.theirs.push_back((call, arrival_ms));
    }

    /// Notes that nothing was heard from this address, and why. `is_gone`: nothing runs there.
    pub fn miss(&mut self, address: &str, why: String, is_gone: bool, now_ms: u64) {
        let Some(at) = self.running(address) else {
            self.unheard.retain(|(other, _)| other != address);
            self.unheard.push((address.to_owned(), why));
            return;
        };
        let peer = &mut self.peers[at];
        peer.problem = Some(why);
        if is_gone {
            peer.gone_ms = Some(now_ms);
        }
    }

    /// Takes over the list of addresses as it is now. Returns whom to ask: these, and those that left the list and may still have
    /// something to tell.
    pub fn list(&mut self, addresses: &[String], now_ms: u64) -> Vec<String> {
        self.unheard.retain(|(address, _)| addresses.contains(address));
        let patience_ms = self.patience_ms();
        for peer in &mut self.peers {
            let is_heard = now_ms.saturating_sub(peer.heard_ms) < PATIENCE_MS;
            if peer.gone_ms.is_none() && !is_heard && !addresses.contains(&peer.address) {
                peer.gone_ms = Some(now_ms);
            }
        }
        self.peers.retain(|peer| peer.gone_ms.is_none_or(|gone_ms| now_ms < gone_ms + 2 * patience_ms));
        let mut all = addresses.to_vec();
        all.extend(self.peers.iter().filter(|peer| peer.gone_ms.is_none()).map(|peer| peer.address.clone()));
        all.sort_unstable();
        all.dedup();
        all
    }

    /// For how long after its arrival the fate of a half may be open.
    pub fn patience_ms(&self) -> u64 {
        2 * self.ttl_ms + TOLERANCE_MS + PATIENCE_MS
    }

    /// The halves whose fate is known by now. Until then they are pending.
    pub fn settle(&mut self, now_ms: u64) -> Vec<(Expired, Fate)> {
        let mut settled = std::mem::take(&mut self.early);
        while let Some(own) = self.own.front() {
            let fate = match own.apart {
                // It stays for those who have yet to ask for it.
                _ if now_ms < own.half.arrival_ms + 2 * self.ttl_ms + TOLERANCE_MS => break,
                true => Fate::Apart,
                false => match self.fate(own.half.arrival_ms, now_ms) {
                    Some(fate) => fate,
                    None => break,
                },
            };
            settled.extend(self.pop_own().map(|own| (own.half, fate)));
        }
        // Later, no half expires here whose mate it may be.
        let needed_ms = 2 * (self.ttl_ms + TOLERANCE_MS) + ROUND_MS;
        while self.theirs.front().is_some_and(|(_, at_ms)| *at_ms + needed_ms < now_ms) {
            if let Some((call, at_ms)) = self.theirs.pop_front()
                && self.theirs_by_call.get(&call) == Some(&at_ms)
            {
                self.theirs_by_call.remove(&call);
            }
        }
        settled
    }

    /// The fate of a half whose mate no peer has told; `None` while a peer may yet do so.
    fn fate(&self, arrival_ms: u64, now_ms: u64) -> Option<Fate> {
        let within_ms = self.ttl_ms + TOLERANCE_MS;
        let (from_ms, to_ms) = (arrival_ms.saturating_sub(within_ms), arrival_ms + within_ms);
        let mut is_sure = self.blind_ms == 0 || arrival_ms > self.blind_ms;
        for peer in &self.peers {
            let knows_all = peer.known_ms > to_ms || peer.gone_ms.is_some_and(|gone_ms| gone_ms < from_ms);
            if knows_all {
                continue;
            }
            if peer.gone_ms.is_none() && now_ms < arrival_ms + self.patience_ms() {
                return None;
            }
            is_sure = false;
        }
        Some(if is_sure { Fate::Alone } else { Fate::Unresolved })
    }

    /// Halves without a mate that are remembered: those of this meter whose fate is open, and those that others have told.
    pub fn halves(&self) -> u64 {
        (self.own.len() + self.theirs.len()) as u64
    }

    /// The limit of [`Peers::halves`].
    pub fn halves_limit(&self) -> u64 {
        2 * MOST_HALVES as u64
    }

    /// Halves given up at the limit, since the start.
    pub fn given_up(&self) -> u64 {
        self.given_up
    }

    /// What readers of the coverage see.
    pub fn coverage(&self, now_ms: u64) -> PeersCoverage {
        let of = |peer: &Peer| PeerCoverage {
            address: peer.address.clone(),
            state: match (peer.gone_ms, &peer.problem) {
                (Some(_), _) => PeerState::Gone,
                (None, _) if now_ms.saturating_sub(peer.heard_ms) > PATIENCE_MS => PeerState::Silent,
                _ => PeerState::Answers,
            },
            heard_before_ms: Some(now_ms.saturating_sub(peer.heard_ms)),
            problem: peer.problem.clone(),
        };
        let unheard = self.unheard.iter().map(|(address, why)| PeerCoverage {
            address: address.clone(),
            state: PeerState::Unheard,
            heard_before_ms: None,
            problem: Some(why.clone()),
        });
        PeersCoverage {
            peers: self.peers.iter().map(of).chain(unheard).collect(),
            held: self.own.len() as u64,
            halves_of_peers: self.theirs.len() as u64,
            halves_limit: MOST_HALVES as u64,
            given_up: self.given_up,
        }
    }
}

impl<'a> Answer<'a> {
    fn read(bytes: &'a [u8]) -> Option<Answer<'a>> {
        let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
        let (halves, []) = rest.as_chunks::<HALF_BYTES>() else { return None };
        let [magic, instance, next, ages, flags] = *head.as_chunks::<8>().0 else { return None };
        let [magic, instance, next, ages, flags] =
            [magic, instance, next, ages, flags].map(u64::from_le_bytes);
        (magic == MAGIC).then_some(Answer {
            instance,
            next,
            complete_age_ms: ages & u64::from(u32::MAX),
            ttl_ms: ages >> 32,
            has_lost: flags & 1 != 0,
            has_more: flags & 2 != 0,
            halves,
        })
    }

    fn half(bytes: &[u8; HALF_BYTES]) -> (Told, u64) {
        let word = u128::from_le_bytes(*bytes);
        ((word as u64, (word >> 64) as u32), (word >> 96) as u64)
    }
}

impl PeersCoverage {
    /// What readers should know of it.
    pub fn notes(&self, apart: u64, unresolved: u64) -> Vec<Note> {
        let mut notes = Vec::new();
        if apart > 0 {
            notes.push(Note::caveat(format!(
                "{apart} halves of calls are apart: their mates reached other meters while the list of meters changed; neither \
                 meter counts the call"
            )));
        }
        if unresolved > 0 {
            notes.push(Note::caveat(format!(
                "{unresolved} halves of calls found no mate at a time when another meter ended or did not answer: at most so many \
                 have their mates there"
            )));
        }
        if self.given_up > 0 {
            notes.push(Note::wrong(format!("{} halves were given up for lack of room", self.given_up)));
        }
        let troubled = self.peers.iter().filter(|peer| peer.state != PeerState::Gone);
        notes.extend(
            troubled.filter_map(|peer| {
                Some(Note::caveat(format!("{}: {}", peer.address, peer.problem.as_ref()?)))
            }),
        );
        notes.into_iter().map(|note| note.about("other meters")).collect()
    }
}
