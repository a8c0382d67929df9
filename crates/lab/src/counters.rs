//! What the kernel counts, for scenarios to prove that their fault acted.

use crate::LabError;
use crate::hosts;
use crate::stage::now_unix_ns;
use crate::truth::Active;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// TCP's counters of one host: `TcpExt.TCPTimeouts`, `Tcp.RetransSegs`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tcp(BTreeMap<String, i64>);

impl Tcp {
    /// Those of a host, by the name of its namespace.
    ///
    /// # Errors
    /// When there is no such host.
    pub fn of_host(namespace: &str) -> Result<Tcp, LabError> {
        let files = ["/proc/net/netstat", "/proc/net/snmp"];
        let output = hosts::ip(&["netns", "exec", namespace, "cat", files[0], files[1]])?;
        Ok(Tcp::read(&String::from_utf8_lossy(&output.stdout)))
    }

    fn read(text: &str) -> Tcp {
        let mut counters = BTreeMap::new();
        read_pairs(text, &mut counters);
        Tcp(counters)
    }

    /// A counter; 0 where the kernel has none of that name.
    pub fn get(&self, name: &str) -> i64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// How much a counter has grown since `before`.
    pub fn grew(&self, before: &Tcp, name: &str) -> f64 {
        (self.get(name) - before.get(name)) as f64
    }
}

/// Lines in pairs: names, then values, both behind the same prefix.
fn read_pairs(text: &str, into: &mut BTreeMap<String, i64>) {
    let mut lines = text.lines();
    while let (Some(names), Some(values)) = (lines.next(), lines.next()) {
        let (Some((prefix, names)), Some((_, values))) = (names.split_once(':'), values.split_once(':'))
        else {
            continue;
        };
        for (name, value) in names.split_whitespace().zip(values.split_whitespace()) {
            into.insert(format!("{prefix}.{name}"), value.parse().unwrap_or(0));
        }
    }
}

/// A number behind a name, in a file of lines such as `nr_throttled 5` (`cpu.stat`).
///
/// # Errors
/// When the file cannot be read or has no such line.
pub fn named(path: &Path, name: &str) -> Result<u64, LabError> {
    let text = fs::read_to_string(path).map_err(LabError::file("read", path))?;
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    value.ok_or_else(|| LabError::program(path.display().to_string(), format!("there is no {name}")))
}

/// How long the threads of a process have waited for a CPU while they could run, nanoseconds.
///
/// # Errors
/// When the process is gone.
pub fn run_delay_ns(pid: u32) -> Result<u64, LabError> {
    let folder = PathBuf::from(format!("/proc/{pid}/task"));
    let mut sum = 0;
    for entry in fs::read_dir(&folder).map_err(LabError::file("read", &folder))?.flatten() {
        // A thread may end meanwhile.
        let text = fs::read_to_string(entry.path().join("schedstat")).unwrap_or_default();
        sum += text.split_whitespace().nth(1).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(sum)
}

/// Runs of NET_RX on a CPU since boot.
///
/// # Errors
/// When there is no such CPU.
pub fn net_rx(cpu: usize) -> Result<u64, LabError> {
    let path = Path::new("/proc/softirqs");
    let text = fs::read_to_string(path).map_err(LabError::file("read", path))?;
    let row = text.lines().find_map(|line| line.trim_start().strip_prefix("NET_RX:"));
    let value = row.and_then(|row| row.split_whitespace().nth(cpu)?.parse().ok());
    value.ok_or_else(|| LabError::program("/proc/softirqs", format!("there is no CPU {cpu}")))
}

/// Time of softirqs on a CPU since boot, nanoseconds; that of `ksoftirqd` is in it. As exact as the kernel's clock tick.
///
/// # Errors
/// When there is no such CPU.
pub fn softirq_ns(cpu: usize) -> Result<u64, LabError> {
    /// The same for all that Linux runs on.
    const TICK_NS: u64 = 10_000_000;
    let path = Path::new("/proc/stat");
    let text = fs::read_to_string(path).map_err(LabError::file("read", path))?;
    let ticks = softirq_ticks(&text, cpu);
    let ticks = ticks.ok_or_else(|| LabError::program("/proc/stat", format!("there is no CPU {cpu}")))?;
    Ok(ticks * TICK_NS)
}

/// user, nice, system, idle, iowait, irq, softirq
fn softirq_ticks(text: &str, cpu: usize) -> Option<u64> {
    let row = text.lines().find_map(|line| line.strip_prefix(&format!("cpu{cpu} ")))?;
    row.split_whitespace().nth(6)?.parse().ok()
}

/// Packets that a device of the host of a process has received.
///
/// # Errors
/// When the process is gone, or its host has no such device.
pub fn rx_packets(pid: u32, device: &str) -> Result<u64, LabError> {
    let path = PathBuf::from(format!("/proc/{pid}/net/dev"));
    let text = fs::read_to_string(&path).map_err(LabError::file("read", &path))?;
    let row = text.lines().find_map(|line| line.trim_start().strip_prefix(device)?.strip_prefix(':'));
    let packets = row.and_then(|row| row.split_whitespace().nth(1)?.parse().ok());
    packets.ok_or_else(|| LabError::program(path.display().to_string(), format!("there is no {device}")))
}

/// How often a [`Watch`] looks.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Looks at a counter again and again, while something runs that may take it along when it ends.
#[derive(Debug)]
pub struct Watch {
    over: Sender<()>,
    looks: JoinHandle<Vec<(u64, u64)>>,
}

impl Watch {
    /// Looks until [`Watch::end`], or until there is nothing to look at any more.
    pub fn start(mut look: impl FnMut() -> Result<u64, LabError> + Send + 'static) -> Watch {
        let (over, ended) = channel();
        let looks = std::thread::spawn(move || {
            let mut looks = Vec::new();
            while let Ok(value) = look() {
                looks.push((now_unix_ns(), value));
                if ended.recv_timeout(LOOK_EVERY) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
            }
            looks
        });
        Watch { over, looks }
    }

    /// What was seen.
    pub fn end(self) -> Course {
        drop(self.over);
        Course(self.looks.join().unwrap_or_default())
    }
}

/// A counter over time.
#[derive(Clone, Debug, Default)]
pub struct Course(Vec<(u64, u64)>);

impl Course {
    /// How much it has grown in these stretches; between two looks it is taken to grow evenly.
    pub fn grew(&self, stretches: &[Active]) -> f64 {
        stretches.iter().map(|one| self.at(one.to_unix_ns) - self.at(one.from_unix_ns)).sum()
    }

    fn at(&self, unix_ns: u64) -> f64 {
        let after = self.0.partition_point(|(time, _)| *time <= unix_ns);
        match (after.checked_sub(1).map(|before| self.0[before]), self.0.get(after)) {
            (Some((from, low)), Some((to, high))) => {
                let share = (unix_ns - from) as f64 / (to - from) as f64;
                low as f64 + (*high as f64 - low as f64) * share
            }
            (Some((_, value)), None) => value as f64,
            (None, Some((_, value))) => *value as f64,
            (None, None) => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_of_lines() {
        let tcp = Tcp::read("TcpExt: A B\nTcpExt: 1 2\nIpExt: A\nIpExt: -3\nrest");
        assert_eq!((tcp.get("TcpExt.B"), tcp.get("IpExt.A"), tcp.get("IpExt.C")), (2, -3, 0));
    }

    #[test]
    fn softirqs_are_in_the_seventh_column() {
        let text = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu1 1 2 3 4 5 6 7 8 9 10\ncpu10 0 0 0 0 0 0 70 0 0 0\n";
        assert_eq!(
            (softirq_ticks(text, 1), softirq_ticks(text, 10), softirq_ticks(text, 0)),
            (Some(7), Some(70), None)
        );
    }

    #[test]
    fn a_course_grows_evenly_between_two_looks() {
        let course = Course(vec![(100, 10), (200, 30), (300, 30)]);
        let grew = |from_unix_ns, to_unix_ns| course.grew(&[Active { from_unix_ns, to_unix_ns }]);
        assert_eq!((grew(0, 1000), grew(150, 250), grew(200, 300), grew(0, 100)), (20.0, 10.0, 0.0, 0.0));
        assert_eq!(Course::default().grew(&[Active { from_unix_ns: 0, to_unix_ns: 9 }]), 0.0);
    }

    #[test]
    fn a_watch_ends_when_there_is_nothing_to_look_at() {
        let mut values = [3, 4, 9].into_iter();
        let watch = Watch::start(move || values.next().ok_or_else(|| LabError::program("it", "is gone")));
        let looks = watch.looks.join().expect("it ends by itself");
        assert_eq!(looks.into_iter().map(|(_, value)| value).collect::<Vec<_>>(), [3, 4, 9]);
    }

    #[test]
    fn counters_of_this_process() {
        let tcp = Tcp::read(&fs::read_to_string("/proc/net/snmp").expect("this kernel has TCP"));
        assert!(tcp.0.contains_key("Tcp.RetransSegs"), "{tcp:?}");
        assert!(run_delay_ns(std::process::id()).is_ok());
        assert!(net_rx(0).is_ok());
        assert!(softirq_ns(0).is_ok());
        assert!(rx_packets(std::process::id(), "lo").is_ok());
    }
}
