//! `spangap lab actor`: the small programs of a run.

use crate::Outcome;
use clap::Args;

/// One of the small programs that a run starts
#[derive(Args, Debug)]
pub struct ActorArgs {
    name: String,
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Becomes it.
pub fn run(args: ActorArgs) -> anyhow::Result<Outcome> {
    spangap_lab::actors::act(&args.name, &args.arguments)?;
    Ok(Outcome::Done)
}
