//! Connections hold data that is not sent, or not acknowledged.

use super::super::finding::{FindingDraft, NoVerdict, Severity};
use super::super::look::Inspection;
use super::{Trap, counted};
use spangap_model::Cause;

pub const TRAP: Trap = Trap {
    name: "unsent-data",
    causes: &[Cause::ReceiveWindow, Cause::FlowControl, Cause::NetworkDelay],
    look,
};

/// Unsent bytes in a socket that are worth a line.
const MIN_UNSENT_BYTES: u64 = 16 * 1024;
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
    let told = sockets.iter().filter(|socket| socket.unsent_bytes.is_some()).count();
    if told == 0 {
        return Err(NoVerdict(format!("what waits in {} is hidden", counted(sockets.len(), "connection"))));
    }
    let unsent = |bytes: Option<u64>| bytes.unwrap_or(0);
    let mut held: Vec<_> =
        sockets.iter().filter(|socket| unsent(socket.unsent_bytes) >= MIN_UNSENT_BYTES).collect();
    held.sort_by_key(|socket| std::cmp::Reverse(socket.unsent_bytes));
    if held.is_empty() {
        return Ok(FindingDraft::fine(format!("nothing waits in {}", counted(told, "connection"))));
    }
    let bytes: u64 = held.iter().map(|socket| unsent(socket.unsent_bytes)).sum();
    let summary =
        format!("{} KiB are waiting in {} right now", bytes / 1024, counted(held.len(), "connection"));
    let mut judged = FindingDraft::trap(Severity::Low, summary)
        .means("the program has written more than the connection can carry: a small receive window, a congestion \
        window after loss, or a slow path. The bytes of later calls wait behind it")
        .fix("# look again: data on its way out is normal for a moment; if it stays, compare both ends with spangap dissect");
    for socket in held.iter().take(SHOWN) {
        let unacknowledged = socket
            .unacknowledged
            .map_or(String::new(), |count| format!(", {count} segments not acknowledged"));
        let what = format!(
            "{} -> {}: {} bytes not sent{unacknowledged}",
            socket.local,
            socket.peer,
            unsent(socket.unsent_bytes)
        );
        judged = judged.evidence(what, format!("/proc/{}/fd", socket.pid));
    }
    Ok(judged.of_the_processes())
}
