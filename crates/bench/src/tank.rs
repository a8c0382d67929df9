//! The client of the pair: an open loop of calls, timed and traced.

use crate::connection::{Dial, Link};
use crate::driver::{Driver, Tally};
use crate::otlp::{ExportSettings, Exporter, SpanCounts};
use crate::pacer::{Paced, Pacer};
use crate::report::{Noise, Progress, Run, SlowLogReport, TankReport};
use crate::schedule::Schedule;
use crate::slow_log::SlowLog;
use crate::trace::Ids;
use crate::{clock, ping};
use spangap_model::duration::format_ns;
use std::io;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{oneshot, watch};

pub use crate::connection::ConnectError;
pub use crate::otlp::ExportError;
pub use crate::slow_log::SlowCall;

/// How long a stopped run waits for the calls under way.
const STOP_GRACE: Duration = Duration::from_secs(1);
/// How often a run that is over looks whether the last calls have ended.
const DRAIN_POLL: Duration = Duration::from_millis(2);
/// Time between the start of the pacing thread and the first call.
const LEAD_NS: u64 = 1_000_000;
/// Share of one CPU above which the tank may be what limits.
const BUSY: f64 = 0.8;

/// What to do.
#[derive(Clone, Debug)]
pub struct TankSettings {
    /// `HOST:PORT` of the target.
    pub target: String,
    /// When calls are due.
    pub schedule: Schedule,
    /// Measured time in nanoseconds; `None` goes on until stopped.
    pub duration_ns: Option<u64>,
    /// Time before it, in nanoseconds: calls are made and traced, but neither counted nor logged as slow.
    pub warmup_ns: u64,
    /// Payload of a request.
    pub request_bytes: u64,
    /// `TCP_NODELAY` of the tank's socket.
    pub nodelay: bool,
    /// How long a call may take before it ends as `DEADLINE_EXCEEDED`.
    pub timeout: Duration,
    /// Most calls that may wait for their response at once.
    pub max_in_flight: usize,
    /// A call that takes longer, from its send, counts as slow.
    pub slow_ns: u64,
    /// File for slow calls.
    pub slow_log: Option<PathBuf>,
    /// Where spans go.
    pub export: Option<ExportSettings>,
}

/// Why there was no run.
#[derive(Debug, thiserror::Error)]
pub enum TankError {
    /// The target is not there.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// Spans cannot be sent.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// The log of slow calls cannot be written.
    #[error("cannot write the slow log {}", path.display())]
    SlowLog {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A payload over the limit.
    #[error("a request of {0} bytes is too large: expected at most {max}", max = ping::MAX_PAYLOAD_BYTES)]
    Payload(u64),
    /// The kernel gave no thread.
    #[error("cannot start the pacing thread")]
    Pacer(#[source] io::Error),
    /// A bug.
    #[error("the pacing thread panicked")]
    PacerPanicked,
}

/// Runs until the duration is over or `stop` is ready, then waits for the calls under way and for the spans.
/// `each_second` is told how it goes, `notice` what the user should hear at once. For the least noise, the calling
/// runtime should have a single thread.
///
/// # Errors
/// When the run cannot begin. Calls that fail are counted, they do not end the run.
pub async fn run(
    settings: TankSettings,
    stop: impl Future<Output = ()>,
    each_second: impl FnMut(Progress),
    notice: impl Fn(String) + Send + 'static,
) -> Result<TankReport, TankError> {
    if settings.request_bytes > ping::MAX_PAYLOAD_BYTES {
        return Err(TankError::Payload(settings.request_bytes));
    }
    let dial = Dial { target: settings.target.clone(), nodelay: settings.nodelay, timeout: settings.timeout };
    let link = Link::open(dial).await?;
    let slow_log = match &settings.slow_log {
        Some(path) => {
            Some(SlowLog::create(path).map_err(|source| TankError::SlowLog { path: path.clone(), source })?)
        }
        None => None,
    };
    let exporter = settings.export.clone().map(|export| Exporter::start(export, notice)).transpose()?;
    let driver = Arc::new(Driver {
        link,
        payload: vec![0; settings.request_bytes as usize].into(),
        timeout: settings.timeout,
        slow_ns: settings.slow_ns,
        slow_log,
        spans: exporter.as_ref().map(Exporter::sink),
        max_in_flight: settings.max_in_flight,
        in_flight: Arc::new(AtomicUsize::new(0)),
        give_up: watch::Sender::new(false),
        ids: Mutex::new(Ids::new()),
        tally: Mutex::default(),
    });

    let driven = drive(&settings, &driver, stop, each_second).await?;
    let connections = driver.link.opened();
    let spans = match exporter {
        Some(exporter) => Some(exporter.finish().await),
        None => None,
    };
    Ok(report(&settings, driven, driver, connections, spans))
}

/// What is known when the last call has ended.
struct Driven {
    paced: Paced,
    measured_ns: u64,
    usage: Usage,
}

async fn drive(
    settings: &TankSettings,
    driver: &Arc<Driver>,
    stop: impl Future<Output = ()>,
    mut each_second: impl FnMut(Progress),
) -> Result<Driven, TankError> {
    let start_ns = clock::monotonic_ns() + LEAD_NS;
    let measured_from_ns = start_ns.saturating_add(settings.warmup_ns);
    let stop_pacer = Arc::new(AtomicBool::new(false));
    let total_ns = settings.duration_ns.map(|duration_ns| settings.warmup_ns.saturating_add(duration_ns));
    let pacer = Pacer {
        schedule: settings.schedule,
        start_ns,
        first_measured: settings.schedule.calls_before(settings.warmup_ns),
        calls: total_ns.map(|ns| settings.schedule.calls_before(ns)),
        stop: stop_pacer.clone(),
    };
    let mut paced = start_pacer(pacer, driver.clone())?;

    let mut stop = pin!(stop);
    let mut stopped_ns = None;
    let mut usage_before = None;
    let mut warmed_up = pin!(tokio::time::sleep(Duration::from_nanos(settings.warmup_ns)));
    let second = Duration::from_secs(1);
    let mut tick = tokio::time::interval_at(tokio::time::Instant::now() + second, second);
    let mut progress = || {
        let now_ns = clock::monotonic_ns();
        let in_flight = driver.in_flight.load(Ordering::Relaxed);
        let elapsed_s = now_ns.saturating_sub(start_ns) as f64 / 1e9;
        each_second(driver.tally().end_second(elapsed_s, now_ns < measured_from_ns, in_flight));
    };
    let paced = loop {
        tokio::select! {
            result = &mut paced => break result.map_err(|_| TankError::PacerPanicked)?,
            () = &mut stop, if stopped_ns.is_none() => {
                stopped_ns = Some(clock::monotonic_ns());
                stop_pacer.store(true, Ordering::Relaxed);
            }
            () = &mut warmed_up, if usage_before.is_none() => usage_before = Some(Usage::so_far()),
            _ = tick.tick() => progress(),
        }
    };

    // At the end of its time every call still has its own deadline; a stopped run does not wait that long.
    let patience = if stopped_ns.is_some() { STOP_GRACE } else { settings.timeout + STOP_GRACE };
    let mut grace = pin!(tokio::time::sleep(patience));
    while driver.in_flight.load(Ordering::Acquire) > 0 {
        tokio::select! {
            () = &mut grace, if !*driver.give_up.borrow() => { driver.give_up.send_replace(true); }
            () = &mut stop, if stopped_ns.is_none() => {
                stopped_ns = Some(clock::monotonic_ns());
                grace.as_mut().reset(tokio::time::Instant::now() + STOP_GRACE);
            }
            () = tokio::time::sleep(DRAIN_POLL) => {}
            _ = tick.tick() => progress(),
        }
    }
    let usage = usage_before.map_or_else(Usage::default, |before| Usage::so_far().since(before));
    let end_ns = match (stopped_ns, total_ns) {
        (Some(stopped_ns), Some(total_ns)) => stopped_ns.min(start_ns.saturating_add(total_ns)),
        (None, Some(total_ns)) => start_ns.saturating_add(total_ns),
        (stopped_ns, None) => stopped_ns.unwrap_or_else(clock::monotonic_ns),
    };
    Ok(Driven { paced, measured_ns: end_ns.saturating_sub(measured_from_ns), usage })
}

fn start_pacer(pacer: Pacer, driver: Arc<Driver>) -> Result<oneshot::Receiver<Paced>, TankError> {
    let (done, paced) = oneshot::channel();
    let runtime = tokio::runtime::Handle::current();
    let thread = std::thread::Builder::new().name("pacer".into());
    let spawned = thread.spawn(move || {
        let paced = pacer.run(|slot| driver.fire(slot, &runtime));
        drop(driver);
        // Nobody listens when the run was dropped.
        let _ = done.send(paced);
    });
    spawned.map(|_| paced).map_err(TankError::Pacer)
}

fn report(
    settings: &TankSettings,
    driven: Driven,
    driver: Arc<Driver>,
    connections: u64,
    spans: Option<SpanCounts>,
) -> TankReport {
    let tally = std::mem::take(&mut *driver.tally());
    let mut warnings = Vec::new();
    let slow_log = match Arc::into_inner(driver).and_then(|driver| driver.slow_log) {
        Some(log) => {
            let path = log.path().display().to_string();
            let end = log.finish();
            let error = end.error.map(|error| format!(": {error}")).unwrap_or_default();
            if end.dropped > 0 || !error.is_empty() {
                warnings.push(format!("{} lines of the slow log are lost{error} ({path})", end.dropped));
            }
            Some(SlowLogReport { path, written: end.written, dropped: end.dropped })
        }
        None => None,
    };
    let run = run_report(settings, &driven, &tally, connections);
    warn(&mut warnings, settings, &run, &tally, spans);
    let noise = Noise {
        pacer_lateness: driven.paced.lateness.quantiles(),
        timer_slack_ns: driven.paced.timer_slack_ns,
    };
    TankReport { target: settings.target.clone(), runs: vec![run], noise, spans, slow_log, warnings }
}

fn run_report(settings: &TankSettings, driven: &Driven, tally: &Tally, connections: u64) -> Run {
    let ok = tally.latency.count();
    let errors = tally.errors.iter().map(|(name, (count, _))| ((*name).to_owned(), *count)).collect();
    let duration_s = driven.measured_ns as f64 / 1e9;
    Run {
        stack: "rust".into(),
        call: "unary".into(),
        channels: "shared".into(),
        rate_per_s: settings.schedule.rate_per_s(),
        duration_s,
        warmup_s: settings.warmup_ns as f64 / 1e9,
        scheduled: driven.paced.due,
        calls: tally.lateness.count(),
        ok,
        errors,
        skipped_overload: tally.skipped,
        throughput_per_s: if driven.measured_ns == 0 { 0.0 } else { ok as f64 / duration_s },
        latency: tally.latency.quantiles(),
        latency_from_send: tally.latency_from_send.quantiles(),
        lateness: tally.lateness.quantiles(),
        connections,
        slow_over_ns: settings.slow_ns,
        slow: tally.slow,
        cpu_client_s: driven.usage.cpu_ns as f64 / 1e9,
        context_switches: driven.usage.context_switches,
    }
}

fn warn(
    warnings: &mut Vec<String>,
    settings: &TankSettings,
    run: &Run,
    tally: &Tally,
    spans: Option<SpanCounts>,
) {
    if run.scheduled == 0 {
        warnings.push("no call was due in the measured time: stopped before the end of the warm-up?".into());
    }
    for (name, (count, why)) in &tally.errors {
        warnings.push(format!("{count} calls ended with {name}; the last: {why}"));
    }
    if let (count @ 1.., why) = &tally.warmup_errors {
        warnings.push(format!("{count} calls of the warm-up failed too, not counted above; the last: {why}"));
    }
    if run.skipped_overload > 0 {
        warnings.push(format!(
            "{} calls were not made because {} were waiting: latency would be worse than shown",
            run.skipped_overload, settings.max_in_flight
        ));
    }
    if run.connections > 1 {
        warnings.push(format!("the connection was lost and opened again, {} in all", run.connections));
    }
    if let (Some(late), Some(typical)) = (run.lateness.p99_ns, run.latency_from_send.p50_ns)
        && late > typical
    {
        warnings.push(format!(
            "1 % of calls were sent {} late or more, longer than the typical call of {}: \
             that is this machine's own delay; `latency` contains it, `from send` does not",
            format_ns(late),
            format_ns(typical)
        ));
    }
    if run.cpu_client_s > BUSY * run.duration_s && run.duration_s > 0.0 {
        warnings.push("the tank used most of one CPU: it may be what limits".into());
    }
    if let Some(spans) = spans.filter(|spans| spans.lost() > 0) {
        warnings.push(format!("{} of {} spans did not reach the collector", spans.lost(), spans.recorded));
    }
}

/// What the process has used, all threads, ended ones too.
#[derive(Clone, Copy, Default)]
struct Usage {
    cpu_ns: u64,
    context_switches: u64,
}

impl Usage {
    fn so_far() -> Self {
        use nix::sys::resource::{UsageWho, getrusage};
        use nix::sys::time::TimeValLike;
        // Fails only for an unknown `who`.
        let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return Usage::default() };
        let cpu = usage.user_time() + usage.system_time();
        let switches = usage.voluntary_context_switches() + usage.involuntary_context_switches();
        Usage { cpu_ns: cpu.num_nanoseconds() as u64, context_switches: switches as u64 }
    }

    fn since(self, before: Usage) -> Usage {
        Usage {
            cpu_ns: self.cpu_ns - before.cpu_ns,
            context_switches: self.context_switches - before.context_switches,
        }
    }
}
