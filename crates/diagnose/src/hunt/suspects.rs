//! The table of suspects: which sides each has, and what would see it.

use super::lack::{Included, Lack, Source};
use spangap_model::{Cause, Side};

/// What sees a cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// Packets at either end.
    Packets,
    /// Packets at both ends.
    BothEnds,
    /// A recording of the host.
    Host,
    /// Spans of that side, beside packets.
    Spans,
    /// The same, with the beginnings of connections: what the ends agreed on there is not said again.
    SpansAndOpening,
    /// An instrument that says so only when it finds something; what would look for it.
    Finding(Lack),
}

/// The sides that a cause has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sides {
    None,
    One(Side),
    Both,
}

const fn one(cause: Cause, sides: Sides, by: By) -> (Cause, Sides, By) {
    (cause, sides, by)
}

const COUNTERS: Lack = Lack::of(Source::AcceptCounters);
const NAMES: Lack = Lack::with(Source::ClientCapture, Included::Dns);
pub(super) const OPENING: Lack = Lack::with(Source::ClientCapture, Included::Opening);
const POOL: Lack = Lack::with(Source::ClientSpans, Included::PoolWait);
const BEYOND: Lack = Lack::of(Source::ProxyCaptures);

/// All suspects, in the order in which they are crossed off.
pub(super) const SUSPECTS: &[(Cause, Sides, By)] = &[
    one(Cause::NagleDelayedAck, Sides::Both, By::Packets),
    one(Cause::Rto, Sides::None, By::Packets),
    one(Cause::TailLoss, Sides::None, By::Packets),
    one(Cause::FastRetransmit, Sides::None, By::Packets),
    one(Cause::ReceiverDrop, Sides::Both, By::BothEnds),
    one(Cause::BlackHole, Sides::None, By::BothEnds),
    one(Cause::PathMtu, Sides::None, By::BothEnds),
    one(Cause::SynLoss, Sides::None, By::Packets),
    one(Cause::AcceptOverflow, Sides::One(Side::Server), By::Finding(COUNTERS)),
    one(Cause::Dns, Sides::One(Side::Client), By::Finding(NAMES)),
    one(Cause::TlsHandshake, Sides::None, By::Finding(OPENING)),
    one(Cause::PoolWait, Sides::One(Side::Client), By::Finding(POOL)),
    one(Cause::ConnectionPerCall, Sides::One(Side::Client), By::Packets),
    one(Cause::StreamLimit, Sides::One(Side::Client), By::SpansAndOpening),
    one(Cause::SharedConnection, Sides::One(Side::Client), By::Host),
    one(Cause::ReceiveWindow, Sides::Both, By::Packets),
    one(Cause::FlowControl, Sides::Both, By::Packets),
    one(Cause::HeadOfLine, Sides::Both, By::Packets),
    one(Cause::BatchedArrival, Sides::None, By::BothEnds),
    one(Cause::NetworkDelay, Sides::None, By::BothEnds),
    one(Cause::Retries, Sides::None, By::Packets),
    one(Cause::Proxy, Sides::None, By::Finding(BEYOND)),
    one(Cause::RunQueue, Sides::Both, By::Host),
    one(Cause::CpuQuota, Sides::Both, By::Host),
    one(Cause::SoftirqOnCpu, Sides::Both, By::Host),
    one(Cause::SoftirqLate, Sides::Both, By::Host),
    one(Cause::Steal, Sides::Both, By::Host),
    one(Cause::Stopped, Sides::Both, By::Host),
    one(Cause::Lock, Sides::Both, By::Host),
    one(Cause::Disk, Sides::Both, By::Host),
    one(Cause::Memory, Sides::Both, By::Host),
    one(Cause::ServerQueue, Sides::One(Side::Server), By::Spans),
    one(Cause::ServerApp, Sides::One(Side::Server), By::Spans),
    one(Cause::ClientApp, Sides::One(Side::Client), By::Spans),
];

/// Whether nothing but a recording of the host shows it.
pub(super) fn is_by_host(cause: Cause) -> bool {
    SUSPECTS.iter().any(|(of, _, by)| *of == cause && *by == By::Host)
}
