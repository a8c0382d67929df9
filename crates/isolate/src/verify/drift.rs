//! Who undid a change, inferred by rules. A value does not show who wrote it, so most answers are only
//! probable.

use crate::place::Place;
use crate::rollback::{Standing, State};
use crate::topology::{Owner, Topology};
use serde::Serialize;

/// A value that is no longer as it was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Drift {
    /// Where.
    pub place: Place,
    /// Value written.
    pub wanted: String,
    /// Value found; `None` if the place is gone.
    pub found: Option<String>,
    /// Probable originator.
    pub who: Originator,
    /// Whether the kernel itself confirms it; otherwise it is inferred.
    pub certain: bool,
    /// Reasoning and remedy.
    pub why: String,
}

/// Possible originators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Originator {
    /// It redistributes interrupts every few seconds.
    Irqbalance,
    /// It writes the sets of containers.
    Kubelet,
    /// It writes the sets of its units.
    Systemd,
    /// It applies a profile.
    Tuned,
    /// The interface's driver.
    Driver,
    /// The kernel: a partition that became invalid.
    Kernel,
    /// No evidence points to anybody.
    Somebody,
}

impl Originator {
    /// Display name.
    pub fn name(self) -> &'static str {
        match self {
            Originator::Irqbalance => "irqbalance",
            Originator::Kubelet => "the kubelet",
            Originator::Systemd => "systemd",
            Originator::Tuned => "tuned",
            Originator::Driver => "the driver",
            Originator::Kernel => "the kernel",
            Originator::Somebody => "somebody",
        }
    }
}

impl Drift {
    /// `probably irqbalance`, `the kernel`.
    pub fn who_words(&self) -> String {
        match (self.certain, self.who) {
            (false, who) if who != Originator::Somebody => format!("probably {}", who.name()),
            (_, who) => who.name().to_owned(),
        }
    }

    /// In one line.
    pub fn words(&self) -> String {
        let found = match &self.found {
            Some(found) => format!("is {:?}, was set to {:?}", found.trim(), self.wanted.trim()),
            None => "is gone".to_owned(),
        };
        format!("{} {found}: {}, {}", self.place, self.who_words(), self.why)
    }
}

/// Values that are no longer as they were written, with the originator. Excludes normal ends: of a thread, or
/// of a container with its cgroup.
pub fn drift(standings: &[Standing], now: &Topology) -> Vec<Drift> {
    standings.iter().filter_map(|standing| one(standing, standings, now)).collect()
}

fn one(standing: &Standing, all: &[Standing], now: &Topology) -> Option<Drift> {
    let place = &standing.entry.place;
    let found = match &standing.state {
        State::Ours | State::Unknown { .. } => return None,
        State::Changed { found } => Some(found.clone()),
        State::Before => Some(standing.entry.old.clone().unwrap_or_else(|| "gone".into())),
        State::Gone => None,
    };
    let kind = Kind::of(place, now);
    if found.is_none() && kind.ends_by_itself() {
        return None;
    }
    let (who, certain, why) = who(&kind, standing, found.as_deref(), all, now);
    Some(Drift { place: place.clone(), wanted: standing.entry.new.clone(), found, who, certain, why })
}

/// Kind of a place, as far as it hints at the originator.
enum Kind<'a> {
    /// Affinity of an interrupt.
    Irq(u32),
    /// A file of an interface's queue, or the number of its queues.
    Queue(&'a str),
    /// A cgroup, or a file in it.
    Group {
        owner: Owner,
        path: &'a str,
    },
    /// Tasks of a cgroup, or a thread.
    Task,
    Banned,
    Service(&'a str),
    Other,
}

impl Kind<'_> {
    fn of<'a>(place: &'a Place, now: &Topology) -> Kind<'a> {
        match place {
            Place::File { path } => {
                let parts: Vec<&str> = path.split('/').collect();
                match parts.as_slice() {
                    ["", "proc", "irq", number, ..] => number.parse().map_or(Kind::Other, Kind::Irq),
                    ["", "sys", "class", "net", interface, "queues", ..] => Kind::Queue(interface),
                    _ => match path.rsplit_once('/') {
                        Some((folder, _)) => group(folder, now),
                        None => Kind::Other,
                    },
                }
            }
            Place::Group { path } => group(path, now),
            Place::Tasks { .. } | Place::Affinity { .. } => Kind::Task,
            Place::Queues { interface } => Kind::Queue(interface),
            Place::BannedIrqs => Kind::Banned,
            Place::Service { name } => Kind::Service(name),
        }
    }

    fn ends_by_itself(&self) -> bool {
        match self {
            Kind::Task => true,
            Kind::Group { owner, .. } => !matches!(owner, Owner::Ours | Owner::Root),
            _ => false,
        }
    }
}

/// A cgroup by its folder. A vanished one is not in the topology, but its path reveals the owner.
fn group<'a>(folder: &'a str, now: &Topology) -> Kind<'a> {
    let Some(cpusets) = &now.cpusets else { return Kind::Other };
    let Some(below) = folder.strip_prefix(cpusets.mount.as_str()) else { return Kind::Other };
    let path = if below.is_empty() { "/" } else { below };
    let there = cpusets.groups.iter().find(|group| group.path == path).map(|group| group.owner.clone());
    let last = path.rsplit('/').next().unwrap_or(path);
    let owner = there.unwrap_or_else(|| {
        let is_unit = [".slice", ".service", ".scope"].iter().any(|end| last.ends_with(end));
        match path {
            _ if last.starts_with("spangap-") => Owner::Ours,
            _ if path.contains("kubepods") => Owner::Kubelet { pod: None, container: None },
            _ if is_unit => Owner::Systemd { unit: last.to_owned() },
            _ => Owner::Other,
        }
    });
    Kind::Group { owner, path }
}

fn who(
    kind: &Kind<'_>,
    standing: &Standing,
    found: Option<&str>,
    all: &[Standing],
    now: &Topology,
) -> (Originator, bool, String) {
    let inferred = |who, why: String| (who, false, why);
    match kind {
        Kind::Irq(irq) => of_irq(*irq, standing, all, now),
        Kind::Queue(interface) => match now.interface(interface) {
            None => inferred(Originator::Somebody, format!("{interface} no longer exists")),
            Some(_) if found.is_none() => {
                inferred(Originator::Driver, format!("{interface} has other queues than before: plan again"))
            }
            Some(_) if interface_was_reset(interface, all) => {
                inferred(Originator::Driver, reset_why(interface, now))
            }
            Some(_) => or_tuned(now, "nothing running here is known to change it".into()),
        },
        Kind::Group { owner, path } => match owner {
            Owner::Ours | Owner::Other | Owner::Root
                if found.is_some_and(|found| found.contains("invalid")) =>
            {
                let why = found.and_then(reason);
                let why = why.map_or("without a reason".to_owned(), |why| format!("which says: {why}"));
                (Originator::Kernel, true, why)
            }
            Owner::Ours if found.is_none_or(|found| found == "gone") => {
                inferred(Originator::Somebody, format!("{path} was removed"))
            }
            Owner::Kubelet { .. } => {
                let managed = now.kubelet.as_ref().map_or(String::new(), |kubelet| {
                    format!(" (policy {}, shared pool {})", kubelet.policy, kubelet.shared)
                });
                inferred(
                    Originator::Kubelet,
                    format!(
                        "it writes the sets of containers when its shared pool changes and when it starts{managed}: \
                         reservedSystemCPUs keeps it off"
                    ),
                )
            }
            Owner::Systemd { unit } => inferred(
                Originator::Systemd,
                format!("daemon-reload rewrites the sets of its units: AllowedCPUs= of {unit} keeps it"),
            ),
            _ => or_tuned(now, format!("{path} does not belong to a known program")),
        },
        Kind::Banned => match &now.irqbalance {
            Some(irqbalance) => inferred(
                Originator::Irqbalance,
                format!(
                    "restarted (process {}), it has forgotten what its socket was told: IRQBALANCE_BANNED_CPULIST \
                     lasts",
                    irqbalance.pid
                ),
            ),
            None => inferred(Originator::Somebody, "irqbalance is no longer running".into()),
        },
        Kind::Service(name) if found == Some("running") => inferred(
            Originator::Somebody,
            format!("{name} was restarted: `systemctl mask {name}` keeps it stopped"),
        ),
        Kind::Task | Kind::Service(_) | Kind::Other => {
            or_tuned(now, "nothing running here is known to change it".into())
        }
    }
}

/// Why a partition is invalid: `isolated invalid (Cpu list in cpuset.cpus not exclusive)`.
fn reason(state: &str) -> Option<&str> {
    let (_, rest) = state.split_once('(')?;
    Some(rest.trim_end().trim_end_matches(')'))
}

fn or_tuned(now: &Topology, why: String) -> (Originator, bool, String) {
    match &now.tuned {
        Some(tuned) => {
            let profile = tuned.profile.as_deref().unwrap_or("unknown");
            let why = format!("which runs (process {}, profile {profile}) and sets such values", tuned.pid);
            (Originator::Tuned, false, why)
        }
        None => (Originator::Somebody, false, why),
    }
}

fn of_irq(irq: u32, standing: &Standing, all: &[Standing], now: &Topology) -> (Originator, bool, String) {
    let interface = standing.entry.irq.as_ref().and_then(|name| name.interface.clone());
    let by_number = now.interfaces.iter().find(|interface| interface.irqs.iter().any(|own| own.irq == irq));
    let interface = interface.or(by_number.map(|interface| interface.name.clone()));
    if standing.state == State::Gone {
        let interface = interface.unwrap_or_else(|| "the interface".into());
        let why = format!(
            "{interface} has other interrupts than before, as after a reset or another number of queues: plan again"
        );
        return (Originator::Driver, false, why);
    }
    if let Some(irqbalance) = &now.irqbalance {
        let pid = irqbalance.pid;
        match &irqbalance.banned {
            Some(banned) if banned.contains(&irq) => {}
            Some(_) => {
                return (
                    Originator::Irqbalance,
                    false,
                    format!("which runs (process {pid}) and does not leave IRQ {irq} alone"),
                );
            }
            None => {
                return (
                    Originator::Irqbalance,
                    false,
                    format!(
                        "which runs (process {pid}), and does not tell whether it leaves IRQ {irq} alone"
                    ),
                );
            }
        }
    }
    if let Some(interface) = interface.filter(|interface| interface_was_reset(interface, all)) {
        return (Originator::Driver, false, reset_why(&interface, now));
    }
    or_tuned(now, "nothing running here is known to change it".into())
}

/// Whether all values written for an interface's interrupts, at least two, have changed: a driver that resets
/// them does not skip single ones.
fn interface_was_reset(interface: &str, all: &[Standing]) -> bool {
    let mut of_it = all
        .iter()
        .filter(|standing| {
            standing.entry.irq.as_ref().and_then(|name| name.interface.as_deref()) == Some(interface)
        })
        .map(|standing| standing.state != State::Ours)
        .peekable();
    let mut irqs = 0;
    of_it.peek().is_some()
        && of_it.all(|changed| {
            irqs += 1;
            changed
        })
        && irqs >= 2
}

fn reset_why(interface: &str, now: &Topology) -> String {
    let driver = now.interface(interface).and_then(|interface| interface.driver.clone());
    let driver = driver.map_or(String::new(), |driver| format!(" ({driver})"));
    format!(
        "all interrupts of {interface}{driver} were reassigned, as after a reset, a change of the number of queues, \
         or a CPU switched on or off"
    )
}

#[cfg(test)]
mod tests;
