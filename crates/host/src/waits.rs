//! Why the threads of some processes slept, and what woke them: sums over completed sleeps, and the reasons of
//! the threads asleep now.

use crate::event::{Event, Sleep, Tid, Waker, What};
use crate::names::Names;
use crate::probes::offcpu::Histogram;
use crate::reasons;
use rustc_hash::FxHashMap;
use spangap_machine::Host;
use spangap_machine::facts::process_stat::{self, ProcessStat};
use spangap_model::WaitReason;
use std::collections::BTreeMap;

/// Maximum number of distinct kinds of sleep, of 4 KiB each; further ones are merged.
const KINDS: usize = 4096;

/// Tallies sleeps.
#[derive(Debug, Default)]
pub struct WaitSums {
    sums: FxHashMap<(Sleep, Waker), Histogram>,
    /// Sleeps beyond the limit.
    rest: Histogram,
}

/// Sleeps of one reason that one waker ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitSum {
    pub reason: WaitReason,
    /// The kernel function that shows it, taken from the sleeps that lasted longest in total.
    pub function: Option<String>,
    /// Whether they were uninterruptible: state D.
    pub uninterruptible: bool,
    /// Waker in words; `None` if it was not observed.
    pub waker: Option<String>,
    /// Histogram of their durations.
    pub histogram: Histogram,
}

/// Sleeps in one function.
type Part = (Option<String>, Histogram);

impl WaitSums {
    /// Processes the next event.
    pub fn on(&mut self, event: &Event) {
        let What::Woken(woken) = event.what else { return };
        let slept_ns = event.time_ns.saturating_sub(woken.since_ns);
        let (count, key) = (self.sums.len(), (woken.sleep, woken.by));
        match self.sums.get_mut(&key) {
            Some(sum) => sum.record(slept_ns),
            None if count < KINDS => self.sums.entry(key).or_default().record(slept_ns),
            None => self.rest.record(slept_ns),
        }
    }

    /// The sums with names: wakers in `own` processes by thread, others by process.
    pub fn finish(self, names: &Names, own: &[u32]) -> Vec<WaitSum> {
        let mut merged: BTreeMap<(WaitReason, bool, Option<String>), Vec<Part>> = BTreeMap::new();
        for ((sleep, by), histogram) in self.sums {
            let (reason, function) = names.reason(&sleep);
            let key = (reason, sleep.uninterruptible, names.waker(&by_process(by, names, own)));
            merged.entry(key).or_default().push((function.map(str::to_owned), histogram));
        }
        if self.rest.count() > 0 {
            merged.entry((WaitReason::Unknown, false, None)).or_default().push((None, self.rest));
        }
        let sum = |((reason, uninterruptible, waker), parts): (_, Vec<Part>)| {
            let longest = parts.iter().max_by_key(|(_, histogram)| histogram.sum_ns);
            let function = longest.and_then(|(function, _)| function.clone());
            let mut histogram = Histogram::default();
            parts.iter().for_each(|(_, part)| histogram.add(part));
            WaitSum { reason, function, uninterruptible, waker, histogram }
        };
        merged.into_iter().map(sum).collect()
    }
}

/// Replaces a waker in another process by that process.
fn by_process(by: Waker, names: &Names, own: &[u32]) -> Waker {
    let leader = |tid: Tid| match names.tgid(tid) {
        Some(tgid) if tgid != 0 && !own.contains(&tgid) && names.task(tgid).is_some() => tgid,
        _ => tid,
    };
    match by {
        Waker::Task(tid) => Waker::Task(leader(tid)),
        Waker::Softirq { vector, during } if during != 0 => Waker::Softirq { vector, during: leader(during) },
        other => other,
    }
}

/// Threads currently asleep for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SleepingThreads {
    /// Reason; a stack alone does not distinguish a mutex from other futexes.
    pub reason: WaitReason,
    /// The kernel function that shows it.
    pub function: Option<String>,
    /// Letter of their state, as in `/proc/PID/stat`.
    pub state: char,
    pub threads: u64,
}

/// Why the sleeping threads of these processes sleep now, from `/proc/PID/task/TID/stack`, which root may read.
pub fn asleep(host: &Host, pids: &[u32]) -> Vec<SleepingThreads> {
    let mut found: BTreeMap<(WaitReason, Option<String>, char), u64> = BTreeMap::new();
    for pid in pids {
        for tid in host.list(&format!("/proc/{pid}/task")).unwrap_or_default() {
            let at = format!("/proc/{pid}/task/{tid}");
            let path = format!("{at}/{}", process_stat::NAME);
            let Ok(ProcessStat { state, .. }) = host.parsed(&path, process_stat::parse) else { continue };
            if !matches!(state, 'S' | 'D' | 'T' | 't') {
                continue;
            }
            let stack = host.read(&format!("{at}/stack")).unwrap_or_default();
            let functions: Vec<String> = stack.lines().filter_map(function).collect();
            let (reason, function) = reasons::reason(&functions);
            *found.entry((reason, function.map(str::to_owned), state)).or_default() += 1;
        }
    }
    let asleep = |((reason, function, state), threads)| SleepingThreads { reason, function, state, threads };
    found.into_iter().map(asleep).collect()
}

/// `[<0>] futex_do_wait+0x38/0x70` -> `futex_do_wait`.
fn function(line: &str) -> Option<String> {
    let name = line.trim().rsplit_once(' ')?.1;
    Some(name.split('+').next().unwrap_or(name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Woken;
    use crate::names::TaskName;
    use spangap_machine::Kept;

    fn woken(time_ns: u64, slept_ns: u64, stack: u16, by: Waker) -> Event {
        let sleep = Sleep { stack: Some(stack), uninterruptible: false, as_for_a_lock: stack == 1 };
        let what = What::Woken(Woken { tid: 10, since_ns: time_ns - slept_ns, sleep, by });
        Event { time_ns, cpu: 0, what }
    }

    fn functions(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn sleeps_by_reason_and_waker() {
        let mut names = Names::default();
        for (tid, tgid, comm) in [(10, 10, "web"), (11, 10, "web-io"), (20, 20, "db"), (21, 20, "db-worker")]
        {
            names.told_task(0, tid, TaskName { comm: comm.into(), tgid, ..TaskName::default() });
        }
        names.told_stack(1, functions("__schedule schedule futex_do_wait do_futex"));
        names.told_stack(2, functions("__schedule schedule anon_pipe_read vfs_read"));
        let mut sums = WaitSums::default();
        for event in [
            woken(100, 40, 1, Waker::Task(11)),
            woken(200, 60, 1, Waker::Task(11)),
            woken(300, 5, 2, Waker::Task(20)),
            woken(400, 7, 2, Waker::Task(21)),
            woken(500, 9, 3, Waker::Unseen),
        ] {
            sums.on(&event);
        }
        let sums = sums.finish(&names, &[10]);
        let told: Vec<(WaitReason, Option<&str>, u64, u64)> = sums
            .iter()
            .map(|sum| (sum.reason, sum.waker.as_deref(), sum.histogram.count(), sum.histogram.sum_ns))
            .collect();
        assert_eq!(
            told,
            [
                (WaitReason::Lock, Some("web-io (pid 10, thread 11)"), 2, 100),
                (WaitReason::PipeRead, Some("db (pid 20)"), 2, 12),
                (WaitReason::Unknown, None, 1, 9),
            ]
        );
        assert_eq!(sums[0].function.as_deref(), Some("futex_do_wait"));
    }

    #[test]
    fn reasons_of_sleeping_threads() {
        let stack = "[<0>] futex_do_wait+0x38/0x70\n[<0>] __futex_wait+0x91/0x100\n";
        let rest = "1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 7 0 0";
        let kept = format!(
            "=== /proc/7/task/7/stat\n7 (a) R {rest}\n=== /proc/7/task/8/stat\n8 (b) S {rest}\n=== /proc/7/task/8/stack\n{stack}\
             === /proc/7/task/9/stat\n9 (c) S {rest}\n=== /proc/7/task/9/stack ! permission denied\n"
        );
        let host = Host::kept(Kept::parse(&kept).unwrap());
        let told: Vec<_> =
            asleep(&host, &[7]).into_iter().map(|one| (one.reason, one.state, one.threads)).collect();
        assert_eq!(told, [(WaitReason::Futex, 'S', 1), (WaitReason::Unknown, 'S', 1)]);
    }
}
