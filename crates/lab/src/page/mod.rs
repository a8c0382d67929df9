//! The page of a scenario: its text, a picture of a real run and one of its near miss, and the output of each
//! instrument. Pure: the runs and the output are made elsewhere.

mod picture;

pub use picture::picture;

use crate::calls::Call;
use crate::scenario::{NEAR_MISS, Scenario};
use crate::truth::Truth;
use spangap_model::duration::format_ns;
use std::fmt::Write;

/// The drawn part of a run.
#[derive(Debug)]
pub struct PictureRun<'a> {
    /// Name in the picture.
    pub name: String,
    pub truth: &'a Truth,
    pub calls: &'a [Call],
    /// Total time per leg over all calls.
    pub legs: Vec<LegTotal>,
    /// Number of calls in these sums.
    pub dissected_calls: u64,
}

/// Total time of all calls in one leg.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LegTotal {
    /// Name, or names joined by `+`.
    pub leg: String,
    /// Nanoseconds; may be negative if the clocks are not known well.
    pub total_ns: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstrumentOutput {
    /// The command, as typed in the run's folder.
    pub command: String,
    /// Output for the run with the fault.
    pub fault: String,
    /// Output for the near miss.
    pub near_miss: String,
    /// Picture of the run with the fault: a file, relative to the page.
    pub picture: Option<String>,
}

/// Without this remark, the figures of a near miss would be confusing.
const HOST: &str = "A recording begins before the calls do: what the programs of the run take from each other while they start \
is in it.";

/// The page, in Markdown. `picture` is the path of the picture, relative to the page; `host` is the recording
/// of the host to blame.
pub fn markdown(
    scenario: &Scenario,
    picture: &str,
    truths: [&Truth; 2],
    shown: &[InstrumentOutput],
    host: Option<&InstrumentOutput>,
) -> String {
    let [fault, near_miss] = truths;
    let words = &scenario.page;
    let mut page = format!("# {}\n\n{}.\n\n", scenario.name, capital(scenario.title));
    let mut put = |words: std::fmt::Arguments<'_>| page.write_fmt(words).expect("a string takes everything");
    put(format_args!("| | |\n|---|---|\n"));
    put(format_args!("| to blame | `{}` |\n", scenario.culprit));
    if let Some(leg) = scenario.leg {
        put(format_args!("| leg | `{leg}` |\n"));
    }
    put(format_args!(
        "| near miss | `{}{NEAR_MISS}`: {}; to blame: `{}` |\n",
        scenario.name, scenario.near_miss.title, scenario.near_miss.culprit
    ));
    put(format_args!("| see it | `spangap lab run {}` |\n\n", scenario.name));
    put(format_args!("## What happens\n\n{}\n\n", words.what));
    put(format_args!("## In real life\n\n{}\n\n", words.real_life));
    for (title, address) in words.sources {
        put(format_args!("- [{title}]({address})\n"));
    }
    put(format_args!("\n## How the lab makes it\n\n{}\n\n", words.made));
    if !scenario.parameters.is_empty() {
        put(format_args!("| `--set` | default | |\n|---|---|---|\n"));
        for parameter in scenario.parameters {
            put(format_args!("| `{}` | {} | {} |\n", parameter.name, parameter.default, parameter.what));
        }
        put(format_args!("\n"));
    }
    put(format_args!("## What cures it\n\n{}\n\n", words.cure));
    put(format_args!(
        "## A run\n\n![Calls over time, with the fault and of its near miss; legs of the mean call]({picture})\n\n"
    ));
    put(format_args!(
        "Each dot is a call; those that the fault made longer are red ({}). ",
        fault.affected_rule
    ));
    put(format_args!("Shaded: while it acted, unless it acted all the time.{}\n\n", cost(fault)));
    put(format_args!(
        "Proof that it acted, and that it did not act in the near miss:\n\n| run | measured | | expected |\n|---|---|---|---|\n"
    ));
    for (name, truth) in [("fault", fault), ("near miss", near_miss)] {
        for claim in &truth.proof {
            let what = claim.what.replace('|', "\\|");
            put(format_args!("| {name} | {what} | {} | {} |\n", number(claim.measured), claim.expected));
        }
    }
    put(format_args!("\n## What each instrument shows\n\n"));
    for one in shown {
        put(format_args!("{}", instrument(one)));
    }
    if let Some(host) = host {
        put(format_args!("## What the host saw\n\n{HOST}\n\n{}", instrument(host)));
    }
    put(format_args!(
        "*Made by `spangap lab page`, from runs on a machine with two CPUs: {} and {}.*\n",
        code(&fault.command),
        code(&near_miss.command)
    ));
    page
}

fn instrument(shown: &InstrumentOutput) -> String {
    let InstrumentOutput { command, fault, near_miss, picture } = shown;
    let mut text = format!("### `{command}`\n\n");
    if let Some(picture) = picture {
        text += &format!(
            "Worst stretches of the run with the fault: what a thread did, and who had the CPU meanwhile.\n\n\
             ![What the thread did in the worst stretches of time]({picture})\n\n"
        );
    }
    let [fault, near_miss] = [fault, near_miss].map(|text| text.trim_end());
    text + &format!("With the fault:\n\n```\n{fault}\n```\n\nNear miss:\n\n```\n{near_miss}\n```\n\n")
}

fn cost(truth: &Truth) -> String {
    let known: Vec<u64> = truth.affected.iter().filter_map(|call| call.cost_ns).collect();
    if known.is_empty() {
        return String::new();
    }
    let sum: u64 = known.iter().sum();
    format!(" By construction it cost {} calls {} together.", known.len(), format_ns(sum))
}

fn code(command: &str) -> String {
    format!("`{command}`")
}

/// Three digits suffice for reading.
fn number(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e15 { format!("{value:.0}") } else { format!("{value:.3}") }
}

fn capital(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::scenarios::ALL;

    pub fn truth(scenario: &str, near_miss: bool) -> Truth {
        let text = serde_json::json!({
            "scenario": scenario, "near_miss": near_miss, "culprit": "none", "active": [], "affected": [],
            "affected_rule": "none is", "acted": true,
            "proof": [{"what": "calls | all", "measured": 3.0, "expected": "at least 2", "holds": true}],
            "parameters": {}, "seed": 1, "command": "spangap lab run x"
        });
        serde_json::from_value(text).expect("a truth")
    }

    #[test]
    fn a_page_has_all_of_its_parts() {
        for scenario in ALL {
            let truths = [truth(scenario.name, false), truth(scenario.name, true)];
            let [fault, near_miss] = ["one\n".into(), "two\n".into()];
            let gaps = InstrumentOutput { command: "spangap gaps".into(), fault, near_miss, picture: None };
            let host = InstrumentOutput { picture: Some("x-host.svg".into()), ..gaps.clone() };
            let truths = [&truths[0], &truths[1]];
            let page = markdown(scenario, "x.svg", truths, &[gaps], Some(&host));
            let parts = [
                "## What happens",
                "## In real life",
                "## How the lab makes it",
                "## What cures it",
                "(x.svg)",
                "| calls \\| all | 3 |",
                "one\n```",
                "two\n```",
                "## What the host saw",
                "(x-host.svg)",
            ];
            for part in parts {
                assert!(page.contains(part), "{}: {part} is missing:\n{page}", scenario.name);
            }
            assert!(scenario.parameters.iter().all(|parameter| page.contains(parameter.what)));
        }
    }
}
