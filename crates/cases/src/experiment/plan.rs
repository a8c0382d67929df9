//! An experiment to be run, and the orders that it takes.

use super::lever::Lever;
use super::shapes::{ConnectionRow, PlanReport};
use spangap_fleet::v1::{Endpoint, Order, order};
use spangap_model::PairKey;
use std::net::SocketAddr;

/// An experiment to be run.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The plan as shown to the user.
    pub report: PlanReport,
    /// The calls to measure.
    pub pair: PairKey,
    /// Address of the server.
    pub server: SocketAddr,
    /// Whether to change the server's sockets instead of the clients'.
    pub accepted: bool,
    /// The lever to apply.
    pub lever: Lever,
    /// Whether to treat halves of the connections rather than blocks of time.
    pub halves: bool,
    /// The suspect's share of the excess of slow calls.
    pub share: f64,
}

impl Plan {
    /// An order that concerns the plan's connections.
    pub fn order(&self, asked_by: &str, what: order::What) -> Order {
        Order {
            id: 0,
            case: self.report.case.clone(),
            asked_by: asked_by.to_owned(),
            server: Some(Endpoint { address: self.server.ip().to_string(), port: self.server.port().into() }),
            accepted: self.accepted,
            what: Some(what),
        }
    }

    /// The client's port of a connection, which identifies its calls.
    pub fn port_of(&self, connection: &ConnectionRow) -> Option<u64> {
        let end = if self.accepted { &connection.peer } else { &connection.local };
        Some(end.parse::<SocketAddr>().ok()?.port().into())
    }
}
