//! The course of one case: its calls, their hosts, slices from both, the verdict.

mod ends;
mod hosts_by_packets;
mod requests;
#[cfg(test)]
mod sample_calls;
mod windows;

use crate::cases::{CLOSELY, Cases, LOOK_BACK_NS, moment};
use crate::folder::HUNT;
use crate::hosts::{Facts, find};
use crate::now_unix_ms;
use crate::report::{CaseReport, State};
use crate::samples::{self, Sample};
use crate::verdict;
use ends::{ends, facts, hosts, tell_hosts};
use hosts_by_packets::find_missing;
use requests::slices;
use spangap_model::PairKey;
use spangap_model::duration::format_ns;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use windows::{By, known_by_spans, shared, slow, windows, windows_of};

/// What a ring may have lost by the time it is asked, nanoseconds.
const RING_MOVES_NS: i64 = 2_000_000_000;
/// Hosts that are looked for among the agents, as spans name them; more go by no agent.
const MOST_HOSTS: usize = 512;
/// Names of the sides, by their number.
const SIDES: [&str; 2] = ["client", "server"];

/// From an open case to its verdict.
pub async fn pursue(cases: Arc<Cases>, id: String) {
    let Some(case) = cases.case(&id) else { return };
    let pair = PairKey {
        client: case.row.pair.client.as_str().into(),
        server: case.row.pair.server.as_str().into(),
        method: case.row.method.as_deref().map(Into::into),
    };
    let opened_ms = case.row.opened_unix_ms;
    // Who asks for a case says no level: what is beyond nearly all that is usual is slow.
    let over_ns = case.slow_over_ns.or_else(|| {
        let [usual, _] = cases.rows(&pair, &case).ok()?;
        Some(usual.client_duration.p99_ns)
    });
    let by = By { measure: case.slow_by, over_ns };
    let all = collect(&cases, &id, &pair, opened_ms, by);
    let samples = of_worst_hosts(&cases, &id, all, by);
    let kept = cases.kept_since(&pair).and_then(|since_ms| {
        let kept = samples::all_kept(&cases.meter, &pair, since_ms * 1_000_000, CLOSELY)?;
        let why = "calls share connections";
        let shared = shared(&samples, kept.clone()).map(|kept| (kept, why));
        shared
            .or_else(|| Some((known_by_spans(&samples, kept, by)?, "SERVER spans contain most of the time")))
    });
    let kept = kept.map(|(kept, why)| {
        let length = format_ns(kept.end - kept.start);
        cases.note(&id, format!("{why}: only {length} are requested, in which every call has its spans"));
        // Of calls outside of it there will be no packets, and they are not in question.
        let inside =
            samples.iter().filter(|sample| (kept.start..=kept.end).contains(&sample.sides[0].start_unix_ns));
        let lacks = write_spans(&cases, &id, &inside.cloned().collect::<Vec<_>>());
        cases.change(&id, |case| {
            let new: Vec<String> = lacks.into_iter().filter(|lack| !case.lacks.contains(lack)).collect();
            case.lacks.extend(new);
        });
        kept
    });
    let mut hosts = hosts(&cases, &samples);
    let around = windows(&samples, opened_ms, by, [None, None]);
    find_missing(&cases, &id, &samples, &mut hosts, &around).await;
    tell_hosts(&cases, &id, &samples, &hosts);
    let ends = ends(&cases, &samples, &hosts);
    let windows = match kept {
        Some(kept) => windows_of(&samples, &kept),
        None => {
            let reach = [0, 1].map(|side: usize| {
                cases
                    .agents
                    .packets_from_unix_ns(hosts[side].agent.as_deref()?)
                    .map(|from| from + RING_MOVES_NS)
            });
            windows(&samples, opened_ms, by, reach)
        }
    };
    drop(samples);
    let slices = slices(&cases, &id, &pair, &hosts, &windows, &ends).await;
    conclude(&cases, &case, &pair, slices).await;
}

/// Writes the spans of the calls in question.
fn collect(cases: &Cases, id: &str, pair: &PairKey, opened_ms: u64, by: By) -> Vec<Sample> {
    let since_unix_ns = opened_ms * 1_000_000 - LOOK_BACK_NS.min(opened_ms * 1_000_000);
    let samples = samples::of_pair(&cases.meter, pair, since_unix_ns, by.measure);
    let slow = slow(&samples, by);
    let lacks = write_spans(cases, id, &samples);
    let first_end = samples[..slow].iter().map(|sample| sample.sides[0].end_unix_ns).min();
    let now_ms = now_unix_ms();
    cases.change(id, |case| {
        if let Some(end_ns) = first_end {
            // It may be older than the fault: every host has a slow call now and then.
            let words = "the earliest slow call of the 25 s before ended, by its client's clock";
            case.time_line.push(moment(end_ns / 1_000_000, words));
        }
        case.time_line.push(moment(
            now_ms,
            format!("spans of {slow} slow and {} other calls taken", samples.len() - slow),
        ));
        case.time_line.sort_by_key(|moment| moment.unix_ms);
        case.row.slow_calls = slow as u64;
        case.lacks.extend(lacks);
    });
    samples
}

/// Writes the spans of these calls, in place of those that are there. What that lacks, in sentences.
fn write_spans(cases: &Cases, id: &str, samples: &[Sample]) -> Vec<String> {
    let mut lacks = Vec::new();
    for (side, name) in SIDES.into_iter().enumerate() {
        let Some(document) = samples::document(samples, side) else {
            lacks.push(format!("The spans of the {name} were no longer held."));
            continue;
        };
        let written = cases.folder.write_json(id, &format!("{name}.spans.json"), &document);
        if let Err(error) = written {
            cases.agents.count(|refused| refused.not_written += 1);
            lacks.push(format!("The spans of the {name} could not be written: {error}."));
        }
    }
    lacks
}

/// Those between the two hosts whose slow calls took the most together: a case has packets of one pair of hosts. Hosts with an agent
/// count twice as much as those without. The rest are in the folder with their spans.
fn of_worst_hosts(cases: &Cases, id: &str, samples: Vec<Sample>, by: By) -> Vec<Sample> {
    let places = cases.agents.places(now_unix_ms());
    let mut agents = HashMap::<Facts, Option<String>>::new();
    let mut agent = |sample: &Sample, side: usize| {
        let (resource, span) = sample.sides[side].whole.as_ref()?;
        let mate = sample.sides[1 - side].whole.as_ref().map(|(_, span)| span);
        let facts = facts(cases, resource, span, mate);
        if agents.len() >= MOST_HOSTS && !agents.contains_key(&facts) {
            return None;
        }
        agents.entry(facts).or_insert_with_key(|facts| find(facts, &places).agent).clone()
    };
    let between: Vec<[Option<String>; 2]> =
        samples.iter().map(|sample| [agent(sample, 0), agent(sample, 1)]).collect();
    let slow = slow(&samples, by);
    let mut lost = BTreeMap::<&[Option<String>; 2], (u64, usize)>::new();
    for (sample, between) in samples[..slow].iter().zip(&between) {
        let (ns, calls) = lost.entry(between).or_default();
        (*ns, *calls) = (ns.saturating_add(sample.took_ns(by.measure)), *calls + 1);
    }
    let pairs = lost.len();
    let weight = |hosts: &[Option<String>; 2], ns: u64| {
        ns.saturating_mul(hosts.iter().filter(|host| host.is_some()).count() as u64)
    };
    let worst = lost.into_iter().max_by_key(|(hosts, (ns, _))| weight(hosts, *ns));
    let Some((worst, (_, calls))) = worst.filter(|_| pairs > 1) else { return samples };
    cases.note(
        id,
        format!(
            "the slow calls passed between {pairs} pairs of hosts: packets are requested from the pair that lost \
             the most, {calls} of {slow}"
        ),
    );
    samples
        .iter()
        .zip(&between)
        .filter(|(_, hosts)| *hosts == worst)
        .map(|(sample, _)| sample.clone())
        .collect()
}

/// The verdict, from what is in the folder.
async fn conclude(cases: &Arc<Cases>, case: &CaseReport, pair: &PairKey, slices: usize) {
    let id = case.row.id.as_str();
    let judged = match slices {
        0 => Err("No host sent packets: what passed on the wire is unknown.".to_owned()),
        _ => match cases.judge.judge(&cases.folder.of(id)).await {
            Ok(hunt) if hunt.coverage.captured == 0 => {
                Err("No verdict: the packets that hosts sent contain no call.".to_owned())
            }
            Ok(hunt) => Ok(hunt),
            Err(error) => {
                cases.agents.count(|refused| refused.verdicts += 1);
                Err(format!("No verdict: {error}."))
            }
        },
    };
    let rows = cases.rows(pair, case);
    let document = judged.as_ref().ok().and_then(|hunt| serde_json::to_vec_pretty(hunt).ok());
    if let Some(document) = document
        && cases.folder.write(id, HUNT, &document).is_err()
    {
        cases.agents.count(|refused| refused.not_written += 1);
    }
    let now_ms = now_unix_ms();
    cases.change(id, |case| {
        match rows {
            Ok([usual, before]) => (case.usual, case.before) = (Some(usual), Some(before)),
            Err(why) => case.lacks.push(format!("How long these calls usually take is unknown: {why}.")),
        }
        match judged {
            Ok(hunt) => {
                let row = verdict::row(&hunt);
                case.time_line.push(moment(now_ms, format!("verdict: {}", row.words)));
                case.row.excess_ns = Some(hunt.excess.mean_ns);
                case.row.state = if verdict::is_explained(&hunt) { State::Explained } else { State::Unknown };
                case.row.verdict = Some(row);
            }
            Err(why) => {
                case.time_line.push(moment(now_ms, why.clone()));
                case.lacks.push(why);
                case.row.state = State::Unknown;
            }
        }
    });
}
