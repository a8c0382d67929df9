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
use spangap_model::duration::parse_ns;
use std::io::Read;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// Becomes an actor.
///
/// # Errors
/// When it is not known, or fails.
pub fn act(name: &str, arguments: &[String]) -> Result<(), LabError> {
    match name {
        "audience" => audience::act(arguments),
        "collect" => collect::act(arguments),
        "flood" => flood::act(arguments),
        "hog" => hog::act(arguments),
        "line" => line::act(arguments),
        "pause" => pause::act(arguments),
        _ => Err(LabError::Parameter(format!("there is no actor {name}"))),
    }
}

/// The stretches of time that an actor printed, one a line.
pub fn stretches(printed: &str) -> Vec<Active> {
    printed.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// The value behind a flag.
fn value<'a>(arguments: &'a [String], flag: &str) -> Result<&'a str, LabError> {
    let at = arguments.iter().position(|word| word == flag);
    let value = at.and_then(|at| arguments.get(at + 1)).map(String::as_str);
    value.ok_or_else(|| LabError::Parameter(format!("{flag} and its value are missing")))
}

/// A duration behind a flag.
fn time(arguments: &[String], flag: &str) -> Result<Duration, LabError> {
    let text = value(arguments, flag)?;
    let refused = |why| LabError::Parameter(format!("{flag} {text}: {why}"));
    parse_ns(text).map(Duration::from_nanos).map_err(refused)
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

    #[test]
    fn flags_are_checked() {
        let arguments = ["--on", "5ms", "--every"].map(str::to_owned);
        assert_eq!(time(&arguments, "--on").expect("a duration"), Duration::from_millis(5));
        assert!(time(&arguments, "--every").is_err());
        assert!(time(&["--on", "5"].map(str::to_owned), "--on").is_err());
    }
}
