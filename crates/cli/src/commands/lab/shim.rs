//! `spangap lab shim`: the library that scenarios preload into programs, for manual use.

use crate::Outcome;
use crate::whole_file;
use anyhow::Context;
use clap::Args;
use spangap_lab::shim;
use std::path::PathBuf;

/// Write the library that, preloaded into a program, has it read late, accept late, or take time over what it read
#[derive(Args, Debug)]
#[command(after_help = words())]
pub struct ShimArgs {
    /// File for the library
    #[arg(long, short, value_name = "FILE")]
    write: PathBuf,
}

fn words() -> String {
    format!(
        "What it does is told by the environment; times are in nanoseconds:\n{}\n\n\
         Example:\n  spangap lab shim --write shim.so\n  \
         LD_PRELOAD=$PWD/shim.so SPANGAP_SHIM_IN=client SPANGAP_SHIM_PORT=50051 SPANGAP_SHIM_COST_NS=200000 \
         SPANGAP_SHIM_COST_BYTES=49 spangap tank HOST:50051\n      \
         each 49 bytes that the client reads on a connection cost it 200 us there",
        shim::settings_in_words()
    )
}

/// Writes the library.
pub fn run(args: ShimArgs) -> anyhow::Result<Outcome> {
    whole_file::write(&args.write, shim::LIBRARY)
        .with_context(|| format!("cannot write {}", args.write.display()))?;
    Ok(Outcome::Done)
}
