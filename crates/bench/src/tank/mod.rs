//! The conductor of the runs. It makes no calls itself: for each run it starts a client program
//! (`clients/CONTRACT.md`), listens to it, observes its sockets, and reports.
//!
//! [`sweep`] parses lists of loads, [`plan`] orders the runs, `run` makes one of them, `tally` sums its
//! intervals, `records` carries calls to the slow log and the spans, `seen` observes from outside, `floor` and
//! `noise` measure the machine, `claims` and `warnings` qualify the results.

mod claims;
pub mod cpus;
mod floor;
mod noise;
mod observations;
pub mod plan;
pub(crate) mod records;
mod run;
pub mod sweep;
mod tally;
mod warnings;

use crate::contract::Stack;
use crate::otlp::{Exporter, Side, SpanCounts};
use crate::programs::Programs;
use crate::report::{NotRun, Progress, Run, SlowLogReport, TankReport};
use crate::slow_log::SlowLog;
use cpus::CpusError;
use floor::Floors;
use observations::Observations;
use records::Sinks;
use run::{Job, Outcome};
use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

pub use crate::otlp::ExportError;
pub use crate::slow_log::SlowCall;
pub use plan::{Load, PlannedRun, TankSettings};

/// Reason of runs not made because the user stopped.
const STOPPED: &str = "stopped";

/// A request to stop: once to finish early, twice to kill the client. Cheap to clone.
#[derive(Clone, Default)]
pub struct Stop(Arc<AtomicU32>);

impl Stop {
    /// Requests once more.
    pub fn ask(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of requests.
    pub fn asked(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Observes the progress.
pub trait Watch {
    /// The machine is being measured, for this reason.
    fn calibrates(&mut self, what: &str);
    /// Run `number` of `of`, from 1, starts.
    fn begins(&mut self, number: usize, of: usize, planned: &PlannedRun);
    /// An interval of the run has ended: a second, or less at the end of a phase.
    fn second(&mut self, progress: &Progress);
}

/// Reason for missing results.
#[derive(Debug, thiserror::Error)]
pub enum TankError {
    /// No target is reachable.
    #[error("cannot connect to {target}")]
    Unreachable {
        /// The target.
        target: String,
        /// Error of the kernel or the resolver.
        source: io::Error,
    },
    /// None of the runs could be made.
    #[error("{}", not_one(.0))]
    NothingRan(Vec<NotRun>),
    /// The client cannot be confined to these CPUs.
    #[error(transparent)]
    Cpus(#[from] CpusError),
    /// Spans cannot be sent.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// The log of slow calls cannot be written.
    #[error("cannot write the slow log {}", path.display())]
    SlowLog {
        /// The file.
        path: PathBuf,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The FIFO for call records cannot be created.
    #[error("cannot make a FIFO for the records of calls")]
    Records(#[source] io::Error),
    /// The machine's timing cannot be measured.
    #[error("cannot measure this machine's timing")]
    Noise(#[source] io::Error),
}

fn not_one(not_run: &[NotRun]) -> String {
    let mut reasons: Vec<&str> = not_run.iter().map(|not_run| not_run.why.as_str()).collect();
    reasons.dedup();
    match not_run {
        [] => "there was nothing to run".into(),
        [only] => only.why.clone(),
        several => format!("none of {} runs could be made: {}", several.len(), reasons.join("; ")),
    }
}

/// Makes all runs, or those before `stop`. `notice` receives messages for immediate display.
///
/// # Errors
/// There is no result at all. Failed runs are part of the report.
pub fn run(
    settings: &TankSettings,
    programs: &Programs,
    stop: &Stop,
    watch: &mut dyn Watch,
    notice: impl Fn(String) + Send + 'static,
) -> Result<TankReport, TankError> {
    if let Some(cpus) = &settings.cpus {
        cpus.run(|| ())?;
    }
    reach(&settings.targets, settings.timeout)?;
    let slow_log = match &settings.slow_log {
        Some(path) => {
            let created = SlowLog::create(path);
            Some(Arc::new(created.map_err(|source| TankError::SlowLog { path: path.clone(), source })?))
        }
        None => None,
    };
    let exporter = settings.export.clone().map(|export| Exporter::start(export, notice)).transpose()?;
    let spans = exporter.as_ref().map(|exporter| (Side::Client, exporter.sink()));
    let sinks = Sinks { slow_log, spans, ..Sinks::default() };

    watch.calibrates("timers");
    let noise = match &settings.cpus {
        Some(cpus) => cpus.run(noise::measure)?,
        None => noise::measure(),
    };
    let mut noise = noise.map_err(TankError::Noise)?;

    let mut tank = Tank {
        settings,
        programs,
        stop,
        sinks,
        floors: Floors::default(),
        limits: BTreeMap::new(),
        done: Done::default(),
    };
    let plan = settings.plan();
    for (at, planned) in plan.iter().enumerate() {
        tank.one(at + 1, plan.len(), planned, watch)?;
    }

    let Tank { sinks, floors, done, .. } = tank;
    let spans = exporter.map(|exporter| done.with_dropped(exporter.finish_blocking()));
    let mut warnings: Vec<String> =
        floors.missing().into_iter().map(|why| format!("no raw ping-pong to compare with: {why}")).collect();
    let slow_log = sinks.slow_log.and_then(Arc::into_inner).map(|log| done.slow_log(log, &mut warnings));
    if let Some(spans) = spans.filter(|spans| spans.lost() > 0) {
        warnings.push(format!("{} of {} spans did not reach the collector", spans.lost(), spans.recorded));
    }
    if done.runs.is_empty() && stop.asked() == 0 {
        return Err(TankError::NothingRan(done.not_run));
    }
    noise.cannot_claim = claims::cannot_claim(&noise, &done.runs);
    let mut report = TankReport {
        evidence: Default::default(),
        runs: done.runs,
        verdict: String::new(),
        findings: Vec::new(),
        noise,
        spans,
        slow_log,
        not_run: done.not_run,
        warnings,
    };
    report.conclude();
    Ok(report)
}

/// Connects to every target once; a single reachable one suffices.
fn reach(targets: &[String], timeout: Duration) -> Result<(), TankError> {
    let mut first = None;
    for target in targets {
        let connected = addresses(target).and_then(|addresses| connect(&addresses, timeout));
        match connected {
            Ok(()) => return Ok(()),
            Err(source) => _ = first.get_or_insert(TankError::Unreachable { target: target.clone(), source }),
        }
    }
    first.map_or(Ok(()), Err)
}

fn addresses(target: &str) -> io::Result<Vec<SocketAddr>> {
    target.to_socket_addrs().map(Iterator::collect)
}

fn connect(addresses: &[SocketAddr], timeout: Duration) -> io::Result<()> {
    let mut result = Err(io::Error::other("the name has no address"));
    for address in addresses {
        result = TcpStream::connect_timeout(address, timeout).map(drop);
        if result.is_ok() {
            break;
        }
    }
    result
}

struct Tank<'a> {
    settings: &'a TankSettings,
    programs: &'a Programs,
    stop: &'a Stop,
    sinks: Sinks,
    floors: Floors,
    /// Stream limit announced by each target.
    limits: BTreeMap<String, Option<Option<u32>>>,
    done: Done,
}

/// Results so far.
#[derive(Default)]
struct Done {
    runs: Vec<Run>,
    not_run: Vec<NotRun>,
    /// Slow-log lines lost inside clients.
    slow_lost: u64,
}

impl Tank<'_> {
    fn one(
        &mut self,
        number: usize,
        of: usize,
        planned: &PlannedRun,
        watch: &mut dyn Watch,
    ) -> Result<(), TankError> {
        let made = match self.stop.asked() {
            0 => self.made(number, of, planned, watch)?,
            _ => Outcome::NotRun(STOPPED.into()),
        };
        match made {
            Outcome::NotRun(why) => self.done.not_run.push(NotRun { what: planned.to_string(), why }),
            Outcome::Ran(run, read) => {
                self.done.slow_lost += run.slow.saturating_sub(read.slow);
                self.done.runs.push(*run);
            }
        }
        Ok(())
    }

    fn made(
        &mut self,
        number: usize,
        of: usize,
        planned: &PlannedRun,
        watch: &mut dyn Watch,
    ) -> Result<Outcome, TankError> {
        if let Some(why) = planned.impossible() {
            return Ok(Outcome::NotRun(why));
        }
        let program = match self.programs.client(planned.asked.stack) {
            Ok(program) => program,
            Err(missing) => return Ok(Outcome::NotRun(missing.to_string())),
        };
        let target = &planned.asked.target;
        let peers = match addresses(target) {
            Ok(peers) => peers,
            Err(error) => return Ok(Outcome::NotRun(format!("cannot resolve {target}: {error}"))),
        };
        let floor = match self.settings.floor {
            true => {
                watch.calibrates("raw ping-pong");
                self.floors.of(self.settings, planned, self.programs, self.stop)?
            }
            false => None,
        };
        let limit = match planned.asked.stack {
            Stack::Raw => None,
            _ => *self.limits.entry(target.clone()).or_insert_with(|| observations::stream_limit(&peers)),
        };
        if self.stop.asked() > 0 {
            return Ok(Outcome::NotRun(STOPPED.into()));
        }
        watch.begins(number, of, planned);
        let job = Job {
            settings: self.settings,
            planned,
            program: &program,
            stop: self.stop,
            sinks: &self.sinks,
            sight: Observations::new(&planned.asked, peers, limit),
            floor,
        };
        run::make(job, &mut |progress| watch.second(progress))
    }
}

impl Done {
    /// Counts spans lost inside clients as lost.
    fn with_dropped(&self, mut spans: SpanCounts) -> SpanCounts {
        let dropped: u64 = self.runs.iter().map(|run| run.records_dropped).sum();
        spans.recorded += dropped;
        spans.dropped_queue_full += dropped;
        spans
    }

    fn slow_log(&self, log: SlowLog, warnings: &mut Vec<String>) -> SlowLogReport {
        let path = log.path().display().to_string();
        let end = log.finish();
        let dropped = end.dropped + self.slow_lost;
        let error = end.error.map(|error| format!(": {error}")).unwrap_or_default();
        if dropped > 0 || !error.is_empty() {
            warnings.push(format!("{dropped} lines of the slow log were lost{error} ({path})"));
        }
        SlowLogReport { path, written: end.written, dropped }
    }
}
