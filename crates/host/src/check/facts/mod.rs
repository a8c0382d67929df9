//! What the files of a machine say, as values. Parsers are pure; what cannot be read says why.

pub mod cgroup;
pub mod kubelet;
pub mod listeners;
pub mod memory;
pub mod nic;
pub mod power;
pub mod pressure;
pub mod process;
