//! From captures to a [`Dissection`]: reads both in step, joins, aligns clocks, concludes.

mod again;
mod by_time;
mod caveats;
mod followed;
mod pace;
mod proxy_signs;
mod result;
mod run;
mod search;
mod sections;
mod strangers;
mod unopened;
mod whole;

pub use again::{Rereading, every_call};

use crate::align::Clock;
use crate::call::Call;
use crate::exchange::TextId;
use crate::hops::HopTotals;
use crate::source::{Bookmarks, Capture, Reading, SourceError};
use crate::spans::Spans;
use crate::tap::TapCounts;
use crate::totals::{ConnectionTotals, PairTotals, Sums};
use spangap_model::Side;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// What to look for.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// How many calls to keep, the slowest.
    pub slowest: usize,
    /// How many to keep beside these, drawn at random from all others that fit.
    pub sample: usize,
    /// Keep only calls that took at least this long, nanoseconds.
    pub over_ns: Option<u64>,
    /// Keep the calls of these traces and no others; empty for any.
    pub trace_ids: Vec<[u8; 16]>,
    /// Spans of the calls.
    pub spans: Spans,
    /// TLS keys: text of a key-log file.
    pub key_log: Vec<u8>,
    /// All captures were taken by one kernel: the offset is zero, and not an interval.
    pub same_clock: bool,
    /// Names of the captures, in their order. `client` and `server` say at which end of the calls one was taken;
    /// captures of the same name are of one host, and have one clock.
    pub names: Vec<Option<String>>,
}

impl CaptureTotals {
    /// Adds what another section made of the same capture: other connections of it.
    fn add(&mut self, other: CaptureTotals) {
        if self.bookmarks.is_none() {
            *self = other;
            return;
        }
        let (mine, theirs) = (&mut self.counts, other.counts);
        mine.segments += theirs.segments;
        mine.connections += theirs.connections;
        mine.connections_evicted += theirs.connections_evicted;
        mine.connections_expired += theirs.connections_expired;
        mine.connections_untaken += theirs.connections_untaken;
        mine.reassembly_dropped_bytes += theirs.reassembly_dropped_bytes;
        mine.reassembly_conflicts += theirs.reassembly_conflicts;
        mine.app.add(&theirs.app);
        self.unmatched += other.unmatched;
        self.halves_evicted += other.halves_evicted;
    }
}

impl Settings {
    /// At which end of the calls a capture was taken, where its name says so.
    pub fn end_of(&self, capture: usize) -> Option<Side> {
        let name = self.names.get(capture)?.as_deref()?;
        [Side::Client, Side::Server].into_iter().find(|side| side.name() == name)
    }
}

/// Captures with connections in common, or one that has none in common with any other.
#[derive(Clone, Debug, Default)]
pub struct SectionTotals {
    /// Their numbers, one or two.
    pub captures: Vec<u8>,
    /// Clock of the second minus that of the first; `None` with one, or when no byte was seen in both.
    pub clock: Option<Clock>,
    /// Calls seen in both.
    pub matched: u64,
}

/// One capture, in the result.
#[derive(Clone, Debug, Default)]
pub struct CaptureTotals {
    /// What was read of the file.
    pub reading: Reading,
    /// What was made of the packets.
    pub counts: TapCounts,
    /// Exchanges of this capture that found no other half, although there are two captures.
    pub unmatched: u64,
    /// Halves among them that were given up before the end, for want of room.
    pub halves_evicted: u64,
    /// Where to read it again.
    pub bookmarks: Option<Bookmarks>,
}

/// What the captures tell.
#[derive(Clone, Debug, Default)]
pub struct Dissection {
    /// The clocks of two captures; `None` with one or with more than two, or when no byte was seen at both ends.
    pub clock: Option<Clock>,
    /// Which captures have connections in common, with their clocks.
    pub sections: Vec<SectionTotals>,
    /// Calls followed through proxies; `None` where nothing looks like one.
    pub hops: Option<HopTotals>,
    /// The calls kept, slowest first, those drawn at random after them.
    pub calls: Vec<Call>,
    /// How many of `calls`, at the end, are not among the slowest: drawn at random from all others.
    pub drawn: usize,
    /// Text of every method number that occurs in `calls`, by capture and section.
    pub methods: BTreeMap<(u8, usize, TextId), String>,
    /// Sums over all calls, not only those kept.
    pub sums: Sums,
    /// Calls that fit `over_ns` or `trace_ids`, kept or not.
    pub matching: u64,
    /// Connections with calls, most time in calls first, bounded.
    pub connections: Vec<ConnectionTotals>,
    /// Connections that found no room in `connections`.
    pub connections_left_out: u64,
    /// Pairs of hosts, most time in calls first.
    pub pairs: Vec<PairTotals>,
    /// Connections whose pair of hosts is not among `pairs`; the sums over all have them.
    pub pairs_left_out: u64,
    /// Connections that three captures or more have: the two at their ends count.
    pub between: u64,
    /// The captures, in the order given.
    pub captures: Vec<CaptureTotals>,
    /// Places where a trace id looked for stands as bytes outside of every header that could be read:
    /// capture, packet, how it is written.
    pub trace_id_elsewhere: Vec<(u8, u64, &'static str)>,
    /// What is wrong with the choice of captures, in sentences.
    pub warnings: Vec<String>,
    /// Sentences on what these figures cannot tell.
    pub caveats: Vec<String>,
    /// Whether the caller ended it early.
    pub interrupted: bool,
    /// Halves left out because one capture has the same call twice (two interfaces, before and after a translation).
    pub copies: u64,
    /// Calls whose times contradict those of their connection: the ends would be exchanged.
    pub contradictions: u64,
    /// What reading the captures again needs.
    pub rereading: Rereading,
}

/// How far it has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Stored bytes read of all captures.
    pub bytes: u64,
    /// Their sizes together, where known.
    pub total_bytes: Option<u64>,
    /// Packets so far.
    pub packets: u64,
    /// Calls so far.
    pub calls: u64,
}

/// Is told how far it has come, and may end it.
pub type OnProgress<'a> = dyn FnMut(Progress) -> ControlFlow<()> + 'a;

impl Dissection {
    /// The clocks of a call's captures.
    pub fn clock_of(&self, call: &Call) -> Option<&Clock> {
        self.sections.get(call.section).map_or(self.clock.as_ref(), |section| section.clock.as_ref())
    }

    /// The capture whose clock is the first of [`Dissection::clock_of`].
    pub fn first_capture_of(&self, call: &Call) -> u8 {
        self.sections.get(call.section).and_then(|section| section.captures.first()).copied().unwrap_or(0)
    }

    /// The method of a call, from whichever capture knows it.
    pub fn method_of(&self, call: &Call) -> Option<&str> {
        let halves = call.halves.exchanges.iter().zip(call.halves.captures);
        let known = halves.filter_map(|(half, capture)| Some((capture, call.section, half.as_ref()?.method)));
        known.filter_map(|method| self.methods.get(&method)).map(String::as_str).next()
    }

    /// The connection of a call, where it is listed.
    pub fn connection_of(&self, call: &Call) -> Option<&ConnectionTotals> {
        let place = self.connections.binary_search_by_key(&call.connection, |listed| listed.number).ok()?;
        self.connections.get(place)
    }
}

/// Dissects one capture, or two of the same traffic, or those of several hosts on the way of calls through proxies.
///
/// # Errors
/// [`SourceError`] when one of more than two captures cannot be read twice: a pipe, or a file that went away.
pub fn dissect(
    captures: Vec<Capture>,
    settings: &Settings,
    on_progress: &mut OnProgress<'_>,
) -> Result<Dissection, SourceError> {
    let mut whole = whole::Whole::new(captures, settings, on_progress)?;
    let interrupted = whole.read(on_progress).is_break();
    let untracked = whole.take_untracked();
    let mut dissection = whole.finish();
    dissection.interrupted = interrupted;
    let found = untracked.found(&settings.spans);
    if found.is_empty() || interrupted {
        return Ok(dissection);
    }
    // Their spans belong to what is said of every call and of all of them, so that they are read once more with these.
    let bookmarks = dissection.captures.iter().map(|capture| capture.bookmarks.as_ref());
    let reopened = bookmarks.map(|bookmarks| bookmarks.and_then(|bookmarks| bookmarks.reopen_at(1).ok()));
    let Some(captures) = reopened.collect::<Option<Vec<Capture>>>() else {
        dissection.caveats.push(
            "Spans of calls without a trace context on the wire are found by their times, which takes reading the \
             captures twice; a pipe cannot be read twice."
                .into(),
        );
        return Ok(dissection);
    };
    let mut whole = whole::Whole::with_spans(captures, settings, found.into(), on_progress)?;
    let interrupted = whole.read(on_progress).is_break();
    let mut dissection = whole.finish();
    dissection.interrupted = interrupted;
    Ok(dissection)
}
