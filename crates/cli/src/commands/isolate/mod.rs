//! `spangap isolate`: interrupts of the network here, applications there. One file per verb.

mod apply;
mod confirm;
mod guard;
mod plan;
mod rollback;
mod show;
mod status;
mod verify;

use crate::Outcome;
use clap::{Args, Subcommand};

/// Keep the network's interrupts and the applications on CPUs of their own, at run time
#[derive(Args, Debug)]
pub struct IsolateArgs {
    #[command(subcommand)]
    verb: IsolateVerb,
}

#[derive(Subcommand, Debug)]
enum IsolateVerb {
    Show(show::ShowArgs),
    Plan(plan::PlanArgs),
    Apply(apply::ApplyArgs),
    Confirm(confirm::ConfirmArgs),
    Verify(verify::VerifyArgs),
    Status(status::StatusArgs),
    Rollback(rollback::RollbackArgs),
    #[command(hide = true)]
    Guard(guard::GuardArgs),
}

/// Runs one verb to its end.
pub fn run(args: IsolateArgs) -> anyhow::Result<Outcome> {
    match args.verb {
        IsolateVerb::Show(args) => show::run(args),
        IsolateVerb::Plan(args) => plan::run(args),
        IsolateVerb::Apply(args) => apply::run(args),
        IsolateVerb::Confirm(args) => confirm::run(args),
        IsolateVerb::Verify(args) => verify::run(args),
        IsolateVerb::Status(args) => status::run(args),
        IsolateVerb::Rollback(args) => rollback::run(args),
        IsolateVerb::Guard(args) => guard::run(args),
    }
}
