//! Pairs the halves of calls from two captures.
//!
//! The raw sequence number of a byte is the same at both ends, even through address translation, so a call is
//! identified by that of its request's first byte. Two connections are one if their addresses agree; with
//! different addresses (NAT, container networks), if a request and its response agree in both sequence
//! numbers and both lengths: the initial numbers of both directions are chosen at random (RFC 6528), so 64
//! bits agree by chance in one of 10^19 cases.

pub(crate) mod links;
mod pending;
#[cfg(test)]
pub(crate) mod world;
use crate::align::Bounds;
use crate::call::Halves;
use crate::exchange::{Exchange, Part};
use crate::tcp::ConnectionFacts;
use links::{Link, Links};
use pending::Pending;
use rustc_hash::FxHashSet;
use spangap_model::Side;
use spangap_model::clock::{MAX_SKEW_PPM, gained};
use std::cmp::Ordering;

/// Maximum number of halves per capture that wait for their mate; beyond that, the oldest is given up.
const MAX_PENDING: usize = 200_000;
/// Number of waiting halves of one capture from which on the other capture is searched for their mates, as
/// long as nothing was joined yet.
const MANY_PENDING: usize = 20_000;
/// Maximum number of remembered addresses of a capture's host.
const MAX_ADDRESSES: usize = 4096;
/// Boxes kept for later calls: as many as settle at a time.
const MAX_SPARE: usize = 1024;
/// Number of calls remembered in order to recognise a call captured twice by one capture; a power of two.
const MEMORY: usize = 8192;
/// Both copies of a call captured twice are seen within this time.
const COPY_NS: u64 = 1_000_000_000;

/// Whether the other half of a call may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MateOutlook {
    /// The other capture has not been read up to there.
    NotYet,
    /// It may.
    MayCome,
    /// The other capture does not contain it.
    WillNotCome,
}

/// Facts about a connection, requested when its first exchange arrives.
pub(crate) type Facts<'a> = dyn Fn(usize, u32) -> Option<ConnectionFacts> + 'a;

/// A joined call, or its only half.
#[derive(Debug)]
pub(crate) struct Joined {
    /// Index of its link in [`Joiner::links`].
    pub link: usize,
    /// Boxed, because it waits in one list after another.
    pub halves: Box<Halves>,
}

/// Recently seen calls, by the sequence numbers of their request and response.
#[derive(Clone, Copy, Debug, Default)]
struct RecentCalls {
    numbers: (u32, u32),
    at_ns: i64,
    connection: u32,
}

/// Puts halves together.
#[derive(Debug)]
pub(crate) struct Joiner {
    /// Whether there are two captures.
    two: bool,
    /// The ends at which they were taken, if known.
    ends: [Option<Side>; 2],
    /// The end of a lone capture, where nothing in it tells.
    presumed_end: Option<Side>,
    /// Calls of which that end was presumed.
    pub presumed: u64,
    /// Addresses of each capture's host, as calls with both halves show them.
    local: [FxHashSet<[u8; 16]>; 2],
    pending: [Pending; 2],
    pub links: Links,
    /// Bounds on the offset from the joined calls.
    pub bounds: Bounds,
    seen: [Vec<RecentCalls>; 2],
    /// Halves given up for lack of room, by capture.
    pub evicted: [u64; 2],
    /// Halves without a mate, by capture.
    pub unmatched: [u64; 2],
    /// Halves omitted because one capture contained the same call twice.
    pub copies: u64,
    /// Calls whose times contradict the given ends of the captures.
    pub contradictions: u64,
    /// Calls put together.
    pub matched: u64,
    /// Whether connections have different addresses in the two captures.
    pub translates: bool,
    /// Number of links whose client is at that capture, as far as calls show it.
    roles: [u64; 2],
    /// Boxes of finished calls, to be reused.
    #[allow(clippy::vec_box)]
    spare: Vec<Box<Halves>>,
}

impl Joiner {
    /// `ends`: the end at which each capture was taken, if the caller knows.
    pub fn new(two: bool, ends: [Option<Side>; 2]) -> Joiner {
        Joiner {
            two,
            ends,
            presumed_end: None,
            presumed: 0,
            local: Default::default(),
            pending: Default::default(),
            links: Links::default(),
            bounds: Bounds::default(),
            seen: [vec![RecentCalls::default(); MEMORY], vec![RecentCalls::default(); MEMORY]],
            evicted: [0; 2],
            unmatched: [0; 2],
            copies: 0,
            contradictions: 0,
            matched: 0,
            translates: false,
            roles: [0; 2],
            spare: Vec::new(),
        }
    }

    /// The same, with the end of a lone capture whose packets do not tell it.
    pub fn presuming(self, end: Option<Side>) -> Joiner {
        Joiner { presumed_end: end, ..self }
    }

    /// Takes back the box of a call that nobody keeps, for a later one.
    #[inline]
    pub fn give_back(&mut self, halves: Box<Halves>) {
        if self.spare.len() < MAX_SPARE {
            self.spare.push(halves);
        }
    }

    /// Exchanges are handed on by reference, and copied once, into the box: they are large.
    #[inline]
    fn boxed(&mut self, exchanges: [Option<&Exchange>; 2], captures: [u8; 2]) -> Box<Halves> {
        let mut halves = self.spare.pop().unwrap_or_default();
        for (place, exchange) in halves.exchanges.iter_mut().zip(exchanges) {
            *place = exchange.cloned();
        }
        (halves.captures, halves.spans, halves.never_arrived) = (captures, None, false);
        halves
    }

    /// Whether so many halves of a capture are waiting that the other capture should be searched.
    pub fn has_many(&self, capture: usize) -> bool {
        self.pending[capture].len() >= MANY_PENDING
    }

    /// Whether no further half of a capture fits without giving up others.
    fn is_full(&self, capture: usize) -> bool {
        self.pending[capture].len() >= MAX_PENDING
    }

    /// Processes an exchange; completed (or given up) calls go to `out`.
    #[inline]
    pub fn offer(&mut self, capture: usize, exchange: &Exchange, facts: &Facts<'_>, out: &mut Vec<Joined>) {
        let link = self.links.of(capture, exchange.connection, facts);
        if !self.two {
            if self.is_copy(0, link, exchange) {
                self.copies += 1;
            } else {
                self.remember(0, exchange);
                out.push(self.alone(0, link, exchange));
            }
            return;
        }
        let other = 1 - capture;
        if self.links.at(link).connections[other].is_none() && self.is_copy(capture, link, exchange) {
            self.copies += 1;
            return;
        }
        let Some((link, place)) = self.mate(capture, link, exchange) else {
            // A copy of a connection that the other capture has as well, with its own copies: as when two
            // hosts both capture an overlay network and the network that carries it.
            if self.is_copy(capture, link, exchange) {
                self.copies += 1;
                return;
            }
            if self.is_full(capture)
                && let Some((link, exchange)) = self.pending[capture].take_oldest()
            {
                self.evicted[capture] += 1;
                out.push(self.given_up(capture, link, &exchange));
            }
            self.links.at(link).uses += 1;
            self.pending[capture].insert(link, exchange);
            return;
        };
        let (waited, mate) = self.pending[other].take(place);
        self.links.settle(waited);
        self.drop_copies(link, exchange);
        self.remember(capture, exchange);
        self.remember(other, &mate);
        let halves = if capture == 0 { [exchange, &mate] } else { [&mate, exchange] };
        out.push(self.together(link, halves));
    }

    /// Gives up halves whose mate will not come, oldest first, according to `verdict` for the half's capture
    /// and link.
    pub fn give_up(
        &mut self,
        verdict: impl Fn(usize, &Link, &Exchange) -> MateOutlook,
        out: &mut Vec<Joined>,
    ) {
        for capture in 0..2 {
            while let Some((place, link, half)) = self.pending[capture].front() {
                let link = self.links.get(self.links.resolved(link));
                match verdict(capture, link, half) {
                    MateOutlook::NotYet => break,
                    MateOutlook::MayCome => self.pending[capture].set_aside(),
                    MateOutlook::WillNotCome => {
                        let (link, exchange) = self.pending[capture].take(place);
                        out.push(self.given_up(capture, link, &exchange));
                    }
                }
            }
        }
    }

    /// Gives up every waiting half, because no more will arrive.
    pub fn finish(&mut self, out: &mut Vec<Joined>) {
        for capture in 0..2 {
            while let Some((link, exchange)) = self.pending[capture].take_oldest() {
                out.push(self.given_up(capture, link, &exchange));
            }
        }
    }

    /// The mate, with its link merged into `link`.
    fn mate(&mut self, capture: usize, link: usize, exchange: &Exchange) -> Option<(usize, usize)> {
        let other = 1 - capture;
        let mut by_numbers = None;
        let mut ambiguous = false;
        for (place, waiting, half) in self.pending[other].candidates(exchange.request.start as u32) {
            let waiting = self.links.resolved(waiting);
            if waiting == link {
                return Some((link, place));
            }
            let (mine, theirs) = (self.links.get(link), self.links.get(waiting));
            if mine.connections[other].is_some() || theirs.connections[capture].is_some() {
                continue;
            }
            if same_addresses(mine.facts[capture].as_ref(), theirs.facts[other].as_ref()) {
                return Some((self.links.unite(link, waiting), place));
            }
            if agree(exchange, half) && translated(mine.facts[capture].as_ref(), theirs.facts[other].as_ref())
            {
                // Of two that wait at about the same time, which are one call captured twice, the first.
                let at_ns = half.request.first.seen_ns;
                ambiguous |= by_numbers
                    .is_some_and(|(.., before): (usize, usize, i64)| before.abs_diff(at_ns) >= COPY_NS);
                by_numbers = Some((waiting, place, at_ns));
            }
        }
        let (waiting, place, _) = by_numbers.filter(|_| !ambiguous)?;
        self.translates = true;
        Some((self.links.unite(link, waiting), place))
    }

    fn together(&mut self, link: usize, halves: [&Exchange; 2]) -> Joined {
        self.matched += 1;
        let own = client_by_times(halves);
        let roles = &mut self.roles;
        let state = self.links.at(link);
        let opening = client_by_handshake(&state.facts).filter(|_| !state.ends_local);
        for own in opening.into_iter().chain(own) {
            if [state.votes, state.doubtful] == [[0; 2]; 2] {
                roles[own.client] += 1;
            }
            let votes = if own.certain { &mut state.votes } else { &mut state.doubtful };
            votes[own.client] = votes[own.client].saturating_add(1);
        }
        let said = match self.ends {
            [Some(Side::Client), _] | [None, Some(Side::Server)] => Some(0),
            [Some(Side::Server), _] | [None, Some(Side::Client)] => Some(1),
            [None, None] => None,
        };
        let client = said.or(state.client_capture()).unwrap_or(usize::from(roles[1] > roles[0]));
        if !std::mem::replace(&mut state.ends_local, true) {
            for (side, capture) in [client, 1 - client].into_iter().enumerate() {
                let address = state.facts[capture].as_ref().map(|facts| facts.ends[side].address);
                let room = self.local[capture].len() < MAX_ADDRESSES;
                self.local[capture].extend(address.filter(|_| room));
            }
            bound_by_handshake(&mut self.bounds, &state.facts, client);
        }
        state.uses += 1;
        if own.is_some_and(|own| own.certain && own.client != client) {
            self.contradictions += 1;
        } else {
            bound_offset(&mut self.bounds, halves, client);
        }
        let captures = [client, 1 - client];
        let mut halves = self.boxed(captures.map(|at| Some(halves[at])), captures.map(|at| at as u8));
        fill_in(&mut halves.exchanges);
        Joined { link, halves }
    }

    /// A half whose mate never came.
    fn given_up(&mut self, capture: usize, link: usize, exchange: &Exchange) -> Joined {
        self.unmatched[capture] += 1;
        let link = self.links.settle(link);
        self.alone(capture, link, exchange)
    }

    /// A call of which one end is known.
    fn alone(&mut self, capture: usize, link: usize, exchange: &Exchange) -> Joined {
        let role = match self.roles {
            [0, 0] => None,
            roles => Some(usize::from(roles[1] > roles[0])),
        };
        let state = self.links.at(link);
        state.uses += 1;
        let client = state.client_capture().map(|client| client == capture);
        let local = &self.local[capture];
        // A proxy's capture contains calls whose mates are in other captures.
        let own = state.facts[capture].as_ref().and_then(|facts| {
            match facts.ends.map(|end| local.contains(&end.address)) {
                [true, false] => Some(Side::Client),
                [false, true] => Some(Side::Server),
                _ => None,
            }
        });
        let side = self.ends[capture]
            .or(client.map(|client| if client { Side::Client } else { Side::Server }))
            .or(own)
            .or_else(|| state.facts[capture].as_ref().and_then(nearer_side))
            .or(role.map(|client| if client == capture { Side::Client } else { Side::Server }))
            .unwrap_or_else(|| {
                self.presumed += 1;
                self.presumed_end.unwrap_or(Side::Client)
            });
        let mut exchanges = [None, None];
        exchanges[side.index()] = Some(exchange);
        let mut captures = [capture as u8; 2];
        if self.two {
            captures[side.other().index()] = 1 - capture as u8;
        }
        Joined { link, halves: self.boxed(exchanges, captures) }
    }

    fn is_copy(&self, capture: usize, link: usize, exchange: &Exchange) -> bool {
        let Some(numbers) = numbers(exchange) else { return false };
        let seen = &self.seen[capture][memory_place(numbers)];
        seen.numbers == numbers
            && seen.connection != exchange.connection
            && seen.at_ns.abs_diff(exchange.request.first.seen_ns) < COPY_NS
            && self.links.known(capture, seen.connection).is_some_and(|other| {
                translated(self.links.get(link).facts[capture].as_ref(), other.facts[capture].as_ref())
            })
    }

    fn remember(&mut self, capture: usize, exchange: &Exchange) {
        if let Some(numbers) = numbers(exchange) {
            let (at_ns, connection) = (exchange.request.first.seen_ns, exchange.connection);
            self.seen[capture][memory_place(numbers)] = RecentCalls { numbers, at_ns, connection };
        }
    }

    /// Drops halves of the call just joined that still wait although another half of their capture was
    /// joined.
    fn drop_copies(&mut self, link: usize, joined: &Exchange) {
        for capture in 0..2 {
            let candidates = self.pending[capture].candidates(joined.request.start as u32);
            let facts = |link: usize| self.links.get(self.links.resolved(link)).facts[capture].as_ref();
            let mut copies = candidates
                .filter(|(_, waiting, half)| agree(joined, half) && translated(facts(*waiting), facts(link)));
            let copy = copies.next().map(|(place, ..)| place);
            drop(copies);
            if let Some(place) = copy {
                let (link, _) = self.pending[capture].take(place);
                self.links.settle(link);
                self.copies += 1;
            }
        }
    }
}

/// Sequence numbers of request and response.
fn numbers(exchange: &Exchange) -> Option<(u32, u32)> {
    Some((exchange.request.start as u32, exchange.response.as_ref()?.start as u32))
}

fn memory_place((request, response): (u32, u32)) -> usize {
    (request.wrapping_mul(0x9E37_79B1) ^ response.wrapping_mul(0x85EB_CA77)) as usize >> 7 & (MEMORY - 1)
}

fn same_part(a: &Part, b: &Part) -> bool {
    a.start as u32 == b.start as u32 && a.end as u32 == b.end as u32
}

/// Whether two exchanges are the same bytes on the wire.
fn agree(a: &Exchange, b: &Exchange) -> bool {
    let responses = a.response.as_ref().zip(b.response.as_ref());
    same_part(&a.request, &b.request) && responses.is_some_and(|(a, b)| same_part(a, b))
}

fn same_addresses(a: Option<&ConnectionFacts>, b: Option<&ConnectionFacts>) -> bool {
    a.zip(b).is_some_and(|(a, b)| a.network == b.network && a.ends == b.ends)
}

/// Whether the hosts differ, and not just a port, so that both may be one connection before and after a
/// translation.
fn translated(a: Option<&ConnectionFacts>, b: Option<&ConnectionFacts>) -> bool {
    a.zip(b).is_some_and(|(a, b)| {
        let hosts = |facts: &ConnectionFacts| (facts.network, facts.ends[0].address, facts.ends[1]);
        hosts(a) != hosts(b)
    })
}

/// The capture at which an observation places the client.
#[derive(Clone, Copy)]
struct Vote {
    client: usize,
    /// Not if the rates of the two clocks may differ by as much.
    certain: bool,
}

impl Vote {
    /// The capture that is nearer to the client sees the longer time from a request to its response, because at the other one both
    /// directions are missing. Each time is by one clock; but during a long one, a clock that runs faster gains more than a short path
    /// takes: 40 us a second at 40 ppm.
    fn of(waits_ns: [i64; 2]) -> Option<Vote> {
        let [first, second] = waits_ns;
        let gained = gained(first.max(second), MAX_SKEW_PPM).unsigned_abs();
        (first != second)
            .then(|| Vote { client: usize::from(second > first), certain: first.abs_diff(second) > gained })
    }
}

/// By the wait for a response, from the last byte of the request to the first byte after it; not where bytes are missing.
fn client_by_times(halves: [&Exchange; 2]) -> Option<Vote> {
    let waits = halves.map(|half| {
        let response = half.response.as_ref().filter(|_| !half.doubts.hole)?;
        Some((
            response.first.ready_ns - half.request.last.seen_ns,
            half.request.end as u32,
            response.start as u32,
        ))
    });
    let (first, second) = waits[0].zip(waits[1])?;
    if (first.1, first.2) != (second.1, second.2) {
        return None;
    }
    Vote::of([first.0, second.0])
}

/// The same by the opening of a connection, which a kernel answers at once. Not if a SYN or SYN/ACK was retransmitted, because one end
/// may have seen one more of them than the other.
fn client_by_handshake(facts: &[Option<ConnectionFacts>; 2]) -> Option<Vote> {
    let waits = [0, 1].map(|capture| opened_once(facts, capture).map(|(syn, syn_ack)| syn_ack - syn));
    let (first, second) = waits[0].zip(waits[1])?;
    Vote::of([first, second])
}

/// When a capture saw the SYN and the SYN/ACK, if one of each.
fn opened_once(facts: &[Option<ConnectionFacts>; 2], capture: usize) -> Option<(i64, i64)> {
    let handshake = &facts[capture].as_ref()?.handshake;
    let once = handshake.syns == 1 && handshake.syn_acks == 1;
    Some((handshake.syn?.0, handshake.syn_ack?.0)).filter(|_| once)
}

/// The end at which a single tap is: the one that answers at once. On the client's host, the SYN/ACK takes a
/// round trip and the ACK after it no time; on the server's host, it is the other way round.
fn nearer_side(facts: &ConnectionFacts) -> Option<Side> {
    let handshake = &facts.handshake;
    let mut waits = match (handshake.syn, handshake.syn_ack, handshake.ack) {
        (Some(syn), Some(syn_ack), Some(ack)) if handshake.syns == 1 && handshake.syn_acks == 1 => {
            [syn_ack.0 - syn.0, ack.0 - syn_ack.0]
        }
        _ => [0; 2],
    };
    if waits == [0; 2] {
        let [client, server] = facts.rtt_min_ns;
        waits = [client? as i64, server? as i64];
    }
    // Less than a factor of three may be chance.
    match waits {
        [server, client] if server > 3 * client => Some(Side::Client),
        [server, client] if client > 3 * server => Some(Side::Server),
        _ => None,
    }
}

/// What the opening of a connection says about the clocks: it bounds them in both directions, even if no call
/// is ever answered. Not if a SYN or SYN/ACK was retransmitted, because it is unknown which of them arrived.
fn bound_by_handshake(bounds: &mut Bounds, facts: &[Option<ConnectionFacts>; 2], client: usize) {
    let once = |capture| opened_once(facts, capture);
    let Some((at_client, at_server)) = once(client).zip(once(1 - client)) else { return };
    // The client's side may be a guess; the client's end waits longer for the SYN/ACK.
    if at_client.1 - at_client.0 < at_server.1 - at_server.0 {
        return;
    }
    let mut sent = |from: usize, sent_ns: i64, received_ns: i64| match from {
        0 => bounds.first_to_second(sent_ns, received_ns),
        _ => bounds.second_to_first(sent_ns, received_ns),
    };
    sent(client, at_client.0, at_server.0);
    sent(1 - client, at_server.1, at_client.1);
}

/// What the two ends of a call say about the clocks. At its sender, a byte counts when it was first seen; at
/// its receiver, when it had finally arrived: this holds for retransmissions, too. Not from a sender's tap
/// that missed some bytes.
fn bound_offset(bounds: &mut Bounds, halves: [&Exchange; 2], client: usize) {
    let (at_client, at_server) = (halves[client], halves[1 - client]);
    let mut sent = |from: usize, sent_ns: i64, received_ns: i64| match from {
        0 => bounds.first_to_second(sent_ns, received_ns),
        _ => bounds.second_to_first(sent_ns, received_ns),
    };
    if !at_client.doubts.hole {
        let (there, here) = (&at_client.request, &at_server.request);
        sent(client, there.first.seen_ns, here.first.ready_ns);
        if there.end as u32 == here.end as u32 {
            sent(client, there.last.seen_ns, here.last.ready_ns);
        }
    }
    let Some((here, there)) = at_client.response.as_ref().zip(at_server.response.as_ref()) else { return };
    if !at_server.doubts.hole && here.start as u32 == there.start as u32 {
        sent(1 - client, there.first.seen_ns, here.first.ready_ns);
        if there.end as u32 == here.end as u32 {
            sent(1 - client, there.last.seen_ns, here.last.ready_ns);
        }
    }
}

/// Copies what one half knows and the other does not. Method numbers belong to their own capture, and are not
/// copied.
fn fill_in(exchanges: &mut [Option<Exchange>; 2]) {
    let [Some(client), Some(server)] = exchanges else { return };
    match (client.trace, server.trace) {
        (None, Some(_)) => client.by_shape.trace = server.by_shape.trace,
        (Some(_), None) => server.by_shape.trace = client.by_shape.trace,
        _ => {}
    }
    let trace = client.trace.or(server.trace);
    (client.trace, server.trace) = (trace, trace);
    let deadline_ns = client.deadline_ns.or(server.deadline_ns);
    (client.deadline_ns, server.deadline_ns) = (deadline_ns, deadline_ns);
    if client.status == spangap_model::CallStatus::UNSET {
        (client.status, client.by_shape.status) = (server.status, server.by_shape.status);
    } else if server.status == spangap_model::CallStatus::UNSET {
        (server.status, server.by_shape.status) = (client.status, client.by_shape.status);
    }
}

impl Link {
    /// The capture at the client's end, as its opening and most of its calls show it.
    pub fn client_capture(&self) -> Option<usize> {
        let most = |[first, second]: [u64; 2]| match first.cmp(&second) {
            Ordering::Greater => Some(0),
            Ordering::Less => Some(1),
            Ordering::Equal => None,
        };
        most(self.votes).or_else(|| most(self.doubtful))
    }
}

#[cfg(test)]
mod tests;
