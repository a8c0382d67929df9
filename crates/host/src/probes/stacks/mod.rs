//! Kernel stacks of given CPUs, sampled by their clocks; samples of the application itself are dropped.
//!
//! There is no eBPF program here, although one could count stacks in a map: next to the timer interrupt the two
//! cost the same (at 20,000 samples/s, 22.8 us a sample with the ring and 22.1 us with a program, nearly all of
//! it the timer of a virtual CPU). The ring works without type information, under lockdown=confidentiality,
//! with CAP_PERFMON alone or without capabilities where kernel.perf_event_paranoid allows it, and it loses no
//! stack to a hash collision.
//!
//! Time that a CPU spends with interrupts off is attributed to the place that re-enables them: the sampling
//! clock is an interrupt, too. Samples that did not arrive (the hypervisor had the CPU) are counted.

mod context;
mod cost;
mod perf_event;
mod record;
mod tally;

pub use context::{Context, call_site};
pub use cost::Cost;
pub use tally::{CpuCounts, Key, Tally};

use crate::kernel::ProbeError;
use crate::symbols::Symbols;
use perf_event::{Sampler, wait};
use record::{Record, parse};
use std::collections::HashMap;
use std::io;
use std::time::Duration;

/// Settings of the sampling.
#[derive(Clone, Debug)]
pub struct Settings {
    /// CPUs to sample.
    pub cpus: Vec<u32>,
    /// Processes whose own samples are dropped.
    pub not_tgids: Vec<u32>,
    /// Samples per second and CPU.
    pub hz: u32,
}

/// Bytes of one CPU's ring, about half of what an ordinary user may lock (kernel.perf_event_mlock_kb). At 1000
/// Hz and with the longest stacks it holds a quarter of a second.
const RING_BYTES: usize = 256 << 10;
/// Maximum number of process names; later processes are shown by their ids.
const MAX_NAMES: usize = 1 << 16;

/// Sampling in progress.
pub struct Stacks {
    settings: Settings,
    samplers: Vec<Sampler>,
    symbols: Symbols,
    tally: Tally,
    names: Names,
    frames: Vec<u64>,
    cost: Cost,
}

/// Result of the sampling.
pub struct SampledStacks {
    pub settings: Settings,
    /// The samples.
    pub tally: Tally,
    /// Names of kernel functions.
    pub symbols: Symbols,
    /// Names of processes.
    pub names: Names,
    /// Duration in nanoseconds.
    pub duration_ns: u64,
    /// Cost of the sampling.
    pub cost: Cost,
}

/// Process names: reported by the kernel on each change, or else read when a process first appears.
#[derive(Debug, Default)]
pub struct Names(HashMap<u32, String>);

impl Names {
    /// Name of a process.
    pub fn of(&self, tgid: u32) -> Option<&str> {
        self.0.get(&tgid).map(String::as_str)
    }

    fn put(&mut self, tgid: u32, name: String) {
        if self.0.len() < MAX_NAMES || self.0.contains_key(&tgid) {
            self.0.insert(tgid, name);
        }
    }

    fn see(&mut self, tgid: u32) {
        if tgid != 0
            && !self.0.contains_key(&tgid)
            && let Ok(name) = std::fs::read_to_string(format!("/proc/{tgid}/comm"))
        {
            self.put(tgid, name.trim_end().to_string());
        }
    }
}

impl Stacks {
    /// Starts sampling.
    pub fn start(settings: &Settings) -> Result<Stacks, ProbeError> {
        let symbols = Symbols::read();
        let max_frames = std::fs::read_to_string("/proc/sys/kernel/perf_event_max_stack");
        let max_frames = max_frames.ok().and_then(|frames| frames.trim().parse().ok()).unwrap_or(127);
        let period_ns = 1_000_000_000 / u64::from(settings.hz);
        let open =
            |&cpu: &u32| Sampler::open(cpu, period_ns, RING_BYTES).map_err(|error| refused(cpu, error));
        let samplers = settings.cpus.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let cost = Cost::begin(settings.hz);
        let mut tally = Tally::new(&symbols, &settings.not_tgids, max_frames);
        for (sampler, &cpu) in samplers.iter().zip(&settings.cpus) {
            tally.cpu(cpu);
            sampler.enable().map_err(cannot("begin to sample", cpu))?;
        }
        Ok(Stacks {
            settings: settings.clone(),
            samplers,
            symbols,
            tally,
            names: Names::default(),
            frames: Vec::new(),
            cost,
        })
    }

    /// Waits until a ring is half full or `patience` is over, and tallies the samples.
    pub fn poll(&mut self, patience: Duration) -> Result<(), ProbeError> {
        wait(&self.samplers, patience)
            .map_err(|source| ProbeError::Io { what: "cannot wait for samples".into(), source })?;
        self.drain();
        Ok(())
    }

    fn drain(&mut self) {
        let Stacks { samplers, settings, tally, names, frames, .. } = self;
        for (sampler, &cpu) in samplers.iter_mut().zip(&settings.cpus) {
            sampler.drain(&mut |record| match parse(record) {
                Some(Record::Sample { tgid, user, chain }) => {
                    chain.kernel_frames(frames);
                    names.see(tgid);
                    tally.add(cpu, tgid, user, frames);
                }
                Some(Record::Lost(records)) => tally.cpu(cpu).lost += records,
                Some(Record::Throttled) => tally.cpu(cpu).throttled += 1,
                Some(Record::Name { tgid, comm }) => {
                    names.put(tgid, String::from_utf8_lossy(comm).into_owned());
                }
                Some(Record::Child { tgid, parent }) => {
                    if let Some(name) = names.of(parent).map(str::to_string) {
                        names.put(tgid, name);
                    }
                }
                Some(Record::Other) => {}
                None => tally.cpu(cpu).lost += 1,
            });
        }
    }

    /// Ends sampling.
    pub fn finish(mut self) -> Result<SampledStacks, ProbeError> {
        let mut duration_ns = 0;
        for (sampler, &cpu) in self.samplers.iter().zip(&self.settings.cpus) {
            sampler.disable().map_err(cannot("end sampling", cpu))?;
            let enabled_ns = sampler.enabled_ns().map_err(cannot("read the counter", cpu))?;
            self.tally.cpu(cpu).expected = expected(enabled_ns, self.settings.hz);
            duration_ns = duration_ns.max(enabled_ns);
        }
        self.drain();
        self.cost.end();
        let Stacks { settings, tally, symbols, names, cost, .. } = self;
        Ok(SampledStacks { settings, tally, symbols, names, duration_ns, cost })
    }
}

fn expected(enabled_ns: u64, hz: u32) -> u64 {
    enabled_ns / (1_000_000_000 / u64::from(hz))
}

fn cannot(what: &'static str, cpu: u32) -> impl Fn(io::Error) -> ProbeError {
    move |source| ProbeError::Io { what: format!("cannot {what} of CPU {cpu}"), source }
}

/// Why a CPU cannot be sampled, in words.
fn refused(cpu: u32, error: io::Error) -> ProbeError {
    let kernel = crate::kernel::Kernel::look();
    match error.kind() {
        io::ErrorKind::PermissionDenied if !kernel.may_sample_cpus() => ProbeError::NotRoot {
            probe: "stacks",
            need: format!(
                "this process lacks CAP_PERFMON (or CAP_SYS_ADMIN instead), and kernel.perf_event_paranoid is {}, where 0 or less would do without",
                kernel.perf_event_paranoid.map_or("unknown".into(), |level| level.to_string())
            ),
        },
        io::ErrorKind::PermissionDenied => ProbeError::Attach {
            probe: "stacks",
            program: format!("the clock of CPU {cpu}"),
            reason: format!(
                "{error}: a container's seccomp filter, a security module or kernel.perf_event_mlock_kb forbids it"
            ),
        },
        _ if error.raw_os_error() == Some(libc::ENOSYS) => {
            ProbeError::Lacks { what: "performance events (CONFIG_PERF_EVENTS=y)".into(), since: "2.6.31" }
        }
        _ => ProbeError::Attach {
            probe: "stacks",
            program: format!("the clock of CPU {cpu}"),
            reason: error.to_string(),
        },
    }
}
