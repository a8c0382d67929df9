//! Content of a report's page: every sentence and figure in words, and the calls to draw. The page itself, which
//! lays this out, is built from `web/src/report/`; a document of this shape is embedded in it.

use super::crossing::crossings;
use super::ladder_text::{between, by_shape, finding_title, particulars, route, times_explained, title};
use super::outcome;
use super::table::{calls_title, clock_line, first_finding, head, largest, method};
use super::words::{at_side, leg_words, part_words};
use super::{CallReport, Conclusion, ConnectionReport, DissectReport, SumsReport};
use serde::Serialize;
use spangap_model::Cause;
use spangap_model::duration::format_ns;
use spangap_model::evidence::{Finding, Missing, PacketRecord};
use spangap_report::figures::{bounded, counted, percent_of};
use spangap_report::page::TablePage;
use spangap_report::times::{date, date_and_second, time_of_day};

/// Maximum rows of a table; a page is not an archive.
const ROWS: usize = 50;
/// Maximum packets drawn per call.
const PACKETS: usize = 150;
/// Maximum notes per connection.
const NOTES: usize = 5;
/// A pause between packets is reported if it takes one part in this many of the call.
const PAUSE_SHARE: u64 = 10;

/// The page.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DissectPage {
    /// Title of the document.
    pub title: String,
    /// When the captures began, and how long they last; empty if they have no packets.
    pub kicker: String,
    /// The first conclusion's first sentence.
    pub headline: String,
    /// The rest of it, with code in backticks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lead: Option<String>,
    /// The other conclusions.
    pub also: Vec<AlsoPage>,
    /// Calls in full detail.
    pub calls: Vec<CallPage>,
    /// All listed calls, one row each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<TablePage>,
    /// Time of all calls, by client and server.
    pub sums: Vec<SumsPage>,
    /// Connections, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<TablePage>,
    /// Statements about single connections.
    pub notes: Vec<String>,
    /// What was read, and the limits of these figures.
    pub limits: Vec<String>,
    /// The command that produced it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

/// A further conclusion.
#[derive(Clone, Debug, Serialize)]
pub struct AlsoPage {
    /// In words, with code in backticks.
    pub words: String,
    /// Whether it names no cause.
    pub is_quiet: bool,
}

/// One call in full detail.
#[derive(Clone, Debug, Serialize)]
pub struct CallPage {
    /// Method, duration, status.
    pub title: String,
    /// Time, connection, sizes.
    pub facts: String,
    /// Facts recognised by shape.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by_shape: Option<String>,
    /// Its legs, in order.
    pub legs: Vec<LegPage>,
    /// The path through proxies, and the legs on it: words, time, share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hops: Option<HopsPage>,
    /// Activity of the hosts in legs that were recorded.
    pub hosts: Vec<HostPage>,
    /// How the times of both taps were aligned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub times: Option<String>,
    /// Pauses between packets: the index of the ladder's next packet, and the text.
    pub pauses: Vec<(usize, String)>,
    /// Causes of delay.
    pub findings: Vec<FindingPage>,
    /// Reasons for doubt.
    pub doubts: Vec<String>,
    /// The call itself, for drawing.
    pub report: CallReport,
}

/// A leg of a call.
#[derive(Clone, Debug, Serialize)]
pub struct LegPage {
    /// Name in words.
    pub words: String,
    /// Time with its bound.
    pub time: String,
    /// Share of the call.
    pub share: String,
}

/// The path of a call through proxies.
#[derive(Clone, Debug, Serialize)]
pub struct HopsPage {
    /// The hosts in the order in which a call passes them.
    pub way: String,
    /// Words, time, share of each leg.
    pub rows: Vec<[String; 3]>,
}

/// Activity of a host in a leg.
#[derive(Clone, Debug, Serialize)]
pub struct HostPage {
    /// The leg, and the threads' owners.
    pub title: String,
    /// Their activities, the longest first.
    pub parts: Vec<String>,
}

/// A finding in words.
#[derive(Clone, Debug, Serialize)]
pub struct FindingPage {
    /// Cause, side, cost.
    pub title: String,
    /// Whether it is shown, rather than only possible.
    pub is_shown: bool,
    /// The evidence that would be required to show it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// Additional information.
    pub note: String,
    /// File, packet, time, proof.
    pub evidence: Vec<[String; 4]>,
}

/// Sums over calls of one client and server.
#[derive(Clone, Debug, Serialize)]
pub struct SumsPage {
    /// Client, server, connections.
    pub title: String,
    /// Calls, quantiles, total time.
    pub facts: String,
    /// Time by leg.
    pub legs: Vec<LegSumPage>,
    /// Time by cause: cause, cost, share, calls.
    pub causes: Vec<[String; 4]>,
}

/// Time of a leg, summed over calls.
#[derive(Clone, Debug, Serialize)]
pub struct LegSumPage {
    /// Its name in the JSON, which determines its colour.
    pub leg: String,
    /// Name in words.
    pub words: String,
    /// Time with its bound.
    pub time: String,
    /// Share of all time, in words.
    pub percent: String,
    /// The same as a number from 0 to 1.
    pub share: f64,
}

impl DissectPage {
    /// The page of a report.
    pub fn new(report: &DissectReport) -> DissectPage {
        let mut conclusions = report.conclusions.iter();
        let found = calls_title(report);
        let (headline, lead) = match conclusions.next() {
            Some(first) => {
                let (sentence, rest) = first.seen.split_once(". ").unwrap_or((&first.seen, ""));
                let rest = Conclusion { seen: rest.to_owned(), ..first.clone() };
                (sentence.trim_end_matches('.').to_owned(), Some(rest.text()))
            }
            None => (found.trim_end_matches('.').to_owned(), None),
        };
        let also = |one: &Conclusion| AlsoPage { words: one.text(), is_quiet: one.cause == Cause::None };
        let shown = |(_, call): &(usize, &CallReport)| call.ladder.is_some();
        let in_full = |(place, call)| CallPage::new(report, call, place);
        let mut calls: Vec<CallPage> = report.calls.iter().enumerate().filter(shown).map(in_full).collect();
        if calls.is_empty() {
            calls.extend(report.calls.first().map(|call| CallPage::new(report, call, 0)));
        }
        let has_sums = report.totals.calls > 0;
        let pairs = report.pairs.iter().take(ROWS).filter(|_| has_sums);
        let notes = |connection: &ConnectionReport| {
            let number = connection.connection;
            let note = |note: &String| format!("Connection {number}: {}.", note.trim_end_matches('.'));
            connection.notes.iter().take(NOTES).map(note).collect::<Vec<String>>()
        };
        let title = report.conclusions.first().map_or(found, |first| first.seen.clone());
        DissectPage {
            title,
            kicker: when(report),
            headline,
            lead,
            also: conclusions.map(also).collect(),
            calls,
            table: (report.calls.len() > 1).then(|| calls_table(report)),
            sums: pairs
                .map(|pair| SumsPage::new(&pair.client, &pair.server, pair.connections, &pair.sums))
                .collect(),
            connections: (has_sums && report.connections.len() > 1).then(|| connections_table(report)),
            notes: report.connections.iter().take(ROWS).filter(|_| has_sums).flat_map(notes).collect(),
            limits: limits(report),
            command: report.command.clone(),
        }
    }
}

/// `2026-02-28 12:00:00 UTC, 9.00 s`
fn when(report: &DissectReport) -> String {
    let first = report.captures.iter().filter_map(|capture| capture.first_unix_ns).min();
    let last = report.captures.iter().filter_map(|capture| capture.last_unix_ns).max();
    let (Some(first), Some(last)) = (first, last) else { return String::new() };
    format!("{} UTC, {}", date_and_second(first), format_ns((last - first).unsigned_abs()))
}

impl CallPage {
    fn new(report: &DissectReport, call: &CallReport, place: usize) -> CallPage {
        let which = match (place, report.selection.trace_ids.is_empty(), report.calls.len()) {
            (0, true, 2..) => "The slowest call: ",
            _ => "",
        };
        let start = format!("{} {} UTC", date(call.start_unix_ns), time_of_day(call.start_unix_ns));
        let hosts = call.legs.iter().filter_map(|leg| {
            let host = leg.host.as_ref()?;
            let (words, time) = (leg_words(leg.legs), bounded(leg.ns, leg.bound_ns));
            let parts = host.parts.iter().map(|part| {
                let share = percent_of(part.ns, leg.ns.unsigned_abs());
                format!("{} ({share}) {}", format_ns(part.ns), part_words(part))
            });
            Some(HostPage {
                title: format!("{words}, {time}: {}", host.threads.join(", ")),
                parts: parts.collect(),
            })
        });
        let mut drawn = call.clone();
        if let Some(ladder) = &mut drawn.ladder {
            let cut = ladder.packets.len().saturating_sub(PACKETS);
            ladder.packets.truncate(PACKETS);
            ladder.left_out += cut as u64;
            ladder.crossings = crossings(ladder);
        }
        let ladder = drawn.ladder.as_ref().filter(|ladder| !ladder.packets.is_empty());
        let pauses = ladder.map_or(Vec::new(), |ladder| {
            let pairs = ladder.packets.windows(2).enumerate();
            let pause = |(at, pair): (usize, &[super::RungReport])| {
                let ns = pair[1].since_start_ns - pair[0].since_start_ns;
                let is_long = ns > 0 && ns as u64 >= call.duration_ns / PAUSE_SHARE;
                Some((at + 1, between(is_long.then_some(ns), pair[1].left_out_before)?))
            };
            pairs.filter_map(pause).collect()
        });
        CallPage {
            title: format!("{which}{}", title(call)),
            facts: format!("{start} · {} · {}", route(call), particulars(call)),
            by_shape: by_shape(call),
            legs: call
                .legs
                .iter()
                .map(|leg| LegPage {
                    words: leg_words(leg.legs),
                    time: bounded(leg.ns, leg.bound_ns),
                    share: percent_of(leg.ns, call.duration_ns),
                })
                .collect(),
            hops: (!call.path.is_empty())
                .then(|| HopsPage { way: super::hops::way(call), rows: super::hops::rows(call).collect() }),
            hosts: hosts.collect(),
            times: ladder.map(times_explained),
            pauses,
            findings: call.findings.iter().map(|finding| FindingPage::new(finding, report)).collect(),
            doubts: call.doubts.iter().map(|doubt| format!("Doubtful: {doubt}.")).collect(),
            report: drawn,
        }
    }
}

impl FindingPage {
    fn new(finding: &Finding, report: &DissectReport) -> FindingPage {
        let file = |capture: u8| {
            report.captures.get(usize::from(capture)).map_or(String::new(), |capture| capture.file.clone())
        };
        let row = |packet: &PacketRecord| {
            let time = time_of_day(packet.time_unix_ns);
            [file(packet.capture), format!("#{}", packet.packet), time, packet.what.clone()]
        };
        let missing = finding.certainty.missing().map(Missing::words);
        FindingPage {
            title: finding_title(finding),
            is_shown: finding.is_shown(),
            missing: missing.map(|missing| format!("Not known: {missing}.")),
            note: finding.note.clone(),
            evidence: finding.packets().map(row).collect(),
        }
    }
}

fn calls_table(report: &DissectReport) -> TablePage {
    let row = |call: &CallReport| {
        let [leg, value] = largest(call);
        vec![
            time_of_day(call.start_unix_ns),
            outcome::duration_cell(call),
            method(call),
            outcome::cell(call),
            call.connection.map_or("-".into(), |number| number.to_string()),
            leg,
            value,
            first_finding(call),
        ]
    };
    let hidden = report.calls.len().saturating_sub(ROWS);
    TablePage {
        title: calls_title(report),
        head: vec![
            "Start, UTC",
            "Duration",
            "Method",
            "Status",
            "Connection",
            "Largest leg",
            "Its time",
            "Finding (? possible)",
        ],
        figures: vec![1, 6],
        rows: report.calls.iter().take(ROWS).map(row).collect(),
        more: (hidden > 0).then(|| format!("… and {hidden} more; the JSON has them all.")),
    }
}

impl SumsPage {
    fn new(client: &str, server: &str, connections: u64, sums: &SumsReport) -> SumsPage {
        let time = |ns: Option<u64>| ns.map_or("-".into(), format_ns);
        let legs = sums.legs.iter().map(|leg| LegSumPage {
            leg: leg.leg.to_string(),
            words: leg_words(leg.leg),
            time: bounded(leg.total_ns, leg.bound_ns),
            percent: percent_of(leg.total_ns, sums.total_ns),
            share: leg.total_ns.max(0) as f64 / sums.total_ns.max(1) as f64,
        });
        let causes = sums.causes.iter().map(|cause| {
            let calls = match (cause.calls, cause.possible) {
                (0, possible) => format!("possible in {}", counted(possible, "call")),
                (calls, 0) => counted(calls, "call"),
                (calls, possible) => format!("{}, possible in {possible} more", counted(calls, "call")),
            };
            let (cost, share) = match cause.cost_ns {
                0 => (String::new(), String::new()),
                ns => (format_ns(ns), percent_of(ns, sums.total_ns)),
            };
            [format!("{}{}", cause.cause, at_side(cause.side)), cost, share, calls]
        });
        SumsPage {
            title: format!("{client} → {server}, {}", counted(connections, "connection")),
            facts: format!(
                "{} · p50 {} · p99 {} · max {} · {} together",
                counted(sums.calls, "call"),
                time(sums.p50_ns),
                time(sums.p99_ns),
                time(sums.max_ns),
                format_ns(sums.total_ns)
            ),
            legs: legs.collect(),
            causes: causes.collect(),
        }
    }
}

fn connections_table(report: &DissectReport) -> TablePage {
    let row = |connection: &ConnectionReport| {
        let sums = &connection.sums;
        let time = |ns: Option<u64>| ns.map_or("-".into(), format_ns);
        let leg = sums.legs.iter().max_by_key(|leg| leg.total_ns).map_or("-".into(), |leg| {
            format!("{} {}", percent_of(leg.total_ns, sums.total_ns), leg_words(leg.leg))
        });
        let cause = sums.causes.iter().find(|cause| cause.calls > 0);
        let cause = cause.map_or("-".into(), |cause| format!("{} {}", cause.cause, format_ns(cause.cost_ns)));
        vec![
            connection.connection.to_string(),
            connection.client.clone(),
            connection.server.clone(),
            sums.calls.to_string(),
            time(sums.p50_ns),
            time(sums.p99_ns),
            leg,
            cause,
        ]
    };
    let hidden = report.connections.len().saturating_sub(ROWS) as u64 + report.connections_left_out;
    TablePage {
        title: "Connections".into(),
        head: vec!["Number", "Client", "Server", "Calls", "p50", "p99", "Most of the time", "Leading cause"],
        figures: vec![0, 3, 4, 5],
        rows: report.connections.iter().take(ROWS).map(row).collect(),
        more: (hidden > 0).then(|| format!("… and {hidden} more connections.")),
    }
}

fn limits(report: &DissectReport) -> Vec<String> {
    let clock = clock_line(report);
    let read = head(report);
    let read = read.iter().filter(|paragraph| Some(*paragraph) != clock.as_ref());
    let mut limits: Vec<String> = read.map(|paragraph| paragraph.trim_start().to_owned()).collect();
    limits.extend(clock.clone());
    limits.extend(report.caveats.iter().cloned());
    limits
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn the_page_has_headline_calls_and_limits() {
        let page = DissectPage::new(&samples::report());
        assert!(page.headline.starts_with("2 of the 3 slowest calls waited for a delayed ACK"), "{page:#?}");
        let first = &page.calls[0];
        assert_eq!(first.title, "The slowest call: /shop.v1.Cart/Add, 40.5 ms, OK");
        assert_eq!(first.report.ladder.as_ref().map(|ladder| ladder.packets.len()), Some(8));
        assert!(first.findings[0].title.starts_with("nagle-delayed-ack") && first.findings[0].is_shown);
        assert!(!first.findings[0].evidence.is_empty() && !first.legs.is_empty());
        assert!(
            first.pauses.iter().any(|(_, words)| words.contains("without a packet")),
            "{:?}",
            first.pauses
        );
        assert_eq!(page.command.as_deref(), Some("spangap dissect client.pcap server.pcap"));
        assert!(page.limits.len() > 1 && page.table.is_some_and(|table| table.rows.len() == 3));
        assert!(page.sums.iter().all(|sums| !sums.legs.is_empty() && sums.facts.contains("p99")));
    }

    #[test]
    fn empty_and_oversized_pages() {
        assert!(DissectPage::new(&DissectReport::default()).headline.starts_with("No call was found"));
        let mut report = samples::report();
        report.calls = vec![report.calls[2].clone(); 5_000];
        report.connections = vec![report.connections[0].clone(); 5_000];
        let page = DissectPage::new(&report);
        assert!(serde_json::to_string(&page).expect("plain data").len() < 200_000);
        let more = [page.table, page.connections].map(|table| table.and_then(|table| table.more));
        assert_eq!(
            more,
            [
                Some("… and 4950 more; the JSON has them all.".to_owned()),
                Some("… and 4950 more connections.".to_owned())
            ]
        );
        let mut long = samples::report();
        let ladder = long.calls[0].ladder.as_mut().expect("the sample has one");
        ladder.packets = vec![ladder.packets[0].clone(); 4_000];
        let page = DissectPage::new(&long);
        let ladder = page.calls[0].report.ladder.as_ref().expect("one");
        assert_eq!((ladder.packets.len(), ladder.left_out), (PACKETS, 4_000 - PACKETS as u64));
    }
}
