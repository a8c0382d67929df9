//! `hog`: uses a CPU in bursts, and prints the start and end of each as a line of JSON. A burst ends when its
//! time is over, no matter how much CPU time it got.

use super::{life_line, over_within, say};
use crate::LabError;
use crate::host_clock::now_unix_ns;
use crate::truth::Active;
use std::time::{Duration, Instant};

/// Maximum share of a CPU. The kernel throttles real-time tasks at 95 %.
const MOST: f64 = 0.9;

/// Arguments of the actor.
#[derive(Clone, Copy, Debug)]
pub struct Hog {
    /// Length of a burst.
    pub on: Duration,
    /// Time between the starts of two bursts.
    pub every: Duration,
}

/// Runs until standard input ends.
pub(super) fn act(Hog { on, every }: Hog) -> Result<(), LabError> {
    if on.as_secs_f64() > every.as_secs_f64() * MOST {
        return Err(LabError::Parameter(format!(
            "--on {on:?}: expected at most 90 % of --every, which is {every:?}"
        )));
    }
    let life = life_line();
    println!("ready");
    let begun = Instant::now();
    for number in 1_u32.. {
        burn(on);
        let next = begun + every * number;
        if over_within(&life, next.saturating_duration_since(Instant::now())) {
            break;
        }
    }
    Ok(())
}

fn burn(on: Duration) {
    let (from_unix_ns, begun) = (now_unix_ns(), Instant::now());
    while begun.elapsed() < on {
        std::hint::spin_loop();
    }
    say(&Active { from_unix_ns, to_unix_ns: now_unix_ns() });
}
