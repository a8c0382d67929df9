//! The meter's side of a connected agent.

use super::bounds::{MOST_LINES, lines, shorten};
use super::requests::Answer;
use super::{Agents, Inner, Unwelcome};
use spangap_fleet::v1::{Health, Inventory, OrderReport};
use std::sync::Arc;
use tokio::sync::mpsc::Sender;
use tokio::sync::watch;

/// The meter's side of a connected agent, which is disconnected on drop.
#[derive(Debug)]
pub struct Attached {
    pub(super) agents: Arc<Agents>,
    /// Its id in the API.
    pub id: String,
    pub(super) session: u64,
    /// Signals that the stream has to end.
    pub end: watch::Receiver<Option<Unwelcome>>,
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
