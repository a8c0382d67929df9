//! Contents of the machine's files as values. Parsers are pure; an unreadable file yields the reason.

pub mod cgroup;
pub mod kubelet;
pub mod listeners;
pub mod memory;
pub mod nic;
pub mod power;
pub mod pressure;
pub mod process;
