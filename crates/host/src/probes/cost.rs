//! Cost of a loaded program, from the kernel's own run statistics, which are enabled only for short samples.
//!
//! While anybody requests these statistics, the kernel reads its clock before and after every run of every
//! program. That costs more than most of our programs do, so they are requested for [`SAMPLE`] at a time, and
//! the duration of a run includes one reading of the clock.

#![allow(unsafe_code)]

use libbpf_rs::libbpf_sys;
use serde::Serialize;
use spangap_report::figures::small_percent;
use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// Length of a sample.
pub const SAMPLE: Duration = Duration::from_millis(40);
/// Interval between the starts of two samples.
pub const EVERY: Duration = Duration::from_secs(2);
/// What a run of a program at a tracepoint costs beyond what the kernel counts of it, in nanoseconds: the call, less the reading
/// of the clock that is counted. 15 programs took 1.80 us where 1.56 were counted (docs/benchmarks.md, "Agent", with retpolines).
pub const UNCOUNTED_AT_TRACEPOINT_NS: f64 = 16.0;
/// The same for the filter of a packet socket, to which the kernel hands the packet first: 350 ns where 220 were counted.
pub const UNCOUNTED_AT_SOCKET_NS: f64 = 130.0;
/// Delay between the start of a measurement and its first sample.
const FIRST_AFTER: Duration = Duration::from_millis(100);

/// Cost of programs during the samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// Runs during the samples.
    pub runs: u64,
    /// Mean duration of a run in nanoseconds, including one reading of the clock.
    pub ns_per_run: f64,
    /// Runs per second on all CPUs together.
    pub runs_per_s: f64,
    /// Time spent in runs, as a share of one CPU: 0.01 is 1 % of one CPU.
    pub cpu_share: f64,
    /// Total length of the samples, in nanoseconds.
    pub sampled_ns: u64,
    /// What the programs wrote during the samples, as counted by the caller of [`Watch::look`]. What they cost at another time
    /// is better estimated by what they wrote then than by its length: load comes in bursts.
    #[serde(skip)]
    pub written: u64,
}

impl fmt::Display for Cost {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{:.0} ns a run, {:.0} runs/s, {} of one CPU",
            self.ns_per_run,
            self.runs_per_s,
            small_percent(self.cpu_share)
        )
    }
}

impl Cost {
    /// CPU seconds of the runs during the samples, with this many nanoseconds a run that the kernel does not count.
    pub fn seconds(&self, uncounted_ns: f64) -> f64 {
        self.runs as f64 * (self.ns_per_run + uncounted_ns) / 1e9
    }
}

/// Kernel statistics summed over some programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ProgramCounts {
    runs: u64,
    ns: u64,
    missed: u64,
}

/// Samples the cost of programs whenever it is polled.
#[derive(Debug)]
pub struct Watch {
    programs: Vec<OwnedFd>,
    /// Start of the next sample.
    due: Instant,
    sample: Option<Sample>,
    runs: u64,
    ns: u64,
    sampled: Duration,
    written: u64,
    refused: Option<String>,
}

#[derive(Debug)]
struct Sample {
    /// The kernel keeps statistics while this is open, so they stop even if we are killed.
    _wanted: OwnedFd,
    began: Instant,
    before: ProgramCounts,
    written_before: u64,
}

impl Watch {
    /// Watches these programs (`skel.progs.NAME.as_fd()`), which must be loaded.
    ///
    /// # Errors
    /// A descriptor cannot be duplicated.
    pub fn new<'fd>(programs: impl IntoIterator<Item = BorrowedFd<'fd>>) -> io::Result<Watch> {
        let programs = programs.into_iter().map(|program| program.try_clone_to_owned());
        Ok(Watch {
            programs: programs.collect::<io::Result<_>>()?,
            due: Instant::now() + FIRST_AFTER,
            sample: None,
            runs: 0,
            ns: 0,
            sampled: Duration::ZERO,
            written: 0,
            refused: None,
        })
    }

    /// Starts and ends samples when due. Call it often, best several times per [`SAMPLE`]. `written` is what the programs have
    /// written so far.
    pub fn look(&mut self, written: u64) {
        let now = Instant::now();
        match &self.sample {
            Some(sample) if now >= sample.began + SAMPLE => self.end(written),
            None if now >= self.due && self.refused.is_none() => self.begin(written),
            _ => {}
        }
    }

    /// Ends a sample in progress; the next one begins at the next look. For programs that do something else from now on.
    pub fn begin_anew(&mut self, written: u64) {
        self.end(written);
        self.due = Instant::now();
    }

    /// When [`Watch::look`] has something to do next.
    pub fn wakes(&self) -> Instant {
        self.sample.as_ref().map_or(self.due, |sample| sample.began + SAMPLE)
    }

    /// The cost; `None` without a sample, or without a run in one. Ends a sample in progress.
    pub fn cost(&mut self, written: u64) -> Option<Cost> {
        if self.sample.is_some() {
            self.end(written);
        }
        let seconds = self.sampled.as_secs_f64();
        (self.runs > 0).then(|| Cost {
            runs: self.runs,
            ns_per_run: self.ns as f64 / self.runs as f64,
            runs_per_s: self.runs as f64 / seconds,
            cpu_share: self.ns as f64 / 1e9 / seconds,
            sampled_ns: self.sampled.as_nanos() as u64,
            written: self.written,
        })
    }

    /// Why there are no samples, if the kernel refused them.
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// Runs that the kernel skipped because a program was already running on that CPU: unobserved events.
    /// Always counted since 5.12.
    ///
    /// # Errors
    /// The kernel's statistics of a program cannot be read.
    pub fn missed(&self) -> io::Result<u64> {
        counted(&self.programs).map(|counted| counted.missed)
    }

    fn begin(&mut self, written: u64) {
        let begun = wanted().and_then(|wanted| {
            let before = counted(&self.programs)?;
            Ok(Sample { _wanted: wanted, began: Instant::now(), before, written_before: written })
        });
        match begun {
            Ok(sample) => {
                self.due = sample.began + EVERY;
                self.sample = Some(sample);
            }
            Err(error) => self.refused = Some(error.to_string()),
        }
    }

    fn end(&mut self, written: u64) {
        let Some(sample) = self.sample.take() else { return };
        match counted(&self.programs) {
            Ok(after) => {
                self.runs += after.runs - sample.before.runs;
                self.ns += after.ns - sample.before.ns;
                self.sampled += sample.began.elapsed();
                self.written += written.saturating_sub(sample.written_before);
            }
            Err(error) => self.refused = Some(error.to_string()),
        }
    }
}

/// Makes the kernel keep run statistics until the descriptor is closed.
fn wanted() -> io::Result<OwnedFd> {
    // SAFETY: a system call that takes a number and returns a new descriptor or a negative number.
    let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the descriptor is new, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn counted(programs: &[OwnedFd]) -> io::Result<ProgramCounts> {
    let mut sum = ProgramCounts::default();
    for program in programs {
        let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", program.as_raw_fd()))?;
        let one = parse(&text);
        sum =
            ProgramCounts { runs: sum.runs + one.runs, ns: sum.ns + one.ns, missed: sum.missed + one.missed };
    }
    Ok(sum)
}

fn parse(fdinfo: &str) -> ProgramCounts {
    let number = |key: &str| {
        let value = fdinfo.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
    };
    ProgramCounts { runs: number("run_cnt"), ns: number("run_time_ns"), missed: number("recursion_misses") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_account_of_a_program() {
        let text = "pos:\t0\nprog_type:\t26\nprog_jited:\t1\nmemlock:\t4096\nprog_id:\t12\nrun_time_ns:\t3100\nrun_cnt:\t100\nrecursion_misses:\t7\n";
        assert_eq!(parse(text), ProgramCounts { runs: 100, ns: 3100, missed: 7 });
        assert_eq!(parse("pos:\t0\n"), ProgramCounts::default());
    }

    #[test]
    fn a_cost_in_words() {
        let cost = Cost {
            runs: 3,
            ns_per_run: 31.4,
            runs_per_s: 9e4,
            cpu_share: 0.0028,
            sampled_ns: 100,
            written: 0,
        };
        assert_eq!(cost.to_string(), "31 ns a run, 90000 runs/s, 0.3 % of one CPU");
        assert!((cost.seconds(68.6) - 300e-9).abs() < 1e-15);
    }
}
