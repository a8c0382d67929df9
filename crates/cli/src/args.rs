//! The command line: raw arguments of every verb, and the value parsers they share.

use crate::commands;
use crate::help::flowing;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

/// Finds where an RPC's time goes between client and server.
#[derive(Parser, Debug)]
#[command(name = "spangap", version, about, max_term_width = 110)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

impl Cli {
    /// Parses this process's arguments; where they are wrong or ask for help, says so and ends it.
    pub fn from_terminal() -> Self {
        let mut command = flowing(Self::command());
        let mut matches = command.get_matches_mut();
        Self::from_arg_matches_mut(&mut matches).unwrap_or_else(|error| error.format(&mut command).exit())
    }
}

/// One verb, one file under `commands/`.
#[derive(Subcommand, Debug)]
pub enum Verb {
    Agent(Box<commands::agent::AgentArgs>),
    Demo(Box<commands::demo::DemoArgs>),
    /// Measure the gap between client and server spans of every call, continuously
    Meter(Box<commands::meter::MeterArgs>),
    /// Read files of spans and show where time is lost between client and server
    Gaps(commands::gaps::GapsArgs),
    Dissect(Box<commands::dissect::DissectArgs>),
    Capture(Box<commands::capture::CaptureArgs>),
    Host(Box<commands::host::HostArgs>),
    Hunt(commands::hunt::HuntArgs),
    Isolate(Box<commands::isolate::IsolateArgs>),
    Lab(Box<commands::lab::LabArgs>),
    Sockets(Box<commands::sockets::SocketsArgs>),
    /// Make ping-pong calls with any client stack and measure them
    Tank(Box<commands::tank::TankArgs>),
    /// Serve the ping-pong calls of a tank
    Target(commands::target::TargetArgs),
    Bench(commands::bench::BenchArgs),
    #[command(hide = true)]
    AgentActuator(commands::actuator::ActuatorArgs),
    #[command(hide = true)]
    Client(commands::client::ClientArgs),
    /// Print shell completions
    Completions(commands::generate::CompletionsArgs),
    /// Write man pages into a directory
    Man(commands::generate::ManArgs),
}

/// A duration such as `250us`, `10ms`, `1m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Duration(pub u64);

impl std::str::FromStr for Duration {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        spangap_model::duration::parse_ns(text).map(Duration)
    }
}

impl<'de> serde::Deserialize<'de> for Duration {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

impl<'de> serde::Deserialize<'de> for Size {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

impl Duration {
    pub fn ns(self) -> u64 {
        self.0
    }

    /// As the standard library's duration.
    pub fn std(self) -> std::time::Duration {
        std::time::Duration::from_nanos(self.0)
    }
}

/// A size such as `100KiB`, `1GiB`, `4096`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

impl std::str::FromStr for Size {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        let factor = match unit.trim() {
            "" | "B" => 1.0,
            "KiB" | "K" => 1024.0,
            "MiB" | "M" => 1024.0 * 1024.0,
            "GiB" | "G" => 1024.0 * 1024.0 * 1024.0,
            "KB" | "kB" => 1e3,
            "MB" => 1e6,
            "GB" => 1e9,
            _ => {
                return Err(format!(
                    "{text:?} is not a size: expected a number and a unit, such as 100KiB, 1GiB"
                ));
            }
        };
        let number: f64 = number
            .parse()
            .map_err(|_| format!("{text:?} is not a size: expected a number, such as 100KiB"))?;
        Ok(Size((number * factor) as u64))
    }
}

impl Size {
    pub fn bytes(self) -> u64 {
        self.0
    }
}

/// Arguments that contradict each other, or the environment.
pub fn wrong_usage(why: impl std::fmt::Display) -> clap::Error {
    clap::Error::raw(clap::error::ErrorKind::ArgumentConflict, format!("{why}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn sizes() {
        assert_eq!("100KiB".parse(), Ok(Size(102_400)));
        assert_eq!("1GiB".parse(), Ok(Size(1 << 30)));
        assert_eq!("1.5MB".parse(), Ok(Size(1_500_000)));
        assert!("1 parsec".parse::<Size>().unwrap_err().contains("expected"));
    }
}
