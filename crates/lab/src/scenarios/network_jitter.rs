//! The way between the hosts takes a time that varies from packet to packet.

use crate::LabError;
use crate::hosts::line::{Line, Way};
use crate::scenario::{Case, NearMiss, Page, Parameter, Scenario, Value};
use crate::stage::{Serve, Stage, Tank};
use crate::truth::{Affected, FaultReport};
use spangap_model::{Cause, Culprit, Leg, Legs};

pub const NETWORK_JITTER: Scenario = Scenario {
    name: "network-jitter",
    title: "a packet takes anything from 0 to 25 ms to the other host, both ways",
    culprit: Culprit::of(Cause::NetworkJitter),
    // A varying delay is also a delay of the network: a judge that ignores its variation is not wrong.
    also_right: &[Culprit::of(Cause::NetworkDelay)],
    leg: Some(Legs { first: Leg::RequestWire, last: Leg::ResponseWire }),
    parameters: &[
        Parameter {
            name: "jitter",
            what: "most that a packet takes, each way",
            default: Value::Duration(25_000_000),
        },
        Parameter { name: "duration", what: "measured time", default: Value::Duration(3_000_000_000) },
    ],
    near_miss: NearMiss {
        title: "every packet takes 12.5 ms: the same on average, and always the same",
        culprit: Culprit::of(Cause::NetworkDelay),
        leg: Some(Legs { first: Leg::RequestWire, last: Leg::ResponseWire }),
    },
    page: Page {
        what: "Each packet waits on its way for a while that is different every time, from nothing to 25 ms. Packets keep \
               their order, and none is lost. A call is as slow as its request and its response happen to be, so that \
               calls that do the same differ by tens of milliseconds, while both hosts are idle.",
        real_life: "Queues on the path that fill and drain: a link shared with backups or bulk traffic, buffers that are \
                    too large, a wireless or overloaded virtual network, a middlebox short of CPU time.",
        sources: &[
            (
                "The Bufferbloat Problem over Intermittent Multi-Gbps mmWave Links",
                "https://docslib.org/doc/1871440/the-bufferbloat-problem-over-intermittent-multi-gbps-mmwave-links",
            ),
            ("The Bufferbloat Phenomenon", "https://pingdo.net/performance/bufferbloat"),
        ],
        made: "The delay line holds every packet for a time drawn evenly between 0 and 25 ms, with a seed, and no packet \
               overtakes another. One call is under way at any time. What each packet was held for is in the line's log, so \
               that the cost of each call is known. The near miss holds every packet for the mean.",
        cure: "Find the queue: `tc -s qdisc` of both hosts, counters of the switches between them. Keep bulk traffic away \
               from it, or keep the queue short (fq_codel, a rate below that of the slowest link).",
    },
    make,
};

fn make(stage: &mut Stage<'_>, case: &Case<'_>) -> Result<FaultReport, LabError> {
    let jitter = case.duration("jitter");
    let way = if case.near_miss { Way::of_delay(jitter / 2) } else { Way { jitter, ..Way::default() } };
    stage.logged_line(&Line { to_server: way.clone(), to_client: way, seed: stage.seed() })?;
    stage.serve(&Serve::stack("rust"))?;
    stage.call(&Tank::stack("rust", case.duration("duration")).in_flight(1))?;
    let calls = stage.end()?;
    let passed = stage.end_logged_line()?;

    let spread_ns = calls.gap_quantile_ns(0.85) as f64 - calls.gap_quantile_ns(0.15) as f64;
    let jitter_ns = jitter.as_nanos() as f64;
    let mut acted = FaultReport::default();
    let expected = case.duration("duration").as_secs_f64() * 1e9 / (2.0 * jitter_ns);
    acted.at_least("calls", calls.all.len() as f64, expected.floor());
    let spread = "from the 15th to the 85th of 100 calls, what the client waited beyond the server's own time grows by, ns";
    if case.near_miss {
        acted.at_least("median of the calls, ns", calls.quantile_ns(0.5) as f64, jitter_ns);
        acted.at_most(spread, spread_ns, 0.4 * jitter_ns);
        let delayed = passed.summary.a.counts.delayed + passed.summary.b.counts.delayed;
        acted.at_most("packets that the line held for longer than others", delayed as f64, 0.0);
        acted.affected_rule =
            "no call is affected by a delay that varies; all are by one that does not".into();
        return Ok(acted);
    }
    // Of the sum of two such delays it is 0.9 of one.
    acted.at_least(spread, spread_ns, 0.5 * jitter_ns);
    let delayed = passed.summary.a.counts.delayed.min(passed.summary.b.counts.delayed);
    acted.at_least("packets that the line held, in either direction", delayed as f64, calls.all.len() as f64);
    acted.active = calls.whole();
    acted.affected = calls
        .all
        .iter()
        .map(|call| Affected { trace_id: call.trace_id.clone(), cost_ns: passed.delays_of(call) })
        .collect();
    let known: Vec<_> = acted.affected.iter().filter_map(|call| call.cost_ns).collect();
    acted.at_least("calls whose cost is known", known.len() as f64, 0.9 * calls.all.len() as f64);
    acted.affected_rule =
        "every call, by how long the line held the last packet of its request and that of its response"
            .into();
    Ok(acted)
}
