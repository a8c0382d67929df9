//! Requests to agents: slices of their rings, and orders to change their hosts. Whoever drops a request cancels it.

use super::Agents;
use spangap_fleet::v1::{
    Ask, Cancel, FromMeter, Order, OrderReport, SliceEnd, SlicePiece, Undo, from_meter::What, order,
};
use std::sync::Arc;
use tokio::sync::mpsc::{self, error::TrySendError};

/// Pieces of a slice that wait to be written.
const PIECES: usize = 4;
/// Maximum number of slices requested from one agent at once.
const MOST_ASKS: usize = 8;
/// Reports per order: the change made, and its undo.
const MOST_REPORTS: usize = 2;

/// An agent's answer to a request.
#[derive(Debug)]
pub enum Answer {
    /// Part of a file.
    Piece(SlicePiece),
    /// The end of the slice.
    End(SliceEnd),
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

/// Why an order cannot be given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoOrder {
    /// The agent cannot be reached.
    #[error(transparent)]
    NoAsk(#[from] NoAsk),
    /// The agent was started without permission.
    #[error("the agent on that host may not change that: it was started without --allow {0}")]
    NotAllowed(&'static str),
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

impl Agents {
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
    pub fn order(self: &Arc<Self>, agent: &str, order: Order, now_unix_ms: u64) -> Result<Ordered, NoOrder> {
        let mut inner = self.inner();
        inner.next_ask += 1;
        let id = inner.next_ask;
        let known = inner.agents.get_mut(agent).filter(|known| known.is_connected(now_unix_ms));
        let known = known.ok_or(NoAsk::Gone)?;
        let needs = permission(order.what.as_ref());
        if !known.hello.allows.iter().any(|what| what == needs) {
            return Err(NoOrder::NotAllowed(needs));
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

/// The `--allow` value that an order requires.
fn permission(order: Option<&order::What>) -> &'static str {
    match order {
        Some(order::What::LookIsolate(_) | order::What::Isolate(_)) => "isolate",
        _ => "sockets",
    }
}
