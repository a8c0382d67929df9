//! `spangap lab list`: the scenarios.

use crate::Outcome;
use crate::output::{print_json, print_text};
use clap::Args;
use serde::Serialize;
use spangap_lab::scenario::NEAR_MISS;
use spangap_lab::scenarios::ALL;

const EXAMPLES: &str = "\
Examples:
  spangap lab list
  spangap lab list --json | jq -r '.scenarios[].name'";

/// List the scenarios
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ListArgs {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Listed {
    name: &'static str,
    title: &'static str,
    culprit: &'static str,
    side: Option<&'static str>,
    leg: Option<String>,
    parameters: Vec<Parameter>,
    near_miss: String,
    near_miss_title: &'static str,
    near_miss_culprit: &'static str,
}

#[derive(Serialize)]
struct Parameter {
    name: &'static str,
    what: &'static str,
    default: String,
}

/// Lists them.
pub fn run(args: ListArgs) -> anyhow::Result<Outcome> {
    if args.json {
        let scenarios: Vec<_> = ALL
            .iter()
            .map(|scenario| Listed {
                name: scenario.name,
                title: scenario.title,
                culprit: scenario.culprit.cause.name(),
                side: scenario.culprit.side.map(|side| side.name()),
                leg: scenario.leg.map(|leg| leg.to_string()),
                parameters: scenario
                    .parameters
                    .iter()
                    .map(|p| Parameter { name: p.name, what: p.what, default: p.default.to_string() })
                    .collect(),
                near_miss: format!("{}{NEAR_MISS}", scenario.name),
                near_miss_title: scenario.near_miss.title,
                near_miss_culprit: scenario.near_miss.culprit.cause.name(),
            })
            .collect();
        return print_json(&serde_json::json!({ "scenarios": scenarios }));
    }
    let mut text = String::new();
    for scenario in ALL {
        text += &format!("{}: {}\n", scenario.name, scenario.title);
        text += &format!("    {}{NEAR_MISS}: {}\n", scenario.name, scenario.near_miss.title);
    }
    print_text(&text)
}
