//! Raw ping-pong over loopback under the load of a run: the limit of this machine.

use crate::contract::{Call, Channels, Nodelay, Pace, Stack};
use crate::programs::{ProgramOutput, Programs, RunningProgram};
use crate::report::Floor;
use crate::tank::observations::Observations;
use crate::tank::plan::{PlannedRun, TankSettings};
use crate::tank::records::Sinks;
use crate::tank::run::{Job, Outcome, make};
use crate::tank::{Stop, TankError};
use std::time::{Duration, Instant};

const SHORTEST_NS: u64 = 100_000_000;
const LONGEST_NS: u64 = 1_000_000_000;
const WARMUP_NS: u64 = 50_000_000;
/// Time limit for its target to listen.
const PATIENCE: Duration = Duration::from_secs(30);

/// Measured loads, each with its floor or the reason for a missing one.
#[derive(Default)]
pub struct Floors(Vec<(Key, Result<Floor, String>)>);

/// Parameters of a floor.
#[derive(Clone, Copy, PartialEq)]
struct Key {
    pace: Pace,
    in_flight: u32,
    request_bytes: u64,
}

impl Floors {
    /// The floor of a run, measured unless that load was measured before.
    ///
    /// # Errors
    /// This process fails in its own part. A missing floor is not an error.
    pub fn of(
        &mut self,
        settings: &TankSettings,
        planned: &PlannedRun,
        programs: &Programs,
        stop: &Stop,
    ) -> Result<Option<Floor>, TankError> {
        let key = Key {
            pace: planned.pace,
            in_flight: planned.in_flight,
            request_bytes: planned.asked.request_bytes,
        };
        if let Some((_, known)) = self.0.iter().find(|(known, _)| *known == key) {
            return Ok(known.clone().ok());
        }
        let measured = measure(settings, planned, programs, stop)?;
        // A stopped floor says nothing about its load.
        if stop.asked() == 0 {
            self.0.push((key, measured.clone()));
        }
        Ok(measured.ok())
    }

    /// Reasons for missing floors, each once.
    pub fn missing(&self) -> Vec<String> {
        let mut reasons: Vec<String> = self.0.iter().filter_map(|(_, floor)| floor.clone().err()).collect();
        reasons.dedup();
        reasons
    }
}

fn measure(
    settings: &TankSettings,
    planned: &PlannedRun,
    programs: &Programs,
    stop: &Stop,
) -> Result<Result<Floor, String>, TankError> {
    let program = match programs.client(Stack::Raw) {
        Ok(program) => program,
        Err(missing) => return Ok(Err(missing.to_string())),
    };
    let flags = ["--stack", "raw", "--listen", "127.0.0.1:0", "--json", "--with-parent"].map(String::from);
    let target = match RunningProgram::start(&program, "target", &flags) {
        Ok(target) => target,
        Err(error) => return Ok(Err(format!("cannot start a target of stack raw: {error}"))),
    };
    let address = match listening(&target, stop) {
        Ok(address) => address,
        Err(why) => return Ok(Err(why)),
    };
    let tenth_ns = settings.duration_ns.unwrap_or(u64::MAX) / 10;
    let settings = TankSettings {
        response_bytes: settings.response_bytes.or(Some(0)),
        think_ns: Some(0),
        split_writes: false,
        duration_ns: Some(tenth_ns.clamp(SHORTEST_NS, LONGEST_NS)),
        warmup_ns: WARMUP_NS,
        slow_log: None,
        export: None,
        trace: Some(false),
        method: None,
        ..settings.clone()
    };
    let mut planned = planned.clone();
    planned.asked.target = address;
    planned.asked.stack = Stack::Raw;
    planned.asked.call = Call::Unary;
    planned.asked.method = None;
    planned.asked.channels = Channels::Shared;
    planned.asked.nodelay = Nodelay::On;
    planned.asked.threads = 1;
    planned.asked.attempts = 1;
    planned.asked.trace = false;
    let job = Job {
        settings: &settings,
        planned: &planned,
        program: &program,
        stop,
        sinks: &Sinks::default(),
        sight: Observations::none(),
        floor: None,
    };
    Ok(match make(job, &mut |_| ())? {
        Outcome::NotRun(why) => Err(why),
        Outcome::Ran(run, _) => Ok(Floor {
            calls: run.calls,
            throughput_per_s: run.throughput_per_s,
            latency: run.latency,
            lateness: run.lateness,
        }),
    })
}

/// The target's address, from its JSON message.
fn listening(target: &RunningProgram, stop: &Stop) -> Result<String, String> {
    #[derive(serde::Deserialize)]
    struct Listening {
        listening: String,
    }
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE && stop.asked() == 0 {
        match target.listen(Duration::from_millis(50)) {
            ProgramOutput::Line(line) => {
                let told: Result<Listening, _> = serde_json::from_str(&line);
                return told
                    .map(|told| told.listening)
                    .map_err(|_| format!("a target of stack raw said {line:?}"));
            }
            ProgramOutput::End(_) => {
                return Err("a target of stack raw did not start: see its message".into());
            }
            ProgramOutput::Silence => {}
        }
    }
    Err("a target of stack raw did not listen in time".into())
}
