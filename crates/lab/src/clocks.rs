//! Recordings rewritten to the clocks that a run wants for its two hosts. The kernel has one clock for all its
//! namespaces, so everything recorded on a host is rewritten as that host's clock would have shown it: spans and
//! report here, packets and host recordings by code that knows their formats
//! ([`RunSettings::retime`](crate::run::RunSettings)). The truth stays in this machine's time.

use crate::calls::Calls;
use crate::host_clock::HostClock;
use crate::truth::FaultReport;
use crate::{LabError, folder};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use serde_json::Value;
use spangap_model::{Clock, Side};
use std::path::Path;

/// Files whose times must be shifted by the caller, who knows their formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// Packets, pcapng.
    Packets,
    /// A recording of `spangap host record`.
    Host,
}

/// Rewrites a file of a run with another clock; the error is a sentence.
pub type Retime<'a> = dyn Fn(Recorded, &Path, &Clock) -> Result<(), String> + 'a;

/// Rewrites the recordings of hosts with other clocks, and adds a claim about the result.
pub(crate) fn set(
    work: &Path,
    clocks: &[HostClock],
    since_unix_ns: u64,
    retime: &Retime<'_>,
    acted: &mut FaultReport,
) -> Result<(), LabError> {
    if clocks.is_empty() {
        return Ok(());
    }
    let read = || Calls::read(&work.join(folder::CLIENT_SPANS), &work.join(folder::SERVER_SPANS), 0);
    let before = read()?;
    for one in clocks {
        let clock = one.since(since_unix_ns);
        spans(&work.join(folder::spans(one.side)), &clock)?;
        if one.side == Side::Client {
            report(&work.join(folder::TANK), &clock)?;
        }
        for (kind, name) in
            [(Recorded::Packets, folder::capture(one.side)), (Recorded::Host, folder::recording(one.side))]
        {
            let path = work.join(name);
            // A missing recording has no clock.
            if path.exists() {
                retime(kind, &path, &clock).map_err(|why| LabError::program("the clock of a host", why))?;
            }
        }
    }
    claim(clocks, &before, &read()?, since_unix_ns, acted);
    Ok(())
}

/// Start and end of recordings, by the clocks of their hosts.
pub(crate) fn of_recordings(
    mut recorded: Vec<folder::Recorded>,
    clocks: &[HostClock],
    since_unix_ns: u64,
) -> Vec<folder::Recorded> {
    for one in clocks {
        let clock = one.since(since_unix_ns);
        let files = [folder::spans(one.side), folder::capture(one.side), folder::recording(one.side)];
        for file in recorded.iter_mut().filter(|file| files.contains(&file.file.as_str())) {
            file.from_unix_ns = moved(file.from_unix_ns, &clock);
            file.to_unix_ns = moved(file.to_unix_ns, &clock);
        }
    }
    recorded
}

/// The shift of SERVER spans relative to CLIENT spans must match the clocks.
fn claim(clocks: &[HostClock], before: &Calls, after: &Calls, since_unix_ns: u64, acted: &mut FaultReport) {
    let Some((first, last)) = before.all.first().zip(before.all.last()) else { return };
    let shown = |side: Side, unix_ns: u64| -> i64 {
        clocks
            .iter()
            .filter(|one| one.side == side)
            .map(|one| {
                let since = unix_ns.cast_signed() - since_unix_ns.cast_signed();
                one.offset_ns + spangap_model::clock::gained(since, one.skew_ppm)
            })
            .sum()
    };
    let ahead = |unix_ns: u64| shown(Side::Server, unix_ns) - shown(Side::Client, unix_ns);
    let ends = [ahead(first.start_unix_ns), ahead(last.end_unix_ns)];
    // Rounding costs a nanosecond at each end of a span.
    let (least, most) = (ends[0].min(ends[1]) - 4, ends[0].max(ends[1]) + 4);
    let moved = middle_ns(after).zip(middle_ns(before)).map_or(0, |(after, before)| after - before);
    let what = "SERVER spans moved against their CLIENT spans, mean, ns";
    acted.at_least(what, moved as f64, least as f64);
    acted.at_most(what, moved as f64, most as f64);
}

/// Mean distance of the middle of SERVER spans behind that of their CLIENT spans.
fn middle_ns(calls: &Calls) -> Option<i64> {
    let pairs = calls.all.iter().filter_map(|call| Some((call, call.server.first()?)));
    let middle = |from: u64, to: u64| (i128::from(from) + i128::from(to)) / 2;
    let (sum, count) = pairs.fold((0_i128, 0_i128), |(sum, count), (call, (from, to))| {
        (sum + middle(*from, *to) - middle(call.start_unix_ns, call.end_unix_ns), count + 1)
    });
    i64::try_from(sum.checked_div(count)?).ok()
}

fn moved(unix_ns: u64, clock: &Clock) -> u64 {
    // A time in this run, and an offset of a day at most.
    let at = clock.at(unix_ns.cast_signed()).and_then(|at| u64::try_from(at).ok());
    at.unwrap_or(unix_ns)
}

fn spans(path: &Path, clock: &Clock) -> Result<(), LabError> {
    let mut request: ExportTraceServiceRequest = folder::read_json(path)?;
    let scopes = request.resource_spans.iter_mut().flat_map(|resource| &mut resource.scope_spans);
    for span in scopes.flat_map(|scope| &mut scope.spans) {
        span.start_time_unix_nano = moved(span.start_time_unix_nano, clock);
        span.end_time_unix_nano = moved(span.end_time_unix_nano, clock);
        for event in &mut span.events {
            event.time_unix_nano = moved(event.time_unix_nano, clock);
        }
    }
    folder::write_json(path, &request)
}

fn report(path: &Path, clock: &Clock) -> Result<(), LabError> {
    let mut report: Value = folder::read_json(path)?;
    move_unix(&mut report, clock);
    folder::write_json(path, &report)
}

/// Shifts every number whose name denotes a time.
fn move_unix(value: &mut Value, clock: &Clock) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                match member.as_u64().filter(|_| name.ends_with("_unix_ns")) {
                    Some(unix_ns) => *member = moved(unix_ns, clock).into(),
                    None => move_unix(member, clock),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| move_unix(item, clock)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_times_in_a_report_are_shifted() {
        let mut report = serde_json::json!({
            "runs": [{ "start_unix_ns": 1_000_000, "duration_s": 3.0, "latency": { "p50_ns": 7 } }],
            "at_unix_ns": null,
        });
        move_unix(&mut report, &Clock { offset_ns: -9, skew_ppm: 0.0, since_unix_ns: 0 });
        let expected = serde_json::json!({
            "runs": [{ "start_unix_ns": 999_991, "duration_s": 3.0, "latency": { "p50_ns": 7 } }],
            "at_unix_ns": null,
        });
        assert_eq!(report, expected);
    }
}
