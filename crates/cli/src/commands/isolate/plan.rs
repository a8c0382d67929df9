//! `spangap isolate plan`: what to change, and why.

use crate::Outcome;
use crate::output::width;
use crate::values::wrong_usage;
use crate::whole_file;
use anyhow::{Context, anyhow};
use clap::{Args, ValueEnum};
use spangap_isolate::kernel::Live;
use spangap_isolate::plan::{IrqbalancePolicy, NetCpus, Plan, Policy, Refusal};
use spangap_isolate::report::plan::{Refused, refused_text, text};
use spangap_isolate::topology::Topology;
use spangap_isolate::verify::proof;
use spangap_machine::{Host, parse_readings};
use spangap_model::Cpus;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  spangap isolate plan --interface eth0
      which CPUs the network would get, and every change with its reason
  spangap isolate plan --interface eth0 --net-cpus 4 --queues --write plan.json
      4 CPUs with one queue each; written for `spangap isolate apply plan.json`
  spangap gaps spans.json --json > before.json && spangap isolate plan --interface eth0 --before before.json --write plan.json
      with the latencies before, for `verify --after` to compare with
  spangap isolate plan --interface eth0,eth1 --net-cpus 1-2,49-50 --no-cpusets
      these CPUs whatever the rules say, without moving applications
  spangap isolate plan --interface eth0 --root host.txt --json
      for another machine, from what `isolate show --save` wrote

Changes nothing. A plan that would take CPUs from a pod, leave a thread without any, or could not be undone is
refused with exit code 1 and all the reasons.";

/// Plan what to change, and say why; changes nothing
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct PlanArgs {
    /// Interface whose interrupts are kept apart; may be repeated, or a list
    #[arg(long, value_name = "IF", value_delimiter = ',', required = true)]
    interface: Vec<String>,
    /// How many CPUs the network gets, or which: `4`; `1-2,49-50`, `3,`, `cpu:0` [default: one in 24, in whole cores]
    #[arg(long, value_name = "N|LIST", value_parser = net_cpus)]
    net_cpus: Option<NetCpus>,
    /// Change the number of queues to one for each of these CPUs; can interrupt traffic for a moment
    #[arg(long)]
    queues: bool,
    /// Do not move applications
    #[arg(long)]
    no_cpusets: bool,
    /// What to do about a running irqbalance
    #[arg(long, value_name = "WHAT", default_value = "ban")]
    irqbalance: Irqbalance,
    /// How long calls took before: a document of `gaps --json` or `tank --json`
    #[arg(long, value_name = "FILE")]
    before: Option<PathBuf>,
    /// Write the plan to this file, for `apply`
    #[arg(long, value_name = "PLAN.json")]
    write: Option<PathBuf>,
    /// Plan for a copy: a folder with proc and sys inside, or a file of `isolate show --save`
    #[arg(long, value_name = "PATH", default_value = "/")]
    root: PathBuf,
    /// Print the plan as one JSON document
    #[arg(long)]
    json: bool,
}

/// What to do about a running irqbalance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Irqbalance {
    /// Ask it to leave these interrupts alone
    Ban,
    /// Stop it
    Stop,
    /// Do nothing: irqbalance will undo the change
    Leave,
}

/// A number is a count; everything else is a list.
fn net_cpus(words: &str) -> Result<NetCpus, String> {
    if let Ok(count) = words.parse::<u32>() {
        return match count {
            0 => Err("the network needs at least one CPU; CPU 0 as a list is `cpu:0`".into()),
            count => Ok(NetCpus::Count(count)),
        };
    }
    let list = words.strip_prefix("cpu:").unwrap_or(words);
    match Cpus::parse_list(list).filter(|cpus| !cpus.is_empty()) {
        Some(cpus) => Ok(NetCpus::List(cpus)),
        None => Err("expected a number of CPUs, such as 4, or a list, such as 1-2,49-50".into()),
    }
}

/// Makes the plan, prints it, and saves it.
pub fn run(args: PlanArgs) -> anyhow::Result<Outcome> {
    let topology = topology(&args.root)?;
    for name in &args.interface {
        if topology.interface(name).is_none() {
            let names: Vec<&str> = topology.interfaces.iter().map(|one| one.name.as_str()).collect();
            let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            return Err(
                wrong_usage(format!("--interface {name}: there is no such interface here: {there}")).into()
            );
        }
    }
    let before = args.before.as_deref().map(before).transpose()?;
    let policy = Policy {
        interfaces: args.interface.clone(),
        net_cpus: args.net_cpus.clone().unwrap_or(NetCpus::Auto),
        queues: args.queues,
        cpusets: !args.no_cpusets,
        irqbalance: match args.irqbalance {
            Irqbalance::Ban => IrqbalancePolicy::Ban,
            Irqbalance::Stop => IrqbalancePolicy::Stop,
            Irqbalance::Leave => IrqbalancePolicy::Leave,
        },
    };
    let mut plan = match Plan::new(&topology, &policy) {
        Ok(plan) => plan,
        Err(refusals) => return Err(refused(&args, &refusals)?),
    };
    plan.before = before;
    if let Some(path) = &args.write {
        let document = format!("{}\n", serde_json::to_string_pretty(&plan)?);
        whole_file::write_private(path, &document)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    let output = match args.json {
        true => format!("{}\n", serde_json::to_string_pretty(&plan)?),
        false => text(&plan, &next(&args), width(110, 160)),
    };
    print(&output)?;
    Ok(Outcome::Done)
}

/// This machine, a copy, or one saved as text.
fn topology(root: &Path) -> anyhow::Result<Topology> {
    if root == Path::new("/") {
        return Ok(Live::new().topology());
    }
    if root.is_file() {
        let text = fs::read_to_string(root).with_context(|| format!("cannot read {}", root.display()))?;
        let (_, kept) = parse_readings(&text).with_context(|| format!("cannot read {}", root.display()))?;
        return Ok(Topology::read(&Host::kept(kept)));
    }
    if !root.join("proc").is_dir() {
        return Err(wrong_usage(format!("--root {}: there is no proc inside", root.display())).into());
    }
    Ok(Live::copy(root).topology())
}

/// The baseline measurement, in the form that `verify` reads.
fn before(path: &Path) -> anyhow::Result<serde_json::Value> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let proof = proof::parse(&text).with_context(|| format!("--before {}", path.display()))?;
    Ok(serde_json::to_value(proof)?)
}

/// Reports all refusals: as a document on standard output, or in the error message.
fn refused(args: &PlanArgs, refusals: &[Refusal]) -> anyhow::Result<anyhow::Error> {
    let head = match refusals.len() {
        1 => "there is no plan, for one reason".to_owned(),
        several => format!("there is no plan, for {several} reasons"),
    };
    if args.json {
        print(&format!("{}\n", serde_json::to_string_pretty(&Refused { refused: refusals })?))?;
        return Ok(anyhow!(head));
    }
    Ok(anyhow!("{head}:\n{}", refused_text(refusals, width(110, 160)).trim_end()))
}

/// The next command to run.
fn next(args: &PlanArgs) -> String {
    let root = match args.root == Path::new("/") {
        true => String::new(),
        false => format!(" --root {}", quoted(&args.root.display().to_string())),
    };
    if let Some(plan) = &args.write {
        if args.root.is_file() {
            return "a machine saved as text cannot be changed: plan on the machine itself".into();
        }
        return format!(
            "spangap isolate apply {} --confirm-within 60s{root}",
            quoted(&plan.display().to_string())
        );
    }
    let mut command = format!("spangap isolate plan --interface {}", quoted(&args.interface.join(",")));
    match &args.net_cpus {
        Some(NetCpus::Count(count)) => command += &format!(" --net-cpus {count}"),
        Some(NetCpus::List(list)) => command += &format!(" --net-cpus cpu:{list}"),
        Some(NetCpus::Auto) | None => {}
    }
    for (flag, set) in [("--queues", args.queues), ("--no-cpusets", args.no_cpusets)] {
        if set {
            command += &format!(" {flag}");
        }
    }
    match args.irqbalance {
        Irqbalance::Ban => {}
        Irqbalance::Stop => command += " --irqbalance stop",
        Irqbalance::Leave => command += " --irqbalance leave",
    }
    if let Some(before) = &args.before {
        command += &format!(" --before {}", quoted(&before.display().to_string()));
    }
    format!("{command}{root} --write plan.json")
}

/// Quoted as a single word for a shell.
fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./,:@%+=".contains(letter);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

fn print(output: &str) -> anyhow::Result<()> {
    io::stdout().write_all(output.as_bytes()).context("cannot write to standard output")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_is_a_count_and_list_is_a_selection() {
        let list = |text| Ok(NetCpus::List(Cpus::parse_list(text).unwrap()));
        assert_eq!(net_cpus("4"), Ok(NetCpus::Count(4)));
        assert_eq!(net_cpus("3,"), list("3"));
        assert_eq!(net_cpus("1-2,49-50"), list("1-2,49-50"));
        assert_eq!(net_cpus("cpu:0"), list("0"));
        for wrong in ["0", "", "cpu:", "five", "3-1", "-4", ","] {
            assert!(net_cpus(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn words_for_a_shell() {
        assert_eq!(quoted("plan.json"), "plan.json");
        assert_eq!(quoted("my plan's"), "'my plan'\\''s'");
    }
}
