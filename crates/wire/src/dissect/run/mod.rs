//! Reading: packets to the taps, exchanges to the joiner, calls to the sums and to the few that are kept.

mod close;
mod conclude;
mod held_up;
mod kept_calls;

pub(super) use close::Closed;
pub(super) use conclude::Concluded;
pub(super) use kept_calls::Keeper;

use super::by_time::{Ids, Place, Untracked};
use super::pace::Pace;
use super::proxy_signs::ProxySigns;
use super::search::Search;
use super::sections::Choice;
use super::unopened::Unopened;
use super::unsettled::{Settled, UnsettledCall};
use super::{Progress, Settings};
use crate::decode::Decoder;
use crate::exchange::{Ended, Exchange, TextId};
use crate::findings::{self, EarlierCalls};
use crate::hops::rules::Facts;
use crate::join::links::Link;
use crate::join::{Joined, Joiner, MateOutlook};
use crate::legs::Moments;
use crate::source::Capture;
use crate::tap::Tap;
use crate::tcp::{ConnectionFacts, Handshake};
use crate::totals::Totals;
use rustc_hash::FxHashMap;
use spangap_model::Side;
use std::collections::VecDeque;
use std::rc::Rc;

/// Packets of one capture read before the other's turn is considered.
const BATCH: usize = 128;
/// A call is concluded when its captures have advanced by this much, nanoseconds: a retransmission after its
/// last byte shows what delayed it. Longer than the minimum retransmission timeout of 200 ms.
const SETTLING_NS: i64 = 250_000_000;

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
    /// Calls that carry no trace context, where there are spans that may be of them.
    pub untracked: Untracked,
    /// Spans found by their times on an earlier reading.
    pub by_time: Rc<FxHashMap<Place, Ids>>,
    proxies: ProxySigns,
    paths: FxHashMap<(u8, TextId), Option<Rc<str>>>,
    joiner: Joiner,
    pace: Pace,
    settling: VecDeque<Joined>,
    earlier: EarlierCalls,
    totals: Totals,
    kept: Keeper,
    /// Every call that fits, instead of the slowest, when the captures are read again.
    every: Option<Vec<UnsettledCall>>,
    /// Number of packets to read from each capture: growth of a file since the first pass is ignored.
    packets: [u64; 2],
    calls: u64,
    matching: u64,
    search: Search,
    unopened: Unopened,
    /// Bytes of keys read from each capture, and number of invalid lines.
    keys_read: [usize; 2],
    exchanges: Vec<Exchange>,
    joined: Vec<Joined>,
    ended: Vec<ConnectionFacts>,
}

impl<'a> Run<'a> {
    /// Over one capture or two of the same traffic; `parts` has the number of each, and which connections to read.
    pub fn new(
        section: usize,
        mut captures: Vec<Capture>,
        parts: Vec<(usize, Option<Choice>)>,
        settings: &'a Settings,
    ) -> Run<'a> {
        let numbers: Vec<usize> = parts.iter().map(|part| part.0).collect();
        let ends = [0, 1].map(|part| numbers.get(part).and_then(|number| settings.end_of(*number)));
        let mut taps: Vec<Tap> = captures.iter().map(|_| Tap::default()).collect();
        for (tap, capture) in taps.iter_mut().zip(&mut captures) {
            tap.add_keys(&settings.key_log);
            capture.read_openings();
            capture.openings().iter().for_each(|opening| tap.opening(opening));
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
            untracked: Untracked::default(),
            by_time: Rc::default(),
            proxies: ProxySigns::default(),
            paths: FxHashMap::default(),
            joiner: Joiner::new(captures.len() == 2, ends).presuming(settings.presumed_end),
            search: Search::new(&settings.trace_ids),
            settings,
            captures,
            taps,
            pace,
            settling: VecDeque::new(),
            earlier: EarlierCalls::default(),
            totals: Totals::default(),
            kept: Keeper::new(settings.slowest, settings.sample),
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
    pub fn second(
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

    /// A time in one of its captures, by the first one's clock as far as it is known during reading.
    pub fn by_first_ns(&self, capture: usize, at_ns: i64) -> i64 {
        let second = self.numbers.first() != Some(&capture);
        at_ns - if second { self.pace.offset_ns.unwrap_or(0) } else { 0 }
    }

    /// No more will be read: calls in progress are concluded as they are.
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
            // What follows the last packet belongs to it.
            let Some(packet) = source.next().filter(|_| nth < left) else {
                self.pace.over[capture] = true;
                break;
            };
            latest = Some(packet.time_ns);
            match &mut self.choices[capture] {
                None => tap.packet(&packet),
                Some((choice, decoder)) => match decoder.decode(&packet) {
                    Ok(segment) if choice.takes(&segment) => tap.segment(&packet, &segment),
                    Err(_) if choice.has_the_rest() => tap.packet(&packet),
                    Ok(_) => continue,
                    Err(_) => {
                        tap.no_segment(&packet);
                        continue;
                    }
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
        let both = |joined: &&Joined| joined.halves.exchanges.iter().all(Option::is_some);
        for joined in self.joined.iter().filter(both) {
            let moments = Moments::of(&joined.halves);
            for way in findings::ways(&joined.halves, &moments).iter().flatten() {
                self.earlier.arrivals.note(way);
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
                return MateOutlook::MayCome;
            };
            if reached_ns[capture].saturating_sub(last.ready_ns) <= SETTLING_NS {
                return MateOutlook::NotYet;
            }
            match taps[1 - capture].connection_of(facts.ends, facts.network) {
                Some(_) => MateOutlook::MayCome,
                None => MateOutlook::WillNotCome,
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
        Some(Facts::of(connection, ends, &call.halves, &self.numbers, path))
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

    /// Calls seen in both captures.
    pub fn matched(&self) -> u64 {
        self.joiner.matched
    }

    /// The text of a method of one of its captures.
    pub fn method(&self, capture: u8, method: TextId) -> Option<String> {
        self.taps.get(usize::from(capture))?.texts().text(method)
    }
}
