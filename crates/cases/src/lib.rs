//! Where agents, spans and verdicts meet: which host a span is of, what opens a case, what is in its folder.
//!
//! [`server`] takes agents in, [`agents`] knows them, [`hosts`] says whose host a span is of. [`watching`] and [`trigger`] say
//! which pair is worth a look, [`cases`] opens a case for it, [`pursuit`] fills its [`folder`] and asks [`verdict`];
//! [`experiment`] proves a verdict, or does not.

pub mod agents;
pub mod api;
mod budget;
pub mod cases;
mod clocks;
pub mod experiment;
pub mod folder;
pub mod hosts;
mod nearest;
pub mod pursuit;
pub mod report;
pub mod samples;
pub mod server;
pub mod slices;
pub mod trigger;
pub mod verdict;
pub mod watching;
pub mod whole;
mod whose;
