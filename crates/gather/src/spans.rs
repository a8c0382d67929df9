//! Spans from files, joined with the packets of their calls.

use crate::GatherError;
use spangap_meter::engine::{Meter, Settings};
use spangap_meter::ingest::file::{Input, read, read_times};
use spangap_meter::ingest::times::{HalfTimes, TimesReader};
use spangap_model::Side;
use spangap_model::evidence::UnplacedSpans;
use spangap_wire::call::Call;
use spangap_wire::dissect::Dissection;
use spangap_wire::spans::Spans;
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// Maximum number of calls with stored spans: about 600 MB.
const MOST_CALLS: usize = 5_000_000;

/// Maximum number of further attempts per call with stored SERVER spans.
const MOST_ATTEMPTS: usize = 64;

/// Result of reading the files.
#[derive(Default)]
pub struct Read {
    /// The times.
    pub spans: Spans,
    /// Sentences on what was skipped.
    pub caveats: Vec<String>,
    /// The joined spans, if requested.
    pub joined: Option<Meter>,
}

/// Reads the files; only times of `trace_ids`, unless it is empty. With `join`, all spans are also joined.
///
/// # Errors
/// When nothing of a file can be read.
pub fn read_all(
    files: &[PathBuf],
    trace_ids: &[[u8; 16]],
    join: bool,
    stop: &AtomicBool,
) -> Result<Read, GatherError> {
    let mut all = Read::default();
    // Mates may be anywhere in the files, so only memory limits how long a span waits.
    let meter = join.then(|| Meter::new(Settings { join_ttl_ms: None, ..Settings::default() }));
    let mut without_room = 0_u64;
    let mut reader = TimesReader::default();
    for file in files {
        let input = Input::from_argument(file.clone());
        if input == Input::Stdin {
            return Err(GatherError::SpansFromStdin);
        }
        let mut keep = |half: HalfTimes| {
            if trace_ids.is_empty() || trace_ids.contains(&half.trace_id) {
                without_room += u64::from(!add(&mut all.spans, half));
            }
        };
        let mut go_on = |_| match stop.load(Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        };
        let report = match &meter {
            None => read_times(&input, &mut keep, &mut go_on)?,
            Some(meter) => {
                let mut sink = |request: &[u8]| {
                    // The reader of the times rejects and reports what the walk rejects.
                    let _ = meter.ingest(request, 0);
                    reader.read(request, &mut keep)
                };
                read(&input, &mut sink, &mut go_on)?
            }
        };
        if report.skipped_places > 0 {
            let first = report.skipped.first();
            let first = first
                .map_or(String::new(), |skipped| format!(", first {}: {}", skipped.place, skipped.reason));
            all.caveats.push(format!(
                "Of the spans in {}, {} could not be read{first}.",
                input.name(),
                if report.skipped_places == 1 {
                    "1 place".into()
                } else {
                    format!("{} places", report.skipped_places)
                }
            ));
        }
    }
    if let Some(meter) = meter.filter(|_| !files.is_empty()) {
        meter.finish();
        all.joined = Some(meter);
    }
    if without_room > 0 {
        all.caveats.push(format!(
            "There was no room for {without_room} spans besides those of {MOST_CALLS} calls: their calls have no \
             application legs. --trace-id keeps only the spans of one trace."
        ));
    }
    if !files.is_empty() && all.spans.times.is_empty() {
        all.caveats
            .push("The files of spans contain no CLIENT or SERVER span that could belong to a call.".into());
    }
    Ok(all)
}

/// Whether nothing in the packets of a call tells which spans are its own.
fn is_bare(call: &&Call) -> bool {
    let mut halves = call.halves.exchanges.iter().flatten();
    call.halves.spans.is_none() && halves.all(|half| half.trace.is_none())
}

/// CLIENT spans for the servers of such calls, if most calls are such. If any span names one of these servers' ports, only those
/// that do count; otherwise, only those that name no port.
pub fn unplaced(dissection: &Dissection, spans: &Spans) -> Option<UnplacedSpans> {
    let bare: Vec<&Call> = dissection.calls.iter().filter(is_bare).collect();
    if 2 * bare.len() <= dissection.calls.len() {
        return None;
    }
    let ports: HashSet<u16> = bare.iter().filter_map(|call| Some(call.ends?[1].port)).collect();
    let durations = |is_of: &dyn Fn(Option<&u16>) -> bool| -> Vec<u64> {
        let of_client = spans.times.iter().filter(|(ids, _)| is_of(spans.server_ports.get(ids)));
        of_client.filter_map(|(_, times)| times.client).map(|(from, to)| to.abs_diff(from)).collect()
    };
    let mut long = durations(&|port| port.is_some_and(|port| ports.contains(port)));
    if long.is_empty() {
        long = durations(&|port| port.is_none());
    }
    let middle = long.len() / 2;
    let median_ns = *long.get(middle).is_some().then(|| long.select_nth_unstable(middle).1)?;
    Some(UnplacedSpans { spans: long.len() as u64, median_ns })
}

/// Says that spans in the files belong to none of the calls shown, because nothing in the packets tells which is whose.
pub fn unmatched(dissection: &Dissection, spans: &Spans) -> Option<String> {
    let of_client = spans.times.values().filter(|times| times.client.is_some()).count();
    let (bare, all) = (dissection.calls.iter().filter(is_bare).count(), dissection.calls.len());
    (of_client > 0 && 2 * bare > all).then(|| {
        format!(
            "{bare} of the {all} calls shown have none of the {of_client} CLIENT spans in the files: their packets carry no \
             trace context, and no times of a span fit one of them alone. What passed in the client before their first \
             byte and after their last is in no figure."
        )
    })
}

/// Whether it was stored or already present.
fn add(spans: &mut Spans, half: HalfTimes) -> bool {
    let key = (half.trace_id, half.client_span_id);
    let port = half.server_port;
    if spans.times.len() >= MOST_CALLS && !spans.times.contains_key(&key) {
        return false;
    }
    let times = spans.times.entry(key).or_default();
    let place = match half.side {
        Side::Client => &mut times.client,
        Side::Server => &mut times.server,
    };
    spans.server_ports.extend(port.map(|port| (key, port)));
    let new = (half.start_ns, half.end_ns);
    // A repeated span, as when a file and its copy are given, is no contradiction.
    let another = place.is_some_and(|known| known != new);
    place.get_or_insert(new);
    // Each server span is an attempt; a repeated CLIENT span that differs is a contradiction.
    spans.duplicates += u64::from(another);
    if another && half.side == Side::Server {
        let attempts = spans.attempts.entry(key).or_default();
        if attempts.len() < MOST_ATTEMPTS && !attempts.contains(&new) {
            attempts.push(new);
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use spangap_wire::call::Halves;
    use spangap_wire::exchange::{Exchange, TraceContext};
    use spangap_wire::segment::Endpoint;
    use spangap_wire::spans::SpanTimes;
    use std::collections::BTreeMap;

    /// A call to a server's port 8443.
    fn call(trace: Option<TraceContext>) -> Call {
        let exchanges = [Some(Exchange { trace, ..Exchange::default() }), None];
        Call {
            halves: Halves { exchanges, ..Halves::default() },
            connection: 0,
            ends: Some([40_000, 8443].map(|port| Endpoint::v4([10, 0, 0, 1], port))),
            start_ns: 0,
            duration_ns: 1,
            legs: Vec::new(),
            findings: Vec::new(),
            hosts: BTreeMap::new(),
            section: 0,
            hops: Vec::new(),
            path: Vec::new(),
        }
    }

    #[test]
    fn spans_that_may_be_of_calls_without_trace_context_are_those_for_their_servers() {
        let of = |durations: &[(i64, Option<u16>)], trace: Option<TraceContext>| {
            let mut spans = Spans::default();
            for (id, (ns, port)) in (0..).zip(durations) {
                let ids = ([1; 16], [id; 8]);
                spans.times.insert(ids, SpanTimes { client: Some((5, 5 + ns)), ..SpanTimes::default() });
                spans.server_ports.extend(port.map(|port| (ids, port)));
            }
            let calls = vec![call(trace), call(trace)];
            unplaced(&Dissection { calls, ..Dissection::default() }, &spans)
        };
        let (here, elsewhere) = (Some(8443), Some(5432));
        let found = |spans, median_ns| Some(UnplacedSpans { spans, median_ns });
        assert_eq!(of(&[(10, here), (90, here), (20, here), (900, elsewhere)], None), found(3, 20));
        assert_eq!(of(&[(10, None), (900, elsewhere), (30, None), (20, None)], None), found(3, 20));
        assert_eq!(of(&[(900, elsewhere)], None), None);
        // A sampler kept few spans, and packets tell whose these are.
        let traced = Some(TraceContext { trace_id: [3; 16], span_id: [4; 8] });
        assert_eq!(of(&[(10, here)], traced), None);
    }

    #[test]
    fn spans_that_fit_no_call_are_told_unless_packets_name_them() {
        let mut spans = Spans::default();
        spans.times.insert(([1; 16], [2; 8]), SpanTimes { client: Some((1, 9)), ..SpanTimes::default() });
        let said = |calls: Vec<Call>, spans: &Spans| {
            unmatched(&Dissection { calls, ..Dissection::default() }, spans)
        };
        let told = said(vec![call(None), call(None)], &spans).unwrap();
        assert!(told.starts_with("2 of the 2 calls shown have none of the 1 CLIENT spans"), "{told}");
        // Of a sample of all spans, the packets tell whose they are.
        let traced = Some(TraceContext { trace_id: [3; 16], span_id: [4; 8] });
        assert_eq!(said(vec![call(traced), call(traced)], &spans), None);
        assert_eq!(said(vec![call(None)], &Spans::default()), None);
    }

    #[test]
    fn the_first_of_two_contradicting_spans_counts() {
        let mut spans = Spans::default();
        let half = |side, start_ns, end_ns| HalfTimes {
            trace_id: [1; 16],
            client_span_id: [2; 8],
            side,
            start_ns,
            end_ns,
            server_port: None,
        };
        for half in [
            half(Side::Client, 1, 9),
            half(Side::Server, 2, 8),
            half(Side::Server, 2, 8),
            half(Side::Server, 3, 8),
        ] {
            assert!(add(&mut spans, half));
        }
        assert_eq!((spans.times.len(), spans.duplicates), (1, 1));
        let times = spans.times[&([1; 16], [2; 8])];
        assert_eq!((times.client, times.server), (Some((1, 9)), Some((2, 8))));
        // It may belong to another attempt.
        assert_eq!(spans.attempts[&([1; 16], [2; 8])], [(3, 8)]);
    }
}
