//! A dissection as evidence.

use super::CallReport;
use super::build::{call_report, clock_of, side_of};
use crate::call::Call;
use crate::dissect::{CaptureTotals, Dissection};
use crate::exchange::{Part, Protocol};
use crate::hops::path::hosts_along;
use crate::hops::{PathLeg, Stage};
use spangap_model::CallStatus;
use spangap_model::evidence::{
    CallRecord, Clocks, Coverage, Evidence, HopLeg, HopPlace, Instrument, Interval,
};

/// All that a dissection says of the calls between two ends.
pub fn evidence(dissection: &Dissection) -> Evidence {
    Evidence {
        calls: records(dissection),
        matching_calls: dissection.matching,
        clocks: clocks(dissection),
        coverage: coverage(dissection),
        ..Evidence::default()
    }
}

fn records(dissection: &Dissection) -> Vec<CallRecord> {
    let slowest = dissection.calls.len().saturating_sub(dissection.drawn);
    let others = dissection.matching.saturating_sub(slowest as u64);
    let each = others as f64 / dissection.drawn.max(1) as f64;
    let one = |(place, call): (usize, &Call)| {
        let mut record = record(call_report(call, dissection));
        record.retryable |= has_retryable_status(call);
        record.path = path(call);
        record.windows = windows(call, dissection);
        record.stands_for = (place >= slowest && each > 1.0).then_some(each);
        record
    };
    dissection.calls.iter().enumerate().map(one).collect()
}

/// Each capture may have begun after the handshake; one that has it is enough. Of a connection that is not listed, nothing
/// is known. HTTP/2 lets in no more than its own windows do: for messages of more than the first one, a capture that cuts packets
/// does not show how much that was.
fn windows(call: &Call, dissection: &Dissection) -> [Option<u64>; 2] {
    let connection = dissection.connection_of(call);
    let seen = || connection.into_iter().flat_map(|connection| connection.seen.iter().flatten());
    let windows = [0, 1].map(|side: usize| seen().filter_map(|facts| facts.windows[side]).max());
    if dissection.captures.iter().all(|capture| capture.reading.cut == 0) {
        return windows;
    }
    let halves = || call.halves.exchanges.iter().flatten();
    let halves = || halves().filter(|half| matches!(half.protocol, Protocol::Grpc | Protocol::Http2));
    let is_long = |part: &Part| part.end.saturating_sub(part.start) > FIRST_HTTP2_WINDOW;
    let long = [
        halves().filter_map(|half| half.response.as_ref()).any(is_long),
        halves().any(|half| is_long(&half.request)),
    ];
    [0, 1].map(|side: usize| windows[side].filter(|_| !long[side]))
}

/// What HTTP/2 lets in before anything else is agreed on, bytes.
const FIRST_HTTP2_WINDOW: u64 = 65_535;

fn path(call: &Call) -> Vec<HopLeg> {
    let mut hosts = Vec::new();
    hosts_along(call, &mut hosts);
    let mut hosts = hosts.into_iter();
    let mut leg = |leg: &PathLeg| {
        let host = if matches!(leg.stage, Stage::Call(_)) { hosts.next().flatten() } else { None };
        HopLeg { host: host.filter(|_| leg.hop > 0).cloned(), ..hop_leg(leg) }
    };
    call.path.iter().map(&mut leg).collect()
}

fn hop_leg(leg: &PathLeg) -> HopLeg {
    let PathLeg { hop, attempt, stage, ns, bound_ns } = *leg;
    let place = match stage {
        Stage::Call(legs) => HopPlace::Leg(legs),
        Stage::ProxyRequest { with_wire: false } | Stage::ProxyResponse { with_wire: false } => {
            HopPlace::Proxy
        }
        Stage::ProxyRequest { with_wire: true } | Stage::ProxyResponse { with_wire: true } => {
            HopPlace::ProxyOrWire
        }
        Stage::ProxyRetry => HopPlace::BetweenAttempts,
    };
    HopLeg { hop, attempt, place, ns, bound_ns, host: None }
}

fn record(call: CallReport) -> CallRecord {
    CallRecord {
        trace_id: call.trace_id,
        span_id: call.span_id,
        client: call.client,
        server: call.server,
        method: call.method,
        seen_in: call.seen_in,
        start_unix_ns: call.start_unix_ns,
        duration_ns: call.duration_ns,
        request_bytes: call.request_bytes,
        response_bytes: call.response_bytes,
        legs: call.legs,
        findings: call.findings,
        path: Vec::new(),
        windows: [None; 2],
        retryable: call.ending.is_some_and(|ending| ending.unanswered),
        stands_for: None,
    }
}

/// Statuses of HTTP after which clients try again, besides those of the class 5xx.
const RETRYABLE_HTTP: [u16; 3] = [408, 425, 429];

/// Whether an end saw a status after which clients try again; the client's end counts where it saw one.
fn has_retryable_status(call: &Call) -> bool {
    let exchange =
        call.halves.exchanges.iter().flatten().find(|exchange| exchange.status != CallStatus::UNSET);
    exchange.is_some_and(|exchange| {
        exchange.status.is_retryable()
            || exchange.http_status.is_some_and(|status| RETRYABLE_HTTP.contains(&status))
    })
}

fn clocks(dissection: &Dissection) -> Option<Clocks> {
    let report = clock_of(dissection)?;
    Some(Clocks {
        offset_low_ns: report.offset_low_ns,
        offset_high_ns: report.offset_high_ns,
        skew_ppm: report.skew_low_ppm.zip(report.skew_high_ppm),
        stretches: report.stretches.len() as u64,
    })
}

fn interval((from_unix_ns, to_unix_ns): (i64, i64)) -> Interval {
    Interval { from_unix_ns, to_unix_ns }
}

/// One for each capture, where what holds for all of them stands with the first; then one for each recording.
fn coverage(dissection: &Dissection) -> Vec<Coverage> {
    let of_one = |(number, capture): (usize, &CaptureTotals)| {
        let reading = &capture.reading;
        Coverage {
            instrument: Instrument::Packets,
            source: reading.file.clone(),
            side: side_of(number as u8, dissection),
            when: reading.first_ns.zip(reading.last_ns).map(interval),
            seen: reading.packets,
            lost: reading.dropped.unwrap_or(0),
            cannot: if number == 0 { dissection.caveats.clone() } else { Vec::new() },
        }
    };
    let captures = dissection.captures.iter().enumerate().map(of_one);
    captures.chain(dissection.recordings.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::samples;

    #[test]
    fn a_capture_that_cuts_packets_does_not_show_what_http2_let_in_of_a_long_message() {
        let windows = |request_bytes: u64, cut: u64| {
            let mut dissection = samples::dissection();
            for capture in &mut dissection.captures {
                capture.reading.cut = cut;
            }
            for half in dissection.calls[0].halves.exchanges.iter_mut().flatten() {
                half.request.end = half.request.start + request_bytes;
            }
            evidence(&dissection).calls[0].windows
        };
        assert_eq!(windows(900_000, 0), [Some(64 << 10); 2]);
        assert_eq!(windows(900_000, 12), [Some(64 << 10), None]);
        assert_eq!(windows(900, 12), [Some(64 << 10); 2]);
    }
}
