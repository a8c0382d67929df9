//! Agents that are or were connected: identity, health, and open requests. Their input is bounded before it
//! is stored.

use crate::experiment::{NoExperiment, lever};
use crate::report::{AgentRow, Refused, RingRow};
use spangap_fleet::v1::{
    Ask, Cancel, FromMeter, Health, Hello, Inventory, Order, OrderReport, Payload, SliceEnd, SlicePiece,
    Undo, from_meter::What,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc::{self, Sender, error::TrySendError};
use tokio::sync::watch;

/// Maximum number of known agents, connected or not.
pub const MOST_AGENTS: usize = 1024;
/// An agent silent for this many milliseconds counts as disconnected. It reports its health once a second.
pub const STALE_MS: u64 = 5_000;
/// Maximum bytes of addresses, containers and texts of one agent.
const MOST_BYTES: usize = 1 << 20;
/// The same limit for all agents together.
const MOST_BYTES_OF_ALL: usize = 64 << 20;
/// Maximum bytes of any one text.
const MOST_TEXT: usize = 512;
/// Maximum number of texts, rings, instruments of one agent.
const MOST_LINES: usize = 64;
/// Replaced sessions, remembered so that none of them returns.
const MAX_REPLACED: usize = 256;
/// Pieces of a slice that wait to be written.
const PIECES: usize = 4;
/// Maximum number of slices requested from one agent at once.
const MOST_ASKS: usize = 8;

/// An agent's answer to a request.
#[derive(Debug)]
pub enum Answer {
    /// Part of a file.
    Piece(SlicePiece),
    /// The end of the slice.
    End(SliceEnd),
}

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

/// Why a slice cannot be requested.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoAsk {
    /// The agent is not connected.
    #[error("the agent is not connected")]
    Gone,
    /// The agent has too many requests, or does not read.
    #[error("the agent already has {MOST_ASKS} slices to send, or does not read")]
    Busy,
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

/// The meter's side of a connected agent, which is disconnected on drop.
#[derive(Debug)]
pub struct Attached {
    agents: Arc<Agents>,
    /// Its id in the API.
    pub id: String,
    session: u64,
    /// Signals that the stream has to end.
    pub end: watch::Receiver<Option<Unwelcome>>,
}

/// A slice in transfer.
#[derive(Debug)]
pub struct Asked {
    agents: Arc<Agents>,
    agent: String,
    id: u64,
    /// The agent's answers; if they end without [`Answer::End`], the agent has disconnected.
    pub answers: mpsc::Receiver<Answer>,
}

/// An order in progress. It is undone on drop.
#[derive(Debug)]
pub struct Ordered {
    agents: Arc<Agents>,
    agent: String,
    id: u64,
    /// The agent's reports, at most two; if they end early, the agent has disconnected.
    pub reports: mpsc::Receiver<OrderReport>,
}

/// Reports per order: the change made, and its undo.
const MOST_REPORTS: usize = 2;

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

    /// Requests a slice from an agent.
    ///
    /// # Errors
    /// When the request cannot be sent.
    pub fn ask(self: &Arc<Self>, agent: &str, ask: Ask, now_unix_ms: u64) -> Result<Asked, NoAsk> {
        let mut inner = self.inner();
        inner.next_ask += 1;
        let id = inner.next_ask;
        let known = inner.agents.get_mut(agent).filter(|known| known.is_connected(now_unix_ms));
        let link = known.and_then(|known| known.link.as_mut()).ok_or(NoAsk::Gone)?;
        if link.asks.len() >= MOST_ASKS {
            return Err(NoAsk::Busy);
        }
        let ask = FromMeter { what: Some(What::Ask(Ask { id, ..ask })) };
        match link.to.try_send(ask) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => return Err(NoAsk::Busy),
            Err(TrySendError::Closed(_)) => return Err(NoAsk::Gone),
        }
        let (answer, answers) = mpsc::channel(PIECES);
        link.asks.insert(id, answer);
        drop(inner);
        Ok(Asked { agents: self.clone(), agent: agent.to_owned(), id, answers })
    }

    /// Sends an order to an agent that allows it.
    ///
    /// # Errors
    /// When it cannot be sent, or the agent was started without `--allow`.
    pub fn order(
        self: &Arc<Self>,
        agent: &str,
        order: Order,
        now_unix_ms: u64,
    ) -> Result<Ordered, NoExperiment> {
        let mut inner = self.inner();
        inner.next_ask += 1;
        let id = inner.next_ask;
        let known = inner.agents.get_mut(agent).filter(|known| known.is_connected(now_unix_ms));
        let known = known.ok_or(NoAsk::Gone)?;
        let needs = lever::needs(order.what.as_ref());
        if !known.hello.allows.iter().any(|what| what == needs) {
            return Err(NoExperiment::NotAllowed(needs));
        }
        let link = known.link.as_mut().ok_or(NoAsk::Gone)?;
        let order = FromMeter { what: Some(What::Order(Order { id, ..order })) };
        match link.to.try_send(order) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => return Err(NoAsk::Busy.into()),
            Err(TrySendError::Closed(_)) => return Err(NoAsk::Gone.into()),
        }
        let (answer, reports) = mpsc::channel(MOST_REPORTS);
        link.orders.insert(id, answer);
        drop(inner);
        Ok(Ordered { agents: self.clone(), agent: agent.to_owned(), id, reports })
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
        let room = MOST_BYTES.min(MOST_BYTES_OF_ALL.saturating_sub(others));
        let mut cut = 0;
        for text in inventory.addresses.iter_mut() {
            cut += u64::from(shorten(text));
        }
        for one in &mut inventory.containers {
            for text in [&mut one.id, &mut one.pod_uid, &mut one.cgroup] {
                cut += u64::from(shorten(text));
            }
        }
        while bytes_of(&inventory) > room {
            // Drops the last quarter repeatedly: an excess is a lie or a mistake.
            let keep = |len: usize| len - len.div_ceil(4);
            let (addresses, containers) = (inventory.addresses.len(), inventory.containers.len());
            inventory.addresses.truncate(keep(addresses));
            inventory.containers.truncate(keep(containers));
            cut += (addresses - inventory.addresses.len() + containers - inventory.containers.len()) as u64;
        }
        self.refused.texts_cut += cut;
        if let Some(agent) = self.agents.get_mut(id) {
            agent.inventory = inventory;
        }
    }
}

impl Attached {
    fn with<T>(&self, work: impl FnOnce(&mut Inner, &str) -> T) -> Option<T> {
        let mut inner = self.agents.inner();
        let is_it = inner.agents.get(&self.id).is_some_and(|agent| agent.hello.session == self.session);
        is_it.then(|| work(&mut inner, &self.id))
    }

    /// Records a sign of life.
    pub fn seen(&self, now_unix_ms: u64) {
        self.with(|inner, id| {
            if let Some(agent) = inner.agents.get_mut(id) {
                agent.last_seen_unix_ms = now_unix_ms;
            }
        });
    }

    /// Stores the agent's health.
    pub fn health(&self, mut health: Health) {
        self.with(|inner, id| {
            inner.refused.texts_cut += lines(&mut health.given_up);
            health.rings.truncate(MOST_LINES);
            for ring in &mut health.rings {
                inner.refused.texts_cut += u64::from(shorten(&mut ring.instrument));
            }
            if let Some(agent) = inner.agents.get_mut(id) {
                agent.health = health;
            }
        });
    }

    /// Stores the inventory of its host.
    pub fn inventory(&self, inventory: Inventory) {
        self.with(|inner, id| inner.set_inventory(id, inventory));
    }

    /// Passes on a report about an order. An unexpected or excess one is counted.
    pub fn report(&self, report: OrderReport) {
        self.with(|inner, id| {
            let link = inner.agents.get_mut(id).and_then(|agent| agent.link.as_mut());
            let to = link.and_then(|link| link.orders.get(&report.order));
            let taken = to.is_some_and(|to| to.try_send(report).is_ok());
            inner.refused.unasked += u64::from(!taken);
        });
    }

    /// The receiver of an answer to this request. An unrequested piece is counted.
    pub fn waiting(&self, ask: u64, is_end: bool) -> Option<Sender<Answer>> {
        let mut inner = self.agents.inner();
        let agent = inner.agents.get_mut(&self.id).filter(|agent| agent.hello.session == self.session);
        let found = agent.and_then(|agent| agent.link.as_mut()).and_then(|link| match is_end {
            true => link.asks.remove(&ask),
            false => link.asks.get(&ask).cloned(),
        });
        inner.refused.unasked += u64::from(found.is_none());
        found
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.with(|inner, id| {
            if let Some(agent) = inner.agents.get_mut(id) {
                agent.link = None;
            }
        });
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let mut inner = self.agents.inner();
        let link = inner.agents.get_mut(&self.agent).and_then(|agent| agent.link.as_mut());
        if let Some(link) = link
            && link.asks.remove(&self.id).is_some()
        {
            // An agent that does not read gets no message.
            let _ = link.to.try_send(FromMeter { what: Some(What::Cancel(Cancel { id: self.id })) });
        }
    }
}

impl Ordered {
    /// Undoes the order now; the agent reports when that is done.
    pub fn undo(&self) {
        let inner = self.agents.inner();
        let link = inner.agents.get(&self.agent).and_then(|agent| agent.link.as_ref());
        if let Some(link) = link {
            // If the agent does not read, its guard undoes the order in time.
            let _ = link.to.try_send(FromMeter { what: Some(What::Undo(Undo { order: self.id })) });
        }
    }
}

impl Drop for Ordered {
    fn drop(&mut self) {
        self.undo();
        let mut inner = self.agents.inner();
        if let Some(link) = inner.agents.get_mut(&self.agent).and_then(|agent| agent.link.as_mut()) {
            link.orders.remove(&self.id);
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

/// Truncates the texts of a hello, and removes the inventory from it.
fn bounded_hello(hello: &mut Hello, refused: &mut Refused) -> Inventory {
    for text in [
        &mut hello.spangap,
        &mut hello.host_name,
        &mut hello.machine_id,
        &mut hello.boot_id,
        &mut hello.kernel,
    ] {
        refused.texts_cut += u64::from(shorten(text));
    }
    refused.texts_cut += lines(&mut hello.instruments) + lines(&mut hello.lacks) + lines(&mut hello.allows);
    hello.inventory.take().unwrap_or_default()
}

fn lines(lines: &mut Vec<String>) -> u64 {
    let over = lines.len().saturating_sub(MOST_LINES) as u64;
    lines.truncate(MOST_LINES);
    over + lines.iter_mut().map(|line| u64::from(shorten(line))).sum::<u64>()
}

/// Whether the text had to be truncated.
fn shorten(text: &mut String) -> bool {
    let is_long = text.len() > MOST_TEXT;
    if is_long {
        let end = (0..=MOST_TEXT).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or(0));
        text.shrink_to_fit();
    }
    is_long
}

fn bytes_of(inventory: &Inventory) -> usize {
    let text = |text: &String| text.len() + size_of::<String>();
    inventory.addresses.iter().map(text).sum::<usize>()
        + inventory
            .containers
            .iter()
            .map(|one| text(&one.id) + text(&one.pod_uid) + text(&one.cgroup))
            .sum::<usize>()
}

#[cfg(test)]
mod tests;
