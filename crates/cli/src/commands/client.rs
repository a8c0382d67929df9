//! `spangap client`: a client program as specified in `clients/CONTRACT.md`, for the stacks written in Rust.
//! Started by `spangap tank`, not by people.

use crate::Outcome;
use crate::values::wrong_usage;
use clap::Args;
use spangap_bench::client;
use spangap_bench::contract::ClientSettings;

/// Raw arguments of `spangap client`.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub struct ClientArgs {
    /// The flags of the contract, all of them: --name=value
    #[arg(value_name = "FLAGS", allow_hyphen_values = true, trailing_var_arg = true)]
    flags: Vec<String>,
}

/// Runs until the life line or the run ends.
pub fn run(args: ClientArgs) -> anyhow::Result<Outcome> {
    let settings = ClientSettings::from_flags(&args.flags).map_err(wrong_usage)?;
    client::check(&settings).map_err(wrong_usage)?;
    client::run(&settings, std::io::stdin(), std::io::stdout())?;
    Ok(Outcome::Done)
}
