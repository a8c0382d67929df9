//! `spangap lab run`: one scenario, its folder.

use super::{StateArgs, clocks, signals};
use crate::Outcome;
use crate::args::wrong_usage;
use crate::output::{print_json, print_text};
use anyhow::{Context, bail};
use clap::Args;
use spangap_lab::clocks::HostClock;
use spangap_lab::run::Settings;
use spangap_lab::scenario::Case;
use spangap_lab::{LabError, scenarios};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  spangap lab run nagle-client
      makes the fault, and leaves all that was recorded in ./lab-nagle-client-1
  spangap lab run nagle-client --out run && spangap gaps run/*.spans.json && spangap dissect run/*.pcapng --spans run/client.spans.json
      and looks at it";

/// Make a fault, and record everything a user could have, with the truth beside it
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct RunArgs {
    /// What to make: a name of `spangap lab list`
    scenario: String,
    /// Folder of the run, which must not be there yet [default: the first of ./lab-SCENARIO-N that is not]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// A parameter of the scenario
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// The clock of a host, as what is recorded there shows it: SIDE=OFFSET[,SKEW], such as server=+30ms,50ppm
    #[arg(long, value_name = "CLOCK")]
    clock: Vec<HostClock>,
    /// Seed of whatever is left to chance
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    state: StateArgs,
    /// Print the truth as one JSON document
    #[arg(long)]
    json: bool,
}

/// Runs it.
pub fn run(args: RunArgs) -> anyhow::Result<Outcome> {
    let Some((scenario, near_miss)) = scenarios::find(&args.scenario) else {
        return Err(wrong_usage(format!(
            "there is no scenario {}; `spangap lab list` has them",
            args.scenario
        ))
        .into());
    };
    let case = Case::new(scenario, near_miss, &args.set).map_err(|error| match error {
        LabError::Parameter(why) => wrong_usage(why).into(),
        error => anyhow::Error::from(error),
    })?;
    let mut numbered = (1..).map(|n| PathBuf::from(format!("lab-{}-{n}", args.scenario)));
    let out = args.out.unwrap_or_else(|| numbered.find(|path| !path.exists()).expect("numbers do not end"));
    if out.exists() {
        return Err(wrong_usage(format!("{} is already there", out.display())).into());
    }
    let out = std::path::absolute(&out).context("no such folder")?;
    let settings = Settings {
        spangap: std::env::current_exe().context("cannot tell where this program is")?,
        out: out.clone(),
        state: args.state.state,
        seed: args.seed,
        clocks: args.clock,
        retime: &clocks::retime,
        interrupted: signals::flag()?,
        say: &|text| eprintln!("{:?} {text}", std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap()),
    };
    let truth = spangap_lab::run::run(&case, &settings)?;
    if args.json {
        print_json(&truth)?;
    } else {
        let mut text = format!("{}: {}\n", out.display(), truth.culprit);
        for claim in &truth.proof {
            let mark = if claim.holds { "ok" } else { "NOT" };
            text += &format!("  {mark}: {} {}, expected {}\n", claim.what, claim.measured, claim.expected);
        }
        print_text(&text)?;
    }
    if !truth.acted {
        bail!(
            "{}: the fault did not act as it should; {} says what was expected",
            args.scenario,
            out.join("truth.json").display()
        );
    }
    Ok(Outcome::Done)
}
