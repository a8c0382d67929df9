//! From the verdict of a case to the plan of an experiment.

use super::NoExperiment;
use super::judge::Expected;
use super::lever::Lever;
use super::looks::{FIRST, LAST};
use super::plan::Plan;
use super::shapes::{ConnectionRow, PlanReport, ValueRow};
use crate::cases::Cases;
use crate::clocks::Clocks;
use crate::folder::HUNT;
use crate::hosts::server_endpoint;
use crate::now_unix_ms;
use crate::report::CaseReport;
use crate::samples::{self, Sample};
use serde_json::Value;
use spangap_diagnose::hunt::Hunt;
use spangap_fleet::v1::{OrderReport, Stage};
use spangap_model::duration::format_ns;
use spangap_model::{Cause, Leg, PairKey, Side, Taker};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Pairs of halves: enough for an interval at the end even if three are unusable.
const BLOCKS: u32 = LAST.blocks as u32;
/// Maximum length of a block.
const LONGEST_MS: u64 = 30_000;
/// Calls wanted in each half of a block.
const CALLS: u64 = 20;
/// Standard errors of the difference of a block's halves that the predicted effect should have.
const ERRORS: f64 = 3.0;
/// More calls than any block has.
const MANY: f64 = 1e9;
/// Blocks become at most this many times as long for that: ten of them average what is left.
const LONGER: u64 = 2;
/// A call within this time of a change may be affected by either state.
pub const SETTLE_MS: u64 = 250;
/// A call that begins within this time before the end of a block may end after it.
pub const TAIL_MS: u64 = 500;
/// Age of calls that determine the pair's connections.
const RECENT_NS: u64 = 60_000_000_000;
/// Maximum number of reported values of a host.
const MOST_VALUES: usize = 1_000;
/// Timeout of an agent's answer.
pub const ANSWER: Duration = Duration::from_secs(15);

/// The subject of an experiment.
struct Suspect {
    lever: Lever,
    side: String,
    share: f64,
    /// Whether the verdict names it; otherwise it is the one with a lever among the possible causes.
    is_named: bool,
}

/// The culprit of the verdict, if it has a lever. If the verdict states only a place, a cause that could act
/// there: time between the first and the last byte of a small message fits Nagle's algorithm, and the
/// experiment shows whether it was the cause.
fn suspect(cases: &Cases, case: &CaseReport) -> Result<Suspect, NoExperiment> {
    let none = || NoExperiment::NotExplained(case.row.state.name());
    let verdict = case.row.verdict.as_ref().ok_or_else(none)?;
    if let Some(name) = &verdict.culprit {
        let cause = Cause::ALL.into_iter().find(|cause| cause.name() == name).ok_or_else(none)?;
        let lever = match Lever::of(cause).ok_or(NoExperiment::NoLever(cause))? {
            Lever::Isolate { net_cpus, .. } => {
                Lever::Isolate { interfaces: movable(devices(cases, case)), net_cpus }
            }
            lever => lever,
        };
        let side = verdict.side.clone().ok_or(NoExperiment::NoSide)?;
        let share = verdict.share.as_ref().and_then(|share| share["mid"].as_f64()).unwrap_or(1.0);
        return Ok(Suspect { lever, side, share, is_named: true });
    }
    let path = cases.folder.of(&case.row.id).join(HUNT);
    let hunt = tokio::task::block_in_place(|| std::fs::read(path)).ok();
    let hunt: Value = hunt.and_then(|text| serde_json::from_slice(&text).ok()).ok_or_else(none)?;
    let place = &hunt["place"];
    let side = SENDING.iter().find(|(leg, _)| place["hop"].is_null() && place["leg"] == leg.name());
    let (_, side) = side.ok_or_else(none)?;
    let share = place["share"]["mid"].as_f64().unwrap_or(1.0);
    Ok(Suspect { lever: Lever::Nodelay, side: side.name().into(), share, is_named: false })
}

/// The interfaces whose packets used the CPU according to the verdict; empty if it does not state them.
fn devices(cases: &Cases, case: &CaseReport) -> BTreeSet<String> {
    let path = cases.folder.of(&case.row.id).join(HUNT);
    let hunt = tokio::task::block_in_place(|| std::fs::read(path)).ok();
    let hunt: Option<Hunt> = hunt.and_then(|text| serde_json::from_slice(&text).ok());
    let behind = hunt.and_then(|hunt| hunt.culprits.into_iter().next()).map(|first| first.behind);
    let devices = behind.into_iter().flatten().filter_map(|one| match one.taker {
        Taker::Softirq { device, .. } => device,
        _ => None,
    });
    devices.collect()
}

/// Those of these interfaces that the host's agent can name to its kernel. A CPU also handles packets of other network
/// namespaces, such as those of containers; a recording describes their interfaces (`eth0 (network namespace
/// 4026532300)`, `interface 17`), and an agent reaches only those of its own namespace. Names have no spaces.
///
/// With none, the agent looks for those of its own that hand packets to the application's CPUs: what arrives on a
/// container's interface came over one of these.
fn movable(devices: BTreeSet<String>) -> Vec<String> {
    devices.into_iter().filter(|device| !device.contains(' ')).collect()
}

/// Legs in which a message is sent in pieces.
const SENDING: [(Leg, Side); 2] = [(Leg::ClientSend, Side::Client), (Leg::ServerSend, Side::Server)];

/// The plan of an experiment for this case: asks the host what can be changed.
///
/// # Errors
/// Why an experiment is impossible.
pub async fn plan(cases: &Arc<Cases>, case: &CaseReport, asked_by: &str) -> Result<Plan, NoExperiment> {
    let Suspect { lever, side, share, is_named } = suspect(cases, case)?;
    let accepted = side == "server";
    let agent = case.hosts.get(&side).and_then(|host| host.agent.clone());
    let agent = agent.ok_or_else(|| NoExperiment::NoAgent(side.clone()))?;
    let pair = PairKey {
        client: case.row.pair.client.as_str().into(),
        server: case.row.pair.server.as_str().into(),
        method: case.row.method.as_deref().map(Into::into),
    };
    let since_unix_ns = (now_unix_ms() * 1_000_000).saturating_sub(RECENT_NS);
    let recent = samples::of_pair(&cases.meter, &pair, since_unix_ns, case.slow_by);
    let server = server(&recent).ok_or(NoExperiment::NoServer)?;
    let mut plan = Plan {
        report: PlanReport {
            plan: format!("{:016x}", fastrand::u64(..)),
            case: case.row.id.clone(),
            lever: lever.name().into(),
            suspect: lever.suspect().name().into(),
            is_named,
            host_name: cases.agents.host_name(&agent).unwrap_or_default(),
            side,
            agent,
            server: server.to_string(),
            blocks: BLOCKS,
            first_look: FIRST.blocks as u32,
            ..PlanReport::default()
        },
        pair,
        server,
        accepted,
        lever,
        halves: false,
        share,
    };
    let looked = look(cases, &plan, asked_by).await?;
    let why = match plan.lever {
        Lever::Nodelay => choose_connections(&mut plan, &looked, &recent)?,
        Lever::Isolate { .. } => choose_values(&mut plan, looked)?,
    };
    let shortest_ms = cases.settings.experiment_block.as_millis() as u64;
    let seen = Seen::of(cases, &plan.pair, case);
    let exact_ms = seen.ms_for(seen.calls_for(&Expected::of(Some(case), share)), plan.halves);
    let block_ms = seen.ms_for(CALLS, plan.halves).max(exact_ms.min(LONGER * shortest_ms));
    let block_ms = block_ms.clamp(shortest_ms, LONGEST_MS);
    let parts = if plan.halves { 1 } else { 2 };
    let report = &mut plan.report;
    report.design = if plan.halves { "halves" } else { "blocks" }.into();
    report.block_ms = block_ms;
    report.takes_ms = u64::from(BLOCKS) * parts * block_ms;
    report.words = words(report, &why);
    Ok(plan)
}

/// A host-wide change affects all connections.
fn choose_values(plan: &mut Plan, looked: OrderReport) -> Result<String, NoExperiment> {
    let text = |text: &String| text.chars().filter(|c| !c.is_control()).take(200).collect::<String>();
    let report = &mut plan.report;
    report.interfaces = looked.interfaces.iter().map(text).collect();
    report.net_cpus = Some(text(&looked.net_cpus)).filter(|cpus| !cpus.is_empty());
    report.app_cpus = Some(text(&looked.app_cpus)).filter(|cpus| !cpus.is_empty());
    report.values = looked
        .values
        .iter()
        .take(MOST_VALUES)
        .map(|one| ValueRow { place: text(&one.place), from: text(&one.from), to: text(&one.to) })
        .collect();
    if report.interfaces.is_empty() || report.values.is_empty() || report.net_cpus.is_none() {
        return Err(NoExperiment::Refused("it names nothing that it would change".into()));
    }
    plan.lever = Lever::Isolate { interfaces: looked.interfaces, net_cpus: looked.net_cpus };
    Ok("a setting of the host affects all connections".into())
}

/// Selects the connections to change, and explains why not halves of them, if so.
fn choose_connections(
    plan: &mut Plan,
    looked: &OrderReport,
    recent: &[Sample],
) -> Result<String, NoExperiment> {
    let server = plan.server;
    let found = connections(looked);
    let ports: BTreeSet<u64> = recent.iter().filter_map(Sample::client_port).collect();
    let of_pair = |one: &ConnectionRow| plan.port_of(one).is_some_and(|port| ports.contains(&port));
    let theirs: Vec<ConnectionRow> = found.iter().filter(|one| of_pair(one)).cloned().collect();
    // Most calls must state which of the connections they used.
    let known: BTreeSet<u64> = theirs.iter().filter_map(|one| plan.port_of(one)).collect();
    let told =
        recent.iter().filter(|one| one.client_port().is_some_and(|port| known.contains(&port))).count();
    plan.halves = theirs.len() >= 2 && 2 * told >= recent.len();
    let (connections, why) = match (plan.halves, found.len(), theirs.len()) {
        (true, ..) => (theirs, String::new()),
        (false, 0, _) => {
            return Err(NoExperiment::NothingToChange {
                server,
                already: looked.already,
                not_readable: looked.not_readable,
                because: looked.not_readable_because.clone(),
            });
        }
        (false, 1, _) => (found, "as there is only one connection".to_owned()),
        (false, _, 1) if 2 * told >= recent.len() => (theirs, "as only one of them carries calls".to_owned()),
        (false, ..) => (found, "as spans do not say which connection carried a call".to_owned()),
    };
    let report = &mut plan.report;
    report.connections = connections;
    (report.already, report.not_readable) = (looked.already, looked.not_readable);
    Ok(why)
}

/// The server address that most calls state.
fn server(recent: &[Sample]) -> Option<SocketAddr> {
    let mut ends: BTreeMap<(IpAddr, u16), usize> = BTreeMap::new();
    for (_, span) in recent.iter().filter_map(|sample| sample.sides[0].whole.as_ref()) {
        if let Some((address, port)) = server_endpoint(span) {
            *ends.entry((address.to_canonical(), port)).or_default() += 1;
        }
    }
    ends.into_iter().max_by_key(|(_, calls)| *calls).map(|(end, _)| end.into())
}

/// Calls of a pair over a while.
#[derive(Default)]
struct Seen {
    calls: u64,
    ms: u64,
    /// Client durations of some of them, drawn whatever these are, since the pair is slow.
    took_ns: Vec<u64>,
}

impl Seen {
    fn of(cases: &Cases, pair: &PairKey, case: &CaseReport) -> Seen {
        let drawn = cases.meter.samples(|key| key == pair).into_iter().flat_map(|(_, drawn)| drawn);
        let (mut seen, mut drawn_calls) = (Seen::default(), Vec::new());
        for stretch in drawn {
            seen.calls += stretch.calls;
            drawn_calls.extend(stretch.by_call);
        }
        let began = || drawn_calls.iter().map(|call| call.client.start_unix_ns);
        let (first_ns, last_ns) = (began().min().unwrap_or(0), began().max().unwrap_or(0));
        seen.ms = (last_ns - first_ns) / 1_000_000;
        let since_ms = case.before.as_ref().map_or(case.row.opened_unix_ms, |slow| slow.from_unix_ms);
        let clocks = Clocks::of(&drawn_calls, now_unix_ms() * 1_000_000);
        let slow = drawn_calls.iter().filter(|call| clocks.began_since(call, since_ms * 1_000_000));
        seen.took_ns = slow.map(|call| call.client.duration_ns).collect();
        seen
    }

    /// How long a block must be for so many calls in each half.
    fn ms_for(&self, calls: u64, halves: bool) -> u64 {
        let wanted = if halves { 2 * calls } else { calls };
        (wanted * self.ms).checked_div(self.calls).map_or(LONGEST_MS, |ms| ms + SETTLE_MS + TAIL_MS)
    }

    /// Calls in each half that tell the predicted effect from the noise of one block: few if all calls are slow alike, many if some are.
    fn calls_for(&self, expected: &Expected) -> u64 {
        let number = self.took_ns.len().max(1) as f64;
        let mean = self.took_ns.iter().map(|ns| *ns as f64).sum::<f64>() / number;
        let variance = self.took_ns.iter().map(|ns| (*ns as f64 - mean).powi(2)).sum::<f64>() / number;
        let reduction = expected.reduction_ns(mean, &self.took_ns);
        match reduction > 0.0 {
            // The difference of two means of n calls has the variance 2 * variance / n.
            true => (2.0 * variance * (ERRORS / reduction).powi(2)).min(MANY).ceil() as u64,
            false => MANY as u64,
        }
    }
}

fn words(report: &PlanReport, why: &str) -> String {
    let number = report.connections.len();
    let processes: BTreeSet<String> =
        report.connections.iter().map(|one| format!("{} ({})", one.comm, one.pid)).collect();
    let processes: Vec<String> = processes.into_iter().collect();
    let of = processes.join(", ");
    let block = format_ns(report.block_ms * 1_000_000);
    let connections = if number == 1 { "connection".to_owned() } else { format!("{number} connections") };
    let whose = format!("{connections} of {of} with {} on {}", report.server, report.host_name);
    let how = match report.design.as_str() {
        _ if !report.values.is_empty() => format!(
            "Packets of {} are handled on CPU {} of {} instead of CPU {}, where the {}'s program runs ({}), for \
             {block} at a time, up to {} times, with an equal time without it before or after, decided by a coin \
             toss ({why})",
            report.interfaces.join(", "),
            report.net_cpus.as_deref().unwrap_or("?"),
            report.host_name,
            report.app_cpus.as_deref().unwrap_or("?"),
            report.side,
            changes(&report.values),
            report.blocks
        ),
        "halves" => format!(
            "TCP_NODELAY is set on a random half of the {whose}, for {block} at a time, up to {} times, \
             drawn anew each time",
            report.blocks
        ),
        _ => format!(
            "TCP_NODELAY is set on the {whose}, for {block} at a time, up to {} times, with an equal time without \
             it before or after, decided by a coin toss ({why})",
            report.blocks
        ),
    };
    let about = match report.is_named {
        true => String::new(),
        false => format!(
            "The verdict names no culprit. Of the causes that fit its place, spangap can remedy {} for a while, and \
             that shows whether it is the one. ",
            report.suspect
        ),
    };
    format!(
        "{about}{how}. It ends after {} times, once their spans are there, if the effect is clear by then, and takes \
         about {} otherwise; each change is undone when it ends, by a separate process if need be.",
        report.first_look,
        format_ns(report.takes_ms * 1_000_000)
    )
}

/// Some of the values, in words.
fn changes(values: &[ValueRow]) -> String {
    let some: Vec<String> = values
        .iter()
        .take(3)
        .map(|one| format!("{}: {} to {}", one.place, one.from.trim(), one.to))
        .collect();
    match values.len().saturating_sub(some.len()) {
        0 => some.join("; "),
        more => format!("{}; and {more} more", some.join("; ")),
    }
}

/// Asks the host what can be changed.
///
/// # Errors
/// When the agent does not answer, or refuses.
pub async fn look(cases: &Arc<Cases>, plan: &Plan, asked_by: &str) -> Result<OrderReport, NoExperiment> {
    let order = plan.order(asked_by, plan.lever.look());
    let mut ordered = cases.agents.order(&plan.report.agent, order, now_unix_ms())?;
    let answer = tokio::time::timeout(ANSWER, ordered.reports.recv()).await;
    let report = answer.ok().flatten().ok_or(NoExperiment::NoAnswer)?;
    match report.stage() {
        Stage::Looked => Ok(report),
        _ => Err(NoExperiment::Refused(report.error.chars().take(300).collect())),
    }
}

/// Connections in a report, in a stable order.
pub fn connections(report: &OrderReport) -> Vec<ConnectionRow> {
    let row = |socket: &spangap_fleet::v1::Socket| {
        let connection = socket.connection.clone()?;
        let (local, peer) = (connection.local.parse::<SocketAddr>(), connection.peer.parse::<SocketAddr>());
        Some(ConnectionRow {
            local: local.ok()?.to_string(),
            peer: peer.ok()?.to_string(),
            pid: socket.pid,
            comm: socket.comm.chars().filter(|c| !c.is_control()).take(32).collect(),
        })
    };
    let rows: BTreeSet<ConnectionRow> = report.sockets.iter().filter_map(row).collect();
    rows.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_interfaces_of_the_agents_own_network_namespace_are_ordered() {
        let of = |devices: &[&str]| movable(devices.iter().map(|device| (*device).to_owned()).collect());
        let foreign = "eth0 (network namespace 4026532300)";
        assert_eq!(of(&[foreign, "eth1", "interface 17"]), ["eth1"]);
        // The agent is then asked for those that deliver packets to the application's CPUs.
        assert_eq!((of(&[foreign]), of(&[])), (Vec::new(), Vec::new()));
    }

    #[test]
    fn blocks_are_short_if_the_effect_is_large_and_longer_if_few_calls_are_slow() {
        let expected = |share| Expected { usual_ns: Some(1e6), slow_ns: None, excess_ns: 40e6, share };
        let seen = |took_ns: Vec<u64>| Seen { calls: 6_000, ms: 60_000, took_ns };
        let alike = seen((0..200).map(|n| 40_000_000 + n % 7 * 300_000).collect());
        assert!(alike.calls_for(&expected(1.0)) < CALLS, "{}", alike.calls_for(&expected(1.0)));
        let some = seen((0..200).map(|n| if n % 20 == 0 { 41_000_000 } else { 1_000_000 }).collect());
        let wanted = some.calls_for(&expected(1.0));
        // 5 % of calls, each slow by 40 ms: their standard deviation is 8.7 ms, the effect 2 ms.
        assert!((330..360).contains(&wanted), "{wanted}");
        assert_eq!((some.ms_for(CALLS, true), some.ms_for(wanted, false)), (1_150, 10 * wanted + 750));
        // Nothing to see: as long as allowed.
        assert!(seen(Vec::new()).ms_for(seen(Vec::new()).calls_for(&expected(1.0)), true) > LONGEST_MS);
        assert_eq!(Seen::default().ms_for(CALLS, true), LONGEST_MS);
    }
}
