//! What the kernel counts, for scenarios to prove that their fault acted.

use crate::LabError;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// TCP's counters of one host: `TcpExt.TCPTimeouts`, `Tcp.RetransSegs`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tcp(BTreeMap<String, i64>);

impl Tcp {
    /// Those of the host that a process runs on.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn of_process(pid: u32) -> Result<Tcp, LabError> {
        let mut counters = BTreeMap::new();
        for file in ["netstat", "snmp"] {
            let path = PathBuf::from(format!("/proc/{pid}/net/{file}"));
            let text = fs::read_to_string(&path).map_err(LabError::file("read", &path))?;
            read_pairs(&text, &mut counters);
        }
        Ok(Tcp(counters))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_of_lines() {
        let mut counters = BTreeMap::new();
        read_pairs("TcpExt: A B\nTcpExt: 1 2\nIpExt: A\nIpExt: -3\nrest", &mut counters);
        let tcp = Tcp(counters);
        assert_eq!((tcp.get("TcpExt.B"), tcp.get("IpExt.A"), tcp.get("IpExt.C")), (2, -3, 0));
    }

    #[test]
    fn counters_of_this_process() {
        let tcp = Tcp::of_process(std::process::id()).expect("it runs");
        assert!(tcp.0.contains_key("Tcp.RetransSegs"), "{tcp:?}");
        assert!(run_delay_ns(std::process::id()).is_ok());
        assert!(net_rx(0).is_ok());
    }
}
