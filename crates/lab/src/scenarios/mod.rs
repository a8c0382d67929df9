//! The scenarios, one file each. A test compares this list with the folder.

mod cpu_quota;
mod healthy;
mod run_queue;
mod stopped;

use crate::scenario::{NEAR_MISS, Scenario};

/// All of them, in the order in which they are listed.
pub const ALL: &[&Scenario] = &[
    &cpu_quota::CLIENT,
    &cpu_quota::SERVER,
    &healthy::HEALTHY,
    &run_queue::CLIENT,
    &run_queue::SERVER,
    &stopped::CLIENT,
    &stopped::SERVER,
];

/// A scenario by its name, and whether its near miss is meant.
pub fn find(name: &str) -> Option<(&'static Scenario, bool)> {
    let named = |name: &str| ALL.iter().copied().find(|scenario| scenario.name == name);
    match named(name) {
        Some(scenario) => Some((scenario, false)),
        None => name.strip_suffix(NEAR_MISS).and_then(named).map(|scenario| (scenario, true)),
    }
}
