//! Levers of experiments: the causes they apply to, their orders.

use super::shapes::ConnectionRow;
use spangap_fleet::v1::{Connection, Isolate, Look, LookIsolate, OrderReport, SetNodelay, order};
use spangap_model::Cause;
use std::collections::BTreeSet;

/// A lever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lever {
    /// TCP_NODELAY of live connections.
    Nodelay,
    /// Moves the packets of these interfaces to these CPUs, off those of the application. Empty before the
    /// host was asked: the interfaces that currently deliver packets to the application's CPUs.
    Isolate {
        /// Interface names.
        interfaces: Vec<String>,
        /// CPU list.
        net_cpus: String,
    },
}

impl Lever {
    /// The lever that would remedy a cause.
    pub fn of(cause: Cause) -> Option<Lever> {
        match cause {
            Cause::NagleDelayedAck => Some(Lever::Nodelay),
            Cause::SoftirqOnCpu => Some(Lever::Isolate { interfaces: Vec::new(), net_cpus: String::new() }),
            _ => None,
        }
    }

    /// Its name in JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Lever::Nodelay => "tcp-nodelay",
            Lever::Isolate { .. } => "isolate",
        }
    }

    /// The cause it remedies.
    pub fn suspect(&self) -> Cause {
        match self {
            Lever::Nodelay => Cause::NagleDelayedAck,
            Lever::Isolate { .. } => Cause::SoftirqOnCpu,
        }
    }

    /// Whether it can be applied per connection.
    pub fn is_of_connections(&self) -> bool {
        *self == Lever::Nodelay
    }

    /// The order to list possible changes.
    pub fn look(&self) -> order::What {
        match self {
            Lever::Nodelay => order::What::Look(Look {}),
            Lever::Isolate { interfaces, .. } => {
                order::What::LookIsolate(LookIsolate { interfaces: interfaces.clone() })
            }
        }
    }

    /// The order to apply it for a duration, to these connections if it applies per connection.
    pub fn change(&self, connections: &BTreeSet<(&str, &str)>, for_ms: u32) -> order::What {
        match self {
            Lever::Nodelay => {
                let ends = connections.iter();
                let connections =
                    ends.map(|(local, peer)| Connection { local: (*local).into(), peer: (*peer).into() });
                order::What::Nodelay(SetNodelay { connections: connections.collect(), for_ms })
            }
            Lever::Isolate { interfaces, net_cpus } => order::What::Isolate(Isolate {
                interfaces: interfaces.clone(),
                net_cpus: net_cpus.clone(),
                for_ms,
            }),
        }
    }

    /// Whether the reported change is the ordered one.
    pub fn is_meant(
        &self,
        report: &OrderReport,
        changed: &[ConnectionRow],
        told: &BTreeSet<(&str, &str)>,
    ) -> bool {
        match self {
            Lever::Nodelay => {
                changed.iter().all(|one| told.contains(&(one.local.as_str(), one.peer.as_str())))
            }
            Lever::Isolate { interfaces, net_cpus } => {
                report.interfaces == *interfaces && report.net_cpus == *net_cpus
            }
        }
    }
}
