//! NET_RX stops with packets left over because its budget, or its two ticks, are used up.

use super::super::finding::{FindingDraft, NoVerdict};
use super::super::look::{Inspection, wrapped};
use super::{Trap, by_cpu, severity};
use spangap_model::Cause;

pub const TRAP: Trap =
    Trap { name: "time-squeeze", causes: &[Cause::SoftirqLate, Cause::BatchedArrival], look };

/// Occurrences a second on all CPUs together: packets queue up no matter which CPUs the process uses.
const HIGH: f64 = 100.0;
const MEDIUM: f64 = 5.0;
const LOW: f64 = 0.5;

const SOFTNET: &str = "/proc/net/softnet_stat";

fn look(look: &Inspection) -> Result<FindingDraft, NoVerdict> {
    let (before, after, seconds) =
        (look.before()?.softnet.as_ref()?, look.after.softnet.as_ref()?, look.seconds()?);
    let since =
        |cpu: &u32, after: u64| wrapped(before.get(cpu).map_or(after, |before| before.time_squeeze), after);
    let each: Vec<(u32, u64)> =
        after.iter().map(|(cpu, after)| (*cpu, since(cpu, after.time_squeeze))).collect();
    let count: u64 = each.iter().map(|(_, count)| count).sum();
    let total: u64 = after.values().map(|softnet| softnet.time_squeeze).sum();
    let found = severity(count as f64 / seconds, HIGH, MEDIUM, LOW);
    let setting = |name: &str| look.settings.get(name).and_then(|value| value.as_ref().ok().copied());
    let mut judged = FindingDraft::when(found, format!("+{count}; {total} since boot"))
        .counted(Cause::SoftirqLate, found.is_some())
        .evidence(format!("time_squeeze +{count} ({})", by_cpu(each.into_iter(), seconds)), SOFTNET)
        .means("a CPU had more packets than it may handle at once: the rest waited for ksoftirqd to get the CPU, \
        behind whatever else ran there");
    if let (Some(packets), Some(us)) =
        (setting("net/core/netdev_budget"), setting("net/core/netdev_budget_usecs"))
    {
        let limits = format!("netdev_budget {packets} packets, netdev_budget_usecs {us}");
        judged = judged.evidence(limits, "/proc/sys/net/core/netdev_budget").fix(format!(
            "sysctl -w net.core.netdev_budget={} net.core.netdev_budget_usecs={}",
            packets.saturating_mul(2),
            us.saturating_mul(2)
        ));
    }
    Ok(judged.fix("# better: more receive queues, or the packets of one CPU spread over several"))
}
