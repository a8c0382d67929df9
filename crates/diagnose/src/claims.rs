//! What a call's record says of who may own some of its time.

use spangap_model::evidence::{CallRecord, Certainty, Finding, HostPart, Missing};
use spangap_model::{Cause, Culprit, Doing, Leg, Legs, Side, Taker};

/// What is only possible owns nothing, unless what is missing is there: packets do not show when a call began, the leg
/// between its span and the wire does.
pub fn counts(finding: &Finding, call: &CallRecord) -> bool {
    let begin_known = || call.legs.iter().any(|leg| leg.legs == Legs::one(Leg::ClientAppOut));
    match finding.certainty {
        Certainty::Shown => true,
        Certainty::Possible(missing) => missing == Missing::ClientSpanStart && begin_known(),
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

/// Who kept the threads of a call from running in a part of a leg; `None` where nobody did.
pub fn of_host(part: &HostPart, legs: Legs) -> Option<Culprit> {
    let packets = part.behind.as_ref().is_some_and(Taker::moves_packets);
    let cause = match part.doing {
        Doing::Runnable | Doing::Interrupted if packets => Cause::SoftirqOnCpu,
        Doing::Runnable => Cause::RunQueue,
        Doing::Throttled => Cause::CpuQuota,
        Doing::Stopped => Cause::Stopped,
        Doing::SoftirqLate => Cause::SoftirqLate,
        Doing::Interrupted | Doing::Running | Doing::Blocked | Doing::Unknown => return None,
    };
    let at_client = matches!(legs.first, Leg::ClientAppOut | Leg::ClientSend | Leg::ClientAppIn);
    Some(Culprit::at(cause, if at_client { Side::Client } else { Side::Server }))
}
