//! The eBPF programs, one folder each: the program in C, and the Rust that loads it and reads what it found.

pub mod cost;
pub mod intervals;
pub mod offcpu;
mod skeletons;
pub mod stacks;

/// Names of all probes: their folders, which is where the build finds them.
pub const ALL: &[&str] = &["intervals", "offcpu", "stacks"];
