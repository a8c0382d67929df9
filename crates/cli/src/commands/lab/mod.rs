//! `spangap lab`: faults with known truth. One file per verb.

mod actor;
mod clean;
mod clocks;
mod excerpts;
mod grade;
mod judge;
mod keeper;
mod list;
mod page;
mod run;
mod shim;

use crate::Outcome;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Inject faults whose cause is known, record everything, and grade diagnoses of them
#[derive(Args, Debug)]
pub struct LabArgs {
    #[command(subcommand)]
    verb: LabVerb,
}

#[derive(Subcommand, Debug)]
enum LabVerb {
    List(list::ListArgs),
    Run(run::RunArgs),
    Grade(Box<grade::GradeArgs>),
    Judge(judge::JudgeArgs),
    Page(page::PageArgs),
    Clean(clean::CleanArgs),
    #[command(hide = true)]
    Actor(actor::ActorArgs),
    #[command(hide = true)]
    Shim(shim::ShimArgs),
    #[command(hide = true)]
    Keeper(keeper::KeeperArgs),
}

/// Runs one verb to its end.
pub fn run(args: LabArgs) -> anyhow::Result<Outcome> {
    match args.verb {
        LabVerb::List(args) => list::run(args),
        LabVerb::Run(args) => run::run(args),
        LabVerb::Grade(args) => grade::run(*args),
        LabVerb::Judge(args) => judge::run(args),
        LabVerb::Page(args) => page::run(args),
        LabVerb::Clean(args) => clean::run(args),
        LabVerb::Actor(args) => actor::run(args),
        LabVerb::Shim(args) => shim::run(args),
        LabVerb::Keeper(args) => keeper::run(args),
    }
}

/// Where runs keep their journals.
#[derive(Args, Debug)]
struct StateArgs {
    /// Where runs keep their journals
    #[arg(long, value_name = "DIR", default_value = "/run/spangap/lab")]
    state: PathBuf,
}
