//! One verb, one file. Each parses its raw arguments (`clap`) into validated settings of the crate that does
//! the work, and prints the result.

pub mod actuator;
pub mod agent;
pub mod bench;
pub mod capture;
pub mod client;
pub mod demo;
pub mod dissect;
pub mod gaps;
pub mod generate;
pub mod host;
pub mod hunt;
pub mod isolate;
pub mod lab;
pub mod meter;
pub mod sockets;
pub mod tank;
pub mod target;
