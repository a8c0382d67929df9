//! The folder of a run: what is in it, by name.

use spangap_model::Side;

/// What was the matter.
pub const TRUTH: &str = "truth.json";
/// Spans of the client, OTLP JSON.
pub const CLIENT_SPANS: &str = "client.spans.json";
/// Spans of the server, OTLP JSON.
pub const SERVER_SPANS: &str = "server.spans.json";
/// What the tank reported.
pub const TANK: &str = "tank.json";
/// What the machine was, and what could not be recorded.
pub const MACHINE: &str = "machine.json";
/// For people: what this is, and the command that makes it again.
pub const README: &str = "README";

/// Everything that a user could have, and nothing else: what a judge sees.
pub const EVIDENCE: [&str; 8] = [
    CLIENT_SPANS,
    SERVER_SPANS,
    "client.pcapng",
    "server.pcapng",
    TANK,
    "client.host",
    "server.host",
    MACHINE,
];

/// Spans of a side.
pub fn spans(side: Side) -> &'static str {
    [CLIENT_SPANS, SERVER_SPANS][side.index()]
}

/// Packets of a side.
pub fn capture(side: Side) -> &'static str {
    ["client.pcapng", "server.pcapng"][side.index()]
}

/// Host recording of a side.
pub fn recording(side: Side) -> &'static str {
    ["client.host", "server.host"][side.index()]
}
