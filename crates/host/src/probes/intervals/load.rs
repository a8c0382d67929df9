//! Adapts the program to this kernel, loads and attaches it.

use super::attach::Attachments;
use super::ring::Rings;
use super::stacks::{IN_CALL, TELLING_CALLS};
use super::watched::WatchedProcesses;
use super::{PROBE, Settings, Waits};
use crate::kernel::{ProbeError, quiet, refused};
use crate::probes::skeletons::intervals::{OpenProbeSkel, ProbeSkel, ProbeSkelBuilder};
use libbpf_rs::btf::types::{Enum, FuncProto, Ptr, Struct, Typedef};
use libbpf_rs::btf::{Btf, ReferencesType};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapHandle, ProgramMut};
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

/// Default memory for the rings of all CPUs, in bytes.
const RINGS_BYTES: usize = 64 << 20;
/// Minimum and maximum number of events in a ring.
const RING_EVENTS: std::ops::RangeInclusive<usize> = 128..=1 << 20;
const DEFAULT_RING_EVENTS: std::ops::RangeInclusive<usize> = 4096..=1 << 18;
/// Maximum number of threads with an entry of their own; beyond that, threads share entries and are named
/// repeatedly.
const MAX_TASKS: u32 = 1 << 16;
/// Maximum number of distinct kernel stacks: those whose hashes collide are unknown. An event has 16 bits for their
/// number, half of which are for system calls.
const STACKS: u32 = IN_CALL as u32;

/// A loaded program. Dropping it unloads everything.
pub(super) struct Loaded {
    pub attachments: Attachments,
    pub rings: Rings,
    /// Capacity of one ring, in events.
    pub ring_events: usize,
    pub lacks: Vec<String>,
    /// Kernel stacks by number, if requested.
    pub stacks: Option<MapHandle>,
    /// Processes whose sockets are followed.
    pub watched: WatchedProcesses,
}

pub(super) fn load(settings: &Settings) -> Result<Loaded, ProbeError> {
    quiet();
    let mut object = MaybeUninit::uninit();
    let mut open = ProbeSkelBuilder::default().open(&mut object).map_err(|error| refused(PROBE, error))?;
    let btf = Btf::from_vmlinux().map_err(|error| refused(PROBE, error))?;
    let cpus = libbpf_rs::num_possible_cpus().map_err(|error| refused(PROBE, error))?;
    let ring_events = ring_events(settings.ring_events, cpus);
    let tasks = number_in("/proc/sys/kernel/pid_max").unwrap_or(MAX_TASKS).next_power_of_two().min(MAX_TASKS);
    let cgroup_v1 = fs::exists("/sys/fs/cgroup/cpu/tasks").unwrap_or(false);
    let stacks = if settings.waits == Waits::No { 1 } else { STACKS };
    let sizes = [
        (&mut open.maps.events, (cpus * ring_events) as u32),
        (&mut open.maps.rings, cpus as u32),
        (&mut open.maps.tasks, tasks),
        (&mut open.maps.watched, tasks),
        (&mut open.maps.stacks, stacks),
    ];
    for (map, entries) in sizes {
        map.set_max_entries(entries).map_err(|error| refused(PROBE, error))?;
    }
    if let Some(constants) = open.maps.rodata_data.as_deref_mut() {
        constants.ring_shift = ring_events.trailing_zeros();
        constants.task_mask = tasks - 1;
        constants.switch_has_state = arguments(&btf, "sched_switch").unwrap_or(0) > 4;
        constants.cgroup_v1 = cgroup_v1;
        constants.own_network = own_network();
        constants.waits = settings.waits != Waits::No;
        constants.only_waits = settings.waits == Waits::Only;
        constants.has_task_regs = has_helper(&btf, "BPF_FUNC_task_pt_regs");
        for (call, _) in TELLING_CALLS {
            constants.telling_calls[*call as usize / 64] |= 1 << (call % 64);
        }
    }
    let lacks = choose(&mut open, &btf, settings);
    let skeleton = open.load().map_err(|error| refused(PROBE, error))?;
    let io = |what: &str| {
        let what = what.to_string();
        move |source: io::Error| ProbeError::Io { what, source }
    };
    let handle = |map| MapHandle::try_from(map).map_err(|error| refused(PROBE, error));
    let mut watched =
        WatchedProcesses::new(handle(&skeleton.maps.watched)?, handle(&skeleton.maps.ports)?, tasks - 1);
    watched.set(&settings.tgids.iter().copied().collect())?;
    let rings = Rings::map(
        skeleton.maps.events.as_fd(),
        skeleton.maps.rings.as_fd(),
        cpus,
        ring_events.trailing_zeros(),
    )
    .map_err(io("map the rings of the probe intervals"))?;
    let stacks = match settings.waits {
        Waits::No => None,
        _ => Some(handle(&skeleton.maps.stacks)?),
    };
    let attachments = Attachments::new(programs(&skeleton)?)?;
    Ok(Loaded { attachments, rings, ring_events, lacks, stacks, watched })
}

/// Disables the programs that this kernel has no tracepoint for, or that were not requested. Returns what is
/// unavailable.
fn choose(open: &mut OpenProbeSkel<'_>, btf: &Btf<'_>, settings: &Settings) -> Vec<String> {
    let has = |tracepoint: &str| arguments(btf, tracepoint).is_some();
    let mut lacks = Vec::new();
    let programs = &mut open.progs;
    if !(has("local_timer_entry") && has("local_timer_exit")) {
        programs.local_timer_entry.set_autoload(false);
        programs.local_timer_exit.set_autoload(false);
        lacks.push(
            "timer interrupts are not recorded: this kernel has no tracepoint local_timer_entry (x86 only)"
                .into(),
        );
    }
    if !(has("call_function_entry") && has("call_function_single_entry")) {
        programs.call_function_entry.set_autoload(false);
        programs.call_function_exit.set_autoload(false);
        programs.call_function_single_entry.set_autoload(false);
        programs.call_function_single_exit.set_autoload(false);
        lacks.push(
            "calls between CPUs are not recorded: this kernel has no tracepoint call_function_entry (x86 only)"
                .into(),
        );
    }
    if !has_member(btf, "task_struct", "throttled") {
        lacks.push(
            "a thread that was already waiting when its cgroup ran out of quota is reported as waiting, not as \
             throttled: only Linux 6.18 throttles thread by thread"
                .into(),
        );
    }
    programs.woken.set_autoload(settings.waits != Waits::No);
    if settings.waits != Waits::No
        && (!cfg!(target_arch = "x86_64") || !has_helper(btf, "BPF_FUNC_task_pt_regs"))
    {
        lacks.push(
            "locks are not told apart from other waits at a futex: this needs Linux 5.15 and an x86 processor".into(),
        );
    }
    let watches = (settings.more_later || !settings.tgids.is_empty()) && settings.waits != Waits::Only;
    let reads = watches && has("tcp_rcv_space_adjust");
    programs.has_read.set_autoload(reads);
    let arrivals = reads && has("tcp_probe");
    programs.arrived.set_autoload(arrivals);
    programs.listens.set_autoload(arrivals && has("inet_sock_set_state"));
    let begins = has("tcp_sendmsg_locked");
    programs.writes.set_autoload(watches && begins);
    programs.has_written.set_autoload(watches && !begins && has("sock_send_length"));
    if watches && !reads {
        lacks.push(
            "reads from sockets are not recorded: this kernel has no tracepoint tcp_rcv_space_adjust".into(),
        );
    }
    if watches && !arrivals {
        lacks.push("arrivals at sockets are not recorded: this kernel has no tracepoint tcp_probe".into());
    }
    if watches && !begins {
        lacks.push(if has("sock_send_length") {
            "writes to sockets are recorded when they end: the tracepoint tcp_sendmsg_locked came with Linux 6.16"
                .into()
        } else {
            "writes to sockets are not recorded: the tracepoint sock_send_length came with Linux 6.3".into()
        });
    }
    lacks
}

/// Every loaded program with its name, those that mark a start last.
fn programs(skeleton: &ProbeSkel<'_>) -> Result<Vec<(String, OwnedFd)>, ProbeError> {
    let programs = &skeleton.progs;
    let all: [&ProgramMut<'_>; 18] = [
        &programs.switched,
        &programs.woken,
        &programs.has_read,
        &programs.arrived,
        &programs.listens,
        &programs.writes,
        &programs.has_written,
        &programs.netif_receive_skb,
        &programs.softirq_exit,
        &programs.irq_handler_exit,
        &programs.local_timer_exit,
        &programs.call_function_exit,
        &programs.call_function_single_exit,
        &programs.softirq_entry,
        &programs.irq_handler_entry,
        &programs.local_timer_entry,
        &programs.call_function_entry,
        &programs.call_function_single_entry,
    ];
    let loaded = all.into_iter().filter(|program| program.autoload());
    let named = loaded.map(|program| {
        let name = program.name().to_string_lossy().into_owned();
        let failed = |error: io::Error| ProbeError::Attach {
            probe: PROBE,
            program: name.clone(),
            reason: error.to_string(),
        };
        let descriptor = program.as_fd().try_clone_to_owned().map_err(failed)?;
        Ok((name, descriptor))
    });
    named.collect()
}

/// Number of arguments of a tracepoint, including the program's context; `None` if it does not exist.
fn arguments(btf: &Btf<'_>, tracepoint: &str) -> Option<usize> {
    let named = btf.type_by_name::<Typedef<'_>>(&format!("btf_trace_{tracepoint}"))?;
    let pointer = Ptr::try_from(named.referenced_type()).ok()?;
    Some(FuncProto::try_from(pointer.referenced_type()).ok()?.len())
}

/// Whether this kernel provides a helper function for eBPF programs.
fn has_helper(btf: &Btf<'_>, helper: &str) -> bool {
    let ids = btf.type_by_name::<Enum<'_>>("bpf_func_id");
    ids.is_some_and(|ids| ids.iter().any(|id| id.name.is_some_and(|name| name == helper)))
}

fn has_member(btf: &Btf<'_>, name: &str, member: &str) -> bool {
    let found = btf.type_by_name::<Struct<'_>>(name);
    found.is_some_and(|found| found.iter().any(|one| one.name.is_some_and(|name| name == member)))
}

fn ring_events(wanted: usize, cpus: usize) -> usize {
    let floor = |events: usize| 1 << events.max(1).ilog2();
    if wanted > 0 {
        return wanted.next_power_of_two().clamp(*RING_EVENTS.start(), *RING_EVENTS.end());
    }
    let fitting = floor(RINGS_BYTES / 32 / cpus.max(1));
    fitting.clamp(*DEFAULT_RING_EVENTS.start(), *DEFAULT_RING_EVENTS.end())
}

fn number_in(path: &str) -> Option<u32> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Inode of the network namespace in which interfaces are named; 0 if unknown.
fn own_network() -> u32 {
    fs::metadata("/proc/self/ns/net").map_or(0, |namespace| namespace.ino() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_fit_into_their_memory() {
        assert_eq!(ring_events(0, 2), 1 << 18);
        assert_eq!(ring_events(0, 16), 1 << 17);
        assert_eq!(ring_events(0, 17), 1 << 16);
        assert_eq!(ring_events(0, 128), 1 << 14);
        assert_eq!(ring_events(0, 8192), 4096);
        assert_eq!(ring_events(1, 2), 128);
        assert_eq!(ring_events(5000, 2), 8192);
        assert_eq!(ring_events(usize::MAX / 2, 2), 1 << 20);
    }
}
