//! Plans for the machines of `fixtures/isolate` match those that an expert made by hand.
//!
//! `expected.txt` has a paragraph per question: `$ ARGUMENTS` of `isolate plan`, then either the CPUs, each
//! change as `PLACE: OLD -> NEW`, and words that a note must contain; or each rule that refuses. `[0-5]` in a
//! place stands for several. All changes are listed, and no others; their order is checked by the tests of
//! `plan/`.

use spangap_isolate::place::Place;
use spangap_isolate::plan::{Change, IrqbalancePolicy, NetCpus, Plan, Policy, Weight};
use spangap_isolate::topology::Topology;
use spangap_machine::{Host, Kept};
use spangap_model::Cpus;
use std::fs;
use std::path::{Path, PathBuf};

/// One question with its expected answer.
#[derive(Default)]
struct Case {
    arguments: String,
    net: Option<Cpus>,
    apps: Option<Cpus>,
    changes: Vec<(String, String, String)>,
    notes: Vec<(Weight, String)>,
    refused: Vec<String>,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/isolate")
}

#[test]
fn every_machine_is_planned_as_an_expert_would() {
    let mut wrong = Vec::new();
    let mut machines = 0;
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let Ok(text) = fs::read_to_string(path.join("machine.txt")) else { continue };
        let expected = fs::read_to_string(path.join("expected.txt"))
            .unwrap_or_else(|error| panic!("{name} has no expected.txt: {error}"));
        let topology = Topology::read(&Host::kept(Kept::parse(&text).unwrap()));
        let cases = cases(&name, &expected);
        assert!(!cases.is_empty(), "{name}: nothing is expected");
        machines += 1;
        for case in cases {
            for difference in differences(&topology, &case) {
                wrong.push(format!("{name} {}\n    {difference}", case.arguments));
            }
        }
    }
    assert!(machines >= 6, "only {machines} machines");
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
}

/// Differences between the plan and the expectation.
fn differences(topology: &Topology, case: &Case) -> Vec<String> {
    let mut differences = Vec::new();
    let plan = match Plan::new(topology, &policy(&case.arguments)) {
        Ok(plan) => plan,
        Err(refusals) => {
            let mut rules: Vec<&str> = refusals.iter().map(|refusal| refusal.rule).collect();
            let mut expected: Vec<&str> = case.refused.iter().map(String::as_str).collect();
            rules.sort_unstable();
            expected.sort_unstable();
            if rules != expected {
                differences.push(format!("refused by {rules:?}, expected {expected:?}: {refusals:?}"));
            }
            return differences;
        }
    };
    if !case.refused.is_empty() {
        differences.push(format!("planned, expected to be refused: {:?}", case.refused));
        return differences;
    }
    if Some(&plan.net_cpus) != case.net.as_ref() || Some(&plan.app_cpus) != case.apps.as_ref() {
        differences.push(format!("CPUs {} of the network, {} of applications", plan.net_cpus, plan.app_cpus));
    }
    let mut left: Vec<&Change> = plan.changes.iter().collect();
    for (place, old, new) in &case.changes {
        let is_it = |change: &&Change| change.place.to_string() == *place;
        match left.iter().position(is_it) {
            None => differences.push(format!("missing: {place}: {old} -> {new}")),
            Some(at) => {
                let change = left.swap_remove(at);
                let new_is = match &change.otherwise {
                    Some(otherwise) => format!("{}, or {otherwise}", change.to),
                    None => change.to.clone(),
                };
                let old_is = change.from.clone().unwrap_or_else(|| "none".into());
                if !same(&change.place, &old_is, old) || !same(&change.place, &new_is, new) {
                    differences.push(format!("{place}: {old_is} -> {new_is}, expected {old} -> {new}"));
                }
            }
        }
    }
    for change in left {
        differences.push(format!("not expected: {}: {:?} -> {}", change.place, change.from, change.to));
    }
    for (weight, words) in &case.notes {
        if !plan.notes.iter().any(|note| note.weight == *weight && note.text.contains(words.as_str())) {
            differences.push(format!("no note {weight:?} with {words:?} in it: {:#?}", plan.notes));
        }
    }
    differences
}

fn same(place: &Place, one: &str, other: &str) -> bool {
    one == other || (one != "none" && other != "none" && place.same(one, other))
}

/// The policy that these arguments of `isolate plan` describe.
fn policy(arguments: &str) -> Policy {
    let mut policy = Policy {
        interfaces: Vec::new(),
        net_cpus: NetCpus::Auto,
        queues: false,
        cpusets: true,
        irqbalance: IrqbalancePolicy::Ban,
    };
    let mut words = arguments.split_whitespace();
    while let Some(word) = words.next() {
        let mut value = || words.next().unwrap_or_else(|| panic!("{word} without a value: {arguments}"));
        match word {
            "--interface" => policy.interfaces = value().split(',').map(str::to_owned).collect(),
            "--net-cpus" => {
                let value = value();
                policy.net_cpus = match value.parse() {
                    Ok(count) => NetCpus::Count(count),
                    Err(_) => NetCpus::List(Cpus::parse_list(value.trim_start_matches("cpu:")).unwrap()),
                };
            }
            "--queues" => policy.queues = true,
            "--no-cpusets" => policy.cpusets = false,
            "--irqbalance" => {
                policy.irqbalance = match value() {
                    "stop" => IrqbalancePolicy::Stop,
                    "leave" => IrqbalancePolicy::Leave,
                    other => panic!("--irqbalance {other}"),
                };
            }
            other => panic!("{other}: {arguments}"),
        }
    }
    policy
}

fn cases(name: &str, text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        let bad = || -> ! { panic!("{name}/expected.txt, line {}: {line}", at + 1) };
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(arguments) = line.strip_prefix("$ ") {
            cases.push(Case { arguments: arguments.to_owned(), ..Case::default() });
            continue;
        }
        let Some(case) = cases.last_mut() else { bad() };
        let cpus = |list| Some(Cpus::parse_list(list).unwrap_or_else(|| bad()));
        let (head, rest) = line.split_once(' ').unwrap_or((line, ""));
        match head {
            "net" => case.net = cpus(rest),
            "apps" => case.apps = cpus(rest),
            "refused" => case.refused.push(rest.to_owned()),
            "warning" => case.notes.push((Weight::Warning, rest.to_owned())),
            "impossible" => case.notes.push((Weight::Impossible, rest.to_owned())),
            "remark" => case.notes.push((Weight::Remark, rest.to_owned())),
            _ => {
                let Some((left, new)) = line.rsplit_once(" -> ") else { bad() };
                let Some((place, old)) = left.rsplit_once(": ") else { bad() };
                for place in several(place) {
                    case.changes.push((place, old.to_owned(), new.to_owned()));
                }
            }
        }
    }
    cases
}

/// The places that a place with `[LIST]` in it stands for.
fn several(place: &str) -> Vec<String> {
    let Some((head, (list, tail))) =
        place.split_once('[').and_then(|(head, rest)| Some((head, rest.split_once(']')?)))
    else {
        return vec![place.to_owned()];
    };
    let numbers = Cpus::parse_list(list).unwrap_or_else(|| panic!("{place}"));
    numbers.iter().map(|number| format!("{head}{number}{tail}")).collect()
}
