//! Who used the CPU time of this machine: kernel events in, CPU intervals out.
//!
//! [`probes`] talks to the kernel; all other modules compute on recorded data, or read files below a given
//! root.

pub mod check;
pub mod event;
pub mod halted;
pub mod kernel;
pub mod names;
pub mod overlay;
pub mod probes;
pub mod reasons;
pub mod recording;
pub mod report;
pub mod symbols;
pub mod thieves;
pub mod timeline;
pub mod waits;
