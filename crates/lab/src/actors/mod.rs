//! Small programs that a run starts: `spangap lab actor NAME ARGUMENTS...`, one file each. Each prints `ready` when it
//! does what it is for, and ends when its standard input does.

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

/// An actor, with all it is told.
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
    /// Becomes it.
    ///
    /// # Errors
    /// When it fails, or what it is told makes no sense.
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

/// The stretches of time that an actor printed, one a line.
pub fn stretches(printed: &str) -> Vec<Active> {
    printed.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Hears of the end of standard input. The process goes by a name from here on that does not tell whoever looks at the
/// machine what the matter is.
fn life_line() -> Receiver<()> {
    // Without it, it is called as all programs of the lab are.
    let _ = rustix::thread::set_name(c"worker");
    let (life, over) = channel();
    std::thread::spawn(move || {
        // Nothing is ever written; what counts is the end.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        drop(life);
    });
    over
}

/// Waits for so long; whether standard input has ended meanwhile.
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
