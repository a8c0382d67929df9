//! Names of threads, cgroups, interrupts and interfaces, as reports show them.
//!
//! Names of existing objects come from `/proc` and `/sys`. Afterwards the event stream names each thread before
//! the first switch to it, and again when its name or cgroup changes.

mod host;

use crate::event::{Irq, Sleep, Tid, Waker};
use crate::reasons;
use crate::timeline::Taker;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use spangap_model::WaitReason;
use std::collections::{BTreeMap, BTreeSet};

/// Identity of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskName {
    /// Thread name, which may differ from the process's.
    pub comm: String,
    /// Process id.
    pub tgid: u32,
    /// Id of the cgroup with the CPU quota; 0 if unknown.
    pub cgroup_id: u64,
}

impl TaskName {
    /// From the kernel's NUL-padded text.
    pub fn new(comm: &[u8], tgid: u32, cgroup_id: u64) -> TaskName {
        TaskName { comm: text(comm), tgid, cgroup_id }
    }
}

/// Identity of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceName {
    pub name: String,
    /// Inode of its network namespace, if that is not the recorder's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<u32>,
}

/// Names of all objects that events refer to by number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    tasks: BTreeMap<Tid, TaskName>,
    cgroups: BTreeMap<u64, String>,
    irqs: BTreeMap<u32, String>,
    devices: BTreeMap<u32, DeviceName>,
    /// Kernel stacks of sleeping threads as lists of functions, the innermost first.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    stacks: BTreeMap<u16, Vec<String>>,
    /// Changes since the last call of `take_fresh`.
    #[serde(skip)]
    fresh: Fresh,
    /// Time of the latest information about a thread: CPUs report independently.
    #[serde(skip)]
    told_ns: FxHashMap<Tid, u64>,
    /// Cgroups without a known folder.
    #[serde(skip)]
    missed_cgroups: BTreeSet<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Fresh {
    tasks: BTreeSet<Tid>,
    cgroups: BTreeSet<u64>,
    irqs: BTreeSet<u32>,
    devices: BTreeSet<u32>,
    stacks: BTreeSet<u16>,
}

/// Limit of the remembered cgroups without a folder (deleted, or in another hierarchy).
const MAX_MISSED: usize = 10_000;

/// Softirq names by number, as in `/proc/softirqs`.
const SOFTIRQS: [&str; 10] =
    ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"];

impl Names {
    /// A thread; if it has ended, under its last name.
    pub fn task(&self, tid: Tid) -> Option<&TaskName> {
        self.tasks.get(&tid)
    }

    /// Process id of a thread.
    pub fn tgid(&self, tid: Tid) -> Option<u32> {
        self.task(tid).map(|task| task.tgid)
    }

    /// All threads by thread id.
    pub fn tasks(&self) -> impl Iterator<Item = (Tid, &TaskName)> {
        self.tasks.iter().map(|(&tid, task)| (tid, task))
    }

    /// Path of a cgroup below its hierarchy's root, such as `/kubepods/pod1`.
    pub fn cgroup(&self, id: u64) -> Option<&str> {
        self.cgroups.get(&id).map(String::as_str)
    }

    /// Devices of an interrupt, from its line in `/proc/interrupts`.
    pub fn irq(&self, irq: u32) -> Option<&str> {
        self.irqs.get(&irq).map(String::as_str)
    }

    /// An interface.
    pub fn device(&self, id: u32) -> Option<&DeviceName> {
        self.devices.get(&id)
    }

    /// The user of a CPU in words: `stress (pid 812)`, `NET_RX of eth0`, `irq 24 virtio0-input.0`, `timer`.
    pub fn taker(&self, taker: &Taker) -> String {
        self.named(taker).to_string()
    }

    /// The user of a CPU as a named value.
    pub fn named(&self, taker: &Taker) -> spangap_model::Taker {
        use spangap_model::Taker as Named;
        match taker {
            Taker::Task(0) => Named::Idle,
            Taker::Task(tid) => self.named_task(*tid),
            Taker::Softirq { vector, device, .. } => {
                Named::Softirq { vector: self.softirq_name(*vector), device: self.device_in_words(*device) }
            }
            Taker::Hardirq(Irq::Line(irq)) => {
                let name = self.irq(*irq).filter(|name| !name.is_empty()).map(str::to_owned);
                Named::Interrupt { line: *irq, name }
            }
            Taker::Hardirq(Irq::Timer) => Named::Timer,
            Taker::Hardirq(Irq::Call) => Named::CrossCall,
        }
    }

    /// Why a thread slept, and the kernel function that shows it.
    pub fn reason(&self, sleep: &Sleep) -> (WaitReason, Option<&str>) {
        let stack = sleep.stack.and_then(|stack| self.stacks.get(&stack));
        match stack.map_or((WaitReason::Unknown, None), |stack| reasons::reason(stack)) {
            (WaitReason::Futex, function) if sleep.as_for_a_lock => (WaitReason::Lock, function),
            found => found,
        }
    }

    /// The waker of a thread in words; `None` if it was not observed.
    pub fn waker(&self, by: &Waker) -> Option<String> {
        Some(match by {
            Waker::Task(tid) => self.task_in_words(*tid),
            Waker::Softirq { vector, during: 0 } => format!("softirq {}", self.softirq_name(*vector)),
            Waker::Softirq { vector, during } => {
                let sender = self.task_in_words(*during);
                format!("softirq {} of lo while {sender} ran", self.softirq_name(*vector))
            }
            Waker::Hardirq(irq) => self.taker(&Taker::Hardirq(*irq)),
            Waker::Idle => "an interrupt".into(),
            Waker::Unseen => return None,
        })
    }

    /// Whether the functions of a stack are known.
    pub fn has_stack(&self, stack: u16) -> bool {
        self.stacks.contains_key(&stack)
    }

    /// Stores the functions of a stack, the innermost first.
    pub fn told_stack(&mut self, stack: u16, functions: Vec<String>) {
        self.stacks.insert(stack, functions);
        self.fresh.stacks.insert(stack);
    }

    fn named_task(&self, tid: Tid) -> spangap_model::Taker {
        let task = self.task(tid).filter(|task| task.tgid != 0);
        spangap_model::Taker::Task {
            tid,
            pid: task.map(|task| task.tgid),
            name: task.map(|task| task.comm.clone()),
        }
    }

    fn task_in_words(&self, tid: Tid) -> String {
        self.named_task(tid).to_string()
    }

    fn softirq_name(&self, vector: u8) -> String {
        match SOFTIRQS.get(usize::from(vector)) {
            Some(name) => name.to_string(),
            None => format!("softirq {vector}"),
        }
    }

    fn device_in_words(&self, device: u32) -> Option<String> {
        match (device, self.device(device)) {
            (0, _) => None,
            (_, Some(DeviceName { name, network: None })) => Some(name.clone()),
            (_, Some(DeviceName { name, network: Some(network) })) => {
                Some(format!("{name} (network namespace {network})"))
            }
            (_, None) => Some(format!("interface {device}")),
        }
    }

    /// Stores a thread's identity as of a moment; information about a later moment is kept.
    pub fn told_task(&mut self, time_ns: u64, tid: Tid, task: TaskName) {
        let told_ns = self.told_ns.entry(tid).or_insert(0);
        if *told_ns > time_ns {
            return;
        }
        *told_ns = time_ns;
        let cgroup_id = task.cgroup_id;
        self.tasks.insert(tid, task);
        self.fresh.tasks.insert(tid);
        self.look_for_cgroup(cgroup_id);
    }

    fn look_for_cgroup(&mut self, cgroup_id: u64) {
        if self.cgroups.contains_key(&cgroup_id) || self.missed_cgroups.contains(&cgroup_id) {
            return;
        }
        // An unknown cgroup. There may be more new ones by now, so all are read in one go.
        for (id, path) in host::cgroups() {
            if self.cgroups.get(&id) != Some(&path) {
                self.fresh.cgroups.insert(id);
                self.cgroups.insert(id, path);
            }
        }
        if !self.cgroups.contains_key(&cgroup_id) && self.missed_cgroups.len() < MAX_MISSED {
            self.missed_cgroups.insert(cgroup_id);
        }
    }

    /// Stores an interface's name.
    pub fn told_device(&mut self, id: u32, network: u32, name: &[u8]) {
        // Numbers with the highest bit set refer to other network namespaces.
        let network = (id >> 31 == 1).then_some(network);
        self.devices.insert(id, DeviceName { name: text(name), network });
        self.fresh.devices.insert(id);
    }

    /// Merges `others`, whose entries take precedence.
    pub fn absorb(&mut self, others: Names) {
        self.fresh.tasks.extend(others.tasks.keys());
        self.fresh.cgroups.extend(others.cgroups.keys());
        self.fresh.irqs.extend(others.irqs.keys());
        self.fresh.devices.extend(others.devices.keys());
        self.fresh.stacks.extend(others.stacks.keys());
        self.tasks.extend(others.tasks);
        self.cgroups.extend(others.cgroups);
        self.irqs.extend(others.irqs);
        self.devices.extend(others.devices);
        self.stacks.extend(others.stacks);
    }

    /// Returns the changes since the last call.
    pub fn take_fresh(&mut self) -> Names {
        let fresh = std::mem::take(&mut self.fresh);
        Names {
            tasks: among(&self.tasks, fresh.tasks),
            cgroups: among(&self.cgroups, fresh.cgroups),
            irqs: among(&self.irqs, fresh.irqs),
            devices: among(&self.devices, fresh.devices),
            stacks: among(&self.stacks, fresh.stacks),
            ..Names::default()
        }
    }

    /// Drops a thread that has ended and will not be asked for again.
    pub(crate) fn forget(&mut self, tid: Tid) {
        self.tasks.remove(&tid);
        self.told_ns.remove(&tid);
        self.fresh.tasks.remove(&tid);
    }

    /// Drops cgroups without known threads.
    pub(crate) fn forget_empty_cgroups(&mut self) {
        let used: BTreeSet<u64> = self.tasks.values().map(|task| task.cgroup_id).collect();
        self.cgroups.retain(|id, _| used.contains(id));
        self.missed_cgroups.retain(|id| used.contains(id));
    }

    /// Whether it holds no names.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
            && self.cgroups.is_empty()
            && self.irqs.is_empty()
            && self.devices.is_empty()
            && self.stacks.is_empty()
    }
}

fn among<K: Ord + Copy, V: Clone>(all: &BTreeMap<K, V>, wanted: BTreeSet<K>) -> BTreeMap<K, V> {
    wanted.into_iter().filter_map(|key| Some((key, all.get(&key)?.clone()))).collect()
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        let mut names = Names::default();
        names.told_task(1, 812, TaskName::new(b"stress\0\0\0\0\0\0\0\0\0\0", 812, 0));
        names.told_task(1, 815, TaskName::new(b"worker of 16 b..", 812, 7));
        names.told_device(2, 4_026_531_840, b"eth0\0lo");
        names.told_device(1 << 31 | 5, 4_026_532_300, b"eth0");
        names.irqs.insert(24, "virtio0-input.0".into());
        names
    }

    #[test]
    fn takers_in_words() {
        let names = names();
        for (taker, words) in [
            (Taker::Task(0), "idle"),
            (Taker::Task(812), "stress (pid 812)"),
            (Taker::Task(815), "worker of 16 b.. (pid 812, thread 815)"),
            (Taker::Task(4), "thread 4"),
            (Taker::Softirq { vector: 3, device: 2, own: false }, "NET_RX of eth0"),
            (Taker::Softirq { vector: 3, device: 0, own: false }, "NET_RX"),
            (
                Taker::Softirq { vector: 3, device: 1 << 31 | 5, own: false },
                "NET_RX of eth0 (network namespace 4026532300)",
            ),
            (Taker::Softirq { vector: 3, device: 7, own: false }, "NET_RX of interface 7"),
            (Taker::Softirq { vector: 11, device: 0, own: false }, "softirq 11"),
            (Taker::Hardirq(Irq::Line(24)), "irq 24 virtio0-input.0"),
            (Taker::Hardirq(Irq::Line(25)), "irq 25"),
            (Taker::Hardirq(Irq::Timer), "timer"),
            (Taker::Hardirq(Irq::Call), "call from another CPU"),
        ] {
            assert_eq!(names.taker(&taker), words);
        }
    }

    #[test]
    fn latest_name_wins_in_any_order() {
        let mut names = names();
        names.told_task(9, 815, TaskName::new(b"next", 815, 0));
        names.told_task(8, 815, TaskName::new(b"before", 812, 7));
        assert_eq!(names.task(815), Some(&TaskName { comm: "next".into(), tgid: 815, cgroup_id: 0 }));
    }

    #[test]
    fn changes_are_returned_once() {
        let mut names = names();
        let mut copy = Names::default();
        copy.absorb(names.take_fresh());
        assert_eq!(copy.device(2), names.device(2));
        assert_eq!(copy.tasks().count(), 2);
        assert!(names.take_fresh().is_empty());
        names.told_task(2, 812, TaskName::new(b"renamed", 812, 0));
        let fresh = names.take_fresh();
        assert_eq!(fresh.task(812).unwrap().comm, "renamed");
        assert_eq!(fresh.device(2), None);
        copy.absorb(fresh);
        assert_eq!(copy.task(812), names.task(812));
    }
}
