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

/// What is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Interfaces whose interrupts are to be kept apart.
    pub interfaces: Vec<String>,
    /// Where they are to go.
    pub net_cpus: NetCpus,
    /// Whether the number of queues may be changed to one for each of these CPUs.
    pub queues: bool,
    /// Whether applications are to be kept off these CPUs by cpusets.
    pub cpusets: bool,
    /// What to do about a running irqbalance.
    pub irqbalance: IrqbalancePolicy,
}

/// CPUs for the network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetCpus {
    /// As many as the size of the machine suggests.
    Auto,
    /// So many, which ones by the rules; rounded up to whole cores.
    Count(u32),
    /// These, whatever the rules say; where they say otherwise is noted.
    List(Cpus),
}

/// What to do about a running irqbalance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IrqbalancePolicy {
    /// Ask it, on its socket, to leave our interrupts alone.
    Ban,
    /// Stop it.
    Stop,
    /// Nothing: it will undo this.
    Leave,
}

/// What is to be changed, in this order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Names the format: [`Plan::FORMAT`].
    pub format: String,
    /// Identity of the machine's run that it was made on; a plan is for this run only.
    pub boot_id: String,
    /// What was wanted.
    pub policy: Policy,
    /// CPUs for the network.
    pub net_cpus: Cpus,
    /// CPUs left for everything else.
    pub app_cpus: Cpus,
    /// Why these, one sentence each.
    pub choice: Vec<String>,
    /// The changes, in the order in which they are made; undone in reverse.
    pub changes: Vec<Change>,
    /// Interfaces whose number of queues changes: their interrupts are numbered anew then, and what comes after is
    /// planned again on the machine as it is then, with the same CPUs.
    pub planned_again_after_queues: bool,
    /// What the reader should know.
    pub notes: Vec<Note>,
    /// Settings that make it last beyond the next boot: to be made by the reader, never by `apply`.
    pub permanent: Vec<Permanent>,
    /// Measured before, as `plan --before FILE` found it; for `verify` to compare with.
    pub before: Option<serde_json::Value>,
}

/// One value to be changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// Which part of the plan it belongs to.
    pub part: Part,
    /// Where.
    pub place: Place,
    /// Value now; `None`: not there yet.
    pub from: Option<String>,
    /// Value to be.
    pub to: String,
    /// What to try when the kernel does not take that value.
    pub otherwise: Option<String>,
    /// Why, in a clause.
    pub why: String,
    /// Whether everything is rolled back when it is refused; else the refusal is counted, and the next one made.
    pub needed: bool,
}

/// Parts of a plan, in the order in which they are applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// irqbalance leaves our interrupts alone.
    Irqbalance,
    /// Number of queues.
    Queues,
    /// Affinity of interrupts.
    Irqs,
    /// Steering in software: RPS, RFS, XPS, threads of NAPI.
    Steering,
    /// Cgroups.
    Cpusets,
    /// Threads that are pinned, and would lose that.
    Tasks,
}

/// What the reader should know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Note {
    /// How much it matters.
    pub weight: Weight,
    /// One sentence or two.
    pub text: String,
}

/// How much a note matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Weight {
    /// Something will be less than one might think.
    Warning,
    /// Not possible without a reboot, or not from here.
    Impossible,
    /// Good to know.
    Remark,
}

/// A setting that lasts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Permanent {
    /// Whose: `kubelet`, `systemd`, `irqbalance`, `queues`, `kernel command line`.
    pub whose: String,
    /// File that it goes into, or how it is run.
    pub place: String,
    /// What to write there.
    pub text: String,
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{why}")]
pub struct Refusal {
    /// Stable name of the rule, `exclusive-pod`.
    pub rule: &'static str,
    /// In a sentence, with the CPUs, pods, files.
    pub why: String,
    /// What the reader could do.
    pub help: Option<String>,
}

impl Plan {
    /// What [`Plan::format`] is.
    pub const FORMAT: &str = "spangap isolate plan 1";

    /// Decides.
    ///
    /// # Errors
    /// Every reason why this machine should not be changed so.
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

    /// Decides again after the number of queues was changed, and their interrupts were numbered anew: with the same
    /// CPUs, and with what was noted and measured before.
    ///
    /// # Errors
    /// Every reason why the machine, as it is now, should not be changed so.
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

/// Everything but which CPUs.
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

/// What could not be read could have changed the plan.
fn unread(draft: &mut Draft<'_>) {
    let errors = draft.topology.unknown.iter().filter(|error| !error.is_absent());
    let errors: Vec<String> = errors.map(ToString::to_string).collect();
    if !errors.is_empty() {
        let text = format!("Unknown, and therefore not planned for: {}.", draft::some_of(&errors));
        draft.note(Weight::Warning, text);
    }
}

/// What must still be changed for the plan to hold, although all its changes are made: cgroups that came meanwhile
/// with CPUs of the network, children before their parents. Empty when there is none. A cgroup that has no other CPUs
/// cannot be narrowed and is not among them: somebody gave it these while the plan was applied, and `verify` tells.
pub fn changes_for_new_groups(plan: &Plan, topology: &Topology) -> Vec<Change> {
    match topology.cpusets.as_ref().map(|cpusets| cpusets.version) {
        Some(Version::V1) if plan.policy.cpusets => cpusets_v1::for_new_groups(topology, &plan.net_cpus),
        Some(Version::V2) if plan.policy.cpusets => cpusets_v2::for_new_groups(topology, &plan.net_cpus),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
