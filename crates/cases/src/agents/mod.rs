//! Agents that are or were connected: identity, health, and open requests. Their input is bounded before it
//! is stored.

mod attached;
mod bounds;
mod requests;

use crate::report::{AgentRow, Refused, RingRow};
pub use attached::Attached;
use bounds::{bounded_hello, bytes_of, fit};
pub use requests::{Answer, Asked, NoAsk, NoOrder, Ordered};
use spangap_fleet::v1::{FromMeter, Health, Hello, Inventory, OrderReport, Payload};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc::Sender;
use tokio::sync::watch;

/// Maximum number of known agents, connected or not.
pub const MOST_AGENTS: usize = 1024;
/// An agent silent for this many milliseconds counts as disconnected. It reports its health once a second.
pub const STALE_MS: u64 = 5_000;
/// Replaced sessions, remembered so that none of them returns.
const MAX_REPLACED: usize = 256;

/// Why an agent may not attach.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unwelcome {
    /// Its protocol version differs.
    #[error("protocol {0}: expected {expected}", expected = spangap_fleet::PROTOCOL)]
    Protocol(u32),
    /// It does not identify itself.
    #[error("expected a host name or a machine id")]
    Nobody,
    /// The session is already connected.
    #[error("this session is already connected")]
    Replay,
    /// A newer session of the same host replaced this one.
    #[error("a newer session of the same host (machine id and network namespace) has replaced this one")]
    Replaced,
    /// Too many agents are known.
    #[error(
        "{MOST_AGENTS} agents are already known; restart the meter to forget those that are gone for good"
    )]
    Full,
}

/// All agents.
#[derive(Debug, Default)]
pub struct Agents {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    agents: BTreeMap<String, Agent>,
    /// Sessions that must not return.
    replaced: VecDeque<(String, u64)>,
    next_ask: u64,
    refused: Refused,
}

#[derive(Debug)]
struct Agent {
    hello: Hello,
    inventory: Inventory,
    health: Health,
    since_unix_ms: u64,
    last_seen_unix_ms: u64,
    link: Option<Link>,
    /// Number of previous sessions of the same host that were still connected when a new one replaced them.
    replacements: u64,
}

/// The channel to a connected agent.
#[derive(Debug)]
struct Link {
    to: Sender<FromMeter>,
    asks: BTreeMap<u64, Sender<Answer>>,
    orders: BTreeMap<u64, Sender<OrderReport>>,
    /// Ends the stream, with the reason.
    end: watch::Sender<Option<Unwelcome>>,
}

/// Properties that spans are matched with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Place {
    /// Its id in the API.
    pub id: String,
    /// Host name according to the agent.
    pub host_name: String,
    /// Machine id according to the agent.
    pub machine_id: String,
    /// Addresses without ports.
    pub addresses: Vec<String>,
    /// Ids of containers and of their pods.
    pub containers: Vec<(String, String)>,
}

impl Agents {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Attaches an agent after its hello; `to` leads to it.
    ///
    /// # Errors
    /// When it is refused, which is counted.
    pub fn attach(
        self: &Arc<Self>,
        mut hello: Hello,
        to: Sender<FromMeter>,
        now_unix_ms: u64,
    ) -> Result<Attached, Unwelcome> {
        let mut inner = self.inner();
        let inventory = bounded_hello(&mut hello, &mut inner.refused);
        let id = inner.id_for(&hello, now_unix_ms);
        let session = hello.session;
        if let Err(why) = inner.welcome(&hello, &id, now_unix_ms) {
            inner.refused.hellos += 1;
            return Err(why);
        }
        inner.replaced.retain(|(of, replaced)| *of != id || *replaced != session);
        let (end, ended) = watch::channel(None);
        let link = Link { to, asks: BTreeMap::new(), orders: BTreeMap::new(), end };
        let before = inner.agents.remove(&id);
        let mut replacements = before.as_ref().map_or(0, |agent| agent.replacements);
        if let Some(before) = before
            && before.hello.session != session
        {
            inner.forbid(&id, before.hello.session);
            if let Some(link) = before.link {
                replacements += 1;
                // Nobody listens if its stream has just ended.
                let _ = link.end.send(Some(Unwelcome::Replaced));
            }
        }
        let agent = Agent {
            hello,
            inventory: Inventory::default(),
            health: Health::default(),
            since_unix_ms: now_unix_ms,
            last_seen_unix_ms: now_unix_ms,
            link: Some(link),
            replacements,
        };
        inner.agents.insert(id.clone(), agent);
        inner.set_inventory(&id, inventory);
        drop(inner);
        Ok(Attached { agents: self.clone(), id, session, end: ended })
    }

    /// Name of an agent's host.
    pub fn host_name(&self, agent: &str) -> Option<String> {
        self.inner().agents.get(agent).map(|agent| agent.hello.host_name.clone())
    }

    /// The connected agents.
    pub fn places(&self, now_unix_ms: u64) -> Vec<Place> {
        let inner = self.inner();
        let connected = inner.agents.iter().filter(|(_, agent)| agent.is_connected(now_unix_ms));
        connected
            .map(|(id, agent)| Place {
                id: id.clone(),
                host_name: agent.hello.host_name.clone(),
                machine_id: agent.hello.machine_id.clone(),
                addresses: agent.inventory.addresses.clone(),
                containers: agent
                    .inventory
                    .containers
                    .iter()
                    .map(|one| (one.id.clone(), one.pod_uid.clone()))
                    .collect(),
            })
            .collect()
    }

    /// Time of the oldest packets of an agent, Unix nanoseconds by its own clock; `None` if it has not
    /// reported it.
    pub fn packets_from_unix_ns(&self, agent: &str) -> Option<i64> {
        let inner = self.inner();
        let rings = &inner.agents.get(agent)?.health.rings;
        rings.iter().find(|ring| ring.instrument == "capture").map(|ring| ring.from_unix_ns)
    }

    /// Rows of the API.
    pub fn rows(&self, now_unix_ms: u64) -> Vec<AgentRow> {
        self.inner().agents.iter().map(|(id, agent)| agent.row(id, now_unix_ms)).collect()
    }

    /// Refusals since the start.
    pub fn refused(&self) -> Refused {
        self.inner().refused.clone()
    }

    /// Counts refusals made elsewhere.
    pub fn count(&self, count: impl FnOnce(&mut Refused)) {
        count(&mut self.inner().refused);
    }
}

impl Inner {
    /// A machine id copied with its disk belongs to several hosts: an agent with the same machine id but
    /// another boot id than a connected one is on another host.
    fn id_for(&self, hello: &Hello, now_unix_ms: u64) -> String {
        let id = id_of(hello);
        let boot: String = hello.boot_id.chars().filter(char::is_ascii_alphanumeric).take(8).collect();
        let of_its_boot = format!("{id}-{boot}");
        let is_another = |known: &Agent| {
            known.is_connected(now_unix_ms)
                && !known.hello.boot_id.is_empty()
                && known.hello.boot_id != hello.boot_id
        };
        let is_taken = self.agents.get(&id).is_some_and(is_another);
        if !boot.is_empty() && (is_taken || self.agents.contains_key(&of_its_boot)) {
            of_its_boot
        } else {
            id
        }
    }

    fn welcome(&self, hello: &Hello, id: &str, now_unix_ms: u64) -> Result<(), Unwelcome> {
        if hello.protocol != spangap_fleet::PROTOCOL {
            return Err(Unwelcome::Protocol(hello.protocol));
        }
        if hello.host_name.is_empty() && hello.machine_id.is_empty() {
            return Err(Unwelcome::Nobody);
        }
        let connected = self.agents.get(id).filter(|known| known.is_connected(now_unix_ms));
        let is_replaced = |(of, session): &(String, u64)| of == id && *session == hello.session;
        // If the newer session is gone, nobody else represents the host.
        if connected.is_some() && self.replaced.iter().any(is_replaced) {
            return Err(Unwelcome::Replaced);
        }
        match self.agents.get(id) {
            Some(known) if known.hello.session == hello.session && connected.is_some() => {
                Err(Unwelcome::Replay)
            }
            None if self.agents.len() >= MOST_AGENTS => Err(Unwelcome::Full),
            _ => Ok(()),
        }
    }

    fn forbid(&mut self, id: &str, session: u64) {
        if self.replaced.len() >= MAX_REPLACED {
            self.replaced.pop_front();
        }
        self.replaced.push_back((id.to_owned(), session));
    }

    /// Stores the inventory as far as there is room.
    fn set_inventory(&mut self, id: &str, mut inventory: Inventory) {
        let others: usize = self
            .agents
            .iter()
            .filter(|(other, _)| *other != id)
            .map(|(_, agent)| bytes_of(&agent.inventory))
            .sum();
        self.refused.texts_cut += fit(&mut inventory, others);
        if let Some(agent) = self.agents.get_mut(id) {
            agent.inventory = inventory;
        }
    }
}

impl Agent {
    fn is_connected(&self, now_unix_ms: u64) -> bool {
        self.link.is_some() && now_unix_ms.saturating_sub(self.last_seen_unix_ms) <= STALE_MS
    }

    fn row(&self, id: &str, now_unix_ms: u64) -> AgentRow {
        let rings = self.health.rings.iter().map(|ring| RingRow {
            instrument: ring.instrument.clone(),
            from_unix_ns: ring.from_unix_ns,
            to_unix_ns: ring.to_unix_ns,
            bytes: ring.bytes,
            taken: ring.taken,
            lost: ring.lost,
            canaries_sent: ring.canaries_sent,
            canaries_seen: ring.canaries_seen,
        });
        AgentRow {
            id: id.to_owned(),
            host_name: self.hello.host_name.clone(),
            connected: self.is_connected(now_unix_ms),
            since_unix_ms: self.since_unix_ms,
            last_seen_unix_ms: self.last_seen_unix_ms,
            payload: payload_name(self.hello.payload).into(),
            kernel: self.hello.kernel.clone(),
            version: self.hello.spangap.clone(),
            addresses: self.inventory.addresses.clone(),
            containers: self.inventory.containers.len(),
            rings: rings.collect(),
            memory_bytes: self.health.memory_bytes,
            memory_limit_bytes: self.health.memory_limit_bytes,
            cpu_share: self.health.cpu_share,
            cpu_limit: self.health.cpu_limit,
            given_up: self.health.given_up.clone(),
            taken_back: self.health.taken_back,
            lacks: self.hello.lacks.clone(),
            allows: self.hello.allows.clone(),
            replacements: self.replacements,
        }
    }
}

/// Which bytes of messages leave a host; an unknown value is treated as the more restrictive one.
pub fn payload_name(payload: i32) -> &'static str {
    if payload == Payload::Full as i32 { "full" } else { "headers" }
}

/// An agent without a machine id is identified by its name.
fn id_of(hello: &Hello) -> String {
    let of = if hello.machine_id.is_empty() { &hello.host_name } else { &hello.machine_id };
    let plain: String =
        of.chars().filter(|c| c.is_ascii_alphanumeric() || "-_.".contains(*c)).take(40).collect();
    format!("{plain}-{}", hello.netns)
}

#[cfg(test)]
mod tests;
