//! One run: one client process, from its start to the last record.

use crate::contract::{ClientMessage, Pace, Phase, Records, Stack};
use crate::programs::{ProgramOutput, RunningProgram};
use crate::report::spectrum::spectrum;
use crate::report::{Floor, Progress, Run};
use crate::tank::observations::Observations;
use crate::tank::plan::{PlannedRun, TankSettings};
use crate::tank::records::{Connections, Reader, RecordsRead, Sinks};
use crate::tank::tally::Tally;
use crate::tank::{STOPPED, Stop, TankError, warnings};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Polling interval for Ctrl-C.
const POLL: Duration = Duration::from_millis(50);
/// Interval between checks of the sockets, and the time before the end of the last check.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const LAST_LOOK: Duration = Duration::from_millis(120);
/// Maximum silence of a client, beyond the timeout of its calls.
const PATIENCE: Duration = Duration::from_secs(60);
/// Maximum length quoted from a line that is not a message.
const SHOWN: usize = 200;

/// A run to make.
pub struct Job<'a> {
    /// Settings of all runs.
    pub settings: &'a TankSettings,
    /// Settings of this run.
    pub planned: &'a PlannedRun,
    /// Client program.
    pub program: &'a Path,
    /// The user's stop request.
    pub stop: &'a Stop,
    /// Destinations of records.
    pub sinks: &'a Sinks,
    /// Observations from outside the client.
    pub sight: Observations,
    /// Raw ping-pong under the same load.
    pub floor: Option<Floor>,
}

/// Outcome of a run.
pub enum Outcome {
    /// The client made calls.
    Ran(Box<Run>, RecordsRead),
    /// There was no run, for this reason.
    NotRun(String),
}

/// A client and its messages.
struct Client<'a> {
    running: RunningProgram,
    stop: &'a Stop,
    patience: Duration,
    /// Length of warm-up and measured phase; `None` continues until stopped.
    whole_time: Option<Duration>,
    heard: Instant,
    connections: Arc<Connections>,
    /// Error of the program itself.
    trouble: Option<String>,
    killed: bool,
    /// Whether it reports being stopped.
    stopped: bool,
}

/// Schedule of the socket checks.
struct Looks {
    next: Instant,
    last: Option<Instant>,
    over: bool,
}

impl Looks {
    fn until(end: Option<Instant>) -> Self {
        let now = Instant::now();
        let last = end.map(|end| end.checked_sub(LAST_LOOK).map_or(now, |last| last.max(now)));
        Looks { next: now + LOOK_EVERY, last, over: false }
    }

    /// True periodically, shortly before the end, and before a client is asked to stop.
    fn due(&mut self, stop: bool) -> bool {
        let now = Instant::now();
        let last = stop || self.last.is_some_and(|last| now >= last);
        let due = !self.over && (last || now >= self.next);
        self.over |= last;
        if due {
            self.next = now + LOOK_EVERY;
        }
        due
    }
}

enum Next {
    Message(ClientMessage),
    Nothing,
    End,
}

impl Client<'_> {
    /// Its next message; forwards further requests to stop.
    fn next(&mut self, asked: u32) -> Next {
        match asked {
            0 => {}
            1 => self.running.let_go(),
            _ => self.kill("killed by the second request to stop"),
        }
        match self.running.listen(POLL) {
            ProgramOutput::Line(line) => {
                self.heard = Instant::now();
                match serde_json::from_str(&line) {
                    Ok(message) => return Next::Message(message),
                    Err(error) => {
                        let line: String = line.chars().take(SHOWN).collect();
                        self.kill(&format!(
                            "it printed something that is not a message: {error} in {line:?}"
                        ));
                    }
                }
            }
            ProgramOutput::Silence if self.heard.elapsed() > self.patience => {
                self.kill(&format!("it was silent for {:?} and was killed", self.patience));
            }
            ProgramOutput::Silence => {}
            ProgramOutput::End(error) => {
                self.trouble = self.trouble.take().or(error.map(|error| error.to_string()));
                return Next::End;
            }
        }
        Next::Nothing
    }

    fn kill(&mut self, why: &str) {
        if !self.killed {
            self.killed = true;
            self.trouble.get_or_insert_with(|| why.to_owned());
            self.running.end_now();
        }
    }

    /// Library and number of channels once connected, or why it is not.
    fn ready(&mut self) -> Result<(String, u32), String> {
        loop {
            match self.next(self.stop.asked()) {
                Next::Message(ClientMessage::Ready { library, channels, .. }) => {
                    return Ok((library, channels));
                }
                Next::Message(ClientMessage::Failed { error }) => return Err(error),
                Next::Message(ClientMessage::Connection(connection)) => self.connections.tell(connection),
                Next::Message(_) | Next::Nothing => {}
                Next::End if self.stop.asked() > 0 && self.trouble.is_none() => return Err(STOPPED.into()),
                Next::End => return Err(self.early_end()),
            }
        }
    }

    fn early_end(&mut self) -> String {
        match (self.trouble.take(), self.running.wait()) {
            (Some(trouble), _) => trouble,
            (None, Ok(status)) if status.code() == Some(2) => {
                "the client refused these settings: see its message on standard error".into()
            }
            (None, Ok(status)) => format!("the client ended before it was ready ({status})"),
            (None, Err(error)) => {
                format!("the client exited before it was ready, and its status is unknown: {error}")
            }
        }
    }

    /// Listens to the client until it ends.
    fn call(
        &mut self,
        warmup: bool,
        tally: &mut Tally,
        sight: &mut Observations,
        each_second: &mut dyn FnMut(&Progress),
    ) {
        sight.look(None);
        if !warmup {
            sight.measured_begins();
        }
        // Unless stopped, the client does not end before this.
        let end = self.whole_time.map(|time| Instant::now() + time);
        let mut looks = Looks::until(end);
        // If it has stopped reading, its end will follow.
        let _ = self.running.say("go");
        let mut told_its_end = false;
        loop {
            let asked = self.stop.asked();
            if looks.due(asked > 0) {
                sight.look(end);
            }
            match self.next(asked) {
                Next::Message(ClientMessage::Phase { phase, unix_ns }) => {
                    tally.phase(phase, unix_ns);
                    match phase {
                        Phase::Measured if warmup => sight.measured_begins(),
                        Phase::Drain => sight.measured_ends(),
                        _ => {}
                    }
                }
                Next::Message(ClientMessage::Interval(interval)) => {
                    each_second(&tally.add(&interval));
                }
                Next::Message(ClientMessage::Connection(connection)) => self.connections.tell(connection),
                Next::Message(ClientMessage::End { reason }) => {
                    told_its_end = true;
                    self.stopped = reason == "stopped";
                }
                Next::Message(ClientMessage::Failed { error }) => self.trouble = Some(error),
                Next::Message(ClientMessage::Ready { .. }) | Next::Nothing => {}
                Next::End => break,
            }
        }
        sight.measured_ends();
        let status = self.running.wait();
        let ended = match status {
            Ok(status) if status.success() && told_its_end => None,
            Ok(status) if status.success() => Some("it exited without a final message".to_owned()),
            Ok(status) => Some(format!("it exited with {status}")),
            Err(error) => Some(format!("its exit status is unknown: {error}")),
        };
        self.trouble = self.trouble.take().or(ended);
    }
}

/// Makes one run.
///
/// # Errors
/// This process fails in its own part.
pub fn make(mut job: Job, each_second: &mut dyn FnMut(&Progress)) -> Result<Outcome, TankError> {
    let connections = Arc::new(Connections::default());
    let records = job.settings.records();
    let reader = match records {
        Records::None => None,
        _ => {
            let other = job.settings.method.as_ref().map(|method| method.name);
            let sinks = Sinks { raw: job.planned.asked.stack == Stack::Raw, other, ..job.sinks.clone() };
            Some(Reader::start(sinks, connections.clone()).map_err(TankError::Records)?)
        }
    };
    let record_file = reader.as_ref().map_or(Path::new(""), Reader::path);
    let flags = job.settings.of_client(job.planned, record_file).to_flags();
    let started = match &job.settings.cpus {
        Some(cpus) => RunningProgram::start_on(cpus, job.program, "client", &flags)?,
        None => RunningProgram::start(job.program, "client", &flags),
    };
    let running = match started {
        Ok(running) => running,
        Err(error) => {
            reader.map(Reader::finish);
            return Ok(Outcome::NotRun(format!("cannot start {}: {error}", job.program.display())));
        }
    };
    job.sight.of_process(running.pid());
    let mut client = Client {
        running,
        stop: job.stop,
        patience: job.settings.timeout + PATIENCE,
        whole_time: job
            .settings
            .duration_ns
            .map(|ns| Duration::from_nanos(job.settings.warmup_ns.saturating_add(ns))),
        heard: Instant::now(),
        connections,
        trouble: None,
        killed: false,
        stopped: false,
    };
    let (library, channels_made) = match client.ready() {
        Ok(ready) => ready,
        Err(why) => {
            client.running.end_now();
            reader.map(Reader::finish);
            return Ok(Outcome::NotRun(why));
        }
    };
    let mut tally = Tally::new(matches!(job.planned.pace, Pace::Open(_)));
    let warmup = job.settings.warmup_ns > 0;
    client.call(warmup, &mut tally, &mut job.sight, each_second);
    let read = reader.map(Reader::finish).unwrap_or_default();
    let told = client.connections.count();
    let cut_short = job.settings.duration_ns.filter(|&ns| client.stopped && tally.measured.duration_ns < ns);
    let mut run = report(&job, library, channels_made, told, &tally);
    run.client_error = client.trouble.take();
    run.warnings = warnings::of(
        &run,
        &tally,
        &warnings::RunFacts { records, read: &read, told, cut_short, sight: &job.sight },
    );
    Ok(Outcome::Ran(Box::new(run), read))
}

fn report(job: &Job, library: String, channels_made: u32, told: u64, tally: &Tally) -> Run {
    let measured = &tally.measured;
    let seconds = |ns: u64| ns as f64 / 1e9;
    let open = matches!(job.planned.pace, Pace::Open(_));
    let connections = job.sight.connections();
    Run {
        asked: job.planned.asked.clone(),
        repeat: job.planned.repeat,
        library,
        target_stack: job.sight.target(|usage| &usage.stack),
        target_library: job.sight.target(|usage| &usage.library),
        start_unix_ns: tally.measured_from_unix_ns,
        duration_s: seconds(measured.duration_ns),
        warmup_s: seconds(tally.warmup.duration_ns),
        scheduled: measured.due,
        calls: measured.calls(),
        ok: measured.ok,
        errors: measured.errors.iter().map(|(name, (count, _))| (name.clone(), *count)).collect(),
        error_reasons: measured.errors.iter().map(|(name, (_, last))| (name.clone(), last.clone())).collect(),
        skipped_overload: measured.skipped,
        warmup_errors: tally.warmup.failed(),
        throughput_per_s: match measured.duration_ns {
            0 => 0.0,
            ns => measured.ok as f64 / seconds(ns),
        },
        latency: tally.latency().quantiles(),
        latency_from_send: measured.from_send.quantiles(),
        lateness: open.then(|| measured.lateness.quantiles()),
        spectrum: spectrum(tally.latency()),
        spectrum_from_send: spectrum(&measured.from_send),
        seconds: tally.seconds.clone(),
        channels_made,
        connections,
        sockets: job.sight.sockets(told),
        streams: job.sight.streams(job.planned.asked.inflight),
        slow_over_ns: job.settings.slow_ns,
        slow: measured.slow,
        cpu_client_s: seconds(measured.cpu_ns),
        cpu_target_s: job.sight.cpu_target_ns().map(seconds),
        context_switches: measured.context_switches,
        context_switches_target: job.sight.context_switches_target(),
        floor: job.floor.clone(),
        records_dropped: tally.records_dropped(),
        client_error: None,
        warnings: Vec::new(),
    }
}
