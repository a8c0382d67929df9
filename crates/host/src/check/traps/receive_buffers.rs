//! Receive buffers are full: arrived data is dropped or collapsed.

use super::super::finding::{FindingDraft, NoVerdict, Severity};
use super::super::look::Inspection;
use super::Trap;
use spangap_model::Cause;

pub const TRAP: Trap = Trap { name: "receive-buffers", causes: &[Cause::ReceiveWindow, Cause::Rto], look };

/// Counters, and whether they count lost data.
const COUNTERS: &[(&str, bool)] =
    &[("PruneCalled", false), ("RcvPruned", true), ("TCPRcvQDrop", true), ("TCPBacklogDrop", true)];

fn look(look: &Inspection) -> Result<FindingDraft, NoVerdict> {
    let (mut now, mut lost, mut ever) = (0_u64, 0_u64, 0_u64);
    let mut evidence = Vec::new();
    let mut known = false;
    for (pid, folder) in look.net_namespaces() {
        let mut words = Vec::new();
        for (name, loses) in COUNTERS {
            // Older kernels lack some of these counters.
            let Ok((before, after)) = look.tcp(&format!("TcpExt.{name}"), pid) else { continue };
            let since = before.map_or(0, |before| after.saturating_sub(before));
            known = true;
            now = now.saturating_add(since);
            ever = ever.saturating_add(after);
            lost = lost.saturating_add(if *loses { since } else { 0 });
            words.push(format!("{name} +{since} ({after})"));
        }
        evidence.push((words.join(", "), format!("{folder}/netstat")));
    }
    if !known {
        let pid = look.pids.first().copied();
        return Err(look
            .tcp("TcpExt.PruneCalled", pid)
            .err()
            .unwrap_or_else(|| NoVerdict::from("no counters")));
    }
    let found = match (lost, now, ever) {
        (1.., ..) => Some(Severity::High),
        (0, 1.., _) => Some(Severity::Medium),
        _ => None,
    };
    let judged = FindingDraft::when(
        found,
        if ever == 0 { "never full".to_owned() } else { format!("+{now}; {ever} since boot") },
    )
    .means(
        "a socket's receive buffer was full: the program reads late, or many small segments fill it. The \
        sender stalls, and dropped segments are retransmitted",
    )
    .fix("sysctl net.ipv4.tcp_rmem net.core.rmem_max  # the limits; -w raises them");
    let judged = look.pids.iter().fold(judged, |judged, pid| {
        judged.fix(format!("spangap host offcpu --pid {pid}  # why it reads late"))
    });
    Ok(evidence.into_iter().fold(judged, |judged, (what, path)| judged.evidence(what, path)))
}
