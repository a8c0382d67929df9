//! Faults with known truth, on one machine: two hosts, a tank on one, a target on the other, a fault made on purpose, and
//! all that a user could have recorded of it, beside what was the matter.
//!
//! A [`scenario::Scenario`] is one fault, one file under `scenarios/`. [`run::run`] gives it a [`stage::Stage`], where it
//! sets up hosts, serves, calls and does its harm; what it returns is the [`truth::Truth`]. Whatever it makes of the
//! machine is in a journal first ([`undo`]), so that nothing stays behind, however it ends. Grading compares what
//! somebody says of such runs with their truth.

pub mod actors;
pub mod calls;
pub mod clocks;
pub mod counters;
pub mod draw;
pub mod error;
pub mod folder;
pub mod grade;
pub mod hosts;
pub mod page;
pub mod pauses;
pub mod run;
pub mod scenario;
pub mod scenarios;
pub mod shim;
pub mod stage;
pub mod truth;
pub mod undo;
pub mod waits;

pub use error::LabError;
