//! A process: its threads, their CPU masks, and their run-queue waits.

use super::super::{Cpus, FactError, Host, Known};
use super::cgroup::{self, Group};
use spangap_machine::facts::mountinfo::CgroupMount;
use spangap_machine::facts::net_counters;
use spangap_machine::facts::process_status::{self, ProcessStatus};
use spangap_machine::facts::schedstat::{self, Sched};
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    pub comm: String,
    /// CPUs that its affinity mask allows.
    pub cpus: Cpus,
    /// Scheduler statistics.
    pub sched: Known<Sched>,
}

/// A process at one moment.
#[derive(Debug)]
pub struct Process {
    pub pid: u32,
    pub comm: String,
    /// Threads by thread id.
    pub threads: BTreeMap<u32, Thread>,
    /// Cgroups that carry a CPU controller: its own first, then the ancestors.
    pub groups: Known<Vec<Group>>,
    /// TCP counters of its network namespace.
    pub net: Net,
    /// Its network namespace.
    pub net_namespace: Known<String>,
    /// Whether that is the namespace whose interfaces are visible here.
    pub same_net: Known<bool>,
}

impl Process {
    /// Reads a process.
    ///
    /// # Errors
    /// The process does not exist, or is hidden.
    pub fn read(host: &Host, mounts: &Known<Vec<CgroupMount>>, pid: u32) -> Known<Process> {
        let comm = host.read(&format!("/proc/{pid}/comm"))?.trim_end().to_owned();
        let mut threads = BTreeMap::new();
        let tasks = format!("/proc/{pid}/task");
        for tid in host.list(&tasks)?.iter().filter_map(|name| name.parse().ok()) {
            match thread(host, &format!("{tasks}/{tid}")) {
                Ok(thread) => drop(threads.insert(tid, thread)),
                // The thread ended after the folder was listed.
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

    /// CPUs that at least one of its threads may run on.
    pub fn cpus(&self) -> Cpus {
        self.threads.values().fold(Cpus::default(), |all, thread| all.either(&thread.cpus))
    }
}

/// TCP counters of a network namespace, such as `TcpExt.ListenDrops`.
#[derive(Debug)]
pub struct Net {
    netstat: Known<BTreeMap<String, u64>>,
    snmp: Known<BTreeMap<String, u64>>,
}

impl Net {
    /// Reads `netstat` and `snmp` in this folder.
    pub fn read(host: &Host, folder: &str) -> Net {
        let read = |name: &str| host.parsed(&format!("{folder}/{name}"), net_counters::parse);
        Net { netstat: read(net_counters::NETSTAT), snmp: read(net_counters::SNMP) }
    }

    /// A counter; `None` if this kernel lacks it.
    ///
    /// # Errors
    /// The counter's file cannot be read.
    pub fn get(&self, name: &str) -> Result<Option<u64>, &FactError> {
        let file = if name.starts_with("TcpExt.") { &self.netstat } else { &self.snmp };
        Ok(file.as_ref()?.get(name).copied())
    }
}

fn thread(host: &Host, folder: &str) -> Known<Thread> {
    let (comm, cpus) = host.parsed(&format!("{folder}/{}", process_status::NAME), |path, text| {
        let status = ProcessStatus::new(path, text);
        Ok((status.name()?.to_owned(), status.allowed()?))
    })?;
    let sched = host.parsed(&format!("{folder}/{}", schedstat::NAME), schedstat::parse);
    Ok(Thread { comm, cpus, sched })
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
