//! `spangap agent-actuator`: started by `spangap agent --allow`, which it talks to over standard input and
//! output.

use crate::Outcome;
use clap::Args;
use spangap_actuator::{Settings, serve};
use std::io;
use std::path::PathBuf;

/// Change this host for an agent, for a limited time
#[derive(Args, Debug)]
pub struct ActuatorArgs {
    /// Folder of journals
    #[arg(long)]
    journal: PathBuf,
    /// The audit log
    #[arg(long)]
    audit: PathBuf,
    /// What may be changed
    #[arg(long, value_delimiter = ',', required = true)]
    allow: Vec<String>,
    /// Connections of every network namespace may be meant
    #[arg(long)]
    whole_node: bool,
}

/// Executes orders until the agent closes the connection.
pub fn run(args: ActuatorArgs) -> anyhow::Result<Outcome> {
    // A Ctrl-C in the terminal is meant for the agent: the actuator ends when its input does, once everything
    // is undone.
    let _ = rustix::process::setsid();
    let settings = Settings {
        journals: args.journal,
        audit: args.audit,
        allows: args.allow,
        whole_node: args.whole_node,
    };
    serve(&settings, io::stdin().lock(), io::stdout())?;
    Ok(Outcome::Done)
}
