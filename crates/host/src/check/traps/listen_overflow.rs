//! The accept queue is full.

use super::super::facts::listeners::Listener;
use super::super::finding::{FindingDraft, NoVerdict, Severity};
use super::super::look::Inspection;
use super::{Trap, counted};
use spangap_model::Cause;

pub const TRAP: Trap =
    Trap { name: "listen-overflow", causes: &[Cause::AcceptOverflow, Cause::SynLoss], look };

const OVERFLOWS: &str = "TcpExt.ListenOverflows";
const DROPS: &str = "TcpExt.ListenDrops";

fn look(look: &Inspection) -> Result<FindingDraft, NoVerdict> {
    let (mut now, mut ever) = (0_u64, 0_u64);
    let (mut evidence, mut unknown) = (Vec::new(), Vec::new());
    for (pid, folder) in look.net_namespaces() {
        let (overflows, drops) = (look.tcp(OVERFLOWS, pid)?, look.tcp(DROPS, pid)?);
        let since =
            |(before, after): (Option<u64>, u64)| before.map_or(0, |before| after.saturating_sub(before));
        // Every overflow also counts as a drop.
        now = now.saturating_add(since(drops).max(since(overflows)));
        ever = ever.saturating_add(overflows.1);
        let what = format!(
            "ListenOverflows +{} ({}), ListenDrops +{} ({})",
            since(overflows),
            overflows.1,
            since(drops),
            drops.1
        );
        evidence.push((what, format!("{folder}/netstat")));
    }
    let limit = look.settings.get("net/core/somaxconn").and_then(|limit| limit.as_ref().ok().copied());
    let mut waiting: Vec<&Listener> = Vec::new();
    for listeners in look.listeners.values() {
        match listeners {
            Ok(listeners) => waiting.extend(listeners.iter().filter(|listener| listener.waiting > 0)),
            Err(error) => unknown.push(error),
        }
    }
    let queues = look
        .sockets
        .as_ref()
        .and_then(|sockets| sockets.as_ref().ok())
        .map_or(&[][..], |sockets| &sockets.listening);
    let limit_of = |port: u16| {
        let own = queues.iter().find(|queue| queue.port == port).map(|queue| queue.limit as i64);
        own.or(limit)
    };
    // The kernel accepts one connection more than the limit before it refuses.
    let full = waiting
        .iter()
        .any(|listener| limit_of(listener.port).is_some_and(|limit| i64::from(listener.waiting) > limit));
    let (found, summary) = if now > 0 || full {
        (
            Some(Severity::High),
            if now > 0 {
                format!("+{now} connections dropped just now, {ever} overflows in total")
            } else {
                format!("a queue is full right now; {ever} overflows in total")
            },
        )
    } else if !waiting.is_empty() {
        let most = waiting.iter().map(|listener| listener.waiting).max().unwrap_or(0);
        (
            Some(Severity::Low),
            format!("{most} connections are waiting to be accepted right now; none dropped"),
        )
    } else if ever > 0 {
        (Some(Severity::Low), format!("none just now, {ever} overflows in total"))
    } else {
        (None, "no overflow ever".to_owned())
    };
    let mut judged = FindingDraft::when(found, summary).counted(Cause::AcceptOverflow, now > 0).means(
        "a client's handshake was dropped because the program does not accept fast enough; the client retries after \
         1 s, then 2 s, 4 s",
    );
    for (what, path) in evidence {
        judged = judged.evidence(what, path);
    }
    for listener in &waiting {
        let of = limit_of(listener.port)
            .map_or(String::new(), |limit| format!(", at most {}", limit.saturating_add(1)));
        let what = format!(
            "port {}: {} waiting to be accepted{of}",
            listener.port,
            counted(listener.waiting as usize, "connection")
        );
        judged = judged.evidence(what, listener.path.clone());
    }
    if let Some(limit) = limit {
        judged = judged
            .evidence(format!("somaxconn {limit}: no backlog is longer"), "/proc/sys/net/core/somaxconn");
        judged = judged.fix(format!("sysctl -w net.core.somaxconn={}", limit.saturating_mul(4).max(4_096)));
    }
    judged = judged
        .fix("# and the backlog of listen() in the program, which is the limit if it is lower: ss -ltn shows it as Send-Q")
;
    for pid in &look.pids {
        judged = judged.fix(format!("spangap host offcpu --pid {pid}  # why it accepts late"));
    }
    if look.whole_machine() {
        judged = judged.unknown("queues of listening sockets are read only with --pid");
    }
    Ok(unknown.into_iter().fold(judged, FindingDraft::unknown))
}
