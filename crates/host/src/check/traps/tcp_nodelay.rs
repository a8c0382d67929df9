//! Nagle's algorithm may hold back the last segment of a message on these connections.

use super::super::finding::{FindingDraft, NoVerdict, Severity};
use super::super::look::Inspection;
use super::{Trap, counted};
use spangap_model::Cause;

pub const TRAP: Trap = Trap { name: "tcp-nodelay", causes: &[Cause::NagleDelayedAck], look };

/// Maximum number of evidence lines.
const SHOWN: usize = 4;

fn look(look: &Inspection) -> Result<FindingDraft, NoVerdict> {
    if look.whole_machine() {
        return Err(NoVerdict::from("no process is named (--pid)"));
    }
    let sockets = match &look.sockets {
        None => return Err(NoVerdict::from("the sockets were not examined")),
        Some(Err(why)) => return Err(NoVerdict(why.clone())),
        Some(Ok(sockets)) => &sockets.connections,
    };
    if sockets.is_empty() {
        return Ok(FindingDraft::fine("no TCP connection"));
    }
    let off: Vec<_> = sockets.iter().filter(|socket| socket.nodelay == Some(false)).collect();
    let hidden = sockets.iter().filter(|socket| socket.nodelay.is_none()).count();
    if hidden == sockets.len() {
        let count = counted(hidden, "connection");
        return Err(NoVerdict(format!(
            "TCP_NODELAY of {count} is hidden: it takes root, or the right to trace the process"
        )));
    }
    let summary = format!("off on {} of {}", off.len(), counted(sockets.len(), "connection"));
    let severity = if off.is_empty() { None } else { Some(Severity::Medium) };
    let mut judged = FindingDraft::when(severity, if off.is_empty() { format!("on for all {}", sockets.len() - hidden) } else { summary }).means(
        "if a program writes a message in pieces, the kernel holds the last piece back until the one before it is \
         acknowledged: 40 ms on Linux, if the peer delays its ACK. One write per message is safe without it",
    );
    for socket in off.iter().take(SHOWN) {
        let what = format!("{} -> {} without TCP_NODELAY", socket.local, socket.peer);
        judged = judged.evidence(what, format!("/proc/{}/fd", socket.pid));
    }
    let mut pids: Vec<u32> = off.iter().map(|socket| socket.pid).collect();
    pids.dedup();
    for pid in pids {
        judged = judged.fix(format!(
            "spangap sockets set --pid {pid} nodelay=on --for 30s  # try it on the live connections"
        ));
    }
    judged = judged.fix("# permanently: TCP_NODELAY in the program, or each message in one write");
    if hidden > 0 {
        judged = judged.unknown(format!("TCP_NODELAY of {} is hidden", counted(hidden, "connection")));
    }
    Ok(judged.of_the_processes())
}
