//! Sets of CPUs: as lists such as `0,2-3`, as a NUMA node, as the affinity of a thread.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::str::FromStr;

/// CPUs by number; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpus(BTreeSet<usize>);

/// Reason for unavailable CPUs.
#[derive(Debug, thiserror::Error)]
pub enum CpusError {
    /// Not a list of CPUs.
    #[error("{0:?} is not a list of CPUs: expected one such as 0,2-3, or node:N")]
    List(String),
    /// An unknown node.
    #[error("cannot read the CPUs of NUMA node {node} ({path})")]
    Node {
        /// Node number.
        node: usize,
        /// The file that lists them.
        path: String,
        /// Error of the kernel.
        source: io::Error,
    },
    /// CPUs outside this process's affinity.
    #[error("cannot run on CPUs {wanted}: this process may use {allowed}")]
    NotAllowed {
        /// Requested CPUs.
        wanted: Cpus,
        /// Allowed CPUs.
        allowed: Cpus,
    },
    /// The kernel does not report or set the affinity.
    #[error("cannot set the CPUs of the client")]
    Kernel(#[from] rustix::io::Errno),
}

impl Cpus {
    /// CPUs that the calling thread may use.
    ///
    /// # Errors
    /// The kernel does not report them.
    pub fn of_this_thread() -> Result<Self, CpusError> {
        let set = sched_getaffinity(None)?;
        Ok(Cpus((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()))
    }

    /// CPUs of a NUMA node.
    ///
    /// # Errors
    /// The node does not exist, or has no CPU.
    pub fn of_node(node: usize) -> Result<Self, CpusError> {
        let path = format!("/sys/devices/system/node/node{node}/cpulist");
        let text = std::fs::read_to_string(&path).map_err(|source| CpusError::Node { node, path, source })?;
        list(text.trim())
    }

    /// Numbers, in order.
    pub fn numbers(&self) -> impl Iterator<Item = usize> {
        self.0.iter().copied()
    }

    /// Number of CPUs.
    pub fn count(&self) -> u32 {
        self.0.len() as u32
    }

    fn set(&self) -> CpuSet {
        let mut set = CpuSet::new();
        self.0.iter().for_each(|&cpu| set.set(cpu));
        set
    }

    /// Runs `work` on a thread confined to these CPUs, as are the processes that it starts.
    ///
    /// # Errors
    /// This process may not use all of them.
    pub fn run<T>(&self, work: impl FnOnce() -> T) -> Result<T, CpusError> {
        let before = Cpus::of_this_thread()?;
        let refused = || CpusError::NotAllowed { wanted: self.clone(), allowed: before.clone() };
        sched_setaffinity(None, &self.set()).map_err(|_| refused())?;
        // The kernel silently ignores CPUs that are offline or not allowed.
        let result = match Cpus::of_this_thread() {
            Ok(now) if now == *self => Ok(work()),
            Ok(_) => Err(refused()),
            Err(error) => Err(error),
        };
        sched_setaffinity(None, &before.set())?;
        result
    }
}

fn list(text: &str) -> Result<Cpus, CpusError> {
    let refused = || CpusError::List(text.into());
    let number = |text: &str| match text.trim().parse::<usize>() {
        Ok(cpu) if cpu < CpuSet::MAX_CPU => Ok(cpu),
        _ => Err(refused()),
    };
    let mut cpus = BTreeSet::new();
    for item in text.split(',') {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(refused());
        }
        cpus.extend(first..=last);
    }
    Ok(Cpus(cpus))
}

impl FromStr for Cpus {
    type Err = CpusError;

    fn from_str(text: &str) -> Result<Self, CpusError> {
        match text.strip_prefix("node:") {
            Some(node) => Cpus::of_node(node.parse().map_err(|_| CpusError::List(text.into()))?),
            None => list(text),
        }
    }
}

impl fmt::Display for Cpus {
    /// As a list such as `0,2-3`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ranges: Vec<(usize, usize)> = Vec::new();
        for &cpu in &self.0 {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == cpu => *last = cpu,
                _ => ranges.push((cpu, cpu)),
            }
        }
        for (at, (first, last)) in ranges.into_iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lists_are_read_and_written() {
        for (text, shown) in [("0", "0"), ("3,1,2", "1-3"), ("0,2-3,3-5,9", "0,2-5,9"), ("7-7", "7")] {
            assert_eq!(list(text).unwrap().to_string(), shown, "{text}");
        }
        for text in ["", "a", "1,", "3-1", "1-", "-1", "99999", "node:", "node:x"] {
            assert!(matches!(text.parse::<Cpus>(), Err(CpusError::List(_))), "{text}");
        }
    }

    proptest! {
        #[test]
        fn displayed_values_parse(cpus in prop::collection::btree_set(0usize..1024, 1..40)) {
            let cpus = Cpus(cpus);
            prop_assert_eq!(list(&cpus.to_string()).unwrap(), cpus);
        }
    }

    #[test]
    fn work_runs_on_the_given_cpus() {
        let all = Cpus::of_this_thread().unwrap();
        let one = Cpus(all.0.iter().copied().take(1).collect());
        assert_eq!(one.run(|| Cpus::of_this_thread().unwrap()).unwrap(), one);
        assert_eq!(Cpus::of_this_thread().unwrap(), all);
    }

    #[test]
    fn missing_cpus_are_reported() {
        let all = Cpus::of_this_thread().unwrap();
        let missing = (0..CpuSet::MAX_CPU).rev().find(|cpu| !all.0.contains(cpu)).unwrap();
        let wanted: Cpus = format!("{},{missing}", all.0.first().unwrap()).parse().unwrap();
        let error = wanted.run(|| ()).unwrap_err().to_string();
        assert!(error.contains(&missing.to_string()) && error.contains(&all.to_string()), "{error}");
        assert_eq!(Cpus::of_this_thread().unwrap(), all);
    }
}
