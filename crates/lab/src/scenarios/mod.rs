//! The scenarios, one file each. A test compares this list with the folder.

mod accept_overflow;
mod client_app;
mod clock;
mod connection_per_call;
mod cpu_quota;
mod fast_retransmit;
mod flow_control;
mod head_of_line;
mod healthy;
mod large_payload;
mod nagle;
mod network_delay;
mod network_jitter;
mod path_asymmetry;
mod receive_window;
mod retries;
mod rto;
mod run_queue;
mod server_app;
mod server_queue;
mod shared_connection;
mod softirq;
mod stopped;
mod stream_limit;
mod syn_loss;
mod tail_loss;

use crate::scenario::{NEAR_MISS, Scenario};

/// All of them, in the order in which they are listed.
pub const ALL: &[&Scenario] = &[
    &accept_overflow::ACCEPT_OVERFLOW,
    &client_app::CLIENT_APP,
    &clock::CLOCK,
    &connection_per_call::CONNECTION_PER_CALL,
    &cpu_quota::CLIENT,
    &cpu_quota::SERVER,
    &fast_retransmit::FAST_RETRANSMIT,
    &flow_control::FLOW_CONTROL,
    &head_of_line::HEAD_OF_LINE,
    &healthy::HEALTHY,
    &large_payload::LARGE_PAYLOAD,
    &nagle::CLIENT,
    &nagle::SERVER,
    &network_delay::NETWORK_DELAY,
    &network_jitter::NETWORK_JITTER,
    &path_asymmetry::PATH_ASYMMETRY,
    &receive_window::CLIENT,
    &receive_window::SERVER,
    &retries::RETRIES,
    &rto::RTO,
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
    &syn_loss::SYN_LOSS,
    &tail_loss::TAIL_LOSS,
];

/// A scenario by its name, and whether its near miss is meant.
pub fn find(name: &str) -> Option<(&'static Scenario, bool)> {
    let named = |name: &str| ALL.iter().copied().find(|scenario| scenario.name == name);
    match named(name) {
        Some(scenario) => Some((scenario, false)),
        None => name.strip_suffix(NEAR_MISS).and_then(named).map(|scenario| (scenario, true)),
    }
}
