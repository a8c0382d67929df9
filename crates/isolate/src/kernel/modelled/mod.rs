//! A machine in memory that follows the kernel's rules, for tests: it refuses what the kernel refuses, has the
//! same side effects, and lets others act between any two writes.
//!
//! The rules follow `kernel/cgroup/cpuset.c` (6.1 and 6.12), `kernel/irq/proc.c` and `net/core/net-sysfs.c`, as
//! far as a plan encounters them, and observations on such machines.

mod cgroups;
mod devices;
mod generated;
mod render;
mod tasks;

pub(crate) use generated::{Flavour, generated};

use super::{Kernel, PlaceError, WriteEffects};
use crate::place::Place;
use crate::topology::{Irqbalance, PinnedTask, Queues, Topology};
use rustix::io::Errno;
use spangap_machine::{Host, Kept};
use spangap_model::Cpus;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

/// A machine.
#[derive(Debug)]
pub(crate) struct Modelled {
    pub state: RefCell<State>,
    /// Actions of others, by the number of the write that they precede.
    others: RefCell<Vec<(u64, Act)>>,
    /// Number of writes so far, each task and file counted separately.
    pub writes: Cell<u64>,
    /// Number of the write before which the process is killed.
    pub killed_at: Cell<Option<u64>>,
}

/// The complete observable state.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct State {
    pub flavour: Flavour,
    pub online: Cpus,
    /// Files that nothing changes.
    pub files: BTreeMap<String, String>,
    pub groups: BTreeMap<String, Group>,
    /// Version 2: whether the root's children have the controller.
    pub enabled: bool,
    pub tasks: BTreeMap<u32, Task>,
    pub irqs: BTreeMap<u32, Irq>,
    pub interfaces: BTreeMap<String, Interface>,
    /// List of a running irqbalance.
    pub banned: Option<BTreeSet<u32>>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Group {
    pub cpus: Cpus,
    pub mems: Cpus,
    pub exclusive: bool,
    pub balanced: bool,
    /// Version 2.
    pub effective: Cpus,
    pub partition: Partition,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Partition {
    #[default]
    Member,
    Valid(String),
    Invalid(String),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Task {
    pub comm: String,
    pub kernel: bool,
    pub bound: bool,
    pub group: String,
    pub allowed: Cpus,
    /// The requested affinity, where the kernel keeps it.
    pub asked: Option<Cpus>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Irq {
    pub name: String,
    pub affinity: Cpus,
    pub managed: bool,
    /// Interface and number of its queue.
    pub queue: Option<(String, u32)>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Interface {
    pub node: i32,
    pub now: u32,
    pub most: u32,
    pub rx: Vec<Rx>,
    pub xps: Vec<Cpus>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Rx {
    pub rps: Cpus,
    pub flows: u64,
}

/// An action of somebody else.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// A container starts below this group, with its own set and a task.
    Container { below: String, name: String },
    /// A group vanishes with all its tasks, unless it has child groups.
    Gone { group: String },
    /// A value is written.
    Write { path: String, text: String },
    /// A task forks.
    Fork { of: u32, child: u32 },
    /// A task exits.
    Exit { tid: u32 },
}

type Answer<T = ()> = Result<T, Errno>;

/// Start time of every task, in ticks since boot.
pub(crate) const START_TICKS: u64 = 77;

impl Modelled {
    pub fn new(state: State) -> Modelled {
        let (state, others) = (RefCell::new(state), RefCell::default());
        Modelled { state, others, writes: Cell::new(0), killed_at: Cell::new(None) }
    }

    /// Schedules an action before the write of this number, counted from 0.
    pub fn act_at(&self, write: u64, act: Act) {
        self.others.borrow_mut().push((write, act));
    }

    pub fn act(&self, act: &Act) {
        // What the kernel forbids fails for others, too.
        let _ = self.state.borrow_mut().act(act);
    }

    pub fn snapshot(&self) -> State {
        self.state.borrow().clone()
    }

    /// Called before each write.
    fn step(&self) {
        let at = self.writes.get();
        let due: Vec<Act> = {
            let mut others = self.others.borrow_mut();
            let (due, later) = others.drain(..).partition(|(when, _)| *when <= at);
            *others = later;
            let due: Vec<(u64, Act)> = due;
            due.into_iter().map(|(_, act)| act).collect()
        };
        due.iter().for_each(|act| self.act(act));
        if self.killed_at.get() == Some(at) {
            std::panic::resume_unwind(Box::new("killed"));
        }
        self.writes.set(at + 1);
    }

    fn write(&self, place: &Place, text: &str) -> Answer<WriteEffects> {
        let one = |done: Answer| done.map(|()| WriteEffects::default());
        match place {
            Place::Tasks { from, to } => {
                let (from, to) = if text == "moved" { (from, to) } else { (to, from) };
                self.move_all(from, to)
            }
            Place::Group { path } if text == "gone" => {
                let (group, parent) = {
                    let state = self.state.borrow();
                    let Some(group) = state.group_at(path) else { return Ok(WriteEffects::default()) };
                    (path.clone(), state.at(parent(&group)))
                };
                let moved = self.move_all(&group, &parent)?;
                self.step();
                self.state.borrow_mut().remove_group(path)?;
                Ok(moved)
            }
            Place::Group { path } => {
                self.step();
                one(self.state.borrow_mut().make_group(path))
            }
            place => {
                self.step();
                one(self.state.borrow_mut().set(place, text))
            }
        }
    }

    fn move_all(&self, from: &str, to: &str) -> Answer<WriteEffects> {
        let mut written = WriteEffects::default();
        let (from, to) = {
            let state = self.state.borrow();
            (state.group_at(from).ok_or(Errno::NOENT)?, state.group_at(to).ok_or(Errno::NOENT)?)
        };
        let ids: Vec<u32> = {
            let state = self.state.borrow();
            state.tasks.iter().filter(|(_, task)| task.group == from).map(|(tid, _)| *tid).collect()
        };
        for tid in ids {
            self.step();
            match self.state.borrow_mut().attach(tid, &to) {
                Ok(()) => written.tasks_moved += 1,
                Err(Errno::SRCH) => {}
                Err(Errno::INVAL) => written.tasks_refused += 1,
                Err(error) => return Err(error),
            }
        }
        Ok(written)
    }
}

fn parent(group: &str) -> &str {
    match group.rsplit_once('/') {
        Some(("", _)) | None => "/",
        Some((parent, _)) => parent,
    }
}

impl Kernel for Modelled {
    fn files(&self) -> Host {
        Host::kept(Kept::parse(&self.state.borrow().render()).expect("a machine as it is kept"))
    }

    fn topology(&self) -> Topology {
        let state = self.state.borrow();
        let mut topology = Topology::read(&self.files());
        for interface in &mut topology.interfaces {
            let Interface { now, most, .. } = state.interfaces[&interface.name];
            interface.queues = Some(Queues { now, most });
        }
        topology.irqbalance = state.banned.as_ref().map(|banned| Irqbalance {
            pid: 1,
            banned: Some(banned.iter().copied().collect()),
            unit: None,
        });
        topology
    }

    fn get(&self, place: &Place) -> Result<Option<String>, PlaceError> {
        Ok(self.state.borrow().get(place))
    }

    fn set(&self, place: &Place, text: &str) -> Result<WriteEffects, PlaceError> {
        self.write(place, text).map_err(|errno| PlaceError::write(place, text, errno.into()))
    }
}

impl State {
    fn get(&self, place: &Place) -> Option<String> {
        match place {
            Place::File { path } => self.read_group_file(path).or_else(|| self.read_device(path)),
            Place::Group { path } => self.group_at(path).map(|_| "made".into()),
            Place::Tasks { from, to } => {
                let from = self.group_at(from)?;
                let any = |group: &str, movable: bool| {
                    self.tasks.values().any(|task| task.group == group && (!movable || !task.kernel))
                };
                let moved = match self.group_at(to) {
                    None => false,
                    Some(to) => any(&to, false) || !any(&from, true),
                };
                Some(if moved { "moved" } else { "back" }.into())
            }
            Place::Affinity { tid, start_ticks, .. } => {
                let task = self.tasks.get(tid).filter(|_| *start_ticks == START_TICKS)?;
                Some(task.allowed.to_string())
            }
            Place::Queues { interface } => Some(self.interfaces.get(interface)?.now.to_string()),
            Place::BannedIrqs => self.banned.as_ref().map(words),
            Place::Service { .. } => None,
        }
    }

    fn set(&mut self, place: &Place, text: &str) -> Answer {
        match place {
            Place::File { path } if self.in_cgroups(path) => self.write_group_file(path, text),
            Place::File { path } => self.write_device(path, text),
            Place::Affinity { tid, .. } => self.pin(*tid, text),
            Place::Queues { interface } => {
                self.set_queues(interface, text.parse().map_err(|_| Errno::INVAL)?)
            }
            Place::BannedIrqs => {
                let irqs = text.split_whitespace().map(|word| word.parse().map_err(|_| Errno::INVAL));
                let irqs = irqs.collect::<Answer<_>>()?;
                *self.banned.as_mut().ok_or(Errno::CONNREFUSED)? = irqs;
                Ok(())
            }
            _ => Err(Errno::NOSYS),
        }
    }

    fn act(&mut self, act: &Act) -> Answer {
        match act {
            Act::Container { below, name } => {
                let path = format!("{}/{name}", below.trim_end_matches('/'));
                let at = self.at(&path);
                self.make_group(&at)?;
                if !self.flavour.v2 {
                    // Like container runtimes: a version 1 group is empty until its parent's set is copied. At
                    // the top level this fails while a sibling has exclusive CPUs, and they clean up.
                    let above = self.groups[below].clone();
                    let copied = self
                        .write_group_file(&format!("{at}/cpuset.cpus"), &above.cpus.to_string())
                        .and_then(|()| {
                            self.write_group_file(&format!("{at}/cpuset.mems"), &above.mems.to_string())
                        });
                    if let Err(error) = copied {
                        self.remove_group(&at)?;
                        return Err(error);
                    }
                }
                let tid = self.tasks.keys().max().map_or(1000, |last| last + 1);
                let comm = format!("in-{name}");
                let task = Task {
                    comm,
                    kernel: false,
                    bound: false,
                    group: "/".into(),
                    allowed: self.online.clone(),
                    asked: None,
                };
                self.tasks.insert(tid, task);
                self.attach(tid, &path)
            }
            Act::Gone { group } => {
                if self.groups.keys().any(|other| parent(other) == group && other != "/") {
                    return Err(Errno::BUSY);
                }
                self.tasks.retain(|_, task| task.group != *group);
                let at = self.at(group);
                self.remove_group(&at)
            }
            Act::Write { path, text } => self.set(&Place::file(path.as_str()), text),
            Act::Fork { of, child } => {
                let task = self.tasks.get(of).ok_or(Errno::SRCH)?.clone();
                self.tasks.insert(*child, task);
                Ok(())
            }
            Act::Exit { tid } => self.tasks.remove(tid).map(|_| ()).ok_or(Errno::SRCH),
        }
    }

    pub fn pinned(&self) -> Vec<PinnedTask> {
        let pinned = self.tasks.iter().filter(|(_, task)| task.allowed != self.effective(&task.group));
        let pinned = pinned.map(|(tid, task)| PinnedTask {
            tid: *tid,
            pid: *tid,
            start_ticks: START_TICKS,
            comm: task.comm.clone(),
            allowed: task.allowed.clone(),
            kernel: task.kernel,
            bound: task.bound,
            group: task.group.clone(),
        });
        pinned.collect()
    }
}

fn words(irqs: &BTreeSet<u32>) -> String {
    irqs.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
}
