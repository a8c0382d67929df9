//! `spangap completions` and `spangap man`: generated from the command line itself.

use crate::Outcome;
use crate::help::flowing;
use crate::output::print_text;
use anyhow::Context;
use clap::{Args, Command};
use std::path::PathBuf;

/// Example: `spangap completions bash > /etc/bash_completion.d/spangap`
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  spangap completions bash > /etc/bash_completion.d/spangap")]
pub struct CompletionsArgs {
    /// Shell to print completions for
    shell: clap_complete::Shell,
}

/// Example: `spangap man /usr/local/share/man/man1`
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  spangap man /usr/local/share/man/man1")]
pub struct ManArgs {
    /// Directory that takes one page per verb
    directory: PathBuf,
}

/// Prints completions to standard output.
pub fn completions(args: CompletionsArgs, command: Command) -> anyhow::Result<Outcome> {
    // Into memory first: the generator panics if a write fails.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut flowing(command), "spangap", &mut script);
    print_text(&String::from_utf8_lossy(&script))
}

/// Writes the man pages.
pub fn man(args: ManArgs, command: Command) -> anyhow::Result<Outcome> {
    std::fs::create_dir_all(&args.directory)
        .and_then(|()| clap_mangen::generate_to(flowing(command), &args.directory))
        .with_context(|| format!("cannot write man pages into {}", args.directory.display()))?;
    Ok(Outcome::Done)
}
