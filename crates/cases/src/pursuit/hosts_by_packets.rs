//! Hosts that spans do not name: the remaining agents are asked for a moment of packets, and the host is the
//! one whose own address is an end of these calls. This works behind address translation, and for SDKs that
//! name nothing.

use crate::cases::Cases;
use crate::hosts::is_hearsay;
use crate::now_unix_ms;
use crate::report::HostRow;
use crate::samples::Sample;
use crate::slices::fetch;
use spangap_fleet::slice::CAPTURE;
use spangap_fleet::v1::Ask;
use spangap_gather::ends::{Ends, ends_of};
use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Maximum number of agents asked. More are a fleet, whose spans name their hosts, or whose hosts cannot be
/// identified by asking all.
const MOST_ASKED: usize = 3;
/// Maximum time range of each, the most recent, nanoseconds.
const LONGEST_NS: i64 = 3_000_000_000;
/// Maximum time to read the packets of one agent.
const READING: Duration = Duration::from_secs(10);

/// For each side without an agent, or possibly with a proxy's, finds the agent whose packets show it as an
/// end of these calls. `windows` are the time ranges of the calls by the clock of either side.
pub(super) async fn find_missing(
    cases: &Arc<Cases>,
    id: &str,
    samples: &[Sample],
    hosts: &mut [HostRow; 2],
    windows: &[(i64, i64); 2],
) {
    let is_one = hosts[0].agent == hosts[1].agent;
    let is_doubtful = |side: usize| {
        let sees_itself = is_one || hosts[1 - side].agent.is_none();
        hosts[side].agent.is_none() || is_hearsay(&hosts[side]) && sees_itself
    };
    let doubtful = [0, 1].map(is_doubtful);
    let Some(missing) = [1, 0].into_iter().find(|side| doubtful[*side]) else { return };
    let chosen: HashSet<&str> = hosts.iter().filter_map(|host| host.agent.as_deref()).collect();
    let places = cases.agents.places(now_unix_ms());
    let left: Vec<_> = places.iter().filter(|place| !chosen.contains(&place.id[..])).collect();
    if samples.is_empty() || left.is_empty() || left.len() > MOST_ASKED {
        return;
    }
    if !cases.may_ask(left.len()) {
        let more = "; the others were not asked, because this minute's limit of requests was reached";
        hosts.iter_mut().filter_map(|host| host.why_not.as_mut()).for_each(|why| why.push_str(more));
        return;
    }
    cases.note(id, format!("spans do not name all hosts: {} more asked for their packets", left.len()));
    let traces: Arc<HashSet<[u8; 16]>> = Arc::new(samples.iter().filter_map(Sample::trace_id).collect());
    let (_, to_unix_ns) = windows[missing];
    let asked = left.iter().enumerate().map(|(number, place)| {
        let ask = Ask {
            from_unix_ns: windows[missing].0.max(to_unix_ns - LONGEST_NS),
            to_unix_ns,
            max_bytes: cases.settings.slice_bytes,
            reason: format!("case {id}: do its calls pass here?"),
            ..Ask::default()
        };
        let (cases, id, agent, traces) = (cases.clone(), id.to_owned(), place.id.clone(), traces.clone());
        tokio::spawn(
            async move { ends_at(&cases, &id, &format!("asked-{number}"), &agent, ask, traces).await },
        )
    });
    let asked: Vec<_> = asked.collect();
    let mut found: [Vec<(u64, u64, &str)>; 2] = Default::default();
    for (place, asked) in left.iter().zip(asked) {
        let Ok(Some(ends)) = asked.await else { continue };
        let own = |side: usize| -> u64 {
            let is_own = |address: &IpAddr| {
                place
                    .addresses
                    .iter()
                    .any(|one| one.parse().is_ok_and(|one: IpAddr| one.to_canonical() == *address))
            };
            ends[side].iter().filter(|(address, _)| is_own(address)).map(|(_, calls)| calls).sum()
        };
        for side in [0, 1] {
            if own(side) > 0 {
                // A host that is also the other end of these calls forwards them: it is a proxy, and not an
                // end if there is another candidate.
                found[side].push((own(1 - side), own(side), &place.id));
            }
        }
    }
    for (side, found) in found.into_iter().enumerate() {
        if !doubtful[side] {
            continue;
        }
        let is_none = hosts[side].agent.is_none();
        let best =
            found.into_iter().min_by_key(|(passed_on, calls, _)| (*passed_on, std::cmp::Reverse(*calls)));
        match best {
            // The spans' statement is better than a host that forwards calls.
            Some((passed_on, ..)) if !is_none && passed_on > 0 => {}
            Some((_, calls, agent)) => {
                let rule = format!("its packets have {calls} of these calls");
                hosts[side] = HostRow { agent: Some(agent.into()), rule: Some(rule), ..HostRow::default() };
            }
            None if is_none => {
                let more = "; no other agent's packets show that these calls end there";
                hosts[side].why_not.get_or_insert_default().push_str(more);
            }
            None => {}
        }
    }
}

/// The addresses between which these calls pass a host, from a temporary slice of its packets.
async fn ends_at(
    cases: &Arc<Cases>,
    id: &str,
    name: &str,
    agent: &str,
    ask: Ask,
    traces: Arc<HashSet<[u8; 16]>>,
) -> Option<Ends> {
    let came = fetch(&cases.agents, &cases.folder, id, name, agent, ask, cases.settings.slice_time).await;
    let path = cases.folder.of(id).join(crate::slices::name(CAPTURE, name));
    let stop = Arc::new(AtomicBool::new(false));
    let ends = match came {
        Ok(_) => {
            let stopped = stop.clone();
            let reading = tokio::task::spawn_blocking(move || ends_of(&path, &traces, &stopped));
            tokio::time::timeout(READING, reading).await
        }
        Err(error) => {
            cases.note(id, format!("no packets of {agent}: {error}"));
            Ok(Ok(Ok(Ends::default())))
        }
    };
    stop.store(true, Relaxed);
    cases.folder.discard(id, name);
    ends.ok()?.ok()?.ok()
}
