//! A call as observed: its legs, the activity of its hosts in them, and its findings.

use super::Finding;
use crate::{Doing, Leg, Legs, Taker, WaitReason};
use serde::{Deserialize, Serialize};

/// One call as packets, spans and host recordings show it. Times are nanoseconds; its legs sum to its duration exactly, so that whatever
/// is unknown is a leg of its own and never left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CallRecord {
    /// Trace id, 32 hex digits, if a header carries it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub trace_id: Option<String>,
    /// Id of the CLIENT span, 16 hex digits.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub span_id: Option<String>,
    /// The client's address and port, if the connection is known.
    #[serde(default)]
    pub client: Option<String>,
    /// The server's address and port.
    #[serde(default)]
    pub server: Option<String>,
    /// `:path`, or method and target.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub method: Option<String>,
    /// Captures that contain it: index of the client's, then of the server's; `None` for a missing side.
    pub seen_in: [Option<u8>; 2],
    /// Start, in Unix nanoseconds by the clock of the side where it is known first.
    pub start_unix_ns: i64,
    /// From the first event to the last, in nanoseconds.
    pub duration_ns: u64,
    /// Size of the request's body.
    pub request_bytes: u64,
    /// Size of the response's body; `None` without a response.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub response_bytes: Option<u64>,
    /// Legs in order; they sum to `duration_ns` exactly.
    pub legs: Vec<LegRecord>,
    /// Findings, most costly first.
    pub findings: Vec<Finding>,
    /// Legs over all hops, for a call through proxies; they sum to `duration_ns` exactly. Empty without
    /// proxies.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub path: Vec<HopLeg>,
    /// Whether it failed in a way after which clients try again: without an answer, or with the status of a server that
    /// is down or busy.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub retryable: bool,
    /// The most bytes that each side's TCP window let in at once, the client's first; `None` if the capture does not show it,
    /// because it began after the handshake. A sender that waits for a small window looks like one that is slow.
    #[serde(skip_serializing_if = "are_unknown", default)]
    pub windows: [Option<u64>; 2],
    /// For a randomly drawn call, the number of calls that it represents; absent for one that represents
    /// itself.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stands_for: Option<f64>,
}

/// A leg of a call through proxies, as far as one hop goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HopLeg {
    /// Number of proxies before it; a proxy's own time belongs to the hop that leads to it.
    pub hop: u8,
    /// Number of the proxy's attempt, from 1; zero if there is only one.
    pub attempt: u8,
    /// What passed meanwhile: a leg of a call, or the work of a proxy.
    pub place: HopPlace,
    /// Time in nanoseconds; see [`LegTime`].
    pub ns: i64,
    /// Error bound in either direction.
    pub bound_ns: u64,
    /// What its host did, as recorded, behind a proxy; absent without a recording. Legs before the first proxy have theirs in
    /// [`CallRecord::legs`].
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub host: Option<HostTime>,
}

/// A place in a call through proxies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HopPlace {
    /// A leg of the call to the next host, as of any call.
    Leg(Legs),
    /// In the proxy: the request before it is forwarded, or the response before it is.
    Proxy,
    /// In the proxy or on the path to or from it, because the capture at the proxy is missing.
    ProxyOrWire,
    /// Between the end of a proxy's attempt and its next one.
    BetweenAttempts,
}

fn are_unknown(windows: &[Option<u64>; 2]) -> bool {
    windows.iter().all(Option::is_none)
}

impl CallRecord {
    /// Number of calls that it represents.
    pub fn weight(&self) -> f64 {
        self.stands_for.unwrap_or(1.0)
    }

    /// The legs that passed on the client's host or the server's, and on the way between them. Behind a proxy, the server is
    /// the one that the proxy passed the call on to: neither the proxy's own time nor its calls count.
    pub fn end_to_end(&self) -> impl Iterator<Item = EndLeg<'_>> {
        let is_direct = self.path.is_empty();
        let own = self.legs.iter().filter(move |leg| is_direct || is_clients(leg.legs));
        let own = own.map(|leg| EndLeg { hop: 0, legs: leg.legs, ns: leg.ns, host: leg.host.as_ref() });
        let behind = self.path.iter().filter_map(|step| match step.place {
            HopPlace::Leg(legs) if step.hop > 0 && is_servers(legs) => {
                Some(EndLeg { hop: step.hop, legs, ns: step.ns, host: step.host.as_ref() })
            }
            _ => None,
        });
        own.chain(behind)
    }

    /// Time of all legs of these names, nanoseconds.
    pub fn leg_ns(&self, legs: Legs) -> i64 {
        self.legs.iter().filter(|leg| leg.legs == legs).map(|leg| leg.ns).sum()
    }
}

fn is_clients(legs: Legs) -> bool {
    matches!(legs.last, Leg::ClientAppOut | Leg::ClientSend) || legs.first == Leg::ClientAppIn
}

fn is_servers(legs: Legs) -> bool {
    Leg::ServerHostIn <= legs.first && legs.last <= Leg::ServerSend
}

/// A leg of [`CallRecord::end_to_end`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndLeg<'a> {
    /// How many proxies are before it.
    pub hop: u8,
    /// Which leg, or which neighbouring legs together.
    pub legs: Legs,
    /// Nanoseconds; see [`LegTime`].
    pub ns: i64,
    /// What its host did, as recorded.
    pub host: Option<&'a HostTime>,
}

/// A leg's time. The true one lies in `ns - bound_ns ..= ns + bound_ns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LegTime {
    /// The leg, or several adjacent ones.
    pub legs: Legs,
    /// Nanoseconds; negative, and shown so, where activities overlap (a span that ends before its request is
    /// complete, or continues while its response is sent).
    pub ns: i64,
    /// Error bound in either direction.
    pub bound_ns: u64,
}

/// Time of a leg, and the activity of its host meanwhile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LegRecord {
    /// The leg, or several adjacent ones.
    #[serde(rename = "leg")]
    pub legs: Legs,
    /// Time in nanoseconds; see [`LegTime`].
    pub ns: i64,
    /// Error bound in either direction.
    pub bound_ns: u64,
    /// Recorded activity of its host; absent without a recording.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub host: Option<HostTime>,
}

/// Activity of a host in a leg.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostTime {
    /// Threads that worked on the call, in words: `server (thread 812)`.
    pub threads: Vec<String>,
    /// Their thread ids, in the same order.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub tids: Vec<u32>,
    /// The thread that read the call's last byte, for a leg that starts when that byte is at the host; absent
    /// if unobserved.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub read: Option<ReadBy>,
    /// Their activities, the longest first; they sum to the leg exactly.
    pub parts: Vec<HostPart>,
}

/// A thread's read of a call's last byte from its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadBy {
    /// The thread, by the id that the host itself uses.
    pub tid: u32,
    /// Time that the byte had been at the host by then, in nanoseconds.
    pub after_ns: u64,
    /// Time since the thread had read the first byte that the peer sent of the call, in nanoseconds; zero if
    /// both were read at once.
    pub begun_ns: u64,
    /// Time that it worked on the call from then on, until it was done or another thread continued, in
    /// nanoseconds.
    pub held_ns: u64,
}

/// One activity in a leg on one host: what the thread working on the call did, and for how long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "PartShape", into = "PartShape")]
pub struct HostPart {
    /// Activity.
    pub doing: Doing,
    /// Who had the CPU meanwhile; `None` if nobody else had.
    pub behind: Option<Taker>,
    /// For a wait: its reason, if known. Of a thread that runs: what it waited for before and after, for longer than it ran,
    /// where the kernel has work with that (memory, a disk).
    pub waited_for: Option<WaitReason>,
    /// For a wait: what ended it, in words.
    pub woken_by: Option<String>,
    /// For a wait: what ended it, as a value for programs.
    pub waker: Option<Waker>,
    /// Its length, nanoseconds.
    pub ns: u64,
}

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Waker {
    /// The thread with this id.
    Thread(u32),
    /// A timer: the requested time, or a timeout of the wait.
    Timer,
    /// Arriving packets.
    Packets,
    /// A device, another CPU, or something unrecorded.
    Other,
}

/// `"behind": "stress (pid 812)", "taker": {"kind": "task", "tid": 812, ...}`: words for people, a value for
/// programs.
#[derive(Serialize, Deserialize)]
struct PartShape {
    doing: Doing,
    #[serde(skip_serializing_if = "Option::is_none", default, skip_deserializing)]
    behind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    taker: Option<Taker>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    waited_for: Option<WaitReason>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    woken_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    waker: Option<Waker>,
    ns: u64,
}

impl From<HostPart> for PartShape {
    fn from(part: HostPart) -> PartShape {
        let HostPart { doing, behind, waited_for, woken_by, waker, ns } = part;
        PartShape {
            doing,
            behind: behind.as_ref().map(Taker::to_string),
            taker: behind,
            waited_for,
            woken_by,
            waker,
            ns,
        }
    }
}

impl From<PartShape> for HostPart {
    fn from(shape: PartShape) -> HostPart {
        let PartShape { doing, taker, waited_for, woken_by, waker, ns, .. } = shape;
        HostPart { doing, behind: taker, waited_for, woken_by, waker, ns }
    }
}
