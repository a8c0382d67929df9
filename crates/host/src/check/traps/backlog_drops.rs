//! Packets dropped between driver and TCP: the backlog of a CPU was full, or the flow limit hit.

use super::super::finding::{FindingDraft, NoVerdict, Severity};
use super::super::look::{Inspection, wrapped};
use super::{Trap, by_cpu};
use spangap_model::Cause;

pub const TRAP: Trap =
    Trap { name: "backlog-drops", causes: &[Cause::Rto, Cause::TailLoss, Cause::FastRetransmit], look };

const SOFTNET: &str = "/proc/net/softnet_stat";

fn look(look: &Inspection) -> Result<FindingDraft, NoVerdict> {
    let after = look.after.softnet.as_ref()?;
    let before = look.before().and_then(|before| Ok(before.softnet.as_ref()?));
    let mut each = Vec::new();
    let (mut dropped, mut limited, mut ever) = (0, 0, 0);
    for (cpu, after) in after {
        ever += after.dropped + after.flow_limit.unwrap_or(0);
        let Some(before) = before.as_ref().ok().and_then(|before| before.get(cpu)) else { continue };
        let (drops, flows) = (
            wrapped(before.dropped, after.dropped),
            after.flow_limit.zip(before.flow_limit).map_or(0, |(after, before)| wrapped(before, after)),
        );
        each.push((*cpu, drops + flows));
        dropped += drops;
        limited += flows;
    }
    let found = match dropped + limited {
        0 => (ever > 0).then_some(Severity::Low),
        _ => Some(Severity::High),
    };
    let summary = if ever == 0 {
        "none since boot".to_owned()
    } else {
        format!("+{}; {ever} since boot", dropped + limited)
    };
    let seconds = look.seconds();
    let mut judged = FindingDraft::when(found, summary).means(
        "packets that had arrived were dropped, because the CPU that should handle them was behind; TCP retransmits \
         them, 200 ms later at worst",
    );
    if let Ok(seconds) = seconds {
        let what =
            format!("dropped +{dropped}, flow_limit +{limited} ({})", by_cpu(each.into_iter(), seconds));
        judged = judged.evidence(what, SOFTNET);
    }
    judged = judged.evidence(format!("dropped and flow_limit since boot: {ever}"), SOFTNET);
    if let Some(Ok(backlog)) = look.settings.get("net/core/netdev_max_backlog") {
        judged = judged
            .evidence(
                format!("netdev_max_backlog {backlog} packets"),
                "/proc/sys/net/core/netdev_max_backlog",
            )
            .fix(format!("sysctl -w net.core.netdev_max_backlog={}", backlog.saturating_mul(4).max(4_000)));
    }
    if let Err(why) = before {
        judged = judged.unknown(why);
    }
    Ok(judged)
}
