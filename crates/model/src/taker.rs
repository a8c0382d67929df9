//! Takers: whatever had a CPU while a thread wanted it.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Softirq vectors that process packets, by their kernel names.
const PACKETS: [&str; 2] = ["NET_RX", "NET_TX"];
/// Kernel threads that process packets in place of softirqs: `ksoftirqd/3`, `napi/eth0-8193`.
const PACKET_THREADS: [&str; 2] = ["ksoftirqd/", "napi/"];

/// The user of a CPU.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Taker {
    /// Nobody: the CPU was idle.
    Idle,
    /// A thread.
    Task {
        /// Thread id on its host.
        tid: u32,
        /// Process id; `None` if unknown.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        pid: Option<u32>,
        /// Name; `None` if unknown.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        name: Option<String>,
    },
    /// Another thread of the process that wanted the CPU.
    Sibling {
        /// Thread id on its host.
        tid: u32,
        /// Name; `None` if unknown.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        name: Option<String>,
    },
    /// Work of the kernel after an interrupt.
    Softirq {
        /// Name as in `/proc/softirqs`: `NET_RX`.
        vector: String,
        /// Interface whose packets it processed, if known.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        device: Option<String>,
    },
    /// An interrupt handler.
    Interrupt {
        /// Number in `/proc/interrupts`.
        line: u32,
        /// Name there, if any.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        name: Option<String>,
    },
    /// The timer interrupt of a CPU.
    Timer,
    /// A call from another CPU (rescheduling, TLB, functions).
    CrossCall,
    /// Another guest of this machine's hypervisor.
    Hypervisor,
}

impl Taker {
    /// The same from the perspective of these processes: whether the CPU stayed within the process.
    pub fn seen_by(self, pids: &[u32]) -> Taker {
        match self {
            Taker::Task { tid, pid: Some(pid), name } if pids.contains(&pid) => Taker::Sibling { tid, name },
            other => other,
        }
    }

    /// Whether it is the kernel processing packets: in a softirq, or in a thread for that purpose.
    pub fn moves_packets(&self) -> bool {
        match self {
            Taker::Softirq { vector, .. } => PACKETS.contains(&vector.as_str()),
            Taker::Task { name: Some(name), .. } => {
                PACKET_THREADS.iter().any(|thread| name.starts_with(thread))
            }
            _ => false,
        }
    }
}

/// `stress (pid 812)`, `worker (pid 812, thread 815)`, `NET_RX of eth0`, `irq 24 virtio0-input.0`, `timer`
impl fmt::Display for Taker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Taker::Idle => f.write_str("idle"),
            Taker::Task { tid, pid: Some(pid), name: Some(name) } if pid == tid => {
                write!(f, "{name} (pid {pid})")
            }
            Taker::Task { tid, pid: Some(pid), name: Some(name) } => {
                write!(f, "{name} (pid {pid}, thread {tid})")
            }
            Taker::Task { tid, .. } => write!(f, "thread {tid}"),
            Taker::Sibling { tid, name: Some(name) } => {
                write!(f, "{name} (thread {tid} of the same process)")
            }
            Taker::Sibling { tid, name: None } => write!(f, "thread {tid} of the same process"),
            Taker::Softirq { vector, device: Some(device) } => write!(f, "{vector} of {device}"),
            Taker::Softirq { vector, device: None } => f.write_str(vector),
            Taker::Interrupt { line, name: Some(name) } => write!(f, "irq {line} {name}"),
            Taker::Interrupt { line, name: None } => write!(f, "irq {line}"),
            Taker::Timer => f.write_str("timer"),
            Taker::CrossCall => f.write_str("call from another CPU"),
            Taker::Hypervisor => f.write_str("hypervisor"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sibling_thread_is_not_foreign() {
        let task = |pid| Taker::Task { tid: 9, pid, name: Some("gc".into()) };
        assert_eq!(task(Some(7)).seen_by(&[7]).to_string(), "gc (thread 9 of the same process)");
        for pid in [Some(8), None] {
            assert_eq!(task(pid).seen_by(&[7]), task(pid));
        }
    }

    #[test]
    fn packets_are_moved_in_softirqs_and_by_threads_of_the_kernel() {
        let softirq = |vector: &str| Taker::Softirq { vector: vector.into(), device: None };
        let task = |name: &str| Taker::Task { tid: 7, pid: Some(7), name: Some(name.into()) };
        assert!(softirq("NET_RX").moves_packets() && task("ksoftirqd/0").moves_packets());
        assert!(task("napi/eth0-8193").moves_packets());
        assert!(
            !softirq("RCU").moves_packets()
                && !task("napier").moves_packets()
                && !Taker::Timer.moves_packets()
        );
    }
}
