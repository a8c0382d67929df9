//! What was drawn for a run in addition to its scenario: other stacks, payloads, background noise, a second
//! fault.

use super::{PATIENCE, Program, Serve, Stage, Surroundings, Tank};
use crate::actors::stretches;
use crate::calls::Calls;
use crate::draw::{BUSY_EVERY, DrawnRun, Noise, STOP_EVERY, Stops};
use crate::truth::{Active, FaultReport, MachineNoise, Second};
use crate::{LabError, hosts, waits};
use spangap_model::{Cause, Leg, Legs, Side};

/// Port of the other pair of programs.
const OTHER_PORT: u16 = 50052;
/// Longer than any run takes.
const FOR_GOOD: &str = "10m";

impl Stage<'_> {
    fn drawn(&self) -> Option<&DrawnRun> {
        self.settings.drawn.as_ref()
    }

    /// The server, with the drawn stack.
    pub(super) fn serve_as_drawn(&self, serve: &Serve) -> Serve {
        let mut serve = serve.clone();
        if let Some(stacks) = self.drawn().and_then(|drawn| drawn.stacks.as_ref()) {
            set(&mut serve.arguments, "--stack", &stacks.target);
        }
        serve
    }

    /// The client, with the drawn stack and payloads.
    pub(super) fn tank_as_drawn(&self, tank: &Tank) -> Tank {
        let mut tank = tank.clone();
        let Some(drawn) = self.drawn() else { return tank };
        if let Some(stacks) = &drawn.stacks {
            tank.stack.clone_from(&stacks.client);
        }
        if let Some(sizes) = &drawn.sizes {
            for (flag, bytes) in
                [("--request-bytes", sizes.request_bytes), ("--response-bytes", sizes.response_bytes)]
            {
                if !tank.arguments.iter().any(|word| word == flag) {
                    tank.arguments.extend([flag.to_owned(), bytes.to_string()]);
                }
            }
        }
        tank
    }

    /// Starts the background noise, which ends with the recordings.
    pub(super) fn make_noise(&mut self) -> Result<(), LabError> {
        let (noise, second) = match self.drawn() {
            Some(drawn) => (drawn.noise, drawn.second),
            None => return Ok(()),
        };
        match noise {
            None => {}
            Some(Noise::BusyLoop { side, on_ns }) => {
                let [on, every] = [on_ns, BUSY_EVERY.as_nanos() as u64].map(|ns| format!("{ns}ns"));
                let words = ["lab", "actor", "hog", "--on", &on, "--every", &every];
                self.start_beside("beside", side, &words, "ready")?;
            }
            Some(Noise::OtherPair { rate }) => {
                let (address, rate) = (format!("{}:{OTHER_PORT}", hosts::SERVER), rate.to_string());
                let target = ["target", "--listen", &address];
                self.start_beside("other-target", Side::Server, &target, "listening on ")?;
                let tank = ["tank", &address, "--rate", &rate, "--duration", FOR_GOOD, "--json"];
                let command = self.spangap_on(Side::Client, &Surroundings::default(), &tank);
                self.ambient.push(Program::start("other-tank", command, &self.folder)?);
            }
        }
        if let Some(Stops { side, stop_ns }) = second {
            let whom = if side == Side::Client { self.client_pid() } else { self.server_pid() }.to_string();
            let [on, every] = [stop_ns, STOP_EVERY.as_nanos() as u64].map(|ns| format!("{ns}ns"));
            let words = ["lab", "actor", "pause", "--pid", &whom, "--on", &on, "--every", &every];
            // Above the rest of this machine; otherwise a stop would last until its next turn.
            let around = Surroundings { nice: Some(-20), ..Surroundings::default() };
            let command = self.spangap_on(side.other(), &around, &words);
            let mut program = Program::start("second", command, &self.folder)?;
            program.says("ready", PATIENCE, &self.settings.interrupted)?;
            self.stops = Some(program);
        }
        Ok(())
    }

    fn start_beside(&mut self, name: &str, side: Side, words: &[&str], ready: &str) -> Result<(), LabError> {
        let command = self.spangap_on(side, &Surroundings::default(), words);
        let mut program = Program::start(name, command, &self.folder)?;
        program.says(ready, PATIENCE, &self.settings.interrupted)?;
        self.ambient.push(program);
        Ok(())
    }

    /// Ends the background noise, and keeps the effects of the second fault on these calls.
    pub(super) fn end_noise(&mut self) -> Result<(), LabError> {
        self.ambient.clear();
        if let Some(mut program) = self.stops.take() {
            program.let_go(PATIENCE)?;
            self.stopped = Some(stretches(&program.out()));
        }
        Ok(())
    }

    /// Stores the facts about the second fault, once [`Stage::end`] has read the calls.
    pub(super) fn remember_second(&mut self, calls: &Calls) {
        let Some(Stops { side, stop_ns }) = self.drawn().and_then(|drawn| drawn.second) else { return };
        let active = waits::within(calls, self.stopped.take().unwrap_or_default());
        let affected = waits::affected(calls, side, &active);
        let legs = match side {
            Side::Client => Legs::one(Leg::ClientAppIn),
            Side::Server => Legs { first: Leg::ServerHostIn, last: Leg::ServerHostOut },
        };
        let (culprit, leg) = (Cause::Stopped.name().to_owned(), legs.to_string());
        let second = Second { culprit, side: side.name().to_owned(), leg, active, affected };
        self.second = Some((second, stop_ns));
    }

    /// Run-queue waits of the run's threads in the measured phase.
    pub(super) fn remember_waits(&mut self, calls: &Calls) {
        let Some(waits) = self.waits.take() else { return };
        let measured = calls.whole();
        let [client, server, line_waited_ns] =
            waits.map(|watch| watch.map(|watch| watch.end().grew(&measured) as u64));
        let [client_waited_ns, server_waited_ns] = [client, server].map(Option::unwrap_or_default);
        let within = |one: &Active| {
            measured.iter().map(|all| all.overlap_ns(one.from_unix_ns, one.to_unix_ns)).sum::<u64>()
        };
        let paused_ns = self.pauses.iter().map(within).sum();
        let measured_ns = measured.iter().map(Active::length_ns).sum();
        self.beside =
            Some(MachineNoise { measured_ns, client_waited_ns, server_waited_ns, line_waited_ns, paused_ns });
    }

    /// The machine's own effects on the run.
    pub(crate) fn beside(&self) -> Option<MachineNoise> {
        self.beside
    }

    /// The second fault, whose proof is added to the scenario's.
    pub(crate) fn second(&mut self, acted: &mut FaultReport) -> Option<Second> {
        let (second, stop_ns) = self.second.take()?;
        let shortest = second.active.iter().map(|one| one.length_ns()).min().unwrap_or(0);
        acted.at_least(
            "second fault: times that the process was seen stopped",
            second.active.len() as f64,
            3.0,
        );
        acted.at_least("second fault: the shortest of them, ns", shortest as f64, stop_ns as f64 * 0.9);
        acted.at_least("second fault: calls that had to wait for it", second.affected.len() as f64, 2.0);
        Some(second)
    }
}

/// Replaces the value of a flag.
fn set(arguments: &mut [String], flag: &str, value: &str) {
    let at = arguments.iter().position(|word| word == flag);
    if let Some(word) = at.and_then(|at| arguments.get_mut(at + 1)) {
        value.clone_into(word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spangap_model::duration::parse_ns;

    #[test]
    fn a_stack_takes_the_place_of_another() {
        let mut serve = Serve::stack("rust").with(&["--threads", "2"]);
        set(&mut serve.arguments, "--stack", "go");
        assert_eq!(serve.arguments, ["--stack", "go", "--threads", "2"]);
        set(&mut serve.arguments, "--none", "x");
        assert_eq!(serve.arguments.len(), 4);
    }

    #[test]
    fn durations_are_such_as_actors_take() {
        assert_eq!(parse_ns("430000000ns"), Ok(STOP_EVERY.as_nanos() as u64));
        assert!(parse_ns(FOR_GOOD).is_ok());
    }
}
