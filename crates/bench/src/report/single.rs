//! A single run in full.

use super::fields::{Field, Load};
use super::lines::{or_unknown, per_call, time, write_list};
use super::{Floor, Quantiles, Run, Sockets, Streams};
use spangap_model::duration::format_ns;
use spangap_report::figures::{counted, percent};
use std::fmt::{self, Formatter};

/// How many calls of a run there were, and how long they took, as text.
#[derive(Clone, Copy, Debug)]
pub struct CallsInShort<'r>(pub &'r Run);

impl fmt::Display for CallsInShort<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write_calls(f, self.0)
    }
}

type Pick = fn(&Quantiles) -> Option<u64>;
/// Quantiles and the number of calls that each needs.
const QUANTILES: [(&str, u64, Pick); 7] = [
    ("p50", 2, |q| q.p50_ns),
    ("p90", 10, |q| q.p90_ns),
    ("p99", 100, |q| q.p99_ns),
    ("p99.9", 1_000, |q| q.p999_ns),
    ("p99.99", 10_000, |q| q.p9999_ns),
    ("max", 1, |q| q.max_ns),
    ("mean", 1, |q| q.mean_ns),
];

/// Writes everything about a run except its warnings.
pub(super) fn write(f: &mut Formatter<'_>, run: &Run) -> fmt::Result {
    let asked: Vec<String> = Field::ALL
        .into_iter()
        .filter(|field| !matches!(field, Field::Target))
        .map(|field| format!("{} {}", field.name(), field.of(&run.asked)))
        .collect();
    writeln!(f, "{}: {}", run.asked.target, Load::of(&run.asked))?;
    write_list(f, "asked", &asked)?;
    writeln!(
        f,
        "libraries  {}\nload       {} {} in {:.1} s, after {:.1} s of warm-up",
        run.libraries(),
        counted(run.scheduled, "call"),
        if run.lateness.is_some() { "due" } else { "sent" },
        run.duration_s,
        run.warmup_s
    )?;
    writeln!(f)?;
    write_calls(f, run)?;
    write_meaning(f, run)?;
    write_cpu(f, run)?;
    write_connections(f, run)?;
    if let Some(streams) = &run.streams {
        write_streams(f, streams)?;
    }
    if let Some(floor) = &run.floor {
        write_floor(f, run, floor)?;
    }
    Ok(())
}

/// How many calls there were, and how long they took.
pub(super) fn write_calls(f: &mut Formatter<'_>, run: &Run) -> fmt::Result {
    write!(f, "calls      {} OK ({}/s)", run.ok, super::fields::rounded(run.throughput_per_s))?;
    write!(f, ", {} failed", run.calls.saturating_sub(run.ok))?;
    match run.skipped_overload {
        0 => writeln!(f)?,
        skipped => writeln!(f, ", {skipped} not made: too many were waiting")?,
    }
    write_errors(f, run)?;
    writeln!(f, "slow       {} took more than {} from send", run.slow, format_ns(run.slow_over_ns))?;
    write_quantiles(f, run)
}

/// One line per status.
pub(super) fn write_errors(f: &mut Formatter<'_>, run: &Run) -> fmt::Result {
    for (status, count) in &run.errors {
        write!(f, "           {status} {count}")?;
        match run.error_reasons.get(status) {
            Some(reason) => writeln!(f, ", the last: {reason}")?,
            None => writeln!(f)?,
        }
    }
    Ok(())
}

fn write_quantiles(f: &mut Formatter<'_>, run: &Run) -> fmt::Result {
    let open = run.lateness.is_some();
    let mut columns = vec![("latency", run.latency)];
    if open {
        columns.push(("from send", run.latency_from_send));
        columns.extend(run.lateness.map(|lateness| ("lateness", lateness)));
    }
    if let Some(floor) = &run.floor {
        columns.push(("raw floor", floor.latency));
    }
    write!(f, "\n{:<10}", "")?;
    columns.iter().try_for_each(|(name, _)| write!(f, "  {name:>10}"))?;
    writeln!(f)?;
    for (name, needs, pick) in QUANTILES {
        write!(f, "{name:<10}")?;
        columns.iter().try_for_each(|(_, quantiles)| write!(f, "  {:>10}", time(pick(quantiles))))?;
        match columns.iter().any(|(_, quantiles)| pick(quantiles).is_none()) {
            true => writeln!(f, "  needs {}", counted(needs, "call"))?,
            false => writeln!(f)?,
        }
    }
    Ok(())
}

/// What the columns mean.
fn write_meaning(f: &mut Formatter<'_>, run: &Run) -> fmt::Result {
    match run.lateness.is_some() {
        true => writeln!(
            f,
            "latency: from when the call was due to its response, OK calls; from send: from when it was\n\
             really sent; lateness: how long after its due time it was sent, all calls\n"
        ),
        false => writeln!(f, "latency: from send to response, OK calls; in a closed loop no call is due\n"),
    }
}

fn write_cpu(f: &mut Formatter<'_>, run: &Run) -> fmt::Result {
    for (side, cpu_s, switches) in [
        ("client", Some(run.cpu_client_s), Some(run.context_switches)),
        ("target", run.cpu_target_s, run.context_switches_target),
    ] {
        let Some(cpu_s) = cpu_s else {
            writeln!(f, "{side:<10} CPU n/a: it did not tell before and after the calls")?;
            continue;
        };
        write!(f, "{side:<10} {cpu_s:.2} s of CPU")?;
        if run.duration_s > 0.0 {
            write!(f, " ({} of one)", percent(cpu_s / run.duration_s))?;
        }
        let us = per_call(cpu_s * 1e6, run.calls).map_or_else(|| "n/a".into(), |us| format!("{us:.1}"));
        let each = switches.and_then(|n| per_call(n as f64, run.calls));
        let each = each.map_or_else(|| "n/a".into(), |each| format!("{each:.2}"));
        writeln!(f, ", {us} us per call, {each} context switches per call")?;
    }
    Ok(())
}

fn write_connections(f: &mut Formatter<'_>, run: &Run) -> fmt::Result {
    writeln!(
        f,
        "TCP        {} at the end by the kernel's count, of {} made",
        run.connections
            .map_or_else(|| "an unknown number of connections".into(), |n| counted(n, "connection")),
        counted(run.channels_made, "channel")
    )?;
    let Some(sockets) = &run.sockets else { return Ok(()) };
    let Sockets { most_at_once, seen, nodelay_on, nodelay_off, .. } = sockets;
    write!(f, "           {seen} seen, at most {most_at_once} at once; TCP_NODELAY on for ")?;
    write!(f, "{}, off for {}", or_unknown(*nodelay_on), or_unknown(*nodelay_off))?;
    writeln!(f, "{}", if sockets.nodelay_forced { ", set on the live sockets" } else { "" })?;
    writeln!(
        f,
        "           smallest round trip {}, segments retransmitted {}, congestion control {}",
        time(sockets.min_rtt_ns),
        or_unknown(sockets.retransmitted_segments),
        sockets.congestion_control.as_deref().unwrap_or("unknown")
    )
}

fn write_streams(f: &mut Formatter<'_>, streams: &Streams) -> fmt::Result {
    match streams.limit_per_connection {
        Some(limit) => write!(f, "streams    the target announces a limit of {limit} per connection")?,
        None => write!(f, "streams    the target announces no limit")?,
    }
    if let (Some(queued), Some(_)) = (streams.queued_by_limit, streams.limit_per_connection) {
        write!(f, "; {queued} of the calls in flight wait for one")?;
    }
    match streams.target_peak_in_progress {
        Some(peak) => writeln!(f, "; it handled at most {peak} at once"),
        None => writeln!(f),
    }
}

fn write_floor(f: &mut Formatter<'_>, run: &Run, floor: &Floor) -> fmt::Result {
    let times = run.floor_ratio().map_or_else(|| "n/a".into(), |ratio| format!("{ratio:.1}"));
    writeln!(
        f,
        "floor      raw ping-pong over loopback, same load: {}/s, p50 {}; this run's p50 is {times} times that",
        super::fields::rounded(floor.throughput_per_s),
        time(floor.latency.p50_ns)
    )
}
