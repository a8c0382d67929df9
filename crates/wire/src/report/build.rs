//! Builds the report of a dissection.

use super::axis::{Axis, main_half, middle};
use super::crossing::crossings;
use super::*;
use crate::align::{Clock, Stretch};
use crate::call::Call;
use crate::decode::Unparsed;
use crate::dissect::{CaptureTotals, Dissection, Settings};
use crate::exchange::{Ended, Exchange, Protocol};
use crate::ladder::{Ladder, Rung};
use crate::segment::Flags;
use crate::tcp::ConnectionFacts;
use crate::totals::{ConnectionTotals, PairTotals, Sums};
use spangap_model::CallStatus;

/// Content of a report in addition to the dissection itself.
#[derive(Clone, Debug, Default)]
pub struct Extras {
    /// The command line as typed.
    pub command: Option<String>,
    /// Ladders of some calls, by index into [`Dissection::calls`].
    pub ladders: BTreeMap<usize, Ladder>,
}

impl DissectReport {
    /// The report of a dissection made with `settings`.
    pub fn new(dissection: &Dissection, settings: &Settings, extras: &Extras) -> DissectReport {
        let clock = dissection.clock.as_ref();
        let mut calls: Vec<CallReport> =
            dissection.calls.iter().map(|call| call_report(call, dissection)).collect();
        for (place, ladder) in &extras.ladders {
            if let (Some(call), Some(report)) = (dissection.calls.get(*place), calls.get_mut(*place)) {
                report.ladder = Some(ladder_report(call, ladder, dissection));
            }
        }
        let captures: Vec<CaptureReport> = dissection
            .captures
            .iter()
            .enumerate()
            .map(|(number, capture)| {
                let name = settings.names.get(number).cloned().flatten();
                let side = settings.end_of(number).or_else(|| side_of(number as u8, dissection));
                CaptureReport { name, ..capture_report(capture, side) }
            })
            .collect();
        let first = captures.first();
        let within =
            first.and_then(|capture| capture.first_unix_ns.zip(capture.last_unix_ns)).unwrap_or_default();
        let mut report = DissectReport {
            command: extras.command.clone(),
            interrupted: dissection.interrupted,
            warnings: dissection.warnings.clone(),
            clock: clock.and_then(|clock| clock_report(clock, within)),
            clocks: clocks(dissection, &captures),
            hops: dissection.hops.as_ref().map(hops::totals_report),
            selection: Selection {
                slowest: settings.slowest,
                over_ns: settings.over_ns,
                trace_ids: settings.trace_ids.iter().map(|id| hex(id)).collect(),
            },
            matching_calls: dissection.matching,
            calls,
            conclusions: Vec::new(),
            totals: sums_report(&dissection.sums),
            pairs: dissection.pairs.iter().map(pair_report).collect(),
            connections: dissection
                .connections
                .iter()
                .map(|connection| connection_report(connection, dissection.captures.len()))
                .collect(),
            connections_left_out: dissection.connections_left_out,
            copies: dissection.copies,
            contradictions: dissection.contradictions,
            capture: summary(&captures),
            captures,
            trace_id_elsewhere: dissection.trace_id_elsewhere.iter().map(place_report).collect(),
            recordings: dissection.recordings.clone(),
            caveats: dissection.limits().cloned().collect(),
        };
        report.conclusions = conclusion::conclusions(&report);
        report
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn place_report(&(capture, packet, written): &(u8, u64, &'static str)) -> TraceIdPlace {
    TraceIdPlace { capture, packet, written }
}

/// The end at which a capture was taken, if every connection and call agrees.
pub(super) fn side_of(number: u8, dissection: &Dissection) -> Option<Side> {
    let by_connection = dissection.connections.iter().filter_map(|connection| {
        let client = connection.client_capture.filter(|_| connection.seen_by(number).is_some())?;
        Some(if client == number { Side::Client } else { Side::Server })
    });
    let by_call = dissection.calls.iter().flat_map(|call| {
        [Side::Client, Side::Server].into_iter().filter(move |side| {
            let halves = &call.halves;
            halves.exchanges[side.index()].is_some() && halves.captures[side.index()] == number
        })
    });
    let mut sides = by_connection.chain(by_call);
    let first = sides.next()?;
    sides.all(|side| side == first).then_some(first)
}

/// The clocks of each pair, if there are more than two captures.
fn clocks(dissection: &Dissection, captures: &[CaptureReport]) -> Vec<PairClockReport> {
    let sections = dissection.sections.iter().filter(|_| captures.len() > 2);
    let of_two = sections.filter_map(|section| {
        let [first, second] = section.captures[..] else { return None };
        let times = captures.get(usize::from(first))?;
        let within = times.first_unix_ns.zip(times.last_unix_ns).unwrap_or_default();
        let clock = clock_report(section.clock.as_ref()?, within)?;
        Some(PairClockReport { captures: [first, second], clock })
    });
    of_two.collect()
}

/// `within` is the time range of the first capture: a shared clock has no end of its own.
fn clock_report(clock: &Clock, within: (i64, i64)) -> Option<ClockReport> {
    let ends = |stretch: &Stretch| (stretch.from_ns.max(within.0), stretch.to_ns.min(within.1).max(within.0));
    let stretches = clock.stretches.iter().map(|stretch| {
        let (from_unix_ns, to_unix_ns) = ends(stretch);
        let offset = clock.offset_ns(middle(from_unix_ns, to_unix_ns));
        StretchReport {
            from_unix_ns,
            to_unix_ns,
            offset_low_ns: offset.map(|(low, _)| low),
            offset_high_ns: offset.map(|(_, high)| high),
        }
    });
    let bounded = clock.stretches.iter().filter(|stretch| !stretch.corners.is_empty());
    let longest = bounded.max_by_key(|stretch| {
        let (from, to) = ends(stretch);
        to - from
    })?;
    let (from, to) = ends(longest);
    let at_unix_ns = middle(from, to);
    let (offset_low_ns, offset_high_ns) = clock.offset_ns(at_unix_ns)?;
    let slopes = longest.corners.iter().map(|(_, slope)| slope * 1e6);
    let low = slopes.clone().fold(f64::INFINITY, f64::min);
    let high = slopes.fold(f64::NEG_INFINITY, f64::max);
    let known = low.is_finite() && high.is_finite();
    Some(ClockReport {
        offset_low_ns,
        offset_high_ns,
        at_unix_ns,
        skew_ppm: known.then_some((low + high) / 2.0),
        skew_low_ppm: known.then_some(low),
        skew_high_ppm: known.then_some(high),
        stretches: stretches.collect(),
    })
}

/// The clocks of two captures, in the middle of the longest stretch.
pub(super) fn clock_of(dissection: &Dissection) -> Option<ClockReport> {
    let first = &dissection.captures.first()?.reading;
    clock_report(dissection.clock.as_ref()?, first.first_ns.zip(first.last_ns).unwrap_or_default())
}

pub(super) fn call_report(call: &Call, dissection: &Dissection) -> CallReport {
    let halves = &call.halves;
    let Some((_, main)) = main_half(call) else { return CallReport::default() };
    let both = || [Side::Client, Side::Server].into_iter();
    let known =
        || both().filter_map(|side| halves.exchanges[side.index()].as_ref().map(|exchange| (side, exchange)));
    let connection = dissection.connection_of(call);
    let ends = connection.and_then(seen_at_client).map(|facts| facts.ends).or(call.ends);
    let end = |side: Side| ends.map(|ends| ends[side.index()].to_string());
    let trace = known().find_map(|(_, exchange)| exchange.trace);
    let status = known().map(|(_, exchange)| exchange.status).find(|status| *status != CallStatus::UNSET);
    let ending = ending_report(call);
    // The client's end decides how the call ended; the server may have answered nobody.
    let ends = known().map(|(_, exchange)| exchange);
    let (ended, reset_code) = ended_report(ends.take(if ending.is_some() { 1 } else { 2 }));
    let status = status.filter(|_| ending.as_ref().is_none_or(|ending| !ending.unanswered));
    let http_status = status.and(known().find_map(|(_, exchange)| exchange.http_status));
    let status = status.map(CallStatus::name).or(ending.as_ref().and_then(EndingReport::status));
    let (hops, of_hops) = hops::hops_of(call, dissection);
    let mut findings = records::findings(call, dissection);
    findings.extend(of_hops);
    if !hops.is_empty() {
        findings.sort_by_key(|finding| std::cmp::Reverse((finding.is_shown(), finding.cost_ns)));
    }
    CallReport {
        trace_id: trace.map(|trace| hex(&trace.trace_id)),
        span_id: trace.map(|trace| hex(&trace.span_id)),
        client: end(Side::Client),
        server: end(Side::Server),
        connection: connection.map(|connection| connection.number),
        stream_id: main.stream_id,
        turn: (main.turn > 0).then_some(main.turn),
        method: dissection.method_of(call).map(str::to_owned),
        protocol: main.protocol.name(),
        status,
        http_status,
        ended,
        reset_code,
        ending,
        recognised_by_shape: recognised_by_shape(known().map(|(_, exchange)| exchange)),
        seen_in: [Side::Client, Side::Server]
            .map(|side| halves.exchanges[side.index()].as_ref().map(|_| halves.captures[side.index()])),
        start_unix_ns: call.start_ns,
        duration_ns: call.duration_ns,
        request_bytes: main.request.body_bytes,
        response_bytes: main.response.map(|response| response.body_bytes),
        deadline_ns: known().find_map(|(_, exchange)| exchange.deadline_ns),
        in_flight: main.in_flight,
        legs: records::legs(call),
        findings,
        hops,
        path: call.path.iter().map(hops::path_report).collect(),
        doubts: doubts(known().map(|(_, exchange)| exchange)),
        ladder: None,
    }
}

/// The facts that no half has from a header field of known name.
fn recognised_by_shape<'a>(halves: impl Iterator<Item = &'a Exchange> + Clone) -> Vec<&'static str> {
    let only = |has: fn(&Exchange) -> bool, by_shape: fn(&Exchange) -> bool| {
        let mut having = halves.clone().filter(|half| has(half)).peekable();
        having.peek().is_some() && having.all(by_shape)
    };
    let all = [
        (only(|half| half.trace.is_some(), |half| half.by_shape.trace), "trace_id"),
        (only(|half| half.method.0 != 0, |half| half.by_shape.method), "method"),
        (only(|half| half.status != CallStatus::UNSET, |half| half.by_shape.status), "status"),
    ];
    all.into_iter().filter(|(is, _)| *is).map(|(_, name)| name).collect()
}

fn ending_report(call: &Call) -> Option<EndingReport> {
    let (side, main) = main_half(call)?;
    let ending = main.ending?;
    let waited_ns = ending.at_ns.saturating_sub(main.request.first.seen_ns).max(0).unsigned_abs();
    let deadline_ns = call.halves.exchanges.iter().flatten().find_map(|half| half.deadline_ns);
    let capture = call.halves.captures[side.index()];
    Some(EndingReport::new(&ending, capture, main.is_unanswered(), waited_ns, deadline_ns))
}

/// How the call ended, by the half that knows most about it: a complete response at either end counts.
fn ended_report<'a>(halves: impl Iterator<Item = &'a Exchange>) -> (&'static str, Option<u32>) {
    let rank = |half: &&Exchange| match half.ended {
        Ended::Complete => 0,
        Ended::Reset { .. } => 1,
        _ if half.end_was_cut() => 4,
        Ended::ConnectionClosed => 2,
        Ended::CaptureEnded => 3,
    };
    let Some(half) = halves.min_by_key(rank) else { return ("capture-ended", None) };
    match half.ended {
        _ if half.end_was_cut() => ("cut-by-snap", None),
        Ended::Complete => ("complete", None),
        Ended::Reset { code, .. } => ("reset", Some(code)),
        Ended::ConnectionClosed => ("connection-closed", None),
        Ended::CaptureEnded => ("capture-ended", None),
    }
}

fn doubts<'a>(halves: impl Iterator<Item = &'a Exchange>) -> Vec<&'static str> {
    let (mut hole, mut unknown, mut cut, mut overlap, mut end) = (false, false, false, false, false);
    let (mut tickets, mut by_time, mut clock, mut head_cut) = (false, false, false, false);
    for exchange in halves {
        let doubts = exchange.doubts;
        // HTTP/1 keeps no table across heads, so only the snap length can leave a head incomplete.
        let http1 = exchange.protocol == Protocol::Http1;
        head_cut |= doubts.headers_unknown && http1;
        end |= doubts.end_unknown && !doubts.cut;
        hole |= doubts.hole;
        unknown |= doubts.headers_unknown && !http1;
        cut |= doubts.cut;
        overlap |= doubts.turns_overlap;
        tickets |= doubts.tickets;
        by_time |= doubts.by_time;
        clock |= doubts.clock_set;
    }
    let all = [
        (hole, "bytes of it are missing from a capture"),
        (
            clock,
            "the capture's clock was set during the call, or its host slept: its duration and those of its parts are unknown",
        ),
        (
            unknown,
            "the capture has not all of its connection (joined late, or packets are missing): some header fields could not be decoded",
        ),
        (head_cut, "cut by snap: the capture's snap length cut off header fields"),
        (cut, "cut by snap: the capture's snap length cut off bytes that belong to it, or may"),
        (overlap, "several requests were in flight, with nothing to tell their responses apart"),
        (tickets, "TLS session tickets may precede the response: without the keys, its beginning is unknown"),
        (
            by_time,
            "no packet shows its trace context: its spans were matched by their times, as the only ones that fit",
        ),
        (
            end,
            "no response was seen, and whether one came or was due is unknown: its duration is only what was seen \
             of it",
        ),
    ];
    all.into_iter().filter(|(is, _)| *is).map(|(_, words)| words).collect()
}

fn ladder_report(call: &Call, ladder: &Ladder, dissection: &Dissection) -> LadderReport {
    let Some(axis) = Axis::of(call, dissection) else { return LadderReport::default() };
    let base = axis.base();
    let base_capture = call.halves.captures[base.index()];
    let rungs = ladder.rungs.iter().map(|rung| {
        let seen_at = if rung.capture == base_capture { base } else { base.other() };
        rung_report(call, rung, seen_at, axis.since_start_ns(seen_at, rung.time_ns))
    });
    let mut packets: Vec<RungReport> = rungs.collect();
    packets.sort_by_key(|rung| rung.since_start_ns);
    let two_ended = packets.iter().any(|rung| rung.seen_at != base);
    let at_start = axis.correction(base.other(), axis.start_unix_ns()).filter(|_| two_ended);
    let report = LadderReport {
        correction_ns: at_start.map(|(correction, _)| correction),
        correction_bound_ns: at_start.map(|(_, bound)| bound),
        packets,
        left_out: ladder.left_out,
        crossings: Vec::new(),
    };
    LadderReport { crossings: crossings(&report), ..report }
}

fn rung_report(call: &Call, rung: &Rung, seen_at: Side, since_start_ns: i64) -> RungReport {
    let flags = [(Flags::SYN, "SYN"), (Flags::FIN, "FIN"), (Flags::RST, "RST")];
    let flags: Vec<&str> =
        flags.iter().filter(|(mask, _)| rung.flags.has(*mask)).map(|(_, name)| *name).collect();
    // The first byte that the acknowledged side sent for this call.
    let acked_start = call.halves.exchanges[seen_at.index()].as_ref().and_then(|exchange| match rung.from {
        Side::Server => Some(exchange.request.start),
        Side::Client => exchange.response.map(|response| response.start),
    });
    let acked_bytes = match (rung.ack, acked_start) {
        (Some(ack), Some(start)) => Some(i64::from((ack as u32).wrapping_sub(start as u32) as i32)),
        _ => None,
    };
    RungReport {
        capture: rung.capture,
        seen_at,
        packet: rung.packet,
        time_unix_ns: rung.time_ns,
        since_start_ns,
        from: rung.from,
        flags: flags.join("+"),
        seq: rung.offset as u32,
        bytes: rung.len,
        ack: rung.ack.map(|ack| ack as u32),
        acked_bytes,
        window: rung.window,
        notes: rung.notes.clone(),
        stands_out: rung.stands_out,
        left_out_before: rung.left_out_before,
    }
}

fn sums_report(sums: &Sums) -> SumsReport {
    let quantile = |q| sums.durations.quantile(q).map(|quantile| quantile.value_ns);
    SumsReport {
        calls: sums.calls,
        one_end: by_side(sums.one_end),
        failed: sums.failed,
        unfinished: sums.unfinished,
        unanswered: sums.unanswered,
        status_unknown: sums.status_unknown,
        http_statuses: sums.http_statuses.clone(),
        cut_by_snap: sums.cut_by_snap,
        p25_ns: quantile(0.25),
        p50_ns: quantile(0.5),
        p75_ns: quantile(0.75),
        p99_ns: quantile(0.99),
        max_ns: sums.durations.max_ns(),
        total_ns: u64::try_from(sums.durations.sum_ns()).unwrap_or(u64::MAX),
        legs: sums
            .legs
            .iter()
            .map(|leg| LegSumReport { leg: leg.legs, total_ns: leg.total_ns, bound_ns: leg.bound_ns })
            .collect(),
        causes: sums
            .causes
            .iter()
            .map(|sum| CauseSumReport {
                cause: sum.cause,
                side: sum.side,
                calls: sum.calls,
                possible: sum.possible,
                cost_ns: sum.cost_ns,
            })
            .collect(),
    }
}

fn by_side([client, server]: [u64; 2]) -> BySide {
    BySide { client, server }
}

fn pair_report(pair: &PairTotals) -> PairReport {
    PairReport {
        client: pair.client.ip().to_string(),
        server: pair.server.to_string(),
        connections: pair.connections,
        sums: sums_report(&pair.sums),
    }
}

/// The connection as seen by the client's tap if known, else by any tap: behind NAT the addresses differ.
fn seen_at_client(connection: &ConnectionTotals) -> Option<&ConnectionFacts> {
    let client = connection.client_capture.and_then(|capture| connection.seen_by(capture));
    client.or_else(|| connection.seen.iter().flatten().next())
}

fn connection_report(connection: &ConnectionTotals, captures: usize) -> ConnectionReport {
    let facts = seen_at_client(connection);
    let end = |side: Side| facts.map_or_else(String::new, |facts| facts.ends[side.index()].to_string());
    let seen = |capture: u8| connection.seen_by(capture).is_some();
    let both = || connection.seen.iter().flatten();
    let mut notes = connection.notes.clone();
    if let [Some(first), Some(second)] = &connection.seen
        && (first.ends != second.ends)
    {
        let other = if facts.is_some_and(|facts| facts.ends == first.ends) { second } else { first };
        notes.push(format!(
            "addresses are translated on the path: the other capture has it as {} -> {}",
            other.ends[0], other.ends[1]
        ));
    }
    if facts.is_some_and(|facts| !facts.sides_known) {
        notes.push("which end is the client is guessed from the ports".into());
    }
    let most = |pick: fn(&ConnectionFacts) -> [u64; 2]| {
        by_side([0, 1].map(|side: usize| both().map(|facts| pick(facts)[side]).max().unwrap_or(0)))
    };
    let client_facts = connection.client_capture.and_then(|capture| connection.seen_by(capture));
    ConnectionReport {
        connection: connection.number,
        client: end(Side::Client),
        server: end(Side::Server),
        protocol: facts.map_or("turns", |facts| facts.protocol.name()),
        seen_in: match connection.client_capture {
            Some(client) => {
                let [first, second] = connection.captures;
                let server = if client == first { second } else { first };
                [client, server].map(|capture| seen(capture).then_some(capture))
            }
            None => connection.captures.map(|capture| seen(capture).then_some(capture)),
        },
        packets: (0..captures.max(2))
            .map(|capture| connection.seen_by(capture as u8).map_or(0, |facts| facts.packets))
            .collect(),
        client_rtt_min_ns: client_facts.and_then(|facts| facts.rtt_min_ns[Side::Client.index()]),
        resent_bytes: most(|facts| facts.resent_bytes),
        missing_bytes: most(|facts| facts.hole_bytes),
        max_streams: both().find_map(|facts| facts.max_streams),
        peak_in_flight: both().map(|facts| facts.peak_in_flight).max().unwrap_or(0),
        notes,
        sums: sums_report(&connection.sums),
    }
}

fn summary(captures: &[CaptureReport]) -> CaptureSummary {
    let dropped: Vec<u64> = captures.iter().filter_map(|capture| capture.dropped).collect();
    CaptureSummary {
        packets: captures.iter().map(|capture| capture.packets).sum(),
        dropped: (!dropped.is_empty()).then(|| dropped.iter().sum()),
        damaged: captures.iter().map(|capture| capture.damaged_places).sum(),
        unparsed: captures.iter().flat_map(|capture| capture.unparsed.values()).sum(),
    }
}

fn unparsed_name(why: Unparsed) -> &'static str {
    match why {
        Unparsed::LinkType => "unknown-link-type",
        Unparsed::NotIp => "not-ip",
        Unparsed::NotTcp => "not-tcp",
        Unparsed::Fragment => "fragment",
        Unparsed::Cut => "cut",
        Unparsed::Malformed => "malformed",
    }
}

fn capture_report(capture: &CaptureTotals, side: Option<Side>) -> CaptureReport {
    let (reading, counts) = (&capture.reading, &capture.counts);
    CaptureReport {
        file: reading.file.clone(),
        name: None,
        side,
        format: reading.format.clone(),
        packets: reading.packets,
        bytes: reading.bytes,
        first_unix_ns: reading.first_ns,
        last_unix_ns: reading.last_ns,
        resolution_ns: reading.resolution_ns,
        dropped: reading.dropped,
        cut: reading.cut,
        cut_bytes: reading.cut_bytes,
        without_time: reading.without_time,
        damaged_places: reading.damaged_places,
        damaged_bytes: reading.damaged_bytes,
        damage: reading
            .damage
            .iter()
            .map(|damage| DamageReport { offset: damage.offset, what: damage.what.clone() })
            .collect(),
        segments: counts.segments,
        unparsed: counts.unparsed.iter().map(|(why, count)| (unparsed_name(*why), *count)).collect(),
        connections: counts.connections,
        connections_evicted: counts.connections_evicted,
        reassembly_dropped_bytes: counts.reassembly_dropped_bytes,
        header_blocks_unknown: counts.app.header_blocks_unknown,
        header_blocks_cut: counts.app.header_blocks_cut,
        calls_unseen: counts.app.calls_unseen,
        bytes_skipped: counts.app.bytes_skipped,
        resyncs: counts.app.resyncs,
        streams_refused: counts.app.streams_refused,
        records_undecrypted: counts.app.records_undecrypted,
        unmatched: capture.unmatched,
        halves_evicted: capture.halves_evicted,
    }
}
