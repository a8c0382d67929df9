//! `spangap lab` as a process.

mod actors;
mod grade;
#[path = "../meter/process.rs"]
#[allow(dead_code)] // the meter's tests need more of it
mod process;
