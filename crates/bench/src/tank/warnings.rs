//! Caveats about a run's figures. Pure.

use crate::contract::{Channels, Records, Stack};
use crate::report::Run;
use crate::tank::observations::Observations;
use crate::tank::records::RecordsRead;
use crate::tank::tally::Tally;
use spangap_model::duration::format_ns;
use spangap_report::figures::counted;

/// Share of its CPUs above which the client may be the limit.
const BUSY: f64 = 0.8;
/// A floor above the run by more than this is invalid: repetitions of equal runs differ by as much.
const ABOVE: f64 = 1.05;
/// Below this number of OK calls there is no p99.
const FEW: u64 = 100;

/// Facts besides the calls.
pub struct RunFacts<'a> {
    /// Requested records.
    pub records: Records,
    /// Received records.
    pub read: &'a RecordsRead,
    /// Connections that the client reported.
    pub told: u64,
    /// Requested measured time, if the run was stopped early.
    pub cut_short: Option<u64>,
    /// Observations from outside.
    pub sight: &'a Observations,
}

/// The warnings of one run.
pub fn of(run: &Run, tally: &Tally, beside: &RunFacts) -> Vec<String> {
    let mut warnings = Vec::new();
    let asked = &run.asked;
    let header_alone = asked.request_bytes == 0
        && !asked.trace
        && asked.response_bytes.is_none()
        && asked.think_ns.is_none();
    if asked.split_writes && header_alone {
        warnings.push("a request is only a header, so its write is not split: give --request-bytes".into());
    }
    if let Some(asked_ns) = beside.cut_short {
        warnings.push(format!("stopped after {:.1} s of {}", run.duration_s, format_ns(asked_ns)));
    }
    calls(run, tally, &mut warnings);
    timing(run, &mut warnings);
    connections(run, beside, &mut warnings);
    records(run, tally, beside, &mut warnings);
    warnings.extend(beside.sight.warnings().iter().cloned());
    warnings
}

fn calls(run: &Run, tally: &Tally, warnings: &mut Vec<String>) {
    if let Some(error) = &run.client_error {
        warnings.push(format!("the client failed: {error}; these are the results so far"));
    }
    if run.scheduled == 0 {
        warnings.push("no call was due in the measured time: stopped before the end of the warm-up?".into());
    }
    for (name, count) in &run.errors {
        let why = run.error_reasons.get(name).map_or("", String::as_str);
        warnings.push(format!("{count} calls ended with {name}; the last: {why}{}", hint(run, name)));
    }
    if run.warmup_errors > 0 {
        let last = tally.warmup.errors.iter().next_back();
        let why = last.map_or_else(String::new, |(name, (_, why))| format!("{name}: {why}"));
        warnings.push(format!(
            "{} calls of the warm-up failed too, not counted above; the last: {why}",
            run.warmup_errors
        ));
    }
    if run.skipped_overload > 0 {
        warnings.push(format!(
            "{} calls were not made because the limit of waiting calls was reached: latency would be worse than \
             shown",
            run.skipped_overload
        ));
    }
    for (phase, sums) in [("", &tally.measured), (" of the warm-up", &tally.warmup)] {
        let (due, known) = (sums.due, sums.skipped + sums.calls());
        if due > known {
            warnings.push(format!("how {} calls{phase} ended is unknown", due - known));
        } else if known > due {
            warnings.push(format!(
                "the client's counts{phase} contradict each other: {due} calls due, {known} accounted for"
            ));
        }
    }
    if (1..FEW).contains(&run.ok) {
        warnings.push(format!("{} OK calls are too few for a p99, which needs {FEW}", run.ok));
    }
}

/// Usual meaning of an error.
fn hint(run: &Run, name: &str) -> &'static str {
    if run.asked.method.is_some() {
        return "";
    }
    match (name, run.asked.stack) {
        ("UNIMPLEMENTED", _) => {
            " (it does not serve spangap.ping.v1.Ping, as `spangap target` does; --method SERVICE/METHOD calls a method \
             that it has)"
        }
        ("UNAVAILABLE", Stack::Raw) if run.ok == 0 => " (stack raw needs a target of stack raw)",
        ("UNAVAILABLE", _) if run.ok == 0 => " (is it a gRPC server, and one without TLS? tank speaks none)",
        _ => "",
    }
}

fn timing(run: &Run, warnings: &mut Vec<String>) {
    if let (Some(late), Some(typical)) =
        (run.lateness.and_then(|lateness| lateness.p99_ns), run.latency_from_send.p50_ns)
        && late > typical
    {
        warnings.push(format!(
            "1 % of calls were sent {} late or more, longer than the typical call of {}: that is this machine's own \
             delay; `latency` includes it, `from send` does not",
            format_ns(late),
            format_ns(typical)
        ));
    }
    if let Some(floor) = &run.floor
        && let (Some(floor_ns), Some(run_ns)) = (floor.latency.p50_ns, run.latency.p50_ns)
        && floor_ns as f64 > run_ns as f64 * ABOVE
    {
        warnings.push(format!(
            "the floor is above the run: raw ping-pong took {} at p50 ({} calls just before), this run {}. It is \
             not a floor here, and ratios to it say nothing about the stack",
            format_ns(floor_ns),
            floor.calls,
            format_ns(run_ns)
        ));
    }
    let threads = match run.asked.stack {
        Stack::CppSync => run.asked.inflight.unwrap_or(u32::MAX),
        _ => run.asked.threads,
    };
    let cpus = f64::from(threads.min(available_cpus(run)));
    if run.duration_s > 0.0 && run.cpu_client_s > BUSY * run.duration_s * cpus {
        let used = run.cpu_client_s / run.duration_s;
        warnings.push(format!(
            "the client used {used:.2} of the {cpus} CPUs available to it: it may be the limit"
        ));
    }
}

/// CPUs that the client may use.
fn available_cpus(run: &Run) -> u32 {
    let of_process = || std::thread::available_parallelism().map_or(u32::MAX, |cpus| cpus.get() as u32);
    let listed = run.asked.cpus.as_ref().and_then(|cpus| cpus.parse::<super::cpus::Cpus>().ok());
    listed.map_or_else(of_process, |cpus| cpus.count())
}

fn connections(run: &Run, beside: &RunFacts, warnings: &mut Vec<String>) {
    let made = u64::from(run.channels_made);
    if let Some(connections) = run.connections.filter(|&connections| connections > 0 && connections < made) {
        let why = match run.asked.channels {
            Channels::PerWorker => {
                ": gRPC gives channels with equal arguments the same connection; see --channels distinct, local-pool"
            }
            _ => "",
        };
        warnings.push(format!("{made} channels share {}{why}", counted(connections, "connection")));
    }
    let per_call = run.asked.channels == Channels::PerCall;
    let most = run.sockets.as_ref().map_or(0, |sockets| sockets.most_at_once);
    if run.connections == Some(0) && most > 0 && !per_call {
        warnings.push(format!(
            "at the last look no connection was left, of up to {most} before: the target closed them, or is gone"
        ));
    }
    let again = run.sockets.as_ref().map_or(0, |sockets| sockets.seen.saturating_sub(sockets.most_at_once));
    let opened = (made + again).max(beside.told);
    if (again > 0 || beside.told > made) && !per_call {
        warnings.push(format!("a connection was lost and reopened, {opened} in all"));
    }
    if let Some(queued @ 1..) = run.streams.as_ref().and_then(|streams| streams.queued_by_limit) {
        let limit = run.streams.as_ref().and_then(|streams| streams.limit_per_connection).unwrap_or(0);
        warnings.push(format!(
            "{queued} calls wait for a stream at any time: the target allows {limit} on a connection; latency \
             includes that wait"
        ));
    }
}

fn records(run: &Run, tally: &Tally, beside: &RunFacts, warnings: &mut Vec<String>) {
    let read = beside.read;
    if let Some(error) = &read.error {
        warnings.push(format!("cannot read the client's records of calls: {error}"));
    }
    if run.records_dropped > 0 {
        warnings.push(format!("the client had no room for {} records of calls", run.records_dropped));
    }
    let expected = match beside.records {
        Records::None => return,
        Records::Slow => run.slow,
        Records::All => tally.warmup.calls() + tally.measured.calls(),
    };
    let accounted = read.records + run.records_dropped;
    if accounted != expected || read.left_over > 0 {
        warnings.push(format!(
            "{expected} records of calls were expected; {} came, {} were dropped, {} bytes are left over",
            read.records, run.records_dropped, read.left_over
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::Stack;
    use crate::report::samples::run;
    use crate::report::{Floor, Quantiles};

    /// Warnings of a run whose calls take 100 us, with a floor of this median.
    fn beside_floor(floor_us: Option<u64>) -> Vec<String> {
        let mut one = run(Stack::Rust, Channels::Shared, 1, 0, &[100_000; 200]);
        let latency = Quantiles { p50_ns: floor_us.map(|us| us * 1_000), ..Quantiles::default() };
        one.floor = Some(Floor { calls: 300, throughput_per_s: 1.0, latency, lateness: None });
        let (read, sight) = (RecordsRead::default(), Observations::none());
        let beside =
            RunFacts { records: Records::None, read: &read, told: 0, cut_short: None, sight: &sight };
        let mut tally = Tally::new(false);
        (tally.measured.due, tally.measured.ok) = (200, 200);
        of(&one, &tally, &beside)
    }

    #[test]
    fn floor_above_the_run_is_invalid() {
        let warnings = beside_floor(Some(150));
        let expected = "the floor is above the run: raw ping-pong took 150 us at p50 (300 calls just before), this run 100 us";
        assert!(warnings.iter().any(|warning| warning.starts_with(expected)), "{warnings:#?}");
        for floor_us in [Some(20), Some(100), Some(104), None] {
            assert!(!beside_floor(floor_us).iter().any(|warning| warning.contains("floor")), "{floor_us:?}");
        }
    }
}
