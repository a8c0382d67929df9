//! Small programs that a run starts: `spangap lab actor NAME ARGUMENTS...`, one file each. Each prints `ready`
//! once it is active, and ends when its standard input does.

pub mod audience;
pub mod collect;
pub mod flood;
pub mod hog;
pub mod line;
pub mod pause;

use crate::LabError;
use crate::truth::Active;
use std::io::Read;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// An actor with its arguments.
#[derive(Clone, Debug)]
pub enum Actor {
    /// Sockets that nobody reads.
    Audience(audience::Audience),
    /// Receives spans.
    Collect(collect::Collect),
    /// Broadcasts packets.
    Flood(flood::Flood),
    /// Uses a CPU.
    Hog(hog::Hog),
    /// A link with faults: the words of its command line.
    Line(Vec<String>),
    /// Stops a process.
    Pause(pause::Pause),
}

impl Actor {
    /// Runs the actor.
    ///
    /// # Errors
    /// It fails, or its arguments are invalid.
    pub fn act(&self) -> Result<(), LabError> {
        match self {
            Actor::Audience(told) => audience::act(*told),
            Actor::Collect(told) => collect::act(told),
            Actor::Flood(told) => flood::act(*told),
            Actor::Hog(told) => hog::act(*told),
            Actor::Line(words) => line::act(words),
            Actor::Pause(told) => pause::act(*told),
        }
    }
}

/// The intervals that an actor printed, one per line.
pub fn stretches(printed: &str) -> Vec<Active> {
    printed.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Watches for the end of standard input. From here on, the process has a name that does not reveal the fault
/// to an observer of the machine.
fn life_line() -> Receiver<()> {
    // Without it, the process keeps the name of all lab programs.
    let _ = rustix::thread::set_name(c"worker");
    let (life, over) = channel();
    std::thread::spawn(move || {
        // Nothing is ever written; only the end counts.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        drop(life);
    });
    over
}

/// Waits; returns whether standard input ended meanwhile.
fn over_within(life: &Receiver<()>, time: Duration) -> bool {
    life.recv_timeout(time) == Err(RecvTimeoutError::Disconnected)
}

fn say(stretch: &Active) {
    println!("{}", serde_json::to_string(stretch).expect("it is plain data"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_actor_printed() {
        let stretch = Active { from_unix_ns: 1, to_unix_ns: 5 };
        let line = serde_json::to_string(&stretch).expect("it is plain data");
        assert_eq!(stretches(&format!("ready\n{line}\n{line}\n{{\"from_un")), [stretch, stretch]);
    }
}
