//! Segments are lost and retransmitted.

use super::super::finding::{FindingDraft, NoVerdict, Severity};
use super::super::look::Inspection;
use super::{Trap, percent, severity};
use spangap_model::Cause;

pub const TRAP: Trap =
    Trap { name: "tcp-retransmits", causes: &[Cause::Rto, Cause::TailLoss, Cause::FastRetransmit], look };

/// Share of segments sent.
const HIGH: f64 = 0.01;
const MEDIUM: f64 = 0.001;
const LOW: f64 = 0.0001;
/// Fewer retransmissions between the readings are within the noise.
const MIN_RETRANSMITS: u64 = 3;

fn look(look: &Inspection) -> Result<FindingDraft, NoVerdict> {
    let mut worst: Option<(Option<Severity>, String)> = None;
    let mut evidence = Vec::new();
    for (pid, folder) in look.net_namespaces() {
        let (again, out) = (look.tcp("Tcp.RetransSegs", pid)?, look.tcp("Tcp.OutSegs", pid)?);
        let timeouts = look.tcp("TcpExt.TCPTimeouts", pid);
        let since =
            |(before, after): (Option<u64>, u64)| before.map_or(0, |before| after.saturating_sub(before));
        let (again_now, out_now) = (since(again), since(out));
        let share = again_now as f64 / out_now.max(1) as f64;
        let found = if again_now < MIN_RETRANSMITS { None } else { severity(share, HIGH, MEDIUM, LOW) };
        let boot = percent(again.1 as f64, out.1 as f64);
        let summary = format!(
            "+{again_now} of {out_now} segments sent ({}); {boot} since boot",
            percent(again_now as f64, out_now as f64)
        );
        evidence.push((
            format!("RetransSegs +{again_now} ({}), OutSegs +{out_now} ({})", again.1, out.1),
            format!("{folder}/snmp"),
        ));
        if let Ok(timeouts) = timeouts {
            evidence.push((
                format!("TCPTimeouts +{} ({})", since(timeouts), timeouts.1),
                format!("{folder}/netstat"),
            ));
        }
        // `None`, an absent trap, sorts last.
        let weight = |found: &Option<Severity>| found.map_or(usize::MAX, |found| found as usize);
        if worst.as_ref().is_none_or(|(worst, _)| weight(&found) < weight(worst)) {
            worst = Some((found, summary));
        }
    }
    let (found, summary) = worst.ok_or_else(|| NoVerdict::from("no network namespace to look at"))?;
    let judged = FindingDraft::when(found, summary)
        .means("a lost segment holds up all that follow it on its connection: for a round trip at best, for 200 ms \
        or more if only the timer notices (TCPTimeouts)")
        .fix("ip -s -s link; tc -s qdisc; nstat -az | grep -E 'Retrans|Timeouts|Loss'  # where they are lost")
        .fix("ss -tin state established | grep -B1 retrans  # which connections");
    Ok(evidence.into_iter().fold(judged, |judged, (what, path)| judged.evidence(what, path)))
}
