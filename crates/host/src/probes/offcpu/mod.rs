//! Off-CPU time of threads as histograms kept in the kernel.
//!
//! One program runs at each context switch. The scheduler's own account of run-queue waits separates blocked
//! time from waiting for a CPU, so no program has to run at wake-ups.

pub mod buckets;
pub mod cgroups;
mod layout;
mod measurement;
mod read;

pub use buckets::{Bounds, Histogram};
pub use cgroups::Cgroup;
pub use layout::Throttled;
pub use measurement::{Group, GroupBy, Kind, Lost, Measurement, Open};

use super::cost::Watch;
use super::skeletons::offcpu::{OpenProbeSkel, ProbeSkel, ProbeSkelBuilder};
use crate::kernel::{ProbeError, quiet, refused};
use layout::Layout;
use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{Link, MapCore as _, MapFlags, OpenObject, ProgramMut};
use spangap_machine::facts::process_status::{self, ProcessStatus};
use spangap_machine::facts::{figures, uptime};
use spangap_machine::{FactError, read_here};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

pub(super) const PROBE: &str = "offcpu";

/// Maximum memory of the histograms, in bytes.
const HISTOGRAMS_BYTES: usize = 128 << 20;
/// Maximum number of groups; the program has 16 bits for them.
const MAX_GROUPS: usize = 8192;
/// As in the program: number of processes that are compared one by one.
const FEW: usize = 8;
/// As in the program: words of a histogram.
const HISTOGRAM_WORDS: usize = 512;
/// As in the program: bytes of a group's histograms on one CPU.
const SLOT_BYTES: usize = Kind::ALL.len() * HISTOGRAM_WORDS * 8;
/// As in the program: bytes of a thread's entry.
const TASK_BYTES: usize = 32;
/// Clock comparisons before anything is counted.
const SETTLED: u32 = 64;
/// Time limit for the program to see enough switches, which we cause.
const SETTLES_WITHIN: Duration = Duration::from_secs(5);
/// Number of thread entries when only some processes are watched; a power of two.
const TASKS_OF_PROCESSES: usize = 1 << 16;

/// Threads whose waits are counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subjects {
    /// Threads of all processes.
    Everything,
    /// Threads of these processes.
    Processes(Vec<u32>),
    /// Threads of these cgroups of one hierarchy and of their descendants, including future ones.
    Cgroups(Vec<Cgroup>),
}

/// Settings of a measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Threads to measure.
    pub of: Subjects,
    /// Grouping of the results.
    pub by: GroupBy,
}

/// Storage for a loaded program, provided by the caller because it must not move.
#[derive(Debug)]
pub struct Room(MaybeUninit<OpenObject>);

impl Default for Room {
    fn default() -> Self {
        Room(MaybeUninit::uninit())
    }
}

/// A measurement in progress.
pub struct Offcpu<'room> {
    skel: ProbeSkel<'room>,
    link: Link,
    watch: Watch,
    settings: Settings,
    roots: Vec<Cgroup>,
    throttled: Throttled,
    slots: usize,
    began: Instant,
}

/// A map or read-only section of a program, whose presence the build guarantees.
fn bug(what: &str) -> ProbeError {
    ProbeError::Load { probe: PROBE, reason: format!("the program has no {what}") }
}

fn wrong(what: String, why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ProbeError {
    ProbeError::Io { what, source: io::Error::new(io::ErrorKind::InvalidInput, why) }
}

fn unreadable(error: FactError) -> ProbeError {
    wrong("room for all threads".into(), error.to_string())
}

/// Checks that each id belongs to a process.
fn check_processes(tgids: &[u32]) -> Result<(), ProbeError> {
    for tgid in tgids {
        let path = format!("/proc/{tgid}/{}", process_status::NAME);
        let leader = read_here(&path, |path, text| ProcessStatus::new(path, text).process())
            .map_err(|_| wrong(format!("process {tgid}"), "there is no process with that id"))?;
        if leader != *tgid {
            let why = format!("it is a thread of process {leader}; expected a process");
            return Err(wrong(format!("process {tgid}"), why));
        }
    }
    Ok(())
}

impl<'room> Offcpu<'room> {
    /// Starts a measurement.
    ///
    /// # Errors
    /// A process does not exist, or this user or kernel does not allow the measurement or lacks a feature.
    pub fn start(room: &'room mut Room, settings: Settings) -> Result<Offcpu<'room>, ProbeError> {
        quiet();
        let mut roots = match &settings.of {
            Subjects::Processes(tgids) => check_processes(tgids).map(|()| Vec::new())?,
            Subjects::Everything => Vec::new(),
            Subjects::Cgroups(cgroups) => {
                let first =
                    cgroups.first().ok_or_else(|| wrong("cgroups".into(), "expected at least one"))?;
                if let Some(other) = cgroups.iter().find(|other| other.hierarchy != first.hierarchy) {
                    let why = format!("{} belongs to another cgroup hierarchy", other.path.display());
                    return Err(wrong(format!("cgroup {}", first.path.display()), why));
                }
                cgroups.clone()
            }
        };
        if roots.is_empty() && settings.by == GroupBy::Cgroup {
            roots.push(cgroups::usual()?);
        }
        // Opening requires no rights yet: what is missing shows at the load.
        let mut open =
            ProbeSkelBuilder::default().open(&mut room.0).map_err(|error| refused(PROBE, error))?;
        let layout = Layout::of_this_kernel()?;
        layout.suffices()?;
        let slots = configure(&mut open, &settings, &roots, &layout)?;
        let skel = open.load().map_err(|error| refused(PROBE, error))?;
        want(&skel, &settings)?;
        let watch = Watch::new([skel.progs.switched.as_fd()])
            .map_err(|source| ProbeError::Io { what: "descriptor of the program".into(), source })?;
        settle(&skel)?;
        let link = attach(&skel.progs.switched)?;
        let throttled = layout.tells_throttled();
        Ok(Offcpu { skel, link, watch, settings, roots, throttled, slots, began: Instant::now() })
    }

    /// Call several times a second: samples the cost of the program.
    pub fn look(&mut self) {
        self.watch.look(0);
    }

    /// Ends the measurement, and reads its results.
    ///
    /// # Errors
    /// The results cannot be read.
    pub fn stop(self) -> Result<Measurement, ProbeError> {
        let Offcpu { skel, link, mut watch, settings, roots, throttled, slots, began } = self;
        let cost = watch.cost(0);
        let missed = watch
            .missed()
            .map_err(|source| ProbeError::Io { what: "account of the program".into(), source })?;
        // Nothing changes from here on.
        drop(link);
        let elapsed_ns = began.elapsed().as_nanos() as u64;
        let reader = read::Reader::new(&skel, settings.by, slots)?;
        let mut groups = reader.groups(&roots)?;
        let seen = reader.open(&mut groups)?;
        let never_ran = read::never_ran(&settings.of, &seen);
        let lost = reader.lost(missed);
        let groups = groups.into_iter().flatten().filter(read::has_something).collect();
        let cost_refused = watch.refused().map(str::to_string);
        Ok(Measurement {
            elapsed_ns,
            by: settings.by,
            groups,
            never_ran,
            lost,
            throttled,
            cost,
            cost_refused,
        })
    }
}

fn attach(program: &ProgramMut<'_>) -> Result<Link, ProbeError> {
    program.attach().map_err(|error| ProbeError::Attach {
        probe: PROBE,
        program: program.name().to_string_lossy().into_owned(),
        reason: error.to_string(),
    })
}

/// Determines the offset between the scheduler's clock and ours, which requires switches; this causes them.
fn settle(skel: &ProbeSkel<'_>) -> Result<(), ProbeError> {
    let _link = attach(&skel.progs.settles)?;
    let began = Instant::now();
    while skel.maps.bss_data.as_deref().is_some_and(|bss| bss.clock_looks < SETTLED) {
        if began.elapsed() > SETTLES_WITHIN {
            return Err(ProbeError::Attach {
                probe: PROBE,
                program: "settles".into(),
                reason: format!("it did not run within {SETTLES_WITHIN:?}, although threads were switched"),
            });
        }
        // A switch to another thread and back.
        std::thread::park_timeout(Duration::from_micros(1));
    }
    Ok(())
}

/// Configures the program and sizes its maps. Returns the number of groups that fit.
fn configure(
    open: &mut OpenProbeSkel<'_>,
    settings: &Settings,
    roots: &[Cgroup],
    layout: &Layout,
) -> Result<usize, ProbeError> {
    let cpus = libbpf_rs::num_possible_cpus().map_err(|error| refused(PROBE, error))?;
    let tasks = match &settings.of {
        Subjects::Processes(_) if settings.by != GroupBy::Cgroup => TASKS_OF_PROCESSES,
        _ => usize::MAX,
    };
    // One per possible thread id, so that no two threads share an entry.
    let tasks = read_here("/proc/sys/kernel/pid_max", figures::number::<usize>)
        .map_err(unreadable)?
        .next_power_of_two()
        .min(tasks);
    let expected = match (&settings.of, settings.by) {
        (Subjects::Processes(tgids), GroupBy::Process) => tgids.len(),
        // Room for the existing ones, and for as many new ones.
        (_, GroupBy::Thread) => 2 * read_here(uptime::LOADAVG, uptime::load).map_err(unreadable)?.threads,
        (_, GroupBy::Process) => 2 * read::processes().count() + 64,
        (_, GroupBy::Cgroup) => 2 * roots.iter().map(|root| root.tree().len()).sum::<usize>() + 64,
    };
    // The first group collects everything without a group of its own.
    let slots = (expected + 1).min(HISTOGRAMS_BYTES / SLOT_BYTES / cpus).clamp(2, MAX_GROUPS);
    let size = |count: usize| u32::try_from(count).map_err(|_| wrong("maps".into(), "too many CPUs"));
    let maps = &mut open.maps;
    for (map, entries) in [
        (&mut maps.tasks, tasks),
        (&mut maps.histograms, slots * cpus),
        (&mut maps.slots, slots),
        (&mut maps.groups, slots),
        (&mut maps.wanted, wanted(&settings.of).len().max(1)),
    ] {
        map.set_max_entries(size(entries)?).map_err(|error| refused(PROBE, error))?;
    }
    let data = maps.rodata_data.as_deref_mut().ok_or_else(|| bug("read-only data"))?;
    data.group_by = settings.by as u32;
    data.task_mask = size(tasks)? - 1;
    data.task_shift = tasks.ilog2().saturating_sub(1);
    data.slot_count = size(slots)?;
    data.hierarchy = roots.first().map_or(Ok(u32::MAX), |root| layout.controller(&root.hierarchy))?;
    data.switch_has_state = layout.switch_has_state();
    data.watch = match &settings.of {
        Subjects::Everything => 0,
        Subjects::Processes(tgids) if tgids.len() <= FEW => {
            data.few = tgids.len() as u32;
            data.few_tgids[..tgids.len()].copy_from_slice(tgids);
            1
        }
        Subjects::Processes(_) => 2,
        Subjects::Cgroups(_) => 3,
    };
    Ok(slots)
}

/// Ids that the program looks for.
fn wanted(of: &Subjects) -> Vec<u64> {
    match of {
        Subjects::Everything => Vec::new(),
        Subjects::Processes(tgids) => tgids.iter().map(|&tgid| tgid.into()).collect(),
        Subjects::Cgroups(cgroups) => cgroups.iter().map(|cgroup| cgroup.id).collect(),
    }
}

fn want(skel: &ProbeSkel<'_>, settings: &Settings) -> Result<(), ProbeError> {
    for id in wanted(&settings.of) {
        let (key, value) = (id.to_ne_bytes(), 1_u32.to_ne_bytes());
        skel.maps.wanted.update(&key, &value, MapFlags::ANY).map_err(|error| refused(PROBE, error))?;
    }
    Ok(())
}
