//! Who took the time on this machine: kernel events in, CPU intervals out.
//!
//! [`probes`] asks the kernel; everything else is arithmetic over what it said, or reads files under a given root.

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
