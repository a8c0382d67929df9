//! Reading: packets to the taps, exchanges to the joiner, calls to the sums and to the few that are kept.

use super::followed::{Followed, Settled, of_all_hops};
use super::pace::Pace;
use super::proxy_signs::ProxySigns;
use super::search::Search;
use super::sections::Choice;
use super::unopened::{self, Unopened};
use super::{CaptureTotals, Dissection, Progress, Settings};
use crate::align::Clock;
use crate::call::{Finding, Halves};
use crate::causes::syn;
use crate::decode::Decoder;
use crate::episode::{Certainty, Episode};
use crate::exchange::{Ended, Exchange, TextId, TraceContext};
use crate::findings::{self, Memory, apps, batched_arrival, held, network_delay, ready, receiver_drop};
use crate::hops::LinkedBy;
use crate::hops::rules::Facts;
use crate::join::links::Link;
use crate::join::{Joined, Joiner, Verdict};
use crate::legs::Moments;
use crate::source::Capture;
use crate::tap::Tap;
use crate::tcp::{ConnectionFacts, Handshake};
use crate::totals::{Finished, Totals};
use rustc_hash::FxHashMap;
use spangap_model::{Cause, Side};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::rc::Rc;

/// Packets of one capture read before the other's turn is considered.
const BATCH: usize = 128;
/// A call is concluded when its captures are this much further, nanoseconds: what is sent again after its last byte
/// tells what held it up. Longer than the least retransmission timeout of 200 ms.
const SETTLING_NS: i64 = 250_000_000;
/// Or when so many calls wait for that.
const MAX_SETTLING: usize = 1024;

/// A call kept. The slowest calls are kept; of equal ones the first.
pub(super) struct Kept {
    pub duration_ns: u64,
    /// Whether it got no response: of equally long calls these come first.
    pub unanswered: bool,
    order: Reverse<u64>,
    pub call: Followed,
}

/// A call about which all is known but whether it is a hop of another.
#[derive(Debug)]
pub(super) struct Concluded {
    link: usize,
    pub halves: Box<Halves>,
    pub moments: Moments,
    pub duration_ns: u64,
    pub findings: Vec<Finding>,
}

/// What is known at the end of a section.
pub(super) struct Closed {
    pub clock: Option<Clock>,
    pub resolution_ns: u32,
    pub finished: Finished,
    pub pairs_left_out: u64,
}

impl PartialEq for Kept {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Kept {}

impl PartialOrd for Kept {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Kept {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.duration_ns, self.unanswered, self.order).cmp(&(
            other.duration_ns,
            other.unanswered,
            other.order,
        ))
    }
}

/// Everything on the way from captures to a [`Dissection`].
pub(super) struct Run<'a> {
    settings: &'a Settings,
    /// Its place among all sections.
    section: usize,
    captures: Vec<Capture>,
    /// The captures' numbers among all.
    pub numbers: Vec<usize>,
    /// Where a capture is in several sections: which of its connections are of this one.
    choices: Vec<Option<(Choice, Decoder)>>,
    taps: Vec<Tap>,
    /// Calls concluded that may be hops of others, or have hops; `None` as long as nothing looks like a proxy.
    pub concluded: Option<Vec<Concluded>>,
    proxies: ProxySigns,
    paths: FxHashMap<(u8, TextId), Option<Rc<str>>>,
    joiner: Joiner,
    pace: Pace,
    settling: VecDeque<Joined>,
    memory: Memory,
    totals: Totals,
    kept: BinaryHeap<Reverse<Kept>>,
    /// Every call that fits, instead of the slowest, when the captures are read again.
    every: Option<Vec<Followed>>,
    /// Packets to read of each capture: what a file has grown by since the first reading counts nowhere.
    packets: [u64; 2],
    calls: u64,
    matching: u64,
    search: Search,
    unopened: Unopened,
    /// Bytes of keys taken from each capture, and lines that are none.
    keys_read: [usize; 2],
    exchanges: Vec<Exchange>,
    joined: Vec<Joined>,
    ended: Vec<ConnectionFacts>,
}

impl<'a> Run<'a> {
    /// Over one capture or two of the same traffic; `parts` has the number of each, and which connections to read.
    pub fn new(
        section: usize,
        captures: Vec<Capture>,
        parts: Vec<(usize, Option<Choice>)>,
        settings: &'a Settings,
    ) -> Run<'a> {
        let numbers: Vec<usize> = parts.iter().map(|part| part.0).collect();
        let ends = [0, 1].map(|part| numbers.get(part).and_then(|number| settings.end_of(*number)));
        let mut taps: Vec<Tap> = captures.iter().map(|_| Tap::default()).collect();
        for tap in &mut taps {
            tap.add_keys(&settings.key_log);
        }
        let pace = Pace {
            over: [captures.is_empty(), captures.len() < 2],
            offset_ns: settings.same_clock.then_some(0),
            ..Pace::default()
        };
        Run {
            section,
            numbers,
            choices: parts
                .into_iter()
                .map(|part| part.1.map(|choice| (choice, Decoder::default())))
                .collect(),
            concluded: None,
            proxies: ProxySigns::default(),
            paths: FxHashMap::default(),
            joiner: Joiner::new(captures.len() == 2, ends),
            search: Search::new(&settings.trace_ids),
            settings,
            captures,
            taps,
            pace,
            settling: VecDeque::new(),
            memory: Memory::default(),
            totals: Totals::default(),
            kept: BinaryHeap::new(),
            every: None,
            packets: [u64::MAX; 2],
            calls: 0,
            matching: 0,
            unopened: Unopened::default(),
            keys_read: [0; 2],
            exchanges: Vec::new(),
            joined: Vec::new(),
            ended: Vec::new(),
        }
    }

    /// Over captures that were read before: hands out every call that fits.
    pub fn again(
        section: usize,
        captures: Vec<Capture>,
        settled: &Settled,
        settings: &'a Settings,
    ) -> Run<'a> {
        let mut run = Run::new(section, captures, settled.parts.clone(), settings);
        run.every = Some(Vec::new());
        run.search = Search::default();
        for (most, read) in run.packets.iter_mut().zip(&settled.packets) {
            *most = *read;
        }
        run
    }

    /// Reads a few packets of the capture that is behind; whether there were any.
    pub fn step(&mut self) -> bool {
        let Some(capture) = self.pace.next() else { return false };
        self.batch(capture);
        true
    }

    /// How far it is: the time of the first capture's clock, by the capture that is behind; `None` at the beginning and
    /// at the end.
    pub fn now_ns(&self) -> Option<i64> {
        let offset_ns = [0, self.pace.offset_ns.unwrap_or(0)];
        let open = (0..self.taps.len()).filter(|capture| !self.pace.over[*capture]);
        open.filter_map(|capture| Some(self.pace.now_ns[capture]? - offset_ns[capture])).min()
    }

    /// Whether one of its hosts seems to be called and to call another one for it.
    pub fn has_proxy(&self) -> bool {
        self.proxies.found
    }

    /// Whether everything was read.
    pub fn is_over(&self) -> bool {
        self.pace.next().is_none()
    }

    /// A time of one of its captures, by the first one's clock as far as it is known while reading.
    pub fn by_first_ns(&self, capture: usize, at_ns: i64) -> i64 {
        let second = self.numbers.first() != Some(&capture);
        at_ns - if second { self.pace.offset_ns.unwrap_or(0) } else { 0 }
    }

    /// No more is read: what is under way is concluded as it is.
    pub fn end(&mut self) {
        for capture in 0..self.taps.len() {
            self.pace.over[capture] = true;
            if let Some(stopped_ns) = self.captures[capture].reading().stopped_ns {
                self.taps[capture].went_on_until(stopped_ns);
            }
            self.taps[capture].finish();
            self.drain(capture);
        }
        self.joiner.finish(&mut self.joined);
        self.look_for_proxies();
        self.settling.extend(self.joined.drain(..));
        self.settle();
    }

    pub fn progress(&self) -> Progress {
        let mut progress = Progress { total_bytes: Some(0), calls: self.calls, ..Progress::default() };
        for capture in &self.captures {
            let reading = capture.reading();
            progress.bytes += reading.stored_bytes;
            progress.packets += reading.packets;
            progress.total_bytes = progress.total_bytes.zip(reading.stored_total_bytes).map(|(a, b)| a + b);
        }
        progress
    }

    /// Some packets of one capture.
    fn batch(&mut self, capture: usize) {
        let (source, tap) = (&mut self.captures[capture], &mut self.taps[capture]);
        let searching = self.search.is_on();
        let mut latest = None;
        let left = self.packets[capture].saturating_sub(source.reading().packets);
        for nth in 0..BATCH as u64 {
            // What stands behind the last packet belongs to it.
            let Some(packet) = source.next().filter(|_| nth < left) else {
                self.pace.over[capture] = true;
                break;
            };
            latest = Some(packet.time_ns);
            match &mut self.choices[capture] {
                None => tap.packet(&packet),
                Some((choice, decoder)) => match decoder.decode(&packet) {
                    Ok(segment) if choice.takes(&segment) => tap.segment(&segment),
                    Err(_) if choice.has_the_rest() => tap.packet(&packet),
                    _ => continue,
                },
            }
            if searching {
                self.search.packet(capture, &packet);
            }
        }
        let keys = source.key_log();
        if keys.len() > self.keys_read[capture] {
            tap.add_keys(&keys[self.keys_read[capture]..]);
            self.keys_read[capture] = keys.len();
        }
        self.pace.now_ns[capture] = latest.or(self.pace.now_ns[capture]);
        self.drain(capture);
        if !self.settings.same_clock {
            self.pace.offset_ns = self.joiner.bounds.guess_ns();
        }
        if self.proxies.found && self.joiner.matched > 0 && !self.joiner.translates {
            self.give_up_alone();
        }
        self.pace.many[capture] = self.joiner.has_many(capture);
        self.settle();
    }

    /// What a tap has finished goes to the joiner.
    fn drain(&mut self, capture: usize) {
        self.taps[capture].take_exchanges(&mut self.exchanges);
        let taps = &self.taps;
        let facts = |capture: usize, connection: u32| taps[capture].connection(connection);
        for exchange in self.exchanges.drain(..) {
            self.joiner.offer(capture, exchange, &facts, &mut self.joined);
        }
        self.look_for_proxies();
        for joined in &self.joined {
            let moments = Moments::of(&joined.halves);
            for way in findings::ways(&joined.halves, &moments).iter().flatten() {
                self.memory.arrivals.note(way);
            }
        }
        self.settling.extend(self.joined.drain(..));
        self.taps[capture].take_ended(&mut self.ended);
        for facts in std::mem::take(&mut self.ended) {
            if self.joiner.links.known(capture, facts.id).is_none() {
                self.unopened.take(capture, facts);
            } else if let Some(link) = self.joiner.links.end(capture, facts) {
                self.close(link);
            }
        }
    }

    /// Calls of a proxy that only its own capture has need not wait for the other one's half: that has no such connection.
    fn give_up_alone(&mut self) {
        let [Some(first_ns), Some(second_ns)] = self.pace.now_ns else { return };
        let offset_ns = self.pace.offset_ns.unwrap_or(0);
        let reached_ns = [
            first_ns.min(second_ns.saturating_sub(offset_ns)),
            second_ns.min(first_ns.saturating_add(offset_ns)),
        ];
        let taps = &self.taps;
        let verdict = |capture: usize, link: &Link, half: &Exchange| {
            let last = half.response.as_ref().map_or(half.request.last, |response| response.last);
            let facts = link.facts[capture].as_ref().filter(|_| link.connections[1 - capture].is_none());
            let Some(facts) = facts.filter(|_| half.ended == Ended::Complete) else {
                return Verdict::MayCome;
            };
            if reached_ns[capture].saturating_sub(last.ready_ns) <= SETTLING_NS {
                return Verdict::NotYet;
            }
            match taps[1 - capture].connection_of(facts.ends, facts.network) {
                Some(_) => Verdict::MayCome,
                None => Verdict::WillNotCome,
            }
        };
        self.joiner.give_up(verdict, &mut self.joined);
        self.settling.extend(self.joined.drain(..));
    }

    /// Looks at calls just joined.
    #[inline]
    fn look_for_proxies(&mut self) {
        if self.proxies.found {
            return;
        }
        for joined in &self.joined {
            let state = self.joiner.links.at(joined.link);
            self.proxies.look(state.key, &joined.halves);
            if !std::mem::replace(&mut state.ends_noted, true)
                && let Some(facts) = state.facts.iter().flatten().next()
            {
                self.proxies.connection(facts.ends);
            }
        }
    }

    /// Concludes the calls about which no more is to come.
    fn settle(&mut self) {
        let over = self.pace.over;
        while let Some(joined) = self.settling.front() {
            let due = joined.halves.exchanges.iter().zip(joined.halves.captures).all(|(half, capture)| {
                let Some(half) = half else { return true };
                let last = half.response.as_ref().map_or(half.request.last, |response| response.last);
                let now = self.pace.now_ns[usize::from(capture)].unwrap_or(i64::MAX);
                over[usize::from(capture)] || now.saturating_sub(last.ready_ns) > SETTLING_NS
            });
            if !due && self.settling.len() < MAX_SETTLING {
                break;
            }
            if let Some(joined) = self.settling.pop_front() {
                self.conclude(joined);
            }
        }
    }

    fn conclude(&mut self, joined: Joined) {
        let Joined { link, mut halves } = joined;
        let link = self.joiner.links.settle(link);
        let trace = halves.exchanges.iter().flatten().find_map(|half| half.trace);
        // The spans of a stream are of the whole of it, and not of a turn in its middle.
        let later_turn = halves.exchanges.iter().flatten().any(|half| half.turn > 1);
        if !self.settings.spans.times.is_empty()
            && !later_turn
            && let Some(TraceContext { trace_id, span_id }) = trace
        {
            let spans = self.settings.spans.times.get(&(trace_id, span_id)).copied();
            halves.spans = match &halves.exchanges[Side::Server.index()] {
                Some(server) => spans.map(|spans| spans.of_attempt(server)),
                None => spans,
            };
        }
        halves.never_arrived = self.never_arrived(link, &halves);
        let moments = Moments::of(&halves).closed();
        let duration_ns = moments.ends().map_or(0, |(first, last)| (last.0 - first.0).max(0) as u64);
        let mut found = self.findings(link, &halves, &moments, duration_ns);
        findings::by_weight(&mut found);
        let call = Concluded { link, halves, moments, duration_ns, findings: found };
        match &mut self.concluded {
            None => self.count(call, Vec::new()),
            Some(concluded) => {
                // Its connection stays until it is counted.
                self.joiner.links.at(link).uses += 1;
                concluded.push(call);
            }
        }
    }

    /// Counts a call that is no hop of another one, with its own hops.
    #[inline]
    fn count(&mut self, call: Concluded, hops: Vec<(LinkedBy, Followed)>) {
        let Concluded { link, halves, moments, duration_ns, findings } = call;
        let trace = halves.exchanges.iter().flatten().find_map(|half| half.trace);
        let state = self.joiner.links.at(link);
        if hops.is_empty() {
            state.sums.call(&halves, &moments, duration_ns, &findings);
        } else {
            state.sums.call(&halves, &moments, duration_ns, &of_all_hops(&findings, &hops));
        }
        let (key, ends) = (state.key, state.ends());
        self.calls += 1;
        if self.is_wanted(duration_ns, trace) {
            self.matching += 1;
            let weight = (duration_ns, moments.1.is_some());
            let call = Followed { section: self.section, link: key, ends, halves, findings, hops };
            match &mut self.every {
                Some(every) => every.push(call),
                None => self.keep(call, weight),
            }
        }
        self.close(link);
    }

    /// Counts a call of [`Run::concluded`] that is no hop of another.
    pub fn count_later(&mut self, mut call: Concluded, hops: Vec<(LinkedBy, Followed)>) {
        call.link = self.joiner.links.settle(call.link);
        self.count(call, hops);
    }

    /// Counts a call of [`Run::concluded`] that is a hop of another, with its connection only.
    pub fn count_hop(&mut self, call: Concluded, hops: Vec<(LinkedBy, Followed)>) -> Followed {
        let link = self.joiner.links.settle(call.link);
        let Concluded { halves, moments, duration_ns, findings, .. } = call;
        let state = self.joiner.links.at(link);
        state.inner.call(&halves, &moments, duration_ns, &findings);
        let (key, ends) = (state.key, state.ends());
        let followed = Followed { section: self.section, link: key, ends, halves, findings, hops };
        self.close(link);
        followed
    }

    /// What links of calls are found by; `None` for a call whose connection is not known.
    pub fn facts_of(&mut self, call: &Concluded) -> Option<Facts> {
        let link = self.joiner.links.resolved(call.link);
        let state = self.joiner.links.get(link);
        let ends = state.ends()?;
        let connection = (self.section, state.key);
        let mut path = None;
        for (half, capture) in call.halves.exchanges.iter().zip(call.halves.captures) {
            let Some(half) = half.as_ref().filter(|half| half.method != TextId::default()) else { continue };
            let taps = &self.taps;
            let known = self.paths.entry((capture, half.method)).or_insert_with(|| {
                let text = taps[usize::from(capture)].texts().text(half.method)?;
                let path = text.split_once(' ').map_or(text.as_str(), |(_, target)| target);
                Some(Rc::from(path))
            });
            path = path.or(known.clone());
        }
        Some(Facts::of(connection, ends, &call.halves, call.duration_ns, &self.numbers, path))
    }

    /// How the connection of a call was opened, as its client's tap saw it.
    pub fn handshake_of(&self, call: &Concluded) -> Option<Handshake> {
        let state = self.joiner.links.get(self.joiner.links.resolved(call.link));
        let capture = usize::from(call.halves.captures[Side::Client.index()]);
        Some(state.facts[capture].as_ref()?.handshake)
    }

    /// Whether a host tried to open a connection in a stretch of a capture's time, and it did not open by then.
    pub fn tried_to_connect(&self, capture: usize, address: [u8; 16], (from_ns, to_ns): (i64, i64)) -> bool {
        let Some(tap) = self.numbers.iter().position(|number| *number == capture) else { return false };
        let of_host = |facts: &ConnectionFacts| {
            let unopened = facts.handshake.ack.is_none_or(|(at_ns, _)| at_ns > to_ns);
            let tried = facts.handshake.syn.is_some_and(|(at_ns, _)| at_ns <= to_ns);
            facts.ends[0].address == address && tried && unopened && facts.last_ns >= from_ns
        };
        self.taps[tap].connections().iter().any(of_host) || self.unopened.seen_by(tap).any(of_host)
    }

    /// Whether the server's capture has the connection and the time of a call that ended without a response, and no byte
    /// of its request.
    fn never_arrived(&self, link: usize, halves: &Halves) -> bool {
        let [Some(client), None] = &halves.exchanges else { return false };
        let Some(ending) = client.ending else { return false };
        let other = 1 - usize::from(halves.captures[0]);
        let (Some(tap), Some(capture)) = (self.taps.get(other), self.captures.get(other)) else {
            return false;
        };
        let link = self.joiner.links.get(link);
        let own = link.facts[1 - other].as_ref();
        let facts = link.facts[other]
            .clone()
            .or_else(|| own.and_then(|own| tap.connection_of(own.ends, own.network)));
        let Some(facts) = facts.filter(|facts| facts.hole_bytes[Side::Client.index()] == 0) else {
            return false;
        };
        let offset_ns = self.pace.offset_ns.unwrap_or(0);
        let ahead_ns = if other == 1 { offset_ns } else { offset_ns.saturating_neg() };
        let there = |at_ns: i64| at_ns.saturating_add(ahead_ns);
        let until_ns = self.pace.now_ns[other].max(capture.reading().stopped_ns).unwrap_or(i64::MIN);
        // Of one still open, whatever could be lost was sent again once.
        let asked_ns = client.request.last.seen_ns;
        let covered_ns =
            if ending.by.is_none() { asked_ns.saturating_add(SETTLING_NS) } else { ending.at_ns };
        facts.first_ns <= there(asked_ns)
            && until_ns >= there(covered_ns)
            && capture.reading().dropped.is_none_or(|dropped| dropped == 0)
    }

    fn findings(
        &mut self,
        link: usize,
        halves: &Halves,
        moments: &Moments,
        duration_ns: u64,
    ) -> Vec<Finding> {
        let mut episodes = [Vec::new(), Vec::new()];
        for (side, half) in halves.exchanges.iter().enumerate() {
            if let Some(half) = half {
                episodes[side] = self.taps[usize::from(halves.captures[side])].episodes_of(half);
            }
        }
        let about = held::About { halves, moments, duration_ns, offset_ns: self.pace.offset_ns.unwrap_or(0) };
        let mut explained = Vec::new();
        self.opening(link, halves, &mut episodes);
        ready::settle(moments, &mut episodes);
        receiver_drop::settle(&mut episodes);
        let mut found = if episodes.iter().all(Vec::is_empty) {
            Vec::new()
        } else {
            held::findings(&about, &episodes, &mut explained)
        };
        let mut path = network_delay::Taken::default();
        for way in findings::ways(halves, moments).into_iter().flatten() {
            let state = self.joiner.links.at(link);
            let detour_ns = &mut state.detour_ns[usize::from(way.capture & 1)];
            let mut beyond_ns = self.memory.paths.excess_ns(&way, detour_ns);
            // What is sent again was first sent when it got lost: of such a way, loss took what it is known to have
            // taken, and nothing beyond the fastest is the path's.
            let is_loss = |cause, sender| findings::is_loss(cause) && sender == way.from;
            let mut explained_ns = findings::covered_ns(&explained, way.range(about.offset_ns), |span| {
                is_loss(span.cause, span.sender)
            });
            if episodes.iter().flatten().any(|episode| is_loss(episode.cause, episode.sender)) {
                beyond_ns = 0;
            } else if network_delay::is_late(beyond_ns, duration_ns)
                && let Some(batch) = self.memory.arrivals.batch(&way)
            {
                found.push(batched_arrival::finding(&way, &batch, beyond_ns, duration_ns));
                explained_ns += beyond_ns;
                beyond_ns = 0;
            }
            path.ways[way.from.index()] = Some((way, explained_ns, beyond_ns));
        }
        if let Some(sum_ns) = path.sum_ns() {
            let least_ns = &mut self.joiner.links.at(link).least_path_ns;
            *least_ns = Some(least_ns.map_or(sum_ns, |least| least.min(sum_ns)));
        }
        if let Some(cost_ns) = path.cost_ns(duration_ns) {
            found.push(path.finding(cost_ns, duration_ns));
        }
        apps::findings(&about, &explained, &mut found);
        found
    }

    /// What held the opening of a connection up, told of the calls that waited for it: by their CLIENT spans, or else of
    /// the first one.
    #[inline]
    fn opening(&mut self, link: usize, halves: &Halves, episodes: &mut [Vec<Episode>; 2]) {
        let state = self.joiner.links.at(link);
        let seen = [0, 1].map(|side| {
            let facts = state.facts[usize::from(halves.captures[side])].as_ref();
            facts.filter(|_| halves.exchanges[side].is_some()).map(|facts| facts.handshake)
        });
        if seen.iter().flatten().all(|handshake| handshake.syns < 2 && handshake.syn_acks < 2) {
            return;
        }
        let opened = seen[0].and_then(|handshake| handshake.ack);
        let waited = match halves.spans.and_then(|spans| spans.client).zip(opened) {
            Some(((start, _), (opened, _))) => start < opened,
            None => !state.opening_told,
        };
        let first = !std::mem::replace(&mut state.opening_told, true);
        if !waited {
            return;
        }
        let mut held = [Vec::new(), Vec::new()];
        for (side, handshake) in seen.into_iter().enumerate() {
            let begun = handshake.and_then(|handshake| handshake.syn.or(handshake.syn_ack));
            let Some((half, (begun_ns, _))) = halves.exchanges[side].as_ref().zip(begun) else { continue };
            let mut since = half.clone();
            since.request.first.seen_ns = begun_ns;
            held[side] = self.taps[usize::from(halves.captures[side])].episodes_of(&since);
            held[side].retain(|held| matches!(held.cause, Cause::SynLoss | Cause::AcceptOverflow));
        }
        if let [Some(client), Some(server)] = &seen
            && let Some((cause, certainty)) = syn::together(client, server)
        {
            let side = (cause == Cause::AcceptOverflow).then_some(Side::Server);
            for episode in held.iter_mut().flatten() {
                (episode.cause, episode.certainty, episode.side) = (cause, certainty, side);
            }
            if let Some(waiting) =
                server.queue_unanswered.filter(|_| certainty == Certainty::Shown && side.is_some())
            {
                held[Side::Server.index()].iter_mut().for_each(|episode| syn::queued(episode, waiting));
            }
        }
        if first && let Some(episode) = held.iter().flatten().max_by_key(|held| held.to_ns - held.from_ns) {
            let notes = &mut self.joiner.links.at(link).notes;
            notes.push(unopened::slowly(episode, seen));
        }
        for (all, held) in episodes.iter_mut().zip(held) {
            all.extend(held);
        }
    }

    fn is_wanted(&self, duration_ns: u64, trace: Option<TraceContext>) -> bool {
        let ids = &self.settings.trace_ids;
        let of_trace =
            ids.is_empty() || trace.is_some_and(|trace| ids.iter().any(|id| is_trace(id, &trace.trace_id)));
        of_trace && self.settings.over_ns.is_none_or(|over| duration_ns >= over)
    }

    fn keep(&mut self, call: Followed, weight: (u64, bool)) {
        let (duration_ns, unanswered) = weight;
        let full = self.kept.len() >= self.settings.slowest;
        if full && self.kept.peek().is_none_or(|least| (least.0.duration_ns, least.0.unanswered) >= weight) {
            return;
        }
        if full {
            self.kept.pop();
        }
        let order = Reverse(self.calls);
        self.kept.push(Reverse(Kept { duration_ns, unanswered, order, call }));
    }

    /// A link that is over goes to the sums.
    fn close(&mut self, link: usize) {
        if let Some(mut link) = self.joiner.links.take_if_over(link) {
            let mut notes = std::mem::take(&mut link.notes);
            notes.extend(self.notes(link.connections));
            self.totals.take(link, notes);
        }
    }

    fn notes(&self, connections: [Option<u32>; 2]) -> Vec<String> {
        let mut notes: Vec<String> = Vec::new();
        for (tap, connection) in self.taps.iter().zip(connections) {
            for note in connection.map(|connection| tap.notes(connection)).unwrap_or_default() {
                if !notes.contains(&note) {
                    notes.push(note);
                }
            }
        }
        notes
    }

    /// Sums and clocks. What is counted after it counts nowhere.
    pub fn close_all(&mut self) -> Closed {
        for (capture, tap) in self.taps.iter().enumerate() {
            for facts in tap.connections() {
                if self.joiner.links.known(capture, facts.id).is_none() {
                    self.unopened.take(capture, facts);
                }
            }
        }
        for mut link in self.joiner.links.take_all() {
            for (capture, tap) in self.taps.iter().enumerate() {
                let latest = link.connections[capture].and_then(|connection| tap.connection(connection));
                link.facts[capture] = latest.or(link.facts[capture].take());
            }
            let mut notes = std::mem::take(&mut link.notes);
            notes.extend(self.notes(link.connections));
            self.totals.take(link, notes);
        }
        for (seen, note) in self.unopened.finish(self.captures.len()) {
            self.totals.list(Link::without_calls(seen), vec![note]);
        }
        let resolution_ns =
            self.captures.iter().map(|capture| capture.reading().resolution_ns).max().unwrap_or(1);
        let clock = if self.settings.same_clock || self.one_host() {
            Some(Clock::same())
        } else {
            Clock::fit(&self.joiner.bounds, resolution_ns)
        };
        let pairs_left_out = self.totals.pairs_left_out;
        let finished = std::mem::take(&mut self.totals).finish(clock.as_ref(), resolution_ns);
        Closed { pairs_left_out, clock, resolution_ns, finished }
    }

    /// Whether the names of both captures say that one host's clock times them.
    fn one_host(&self) -> bool {
        let name = |place: usize| {
            self.numbers.get(place).and_then(|number| self.settings.names.get(*number)?.as_ref())
        };
        name(0).is_some() && name(0) == name(1)
    }

    /// Every call that fits since this was last asked.
    pub fn take_every(&mut self) -> Vec<Followed> {
        self.every.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// What reading its captures again needs, and its calls until they are complete. For once.
    pub fn settled(&mut self, closed: &mut Closed) -> Settled {
        let choices = self.choices.iter_mut().map(|choice| Some(choice.take()?.0));
        Settled {
            parts: self.numbers.iter().copied().zip(choices).collect(),
            packets: self.captures.iter().map(|capture| capture.reading().packets).collect(),
            clock: closed.clock.clone(),
            resolution_ns: closed.resolution_ns,
            connections: std::mem::take(&mut closed.finished.numbers),
            reconnects: std::mem::take(&mut closed.finished.reconnects),
        }
    }

    /// The calls kept, slowest first.
    pub fn take_kept(&mut self) -> Vec<Kept> {
        let kept = std::mem::take(&mut self.kept).into_sorted_vec();
        kept.into_iter().map(|Reverse(kept)| kept).collect()
    }

    /// The result but for the calls, with the captures' numbers here.
    pub fn dissection(&mut self, closed: Closed) -> Dissection {
        let Closed { clock, finished, pairs_left_out, .. } = closed;
        let mut dissection = Dissection {
            matching: self.matching,
            sums: finished.sums,
            connections: finished.connections,
            connections_left_out: finished.connections_left_out,
            pairs: finished.pairs,
            pairs_left_out,
            copies: self.joiner.copies,
            contradictions: self.joiner.contradictions,
            trace_id_elsewhere: std::mem::take(&mut self.search.places),
            ..Dissection::default()
        };
        for (i, (capture, tap)) in self.captures.iter().zip(&self.taps).enumerate() {
            dissection.captures.push(CaptureTotals {
                reading: capture.reading().clone(),
                counts: tap.counts(),
                unmatched: self.joiner.unmatched[i],
                halves_evicted: self.joiner.evicted[i],
                bookmarks: Some(capture.bookmarks().clone()),
            });
        }
        dissection.clock = clock.filter(|_| self.captures.len() == 2);
        dissection
    }

    /// Calls seen in both captures.
    pub fn matched(&self) -> u64 {
        self.joiner.matched
    }

    /// The text of a method of one of its captures.
    pub fn method(&self, capture: u8, method: TextId) -> Option<String> {
        self.taps.get(usize::from(capture))?.texts().text(method)
    }
}

/// Whether an id looked for is that of a trace. A 64-bit id is the low half of what another system makes of it.
pub(super) fn is_trace(id: &[u8; 16], of: &[u8; 16]) -> bool {
    id == of || ((id[..8] == [0; 8] || of[..8] == [0; 8]) && id[8..] == of[8..])
}
