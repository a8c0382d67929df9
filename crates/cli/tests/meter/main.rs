//! `spangap meter` and `spangap demo` as their users see them: the real binary, real sockets, real senders.

mod agents;
mod api;
mod attack;
mod bytes;
mod clickhouse;
mod client;
mod demo;
mod demo_faults;
mod experiment;
mod exposition;
mod fleet;
mod grpc;
mod history;
mod http;
mod hunt;
mod kafka;
mod kept;
mod kubernetes;
mod lanes;
mod overload;
mod peers;
mod process;
#[path = "../../../meter/tests/prometheus/server.rs"]
mod prometheus;
mod sdk;
mod spans;
#[path = "../../../meter/tests/stores/front.rs"]
mod stores_front;
mod tls;
mod two_hosts;
