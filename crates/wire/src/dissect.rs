//! The whole way from captures to a [`Dissection`]: reads both in step, joins, lines up, concludes.

mod caveats;
mod pace;
mod run;
mod search;
#[cfg(test)]
mod tests;
mod unopened;

use crate::align::Clock;
use crate::call::Call;
use crate::source::{Bookmarks, Capture, Reading};
use crate::spans::Spans;
use crate::tap::TapCounts;
use crate::totals::{ConnectionTotals, PairTotals, Sums};
use std::ops::ControlFlow;

/// What to look for.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// How many calls to keep, the slowest.
    pub slowest: usize,
    /// Keep only calls that took at least this long, nanoseconds.
    pub over_ns: Option<u64>,
    /// Keep the calls of these traces and no others; empty for any.
    pub trace_ids: Vec<[u8; 16]>,
    /// Spans of the calls.
    pub spans: Spans,
    /// TLS keys: text of a key-log file.
    pub key_log: Vec<u8>,
    /// Both captures were taken by one kernel: the offset is zero, and not an interval.
    pub same_clock: bool,
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

/// What two captures (or one) tell.
#[derive(Clone, Debug, Default)]
pub struct Dissection {
    /// The clocks; `None` with one capture, or when no byte was seen at both ends.
    pub clock: Option<Clock>,
    /// The calls kept, slowest first.
    pub calls: Vec<Call>,
    /// Text of every method and authority number that occurs in `calls`, by capture.
    pub methods: Vec<(u8, crate::exchange::TextId, String)>,
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
    /// The captures, in the order given.
    pub captures: Vec<CaptureTotals>,
    /// Places where a trace id looked for stands as bytes outside of every header that could be read:
    /// capture, packet, how it is written.
    pub trace_id_elsewhere: Vec<(u8, u64, &'static str)>,
    /// Sentences on what these figures cannot tell.
    pub caveats: Vec<String>,
    /// Whether the caller ended it early.
    pub interrupted: bool,
    /// Halves left out because one capture has the same call twice (two interfaces, before and after a translation).
    pub copies: u64,
    /// Calls whose times contradict those of their connection: the ends would be exchanged.
    pub contradictions: u64,
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
    /// The method of a call, from whichever capture knows it.
    pub fn method_of(&self, call: &Call) -> Option<&str> {
        let halves = call.halves.exchanges.iter().zip(call.halves.captures);
        halves.filter_map(|(half, capture)| half.as_ref().map(|half| (capture, half.method))).find_map(
            |wanted| {
                let found = self.methods.iter().find(|(capture, id, _)| (*capture, *id) == wanted);
                found.map(|(.., text)| text.as_str())
            },
        )
    }
}

/// Dissects one capture, or two of the same traffic; more are not read.
pub fn dissect(captures: Vec<Capture>, settings: &Settings, on_progress: &mut OnProgress<'_>) -> Dissection {
    let mut run = run::Run::new(captures, settings);
    let interrupted = run.read(on_progress).is_break();
    let mut dissection = run.finish();
    dissection.interrupted = interrupted;
    dissection
}
