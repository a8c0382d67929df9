//! `spangap isolate`: separates network interrupts from applications. One file per verb.

mod apply;
mod confirm;
mod folder;
mod guard;
mod namespace;
mod plan;
mod rollback;
mod show;
mod status;
mod verify;

use crate::Outcome;
use crate::output::{print_json, print_text, seen_enough};
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, IsTerminal};
use std::time::SystemTime;

/// Give the network's interrupts and the applications separate CPUs, at run time
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

fn now_unix_ns() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |elapsed| elapsed.as_nanos() as u64)
}

/// A progress bar, on a terminal.
fn progress(what: &'static str, total: u64) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{msg} {wide_bar} {pos} of {len}");
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message(what);
    bar
}
