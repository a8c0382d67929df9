//! Presentation: tables, histograms, JSON shapes, pages. Pure.

pub mod check;
pub mod flame;
pub mod offcpu;
pub mod thieves;
pub mod wait_times;
pub mod waits;
