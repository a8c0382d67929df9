//! The scenarios, one file each. A test compares this list with the folder.

mod client_app;
mod cpu_quota;
mod head_of_line;
mod healthy;
mod large_payload;
mod nagle;
mod receive_window;
mod run_queue;
mod server_app;
mod server_queue;
mod shared_connection;
mod softirq;
mod stopped;
mod stream_limit;

use crate::scenario::{NEAR_MISS, Scenario};

/// All of them, in the order in which they are listed.
pub const ALL: &[&Scenario] = &[
    &client_app::CLIENT_APP,
    &cpu_quota::CLIENT,
    &cpu_quota::SERVER,
    &head_of_line::HEAD_OF_LINE,
    &healthy::HEALTHY,
    &large_payload::LARGE_PAYLOAD,
    &nagle::CLIENT,
    &nagle::SERVER,
    &receive_window::CLIENT,
    &receive_window::SERVER,
    &run_queue::CLIENT,
    &run_queue::SERVER,
    &server_app::SERVER_APP,
    &server_queue::SERVER_QUEUE,
    &shared_connection::SHARED_CONNECTION,
    &softirq::CLIENT,
    &softirq::SERVER,
    &stopped::CLIENT,
    &stopped::SERVER,
    &stream_limit::STREAM_LIMIT,
];

/// A scenario by its name, and whether its near miss is meant.
pub fn find(name: &str) -> Option<(&'static Scenario, bool)> {
    let named = |name: &str| ALL.iter().copied().find(|scenario| scenario.name == name);
    match named(name) {
        Some(scenario) => Some((scenario, false)),
        None => name.strip_suffix(NEAR_MISS).and_then(named).map(|scenario| (scenario, true)),
    }
}
