//! Slices of both hosts, and of a proxy's between them, requested at once and stored with the case.

use super::SIDES;
use super::ends::Ends;
use crate::agents::payload_name;
use crate::cases::{Cases, moment};
use crate::now_unix_ms;
use crate::report::HostRow;
use crate::slices::fetch;
use spangap_fleet::v1::{Ask, Endpoint};
use spangap_model::PairKey;
use spangap_model::count::grouped;
use spangap_model::duration::format_ns;
use std::sync::Arc;

/// Asks both hosts at once, and that of a proxy between them if the budget allows it. How many slices of the two came.
pub(super) async fn slices(
    cases: &Arc<Cases>,
    id: &str,
    pair: &PairKey,
    hosts: &[HostRow; 2],
    windows: &[(i64, i64); 2],
    ends: &Ends,
) -> usize {
    let is_one_host = hosts[0].agent.is_some() && hosts[0].agent == hosts[1].agent;
    let one = async |side: usize| {
        let Some(agent) = &hosts[side].agent else {
            let lack = no_packets(hosts, side);
            cases.change(id, |case| {
                if !case.lacks.contains(&lack) {
                    case.lacks.push(lack);
                }
            });
            return 0;
        };
        let request = Request { window: windows[side], endpoints: &ends.sides[side], apart: is_one_host };
        of_host(cases, id, pair, (SIDES[side], agent), request).await
    };
    if is_one_host {
        return one(0).await;
    }
    let proxy = async {
        let Some((agent, ends)) = &ends.proxy else { return };
        if !cases.may_ask(1) {
            let lack = "No packets of the proxy's host: the slices of this minute are used up.";
            return cases.change(id, |case| case.lacks.push(lack.into()));
        }
        // Its spans are none of these, and do not say how its clock stands to that of the client.
        let request = Request { window: windows[0], endpoints: ends, apart: false };
        of_host(cases, id, pair, ("proxy", agent), request).await;
    };
    let (client, server, ()) = tokio::join!(one(0), one(1), proxy);
    client + server
}

/// Why there are no packets of a side. The same reason of both is one sentence.
fn no_packets(hosts: &[HostRow; 2], side: usize) -> String {
    let why = hosts[side].why_not.as_deref().unwrap_or_default();
    match hosts[0] == hosts[1] {
        true => format!("No packets of either end: {why}."),
        false => format!("No packets of the {}: {why}.", SIDES[side]),
    }
}

/// What is asked of one host.
struct Request<'a> {
    /// From and to, Unix nanoseconds by the clock of the host.
    window: (i64, i64),
    endpoints: &'a [Endpoint],
    /// Whether both ends are there.
    apart: bool,
}

/// Asks one host, and writes its slice. Whether it came.
async fn of_host(
    cases: &Arc<Cases>,
    id: &str,
    pair: &PairKey,
    (of, agent): (&str, &str),
    request: Request<'_>,
) -> usize {
    let Request { window: (from_unix_ns, to_unix_ns), endpoints, apart } = request;
    let ask = Ask {
        from_unix_ns,
        to_unix_ns,
        endpoints: endpoints.to_vec(),
        max_bytes: cases.settings.slice_bytes,
        reason: format!("case {id}: {} -> {}", pair.client, pair.server),
        apart,
        ..Ask::default()
    };
    let length = format_ns((to_unix_ns - from_unix_ns).unsigned_abs());
    cases.note(id, format!("asked the {of}'s host for {length} of packets and events (agent {agent})"));
    let slice = fetch(&cases.agents, &cases.folder, id, of, agent, ask, cases.settings.slice_time).await;
    let now_ms = now_unix_ms();
    let (said, lacks, came) = match slice {
        Ok(slice) => {
            let lacks = slice.end.lacks.into_iter().take(20);
            let payload = payload_name(slice.end.payload);
            let mut lacks: Vec<String> =
                lacks.map(|lack| format!("{of}: {}", lack.chars().take(300).collect::<String>())).collect();
            if payload == "full" {
                lacks.push(format!("The packets of the {of} have their payload."));
            }
            (format!("slice of the {of} complete: {} bytes", grouped(slice.bytes)), lacks, 1)
        }
        Err(error) => {
            let said = format!("no slice of the {of}: {error}");
            (said.clone(), vec![format!("{said}.")], 0)
        }
    };
    cases.change(id, |case| {
        case.time_line.push(moment(now_ms, said));
        case.lacks.extend(lacks);
    });
    came
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_keeps_the_packets_of_both_ends_is_said_once() {
        let host = |why: &str| HostRow { why_not: Some(why.into()), ..HostRow::default() };
        let said =
            |[client, server]: [&str; 2]| [0, 1].map(|side| no_packets(&[host(client), host(server)], side));
        assert_eq!(
            said(["no agent is connected"; 2]),
            ["No packets of either end: no agent is connected."; 2]
        );
        let two = said(["no agent has host.name a", "no agent has host.name b"]);
        assert_eq!(two[1], "No packets of the server: no agent has host.name b.");
        assert_ne!(two[0], two[1]);
    }
}
