//! One value after the other: compare, record, write, read back.

use super::pinned_affinities::PinnedAffinities;
use super::{Applied, ApplyError, Step};
use crate::journal::{Entry, IrqName, Record, Writer};
use crate::kernel::{Kernel, PlaceError, WriteEffects};
use crate::place::Place;
use crate::plan::{Change, Part, Plan};
use crate::topology::Topology;
use std::collections::HashMap;
use std::io;

/// Maximum number of rescans for tasks forked during a move, and for groups created during narrowing.
pub const ROUNDS: u32 = 64;

/// A plan in execution.
pub struct Run<'a> {
    pub kernel: &'a dyn Kernel,
    journal: &'a mut Writer,
    stop: &'a dyn Fn() -> bool,
    pub tell: &'a mut dyn FnMut(Step<'_>),
    pub applied: Applied,
    /// Latest journal entry of each place.
    recorded: HashMap<Place, Entry>,
    refusals: Vec<Record>,
}

/// Outcome of one write.
pub enum Attempt {
    /// The value was written.
    Done(WriteEffects),
    /// The place already had the value.
    Already,
    /// The thread ended, or the group was removed.
    Gone,
    /// The value was not accepted.
    Not(Failure),
}

/// Reason for a value not to be accepted.
pub enum Failure {
    /// The kernel refused.
    Refused(PlaceError),
    /// The kernel accepted it, but reading it back yields another value.
    Another { place: Place, written: String, found: Option<String> },
}

impl Failure {
    /// A copy has neither tasks nor services; everything else of a plan can be executed there.
    fn for_want_of_tasks(&self) -> bool {
        let Failure::Refused(error) = self else { return false };
        let of_tasks =
            matches!(error.place, Place::Tasks { .. } | Place::Affinity { .. } | Place::Service { .. });
        of_tasks && error.source.kind() == io::ErrorKind::Unsupported
    }

    fn why(&self) -> String {
        match self {
            Failure::Refused(error) => error.to_string(),
            Failure::Another { found: Some(found), .. } => format!("it reads {found:?}"),
            Failure::Another { found: None, .. } => "it is gone".into(),
        }
    }
}

impl From<Failure> for ApplyError {
    fn from(failure: Failure) -> ApplyError {
        match failure {
            Failure::Refused(error) => ApplyError::Place(error),
            Failure::Another { place, written, found } => ApplyError::NotTaken { place, written, found },
        }
    }
}

impl<'a> Run<'a> {
    pub fn new(
        kernel: &'a dyn Kernel,
        plan: &Plan,
        journal: &'a mut Writer,
        stop: &'a dyn Fn() -> bool,
        tell: &'a mut dyn FnMut(Step<'_>),
    ) -> Run<'a> {
        let applied = Applied {
            plan: plan.clone(),
            changed: 0,
            already: 0,
            refused: Vec::new(),
            came_meanwhile: 0,
            gone: Vec::new(),
            tasks: WriteEffects::default(),
        };
        Run { kernel, journal, stop, tell, applied, recorded: HashMap::new(), refusals: Vec::new() }
    }

    /// Whether the machine still matches the plan. Vanished places do not require a new plan. Neither does an
    /// interrupt that irqbalance moved, if the plan stops it from doing so.
    pub fn compare(&self, changes: &[Change]) -> Result<(), ApplyError> {
        let wandering = self.applied.plan.changes.iter().any(|change| change.part == Part::Irqbalance);
        for change in changes {
            if matches!(change.place, Place::Tasks { .. }) {
                continue;
            }
            let found = self.kernel.get(&change.place)?;
            let same = match (&change.from, &found) {
                (Some(_), Some(_)) if wandering && change.place.irq().is_some() => true,
                (Some(from), Some(found)) => change.place.same(from, found),
                (Some(_), None) => change.place.comes_and_goes(),
                (from, found) => from == found,
            };
            if !same {
                let (place, planned) = (change.place.clone(), change.from.clone());
                return Err(ApplyError::Stale { place, planned, found });
            }
        }
        Ok(())
    }

    /// Executes all remaining steps: compare, record in one go, write, and hold.
    pub fn all(&mut self, topology: &Topology, changes: &[Change]) -> Result<(), ApplyError> {
        self.compare(changes)?;
        let held = PinnedAffinities::of_threads(self.kernel, topology, &self.applied.plan, changes)?;
        self.write(&held.records())?;
        self.record(topology, changes)?;
        let of = |part: Part| changes.iter().filter(move |change| change.part == part);
        for part in [Part::Irqbalance, Part::Queues, Part::Irqs, Part::Steering, Part::Cpusets] {
            self.make_each(of(part))?;
            if part == Part::Irqs {
                self.some_interrupts_moved(topology, changes)?;
            }
        }
        let of_groups = of(Part::Cpusets).next().is_some();
        if of_groups {
            self.settle()?;
        }
        self.make_each(of(Part::Tasks))?;
        self.hold(&held)?;
        // Groups also appear while tasks are moved and threads are pinned again; narrowing them may reset a
        // thread's affinity once more.
        for _ in 0..ROUNDS {
            if !of_groups || !self.settle()? {
                break;
            }
            self.hold(&held)?;
        }
        let refusals = std::mem::take(&mut self.refusals);
        self.write(&refusals)
    }

    /// Reapplies the affinity of threads that lost it.
    fn hold(&mut self, held: &PinnedAffinities) -> Result<(), ApplyError> {
        for lost in held.lost(self.kernel) {
            let (place, cpus) = lost?;
            if let Err(error) = self.kernel.set(place, cpus)
                // A thread that ended in the meantime needs no CPUs.
                && self.kernel.get(place)?.is_some()
            {
                let why = error.to_string();
                self.write(&[Record::Refused { place: place.clone(), why: why.clone() }])?;
                self.applied.refused.push((place.clone(), why));
            }
        }
        Ok(())
    }

    /// The rest is a new plan now.
    pub fn planned_again(&mut self, made: &[Change], mut again: Plan) {
        again.changes.retain(|change| change.part != Part::Queues);
        (self.tell)(Step::PlannedAgain(&again));
        again.changes.splice(0..0, made.iter().cloned());
        again.planned_again_after_queues = true;
        self.applied.plan = again;
    }

    /// Settings that these interfaces' drivers reset when the number of queues changes: affinities of
    /// interrupts, and packet steering.
    pub fn hold_queues(&mut self, topology: &Topology, changes: &[Change]) -> Result<(), ApplyError> {
        let mut records = Vec::new();
        for change in changes {
            let Place::Queues { interface: name } = &change.place else { continue };
            let Some(interface) = topology.interface(name) else { continue };
            let irqs = interface.irqs.iter().map(|irq| format!("/proc/irq/{}/smp_affinity_list", irq.irq));
            let value = |kind: &str, queue: u32, value: &str| {
                format!("/sys/class/net/{name}/queues/{kind}-{queue}/{value}")
            };
            let rx = interface
                .rx
                .iter()
                .flat_map(|rx| ["rps_cpus", "rps_flow_cnt"].map(|name| value("rx", rx.queue, name)));
            let tx = interface.tx.iter().map(|tx| value("tx", tx.queue, "xps_cpus"));
            for place in irqs.chain(rx).chain(tx).map(Place::file) {
                // A setting that cannot be read could not be restored either.
                let Ok(Some(old)) = self.kernel.get(&place) else { continue };
                let irq = irq_name(topology, &place);
                records.push(Record::Change(Entry { place, new: old.clone(), old: Some(old), irq }));
            }
        }
        self.write(&records)
    }

    /// Journals the current values of all these places in one write.
    pub fn record(&mut self, topology: &Topology, changes: &[Change]) -> Result<(), ApplyError> {
        let mut records = self.unchanged(topology, changes);
        for change in changes {
            let place = &change.place;
            let old = match place {
                Place::Tasks { .. } => Some("back".to_owned()),
                _ => self.kernel.get(place)?,
            };
            let gone = old.is_none() && change.from.is_some();
            if gone || old.as_deref().is_some_and(|old| place.same(old, &change.to)) {
                continue;
            }
            let (new, irq) = (change.to.clone(), irq_name(topology, place));
            let entry = Entry { place: place.clone(), old, new, irq };
            self.recorded.insert(place.clone(), entry.clone());
            records.push(Record::Change(entry));
        }
        self.write(&records)
    }

    pub fn write(&mut self, records: &[Record]) -> Result<(), ApplyError> {
        Ok(self.journal.write(records)?)
    }

    pub fn make_each<'c>(&mut self, changes: impl IntoIterator<Item = &'c Change>) -> Result<(), ApplyError> {
        changes.into_iter().try_for_each(|change| self.make(change))
    }

    fn make(&mut self, change: &Change) -> Result<(), ApplyError> {
        let mut failure = loop_while_groups_come(self, change)?;
        if let (Some(first), Some(otherwise)) = (&failure, &change.otherwise) {
            // The current value may be ours, half applied; the original one is already in the journal.
            let why = format!("{}; {:?} was not taken: {}", change.why, change.to, first.why());
            let change = Change { to: otherwise.clone(), otherwise: None, why, ..change.clone() };
            failure = loop_while_groups_come(self, &change)?;
        }
        match failure {
            None => Ok(()),
            Some(failure) if change.needed && !failure.for_want_of_tasks() => Err(failure.into()),
            Some(failure) => {
                self.refused(change, &failure);
                Ok(())
            }
        }
    }

    pub fn refused(&mut self, change: &Change, failure: &Failure) {
        let why = failure.why();
        (self.tell)(Step::Refused(change, &why));
        self.refusals.push(Record::Refused { place: change.place.clone(), why: why.clone() });
        self.applied.refused.push((change.place.clone(), why));
    }

    /// Performs one write, and reports and counts it unless it was not accepted.
    pub fn attempt(&mut self, change: &Change) -> Result<Attempt, ApplyError> {
        let attempt = match &change.place {
            Place::Tasks { .. } => self.move_tasks(change)?,
            _ => self.put(change)?,
        };
        match &attempt {
            Attempt::Done(written) => {
                self.applied.changed += 1;
                (self.tell)(Step::Changed(change, *written));
            }
            // Another change of ours had this side effect: the affinity of a thread whose group was narrowed.
            Attempt::Already if self.recorded.contains_key(&change.place) && !is_of_tasks(&change.place) => {
                self.applied.changed += 1;
                (self.tell)(Step::Changed(change, WriteEffects::default()));
            }
            Attempt::Already => {
                self.applied.already += 1;
                (self.tell)(Step::AlreadySo(change));
            }
            Attempt::Gone => self.applied.gone.push(change.place.clone()),
            Attempt::Not(_) => {}
        }
        Ok(attempt)
    }

    fn put(&mut self, change: &Change) -> Result<Attempt, ApplyError> {
        let place = &change.place;
        let gone = |found: &Option<String>| {
            found.is_none() && change.from.is_some() && change.place.comes_and_goes()
        };
        let found = self.kernel.get(place)?;
        if gone(&found) {
            return Ok(Attempt::Gone);
        }
        if found.as_deref().is_some_and(|found| place.same(found, &change.to)) {
            return Ok(Attempt::Already);
        }
        self.told_to_stop()?;
        self.record_anew(change, &found)?;
        let written = match self.kernel.set(place, &change.to) {
            Ok(written) => written,
            // It may have vanished a moment ago.
            Err(error) => {
                let gone = self.kernel.get(place).is_ok_and(|found| gone(&found));
                return Ok(if gone { Attempt::Gone } else { Attempt::Not(Failure::Refused(error)) });
            }
        };
        let found = self.kernel.get(place)?;
        match found.as_deref() {
            Some(now) if place.same(now, &change.to) => Ok(Attempt::Done(written)),
            _ if gone(&found) => Ok(Attempt::Gone),
            _ => {
                let (place, written) = (place.clone(), change.to.clone());
                Ok(Attempt::Not(Failure::Another { place, written, found }))
            }
        }
    }

    /// Journals a value again, because somebody else may have written since, and because an alternative value
    /// may follow a refused one.
    fn record_anew(&mut self, change: &Change, found: &Option<String>) -> Result<(), ApplyError> {
        let (place, recorded) = (change.place.clone(), self.recorded.get(&change.place));
        // A file that did not exist belongs to a group created since, and vanishes with it. A pinned thread has
        // lost its affinity to the changes of its cgroup.
        let ours = |entry: &Entry| entry.old.is_none() || matches!(change.place, Place::Affinity { .. });
        let as_recorded = |entry: &Entry| entry.new == change.to && (entry.old == *found || ours(entry));
        if recorded.is_some_and(as_recorded) {
            return Ok(());
        }
        let irq = recorded.and_then(|entry| entry.irq.clone());
        let entry = Entry { place, old: found.clone(), new: change.to.clone(), irq };
        self.write(&[Record::Change(entry.clone())])?;
        self.recorded.insert(change.place.clone(), entry);
        Ok(())
    }

    /// Moves tasks until no movable one is left: unmoved tasks may fork in the meantime.
    pub fn move_tasks(&mut self, change: &Change) -> Result<Attempt, ApplyError> {
        let mut all = WriteEffects::default();
        for _ in 0..ROUNDS {
            self.told_to_stop()?;
            let written = match self.kernel.set(&change.place, &change.to) {
                Ok(written) => written,
                Err(error) => return Ok(Attempt::Not(Failure::Refused(error))),
            };
            all.tasks_moved += written.tasks_moved;
            all.tasks_refused = written.tasks_refused;
            if written.tasks_moved == 0 {
                break;
            }
        }
        self.applied.tasks.tasks_moved += all.tasks_moved;
        self.applied.tasks.tasks_refused = all.tasks_refused;
        Ok(if all.tasks_moved > 0 { Attempt::Done(all) } else { Attempt::Already })
    }

    fn told_to_stop(&self) -> Result<(), ApplyError> {
        if (self.stop)() { Err(ApplyError::Interrupted) } else { Ok(()) }
    }

    /// Without a single moved queue interrupt, an interface gains nothing.
    fn some_interrupts_moved(&self, topology: &Topology, changes: &[Change]) -> Result<(), ApplyError> {
        for interface in &self.applied.plan.policy.interfaces {
            let irqs = topology.interface(interface).into_iter().flat_map(|interface| &interface.irqs);
            let mut why = None;
            let stays = irqs.filter(|irq| irq.queue.is_some()).all(|irq| {
                let of_it = |place: &Place| place.irq() == Some(irq.irq);
                let refused = self.applied.refused.iter().find(|(place, _)| of_it(place));
                why = why.take().or(refused.map(|(_, why)| why.clone()));
                // A queue without a change is already where it should be.
                refused.is_some() && changes.iter().any(|change| of_it(&change.place))
            });
            if let (true, Some(why)) = (stays, why) {
                return Err(ApplyError::NoInterrupt { interface: interface.clone(), why });
            }
        }
        Ok(())
    }
}

fn is_of_tasks(place: &Place) -> bool {
    matches!(place, Place::Tasks { .. })
}

/// Retries until the value is accepted, or no newly created cgroup stands in its way.
fn loop_while_groups_come(run: &mut Run<'_>, change: &Change) -> Result<Option<Failure>, ApplyError> {
    for round in 1.. {
        match run.attempt(change)? {
            Attempt::Not(failure) => {
                let in_group = change.place.in_group().is_some();
                if !in_group || round > ROUNDS || !run.narrow_those_that_came()? {
                    return Ok(Some(failure));
                }
            }
            _ => break,
        }
    }
    Ok(None)
}

fn irq_name(topology: &Topology, place: &Place) -> Option<IrqName> {
    let number = place.irq()?;
    let irq = topology.irqs.iter().find(|irq| irq.number == number)?;
    let of = topology.interfaces.iter().find(|interface| interface.irqs.iter().any(|irq| irq.irq == number));
    Some(IrqName { name: irq.name.clone(), interface: of.map(|interface| interface.name.clone()) })
}
