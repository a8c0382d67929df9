//! Reading: packets to the taps, exchanges to the joiner, calls to the sums and to the few that are kept.

use super::caveats::{Known, caveats};
use super::pace::Pace;
use super::search::Search;
use super::unopened::{self, Unopened};
use super::{CaptureTotals, Dissection, OnProgress, Progress, Settings};
use crate::align::Clock;
use crate::call::{Call, Finding, Halves};
use crate::causes::syn;
use crate::episode::{Certainty, Episode};
use crate::exchange::{Exchange, TraceContext};
use crate::findings::{self, Memory, apps, batched_arrival, held, network_delay, ready, receiver_drop};
use crate::join::links::Link;
use crate::join::{Joined, Joiner};
use crate::legs::{Clocks, Moments, legs};
use crate::source::Capture;
use crate::tap::Tap;
use crate::tcp::ConnectionFacts;
use crate::totals::Totals;
use spangap_model::{Cause, Side};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::ControlFlow;

/// Packets of one capture read before the other's turn is considered.
const BATCH: usize = 128;
/// Packets between two reports of progress.
const PROGRESS_PACKETS: u64 = 1 << 17;
/// A call is concluded when its captures are this much further, nanoseconds: what is sent again after its last byte
/// tells what held it up. Longer than the least retransmission timeout of 200 ms.
const SETTLING_NS: i64 = 250_000_000;
/// Or when so many calls wait for that.
const MAX_SETTLING: usize = 1024;

/// A call kept. The slowest calls are kept; of equal ones the first.
struct Kept {
    duration_ns: u64,
    /// Whether it got no response: of equally long calls these come first.
    unanswered: bool,
    order: Reverse<u64>,
    link: u32,
    halves: Box<Halves>,
    findings: Vec<Finding>,
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
    captures: Vec<Capture>,
    taps: Vec<Tap>,
    joiner: Joiner,
    pace: Pace,
    settling: VecDeque<Joined>,
    memory: Memory,
    totals: Totals,
    kept: BinaryHeap<Reverse<Kept>>,
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
    pub fn new(mut captures: Vec<Capture>, settings: &'a Settings) -> Run<'a> {
        captures.truncate(2);
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
            joiner: Joiner::new(captures.len() == 2),
            search: Search::new(&settings.trace_ids),
            settings,
            captures,
            taps,
            pace,
            settling: VecDeque::new(),
            memory: Memory::default(),
            totals: Totals::default(),
            kept: BinaryHeap::new(),
            calls: 0,
            matching: 0,
            unopened: Unopened::default(),
            keys_read: [0; 2],
            exchanges: Vec::new(),
            joined: Vec::new(),
            ended: Vec::new(),
        }
    }

    /// Reads both captures to their ends.
    pub fn read(&mut self, on_progress: &mut OnProgress<'_>) -> ControlFlow<()> {
        let mut flow = ControlFlow::Continue(());
        let mut next_report = PROGRESS_PACKETS;
        while let Some(capture) = self.pace.next() {
            self.batch(capture);
            next_report = next_report.saturating_sub(BATCH as u64);
            if next_report == 0 {
                next_report = PROGRESS_PACKETS;
                flow = on_progress(self.progress());
                if flow.is_break() {
                    break;
                }
            }
        }
        for capture in 0..self.taps.len() {
            self.pace.over[capture] = true;
            if let Some(stopped_ns) = self.captures[capture].reading().stopped_ns {
                self.taps[capture].went_on_until(stopped_ns);
            }
            self.taps[capture].finish();
            self.drain(capture);
        }
        self.joiner.finish(&mut self.joined);
        self.settling.extend(self.joined.drain(..));
        self.settle();
        let _ = on_progress(self.progress());
        flow
    }

    fn progress(&self) -> Progress {
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
        for _ in 0..BATCH {
            let Some(packet) = source.next() else {
                self.pace.over[capture] = true;
                break;
            };
            latest = Some(packet.time_ns);
            tap.packet(&packet);
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
        let state = self.joiner.links.at(link);
        state.sums.call(&halves, &moments, duration_ns, &found);
        let key = state.key;
        self.calls += 1;
        if self.is_wanted(duration_ns, trace) {
            self.matching += 1;
            self.keep(key, halves, (duration_ns, moments.1.is_some()), found);
        }
        self.close(link);
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

    fn keep(&mut self, link: u32, halves: Box<Halves>, weight: (u64, bool), findings: Vec<Finding>) {
        let (duration_ns, unanswered) = weight;
        let full = self.kept.len() >= self.settings.slowest;
        if full && self.kept.peek().is_none_or(|least| (least.0.duration_ns, least.0.unanswered) >= weight) {
            return;
        }
        if full {
            self.kept.pop();
        }
        let order = Reverse(self.calls);
        self.kept.push(Reverse(Kept { duration_ns, unanswered, order, link, halves, findings }));
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

    /// The result.
    pub fn finish(mut self) -> Dissection {
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
        let clock = if self.settings.same_clock {
            Some(Clock::same())
        } else {
            Clock::fit(&self.joiner.bounds, resolution_ns)
        };
        let pairs_left_out = self.totals.pairs_left_out;
        let finished = std::mem::take(&mut self.totals).finish(clock.as_ref(), resolution_ns);
        let mut calls = Vec::with_capacity(self.kept.len());
        for Reverse(mut kept) in std::mem::take(&mut self.kept).into_sorted_vec() {
            if finished.reconnects.contains(&kept.link) {
                kept.findings.retain(|finding| finding.cause != Cause::ConnectionPerCall);
            }
            let (number, least_path_ns) = finished.numbers.get(&kept.link).copied().unwrap_or((0, None));
            calls.push(finished_call(kept, number, least_path_ns, clock.as_ref(), resolution_ns));
        }
        let mut dissection = Dissection {
            matching: self.matching,
            sums: finished.sums,
            connections: finished.connections,
            connections_left_out: finished.connections_left_out,
            pairs: finished.pairs,
            copies: self.joiner.copies,
            contradictions: self.joiner.contradictions,
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
        self.methods(&calls, &mut dissection);
        let in_calls = |capture: u8, packet: u64| {
            let halves = calls.iter().flat_map(|call| call.halves.exchanges.iter().zip(call.halves.captures));
            halves.filter(|(_, of)| *of == capture).any(|(half, _)| {
                let request = half.as_ref().map(|half| half.request);
                request.is_some_and(|part| (part.first.packet..=part.last.packet).contains(&packet))
            })
        };
        let mut places = std::mem::take(&mut self.search.places);
        places.retain(|(capture, packet, _)| !in_calls(*capture, *packet));
        dissection.trace_id_elsewhere = places;
        dissection.calls = calls;
        let matched = self.joiner.matched;
        let no_calls = self.calls == 0;
        dissection.caveats = caveats(
            &dissection,
            &Known {
                clock: clock.as_ref(),
                same_clock: self.settings.same_clock,
                matched,
                pairs_left_out,
                no_calls,
            },
        );
        dissection.clock = clock.filter(|_| self.captures.len() == 2);
        dissection
    }

    fn methods(&self, calls: &[Call], dissection: &mut Dissection) {
        let mut known = rustc_hash::FxHashSet::default();
        for call in calls {
            for (half, capture) in call.halves.exchanges.iter().zip(call.halves.captures) {
                let Some(half) = half else { continue };
                if known.insert((capture, half.method))
                    && let Some(text) = self.taps[usize::from(capture)].texts().text(half.method)
                {
                    dissection.methods.push((capture, half.method, text));
                }
            }
        }
    }
}

/// Whether an id looked for is that of a trace. A 64-bit id is the low half of what another system makes of it.
pub(super) fn is_trace(id: &[u8; 16], of: &[u8; 16]) -> bool {
    id == of || ((id[..8] == [0; 8] || of[..8] == [0; 8]) && id[8..] == of[8..])
}

/// A kept call, the clocks being known.
fn finished_call(
    kept: Kept,
    connection: u32,
    least_path_ns: Option<u64>,
    clock: Option<&Clock>,
    resolution_ns: u32,
) -> Call {
    let halves = *kept.halves;
    let clocks = Clocks { clock, client_capture: halves.captures[0], resolution_ns };
    let (start_ns, duration_ns, legs) = legs(&halves, clocks);
    let mut findings = kept.findings;
    for finding in findings.iter_mut().filter(|finding| finding.cause == Cause::NetworkDelay) {
        finding.note = network_delay::note(finding.cost_ns.unwrap_or(0), least_path_ns);
    }
    Call { halves, connection, start_ns, duration_ns, legs, findings, hosts: Vec::new() }
}
