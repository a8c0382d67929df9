//! A process: its threads, where they may run, and how long they waited for a CPU.

use super::super::{Cpus, FactError, Host, Known};
use super::cgroup::{self, Group, Mount};
use super::text;
use std::collections::BTreeMap;

/// A thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Its name.
    pub comm: String,
    /// Where it may run.
    pub cpus: Cpus,
    /// What the scheduler counted.
    pub sched: Known<Sched>,
}

/// What the scheduler counted of a thread since it began, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sched {
    /// On a CPU.
    pub run_ns: u64,
    /// On a run queue, waiting.
    pub wait_ns: u64,
}

/// A process at one moment.
#[derive(Debug)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its name.
    pub comm: String,
    /// Its threads by number.
    pub threads: BTreeMap<u32, Thread>,
    /// Its cgroups that carry a CPU controller: its own first, then all above.
    pub groups: Known<Vec<Group>>,
    /// Counters of TCP in its network namespace.
    pub net: Net,
    /// Its network namespace.
    pub net_namespace: Known<String>,
    /// Whether that is the one whose interfaces are seen here.
    pub same_net: Known<bool>,
}

impl Process {
    /// Reads it.
    ///
    /// # Errors
    /// There is no such process, or it is hidden.
    pub fn read(host: &Host, mounts: &Known<Vec<Mount>>, pid: u32) -> Known<Process> {
        let comm = host.read(&format!("/proc/{pid}/comm"))?.trim_end().to_owned();
        let mut threads = BTreeMap::new();
        let tasks = format!("/proc/{pid}/task");
        for tid in host.list(&tasks)?.iter().filter_map(|name| name.parse().ok()) {
            match thread(host, &format!("{tasks}/{tid}")) {
                Ok(thread) => drop(threads.insert(tid, thread)),
                // It has ended since the folder was listed.
                Err(error) if error.is_absent() => {}
                Err(error) => return Err(error),
            }
        }
        let net = Net::read(host, &format!("/proc/{pid}/net"));
        let link = |of: &str| host.link(&format!("/proc/{of}/ns/net"));
        let net_namespace = link(&pid.to_string());
        let same_net = net_namespace.clone().and_then(|its| Ok(link("self")? == its));
        let groups = mounts.clone().and_then(|mounts| cgroup::of(host, &mounts, pid));
        Ok(Process { pid, comm, threads, groups, net, net_namespace, same_net })
    }

    /// Where any of its threads may run.
    pub fn cpus(&self) -> Cpus {
        self.threads.values().fold(Cpus::default(), |all, thread| all.either(&thread.cpus))
    }
}

/// Counters of TCP in a network namespace, such as `TcpExt.ListenDrops`.
#[derive(Debug)]
pub struct Net {
    netstat: Known<BTreeMap<String, u64>>,
    snmp: Known<BTreeMap<String, u64>>,
}

impl Net {
    /// Reads `netstat` and `snmp` in this folder.
    pub fn read(host: &Host, folder: &str) -> Net {
        let read = |name: &str| {
            let path = format!("{folder}/{name}");
            text::counters(&path, &host.read(&path)?)
        };
        Net { netstat: read("netstat"), snmp: read("snmp") }
    }

    /// A counter; `None` in a kernel that does not have it.
    ///
    /// # Errors
    /// Its file cannot be read.
    pub fn get(&self, name: &str) -> Result<Option<u64>, &FactError> {
        let file = if name.starts_with("TcpExt.") { &self.netstat } else { &self.snmp };
        Ok(file.as_ref()?.get(name).copied())
    }
}

fn thread(host: &Host, folder: &str) -> Known<Thread> {
    let path = format!("{folder}/status");
    let (comm, cpus) = status(&path, &host.read(&path)?)?;
    let path = format!("{folder}/schedstat");
    let sched = host.read(&path).and_then(|text| schedstat(&path, &text));
    Ok(Thread { comm, cpus, sched })
}

fn status(path: &str, text: &str) -> Known<(String, Cpus)> {
    let field = |name: &'static str| {
        let found =
            text.lines().enumerate().find_map(|(at, line)| Some((at, line.strip_prefix(name)?.trim())));
        found.ok_or_else(|| FactError::malformed(path, 0, text, "lines Name: and Cpus_allowed_list:"))
    };
    let (at, list) = field("Cpus_allowed_list:")?;
    let cpus =
        Cpus::parse_list(list).ok_or_else(|| FactError::malformed(path, at, list, "a list of CPUs"))?;
    Ok((field("Name:")?.1.to_owned(), cpus))
}

fn schedstat(path: &str, line: &str) -> Known<Sched> {
    let figures: Option<Vec<u64>> = line.split_whitespace().map(text::nanoseconds).collect();
    match figures.as_deref() {
        Some(&[run_ns, wait_ns, _]) => Ok(Sched { run_ns, wait_ns }),
        _ => Err(FactError::malformed(path, 0, line, "3 figures: nanoseconds run, waited, and a count")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_schedstat(run_ns in 0_u64..1 << 58, wait_ns in 0_u64..1 << 58, slices in 0_u64..1 << 40) {
            prop_assert_eq!(schedstat("/p", &format!("{run_ns} {wait_ns} {slices}\n")), Ok(Sched { run_ns, wait_ns }));
        }

        #[test]
        fn no_text_panics(text in "\\PC*|(Name|Cpus_allowed_list):\t\\PC*\n") {
            let _ = (status("/p", &text), schedstat("/p", &text));
        }
    }

    #[test]
    fn this_process() {
        let host = Host::below("/");
        let mounts = cgroup::mounts(&host);
        let process = Process::read(&host, &mounts, std::process::id()).unwrap();
        assert!(!process.threads.is_empty() && !process.cpus().is_empty());
        assert!(process.net.get("TcpExt.ListenOverflows").unwrap().is_some());
        assert!(process.net.get("Tcp.OutSegs").unwrap().is_some());
        assert_eq!(process.net.get("Tcp.NoSuchCounter"), Ok(None));
        assert_eq!(process.same_net, Ok(true));
        assert!(Process::read(&host, &mounts, u32::MAX).unwrap_err().is_absent());
    }

    #[test]
    fn a_status_without_cpus_is_told() {
        let error = status("/proc/1/status", "Name:\tx\nCpus_allowed_list:\tnone\n").unwrap_err().to_string();
        assert_eq!(error, "/proc/1/status, line 2: found \"none\", expected a list of CPUs");
    }
}
