//! Calls through proxies: their JSON shapes, and the words of the table.

use super::build::call_report;
use super::records;
use super::words::{leg_words, leg_words_from};
use super::{CallReport, DissectReport};
use crate::call::Call;
use crate::dissect::Dissection;
use crate::hops::{HopTotals, LinkedBy, PathLeg, Stage};
use serde::Serialize;
use spangap_model::duration::format_ns;
use spangap_model::evidence::{Finding, LegRecord};
use spangap_report::figures::{bounded, counted, percent_of};
use spangap_report::table::aligned;
use std::collections::BTreeMap;

/// Maximum calls whose hops are shown; the JSON has all of them.
const CALLS: usize = 3;

/// A call by which a proxy forwarded another one.
#[derive(Clone, Debug, Default, Serialize)]
pub struct HopReport {
    /// Number of proxies before it.
    pub hop: u8,
    /// Number of the attempt, from 1; absent if there is only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u8>,
    /// `trace-context`, `request-id`, `trace-id`, `content`.
    pub linked_by: &'static str,
    /// Id of the proxy's own CLIENT span, 16 hex digits; the caller's if the proxy forwards that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub span_id: Option<String>,
    /// The proxy's address and port.
    pub client: Option<String>,
    /// Address and port of the next host.
    pub server: Option<String>,
    /// Number of the connection in `connections`.
    pub connection: Option<u32>,
    /// HTTP/2 stream, else the number of the exchange on its connection.
    pub stream_id: u32,
    /// `:path`, or method and target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// gRPC status, else class of the HTTP status.
    pub status: Option<&'static str>,
    /// See [`CallReport::ended`].
    pub ended: &'static str,
    /// Captures that contain it: number of the one at the proxy, then at the next host.
    pub seen_in: [Option<u8>; 2],
    /// Start, Unix nanoseconds by the clock of the first end that knows it.
    pub start_unix_ns: i64,
    /// First event to last, nanoseconds.
    pub duration_ns: u64,
    /// Legs in order; they sum to `duration_ns` exactly.
    pub legs: Vec<LegRecord>,
}

/// One leg of a call across all its hops.
#[derive(Clone, Debug, Serialize)]
pub struct PathLegReport {
    /// Number of proxies before it; a proxy's own time has the number of the hop that leads to it.
    pub hop: u8,
    /// Number of the attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u8>,
    /// The name of a leg as in `legs`; or `proxy_request`, `proxy_retry`, `proxy_response`, with the prefix
    /// `request_wire+` or the suffix `+response_wire` if the proxy's own capture of that is missing.
    #[serde(serialize_with = "super::as_text")]
    pub leg: Stage,
    /// Nanoseconds; negative if two activities overlap.
    pub ns: i64,
    /// Uncertainty in either direction.
    pub bound_ns: u64,
}

/// Calls followed through proxies, and unlinked calls.
#[derive(Clone, Debug, Serialize)]
pub struct HopTotalsReport {
    /// Calls that were followed through at least one proxy.
    pub calls: u64,
    /// Sum of their durations, nanoseconds.
    pub total_ns: u64,
    /// Links from one hop to the next, by proof.
    pub linked_by: BTreeMap<&'static str, u64>,
    /// Unlinked calls.
    pub unlinked: UnlinkedReport,
    /// Time by leg across all hops, in order; they sum to `total_ns`.
    pub legs: Vec<PathSumReport>,
}

/// Calls without a link that may be hops or may have hops.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct UnlinkedReport {
    /// Calls that may be the hop of more than one other.
    pub ambiguous: u64,
    /// Calls to a proxy without a known inner call.
    pub to_proxy: u64,
    /// Calls by a proxy without a known outer call.
    pub from_proxy: u64,
}

/// One leg across all hops, summed.
#[derive(Clone, Debug, Serialize)]
pub struct PathSumReport {
    /// See [`PathLegReport::hop`].
    pub hop: u8,
    /// See [`PathLegReport::leg`].
    #[serde(serialize_with = "super::as_text")]
    pub leg: Stage,
    /// Nanoseconds.
    pub total_ns: i64,
    /// Uncertainty of the sum in either direction.
    pub bound_ns: u64,
}

pub(super) fn totals_report(totals: &HopTotals) -> HopTotalsReport {
    HopTotalsReport {
        calls: totals.calls,
        total_ns: u64::try_from(totals.total_ns).unwrap_or(u64::MAX),
        linked_by: LinkedBy::ALL
            .into_iter()
            .map(LinkedBy::name)
            .zip(totals.links)
            .filter(|(_, n)| *n > 0)
            .collect(),
        unlinked: UnlinkedReport {
            ambiguous: totals.ambiguous,
            to_proxy: totals.unknown_outer,
            from_proxy: totals.unknown_inner,
        },
        legs: totals
            .legs
            .iter()
            .map(|leg| PathSumReport {
                hop: leg.hop,
                leg: leg.stage,
                total_ns: leg.sum.total_ns,
                bound_ns: leg.sum.bound_ns,
            })
            .collect(),
    }
}

pub(super) fn path_report(leg: &PathLeg) -> PathLegReport {
    let attempt = (leg.attempt > 0).then_some(leg.attempt);
    PathLegReport { hop: leg.hop, attempt, leg: leg.stage, ns: leg.ns, bound_ns: leg.bound_ns }
}

/// All hops of a call, each before its own hops, and their findings.
pub(super) fn hops_of(call: &Call, dissection: &Dissection) -> (Vec<HopReport>, Vec<Finding>) {
    let (mut hops, mut findings) = (Vec::new(), Vec::new());
    add(call, 1, dissection, &mut hops, &mut findings);
    (hops, findings)
}

fn add(
    call: &Call,
    number: u8,
    dissection: &Dissection,
    hops: &mut Vec<HopReport>,
    findings: &mut Vec<Finding>,
) {
    let several = call.hops.len() > 1;
    for (nth, hop) in (1..).zip(&call.hops) {
        let call = call_report(&hop.call, dissection);
        hops.push(HopReport {
            hop: number,
            attempt: several.then_some(nth),
            linked_by: hop.by.name(),
            span_id: call.span_id,
            client: call.client,
            server: call.server,
            connection: call.connection,
            stream_id: call.stream_id,
            method: call.method,
            status: call.status,
            ended: call.ended,
            seen_in: call.seen_in,
            start_unix_ns: call.start_unix_ns,
            duration_ns: call.duration_ns,
            legs: call.legs,
        });
        let own = records::findings(&hop.call, dissection).into_iter();
        findings.extend(own.map(|finding| Finding { hop: Some(number), ..finding }));
        add(&hop.call, number.saturating_add(1), dissection, hops, findings);
    }
}

/// The name of a leg in words. The hosts of a hop are named by their overall role: a proxy's client side is the
/// proxy.
pub(super) fn stage_words(hop: u8, stage: Stage) -> String {
    let proxy = if hop == 0 { "proxy".to_owned() } else { format!("proxy {}", hop + 1) };
    match stage {
        Stage::Call(legs) if hop == 0 => leg_words(legs),
        Stage::Call(legs) => {
            let before = if hop == 1 { "proxy".to_owned() } else { format!("proxy {hop}") };
            format!("{} (hop {hop})", leg_words_from(&before, legs))
        }
        Stage::ProxyRequest { with_wire: false } => format!("{proxy}: request, until it is passed on"),
        Stage::ProxyRequest { with_wire: true } => {
            format!("network and {proxy}: request, until it is passed on")
        }
        Stage::ProxyRetry => format!("{proxy}: from an attempt to the next"),
        Stage::ProxyResponse { with_wire: false } => format!("{proxy}: response, until it is passed on"),
        Stage::ProxyResponse { with_wire: true } => format!("{proxy} and network: response"),
    }
}

impl CallReport {
    /// The longest leg across all hops.
    pub(super) fn largest_on_path(&self) -> Option<&PathLegReport> {
        self.path.iter().max_by_key(|leg| leg.ns)
    }
}

/// The path of a call in writing: `10.0.0.1:4711 -> 10.0.0.2:80 -> 10.0.1.3:8080`.
pub(super) fn way(call: &CallReport) -> String {
    let name = |end: &Option<String>| end.clone().unwrap_or_else(|| "?".into());
    let mut text = format!("{} -> {}", name(&call.client), name(&call.server));
    for hop in &call.hops {
        let again = if hop.attempt.is_some_and(|attempt| attempt > 1) { ", then" } else { " ->" };
        text += &format!("{again} {}", name(&hop.server));
    }
    text
}

/// The hops of the listed calls, and the time of all calls across hops.
pub(super) fn section(report: &DissectReport) -> String {
    let mut text = String::new();
    for call in report.calls.iter().filter(|call| !call.path.is_empty()).take(CALLS) {
        let by = call.hops.first().map_or("", |hop| hop.linked_by);
        let what = call.method.clone().unwrap_or_else(|| call.protocol.into());
        text += &format!("\n{what}, {}, over its hops (linked by {by})\n", format_ns(call.duration_ns));
        text += &format!("  {}\n", way(call));
        let rows: Vec<[String; 3]> = call
            .path
            .iter()
            .zip(rows(call))
            .map(|(leg, [words, time, share])| [indented(leg.hop, &words), time, share])
            .collect();
        text += &aligned(&rows, |column| column == 0);
    }
    let Some(hops) = report.hops.as_ref().filter(|hops| hops.calls > 0) else { return text };
    text += &format!(
        "\nWhere the time of {} through proxies went: {} together\n",
        counted(hops.calls, "call"),
        format_ns(hops.total_ns)
    );
    let rows: Vec<[String; 3]> = hops
        .legs
        .iter()
        .map(|leg| {
            [
                indented(leg.hop, &stage_words(leg.hop, leg.leg)),
                bounded(leg.total_ns, leg.bound_ns),
                percent_of(leg.total_ns, hops.total_ns),
            ]
        })
        .collect();
    text += &aligned(&rows, |column| column == 0);
    let ways: Vec<String> =
        hops.linked_by.iter().map(|(by, links)| format!("{} by {by}", counted(*links, "link"))).collect();
    let unlinked = hops.unlinked;
    text += &format!(
        "  {}; not linked: {} ambiguous, {} to a proxy, {} of a proxy\n",
        ways.join(", "),
        unlinked.ambiguous,
        unlinked.to_proxy,
        unlinked.from_proxy
    );
    text
}

/// Indents each hop below the one that leads to it.
fn indented(hop: u8, words: &str) -> String {
    format!("{}{words}", "  ".repeat(usize::from(hop) + 1))
}

/// The legs of a call across its hops: name, duration, and share of the call.
pub(super) fn rows(call: &CallReport) -> impl Iterator<Item = [String; 3]> {
    call.path.iter().map(|leg| {
        let attempt = leg.attempt.map_or(String::new(), |attempt| format!(", attempt {attempt}"));
        [
            stage_words(leg.hop, leg.leg) + &attempt,
            bounded(leg.ns, leg.bound_ns),
            percent_of(leg.ns, call.duration_ns),
        ]
    })
}
