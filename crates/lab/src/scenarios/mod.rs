//! The scenarios, one file each. A test compares this list with the folder.

mod accept_overflow;
mod back_off;
mod black_hole;
mod client_app;
mod clock;
mod connection_per_call;
mod cpu_quota;
mod disk;
mod dns;
mod fast_retransmit;
mod flow_control;
mod head_of_line;
mod healthy;
mod large_payload;
mod lock;
mod long_streams;
mod memory;
mod nagle;
mod network_delay;
mod network_jitter;
mod path_asymmetry;
mod path_mtu;
mod pool_wait;
mod proxy_queue;
mod receive_window;
mod receiver_drop;
mod retries;
mod rto;
mod run_queue;
mod server_app;
mod server_queue;
mod shared_connection;
mod slow_method;
mod softirq;
mod stop_the_world;
mod stopped;
mod stream_limit;
mod syn_loss;
mod tail_loss;
mod tls_handshake;

use crate::scenario::{NEAR_MISS, Scenario};

/// All of them, in the order in which they are listed.
pub const ALL: &[&Scenario] = &[
    &accept_overflow::ACCEPT_OVERFLOW,
    &back_off::BACK_OFF,
    &black_hole::BLACK_HOLE,
    &client_app::CLIENT_APP,
    &clock::CLOCK,
    &connection_per_call::CONNECTION_PER_CALL,
    &cpu_quota::CLIENT,
    &cpu_quota::SERVER,
    &disk::DISK,
    &dns::DNS,
    &fast_retransmit::FAST_RETRANSMIT,
    &flow_control::FLOW_CONTROL,
    &head_of_line::HEAD_OF_LINE,
    &healthy::HEALTHY,
    &large_payload::LARGE_PAYLOAD,
    &lock::LOCK,
    &long_streams::LONG_STREAMS,
    &memory::MEMORY,
    &nagle::CLIENT,
    &nagle::SERVER,
    &network_delay::NETWORK_DELAY,
    &network_jitter::NETWORK_JITTER,
    &path_asymmetry::PATH_ASYMMETRY,
    &path_mtu::PATH_MTU,
    &pool_wait::POOL_WAIT,
    &proxy_queue::PROXY_QUEUE,
    &receive_window::CLIENT,
    &receive_window::SERVER,
    &receiver_drop::RECEIVER_DROP,
    &retries::RETRIES,
    &rto::RTO,
    &run_queue::CLIENT,
    &run_queue::SERVER,
    &server_app::SERVER_APP,
    &server_queue::SERVER_QUEUE,
    &shared_connection::SHARED_CONNECTION,
    &slow_method::SLOW_METHOD,
    &softirq::CLIENT,
    &softirq::SERVER,
    &stop_the_world::STOP_THE_WORLD,
    &stopped::CLIENT,
    &stopped::SERVER,
    &stream_limit::STREAM_LIMIT,
    &syn_loss::SYN_LOSS,
    &tail_loss::TAIL_LOSS,
    &tls_handshake::TLS_HANDSHAKE,
];

/// A scenario by its name, and whether its near miss is meant.
pub fn find(name: &str) -> Option<(&'static Scenario, bool)> {
    let named = |name: &str| ALL.iter().copied().find(|scenario| scenario.name == name);
    match named(name) {
        Some(scenario) => Some((scenario, false)),
        None => name.strip_suffix(NEAR_MISS).and_then(named).map(|scenario| (scenario, true)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Case;
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    #[test]
    fn every_scenario_is_described_in_full() {
        for one in ALL {
            let name = one.name;
            assert!(name.chars().all(|letter| letter.is_ascii_lowercase() || letter == '-'), "{name}");
            assert!(!name.ends_with(NEAR_MISS), "{name}");
            let page = &one.page;
            let words = [one.title, one.near_miss.title, page.what, page.real_life, page.made, page.cure];
            assert!(words.iter().all(|words| !words.trim().is_empty()), "{name}: words are missing");
            assert!(!page.sources.is_empty(), "{name}: no source");
            for (title, url) in page.sources {
                assert!(!title.is_empty() && url.starts_with("https://"), "{name}: {title}, {url}");
            }
        }
        let names: BTreeSet<_> = ALL.iter().map(|one| one.name).collect();
        assert_eq!(names.len(), ALL.len(), "two have one name");
    }

    #[test]
    fn every_parameter_takes_what_it_prints() {
        for one in ALL {
            let defaults = Case::new(one, false, &[]).expect("defaults");
            assert!(defaults.parameters().contains_key("duration"), "{}", one.name);
            assert_eq!(defaults.parameters().len(), one.parameters.len(), "{}: two of one name", one.name);
            let typed: Vec<String> =
                defaults.parameters().iter().map(|(name, value)| format!("{name}={value}")).collect();
            let again = Case::new(one, true, &typed).expect("its own text");
            assert_eq!(again.parameters(), defaults.parameters());
            assert_eq!(
                find(&again.name()).map(|(found, near_miss)| (found.name, near_miss)),
                Some((one.name, true))
            );
            assert!(one.parameters.iter().all(|parameter| !parameter.what.is_empty()), "{}", one.name);
        }
    }

    #[test]
    fn every_file_is_listed() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/scenarios");
        let list = fs::read_to_string(folder.join("mod.rs")).expect("this file");
        for entry in fs::read_dir(&folder).expect("the folder") {
            let path = entry.expect("an entry").path();
            let Some(stem) = path.file_stem().and_then(|stem| stem.to_str()).filter(|_| path.is_file())
            else {
                continue;
            };
            if stem != "mod" && list.contains(&format!("\nmod {stem};")) {
                let text = fs::read_to_string(&path).expect("a file");
                let made = text.contains(": Scenario = Scenario {");
                assert!(!made || list.contains(&format!("&{stem}::")), "{stem} is not in ALL");
            } else {
                assert_eq!(stem, "mod", "{stem} is no module");
            }
        }
    }
}
