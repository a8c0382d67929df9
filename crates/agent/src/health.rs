//! The health port: `/healthz` for probes, `/metrics` for Prometheus.

use crate::AgentError;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};
use spangap_fleet::v1;
use std::fmt::Write as _;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::TcpListener;
use tokio::sync::watch;

/// A ring is unhealthy if this many consecutive canaries are missing.
const MISSED_TOO_OFTEN: u64 = 3;

/// The agent's health.
#[derive(Clone, Debug, Default)]
pub(crate) struct Health {
    pub told: v1::Health,
    /// State of the connection to the meter.
    pub meter: Arc<Mutex<MeterState>>,
    /// CPU of this process, as a share of all CPUs.
    pub own_share: f64,
    /// CPU of its probes.
    pub probes_share: f64,
    /// CPU time of this process so far.
    pub own_seconds: f64,
    /// Bytes kept per packet, if fewer than configured.
    pub packets_reduced_to: Option<u32>,
    /// Consecutive canaries sent but not seen: a ring that once worked may have stopped.
    pub missed_in_a_row: u64,
}

/// State of the connection to the meter.
#[derive(Clone, Debug, Default)]
pub(crate) struct MeterState {
    pub attached: bool,
    /// Number of times it attached.
    pub times: u64,
    /// Slices requested.
    pub slices: u64,
    /// Why it is not attached.
    pub why_not: Option<String>,
}

impl Health {
    /// Consecutive missing canaries after an update of `rings`.
    pub fn missed_until(&self, rings: &[v1::Ring]) -> u64 {
        let counts = |rings: &[v1::Ring]| {
            rings
                .iter()
                .fold((0, 0), |(sent, seen), ring| (sent + ring.canaries_sent, seen + ring.canaries_seen))
        };
        let ((was_sent, was_seen), (sent, seen)) = (counts(&self.told.rings), counts(rings));
        match seen > was_seen {
            true => 0,
            false => self.missed_in_a_row + u64::saturating_sub(sent, was_sent),
        }
    }

    pub fn meter(&self) -> std::sync::MutexGuard<'_, MeterState> {
        self.meter.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) async fn listen(address: SocketAddr) -> Result<TcpListener, AgentError> {
    TcpListener::bind(address).await.map_err(|error| AgentError::Health { address, error })
}

/// Serves for ever.
pub(crate) async fn serve(listener: Option<TcpListener>, health: watch::Receiver<Arc<Health>>) {
    let Some(listener) = listener else { return pending().await };
    let router =
        Router::new().route("/healthz", get(healthz)).route("/metrics", get(metrics)).with_state(health);
    // Ends with the process.
    let _ended = axum::serve(listener, router).await;
}

/// Whether the rings work, regardless of the meter.
async fn healthz(State(health): State<watch::Receiver<Arc<Health>>>) -> (StatusCode, Json<Value>) {
    let health = health.borrow().clone();
    let ring = |ring: &v1::Ring| {
        json!({
            "instrument": ring.instrument,
            "from_unix_ns": ring.from_unix_ns,
            "to_unix_ns": ring.to_unix_ns,
            "bytes": ring.bytes,
            "taken": ring.taken,
            "lost": ring.lost,
            "canaries_sent": ring.canaries_sent,
            "canaries_seen": ring.canaries_seen,
        })
    };
    let told = &health.told;
    let stopped = told.rings.is_empty() || health.missed_in_a_row > MISSED_TOO_OFTEN;
    let meter = health.meter().clone();
    let document = json!({
        "rings": told.rings.iter().map(ring).collect::<Vec<_>>(),
        "memory_bytes": told.memory_bytes,
        "memory_limit_bytes": told.memory_limit_bytes,
        "cpu_share": told.cpu_share,
        "cpu_share_of_process": health.own_share,
        "cpu_share_of_probes": health.probes_share,
        "cpu_seconds_of_process": health.own_seconds,
        "cpu_limit": told.cpu_limit,
        "given_up": told.given_up,
        "taken_back": told.taken_back,
        "packets_reduced_to": health.packets_reduced_to,
        "meter": { "attached": meter.attached, "times": meter.times, "slices": meter.slices, "why_not": meter.why_not },
    });
    (if stopped { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK }, Json(document))
}

async fn metrics(
    State(health): State<watch::Receiver<Arc<Health>>>,
) -> ([(&'static str, &'static str); 1], String) {
    let health = health.borrow().clone();
    ([("content-type", "text/plain; version=0.0.4")], text(&health))
}

fn text(health: &Health) -> String {
    let told = &health.told;
    let mut text = String::new();
    let mut family = |name: &str, kind: &str, help: &str, values: Vec<(String, f64)>| {
        // Writing to a string does not fail.
        let _ = write!(text, "# HELP spangap_agent_{name} {help}\n# TYPE spangap_agent_{name} {kind}\n");
        for (labels, value) in values {
            let _ = writeln!(text, "spangap_agent_{name}{labels} {value}");
        }
    };
    let of_rings = |value: fn(&v1::Ring) -> f64| {
        told.rings
            .iter()
            .map(|ring| (format!("{{instrument=\"{}\"}}", ring.instrument), value(ring)))
            .collect()
    };
    let one = |value: f64| vec![(String::new(), value)];
    family(
        "ring_seconds",
        "gauge",
        "How far back a ring reaches.",
        of_rings(|ring| (ring.to_unix_ns - ring.from_unix_ns) as f64 / 1e9),
    );
    family("ring_bytes", "gauge", "Bytes in a ring.", of_rings(|ring| ring.bytes as f64));
    family("ring_taken_total", "counter", "Packets or events taken.", of_rings(|ring| ring.taken as f64));
    family("ring_lost_total", "counter", "Packets or events lost.", of_rings(|ring| ring.lost as f64));
    family(
        "ring_canaries_sent_total",
        "counter",
        "Canaries sent.",
        of_rings(|ring| ring.canaries_sent as f64),
    );
    family(
        "ring_canaries_seen_total",
        "counter",
        "Canaries seen in the ring.",
        of_rings(|ring| ring.canaries_seen as f64),
    );
    family("memory_bytes", "gauge", "Memory of the agent with its rings.", one(told.memory_bytes as f64));
    family("memory_limit_bytes", "gauge", "Memory that it may have.", one(told.memory_limit_bytes as f64));
    family(
        "cpu_share",
        "gauge",
        "CPU of the agent and its probes, as a share of all CPUs.",
        one(told.cpu_share),
    );
    family(
        "cpu_seconds_total",
        "counter",
        "CPU time of the agent without its probes.",
        one(health.own_seconds),
    );
    family("cpu_limit", "gauge", "CPU that it may have.", one(told.cpu_limit));
    family("given_up", "gauge", "Instruments given up.", one(told.given_up.len() as f64));
    family(
        "taken_back_total",
        "counter",
        "Instruments taken back after they were given up.",
        one(told.taken_back as f64),
    );
    family(
        "packet_bytes_reduced_to",
        "gauge",
        "Bytes kept of each packet, where that is less than --snap; 0: as many as that.",
        one(f64::from(health.packets_reduced_to.unwrap_or(0))),
    );
    let meter = health.meter().clone();
    family(
        "attached",
        "gauge",
        "Whether it is attached to the meter.",
        one(f64::from(u8::from(meter.attached))),
    );
    family("slices_total", "counter", "Slices asked for.", one(meter.slices as f64));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_that_stopped_is_detected() {
        let ring = |sent, seen| v1::Ring { canaries_sent: sent, canaries_seen: seen, ..v1::Ring::default() };
        let mut health = Health::default();
        let mut tell = |sent, seen| {
            let rings = vec![ring(sent, seen), ring(0, 0)];
            health.missed_in_a_row = health.missed_until(&rings);
            health.told.rings = rings;
            health.missed_in_a_row
        };
        assert_eq!((tell(1, 1), tell(9, 8)), (0, 0), "one was missed, others were seen since");
        assert_eq!((tell(10, 8), tell(12, 8), tell(13, 8)), (1, 3, 4));
        assert_eq!(tell(14, 9), 0, "it was opened again");
        assert_eq!(tell(0, 0), 0, "packets were given up");
    }
}
