//! Sampled kernel stacks as users see them: who had the CPUs, by which way through the kernel.

pub mod page;
pub mod picture;
pub mod text;

use crate::probes::stacks::{Context, CpuCounts, Found, Key, call_site};
use serde::Serialize;
use spangap_report::figures::counted;
use std::collections::BTreeMap;

/// Everything that `host stacks` found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StacksReport {
    /// Samples per second and CPU that were asked for.
    pub hz: u32,
    /// For how long.
    pub duration_ns: u64,
    /// The application: processes whose own time is not shown.
    pub not_pids: Vec<ProcessReport>,
    /// What came of the samples, of all CPUs together.
    pub samples: SamplesReport,
    /// And of each.
    pub per_cpu: Vec<CpuReport>,
    /// Distinct stacks, the most frequent first.
    pub stacks: Vec<StackReport>,
    /// Why functions have no names, if they have none.
    pub names_missing: Option<String>,
    /// What the sampling took itself.
    pub cost: CostReport,
    /// What keeps these figures from being all of the truth, in words.
    pub notes: Vec<String>,
}

/// A process.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProcessReport {
    /// Its number; 0 is idle.
    pub pid: u32,
    /// Its name, where it could be read before it ended.
    pub name: Option<String>,
}

/// What came of samples. `received = kept + application + idle`; `expected = received + missing`, but for the last one
/// of each CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SamplesReport {
    /// Samples due in the time.
    pub expected: u64,
    /// Samples that came.
    pub received: u64,
    /// Samples due that did not come: the CPU itself did not run, or had interrupts off for more than a period.
    pub missing: u64,
    /// Samples that are somebody else's than the application's.
    pub kept: u64,
    /// Samples that are the application's own.
    pub application: u64,
    /// Samples that found nothing running.
    pub idle: u64,
    /// Of the kept ones: softirqs.
    pub softirq: u64,
    /// Of the kept ones: interrupt handlers.
    pub hardirq: u64,
    /// Of the kept ones: other processes, kernel threads included.
    pub other_processes: u64,
    /// Records that found no room in the ring.
    pub lost: u64,
    /// How often the kernel held samples back because they came too fast.
    pub throttled: u64,
    /// Stacks longer than the kernel records.
    pub truncated: u64,
    /// Kept samples whose stack is not told apart: there were too many different ones.
    pub not_told_apart: u64,
}

/// What came of the samples of one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CpuReport {
    /// Which.
    pub cpu: u32,
    /// What.
    #[serde(flatten)]
    pub samples: SamplesReport,
}

/// A distinct stack.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StackReport {
    /// Whose time it was.
    pub context: ContextReport,
    /// Of a softirq: which, as in `/proc/softirqs`, where its first function tells.
    pub vector: Option<&'static str>,
    /// Whether it was user mode: no frames then.
    pub user: bool,
    /// Functions; the first one is where the CPU was.
    pub frames: Vec<String>,
    /// How many samples.
    pub samples: u64,
    /// Share of all samples that came, idle ones included.
    pub share: f64,
    /// On which CPUs.
    pub cpus: Vec<CpuSamples>,
    /// Whose time it was, or who was interrupted; the most frequent first.
    pub current: Vec<CurrentSamples>,
}

/// Samples on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CpuSamples {
    /// Which.
    pub cpu: u32,
    /// How many.
    pub samples: u64,
}

/// Samples while a process was current.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CurrentSamples {
    /// Which.
    #[serde(flatten)]
    pub process: ProcessReport,
    /// How many.
    pub samples: u64,
}

/// Whose time it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ContextReport {
    /// A process's own, or a kernel thread's.
    Process,
    /// A softirq after an interrupt.
    SoftirqAfterInterrupt,
    /// A softirq inside of a system call of whoever was current.
    SoftirqInCall,
    /// An interrupt handler.
    Hardirq,
}

/// What the sampling took itself.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CostReport {
    /// What one sample takes of its CPU, measured with a trial before the start.
    pub sample_ns: Option<u64>,
    /// That, of each CPU: 0.01 is one percent.
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

/// The softirq whose action a function is, as `/proc/softirqs` calls it.
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
    /// Puts names to what was found.
    pub fn new(found: &Found) -> StacksReport {
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
            // What a process does is its own; an interrupt is the same whomever it interrupts.
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

/// Stacks that have the same names, though not the same addresses.
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

/// What stands for a stack that is not told apart.
const NOT_TOLD_APART: &str = "[other stacks]";

fn names(found: &Found, frames: Option<&[u64]>) -> Vec<String> {
    match frames {
        None => vec![NOT_TOLD_APART.into()],
        Some(frames) => (0..frames.len()).map(|index| found.symbols.name(call_site(frames, index))).collect(),
    }
}

fn notes(samples: &SamplesReport, names_missing: Option<&str>, found: &Found) -> Vec<String> {
    let mut notes = Vec::new();
    let percent = |part: u64| part as f64 * 100.0 / samples.expected.max(1) as f64;
    // The last period of each CPU is mostly not over.
    let due = found.settings.cpus.len() as u64;
    if samples.missing > due {
        let missing = samples.missing - samples.lost.min(samples.missing);
        notes.push(format!(
            "{missing} samples ({:.1} %) are missing: the hypervisor had these CPUs, or interrupts were off for \
             longer than the sampling interval",
            percent(missing)
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
