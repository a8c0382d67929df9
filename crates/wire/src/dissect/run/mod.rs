//! Reading: packets to the taps, exchanges to the joiner, calls to the sums and to the few that are kept.

mod close;
mod conclude;
mod feed;
mod held_up;
mod kept_calls;
mod reader;

pub(super) use close::Closed;
pub(super) use conclude::Concluded;
pub(super) use kept_calls::Keeper;

use super::by_time::{Ids, Place, Untracked};
use super::pace::Pace;
use super::proxy_signs::ProxySigns;
use super::search::{MAX_PLACES, Search};
use super::sections::Choice;
use super::unopened::Unopened;
use super::unsettled::{Settled, UnsettledCall};
use super::{Progress, Settings};
use crate::exchange::{Ended, Exchange, TextId};
use crate::findings::{self, EarlierCalls};
use crate::hops::rules::Facts;
use crate::join::links::Link;
use crate::join::{Joined, Joiner, MateOutlook};
use crate::legs::Moments;
use crate::source::Capture;
use crate::tap::Known;
use crate::tcp::news::Seen;
use crate::tcp::{ConnectionFacts, Handshake};
use crate::totals::Totals;
use feed::Feed;
use reader::{Batch, ReadSoFar, Reader};
use rustc_hash::FxHashMap;
use spangap_model::Side;
use std::collections::VecDeque;
use std::rc::Rc;

/// A call is concluded when its captures have advanced by this much, nanoseconds: a retransmission after its
/// last byte shows what delayed it. Longer than the minimum retransmission timeout of 200 ms.
const SETTLING_NS: i64 = 250_000_000;

/// Everything on the way from captures to a [`Dissection`].
pub(super) struct Run<'a> {
    settings: &'a Settings,
    /// Its place among all sections.
    section: usize,
    /// Its captures, until they are over.
    feeds: Vec<Feed>,
    /// The same, once they are.
    readers: Vec<Reader>,
    /// The captures' numbers among all.
    pub numbers: Vec<usize>,
    /// What is known of each one's connections, and how far it was read.
    known: Vec<Known>,
    so_far: Vec<ReadSoFar>,
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
    calls: u64,
    matching: u64,
    /// Where trace ids were found: capture, packet, form.
    places: Vec<(u8, u64, &'static str)>,
    unopened: Unopened,
    joined: Vec<Joined>,
}

impl<'a> Run<'a> {
    /// Over one capture or two of the same traffic; `parts` has the number of each, and which connections to read.
    pub fn new(
        section: usize,
        captures: Vec<Capture>,
        parts: Vec<(usize, Option<Choice>)>,
        settings: &'a Settings,
        ahead: bool,
    ) -> Run<'a> {
        Run::over(section, captures, parts, settings, ahead, None)
    }

    /// Over captures that were read before: hands out every call that fits.
    pub fn second(
        section: usize,
        captures: Vec<Capture>,
        settled: &Settled,
        settings: &'a Settings,
        ahead: bool,
    ) -> Run<'a> {
        Run::over(section, captures, settled.parts.clone(), settings, ahead, Some(&settled.packets))
    }

    /// With the number of packets to read from each capture, if they were read before.
    fn over(
        section: usize,
        captures: Vec<Capture>,
        parts: Vec<(usize, Option<Choice>)>,
        settings: &'a Settings,
        ahead: bool,
        again: Option<&[u64]>,
    ) -> Run<'a> {
        let numbers: Vec<usize> = parts.iter().map(|part| part.0).collect();
        let ends = [0, 1].map(|part| numbers.get(part).and_then(|number| settings.end_of(*number)));
        let pace = Pace {
            over: [captures.is_empty(), captures.len() < 2],
            offset_ns: settings.same_clock.then_some(0),
            ..Pace::default()
        };
        let search = if again.is_some() { Search::default() } else { Search::new(&settings.trace_ids) };
        let mut run = Run {
            section,
            feeds: Vec::new(),
            readers: Vec::new(),
            known: captures.iter().map(|_| Known::default()).collect(),
            so_far: captures.iter().map(|capture| ReadSoFar::of(capture.reading())).collect(),
            numbers,
            concluded: None,
            untracked: Untracked::default(),
            by_time: Rc::default(),
            proxies: ProxySigns::default(),
            paths: FxHashMap::default(),
            joiner: Joiner::new(captures.len() == 2, ends).presuming(settings.presumed_end),
            settings,
            pace,
            settling: VecDeque::new(),
            earlier: EarlierCalls::default(),
            totals: Totals::default(),
            kept: Keeper::new(settings.slowest, settings.sample),
            every: again.map(|_| Vec::new()),
            calls: 0,
            matching: 0,
            places: Vec::new(),
            unopened: Unopened::default(),
            joined: Vec::new(),
        };
        for (place, (capture, (_, choice))) in captures.into_iter().zip(parts).enumerate() {
            let mut reader = Reader::new(capture, &settings.key_log, choice, search.clone());
            reader.most = again.and_then(|packets| packets.get(place)).copied().unwrap_or(u64::MAX);
            run.feeds.push(if ahead { Feed::ahead(reader) } else { Feed::here(reader) });
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
        let open = (0..self.feeds.len()).filter(|capture| !self.pace.over[*capture]);
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

    /// No more will be read: calls in progress are concluded as they are. Returns how many batches of packets had been
    /// read ahead: these count, too.
    pub fn end(&mut self) -> u64 {
        self.feeds.iter().for_each(Feed::stop);
        let mut ahead = 0;
        for capture in 0..self.feeds.len() {
            while let Some(mut batch) = self.feeds[capture].left() {
                ahead += 1;
                self.pace.now_ns[capture] = batch.latest_ns.or(self.pace.now_ns[capture]);
                self.take(capture, &mut batch);
                self.feeds[capture].give_back(batch);
            }
        }
        self.readers = self.feeds.drain(..).filter_map(Feed::reader).collect();
        for capture in 0..self.readers.len() {
            self.pace.over[capture] = true;
            let mut batch = Batch::default();
            self.readers[capture].finish(&mut batch);
            self.take(capture, &mut batch);
        }
        self.joiner.finish(&mut self.joined);
        self.look_for_proxies();
        self.settling.extend(self.joined.drain(..));
        self.settle();
        ahead
    }

    pub fn progress(&self) -> Progress {
        let mut progress = Progress { total_bytes: Some(0), calls: self.calls, ..Progress::default() };
        for so_far in &self.so_far {
            progress.bytes += so_far.stored_bytes;
            progress.packets += so_far.packets;
            progress.total_bytes = progress.total_bytes.zip(so_far.stored_total_bytes).map(|(a, b)| a + b);
        }
        progress
    }

    /// Some packets of one capture.
    fn batch(&mut self, capture: usize) {
        let mut batch = self.feeds[capture].next();
        self.pace.over[capture] |= batch.over;
        self.pace.now_ns[capture] = batch.latest_ns.or(self.pace.now_ns[capture]);
        self.take(capture, &mut batch);
        self.feeds[capture].give_back(batch);
        if !self.settings.same_clock {
            self.pace.offset_ns = self.joiner.bounds.guess_ns();
        }
        if self.proxies.found && self.joiner.matched > 0 && !self.joiner.translates {
            self.give_up_alone();
        }
        self.pace.many[capture] = self.joiner.has_many(capture);
        self.settle();
    }

    /// What a capture's packets brought goes to the joiner.
    fn take(&mut self, capture: usize, batch: &mut Batch) {
        self.so_far[capture] = batch.progress;
        let places = batch.places.drain(..).map(|(packet, form)| (capture as u8, packet, form));
        self.places.extend(places.take(MAX_PLACES - self.places.len().min(MAX_PLACES)));
        self.known[capture].take(&mut batch.harvest);
        let known = &self.known;
        let facts = |capture: usize, connection: u32| known[capture].facts(connection);
        for exchange in &batch.harvest.exchanges {
            self.joiner.offer(capture, exchange, &facts, &mut self.joined);
        }
        batch.harvest.exchanges.clear();
        self.look_for_proxies();
        let both = |joined: &&Joined| joined.halves.exchanges.iter().all(Option::is_some);
        for joined in self.joined.iter().filter(both) {
            let moments = Moments::of(&joined.halves);
            for way in findings::ways(&joined.halves, &moments).iter().flatten() {
                self.earlier.arrivals.note(way);
            }
        }
        self.settling.extend(self.joined.drain(..));
        for (facts, _) in batch.harvest.ended.drain(..) {
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
        let known = &self.known;
        let verdict = |capture: usize, link: &Link, half: &Exchange| {
            let last = half.response.as_ref().map_or(half.request.last, |response| response.last);
            let facts = link.facts[capture].as_ref().filter(|_| link.connections[1 - capture].is_none());
            let Some(facts) = facts.filter(|_| half.ended == Ended::Complete) else {
                return MateOutlook::MayCome;
            };
            if reached_ns[capture].saturating_sub(last.ready_ns) <= SETTLING_NS {
                return MateOutlook::NotYet;
            }
            match known[1 - capture].between(facts.ends, facts.network) {
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
            let texts = &self.known[usize::from(capture)];
            let known = self.paths.entry((capture, half.method)).or_insert_with(|| {
                let text = texts.text(half.method)?;
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
        let of_host = |client: [u8; 16], [syn_ns, ack_ns]: [Option<i64>; 2], last_ns: i64| {
            let unopened = ack_ns.is_none_or(|at_ns| at_ns > to_ns);
            let tried = syn_ns.is_some_and(|at_ns| at_ns <= to_ns);
            client == address && tried && unopened && last_ns >= from_ns
        };
        // The last time of a connection that has opened is later than that, and need not be known.
        let followed = |seen: &Seen| {
            let last_ns = seen.ack_ns.unwrap_or(seen.last_ns).max(seen.last_ns);
            of_host(seen.ends[0].address, [seen.syn_ns, seen.ack_ns], last_ns)
        };
        let ended = |facts: &ConnectionFacts| {
            let at_ns = |mark: Option<(i64, u64)>| mark.map(|(at_ns, _)| at_ns);
            let opening = [at_ns(facts.handshake.syn), at_ns(facts.handshake.ack)];
            of_host(facts.ends[0].address, opening, facts.last_ns)
        };
        self.known[tap].followed().any(followed) || self.unopened.seen_by(tap).any(ended)
    }

    /// Calls seen in both captures.
    pub fn matched(&self) -> u64 {
        self.joiner.matched
    }

    /// The text of a method of one of its captures.
    pub fn method(&self, capture: u8, method: TextId) -> Option<String> {
        self.known.get(usize::from(capture))?.text(method)
    }
}
