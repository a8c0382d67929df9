//! Reasons to leave a machine alone that are known before any decision.

use super::{Policy, Refusal};
use crate::topology::{Interface, Topology};

/// The distinct interfaces of the policy, and reasons for refusing missing ones.
pub(super) fn interfaces<'a>(topology: &'a Topology, policy: &Policy) -> (Vec<&'a Interface>, Vec<Refusal>) {
    let mut found: Vec<&Interface> = Vec::new();
    let mut refusals = Vec::new();
    if policy.interfaces.is_empty() {
        let why = "no interface is named".into();
        refusals.push(Refusal { rule: "no-interface", why, help: Some("--interface IF".into()) });
    }
    for name in &policy.interfaces {
        match topology.interface(name) {
            None => refusals.push(unknown(topology, name)),
            Some(interface) if !interface.lower.is_empty() => refusals.push(layered(topology, interface)),
            Some(interface) if found.iter().any(|other| other.name == interface.name) => {}
            Some(interface) => found.push(interface),
        }
    }
    (found, refusals)
}

fn unknown(topology: &Topology, name: &str) -> Refusal {
    let names: Vec<&str> = topology.interfaces.iter().map(|interface| interface.name.as_str()).collect();
    let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    Refusal {
        rule: "no-such-interface",
        why: format!("there is no interface {name}"),
        help: Some(format!("interfaces here: {there}")),
    }
}

/// A bond, bridge or VLAN has no interrupts: they come from the interfaces below, and only those can be moved.
fn layered(topology: &Topology, interface: &Interface) -> Refusal {
    let mut below = Vec::new();
    lowest(topology, interface, &mut below, &mut vec![&interface.name]);
    Refusal {
        rule: "layered-interface",
        why: format!(
            "{} has no interrupts of its own: its packets arrive at {}",
            interface.name,
            interface.lower.join(", ")
        ),
        help: (!below.is_empty()).then(|| format!("--interface {}", below.join(","))),
    }
}

/// The interfaces at the bottom.
fn lowest<'a>(
    topology: &'a Topology,
    interface: &'a Interface,
    below: &mut Vec<&'a str>,
    seen: &mut Vec<&'a str>,
) {
    for lower in interface.lower.iter().filter_map(|name| topology.interface(name)) {
        if seen.contains(&lower.name.as_str()) {
            continue;
        }
        seen.push(&lower.name);
        match lower.lower.is_empty() {
            true => below.push(&lower.name),
            false => lowest(topology, lower, below, seen),
        }
    }
}
