//! Validation of orders, and what is refused from anyone.

use spangap_fleet::v1::{self, order::What};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Maximum number of connections per order.
const MAX_CONNECTIONS: usize = 10_000;
/// Maximum number of interfaces per order.
const MAX_INTERFACES: usize = 64;
/// Maximum duration of a change.
const MAX_DURATION: Duration = Duration::from_secs(60);

/// Why an order is refused, in a sentence.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal(pub String);

/// A validated order.
#[derive(Debug, PartialEq, Eq)]
pub struct Meant {
    /// The server's address in all its connections.
    pub server: SocketAddr,
    /// Whether it concerns the server's own sockets.
    pub accepted: bool,
    /// The action.
    pub action: Action,
}

/// Action of an order.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    /// Report the connections.
    Look,
    /// Set TCP_NODELAY on these connections, given by local and peer address.
    Nodelay(BTreeSet<(SocketAddr, SocketAddr)>, Duration),
    /// Report how packets of these interfaces could be kept off the CPUs of the processes that hold the
    /// connections; empty for the interfaces that currently deliver to them.
    LookIsolate(Vec<String>),
    /// Do that, if the packets would be moved to these CPUs.
    Isolate(Vec<String>, String, Duration),
}

impl Action {
    /// The required `--allow` value.
    pub fn needs(&self) -> &'static str {
        match self {
            Action::Look | Action::Nodelay(..) => "sockets",
            Action::LookIsolate(_) | Action::Isolate(..) => "isolate",
        }
    }
}

impl Meant {
    /// Validates an order.
    pub fn of(order: &v1::Order) -> Result<Meant, Refusal> {
        let refuse = |why: String| Err(Refusal(why));
        let Some(server) = &order.server else { return refuse("it names no server".into()) };
        let (Ok(address), Ok(port)) = (server.address.parse::<IpAddr>(), u16::try_from(server.port)) else {
            return refuse("the server has no address and port".into());
        };
        let server = SocketAddr::new(address.to_canonical(), port);
        if port == 0 || address.is_unspecified() {
            return refuse(format!("{server} is not one server"));
        }
        let action = match &order.what {
            None => return refuse("it asks for something this version does not know".into()),
            Some(What::Look(_)) => Action::Look,
            Some(What::Nodelay(set)) => {
                let time = time(set.for_ms)?;
                if set.connections.is_empty() || set.connections.len() > MAX_CONNECTIONS {
                    let found = set.connections.len();
                    return refuse(format!("{found} connections: expected 1 to {MAX_CONNECTIONS}"));
                }
                let mut all = BTreeSet::new();
                for connection in &set.connections {
                    let ends = (end(&connection.local), end(&connection.peer));
                    let (Some(local), Some(peer)) = ends else {
                        return refuse("a connection is not two addresses with ports".into());
                    };
                    // An order must not contain connections other than those of its server.
                    if server != if order.accepted { local } else { peer } {
                        return refuse(format!("{local} to {peer} is not a connection of {server}"));
                    }
                    all.insert((local, peer));
                }
                Action::Nodelay(all, time)
            }
            Some(What::LookIsolate(look)) => Action::LookIsolate(interfaces(&look.interfaces)?),
            Some(What::Isolate(isolate)) => {
                let time = time(isolate.for_ms)?;
                let interfaces = interfaces(&isolate.interfaces)?;
                if interfaces.is_empty() {
                    return refuse("it names no interface".into());
                }
                Action::Isolate(interfaces, isolate.net_cpus.clone(), time)
            }
        };
        Ok(Meant { server, accepted: order.accepted, action })
    }
}

fn time(for_ms: u32) -> Result<Duration, Refusal> {
    let time = Duration::from_millis(for_ms.into());
    if time.is_zero() || time > MAX_DURATION {
        return Err(Refusal(format!("{time:?}: expected more than 0 and at most {MAX_DURATION:?}")));
    }
    Ok(time)
}

/// Names that the kernel accepts; they become parts of paths.
fn interfaces(names: &[String]) -> Result<Vec<String>, Refusal> {
    if names.len() > MAX_INTERFACES {
        return Err(Refusal(format!("{} interfaces: expected at most {MAX_INTERFACES}", names.len())));
    }
    let is_name = |name: &&String| {
        (1..16).contains(&name.len())
            && ![".", ".."].contains(&name.as_str())
            && name.chars().all(|c| c.is_ascii_graphic() && !"/:".contains(c))
    };
    match names.iter().find(|name| !is_name(name)) {
        Some(name) => Err(Refusal(format!(
            "{:?} is not the name of an interface",
            name.chars().take(40).collect::<String>()
        ))),
        None => Ok(names.to_vec()),
    }
}

fn end(text: &str) -> Option<SocketAddr> {
    let end: SocketAddr = text.parse().ok()?;
    Some(SocketAddr::new(end.ip().to_canonical(), end.port()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use spangap_fleet::v1::{Connection, Endpoint, Order, SetNodelay};

    fn order(server: &str, port: u32, for_ms: u32, connections: &[(&str, &str)]) -> Order {
        let connections = connections
            .iter()
            .map(|(local, peer)| Connection { local: (*local).into(), peer: (*peer).into() })
            .collect();
        Order {
            server: Some(Endpoint { address: server.into(), port }),
            what: Some(What::Nodelay(SetNodelay { connections, for_ms })),
            ..Order::default()
        }
    }

    #[test]
    fn unbounded_orders_and_foreign_connections_are_refused() {
        let good = [("10.0.0.1:4000", "10.0.0.2:50051")];
        let meant = Meant::of(&order("::ffff:10.0.0.2", 50051, 1_000, &good)).expect("it makes sense");
        assert!(matches!(meant.action, Action::Nodelay(all, _) if all.len() == 1));
        let mut accepted = order("10.0.0.2", 50051, 1_000, &[("10.0.0.2:50051", "10.0.0.1:4000")]);
        assert!(Meant::of(&accepted).is_err(), "the other end's");
        accepted.accepted = true;
        assert!(Meant::of(&accepted).is_ok());
        for (refused, why) in [
            (order("10.0.0.2", 50051, 0, &good), "expected more than 0"),
            (order("10.0.0.2", 50051, 60_001, &good), "at most 60s"),
            (order("10.0.0.2", 50051, 1_000, &[]), "0 connections"),
            (order("10.0.0.2", 50051, 1_000, &[good[0]; MAX_CONNECTIONS + 1]), "10001 connections"),
            (order("10.0.0.2", 0, 1_000, &good), "not one server"),
            (order("0.0.0.0", 50051, 1_000, &good), "not one server"),
            (order("", 50051, 1_000, &good), "no address"),
            (order("10.0.0.2", 70_000, 1_000, &good), "no address"),
            (order("10.0.0.3", 50051, 1_000, &good), "is not a connection of 10.0.0.3:50051"),
            (order("10.0.0.2", 50051, 1_000, &[good[0], ("10.0.0.1:22", "10.9.9.9:5000")]), "10.9.9.9:5000"),
            (order("10.0.0.2", 50051, 1_000, &[("x", "y")]), "not two addresses"),
            (Order { what: None, ..order("10.0.0.2", 50051, 1, &good) }, "does not know"),
            (Order { server: None, ..order("10.0.0.2", 50051, 1, &good) }, "no server"),
        ] {
            let Refusal(said) = Meant::of(&refused).expect_err(why);
            assert!(said.contains(why), "{said}: expected {why}");
        }
    }
}
