//! Kernel counters by which scenarios prove that their fault acted.

use crate::LabError;
use crate::host_clock::now_unix_ns;
use crate::hosts;
use crate::truth::Active;
use spangap_machine::facts::{net_counters, net_dev, schedstat, stat};
use spangap_machine::read_here;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// TCP's counters of one host: `TcpExt.TCPTimeouts`, `Tcp.RetransSegs`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tcp(BTreeMap<String, u64>);

impl Tcp {
    /// Counters of a host, by the name of its namespace.
    ///
    /// # Errors
    /// The host does not exist.
    pub fn of_host(namespace: &str) -> Result<Tcp, LabError> {
        let files = [net_counters::NETSTAT, net_counters::SNMP].map(|file| format!("/proc/net/{file}"));
        let output = hosts::ip(&["netns", "exec", namespace, "cat", &files[0], &files[1]])?;
        let both = format!("{} and {} of {namespace}", files[0], files[1]);
        Ok(Tcp(net_counters::parse(&both, &String::from_utf8_lossy(&output.stdout))?))
    }

    /// A counter; 0 if the kernel does not have it.
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Increase of a counter since `before`.
    pub fn grew(&self, before: &Tcp, name: &str) -> f64 {
        self.get(name) as f64 - before.get(name) as f64
    }
}

/// Total run-queue wait of a process's threads, in nanoseconds.
///
/// # Errors
/// The process is gone.
pub fn run_delay_ns(pid: u32) -> Result<u64, LabError> {
    let folder = PathBuf::from(format!("/proc/{pid}/task"));
    let mut sum = 0;
    for entry in fs::read_dir(&folder).map_err(LabError::file("read", &folder))?.flatten() {
        let path = entry.path().join(schedstat::NAME);
        // A thread may end meanwhile.
        sum += read_here(&path.to_string_lossy(), schedstat::parse).map_or(0, |sched| sched.wait_ns);
    }
    Ok(sum)
}

/// Softirq time on a CPU since boot, in nanoseconds, including `ksoftirqd`. The resolution is the kernel's
/// clock tick.
///
/// # Errors
/// The CPU does not exist.
pub fn softirq_ns(cpu: usize) -> Result<u64, LabError> {
    /// Equal on all supported architectures.
    const TICK_NS: u64 = 10_000_000;
    let times = read_here(stat::PATH, stat::parse)?.cpus;
    let times = u32::try_from(cpu)
        .ok()
        .and_then(|cpu| times.get(&cpu))
        .ok_or_else(|| LabError::program(stat::PATH, format!("there is no CPU {cpu}")))?;
    Ok(times.softirq * TICK_NS)
}

/// Packets received by a device on the host of a process.
///
/// # Errors
/// The process is gone, or its host has no such device.
pub fn rx_packets(pid: u32, device: &str) -> Result<u64, LabError> {
    let path = format!("/proc/{pid}/net/{}", net_dev::NAME);
    let packets = read_here(&path, net_dev::rx_packets)?.get(device).copied();
    packets.ok_or_else(|| LabError::program(path, format!("there is no {device}")))
}

/// Polling interval of a [`Watch`].
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Polls a counter that may vanish together with the program it belongs to.
#[derive(Debug)]
pub struct Watch {
    over: Sender<()>,
    looks: JoinHandle<Vec<(u64, u64)>>,
}

impl Watch {
    /// Polls until [`Watch::end`], or until the counter is gone.
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

    /// The course of the counter.
    pub fn end(self) -> CounterCourse {
        drop(self.over);
        CounterCourse(self.looks.join().unwrap_or_default())
    }
}

/// A counter over time.
#[derive(Clone, Debug, Default)]
pub struct CounterCourse(Vec<(u64, u64)>);

impl CounterCourse {
    /// Growth during these intervals; linear between two polls.
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
    fn growth_is_linear_between_polls() {
        let course = CounterCourse(vec![(100, 10), (200, 30), (300, 30)]);
        let grew = |from_unix_ns, to_unix_ns| course.grew(&[Active { from_unix_ns, to_unix_ns }]);
        assert_eq!((grew(0, 1000), grew(150, 250), grew(200, 300), grew(0, 100)), (20.0, 10.0, 0.0, 0.0));
        assert_eq!(CounterCourse::default().grew(&[Active { from_unix_ns: 0, to_unix_ns: 9 }]), 0.0);
    }

    #[test]
    fn watch_ends_with_its_counter() {
        let mut values = [3, 4, 9].into_iter();
        let watch = Watch::start(move || values.next().ok_or_else(|| LabError::program("it", "is gone")));
        let looks = watch.looks.join().expect("it ends by itself");
        assert_eq!(looks.into_iter().map(|(_, value)| value).collect::<Vec<_>>(), [3, 4, 9]);
    }

    #[test]
    fn counters_of_this_process() {
        let tcp = Tcp(read_here("/proc/net/snmp", net_counters::parse).expect("this kernel has TCP"));
        assert!(tcp.0.contains_key("Tcp.RetransSegs"), "{tcp:?}");
        let before = Tcp([("Tcp.RetransSegs".to_owned(), tcp.get("Tcp.RetransSegs") + 3)].into());
        assert_eq!((tcp.grew(&before, "Tcp.RetransSegs"), tcp.get("Tcp.None")), (-3.0, 0));
        assert!(run_delay_ns(std::process::id()).is_ok());
        assert!(softirq_ns(0).is_ok() && softirq_ns(usize::MAX).is_err());
        let own = std::process::id();
        assert!(rx_packets(own, "lo").is_ok() && rx_packets(own, "none").is_err());
    }
}
