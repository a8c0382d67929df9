//! A call as observed: its legs, what its hosts did in them, what held it up.

use super::Finding;
use crate::{Doing, Leg, Legs, Taker, WaitReason};
use serde::{Deserialize, Serialize};

/// A call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CallRecord {
    /// 32 hex digits, where a header carries it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub trace_id: Option<String>,
    /// Id of the CLIENT span, 16 hex digits.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub span_id: Option<String>,
    /// The client's address and port, where its connection is known.
    #[serde(default)]
    pub client: Option<String>,
    /// The server's.
    #[serde(default)]
    pub server: Option<String>,
    /// `:path`, or method and target.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub method: Option<String>,
    /// Captures that have it: number of the client's, then of the server's; `None` for an end without one.
    pub seen_in: [Option<u8>; 2],
    /// Begin, Unix nanoseconds by the clock of the end where it is known first.
    pub start_unix_ns: i64,
    /// First event to last, nanoseconds.
    pub duration_ns: u64,
    /// Bytes of the request's body.
    pub request_bytes: u64,
    /// Bytes of the response's body; `None` without one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub response_bytes: Option<u64>,
    /// In order; they sum to `duration_ns` exactly.
    pub legs: Vec<LegRecord>,
    /// What held it up, most costly first.
    pub findings: Vec<Finding>,
    /// Its legs over all hops, for a call through proxies; they sum to `duration_ns` exactly. Empty without proxies.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub path: Vec<HopLeg>,
    /// Of a call that was drawn at random, how many it stands for; absent for one that stands for itself.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stands_for: Option<f64>,
}

/// A leg of a call through proxies, as far as one hop goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HopLeg {
    /// How many proxies are before it; a proxy's own time belongs to the hop that leads to it.
    pub hop: u8,
    /// Which of several attempts of a proxy it is of, from 1; zero where there is one.
    pub attempt: u8,
    /// Where.
    pub place: HopPlace,
    /// Nanoseconds; see [`LegTime`].
    pub ns: i64,
    /// How far off it may be either way.
    pub bound_ns: u64,
    /// What its host did, as recorded, behind a proxy; absent without a recording. Legs before the first proxy have theirs in
    /// [`CallRecord::legs`].
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub host: Option<HostTime>,
}

/// Where a call through proxies is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HopPlace {
    /// A leg of the call to the next host, as of any call.
    Leg(Legs),
    /// In the proxy: the request before it is passed on, or the response before it is.
    Proxy,
    /// In the proxy or on the way to or from it: its own capture of that is missing.
    ProxyOrWire,
    /// From the end of a proxy's attempt to its next one.
    BetweenAttempts,
}

impl CallRecord {
    /// How many calls it stands for.
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
    /// Which leg, or which neighbouring legs together.
    pub legs: Legs,
    /// Nanoseconds; below zero where two things go on at once (a span that is over before its request is complete, or goes
    /// on while its response is sent), and shown so.
    pub ns: i64,
    /// How far off it may be either way.
    pub bound_ns: u64,
}

/// A leg's time, and what its host did meanwhile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LegRecord {
    /// Which leg, or which neighbouring legs together.
    #[serde(rename = "leg")]
    pub legs: Legs,
    /// Nanoseconds; see [`LegTime`].
    pub ns: i64,
    /// How far off it may be either way.
    pub bound_ns: u64,
    /// What its host did, as recorded; absent without a recording.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub host: Option<HostTime>,
}

/// What a host did in a leg.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostTime {
    /// Threads that had the call in hand, in words: `server (thread 812)`.
    pub threads: Vec<String>,
    /// Their ids, in the same order.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub tids: Vec<u32>,
    /// Who read the call's last byte there, for a leg that begins when that byte is at the host; absent where nobody saw.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub read: Option<ReadBy>,
    /// What they did, the longest first; they sum to the leg exactly.
    pub parts: Vec<HostPart>,
}

/// A thread took a call's last byte from its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadBy {
    /// Its id.
    pub tid: u32,
    /// How long the byte had been at the host by then, nanoseconds.
    pub after_ns: u64,
    /// How long before that it had taken the first byte that the other end sent of the call, nanoseconds; zero where both came
    /// at one go.
    pub begun_ns: u64,
    /// How long it had the call in hand from then on, until it was done or another thread went on with it, nanoseconds.
    pub held_ns: u64,
}

/// A part of a leg on one host: what the thread that had the call in hand did, and for how long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "PartShape", into = "PartShape")]
pub struct HostPart {
    /// What.
    pub doing: Doing,
    /// Who had the CPU meanwhile; `None` where that is nobody else.
    pub behind: Option<Taker>,
    /// Of a wait: what for, where that is known.
    pub waited_for: Option<WaitReason>,
    /// Of a wait: who or what ended it, in words.
    pub woken_by: Option<String>,
    /// Of a wait: who or what ended it, as a value to go by.
    pub waker: Option<Waker>,
    /// Nanoseconds.
    pub ns: u64,
}

/// Who or what ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Waker {
    /// The thread of this id.
    Thread(u32),
    /// A timer: the time that it had asked for was over, or a limit to its wait.
    Timer,
    /// Packets that came.
    Packets,
    /// A device, another CPU, or something that was not told.
    Other,
}

/// `"behind": "stress (pid 812)", "taker": {"kind": "task", "tid": 812, ...}`: words for people, a value to go by.
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
