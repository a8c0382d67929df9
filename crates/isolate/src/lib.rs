//! Separates network interrupts from applications: plan, apply, verify, undo.
//!
//! [`topology`] reads the machine; [`plan`] decides what to change, from that and a [`plan::Policy`] alone;
//! [`mod@apply`] carries it out, with the old values in a [`journal`] first; [`mod@verify`] checks whether it
//! holds and what it achieves; [`mod@rollback`] undoes it from the journal alone. Every change goes through a
//! [`kernel::Kernel`].

pub mod apply;
pub mod journal;
pub mod kernel;
pub mod place;
pub mod plan;
pub mod report;
pub mod rollback;
pub mod topology;
pub mod verify;
