//! `spangap lab actor`: the small programs of a run.

use crate::Outcome;
use crate::args::{Duration, wrong_usage};
use clap::{Args, Subcommand};
use rustix::process::Pid;
use spangap_lab::LabError;
use spangap_lab::actors::audience::Audience;
use spangap_lab::actors::collect::Collect;
use spangap_lab::actors::flood::Flood;
use spangap_lab::actors::hog::Hog;
use spangap_lab::actors::pause::Pause;
use spangap_lab::actors::{Actor, line};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Become one of the small programs that a run starts, to do some harm by hand
///
/// Each prints `ready` when it does what it is for, and ends when its standard input does (Ctrl-D): with its
/// harm taken back.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sleep 10 | spangap lab actor hog --on 5ms --every 40ms
      ends by itself when `sleep` does, because that holds its standard input
  spangap lab actor line --help
      every option of the delay line")]
pub struct ActorArgs {
    #[command(subcommand)]
    actor: Which,
}

#[derive(Subcommand, Debug)]
enum Which {
    /// Open UDP sockets that nobody reads; each broadcast packet costs the kernel time for every one of them
    #[command(after_help = "\
Example:
  sleep 10 | spangap lab actor audience --port 5001 --sockets 500
      next to `flood --to 10.0.0.255:5001`: its packets keep a CPU of this host in softirqs")]
    Audience {
        /// UDP port that all of them have
        #[arg(long, value_name = "PORT")]
        port: u16,
        /// How many sockets
        #[arg(long, value_name = "N")]
        sockets: u16,
    },
    /// Receive spans over OTLP/gRPC, and write them when it ends
    #[command(after_help = "\
Example:
  sleep 10 | spangap lab actor collect --listen 127.0.0.1:4317 --write spans.json
      for `--otlp http://127.0.0.1:4317` of tank and target; `spangap gaps spans.json` reads it")]
    Collect {
        /// Where it listens
        #[arg(long, value_name = "ADDRESS:PORT")]
        listen: SocketAddr,
        /// File for the spans, one document of OTLP JSON
        #[arg(long, value_name = "FILE")]
        write: PathBuf,
    },
    /// Broadcast small UDP packets in stretches, each of which it prints as a line of JSON
    #[command(after_help = "\
Example:
  sleep 10 | spangap lab actor flood --to 10.0.0.255:5001 --packets 20 --apart 1ms --on 50ms --every 200ms
      20 packets a millisecond for a quarter of the time")]
    Flood {
        /// Where the packets go: an address of broadcasts
        #[arg(long, value_name = "ADDRESS:PORT")]
        to: SocketAddr,
        /// How many go at once
        #[arg(long, value_name = "N")]
        packets: u32,
        /// How long after the last ones the next go
        #[arg(long, value_name = "DURATION")]
        apart: Duration,
        /// How long a stretch is
        #[arg(long, value_name = "DURATION")]
        on: Duration,
        /// How long after the beginning of a stretch the next one begins
        #[arg(long, value_name = "DURATION")]
        every: Duration,
    },
    /// Use a CPU in bursts, each of which it prints as a line of JSON
    #[command(after_help = "\
Example:
  sleep 10 | taskset -c 1 spangap lab actor hog --on 5ms --every 40ms
      an eighth of CPU 1")]
    Hog {
        /// How long a burst is; at most 90 % of --every
        #[arg(long, value_name = "DURATION")]
        on: Duration,
        /// How long after the beginning of a burst the next one begins
        #[arg(long, value_name = "DURATION")]
        every: Duration,
    },
    /// Be a link with faults between two network namespaces, made to order
    ///
    /// Forwards IP packets between a TUN device in each, and prints what it did as one JSON document when it ends.
    #[command(
        override_usage = "spangap lab actor line [FLAGS] NAMESPACE_A DEVICE_A NAMESPACE_B DEVICE_B",
        after_help = line::FLAGS
    )]
    Line {
        /// Flags, then both ends: a name of `ip netns` or a path, and a device made by `ip tuntap add dev DEVICE mode tun`
        #[arg(value_name = "WORDS", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// Stop a process by SIGSTOP time and again; each stop is printed as a line of JSON
    #[command(after_help = "\
Example:
  sleep 10 | spangap lab actor pause --pid 4242 --on 30ms --every 500ms
      as a garbage collector would; end it by closing its input: if killed, it may leave the process stopped")]
    Pause {
        /// The process
        #[arg(long, value_name = "PID", value_parser = process)]
        pid: Pid,
        /// How long it is stopped
        #[arg(long, value_name = "DURATION")]
        on: Duration,
        /// How long after the beginning of a stop the next one begins
        #[arg(long, value_name = "DURATION")]
        every: Duration,
    },
}

fn process(text: &str) -> Result<Pid, String> {
    let pid = text.parse().ok().filter(|pid| *pid > 0).and_then(Pid::from_raw);
    pid.ok_or_else(|| "expected the id of a process".to_owned())
}

/// Runs the actor.
pub fn run(args: ActorArgs) -> anyhow::Result<Outcome> {
    let actor = match args.actor {
        Which::Audience { port, sockets } => Actor::Audience(Audience { port, sockets }),
        Which::Collect { listen, write } => Actor::Collect(Collect { listen, write }),
        Which::Flood { to, packets, apart, on, every } => {
            Actor::Flood(Flood { to, packets, apart: apart.std(), on: on.std(), every: every.std() })
        }
        Which::Hog { on, every } => Actor::Hog(Hog { on: on.std(), every: every.std() }),
        Which::Line { words } => Actor::Line(words),
        Which::Pause { pid, on, every } => Actor::Pause(Pause { pid, on: on.std(), every: every.std() }),
    };
    actor.act().map_err(|error| match error {
        LabError::Parameter(why) => wrong_usage(why).into(),
        error => anyhow::Error::from(error),
    })?;
    Ok(Outcome::Done)
}
