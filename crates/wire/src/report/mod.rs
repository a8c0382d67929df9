//! Presentation of a dissection: the JSON shapes here, and from them the table, the ladder, and the page's
//! document.
//!
//! Names are stable and carry their units. A field that is absent or `null` is unknown, never zero. Sides are
//! `client` and `server`; captures are numbered from 0 in the given order; packets from 1, as in Wireshark.

mod axis;
mod build;
mod conclusion;
mod crossing;
mod evidence;
mod hops;
pub mod ladder_text;
mod outcome;
mod page;
mod records;
#[cfg(test)]
mod samples;
pub mod table;
mod words;

use crate::call::Call;
use crate::dissect::Dissection;
use serde::{Serialize, Serializer};
use spangap_model::evidence::{Coverage, Finding, LegRecord};
use spangap_model::{Cause, Legs, Side};
use std::collections::BTreeMap;

fn as_text<T: std::fmt::Display, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}

fn cause_name<S: Serializer>(cause: &Cause, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(cause.name())
}

fn side_name<S: Serializer>(side: &Side, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(side.name())
}

fn maybe_side_name<S: Serializer>(side: &Option<Side>, to: S) -> Result<S::Ok, S::Error> {
    match side {
        Some(side) => to.serialize_some(side.name()),
        None => to.serialize_none(),
    }
}

/// The whole report: the output of `spangap dissect --json`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DissectReport {
    /// The command that produced it, for readers of the page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Whether it was interrupted before the captures were read completely.
    pub interrupted: bool,
    /// Problems with the choice of captures, in sentences; empty if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The two clocks; absent with one capture or more than two, or if no byte was seen at both ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockReport>,
    /// With more than two captures: the clocks of each pair with connections in common.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clocks: Vec<PairClockReport>,
    /// The requested selection.
    pub selection: Selection,
    /// Calls that match the selection, listed or not.
    pub matching_calls: u64,
    /// The listed calls, slowest first.
    pub calls: Vec<CallReport>,
    /// What took the time of the listed calls, in words, most costly first.
    pub conclusions: Vec<Conclusion>,
    /// Sums over all calls of the captures.
    pub totals: SumsReport,
    /// Calls followed through proxies; absent if nothing indicates a proxy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hops: Option<HopTotalsReport>,
    /// Sums by client and server, by descending time.
    pub pairs: Vec<PairReport>,
    /// Sums by connection, by descending time.
    pub connections: Vec<ConnectionReport>,
    /// Connections beyond the bound of `connections`.
    pub connections_left_out: u64,
    /// Halves dropped because one capture has the same call twice.
    pub copies: u64,
    /// Calls ignored because their times imply swapped ends of their connection.
    pub contradictions: u64,
    /// All captures together.
    pub capture: CaptureSummary,
    /// Each capture.
    pub captures: Vec<CaptureReport>,
    /// Places where a requested trace id occurs outside of every readable header.
    pub trace_id_elsewhere: Vec<TraceIdPlace>,
    /// Recordings of hosts that were joined with the calls.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub recordings: Vec<Coverage>,
    /// Limits of these figures, in sentences.
    pub caveats: Vec<String>,
}

/// The requested selection of calls.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Selection {
    /// Maximum number of calls, the slowest.
    pub slowest: usize,
    /// Only calls that took at least this long, nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over_ns: Option<u64>,
    /// Only calls of these traces, 32 hex digits each; empty for all.
    pub trace_ids: Vec<String>,
}

/// Clock of the second capture minus clock of the first.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ClockReport {
    /// Lowest offset that the packets allow at `at_unix_ns`, nanoseconds.
    pub offset_low_ns: i64,
    /// Highest offset.
    pub offset_high_ns: i64,
    /// Time by the first capture's clock at which the offset applies: the middle of the longest stretch.
    pub at_unix_ns: i64,
    /// Middle of the rates that fit, parts per million (positive if the second clock runs faster).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skew_ppm: Option<f64>,
    /// Lowest rate that fits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skew_low_ppm: Option<f64>,
    /// Highest rate that fits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skew_high_ppm: Option<f64>,
    /// Stretches of time, each with a straight line that fits; several if a clock was stepped.
    pub stretches: Vec<StretchReport>,
}

/// The clocks of two captures.
#[derive(Clone, Debug, Serialize)]
pub struct PairClockReport {
    /// Their numbers; the first one's clock is the reference.
    pub captures: [u8; 2],
    /// The clocks.
    #[serde(flatten)]
    pub clock: ClockReport,
}

/// One stretch of the clocks.
#[derive(Clone, Debug, Serialize)]
pub struct StretchReport {
    /// Start by the first capture's clock.
    pub from_unix_ns: i64,
    /// End.
    pub to_unix_ns: i64,
    /// Lowest offset in the middle.
    pub offset_low_ns: Option<i64>,
    /// Highest offset.
    pub offset_high_ns: Option<i64>,
}

/// One call.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CallReport {
    /// 32 hex digits, if a header carries it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// Id of the CLIENT span, 16 hex digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub span_id: Option<String>,
    /// Client's address and port; `null` if its connection is not among the listed ones.
    pub client: Option<String>,
    /// Server's address and port.
    pub server: Option<String>,
    /// Number of the connection in `connections`.
    pub connection: Option<u32>,
    /// HTTP/2 stream, else the number of the exchange on its connection.
    pub stream_id: u32,
    /// Number of the turn within a stream of several turns, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<u32>,
    /// `:path`, or method and target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// `grpc`, `http2`, `http1`, `tls`, `turns`.
    pub protocol: &'static str,
    /// gRPC status, else class of the HTTP status; for a call that got neither, what ended it: `deadline`,
    /// `cancelled`, `refused`, `reset`, `goaway`, `connection_closed`, `connection_reset`. `null` if the tap saw none.
    pub status: Option<&'static str>,
    /// The exact HTTP status, if `status` is its class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_status: Option<u16>,
    /// `complete`, `reset`, `connection-closed`, `capture-ended`, `cut-by-snap`.
    pub ended: &'static str,
    /// Error code of RST_STREAM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset_code: Option<u32>,
    /// How it ended, if no complete response was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ending: Option<EndingReport>,
    /// Which of `trace_id`, `method` and `status` were recognised by the shape of a value of unknown name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub recognised_by_shape: Vec<&'static str>,
    /// Captures that contain it: number of the client's, then of the server's; `null` for an end without one.
    pub seen_in: [Option<u8>; 2],
    /// Start, Unix nanoseconds by the clock of the first end that knows it.
    pub start_unix_ns: i64,
    /// First event to last, nanoseconds.
    pub duration_ns: u64,
    /// Bytes of the request's body.
    pub request_bytes: u64,
    /// Bytes of the response's body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_bytes: Option<u64>,
    /// `grpc-timeout`, nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_ns: Option<u64>,
    /// Calls in flight on the connection when it began, including this one.
    pub in_flight: u32,
    /// Legs in order; they sum to `duration_ns` exactly.
    pub legs: Vec<LegRecord>,
    /// The calls by which proxies forwarded it, in order; absent without any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hops: Vec<HopReport>,
    /// Its legs across all hops, in order; they sum to `duration_ns` exactly. Absent without hops.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub path: Vec<PathLegReport>,
    /// Causes of delay across all hops, most costly first.
    pub findings: Vec<Finding>,
    /// Reasons to doubt these figures, in words.
    pub doubts: Vec<&'static str>,
    /// Its packets; absent if they were not read a second time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ladder: Option<LadderReport>,
}

impl CallReport {
    /// The report of a call of `dissection`, as in [`DissectReport::calls`].
    pub fn new(call: &Call, dissection: &Dissection) -> CallReport {
        build::call_report(call, dissection)
    }
}

/// How a call ended without a complete response.
#[derive(Clone, Debug, Serialize)]
pub struct EndingReport {
    /// The side that ended it; `null` if it was still open.
    #[serde(serialize_with = "maybe_side_name")]
    pub by: Option<Side>,
    /// `rst_stream`, `goaway`, `fin`, `rst`; `still_open` at the end of the capture.
    pub how: &'static str,
    /// Error code of RST_STREAM or GOAWAY.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<u32>,
    /// Its name (RFC 9113, 7).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code_name: Option<&'static str>,
    /// Whether no byte of a response had arrived by then.
    pub unanswered: bool,
    /// Whether the call may have continued: its duration is a lower bound.
    pub at_least: bool,
    /// Whether the deadline from its `grpc-timeout` had passed; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_elapsed: Option<bool>,
    /// Whether the last byte of the request had been acknowledged.
    pub request_acknowledged: bool,
    /// Number of the capture that shows it.
    pub capture: u8,
    /// Number of the packet.
    pub packet: u64,
    /// When the tap saw it.
    pub time_unix_ns: i64,
    /// The whole ending in words.
    pub words: String,
}

/// A call's packets at both ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LadderReport {
    /// Correction added to the times of the server's tap to map them to the client's clock, nanoseconds: minus
    /// the middle of the offset interval at this call. `null` if only one end was captured or the offset is
    /// unbounded.
    pub correction_ns: Option<i64>,
    /// Uncertainty of the correction in either direction.
    pub correction_bound_ns: Option<u64>,
    /// The packets, in order of time.
    pub packets: Vec<RungReport>,
    /// Total number of packets left out.
    pub left_out: u64,
    /// Matches between the packets of both taps, by the time of the first known end.
    pub crossings: Vec<Crossing>,
}

/// One packet of a ladder.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RungReport {
    /// Number of the capture.
    pub capture: u8,
    /// The end at which this tap is.
    #[serde(serialize_with = "side_name")]
    pub seen_at: Side,
    /// Number of the packet.
    pub packet: u64,
    /// When the tap saw it, by its own clock.
    pub time_unix_ns: i64,
    /// The same on the client's clock as far as known, nanoseconds since the start of the call.
    pub since_start_ns: i64,
    /// The sender.
    #[serde(serialize_with = "side_name")]
    pub from: Side,
    /// `SYN`, `FIN`, `RST`, joined by `+`; empty for plain segments.
    pub flags: String,
    /// Raw sequence number of its first byte.
    pub seq: u32,
    /// Payload bytes.
    pub bytes: u32,
    /// Raw acknowledgement number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ack: Option<u32>,
    /// Bytes of the other direction before the acknowledged one, counted from the first in this ladder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acked_bytes: Option<i64>,
    /// Raw window from the header.
    pub window: u16,
    /// Its role in the call.
    pub notes: Vec<String>,
    /// Whether one of these says more than which bytes of the call it carries: a proof, or the call's end.
    pub stands_out: bool,
    /// Packets left out just before this one.
    pub left_out_before: u64,
}

/// A conclusion about what took the time, in words.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Conclusion {
    /// The cause; `none` if nothing on the wire explains the time.
    #[serde(serialize_with = "cause_name")]
    pub cause: Cause,
    /// The end responsible.
    #[serde(serialize_with = "maybe_side_name", skip_serializing_if = "Option::is_none")]
    pub side: Option<Side>,
    /// Number of listed calls that it covers.
    pub calls: u64,
    /// Observations, with figures.
    pub seen: String,
    /// Their meaning.
    pub meaning: String,
    /// How to fix or confirm it.
    pub next: String,
}

/// Sums over calls.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SumsReport {
    /// Calls.
    pub calls: u64,
    /// Calls seen at only one end: at the client's, at the server's.
    pub one_end: BySide,
    /// Failed calls.
    pub failed: u64,
    /// Calls still in flight at the end of the capture.
    pub unfinished: u64,
    /// Calls that ended, or were still open, without any byte of a response.
    pub unanswered: u64,
    /// Completed calls whose status could not be read: whether they failed is unknown.
    pub status_unknown: u64,
    /// Calls by exact HTTP status, without those that have a gRPC status.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub http_statuses: BTreeMap<u16, u64>,
    /// Calls whose end was cut off by the snap length.
    pub cut_by_snap: u64,
    /// 25th percentile of the durations, nanoseconds.
    pub p25_ns: Option<u64>,
    /// Median duration, nanoseconds.
    pub p50_ns: Option<u64>,
    /// 75th percentile.
    pub p75_ns: Option<u64>,
    /// 99th percentile.
    pub p99_ns: Option<u64>,
    /// Longest.
    pub max_ns: Option<u64>,
    /// Sum of all durations.
    pub total_ns: u64,
    /// Time by leg, in order.
    pub legs: Vec<LegSumReport>,
    /// Time by cause, most costly first.
    pub causes: Vec<CauseSumReport>,
}

/// A number for each end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BySide {
    /// At the client's end.
    pub client: u64,
    /// At the server's end.
    pub server: u64,
}

/// Time of one leg, summed over calls.
#[derive(Clone, Debug, Serialize)]
pub struct LegSumReport {
    /// Its name.
    #[serde(serialize_with = "as_text")]
    pub leg: Legs,
    /// Nanoseconds.
    pub total_ns: i64,
    /// Uncertainty of the sum in either direction.
    pub bound_ns: u64,
}

/// Time of one cause, summed over calls.
#[derive(Clone, Debug, Serialize)]
pub struct CauseSumReport {
    /// Its name.
    #[serde(serialize_with = "cause_name")]
    pub cause: Cause,
    /// The end responsible.
    #[serde(serialize_with = "maybe_side_name", skip_serializing_if = "Option::is_none")]
    pub side: Option<Side>,
    /// Calls for which it is shown.
    pub calls: u64,
    /// Calls for which it is only possible.
    pub possible: u64,
    /// Their cost, as far as the wire shows it, nanoseconds.
    pub cost_ns: u64,
}

/// Sums of one client and server.
#[derive(Clone, Debug, Serialize)]
pub struct PairReport {
    /// Client's address.
    pub client: String,
    /// Server's address and port.
    pub server: String,
    /// Connections.
    pub connections: u64,
    /// The sums.
    #[serde(flatten)]
    pub sums: SumsReport,
}

/// Sums of one connection.
#[derive(Clone, Debug, Serialize)]
pub struct ConnectionReport {
    /// Its number.
    pub connection: u32,
    /// Client's address and port.
    pub client: String,
    /// Server's address and port.
    pub server: String,
    /// Application protocol.
    pub protocol: &'static str,
    /// Captures that contain it: client's, server's.
    pub seen_in: [Option<u8>; 2],
    /// Packets by capture, in the given order.
    pub packets: Vec<u64>,
    /// Minimum time from a segment to its acknowledgement at the client's tap, nanoseconds: a whole round trip.
    pub client_rtt_min_ns: Option<u64>,
    /// Payload bytes retransmitted: by the client, by the server.
    pub resent_bytes: BySide,
    /// Payload bytes missing from the captures: of the client, of the server.
    pub missing_bytes: BySide,
    /// SETTINGS_MAX_CONCURRENT_STREAMS of the server.
    pub max_streams: Option<u32>,
    /// Maximum number of simultaneous calls.
    pub peak_in_flight: u32,
    /// Statements about the connection as a whole.
    pub notes: Vec<String>,
    /// The sums.
    #[serde(flatten)]
    pub sums: SumsReport,
}

/// All captures together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CaptureSummary {
    /// Packets read.
    pub packets: u64,
    /// Packets dropped according to the capturing kernels; `null` if no file tells.
    pub dropped: Option<u64>,
    /// Places in the files that could not be read.
    pub damaged: u64,
    /// Packets without a readable TCP segment.
    pub unparsed: u64,
}

/// One capture: what was read of it, and what was not.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CaptureReport {
    /// Name of the file.
    pub file: String,
    /// The name given by the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The end at which it was taken, if all calls agree.
    #[serde(serialize_with = "maybe_side_name")]
    pub side: Option<Side>,
    /// Format and compression.
    pub format: String,
    /// Packets read.
    pub packets: u64,
    /// Bytes read, decompressed.
    pub bytes: u64,
    /// Time of its first packet.
    pub first_unix_ns: Option<i64>,
    /// Time of its last packet.
    pub last_unix_ns: Option<i64>,
    /// Coarsest resolution of its times, nanoseconds.
    pub resolution_ns: u32,
    /// Packets dropped by the capturing kernel; `null` if the file does not tell.
    pub dropped: Option<u64>,
    /// Packets cut by the snap length.
    pub cut: u64,
    /// Bytes that it cut off.
    pub cut_bytes: u64,
    /// Packets without a time, which are not used.
    pub without_time: u64,
    /// Places that could not be read.
    pub damaged_places: u64,
    /// Bytes skipped there.
    pub damaged_bytes: u64,
    /// The first of these places.
    pub damage: Vec<DamageReport>,
    /// TCP segments.
    pub segments: u64,
    /// Packets without one, by reason.
    pub unparsed: BTreeMap<&'static str, u64>,
    /// Connections followed.
    pub connections: u64,
    /// Connections forgotten to make room.
    pub connections_evicted: u64,
    /// Out-of-order bytes dropped to make room.
    pub reassembly_dropped_bytes: u64,
    /// HTTP/2 header blocks with fields that could not be decoded.
    pub header_blocks_unknown: u64,
    /// The same, because the snap length cut them or an earlier one.
    pub header_blocks_cut: u64,
    /// Calls that only the HTTP/2 stream numbers prove, a lower bound: their requests are not in the capture.
    pub calls_unseen: u64,
    /// Bytes skipped until a parser found its position again.
    pub bytes_skipped: u64,
    /// Number of times a parser lost its position.
    pub resyncs: u64,
    /// Streams or requests beyond a limit, which are not followed.
    pub streams_refused: u64,
    /// TLS records that could not be decrypted with the given keys.
    pub records_undecrypted: u64,
    /// Calls of this capture without a mate, although there are two captures.
    pub unmatched: u64,
    /// Halves dropped to make room.
    pub halves_evicted: u64,
}

/// A place of a file that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DamageReport {
    /// Offset in the decompressed file.
    pub offset: u64,
    /// What was found, what was expected, and how reading continued.
    pub what: String,
}

/// A place where a trace id occurs outside of a readable header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TraceIdPlace {
    /// Number of the capture.
    pub capture: u8,
    /// Number of the packet.
    pub packet: u64,
    /// Its encoding there.
    pub written: &'static str,
}

pub use axis::Axis;
pub use build::Extras;
pub use crossing::{Crossing, Way};
pub use evidence::evidence;
pub use hops::{HopReport, HopTotalsReport, PathLegReport, PathSumReport};
pub use page::DissectPage;
