//! The eBPF programs, one folder each: the program in C, and the Rust that loads it and reads its results.

pub mod cost;
pub mod intervals;
mod mapping;
pub mod offcpu;
pub mod packets;
mod skeletons;
pub mod stacks;

/// Names of all probes: their folders, where the build looks for them.
pub const ALL: &[&str] = &["intervals", "offcpu", "packets", "stacks"];
