//! What users see of sockets: JSON shapes, tables. Pure.

mod table;

use crate::{Asked, Hint, Listing, PeerGroup, groups, hints};
use serde::Serialize;
use spangap_model::evidence::Testimony;
pub use table::{print_list, print_long, print_rates};

/// `sockets list --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ListReport {
    /// The same as values that every instrument speaks in.
    pub evidence: Testimony,
    /// When it was looked, nanoseconds since 1970.
    pub time_unix_ns: u64,
    /// What was asked for.
    pub asked: Asked,
    /// What was found.
    #[serde(flatten)]
    pub listing: Listing,
    /// Established connections by process and peer.
    pub peers: Vec<PeerGroup>,
    /// What the values show, in words.
    pub hints: Vec<Hint>,
    /// Which value comes from where.
    pub sources: Sources,
}

impl ListReport {
    /// Of a look at this time.
    pub fn new(time_unix_ns: u64, asked: Asked, listing: Listing) -> ListReport {
        let (peers, hints) = (groups(&listing.sockets), hints(&listing.sockets));
        let evidence = crate::evidence(time_unix_ns, &asked, &listing, &hints);
        ListReport { evidence, time_unix_ns, asked, listing, peers, hints, sources: Sources::default() }
    }
}

/// Which value comes from where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sources {
    /// From `/proc/PID/net/tcp` and `tcp6`.
    pub table: &'static [&'static str],
    /// Through a duplicate of a descriptor only.
    pub descriptor: &'static [&'static str],
    /// From where the socket's `source` says: everything else.
    pub source: &'static str,
}

impl Default for Sources {
    fn default() -> Self {
        Sources {
            table: &[
                "network_namespace",
                "uid",
                "quick_acks_left",
                "send_queue_bytes",
                "receive_queue_bytes",
                "timer",
                "timer_ns",
            ],
            descriptor: &["nodelay", "cork"],
            source: "every other value of a socket comes from its `source`: descriptor (TCP_INFO of a duplicated \
            descriptor), sock_diag (the same by netlink), or table (then it is null)",
        }
    }
}
