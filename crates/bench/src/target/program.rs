//! Stacks served by a program: starts it, listens to it, and ends it through its life line.

use super::{Notice, TargetError, TargetReport, TargetSettings};
use crate::contract::{Records, ServeSettings, TargetMessage};
use crate::otlp::{Side, SpanSink};
use crate::programs::{ProgramOutput, RunningProgram};
use crate::tank::records::{Connections, Reader, RecordsRead, Sinks};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ChildStdin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Time limit for the program to listen.
const START_PATIENCE: Duration = Duration::from_secs(20);
/// Time limit for the program to end: 2 s for its calls, and as long again for its records.
const END_PATIENCE: Duration = Duration::from_secs(10);
/// Interval at which the time limit is checked.
const LOOK_EVERY: Duration = Duration::from_secs(1);

type Result<T> = std::result::Result<T, TargetError>;

/// A serving program. Dropping it ends the program: its life line closes, and it is killed if necessary.
pub struct ProgramTarget {
    life_line: Option<ChildStdin>,
    stopping: Arc<AtomicBool>,
    ended: oneshot::Receiver<Result<TargetReport>>,
}

impl ProgramTarget {
    /// Starts the program and waits until it listens; returns its address and library.
    pub async fn start(
        settings: &TargetSettings,
        program: PathBuf,
        spans: Option<SpanSink>,
        notice: Notice,
    ) -> Result<(Self, SocketAddr, String)> {
        let stopping = Arc::new(AtomicBool::new(false));
        let (settings, for_thread) = (settings.clone(), stopping.clone());
        let (tell_started, started) = oneshot::channel();
        let (tell_ended, ended) = oneshot::channel();
        // The program inherits the CPUs of the thread that starts it, which are those of this thread.
        let thread = std::thread::Builder::new().name("program".into()).spawn(move || {
            let mut guest = match ServingProgram::start(&settings, program, spans, notice, for_thread) {
                Ok(guest) => guest,
                Err(error) => return drop(tell_started.send(Err(error))),
            };
            match guest.wait_until_it_listens() {
                Ok((address, library)) => {
                    let life_line = guest.running.take_life_line();
                    // If the owner is gone, so is the life line, and the program ends.
                    let _ = tell_started.send(Ok((life_line, address, library)));
                    let _ = tell_ended.send(guest.serve());
                }
                Err(error) => drop(tell_started.send(Err(error))),
            }
        });
        thread.map_err(TargetError::Thread)?;
        let started = started.await.unwrap_or_else(|_| Err(died()));
        let (life_line, address, library) = started?;
        Ok((ProgramTarget { life_line, stopping, ended }, address, library))
    }

    pub async fn serve(self, stop: impl Future<Output = ()>) -> Result<TargetReport> {
        let ProgramTarget { life_line, stopping, mut ended } = self;
        let report = tokio::select! {
            report = &mut ended => report,
            () = stop => {
                stopping.store(true, Ordering::Release);
                drop(life_line);
                ended.await
            }
        };
        report.unwrap_or_else(|_| Err(died()))
    }
}

fn died() -> TargetError {
    TargetError::Failed("the thread that listens to the program has panicked".into())
}

/// The program, as owned by the listening thread.
struct ServingProgram {
    running: RunningProgram,
    program: PathBuf,
    records: Option<Reader>,
    connections: Arc<Connections>,
    notice: Notice,
    stopping: Arc<AtomicBool>,
}

impl ServingProgram {
    fn start(
        settings: &TargetSettings,
        program: PathBuf,
        spans: Option<SpanSink>,
        notice: Notice,
        stopping: Arc<AtomicBool>,
    ) -> Result<Self> {
        let connections = Arc::<Connections>::default();
        let records = match spans {
            Some(spans) => {
                let sinks = Sinks { spans: Some((Side::Server, spans)), ..Sinks::default() };
                Some(Reader::start(sinks, connections.clone()).map_err(TargetError::Fifo)?)
            }
            None => None,
        };
        let flags = ServeSettings {
            stack: settings.stack,
            listen: settings.listen.clone(),
            response_bytes: settings.response_bytes,
            think_ns: settings.think_ns,
            max_streams: settings.max_streams.unwrap_or(0),
            threads: settings.threads.unwrap_or(1),
            nodelay: settings.nodelay,
            records: if records.is_some() { Records::All } else { Records::None },
            record_file: records.as_ref().map_or(PathBuf::new(), |records| records.path().to_owned()),
        }
        .to_flags();
        let running = RunningProgram::start(&program, "target", &flags)
            .map_err(|source| TargetError::Run { program: program.clone(), source })?;
        Ok(ServingProgram { running, program, records, connections, notice, stopping })
    }

    fn wait_until_it_listens(&mut self) -> Result<(SocketAddr, String)> {
        let deadline = Instant::now() + START_PATIENCE;
        loop {
            match self.running.listen(deadline.saturating_duration_since(Instant::now())) {
                ProgramOutput::Line(line) => match self.understand(&line) {
                    Some(TargetMessage::Listening { address, library }) => return Ok((address, library)),
                    Some(TargetMessage::Failed { error }) => return Err(TargetError::Failed(error)),
                    _ => {}
                },
                ProgramOutput::End(error) => return Err(self.ended_by_itself(error)),
                ProgramOutput::Silence => {
                    let program = self.program.clone();
                    return Err(TargetError::Silent { program, patience: START_PATIENCE });
                }
            }
        }
    }

    /// Listens to the program until it has ended.
    fn serve(mut self) -> Result<TargetReport> {
        let mut report = None;
        let mut told_at = None;
        loop {
            match self.running.listen(LOOK_EVERY) {
                ProgramOutput::Line(line) => match self.understand(&line) {
                    Some(TargetMessage::Connection(connection)) => self.connections.tell(connection),
                    Some(TargetMessage::Failed { error }) => return Err(TargetError::Failed(error)),
                    Some(TargetMessage::End {
                        calls,
                        by_status,
                        malformed_traceparent,
                        records_dropped,
                        cut_off,
                    }) => {
                        report = Some(TargetReport {
                            calls,
                            by_status,
                            malformed_traceparent,
                            records_dropped,
                            cut_off,
                            spans: None,
                        });
                    }
                    Some(TargetMessage::Listening { .. }) | None => {}
                },
                ProgramOutput::End(error) => {
                    let report = match report {
                        Some(report) if self.stopping.load(Ordering::Acquire) => report,
                        _ => return Err(self.ended_by_itself(error)),
                    };
                    self.reap()?;
                    self.read_the_rest();
                    return Ok(report);
                }
                ProgramOutput::Silence if !self.stopping.load(Ordering::Acquire) => {}
                ProgramOutput::Silence => {
                    let told_at = *told_at.get_or_insert_with(Instant::now);
                    if told_at.elapsed() > END_PATIENCE {
                        self.running.end_now();
                        let program = self.program.clone();
                        return Err(TargetError::Stuck { program, patience: END_PATIENCE });
                    }
                }
            }
        }
    }

    fn understand(&self, line: &str) -> Option<TargetMessage> {
        let message = serde_json::from_str(line);
        message
            .inspect_err(|error| {
                (self.notice)(format!("{} says {line:?}, not understood: {error}", self.name()));
            })
            .ok()
    }

    fn name(&self) -> std::path::Display<'_> {
        Path::new(self.program.file_name().unwrap_or(self.program.as_os_str())).display()
    }

    fn reap(&mut self) -> Result<std::process::ExitStatus> {
        self.running.wait().map_err(|source| TargetError::Run { program: self.program.clone(), source })
    }

    fn ended_by_itself(&mut self, error: Option<std::io::Error>) -> TargetError {
        let program = self.program.clone();
        match (error, self.reap()) {
            (Some(source), _) => TargetError::Run { program, source },
            (None, Ok(status)) => TargetError::Ended { program, status },
            (None, Err(error)) => error,
        }
    }

    fn read_the_rest(&mut self) {
        let Some(records) = self.records.take() else { return };
        let RecordsRead { error, left_over, .. } = records.finish();
        if let Some(error) = error {
            (self.notice)(format!("the records of {} were not read to their end: {error}", self.name()));
        }
        if left_over > 0 {
            (self.notice)(format!("the records of {} end with {left_over} bytes of one", self.name()));
        }
    }
}
