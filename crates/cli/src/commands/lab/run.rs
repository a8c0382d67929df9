//! `spangap lab run`: one scenario, its folder.

use super::{StateArgs, clocks};
use crate::Outcome;
use crate::output::{print_json, print_text, width};
use crate::signals::{self, ASKED_OR_LEFT};
use crate::values::wrong_usage;
use anyhow::{Context, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use spangap_lab::folder::{self, Machine};
use spangap_lab::host_clock::HostClock;
use spangap_lab::run::RunSettings;
use spangap_lab::scenario::Case;
use spangap_lab::truth::Truth;
use spangap_lab::{LabError, scenarios};
use spangap_model::duration::format_ns;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  spangap lab run nagle-client
      inject the fault, and leave all recordings in ./lab-nagle-client-1
  spangap lab run nagle-client --out run && spangap gaps run/*.spans.json && spangap dissect run/*.pcapng --spans run/client.spans.json
      and look at the result
  spangap lab run healthy --set rate=500 --clock server=+30ms,50ppm
      with another rate, on hosts with different clocks

Needs root, for network namespaces. Everything a run changes on this machine is undone when it ends, however
it ends.";

/// Inject a fault, and record everything a user could have, next to the truth
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct RunArgs {
    /// A scenario or near miss, as named by `spangap lab list`
    scenario: String,
    /// Folder of the run, which must not exist yet [default: the first free ./lab-SCENARIO-N]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// A parameter of the scenario
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// The clock of a host, as its recordings show it: SIDE=OFFSET[,SKEW], such as server=+30ms,50ppm
    #[arg(long, value_name = "CLOCK")]
    clock: Vec<HostClock>,
    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    state: StateArgs,
    /// Print the truth as one JSON document
    #[arg(long)]
    json: bool,
}

pub fn run(args: RunArgs) -> anyhow::Result<Outcome> {
    let Some((scenario, near_miss)) = scenarios::find(&args.scenario) else {
        let why = format!("there is no scenario {}; `spangap lab list` has them", args.scenario);
        return Err(wrong_usage(why).into());
    };
    let case = Case::new(scenario, near_miss, &args.set).map_err(|error| match error {
        LabError::Parameter(why) => wrong_usage(why).into(),
        error => anyhow::Error::from(error),
    })?;
    for (place, clock) in args.clock.iter().enumerate() {
        if args.clock[..place].iter().any(|other| other.side == clock.side) {
            let why = format!("--clock {clock}: that host has one already");
            return Err(wrong_usage(why).into());
        }
    }
    let mut numbered = (1..).map(|n| PathBuf::from(format!("lab-{}-{n}", args.scenario)));
    let shown = args.out.unwrap_or_else(|| numbered.find(|path| !path.exists()).expect("numbers do not end"));
    if shown.exists() {
        return Err(wrong_usage(format!("{} is already there", shown.display())).into());
    }
    let out = std::path::absolute(&shown).context("no such folder")?;
    let steps = Steps::new(case.name());
    let settings = RunSettings {
        spangap: std::env::current_exe().context("cannot tell where this program is")?,
        out: out.clone(),
        state: args.state.state,
        seed: args.seed,
        clocks: args.clock,
        drawn: None,
        retime: &clocks::retime,
        interrupted: signals::flag(ASKED_OR_LEFT)?,
        say: &|step| steps.begins(step),
    };
    let made = spangap_lab::run::run(&case, &settings);
    steps.0.finish_and_clear();
    let truth = made?;
    if args.json {
        print_json(&truth)?;
    } else {
        let machine: Machine = folder::read_json(&out.join(folder::MACHINE))?;
        let title = if near_miss { scenario.near_miss.title } else { scenario.title };
        print_text(&told(&truth, title, &shown, &machine, width(120, 120)))?;
    }
    if !truth.acted {
        let path = shown.join(folder::TRUTH);
        bail!(
            "{}: the fault did not act as it should; {} has what was expected",
            case.name(),
            path.display()
        );
    }
    Ok(Outcome::Done)
}

/// The current step: on a terminal in one line, otherwise a line each.
struct Steps(ProgressBar);

impl Steps {
    fn new(name: String) -> Steps {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        if io::stderr().is_terminal() {
            // Cut to the width: a wrapped line could not be overwritten.
            let style = ProgressStyle::with_template("{spinner} {elapsed} {prefix}: {wide_msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            bar.set_draw_target(ProgressDrawTarget::stderr());
            bar.enable_steady_tick(Duration::from_millis(250));
        }
        Steps(bar.with_prefix(name).with_message("making the hosts"))
    }

    fn begins(&self, step: &str) {
        match self.0.is_hidden() {
            true => eprintln!("{}: {step}", self.0.prefix()),
            false => self.0.set_message(step.to_owned()),
        }
    }
}

/// The truth in words, and where to look.
fn told(truth: &Truth, title: &str, out: &Path, machine: &Machine, width: usize) -> String {
    let ending = if truth.near_miss { spangap_lab::scenario::NEAR_MISS } else { "" };
    let mut lines = vec![format!("{}{ending}: {title}", truth.scenario), String::new()];
    lines.push(format!("To blame: {}", to_blame(truth)));
    if let Some(looks_like) = &truth.looks_like {
        lines.push(folder::looks(looks_like));
    }
    if let Some(leg) = &truth.leg {
        lines.push(format!("Longer because of it: {leg}"));
    }
    lines.extend(truth.clocks.iter().map(|clock| format!("Clock: {clock}")));
    let active_ns: u64 = truth.active.iter().map(|one| one.to_unix_ns.saturating_sub(one.from_unix_ns)).sum();
    if active_ns > 0 {
        let stretches = match truth.active.len() {
            1 => String::new(),
            many => format!(", in {many} stretches"),
        };
        lines.push(format!("It was there for {}{stretches}.", format_ns(active_ns)));
    }
    lines.push(format!("Calls that it made longer: {} ({})", truth.affected.len(), truth.affected_rule));
    lines.extend([String::new(), "What proves it:".into()]);
    for claim in &truth.proof {
        let mark = if claim.holds { "  holds  " } else { "  DOES NOT HOLD  " };
        lines.push(format!("{mark}{}: {}, expected {}", claim.what, claim.measured, claim.expected));
    }
    lines.extend(machine.not_recorded.iter().map(|one| format!("Not recorded: {} ({})", one.file, one.why)));
    let mut text: String =
        lines.iter().map(|line| spangap_report::wrap::wrapped(line, width, 0) + "\n").collect();
    text += &format!("\nAll that was recorded is in {}. To look at it:\n\n", out.display());
    for command in folder::look_at(&quoted(&format!("{}/", out.display())), machine) {
        text += &format!("  {command}\n");
    }
    text
}

fn to_blame(truth: &Truth) -> String {
    match truth.side.as_deref() {
        _ if truth.culprit == "none" => "nothing".to_owned(),
        Some(side) => format!("{}, on the {side}'s side", truth.culprit),
        None => truth.culprit.clone(),
    }
}

/// Quoted for a shell.
fn quoted(path: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:=,@%+".contains(letter);
    if path.chars().all(plain) { path.to_owned() } else { format!("'{}'", path.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spangap_lab::truth::{Active, Claim};

    fn truth() -> Truth {
        let text = r#"{ "scenario": "stopped", "near_miss": false, "culprit": "stopped", "side": "client",
            "leg": "client_app_in", "active": [], "affected": [], "affected_rule": "calls under way then",
            "acted": true, "proof": [], "parameters": {}, "seed": 1, "command": "spangap lab run stopped" }"#;
        serde_json::from_str(text).expect("a truth")
    }

    fn machine() -> Machine {
        let text = r#"{ "kernel": "6.1", "cpus": 2, "cpu_model": null, "memory_bytes": null, "virtualization": null,
            "cgroup_version": 2, "netem": false, "load_before": [], "load_after": [],
            "noise": { "wall_ns": 1, "others_cpu_ns": null, "steal_ns": null },
            "versions": { "spangap": "1", "client": null, "server": null }, "recorded": [],
            "not_recorded": [{ "file": "server.host", "why": "no BTF" }] }"#;
        serde_json::from_str(text).expect("a machine")
    }

    #[test]
    fn truth_in_words() {
        let mut truth = truth();
        truth.active = vec![Active { from_unix_ns: 5, to_unix_ns: 20_000_005 }; 3];
        let (what, expected) = ("stops".to_owned(), "at least 3".to_owned());
        truth.proof = vec![Claim { what, measured: 2.0, expected, holds: false }];
        let text = told(&truth, "the client is stopped", Path::new("my runs/x"), &machine(), 100);
        for expected in [
            "stopped: the client is stopped\n",
            "To blame: stopped, on the client's side\n",
            "Longer because of it: client_app_in\n",
            "It was there for 60.0 ms, in 3 stretches.\n",
            "DOES NOT HOLD  stops: 2, expected at least 3\n",
            "Not recorded: server.host (no BTF)\n",
            "  spangap gaps 'my runs/x/'client.spans.json 'my runs/x/'server.spans.json\n",
            " --host 'my runs/x/'client.host\n",
        ] {
            assert!(text.contains(expected), "{expected:?} is not in {text}");
        }
    }
}
