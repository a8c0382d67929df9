//! What to change, decided from a topology and a policy alone: no file, no clock.

mod balancer;
mod choose;
mod cpusets_v1;
mod cpusets_v2;
mod draft;
mod irqs;
mod kubelet;
mod permanent;
mod pinned;
mod queues;
mod refuse;
mod steering;

use crate::place::Place;
use crate::topology::{Interface, Topology, Version};
use choose::Choice;
use draft::Draft;
use serde::{Deserialize, Serialize};
use spangap_model::Cpus;

/// What the user wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Interfaces whose interrupts are separated from applications.
    pub interfaces: Vec<String>,
    /// CPUs that the interrupts go to.
    pub net_cpus: NetCpus,
    /// Whether the number of queues may be changed to one per network CPU.
    pub queues: bool,
    /// Whether cpusets keep applications off these CPUs.
    pub cpusets: bool,
    /// How to treat a running irqbalance.
    pub irqbalance: IrqbalancePolicy,
}

/// CPUs for the network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetCpus {
    /// As many as suit the size of the machine.
    Auto,
    /// This many, chosen by the rules; rounded up to whole cores.
    Count(u32),
    /// Exactly these; deviations from the rules are noted.
    List(Cpus),
}

/// How to treat a running irqbalance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IrqbalancePolicy {
    /// Ask it, on its socket, to leave our interrupts alone.
    Ban,
    Stop,
    /// Leave it running: it will undo this.
    Leave,
}

/// Changes, in this order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Format identifier: [`Plan::FORMAT`].
    pub format: String,
    /// Boot id of the machine; a plan is valid for this boot only.
    pub boot_id: String,
    /// The policy it follows.
    pub policy: Policy,
    /// CPUs for the network.
    pub net_cpus: Cpus,
    /// CPUs left for everything else.
    pub app_cpus: Cpus,
    /// Reasons for the choice of CPUs, one sentence each.
    pub choice: Vec<String>,
    /// The changes, in the order of execution; undone in reverse.
    pub changes: Vec<Change>,
    /// Whether the number of queues of an interface changes: its interrupts are then renumbered, and the rest
    /// is planned again for the resulting state, with the same CPUs.
    pub planned_again_after_queues: bool,
    /// Notes for the reader.
    pub notes: Vec<Note>,
    /// Settings that survive a reboot: for the reader to make, never made by `apply`.
    pub permanent: Vec<Permanent>,
    /// Baseline measurement, as passed by `plan --before FILE`; for `verify` to compare with.
    pub before: Option<serde_json::Value>,
}

/// One value to change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// Part of the plan that it belongs to.
    pub part: Part,
    /// Where.
    pub place: Place,
    /// Current value; `None` if the place does not exist yet.
    pub from: Option<String>,
    /// New value.
    pub to: String,
    /// Alternative if the kernel refuses that value.
    pub otherwise: Option<String>,
    /// Reason, as a clause.
    pub why: String,
    /// Whether a refusal rolls everything back; otherwise it is counted, and the next change follows.
    pub needed: bool,
}

/// Parts of a plan, in the order of execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// irqbalance leaves our interrupts alone.
    Irqbalance,
    Queues,
    /// Affinity of interrupts.
    Irqs,
    /// Software steering: RPS, RFS, XPS, NAPI threads.
    Steering,
    /// Cgroups.
    Cpusets,
    /// Pinned threads, whose affinity would be lost.
    Tasks,
}

/// A note for the reader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Note {
    /// How much it matters.
    pub weight: Weight,
    /// One or two sentences.
    pub text: String,
}

/// How much a note matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Weight {
    /// The effect will be smaller than expected.
    Warning,
    /// Impossible without a reboot, or from here.
    Impossible,
    /// For information.
    Remark,
}

/// A setting that survives a reboot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Permanent {
    /// Program it belongs to: `kubelet`, `systemd`, `irqbalance`, `queues`, `kernel command line`.
    pub whose: String,
    /// File to edit, or how to run it.
    pub place: String,
    /// Text to write there.
    pub text: String,
}

/// Reason for not making a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{why}")]
pub struct Refusal {
    /// Stable name of the rule, `exclusive-pod`.
    pub rule: &'static str,
    /// A sentence that names the CPUs, pods, files.
    pub why: String,
    /// What the reader could do.
    pub help: Option<String>,
}

impl Plan {
    /// Value of [`Plan::format`].
    pub const FORMAT: &str = "spangap isolate plan 1";

    /// Makes a plan.
    ///
    /// # Errors
    /// All reasons for leaving this machine alone.
    pub fn new(topology: &Topology, policy: &Policy) -> Result<Plan, Vec<Refusal>> {
        let (interfaces, mut refusals) = refuse::interfaces(topology, policy);
        match choose::choose(topology, policy, &interfaces) {
            Ok(choice) if refusals.is_empty() => decide(topology, policy, &interfaces, choice),
            Ok(_) => Err(refusals),
            Err(more) => {
                refusals.extend(more);
                Err(refusals)
            }
        }
    }

    /// Plans again after the number of queues changed and interrupts were renumbered, with the same CPUs, notes
    /// and baseline.
    ///
    /// # Errors
    /// All reasons for leaving the machine in its current state alone.
    pub fn after_queues(&self, topology: &Topology) -> Result<Plan, Vec<Refusal>> {
        let policy =
            Policy { net_cpus: NetCpus::List(self.net_cpus.clone()), queues: false, ..self.policy.clone() };
        let (interfaces, refusals) = refuse::interfaces(topology, &policy);
        if !refusals.is_empty() {
            return Err(refusals);
        }
        let choice =
            Choice { net: self.net_cpus.clone(), because: self.choice.clone(), notes: self.notes.clone() };
        let mut again = decide(topology, &policy, &interfaces, choice)?;
        again.permanent.clone_from(&self.permanent);
        again.before.clone_from(&self.before);
        Ok(again)
    }
}

/// Everything except the choice of CPUs.
fn decide(
    topology: &Topology,
    policy: &Policy,
    interfaces: &[&Interface],
    choice: Choice,
) -> Result<Plan, Vec<Refusal>> {
    let mut draft = Draft::new(topology, policy, interfaces, choice.net);
    draft.notes = choice.notes;
    balancer::plan(&mut draft);
    let planned_again_after_queues = queues::plan(&mut draft);
    irqs::plan(&mut draft);
    steering::plan(&mut draft);
    match &topology.cpusets {
        _ if !policy.cpusets => {
            draft.note(Weight::Remark, "Applications stay on the network's CPUs: no cpusets, as requested.");
        }
        None => draft.note(
            Weight::Warning,
            "No hierarchy with the cpuset controller is mounted, or in this copy: applications cannot be kept off \
             the network's CPUs.",
        ),
        Some(cpusets) if cpusets.version == Version::V1 => cpusets_v1::plan(&mut draft, cpusets),
        Some(cpusets) => cpusets_v2::plan(&mut draft, cpusets),
    }
    pinned::plan(&mut draft);
    kubelet::plan(&mut draft);
    permanent::plan(&mut draft);
    unread(&mut draft);
    if !draft.refusals.is_empty() {
        return Err(draft.refusals);
    }
    let mut notes: Vec<Note> = Vec::new();
    for note in draft.notes {
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    Ok(Plan {
        format: Plan::FORMAT.to_owned(),
        boot_id: topology.boot.id.clone(),
        policy: policy.clone(),
        net_cpus: draft.net,
        app_cpus: draft.app,
        choice: choice.because,
        changes: draft.changes,
        planned_again_after_queues,
        notes,
        permanent: draft.permanent,
        before: None,
    })
}

/// Unreadable files that could have changed the plan.
fn unread(draft: &mut Draft<'_>) {
    let errors = draft.topology.unknown.iter().filter(|error| !error.is_absent());
    let errors: Vec<String> = errors.map(ToString::to_string).collect();
    if !errors.is_empty() {
        let text = format!("Unknown, and therefore not planned for: {}.", draft::some_of(&errors));
        draft.note(Weight::Warning, text);
    }
}

/// Changes that an applied plan still needs: newly created cgroups with CPUs of the network, children before
/// parents. A cgroup that has no other CPUs cannot be narrowed and is not included: somebody assigned these
/// CPUs while the plan was applied, and `verify` reports it.
pub fn changes_for_new_groups(plan: &Plan, topology: &Topology) -> Vec<Change> {
    match topology.cpusets.as_ref().map(|cpusets| cpusets.version) {
        Some(Version::V1) if plan.policy.cpusets => cpusets_v1::for_new_groups(topology, &plan.net_cpus),
        Some(Version::V2) if plan.policy.cpusets => cpusets_v2::for_new_groups(topology, &plan.net_cpus),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
