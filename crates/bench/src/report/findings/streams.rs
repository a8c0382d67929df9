//! The limit of concurrent streams: calls wait for a stream.
//!
//! Look-alikes: none, since in flight less the limit times the connections is arithmetic; but the target's own
//! count of concurrent calls must not contradict it.

use super::{RunFinding, Runs, Standing};
use spangap_model::cause::Cause;
use spangap_report::figures::counted;

pub(super) fn find(all: &Runs<'_>) -> Option<RunFinding> {
    let queued = |run: &crate::report::Run| {
        run.streams.as_ref().and_then(|streams| streams.queued_by_limit).unwrap_or(0)
    };
    let waiting: Vec<_> = all.runs.iter().filter(|run| queued(run) > 0).collect();
    let most = *waiting.iter().max_by_key(|run| queued(run))?;
    let streams = most.streams.as_ref()?;
    let (limit, connections) = (streams.limit_per_connection?, most.connections?);
    let at_once = u64::from(limit).saturating_mul(connections);
    let peak = streams.target_peak_in_progress;
    let standing = if peak.is_none_or(|peak| peak <= at_once) { Standing::Shown } else { Standing::Possible };
    let inflight = most.asked.inflight?;
    let mut rests_on = vec![format!(
        "{}: {inflight} calls in flight over {} with the announced limit of {limit} streams each",
        all.name(most),
        counted(connections, "connection")
    )];
    rests_on.extend(peak.map(|peak| match standing {
        Standing::Shown => {
            format!("the target never handled more than {peak} calls at once, by its own count")
        }
        Standing::Possible => format!(
            "the target handled {peak} calls at once: it has other callers, or the limit is a different one"
        ),
    }));
    Some(RunFinding {
        cause: Cause::StreamLimit,
        side: None,
        standing,
        says: format!(
            "{} of {inflight} calls wait for a stream at any time: the target allows {limit} on a connection, and \
             the latency includes that wait.",
            queued(most)
        ),
        rests_on,
        cleared_by: "the same latency with more connections (--channels pool:N) or fewer calls in flight"
            .into(),
    })
}
