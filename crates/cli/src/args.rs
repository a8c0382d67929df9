//! The command line: the raw arguments of every verb, and who runs it.

use crate::Outcome;
use crate::commands;
use crate::help::flowing;
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};

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
        let error = match Self::try_parse() {
            Ok(cli) => return cli,
            Err(error) => error,
        };
        // To join the lines of every help text takes a third of the program's start, and few runs show one.
        if matches!(
            error.kind(),
            ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        ) {
            flowing(Self::command()).get_matches();
        }
        error.exit()
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

impl Verb {
    /// Runs the verb to its end.
    pub fn run(self) -> anyhow::Result<Outcome> {
        match self {
            Verb::AgentActuator(args) => commands::actuator::run(args),
            Verb::Agent(args) => commands::agent::run(*args),
            Verb::Bench(args) => commands::bench::run(args),
            Verb::Capture(args) => commands::capture::run(*args),
            Verb::Client(args) => commands::client::run(args),
            Verb::Demo(args) => commands::demo::run(*args),
            Verb::Dissect(args) => commands::dissect::run(*args),
            Verb::Meter(args) => commands::meter::run(*args),
            Verb::Gaps(args) => commands::gaps::run(args),
            Verb::Host(args) => commands::host::run(*args),
            Verb::Hunt(args) => commands::hunt::run(args),
            Verb::Isolate(args) => commands::isolate::run(*args),
            Verb::Lab(args) => commands::lab::run(*args),
            Verb::Sockets(args) => commands::sockets::run(*args),
            Verb::Tank(args) => commands::tank::run(*args),
            Verb::Target(args) => commands::target::run(args),
            Verb::Completions(args) => commands::generate::completions(args, Cli::command()),
            Verb::Man(args) => commands::generate::man(args, Cli::command()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
