//! `hog`: uses a CPU in bursts, and prints each burst's beginning and end as a line of JSON. A burst is over when its time is, however much of it the CPU was somebody else's.

use super::{life_line, over_within, say};
use crate::LabError;
use crate::stage::now_unix_ns;
use crate::truth::Active;
use std::time::{Duration, Instant};

/// Share of a CPU that bursts may take. The kernel stops real-time tasks that take 95 %.
const MOST: f64 = 0.9;

/// What it is told.
#[derive(Clone, Copy, Debug)]
pub struct Hog {
    /// How long a burst is.
    pub on: Duration,
    /// One begins each time this has passed.
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
