//! `spangap lab actor`: the small programs of a run.

use crate::Outcome;
use crate::values::{Duration, wrong_usage};
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

/// Run by hand one of the small programs with which a run causes its faults
///
/// Each prints `ready` once it is working. It stops when its standard input ends (Ctrl-D), after undoing what
/// it did.
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
        /// UDP port that all of them are bound to
        #[arg(long, value_name = "PORT")]
        port: u16,
        /// Number of sockets
        #[arg(long, value_name = "N")]
        sockets: u16,
    },
    /// Receive spans over OTLP/gRPC, and write them to a file at the end
    #[command(after_help = "\
Example:
  sleep 10 | spangap lab actor collect --listen 127.0.0.1:4317 --write spans.json
      for `--otlp http://127.0.0.1:4317` of tank and target; `spangap gaps spans.json` reads it")]
    Collect {
        /// Address to listen on
        #[arg(long, value_name = "ADDRESS:PORT")]
        listen: SocketAddr,
        /// File for the spans: one document of OTLP JSON
        #[arg(long, value_name = "FILE")]
        write: PathBuf,
    },
    /// Broadcast small UDP packets in stretches, each of which it prints as a line of JSON
    #[command(after_help = "\
Example:
  sleep 10 | spangap lab actor flood --to 10.0.0.255:5001 --packets 20 --apart 1ms --on 50ms --every 200ms
      20 packets a millisecond for a quarter of the time")]
    Flood {
        /// Broadcast address to send the packets to
        #[arg(long, value_name = "ADDRESS:PORT")]
        to: SocketAddr,
        /// Packets sent at once
        #[arg(long, value_name = "N")]
        packets: u32,
        /// Time from one batch of packets to the next
        #[arg(long, value_name = "DURATION")]
        apart: Duration,
        /// Length of a stretch
        #[arg(long, value_name = "DURATION")]
        on: Duration,
        /// Time from the start of one stretch to the start of the next
        #[arg(long, value_name = "DURATION")]
        every: Duration,
    },
    /// Use a CPU in bursts, each of which it prints as a line of JSON
    #[command(after_help = "\
Example:
  sleep 10 | taskset -c 1 spangap lab actor hog --on 5ms --every 40ms
      an eighth of CPU 1")]
    Hog {
        /// Length of a burst; at most 90 % of --every
        #[arg(long, value_name = "DURATION")]
        on: Duration,
        /// Time from the start of one burst to the start of the next
        #[arg(long, value_name = "DURATION")]
        every: Duration,
    },
    /// Run a link with configurable faults between two network namespaces
    ///
    /// Forwards IP packets between a TUN device in each, and prints a report of them as one JSON document at the end.
    #[command(
        override_usage = "spangap lab actor line [FLAGS] NAMESPACE_A DEVICE_A NAMESPACE_B DEVICE_B",
        after_help = line::FLAGS
    )]
    Line {
        /// Flags, then both ends: a name of `ip netns` or a path, and a device made by `ip tuntap add dev DEVICE mode tun`
        #[arg(value_name = "WORDS", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// Stop a process by SIGSTOP repeatedly; each stop is printed as a line of JSON
    #[command(after_help = "\
Example:
  sleep 10 | spangap lab actor pause --pid 4242 --on 30ms --every 500ms
      as a garbage collector would; end it by closing its input: if killed, it may leave the process stopped")]
    Pause {
        /// Process to stop
        #[arg(long, value_name = "PID", value_parser = process)]
        pid: Pid,
        /// Length of a stop
        #[arg(long, value_name = "DURATION")]
        on: Duration,
        /// Time from the start of one stop to the start of the next
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
