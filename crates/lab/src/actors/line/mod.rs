//! `line [OPTIONS] NAMESPACE_A DEVICE_A NAMESPACE_B DEVICE_B`: a link with configurable faults. Forwards IP
//! packets between TUN devices in two network namespaces, with separate delays, losses, reordering, duplicates
//! and clumps per direction, applied to chosen packets. For faults with known truth: its log records the fate
//! of every packet. Its own overhead is about 10 us.
//!
//! Direction a is from A to B. It prints `ready` when it forwards, and its counts as one JSON document when its
//! standard input ends.

pub mod direction;
mod forward;
pub mod log;
pub mod packet;
mod tun;
pub mod way;

use crate::LabError;
use direction::Direction;
use forward::Forwarder;
use std::path::PathBuf;
use way::Way;

/// Help text of its flags.
pub const FLAGS: &str = "\
Flags of direction a, from A to B; those of direction b end in -b. NS is a number of nanoseconds:
  --delay-a NS          how long every packet takes
  --jitter-a NS         how much longer by chance: from 0 to this, or this on average
  --shape-a SHAPE       uniform or exponential
  --overtake-a yes      packets with less jitter come out before earlier ones
  --spike-a EVERY,NS    every EVERYth counted packet takes NS longer, and what follows waits behind it
  --late-a LIST         these counted packets take longer, and what follows waits behind them
  --late-by-a NS        by so much
  --rate-a BYTES        so many bytes pass in a second
  --queue-a BYTES       so many may wait for it, 256 KiB unless told; what finds no room is lost
  --loss-a SHARE        share of the counted packets that is lost by chance
  --drop-a LIST         these counted packets are lost
  --hole-a LIST         with each of these counted packets all of its connection is lost from then on
  --largest-a BYTES     packets of IP that are larger are lost, and nobody is told
  --twice-a LIST        these counted packets come twice
  --swap-a LIST         these counted packets come out after the one that follows them
  --clump-a NS          packets come out only at multiples of NS
  --count-a syn         only TCP packets that open a connection count
  --least-a BYTES       TCP packets with at least so much payload count (1; with 0 SYN and bare ACKs do, too)
  --most-a BYTES        and with at most so much
  --seed N              of what is left to chance
  --log FILE            what became of each packet that did not just take the constant delay: JSON Lines, at the end

LIST is numbers from 1, ascending, separated by commas; 5-9 is a range. What counts are TCP
packets with payload, unless --count, --least or --most say otherwise.

Example:
  sleep 60 | spangap lab actor line --delay-a 5000000 --delay-b 5000000 --drop-b 20-22 --seed 7 client tun0 server tun0
      5 ms each way; three packets with payload from the server are lost";

#[derive(Debug, Default, PartialEq)]
struct LineArguments {
    ways: [Way; 2],
    seed: u64,
    log: Option<PathBuf>,
    /// Namespace and device of both ends.
    ends: Vec<String>,
}

/// Runs until standard input ends.
pub(super) fn act(arguments: &[String]) -> Result<(), LabError> {
    let LineArguments { ways: [there, back], seed, log, ends } = read(arguments)?;
    let ends = [tun::attach(&ends[0], &ends[1])?, tun::attach(&ends[2], &ends[3])?];
    let mut seeds = fastrand::Rng::with_seed(seed);
    let directions = [there, back].map(|way| Direction::new(way, seeds.u64(..)));
    let mut forwarder = Forwarder::new(ends, directions);
    println!("ready");
    forwarder.run()?;
    if let Some(path) = log {
        forwarder.log().write(&path)?;
    }
    println!("{}", serde_json::to_string(&forwarder.summary()).expect("it is plain data"));
    Ok(())
}

/// A direction's error does not know which of the two it is.
fn of_way(way: &str, error: LabError) -> LabError {
    LabError::Parameter(format!("line: direction {way}: {error}"))
}

fn read(arguments: &[String]) -> Result<LineArguments, LabError> {
    let mut told = LineArguments::default();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let Some(flag) = word.strip_prefix("--") else {
            told.ends.push(word.clone());
            continue;
        };
        let wrong = |why: &str| LabError::Parameter(format!("line: --{flag}: {why}"));
        let value = words.next().ok_or_else(|| wrong("its value is missing"))?;
        match (flag, flag.rsplit_once('-')) {
            ("seed", _) => told.seed = value.parse().map_err(|_| wrong("expected a whole number"))?,
            ("log", _) => told.log = Some(value.into()),
            (_, Some((flag, "a"))) => told.ways[0].set(flag, value).map_err(|error| of_way("a", error))?,
            (_, Some((flag, "b"))) => told.ways[1].set(flag, value).map_err(|error| of_way("b", error))?,
            _ => return Err(wrong("there is no such flag")),
        }
    }
    if told.ends.len() != 4 {
        let why = "two namespaces, each with its device, have to be named";
        return Err(LabError::Parameter(format!("line: {why}; it was told: {}", told.ends.join(" "))));
    }
    Ok(told)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn told(text: &str) -> Result<LineArguments, LabError> {
        read(&text.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn directions_are_told_apart() {
        let told =
            told("--delay-a 5 --late-by-b 7 --seed 3 --log x here eth0 /there eth1").expect("it is right");
        let ways = [
            Way::of_delay(Duration::from_nanos(5)),
            Way { late_by: Duration::from_nanos(7), ..Way::default() },
        ];
        assert_eq!((told.ways, told.seed, told.log), (ways, 3, Some("x".into())));
        assert_eq!(told.ends, ["here", "eth0", "/there", "eth1"]);
    }

    #[test]
    fn problems_are_reported() {
        for (text, what) in [
            ("a b c", "have to be named"),
            ("--delay-a", "value is missing"),
            ("--delay-c 5 a b c d", "--delay-c: there is no such flag"),
            ("--seed x a b c d", "a whole number"),
            ("--nothing-a 5 a b c d", "--nothing"),
            ("--delay-b 5ms a b c d", "direction b: --delay 5ms: expected a whole number"),
        ] {
            let said = told(text).expect_err(text).to_string();
            assert!(said.contains(what), "{text}: {said}");
        }
    }
}
