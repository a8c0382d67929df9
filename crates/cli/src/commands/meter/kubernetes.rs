//! Pods and nodes from the Kubernetes API, for the names that resources lack: a list, then watches of a minute each, so that a
//! connection that died without a word is noticed. A refusal or an outage is said in the coverage.

use super::super::hunt::meter::roots;
use anyhow::{Context, anyhow, bail};
use serde::Deserialize;
use serde_json::Value;
use spangap_meter::cluster::{Kind, Pod};
use spangap_meter::engine::Meter;
use std::io::{BufReader, Read};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};
use ureq::Agent;
use ureq::tls::TlsConfig;

/// Objects in one part of a list.
const PART: usize = 500;
/// Size of a part, or of all that happens in one watch.
const MOST_BYTES: u64 = 256 << 20;
/// Duration of a watch, and the time in which it or a part of a list must be over.
const WATCH_S: u64 = 60;
const ANSWERS: Duration = Duration::from_secs(WATCH_S + 15);
/// Wait before another attempt, doubled up to the second.
const AGAIN: Duration = Duration::from_secs(1);
const AGAIN_AT_LAST: Duration = Duration::from_secs(30);
/// Characters of another program's message that are repeated.
const SAID_CHARS: usize = 300;
/// Label of a node's zone.
const ZONE: &str = "topology.kubernetes.io/zone";
/// Label of a pod's version.
const VERSION: &str = "app.kubernetes.io/version";
/// Longest host name; the kubelet cuts a pod's name to it.
const HOST_NAME_BYTES: usize = 63;
/// Status "Gone": the version to watch from is too old.
const GONE: u16 = 410;

/// The API server and the account to ask it with.
struct Api {
    url: String,
    folder: PathBuf,
    agent: Agent,
}

/// The version to watch from is no longer known: a new list is due.
#[derive(Debug)]
struct Gone;

impl std::fmt::Display for Gone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the version to watch from is too old")
    }
}

impl std::error::Error for Gone {}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct List {
    metadata: ListMetadata,
    /// Null if there are none.
    items: Option<Vec<Object>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMetadata {
    resource_version: String,
    #[serde(default, rename = "continue")]
    more: String,
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    object: Value,
}

/// A pod or a node.
#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    uid: String,
    namespace: String,
    name: String,
    resource_version: String,
    labels: std::collections::HashMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    node_name: String,
    hostname: String,
    host_network: bool,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    phase: String,
    #[serde(rename = "podIPs")]
    addresses: Vec<Address>,
    container_statuses: Vec<Container>,
    init_container_statuses: Vec<Container>,
    ephemeral_container_statuses: Vec<Container>,
}

#[derive(Deserialize)]
struct Address {
    ip: String,
}

#[derive(Deserialize)]
struct Container {
    /// `containerd://ID`; absent before it was created.
    #[serde(rename = "containerID", default)]
    id: String,
}

impl Object {
    fn pod(self) -> Pod {
        let Object { metadata, spec, status } = self;
        let containers =
            [status.container_statuses, status.init_container_statuses, status.ephemeral_container_statuses];
        let id = |one: Container| Some(one.id.split_once("://")?.1.to_ascii_lowercase());
        let is_id = |id: &String| id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        let named = if spec.hostname.is_empty() { &metadata.name } else { &spec.hostname };
        let host_name = named.chars().take(HOST_NAME_BYTES).collect::<String>();
        Pod {
            host_name: host_name.trim_end_matches(['-', '.']).to_owned(),
            version: metadata.labels.get(VERSION).cloned(),
            uid: metadata.uid,
            namespace: metadata.namespace,
            name: metadata.name,
            node: spec.node_name,
            addresses: match spec.host_network {
                true => Vec::new(),
                false => status.addresses.iter().filter_map(|one| one.ip.parse::<IpAddr>().ok()).collect(),
            },
            containers: containers.into_iter().flatten().filter_map(id).filter(is_id).collect(),
            has_ended: matches!(status.phase.as_str(), "Succeeded" | "Failed"),
        }
    }

    fn node(self) -> (String, Option<String>) {
        (self.metadata.name, self.metadata.labels.get(ZONE).cloned())
    }
}

/// Follows pods and nodes for as long as the meter exists, with the service account in `folder`.
///
/// # Errors
/// This process is not in a pod, or the account cannot be read.
pub fn follow(meter: &Arc<Meter>, folder: &Path) -> anyhow::Result<()> {
    let variable = |name: &str| {
        std::env::var(name).with_context(|| {
            format!("{name} is not set: the Kubernetes API's address is known in a pod only")
        })
    };
    let (host, port) = (variable("KUBERNETES_SERVICE_HOST")?, variable("KUBERNETES_SERVICE_PORT")?);
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    let tls = TlsConfig::builder().root_certs(roots(Some(&folder.join("ca.crt")))?).build();
    let agent = Agent::config_builder()
        .timeout_global(Some(ANSWERS))
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None)
        .tls_config(tls)
        .build();
    let api = Arc::new(Api {
        url: format!("https://{host}:{port}/api/v1"),
        folder: folder.into(),
        agent: agent.into(),
    });
    api.token()?;
    meter.cluster().start();
    for kind in [Kind::Pods, Kind::Nodes] {
        let (api, meter) = (api.clone(), Arc::downgrade(meter));
        let follow = move || api.follow(kind, &meter);
        thread::Builder::new().name("kubernetes".into()).spawn(follow).context("cannot start a thread")?;
    }
    Ok(())
}

fn path(kind: Kind) -> &'static str {
    match kind {
        Kind::Pods => "pods",
        Kind::Nodes => "nodes",
    }
}

impl Api {
    /// The account's token, which Kubernetes renews every hour.
    fn token(&self) -> anyhow::Result<String> {
        let path = self.folder.join("token");
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Ok(text.trim().to_owned())
    }

    fn follow(&self, kind: Kind, meter: &Weak<Meter>) {
        let mut again = AGAIN;
        let mut version = None;
        while meter.strong_count() > 0 {
            let begun = Instant::now();
            let step = match version.take() {
                None => self.list(kind, meter),
                Some(from) => self.watch(kind, from, meter),
            };
            match step {
                Ok(next) => {
                    version = Some(next);
                    again = AGAIN;
                    // A server that ends each watch at once is not asked at once again.
                    thread::sleep(AGAIN.saturating_sub(begun.elapsed()));
                }
                Err(error) => {
                    let Some(meter) = meter.upgrade() else { return };
                    if !error.is::<Gone>() {
                        meter
                            .cluster()
                            .failed(kind, format!("{}: {}", path(kind), said(&format!("{error:#}"))));
                    }
                    drop(meter);
                    thread::sleep(again);
                    again = AGAIN_AT_LAST.min(2 * again);
                }
            }
        }
    }

    fn get(&self, query: &str) -> anyhow::Result<impl Read + use<>> {
        let request = self.agent.get(format!("{}/{query}", self.url));
        let request = request.header("authorization", format!("Bearer {}", self.token()?));
        let answer = request.header("accept", "application/json").call().context("no answer")?;
        let status = answer.status();
        let body = answer.into_body().into_with_config().limit(MOST_BYTES).reader();
        match status.as_u16() {
            200 => Ok(BufReader::with_capacity(64 << 10, body)),
            GONE => Err(Gone.into()),
            status => {
                let problem: Value = serde_json::from_reader(body.take(64 << 10)).unwrap_or_default();
                bail!("status {status}: {}", problem["message"].as_str().unwrap_or("without a word"))
            }
        }
    }

    /// Lists all; returns the version to watch from.
    fn list(&self, kind: Kind, meter: &Weak<Meter>) -> anyhow::Result<String> {
        let (mut pods, mut nodes, mut more) = (Vec::new(), Vec::new(), String::new());
        let version = loop {
            let from = if more.is_empty() { String::new() } else { format!("&continue={more}") };
            let body = self.get(&format!("{}?limit={PART}{from}", path(kind)))?;
            let part: List = serde_json::from_reader(body).context("expected a list")?;
            let items = part.items.into_iter().flatten();
            match kind {
                Kind::Pods => pods.extend(items.map(Object::pod)),
                Kind::Nodes => nodes.extend(items.map(Object::node)),
            }
            more = part.metadata.more;
            if more.is_empty() {
                break part.metadata.resource_version;
            }
        };
        let Some(meter) = meter.upgrade() else { return Ok(version) };
        match kind {
            Kind::Pods => meter.cluster().listed(pods),
            Kind::Nodes => meter.cluster().nodes_listed(nodes),
        }
        meter.cluster().heard(kind);
        Ok(version)
    }

    /// Follows what happens for a minute; returns the version to go on from.
    fn watch(&self, kind: Kind, mut version: String, meter: &Weak<Meter>) -> anyhow::Result<String> {
        let query = format!(
            "{}?watch=1&allowWatchBookmarks=true&timeoutSeconds={WATCH_S}&resourceVersion={version}",
            path(kind)
        );
        let body = self.get(&query)?;
        for event in serde_json::Deserializer::from_reader(body).into_iter::<Event>() {
            let Event { kind: what, object } = event.context("expected an event of a watch")?;
            let Some(meter) = meter.upgrade() else { return Ok(version) };
            if what == "ERROR" {
                return Err(match object["code"].as_u64() {
                    Some(code) if code == u64::from(GONE) => Gone.into(),
                    _ => anyhow!("{}", object["message"].as_str().unwrap_or("an error without a word")),
                });
            }
            let object = Object::deserialize(object).context("expected a pod or a node")?;
            version.clone_from(&object.metadata.resource_version);
            let cluster = meter.cluster();
            cluster.heard(kind);
            match (what.as_str(), kind) {
                ("ADDED" | "MODIFIED", Kind::Pods) => cluster.put(object.pod()),
                ("DELETED", Kind::Pods) => cluster.deleted(&object.metadata.uid),
                ("ADDED" | "MODIFIED", Kind::Nodes) => {
                    let (name, zone) = object.node();
                    cluster.put_node(name, zone);
                }
                ("DELETED", Kind::Nodes) => cluster.node_deleted(&object.metadata.name),
                // A bookmark is the version alone.
                _ => {}
            }
        }
        if let Some(meter) = meter.upgrade() {
            meter.cluster().heard(kind);
        }
        Ok(version)
    }
}

/// Another program's words on one line of bounded length.
fn said(text: &str) -> String {
    text.chars().take(SAID_CHARS).map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}
