//! The applied plan, its current state, and what has changed since the last check.

use super::drift::{Drift, drift};
use crate::journal::{Journal, Record};
use crate::place::Place;
use crate::plan::{Part, Plan, changes_for_new_groups};
use crate::rollback::{Standing, State};
use crate::topology::Topology;
use serde::Serialize;
use spangap_model::Cpus;
use spangap_undo::Damage;
use std::path::PathBuf;

/// Status of the applied plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Status {
    /// Overall state.
    pub state: Applied,
    /// Its journal; `None` if nothing is applied.
    pub journal: Option<PathBuf>,
    /// The applied plan.
    pub plan: Option<Summary>,
    /// Start of the execution.
    pub begun_unix_ns: Option<u64>,
    /// End of the execution.
    pub applied_unix_ns: Option<u64>,
    /// Time of the confirmation.
    pub confirmed_unix_ns: Option<u64>,
    /// Deadline of the automatic rollback, to within the moments that starting it took; only until the
    /// confirmation.
    pub until_unix_ns: Option<u64>,
    pub guard: Option<Guard>,
    /// State of the values, by part.
    pub parts: Vec<PartStanding>,
    /// Optional changes that the kernel refused.
    pub refused: Vec<Refused>,
    /// Unreadable values, and why.
    pub unreadable: Vec<Refused>,
    /// Values that are no longer as they were written, and the originators.
    pub drift: Vec<Drift>,
    /// Cgroups created since with CPUs of the network.
    pub came: Vec<String>,
    /// The rollback of this plan, as far as possible, or of the previous one.
    pub rolled_back: Option<RolledBack>,
    /// Unreadable parts of the journal.
    pub damage: Vec<Damage>,
}

/// Overall state of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Applied {
    /// No plan.
    Nothing,
    /// The execution started but did not finish.
    Unfinished,
    /// Applied, to be rolled back soon unless confirmed.
    Waiting,
    /// Applied, without an automatic rollback.
    Applied,
    /// Applied and confirmed.
    Confirmed,
    /// Rolled back, except for values that others had changed.
    RolledBack,
    /// Applied in an earlier boot: nothing of it is left.
    AnotherBoot,
}

/// Summary of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Summary {
    pub interfaces: Vec<String>,
    /// CPUs of the network.
    pub net_cpus: Cpus,
    /// All other CPUs.
    pub app_cpus: Cpus,
}

/// The guard, which rolls back an unconfirmed plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Guard {
    pub pid: u32,
    /// Whether it still runs.
    pub alive: bool,
}

/// State of the values of one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PartStanding {
    pub part: Part,
    /// As they were written.
    pub held: usize,
    /// As they were before: never written, or restored.
    pub before: usize,
    /// Changed by somebody else.
    pub changed: usize,
    /// The place no longer exists.
    pub gone: usize,
    /// Unreadable.
    pub unknown: usize,
    /// Refused by the kernel.
    pub refused: usize,
}

/// A place that the kernel refused to write, or to read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// Where.
    pub place: Place,
    /// The kernel's error.
    pub why: String,
}

/// A rollback.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RolledBack {
    /// Time, in nanoseconds since 1970.
    pub time_unix_ns: u64,
    /// Originator.
    pub by: String,
    /// Places left alone.
    pub left: Vec<Place>,
}

/// Everything known about an open journal.
#[derive(Clone, Copy, Debug)]
pub struct Open<'a> {
    pub path: &'a std::path::Path,
    /// Content.
    pub journal: &'a Journal,
    /// Current state of its values.
    pub standings: &'a [Standing],
    /// The machine.
    pub now: &'a Topology,
    /// Whether its guard runs.
    pub guard_alive: bool,
    /// Whether it stems from another boot.
    pub another_boot: bool,
}

impl Status {
    /// Nothing is applied; `last` is the journal of the previous plan.
    pub fn nothing(last: Option<&Journal>) -> Status {
        Status {
            state: Applied::Nothing,
            journal: None,
            plan: None,
            begun_unix_ns: None,
            applied_unix_ns: None,
            confirmed_unix_ns: None,
            until_unix_ns: None,
            guard: None,
            parts: Vec::new(),
            refused: Vec::new(),
            unreadable: Vec::new(),
            drift: Vec::new(),
            came: Vec::new(),
            rolled_back: last.and_then(RolledBack::of),
            damage: Vec::new(),
        }
    }

    /// A journal is open.
    pub fn new(open: &Open<'_>) -> Status {
        let journal = open.journal;
        let plan = &journal.head.plan;
        let (applied, confirmed) = (journal.applied(), journal.confirmed());
        let rolled_back = RolledBack::of(journal);
        if !open.another_boot
            && journal.is_whole()
            && rolled_back.as_ref().is_some_and(|undone| undone.left.is_empty())
        {
            // Everything is undone; the journal is about to be put aside.
            return Status::nothing(Some(journal));
        }
        let state = match (open.another_boot, &rolled_back, applied, confirmed) {
            (true, ..) => Applied::AnotherBoot,
            (_, Some(_), ..) => Applied::RolledBack,
            (_, _, None, _) => Applied::Unfinished,
            (_, _, _, Some(_)) => Applied::Confirmed,
            _ if journal.head.confirm_within_ns.is_some() => Applied::Waiting,
            _ => Applied::Applied,
        };
        let stands = !matches!(state, Applied::AnotherBoot);
        let standings = if stands { open.standings } else { &[] };
        let waits = matches!(state, Applied::Waiting | Applied::Unfinished);
        // A value that was never written, or was undone on purpose, has no originator.
        let judged = matches!(state, Applied::Waiting | Applied::Applied | Applied::Confirmed);
        Status {
            state,
            journal: Some(open.path.to_owned()),
            plan: Some(Summary {
                interfaces: plan.policy.interfaces.clone(),
                net_cpus: plan.net_cpus.clone(),
                app_cpus: plan.app_cpus.clone(),
            }),
            begun_unix_ns: Some(journal.head.time_unix_ns),
            applied_unix_ns: applied,
            confirmed_unix_ns: confirmed,
            until_unix_ns: journal
                .head
                .confirm_within_ns
                .filter(|_| waits)
                .map(|within| journal.head.time_unix_ns.saturating_add(within)),
            guard: journal
                .guard()
                .filter(|_| waits)
                .map(|guard| Guard { pid: guard.pid, alive: open.guard_alive }),
            parts: parts(plan, journal, standings),
            refused: refused(journal),
            unreadable: unreadable(standings),
            drift: if judged { drift(standings, open.now) } else { Vec::new() },
            came: if judged { came(plan, open.now) } else { Vec::new() },
            rolled_back,
            damage: journal.damage.clone(),
        }
    }

    /// Whether any value is no longer as it was written, or a cgroup was created since.
    pub fn drifted(&self) -> bool {
        !self.drift.is_empty() || !self.came.is_empty()
    }

    /// Number of values as they were written, and of all known values.
    pub fn held(&self) -> (usize, usize) {
        let held = self.parts.iter().map(|part| part.held).sum();
        let rest: usize =
            self.parts.iter().map(|part| part.before + part.changed + part.gone + part.unknown).sum();
        (held, held + rest)
    }
}

impl RolledBack {
    fn of(journal: &Journal) -> Option<RolledBack> {
        let (time_unix_ns, by, left) = journal.rolled_back()?;
        Some(RolledBack { time_unix_ns, by: by.to_owned(), left: left.to_vec() })
    }
}

fn refused(journal: &Journal) -> Vec<Refused> {
    let refused = journal.records.iter().filter_map(|record| match record {
        Record::Refused { place, why } => Some(Refused { place: place.clone(), why: why.clone() }),
        _ => None,
    });
    refused.collect()
}

fn unreadable(standings: &[Standing]) -> Vec<Refused> {
    let unreadable = standings.iter().filter_map(|standing| match &standing.state {
        State::Unknown { why } => Some(Refused { place: standing.entry.place.clone(), why: why.clone() }),
        _ => None,
    });
    unreadable.collect()
}

/// Cgroups that the plan would have to narrow, but does not contain.
fn came(plan: &Plan, now: &Topology) -> Vec<String> {
    let mut groups: Vec<String> = changes_for_new_groups(plan, now)
        .iter()
        .filter_map(|change| match &change.place {
            Place::File { path } => path.rsplit_once('/').map(|(folder, _)| folder.to_owned()),
            Place::Group { path } => Some(path.clone()),
            _ => None,
        })
        .collect();
    groups.sort_unstable();
    groups.dedup();
    groups
}

/// The part that a place belongs to: from the plan or, failing that, from its kind.
pub fn part_of(plan: &Plan, place: &Place) -> Part {
    let planned = plan.changes.iter().find(|change| change.place == *place).map(|change| change.part);
    planned.unwrap_or(match place {
        Place::File { path } if path.starts_with("/proc/irq/") => Part::Irqs,
        Place::File { path } if path.starts_with("/sys/class/net/") => Part::Steering,
        Place::File { path } if path.starts_with("/proc/sys/net/") => Part::Steering,
        Place::File { .. } | Place::Group { .. } | Place::Tasks { .. } => Part::Cpusets,
        Place::Affinity { comm, .. } if comm.starts_with("napi/") => Part::Steering,
        Place::Affinity { .. } => Part::Tasks,
        Place::Queues { .. } => Part::Queues,
        Place::BannedIrqs | Place::Service { .. } => Part::Irqbalance,
    })
}

fn parts(plan: &Plan, journal: &Journal, standings: &[Standing]) -> Vec<PartStanding> {
    let mut parts: Vec<PartStanding> = Vec::new();
    let mut count = |place: &Place, of: fn(&mut PartStanding) -> &mut usize| {
        let part = part_of(plan, place);
        let at = parts.iter().position(|known| known.part == part).unwrap_or_else(|| {
            let none = PartStanding { part, held: 0, before: 0, changed: 0, gone: 0, unknown: 0, refused: 0 };
            parts.push(none);
            parts.len() - 1
        });
        *of(&mut parts[at]) += 1;
    };
    for standing in standings {
        let of: fn(&mut PartStanding) -> &mut usize = match standing.state {
            State::Ours => |part| &mut part.held,
            State::Before => |part| &mut part.before,
            State::Changed { .. } => |part| &mut part.changed,
            State::Gone => |part| &mut part.gone,
            State::Unknown { .. } => |part| &mut part.unknown,
        };
        count(&standing.entry.place, of);
    }
    for refused in refused(journal) {
        count(&refused.place, |part| &mut part.refused);
    }
    parts.sort_by_key(|part| part.part);
    parts
}

/// A change between two checks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Event {
    /// Time of the check, in nanoseconds since 1970.
    pub time_unix_ns: u64,
    /// Stable name.
    pub event: &'static str,
    /// Description in a sentence.
    pub words: String,
    /// The value that is no longer as it was written, or is so again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drift: Option<Drift>,
}

/// Changes from one check to the next.
pub fn events(before: &Status, after: &Status, time_unix_ns: u64) -> Vec<Event> {
    let mut events = Vec::new();
    let mut tell = |event, words: String, drift: Option<&Drift>| {
        events.push(Event { time_unix_ns, event, words, drift: drift.cloned() });
    };
    if before.state != after.state || before.begun_unix_ns != after.begun_unix_ns {
        let (event, words) = match after.state {
            Applied::Nothing => match &after.rolled_back {
                Some(undone) => ("rolled_back", format!("undone by {}", undone.by)),
                None => ("nothing", "nothing is applied any longer".to_owned()),
            },
            Applied::RolledBack => ("rolled_back", "undone, except for what others had changed".to_owned()),
            Applied::Unfinished => ("begun", "a plan is being applied".to_owned()),
            Applied::Waiting => ("applied", "a plan is applied, and waits for its confirmation".to_owned()),
            Applied::Applied => ("applied", "a plan is applied".to_owned()),
            Applied::Confirmed => ("confirmed", "it was told to stay".to_owned()),
            Applied::AnotherBoot => ("another_boot", "the machine was rebooted".to_owned()),
        };
        tell(event, words, None);
    }
    let same = |one: &Drift, other: &Drift| one.place == other.place && one.found == other.found;
    for drift in &after.drift {
        if !before.drift.iter().any(|known| same(known, drift)) {
            tell("drift", drift.words(), Some(drift));
        }
    }
    for drift in before.drift.iter().filter(|_| after.state == before.state) {
        if !after.drift.iter().any(|known| known.place == drift.place) {
            tell("held_again", format!("{} is as it was written again", drift.place), Some(drift));
        }
    }
    for group in after.came.iter().filter(|group| !before.came.contains(group)) {
        tell("cgroup_came", format!("{group} is new, with CPUs of the network"), None);
    }
    let ended = |status: &Status| status.guard.is_some_and(|guard| !guard.alive);
    if ended(after) && !ended(before) {
        tell("guard_ended", "the guard has exited: nothing undoes it in time".to_owned(), None);
    }
    events
}

#[cfg(test)]
mod tests;
