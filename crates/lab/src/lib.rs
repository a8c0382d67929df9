//! Faults with known truth, on one machine: two hosts, a tank on one, a target on the other, an injected fault,
//! and everything that a user could have recorded, next to the truth.
//!
//! A [`scenario::Scenario`] is one fault, one file under `scenarios/`. [`run::run`] gives it a
//! [`stage::Stage`], where it sets up hosts, serves, calls and injects the fault; it returns the
//! [`truth::Truth`]. Every change to the machine is journaled first ([`undo`]), so nothing stays behind,
//! however a run ends. Grading compares verdicts on such runs with their truth.

pub mod actors;
pub mod calls;
pub mod clocks;
pub mod counters;
pub mod draw;
pub mod error;
pub mod folder;
pub mod grade;
pub mod host_clock;
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
