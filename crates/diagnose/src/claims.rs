//! Claims on a call's time, from its record: one table of ranks, and the activity of a host's threads by cause.

use spangap_model::evidence::{CallRecord, Certainty, Finding, HostPart, Missing};
use spangap_model::{Cause, Culprit, Doing, Leg, Legs, Side, Taker, WaitReason};

/// Who comes first where two claim the same time: what is inside of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// Earlier attempts: whatever held them up is theirs.
    Attempts,
    /// An event that held the call up.
    Event,
    /// What a host did to the threads of the call.
    Host,
    /// A wait behind something else, which has events of its own inside.
    Behind,
    /// What a program did itself, which is what it is when nothing else was the matter.
    Own,
}

/// When a cause claims its time; `None` for one that only says where the time passed.
pub fn rank(cause: Cause) -> Option<Rank> {
    Some(match cause {
        place if is_place(place) => return None,
        Cause::Retries => Rank::Attempts,
        Cause::HeadOfLine
        | Cause::BatchedArrival
        | Cause::ConnectionPerCall
        | Cause::SharedConnection
        | Cause::PoolWait
        | Cause::Proxy => Rank::Behind,
        _ => Rank::Event,
    })
}

/// What is only possible owns nothing, unless what is missing is there: packets do not show when a call began, the leg
/// between its span and the wire does. Nor if all that is missing is where bytes were lost: see [`lost_of`].
pub fn counts(finding: &Finding, call: &CallRecord) -> bool {
    let begin_known = || call.legs.iter().any(|leg| leg.legs == Legs::one(Leg::ClientAppOut));
    match finding.certainty {
        Certainty::Shown => true,
        Certainty::Possible(missing) => {
            missing == Missing::ClientSpanStart && begin_known() || lost_of(finding).is_some()
        }
    }
}

/// Causes that say how bytes were sent again that had been lost, or dropped where they arrived.
pub fn is_loss(cause: Cause) -> bool {
    matches!(cause, Cause::Rto | Cause::TailLoss | Cause::FastRetransmit | Cause::ReceiverDrop)
}

/// The sender of bytes that were sent again after a loss, where it is open whether the path lost them or the receiver's host
/// dropped them: only packets of another end would tell.
pub fn lost_of(finding: &Finding) -> Option<Side> {
    match finding.certainty.missing()? {
        Missing::DroppedByServer | Missing::SentOnce => Some(Side::Client),
        Missing::DroppedByClient => Some(Side::Server),
        _ => None,
    }
}

/// Causes that say where the time passed and not why: a leg says as much.
pub fn is_place(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::ClientApp
            | Cause::NetworkDelay
            | Cause::ServerQueue
            | Cause::ServerApp
            | Cause::ServerHostOrApp
            | Cause::NoResponse
    )
}

/// Causes that keep threads from their work, so that they are beside the work in the same legs.
pub fn is_of_host(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::RunQueue
            | Cause::CpuQuota
            | Cause::SoftirqOnCpu
            | Cause::Steal
            | Cause::CpuSaturated
            | Cause::Stopped
            | Cause::Lock
            | Cause::Disk
            | Cause::Memory
    )
}

/// Causes that hold calls up one by one, as an instrument shows where they did, and that no busy machine brings about by
/// itself.
pub fn is_held_up(cause: Cause) -> bool {
    !is_place(cause)
        && !matches!(
            cause,
            Cause::NetworkJitter
                | Cause::LargePayload
                | Cause::RunQueue
                | Cause::SoftirqOnCpu
                | Cause::SoftirqLate
                | Cause::Steal
                | Cause::CpuSaturated
        )
}

/// Causes that keep whatever runs on a host from its work at once: so many calls of one moment are one case of it.
pub fn hits_at_once(cause: Cause) -> bool {
    is_of_host(cause) && !matches!(cause, Cause::Stopped | Cause::Lock | Cause::CpuQuota)
        || cause == Cause::SoftirqLate
}

/// Causes that have whatever nothing else was seen to take. Where an application or a path stalls, all calls that are there wait
/// at once, and that once says nothing of the others.
pub fn is_remainder(cause: Cause) -> bool {
    is_place(cause) || matches!(cause, Cause::NetworkJitter | Cause::LargePayload)
}

/// What a thread was kept waiting for by its host; `None` for what it chose to wait for.
fn of_wait(reason: WaitReason) -> Option<Cause> {
    Some(match reason {
        WaitReason::Lock | WaitReason::KernelLock | WaitReason::FileLock => Cause::Lock,
        WaitReason::Disk
        | WaitReason::Fsync
        | WaitReason::Journal
        | WaitReason::RemoteFiles
        | WaitReason::WriteThrottle => Cause::Disk,
        WaitReason::PageFault | WaitReason::Reclaim => Cause::Memory,
        WaitReason::Stopped | WaitReason::Traced | WaitReason::Frozen => Cause::Stopped,
        _ => return None,
    })
}

/// Who kept the threads of a call from running in a part of a leg; `None` where nobody did.
pub fn of_host(part: &HostPart, legs: Legs) -> Option<Culprit> {
    let packets = part.behind.as_ref().is_some_and(Taker::moves_packets);
    let cause = match part.doing {
        // A process that has more to do than CPUs to do it on keeps itself waiting.
        Doing::Runnable if is_behind_itself(part) => return None,
        Doing::Runnable | Doing::Interrupted if packets => Cause::SoftirqOnCpu,
        Doing::Runnable => Cause::RunQueue,
        Doing::Throttled => Cause::CpuQuota,
        Doing::Stopped => Cause::Stopped,
        Doing::SoftirqLate => Cause::SoftirqLate,
        // Between two such waits, and for less time than these take, a thread does what they are for: it makes room, starts the
        // read, maps the page.
        Doing::Blocked | Doing::Running => of_wait(part.waited_for?)?,
        Doing::Interrupted | Doing::Unknown => return None,
    };
    Some(Culprit::at(cause, host_of(legs)))
}

/// Whether a thread waited for a CPU that another thread of its own process had.
pub fn is_behind_itself(part: &HostPart) -> bool {
    part.doing == Doing::Runnable && matches!(part.behind, Some(Taker::Sibling { .. }))
}

/// Whether the client's own program took that part of a leg: it ran, waited for a CPU that it had itself, or slept as long as
/// it had asked to. A thread that waits for a socket, a lock or another thread waits for somebody.
pub fn is_clients_own(part: &HostPart, legs: Legs) -> bool {
    let asleep = part.doing == Doing::Blocked && part.waited_for == Some(WaitReason::Sleep);
    let at_client = legs == Legs::one(Leg::ClientAppOut) || legs == Legs::one(Leg::ClientAppIn);
    at_client && (part.doing == Doing::Running || is_behind_itself(part) || asleep)
}

/// The host that a leg passes on, as far as its begin tells.
pub fn host_of(legs: Legs) -> Side {
    match legs.first {
        Leg::ClientAppOut | Leg::ClientSend | Leg::ClientAppIn => Side::Client,
        _ => Side::Server,
    }
}
