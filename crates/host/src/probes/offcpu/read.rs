//! Reads the program's maps once it is detached.

use super::buckets::{BUCKETS, Histogram};
use super::cgroups::Cgroup;
use super::measurement::{Group, GroupBy, Kind, Lost, Open};
use super::{HISTOGRAM_WORDS, PROBE, SLOT_BYTES, Subjects, TASK_BYTES, bug};
use crate::kernel::{ProbeError, refused};
use crate::probes::skeletons::offcpu::{ProbeSkel, types};
use libbpf_rs::{MapCore as _, MapFlags};
use std::collections::{HashMap, HashSet};
use std::fs;

/// As in the program: positions of the sum and the maximum in a histogram.
const SUM: usize = 510;
const LONGEST: usize = 511;
/// As in the program: marks a thread that is not watched, in place of its slot.
const UNWATCHED: u16 = 0xffff;
/// As in the program: bytes of a group's description.
const GROUP_BYTES: usize = 48;
/// Thread entries read per system call.
const BATCH: u32 = 4096;

/// The program's maps.
pub(super) struct Reader<'a> {
    skel: &'a ProbeSkel<'a>,
    bss: &'a types::bss,
    by: GroupBy,
    slots: usize,
    cpus: usize,
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_ne_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).and_then(|bytes| bytes.try_into().ok()).map_or(0, u16::from_ne_bytes)
}

impl<'a> Reader<'a> {
    pub(super) fn new(skel: &'a ProbeSkel<'a>, by: GroupBy, slots: usize) -> Result<Self, ProbeError> {
        let bss = skel.maps.bss_data.as_deref().ok_or_else(|| bug("counters"))?;
        let cpus = libbpf_rs::num_possible_cpus().map_err(|error| refused(PROBE, error))?;
        let sizes = [skel.maps.tasks.value_size(), skel.maps.groups.value_size()];
        if sizes != [TASK_BYTES as u32, GROUP_BYTES as u32]
            || skel.maps.histograms.value_size() != SLOT_BYTES as u32
        {
            return Err(bug("such maps as were expected"));
        }
        Ok(Reader { skel, bss, by, slots, cpus })
    }

    /// Results of every group, by slot; `None` for unused slots.
    pub(super) fn groups(&self, roots: &[Cgroup]) -> Result<Vec<Option<Group>>, ProbeError> {
        // Two CPUs may have advanced it one too far, or stored an older value.
        let used = (0..self.slots).map(|slot| self.group(slot)).collect::<Result<Vec<_>, _>>()?;
        let mut paths: Option<HashMap<u64, String>> = None;
        let mut groups = Vec::new();
        for (slot, bytes) in used.into_iter().enumerate() {
            if slot > 0 && u64_at(&bytes, 16) == 0 {
                groups.push(None);
                continue;
            }
            let (id, tgid) = (u64_at(&bytes, 0), u32_at(&bytes, 24));
            let name = match self.by {
                _ if slot == 0 => "others".to_string(),
                GroupBy::Cgroup => {
                    let paths = paths.get_or_insert_with(|| paths_below(roots));
                    paths.get(&id).cloned().unwrap_or_default()
                }
                GroupBy::Process => comm(&format!("/proc/{tgid}"), &bytes[28..44]),
                GroupBy::Thread => comm(&format!("/proc/{tgid}/task/{id}"), &bytes[28..44]),
            };
            groups.push(Some(Group { id, tgid, name, waits: self.waits(slot)?, open: Default::default() }));
        }
        Ok(groups)
    }

    fn group(&self, slot: usize) -> Result<Vec<u8>, ProbeError> {
        let found = self.skel.maps.groups.lookup(&(slot as u32).to_ne_bytes(), MapFlags::ANY);
        found.map_err(|error| refused(PROBE, error))?.ok_or_else(|| bug("such a group"))
    }

    fn waits(&self, slot: usize) -> Result<[Histogram; Kind::ALL.len()], ProbeError> {
        let mut waits: [Histogram; Kind::ALL.len()] = Default::default();
        let mut bytes = vec![0; SLOT_BYTES];
        for cpu in 0..self.cpus {
            let at = ((cpu * self.slots + slot) as u32).to_ne_bytes();
            let found = self.skel.maps.histograms.lookup_into(&at, &mut bytes, MapFlags::ANY);
            found.map_err(|error| refused(PROBE, error))?;
            for (kind, words) in waits.iter_mut().zip(bytes.chunks_exact(HISTOGRAM_WORDS * 8)) {
                let counts = (0..BUCKETS).map(|bucket| u64_at(words, bucket * 8)).collect();
                kind.add(&Histogram {
                    counts,
                    sum_ns: u64_at(words, SUM * 8),
                    max_ns: u64_at(words, LONGEST * 8),
                });
            }
        }
        Ok(waits)
    }

    /// Adds the waits in progress to the groups. Returns the threads that were observed.
    pub(super) fn open(&self, groups: &mut [Option<Group>]) -> Result<HashSet<u32>, ProbeError> {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let now = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
        let mut seen = HashSet::new();
        let batches = self.skel.maps.tasks.lookup_batch(BATCH, MapFlags::ANY, MapFlags::ANY);
        for (_, task) in batches.map_err(|error| refused(PROBE, error))? {
            let (since, tid) = (u64_at(&task, 0), u32_at(&task, 24));
            let (slot, left) = (u16_at(&task, 28), u16_at(&task, 30));
            if tid == 0 || slot == UNWATCHED {
                continue;
            }
            seen.insert(tid);
            let group = groups.get_mut(slot as usize).and_then(Option::as_mut);
            if let Some(group) = group
                && let Some(open) = usize::from(left).checked_sub(1).and_then(|kind| group.open.get_mut(kind))
            {
                let ns = now.saturating_sub(since);
                *open = Open { waits: open.waits + 1, sum_ns: open.sum_ns + ns, max_ns: open.max_ns.max(ns) };
            }
        }
        Ok(seen)
    }

    pub(super) fn lost(&self, switches: u64) -> Lost {
        Lost {
            switches,
            begun_before: self.bss.lost_begun,
            collisions: self.bss.lost_collision,
            clocks: self.bss.lost_clock,
            without_group: self.bss.lost_slot,
        }
    }
}

/// Whether a group has any waits.
pub(super) fn has_something(group: &Group) -> bool {
    group.waits.iter().any(|waits| waits.count() > 0) || group.open.iter().any(|open| open.waits > 0)
}

/// Current name of a thread or, if it has ended, the last one known.
fn comm(folder: &str, had: &[u8]) -> String {
    match fs::read_to_string(format!("{folder}/comm")) {
        Ok(name) => name.trim_end().to_string(),
        Err(_) => {
            let end = had.iter().position(|&byte| byte == 0).unwrap_or(had.len());
            String::from_utf8_lossy(&had[..end]).into_owned()
        }
    }
}

/// Paths of all these cgroups and their descendants.
fn paths_below(roots: &[Cgroup]) -> HashMap<u64, String> {
    roots.iter().flat_map(Cgroup::tree).map(|(id, path)| (id, path.display().to_string())).collect()
}

/// Ids of all processes.
pub(super) fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Number of existing threads that were never observed.
pub(super) fn never_ran(of: &Subjects, seen: &HashSet<u32>) -> u64 {
    let processes: HashSet<u32> = match of {
        Subjects::Everything => processes().collect(),
        Subjects::Processes(tgids) => tgids.iter().copied().collect(),
        Subjects::Cgroups(cgroups) => cgroups.iter().flat_map(Cgroup::processes).collect(),
    };
    let threads = processes.into_iter().flat_map(|tgid| {
        let entries = fs::read_dir(format!("/proc/{tgid}/task")).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
    });
    threads.filter(|tid| !seen.contains(tid)).count() as u64
}
