//! From captures to a [`Dissection`]: reads both in step, joins calls, aligns clocks, concludes.

mod again;
mod by_time;
mod caveats;
mod pace;
mod pass;
mod proxy_signs;
mod rereading;
mod result;
mod run;
mod search;
mod sections;
mod strangers;
mod unopened;
mod unsettled;

pub use again::every_call;
pub use rereading::Rereading;

use crate::align::Clock;
use crate::call::Call;
use crate::exchange::TextId;
use crate::hops::HopTotals;
use crate::source::{Bookmarks, Capture, Reading, SourceError};
use crate::spans::Spans;
use crate::tap::TapCounts;
use crate::totals::{ConnectionTotals, PairTotals, Sums};
use spangap_model::Side;
use spangap_model::evidence::Coverage;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// Settings of a dissection.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Number of slowest calls to keep.
    pub slowest: usize,
    /// Number of calls to keep in addition, drawn at random from all other matching ones.
    pub sample: usize,
    /// Keep only calls that took at least this long, nanoseconds.
    pub over_ns: Option<u64>,
    /// Keep only the calls of these traces; empty for all.
    pub trace_ids: Vec<[u8; 16]>,
    /// Spans of the calls.
    pub spans: Spans,
    /// TLS keys: the text of a key-log file.
    pub key_log: Vec<u8>,
    /// All captures were taken by one kernel: the offset is exactly zero instead of an interval.
    pub same_clock: bool,
    /// Names of the captures, in their order. `client` and `server` name the end of the calls at which one was
    /// taken; captures with the same name come from one host and share its clock.
    pub names: Vec<Option<String>>,
    /// The end of a lone capture, where neither its name nor its packets tell.
    pub presumed_end: Option<Side>,
    /// Read the captures by turns in the caller's thread, rather than both ends each in a thread of its own. The
    /// result is the same.
    pub in_turn: bool,
}

impl CaptureTotals {
    /// Adds the totals of another section, with other connections of the same capture.
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
    /// The end of the calls at which a capture was taken, if its name says so.
    pub fn end_of(&self, capture: usize) -> Option<Side> {
        let name = self.names.get(capture)?.as_deref()?;
        [Side::Client, Side::Server].into_iter().find(|side| side.name() == name)
    }
}

/// Captures with connections in common, or a single one that shares none.
#[derive(Clone, Debug, Default)]
pub struct SectionTotals {
    /// Their numbers, one or two.
    pub captures: Vec<u8>,
    /// Clock of the second minus that of the first; `None` with one capture, or if no byte was seen in both.
    pub clock: Option<Clock>,
    /// Calls seen in both.
    pub matched: u64,
}

/// One capture in the result.
#[derive(Clone, Debug, Default)]
pub struct CaptureTotals {
    /// Statistics of the file.
    pub reading: Reading,
    /// Statistics of the packets.
    pub counts: TapCounts,
    /// Exchanges of this capture without a mate, although there are two captures.
    pub unmatched: u64,
    /// Those of them that expired before the end because of the memory limit.
    pub halves_evicted: u64,
    /// Positions for reading it again.
    pub bookmarks: Option<Bookmarks>,
}

/// Result for a set of captures.
#[derive(Clone, Debug, Default)]
pub struct Dissection {
    /// Clock relation of two captures; `None` with one or with more than two, or if no byte was seen at both
    /// ends.
    pub clock: Option<Clock>,
    /// Captures with connections in common, with their clocks.
    pub sections: Vec<SectionTotals>,
    /// Calls followed through proxies; `None` if nothing indicates a proxy.
    pub hops: Option<HopTotals>,
    /// The kept calls, slowest first, followed by those drawn at random.
    pub calls: Vec<Call>,
    /// How many of `calls`, at the end, are not among the slowest but drawn at random.
    pub drawn: usize,
    /// Text of every method number in `calls`, by capture and section.
    pub methods: BTreeMap<(u8, usize, TextId), String>,
    /// Sums over all calls, not only the kept ones.
    pub sums: Sums,
    /// Calls that match `over_ns` or `trace_ids`, kept or not.
    pub matching: u64,
    /// Connections with calls, sorted by descending time in calls, bounded.
    pub connections: Vec<ConnectionTotals>,
    /// Connections beyond the bound of `connections`.
    pub connections_left_out: u64,
    /// Pairs of hosts, sorted by descending time in calls.
    pub pairs: Vec<PairTotals>,
    /// Connections whose pair of hosts is not in `pairs`; the overall sums include them.
    pub pairs_left_out: u64,
    /// Connections in three captures or more: the two at their ends count.
    pub between: u64,
    /// The captures, in their given order.
    pub captures: Vec<CaptureTotals>,
    /// Places where a requested trace id occurs outside of every readable header: capture, packet, encoding.
    pub trace_id_elsewhere: Vec<(u8, u64, &'static str)>,
    /// Problems with the choice of captures, in sentences.
    pub warnings: Vec<String>,
    /// Limits of these figures, in sentences.
    pub caveats: Vec<String>,
    /// Recordings of hosts that were joined with the calls.
    pub recordings: Vec<Coverage>,
    /// Whether the caller interrupted it.
    pub interrupted: bool,
    /// Halves dropped because one capture has the same call twice (two interfaces, before and after a
    /// translation).
    pub copies: u64,
    /// Calls seen at one end of which nothing tells which end that is; they are taken for the client's, or as the caller presumes.
    pub presumed: u64,
    /// Calls whose times contradict those of their connection: they imply swapped ends.
    pub contradictions: u64,
    /// State for reading the captures again.
    pub rereading: Rereading,
}

/// Progress so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Stored bytes read from all captures.
    pub bytes: u64,
    /// Their total size, if known.
    pub total_bytes: Option<u64>,
    /// Packets so far.
    pub packets: u64,
    /// Calls so far.
    pub calls: u64,
}

/// Receives the progress, and may interrupt the reading.
pub type OnProgress<'a> = dyn FnMut(Progress) -> ControlFlow<()> + 'a;

impl Dissection {
    /// Limits of these figures and of the recordings joined with them, in sentences.
    pub fn limits(&self) -> impl Iterator<Item = &String> {
        self.caveats.iter().chain(self.recordings.iter().flat_map(|one| &one.cannot))
    }

    /// The clock relation of a call's captures.
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

    /// The connection of a call, if it is listed.
    pub fn connection_of(&self, call: &Call) -> Option<&ConnectionTotals> {
        let place = self.connections.binary_search_by_key(&call.connection, |listed| listed.number).ok()?;
        self.connections.get(place)
    }
}

/// Dissects one capture, two of the same traffic, or those of several hosts on the path of calls through proxies.
///
/// # Errors
/// [`SourceError`] when one of more than two captures cannot be read twice: a pipe, or a file that went away.
pub fn dissect(
    captures: Vec<Capture>,
    settings: &Settings,
    on_progress: &mut OnProgress<'_>,
) -> Result<Dissection, SourceError> {
    let mut pass = pass::Pass::new(captures, settings, on_progress)?;
    let interrupted = pass.read(on_progress).is_break();
    let untracked = pass.take_untracked();
    let mut dissection = pass.finish();
    dissection.interrupted = interrupted;
    let found = untracked.found(&settings.spans);
    if found.is_empty() || interrupted {
        return Ok(dissection);
    }
    // Spans affect the facts of every call and all sums, so the captures are read once more with them.
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
    let mut pass = pass::Pass::with_spans(captures, settings, found.into(), on_progress)?;
    let interrupted = pass.read(on_progress).is_break();
    let mut dissection = pass.finish();
    dissection.interrupted = interrupted;
    Ok(dissection)
}
