//! `spangap lab list`: the scenarios.

use crate::Outcome;
use crate::output::{print_json, print_text, width};
use crate::values::wrong_usage;
use clap::Args;
use serde::Serialize;
use spangap_lab::scenario::{NEAR_MISS, Scenario};
use spangap_lab::scenarios::{ALL, find};
use spangap_report::wrap::wrapped;

const EXAMPLES: &str = "\
Examples:
  spangap lab list
  spangap lab list nagle-client
      what happens and where, and its parameters
  spangap lab list --json | jq -r '.scenarios[].name'";

/// List the scenarios, or describe one in full
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ListArgs {
    /// Show only this one, in full
    scenario: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct ScenarioEntry {
    name: &'static str,
    title: &'static str,
    culprit: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    side: Option<&'static str>,
    also_right: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    leg: Option<String>,
    parameters: Vec<Parameter>,
    near_miss: String,
    near_miss_title: &'static str,
    near_miss_culprit: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    near_miss_side: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    near_miss_leg: Option<String>,
    what: &'static str,
    real_life: &'static str,
    sources: Vec<Source>,
    made: &'static str,
    cure: &'static str,
}

#[derive(Serialize)]
struct Parameter {
    name: &'static str,
    what: &'static str,
    default: String,
}

#[derive(Serialize)]
struct Source {
    title: &'static str,
    url: &'static str,
}

/// Lists the scenarios.
pub fn run(args: ListArgs) -> anyhow::Result<Outcome> {
    let one = match &args.scenario {
        Some(name) => match find(name) {
            // A near miss is described with its scenario.
            Some((scenario, _)) => Some(scenario),
            None => {
                let why = format!("there is no scenario {name}; `spangap lab list` has them");
                return Err(wrong_usage(why).into());
            }
        },
        None => None,
    };
    if args.json {
        let scenarios = one.map_or_else(|| ALL.to_vec(), |one| vec![one]);
        let scenarios: Vec<ScenarioEntry> = scenarios.into_iter().map(listed).collect();
        return print_json(&serde_json::json!({ "scenarios": scenarios }));
    }
    let width = width(100, 120);
    print_text(&one.map_or_else(|| table(ALL, width), |one| all_of(one, width)))
}

fn listed(scenario: &Scenario) -> ScenarioEntry {
    let (culprit, near) = (scenario.culprit, &scenario.near_miss);
    let parameters = scenario.parameters.iter();
    let sources = scenario.page.sources.iter();
    ScenarioEntry {
        name: scenario.name,
        title: scenario.title,
        culprit: culprit.cause.name(),
        side: culprit.side.map(|side| side.name()),
        also_right: scenario.also_right.iter().map(ToString::to_string).collect(),
        leg: scenario.leg.map(|leg| leg.to_string()),
        parameters: parameters
            .map(|p| Parameter { name: p.name, what: p.what, default: p.default.to_string() })
            .collect(),
        near_miss: format!("{}{NEAR_MISS}", scenario.name),
        near_miss_title: near.title,
        near_miss_culprit: near.culprit.cause.name(),
        near_miss_side: near.culprit.side.map(|side| side.name()),
        near_miss_leg: near.leg.map(|leg| leg.to_string()),
        what: scenario.page.what,
        real_life: scenario.page.real_life,
        sources: sources.map(|&(title, url)| Source { title, url }).collect(),
        made: scenario.page.made,
        cure: scenario.page.cure,
    }
}

/// Two blanks between columns; the last column gets the remaining width.
fn table(scenarios: &[&Scenario], width: usize) -> String {
    let longest = |of: &dyn Fn(&Scenario) -> usize| scenarios.iter().map(|one| of(one)).max().unwrap_or(0);
    let names = longest(&|one| one.name.len()).max("SCENARIO".len());
    let culprits = longest(&|one| one.culprit.to_string().len()).max("TO BLAME".len());
    let before = names + culprits + 4;
    let mut text = format!("{:names$}  {:culprits$}  WHAT HAPPENS\n", "SCENARIO", "TO BLAME");
    for one in scenarios {
        let row = format!("{:names$}  {:culprits$}  {}", one.name, one.culprit.to_string(), one.title);
        text += &(wrapped(&row, width, before) + "\n");
        let near = format!("{:before$}near miss: {}", "", one.near_miss.title);
        text += &(wrapped(&near, width, before) + "\n");
    }
    let foot = format!(
        "`spangap lab run SCENARIO` makes one, `spangap lab run SCENARIO{NEAR_MISS}` what looks like it and is not; \
         `spangap lab list SCENARIO` tells all of it."
    );
    text + "\n" + &wrapped(&foot, width, 0) + "\n"
}

fn all_of(scenario: &Scenario, width: usize) -> String {
    let (page, near) = (&scenario.page, &scenario.near_miss);
    let mut text = String::new();
    let mut paragraph = |words: &str, indent: usize| {
        for line in words.lines() {
            text += &(wrapped(&format!("{:indent$}{line}", ""), width, indent) + "\n");
        }
    };
    paragraph(&format!("{}: {}", scenario.name, scenario.title), 0);
    let leg = |leg: Option<spangap_model::Legs>| leg.map_or(String::new(), |leg| format!("; longer: {leg}"));
    paragraph(&format!("To blame: {}{}", scenario.culprit, leg(scenario.leg)), 0);
    if !scenario.also_right.is_empty() {
        let names: Vec<String> = scenario.also_right.iter().map(ToString::to_string).collect();
        paragraph(&format!("Right as well: {}", names.join(", ")), 0);
    }
    paragraph(&format!("\n{}{NEAR_MISS}: {}", scenario.name, near.title), 0);
    paragraph(&format!("To blame there: {}{}", near.culprit, leg(near.leg)), 0);
    paragraph("\nParameters (--set NAME=VALUE):", 0);
    let names = scenario.parameters.iter().map(|one| one.name.len()).max().unwrap_or(0);
    for one in scenario.parameters {
        paragraph(&format!("{:names$}  {} [{}]", one.name, one.what, one.default), 2);
    }
    for (title, words) in [
        ("What it is", page.what),
        ("In real life", page.real_life),
        ("How it is made", page.made),
        ("What cures it", page.cure),
    ] {
        paragraph(&format!("\n{title}"), 0);
        paragraph(words, 2);
    }
    paragraph("\nSources", 0);
    for (title, url) in page.sources {
        paragraph(title, 2);
        paragraph(url, 4);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_is_listed_within_the_width() {
        for width in [80, 120] {
            let text = table(ALL, width);
            for one in ALL {
                assert!(text.contains(one.name), "{}", one.name);
                let all = all_of(one, width);
                let urls = |line: &&str| !line.contains("://");
                let long =
                    text.lines().chain(all.lines()).filter(urls).find(|line| line.chars().count() > width);
                assert_eq!(long, None, "{}", one.name);
            }
        }
    }
}
