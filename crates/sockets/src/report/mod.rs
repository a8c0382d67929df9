//! Presentation of sockets: JSON shapes, tables. Pure.

mod table;

use crate::{Asked, Hint, Listing, PeerGroup, groups, hints};
use serde::Serialize;
use spangap_model::evidence::Testimony;
pub use table::{print_list, print_long, print_rates};

/// `sockets list --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ListReport {
    /// The same as evidence, the common form of all instruments.
    pub evidence: Testimony,
    /// Time of the listing, in nanoseconds since 1970.
    pub time_unix_ns: u64,
    /// Selection.
    pub asked: Asked,
    /// Result.
    #[serde(flatten)]
    pub listing: Listing,
    /// Established connections by process and peer.
    pub peers: Vec<PeerGroup>,
    pub hints: Vec<Hint>,
    /// Source of each value.
    pub sources: Sources,
}

impl ListReport {
    /// Report of a listing at this time.
    pub fn new(time_unix_ns: u64, asked: Asked, listing: Listing) -> ListReport {
        let (peers, hints) = (groups(&listing.sockets), hints(&listing.sockets));
        let evidence = crate::evidence(time_unix_ns, &asked, &listing, &hints);
        ListReport { evidence, time_unix_ns, asked, listing, peers, hints, sources: Sources::default() }
    }
}

/// Source of each value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sources {
    /// From `/proc/PID/net/tcp` and `tcp6`.
    pub table: &'static [&'static str],
    /// Only through a duplicate of a descriptor.
    pub descriptor: &'static [&'static str],
    /// From the socket's `source`: everything else.
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
