//! Sampled kernel stacks for users: who used the CPUs, and through which kernel paths.

mod groups;
pub mod page;
pub mod picture;
pub mod text;

use crate::probes::stacks::{Context, CpuCounts, Key, SampledStacks, call_site};
use serde::Serialize;
use spangap_report::figures::{counted, percent};
use std::collections::BTreeMap;

/// Results of `host stacks`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StacksReport {
    /// Requested samples per second and CPU.
    pub hz: u32,
    /// Duration of the sampling.
    pub duration_ns: u64,
    /// The application: processes whose own samples are dropped.
    pub not_pids: Vec<ProcessReport>,
    /// Sample counts of all CPUs together.
    pub samples: SamplesReport,
    /// Sample counts of each CPU.
    pub per_cpu: Vec<CpuReport>,
    /// Distinct stacks, the most frequent first.
    pub stacks: Vec<StackReport>,
    /// Why functions have no names, if so.
    pub names_missing: Option<String>,
    /// Cost of the sampling.
    pub cost: CostReport,
    /// Limitations of the figures, in words.
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProcessReport {
    /// Process id; 0 is idle.
    pub pid: u32,
    /// Name, if it could be read before the process ended.
    pub name: Option<String>,
}

/// Sample counts. `received = kept + application + idle`; `expected = received + missing`, except for the last
/// sample of each CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SamplesReport {
    /// Samples due in the time.
    pub expected: u64,
    /// Samples that arrived.
    pub received: u64,
    /// Samples due that did not arrive: the CPU itself did not run, or had interrupts off for more than a
    /// period.
    pub missing: u64,
    /// Samples of others than the application.
    pub kept: u64,
    /// Samples of the application itself.
    pub application: u64,
    /// Samples of an idle CPU.
    pub idle: u64,
    /// Of the kept ones: softirqs.
    pub softirq: u64,
    /// Of the kept ones: interrupt handlers.
    pub hardirq: u64,
    /// Of the kept ones: other processes, including kernel threads.
    pub other_processes: u64,
    /// Records that found no room in the ring.
    pub lost: u64,
    /// How often the kernel throttled sampling because samples came too fast.
    pub throttled: u64,
    /// Stacks longer than the kernel records.
    pub truncated: u64,
    /// Kept samples without a stack, because there were too many distinct ones.
    pub not_told_apart: u64,
}

/// Sample counts of one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CpuReport {
    pub cpu: u32,
    /// Its counts.
    #[serde(flatten)]
    pub samples: SamplesReport,
}

/// A distinct stack.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StackReport {
    /// Execution context.
    pub context: ContextReport,
    /// For a softirq: its name as in `/proc/softirqs`, if its first function shows it.
    pub vector: Option<&'static str>,
    /// Whether it was user mode, which has no frames.
    pub user: bool,
    /// Functions, leaf first.
    pub frames: Vec<String>,
    pub samples: u64,
    /// Share of all samples that arrived, idle ones included.
    pub share: f64,
    /// Samples by CPU.
    pub cpus: Vec<CpuSamples>,
    /// Current processes, interrupted or not; the most frequent first.
    pub current: Vec<CurrentSamples>,
}

/// Samples on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CpuSamples {
    pub cpu: u32,
    pub samples: u64,
}

/// Samples while a process was current.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CurrentSamples {
    #[serde(flatten)]
    pub process: ProcessReport,
    pub samples: u64,
}

/// Execution context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ContextReport {
    /// A process or kernel thread itself.
    Process,
    /// A softirq at the end of an interrupt.
    SoftirqAfterInterrupt,
    /// A softirq inside a system call of the current thread.
    SoftirqInCall,
    /// An interrupt handler.
    Hardirq,
}

/// Cost of the sampling.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CostReport {
    /// CPU time of one sample, measured in a trial before the start.
    pub sample_ns: Option<u64>,
    /// Resulting share of each CPU: 0.01 is one percent.
    pub cpu_share: Option<f64>,
    /// CPU time of the thread that reads the samples.
    pub reader_ns: u64,
}

impl From<Context> for ContextReport {
    fn from(context: Context) -> Self {
        match context {
            Context::Thread => ContextReport::Process,
            Context::SoftirqAfterInterrupt => ContextReport::SoftirqAfterInterrupt,
            Context::SoftirqInCall => ContextReport::SoftirqInCall,
            Context::Hardirq => ContextReport::Hardirq,
        }
    }
}

impl ProcessReport {
    /// In words: `memcached (pid 812)`.
    pub fn words(&self) -> String {
        match (&self.name, self.pid) {
            (None, 0) => "idle".into(),
            (Some(name), pid) => format!("{name} (pid {pid})"),
            (None, pid) => format!("pid {pid}"),
        }
    }
}

/// The softirq that a function is the action of, as `/proc/softirqs` calls it.
fn vector(action: &str) -> Option<&'static str> {
    Some(match action {
        "net_rx_action" => "NET_RX",
        "net_tx_action" => "NET_TX",
        "run_timer_softirq" => "TIMER",
        "hrtimer_run_softirq" => "HRTIMER",
        "rcu_core_si" | "rcu_core" => "RCU",
        "blk_done_softirq" => "BLOCK",
        "tasklet_action" => "TASKLET",
        "tasklet_hi_action" => "HI",
        "run_rebalance_domains" | "rebalance_domains" | "sched_balance_softirq" | "sched_balance_domains" => {
            "SCHED"
        }
        "irq_poll_softirq" => "IRQ_POLL",
        _ => return None,
    })
}

impl StacksReport {
    /// Resolves the names of a result.
    pub fn new(found: &SampledStacks) -> StacksReport {
        let process = |pid| ProcessReport { pid, name: found.names.of(pid).map(str::to_string) };
        let mut per_cpu: BTreeMap<u32, SamplesReport> = BTreeMap::new();
        for (&cpu, counts) in found.tally.cpus() {
            per_cpu.insert(cpu, counts.into());
        }
        let mut merged: BTreeMap<_, Merged> = BTreeMap::new();
        for (key, frames, samples) in found.tally.kept() {
            let counts = per_cpu.entry(key.cpu).or_default();
            *match key.context {
                Context::Thread => &mut counts.other_processes,
                Context::Hardirq => &mut counts.hardirq,
                Context::SoftirqAfterInterrupt | Context::SoftirqInCall => &mut counts.softirq,
            } += samples;
            let names = names(found, frames);
            // The work of a process is its own; an interrupt is the same whichever process it interrupts.
            let owner = (key.context == Context::Thread).then_some(key.tgid);
            merged
                .entry((ContextReport::from(key.context), owner, key.user, names))
                .or_default()
                .add(&key, samples);
        }
        let mut samples = SamplesReport::default();
        per_cpu.values().for_each(|cpu| samples.add(cpu));
        let mut stacks: Vec<_> = merged
            .into_iter()
            .map(|((context, _, user, frames), merged)| {
                let softirq =
                    matches!(context, ContextReport::SoftirqAfterInterrupt | ContextReport::SoftirqInCall);
                let action = frames.len().checked_sub(2).filter(|_| softirq).map(|at| &frames[at]);
                let mut current: Vec<_> = merged
                    .current
                    .into_iter()
                    .map(|(pid, samples)| CurrentSamples { process: process(pid), samples })
                    .collect();
                current.sort_by_key(|current| std::cmp::Reverse(current.samples));
                StackReport {
                    context,
                    vector: action.and_then(|action| vector(action)),
                    user,
                    frames,
                    samples: merged.samples,
                    share: merged.samples as f64 / samples.received.max(1) as f64,
                    cpus: merged.cpus.into_iter().map(|(cpu, samples)| CpuSamples { cpu, samples }).collect(),
                    current,
                }
            })
            .collect();
        stacks.sort_by_key(|stack| std::cmp::Reverse(stack.samples));
        let names_missing = found.symbols.why_none().map(str::to_string);
        StacksReport {
            hz: found.settings.hz,
            duration_ns: found.duration_ns,
            not_pids: found.settings.not_tgids.iter().map(|&pid| process(pid)).collect(),
            notes: notes(&samples, names_missing.as_deref(), found),
            samples,
            per_cpu: per_cpu.into_iter().map(|(cpu, samples)| CpuReport { cpu, samples }).collect(),
            stacks,
            names_missing,
            cost: CostReport {
                sample_ns: found.cost.sample_ns,
                cpu_share: found.cost.cpu_share,
                reader_ns: found.cost.reader_ns,
            },
        }
    }
}

/// Stacks with equal names but different addresses.
#[derive(Default)]
struct Merged {
    samples: u64,
    cpus: BTreeMap<u32, u64>,
    current: BTreeMap<u32, u64>,
}

impl Merged {
    fn add(&mut self, key: &Key, samples: u64) {
        self.samples += samples;
        *self.cpus.entry(key.cpu).or_default() += samples;
        *self.current.entry(key.tgid).or_default() += samples;
    }
}

impl From<&CpuCounts> for SamplesReport {
    fn from(counts: &CpuCounts) -> Self {
        SamplesReport {
            expected: counts.expected,
            received: counts.received,
            missing: counts.expected.saturating_sub(counts.received),
            kept: counts.kept,
            application: counts.application,
            idle: counts.idle,
            lost: counts.lost,
            throttled: counts.throttled,
            truncated: counts.truncated,
            not_told_apart: counts.not_told_apart,
            ..SamplesReport::default()
        }
    }
}

impl SamplesReport {
    fn add(&mut self, more: &SamplesReport) {
        self.expected += more.expected;
        self.received += more.received;
        self.missing += more.missing;
        self.kept += more.kept;
        self.application += more.application;
        self.idle += more.idle;
        self.softirq += more.softirq;
        self.hardirq += more.hardirq;
        self.other_processes += more.other_processes;
        self.lost += more.lost;
        self.throttled += more.throttled;
        self.truncated += more.truncated;
        self.not_told_apart += more.not_told_apart;
    }
}

/// Placeholder for all stacks that found no room.
const NOT_TOLD_APART: &str = "[other stacks]";

fn names(found: &SampledStacks, frames: Option<&[u64]>) -> Vec<String> {
    match frames {
        None => vec![NOT_TOLD_APART.into()],
        Some(frames) => (0..frames.len()).map(|index| found.symbols.name(call_site(frames, index))).collect(),
    }
}

fn notes(samples: &SamplesReport, names_missing: Option<&str>, found: &SampledStacks) -> Vec<String> {
    let mut notes = Vec::new();
    // The last period of a CPU is usually incomplete.
    let due = found.settings.cpus.len() as u64;
    if samples.missing > due {
        let missing = samples.missing - samples.lost.min(samples.missing);
        notes.push(format!(
            "{missing} samples ({}) are missing: the hypervisor had these CPUs, or interrupts were off for \
             longer than the sampling interval",
            percent(missing as f64 / samples.expected.max(1) as f64)
        ));
    }
    if samples.lost > 0 {
        notes.push(format!(
            "{} samples were lost, because they arrived faster than they were read",
            samples.lost
        ));
    }
    if samples.throttled > 0 {
        notes.push(format!(
            "the kernel held samples back {}, because more were due than kernel.perf_event_max_sample_rate allows",
            counted(samples.throttled, "time")
        ));
    }
    if samples.truncated > 0 {
        notes.push(format!(
            "{} stacks are longer than kernel.perf_event_max_stack: their roots are missing",
            samples.truncated
        ));
    }
    if samples.not_told_apart > 0 {
        notes.push(format!(
            "there was no room for the stacks of {} samples: they are shown together as {NOT_TOLD_APART}",
            samples.not_told_apart
        ));
    }
    if let Some(why) = names_missing {
        notes.push(format!(
            "functions have no names, and interrupts are not told from the process that they interrupt: {why}"
        ));
    } else if !found.tally.tells_contexts() {
        notes.push(
            "this kernel's functions for softirqs have unknown names: interrupts are not told from the process that they interrupt"
                .into(),
        );
    }
    notes
}
