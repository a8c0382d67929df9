//! `spangap lab` as a process.

mod actors;
mod clean;
mod crash;
mod draw;
mod ended;
mod folder;
mod grade;
mod hosts;
mod line;
#[path = "../meter/process.rs"]
#[allow(dead_code)] // the meter's tests need more of it
mod process;
mod scene;
#[path = "../undo/mod.rs"]
mod undo;
