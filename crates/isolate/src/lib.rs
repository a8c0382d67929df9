//! Interrupts of the network here, applications there: planned, applied, verified, undone.
//!
//! [`topology`] reads what a machine is; [`plan`] decides, from that and a [`plan::Policy`] alone, what to change;
//! [`mod@apply`] does it with the old values in a [`journal`] first; [`mod@verify`] looks whether it holds and what it
//! did; [`mod@rollback`] undoes it from the journal alone. Whatever is changed, is changed through a [`kernel::Kernel`].

pub mod apply;
pub mod journal;
pub mod kernel;
pub mod place;
pub mod plan;
pub mod report;
pub mod rollback;
pub mod topology;
pub mod verify;
