//! Requests that arrive and that the server's host drops before TCP has them.

use crate::LabError;
use crate::scenario::{Case, NearMiss, Page, Parameter, Scenario, Value};
use crate::stage::{Serve, Stage, Tank};
use crate::truth::{Affected, FaultReport};
use spangap_model::{Cause, Culprit, Leg, Legs, Side};

pub const RECEIVER_DROP: Scenario = Scenario {
    name: "receiver-drop",
    title: "a filter on the server's host drops one request segment in forty, behind the tap",
    culprit: Culprit::at(Cause::ReceiverDrop, Side::Server),
    also_right: &[],
    leg: Some(Legs { first: Leg::ClientSend, last: Leg::RequestWire }),
    parameters: &[
        Parameter { name: "rate", what: "calls per second", default: Value::Number(60) },
        Parameter { name: "duration", what: "measured time", default: Value::Duration(4_000_000_000) },
        Parameter {
            name: "every",
            what: "segments with bytes of requests, of which one is dropped",
            default: Value::Number(40),
        },
    ],
    near_miss: NearMiss {
        title: "the same filter counts the same segments and lets them pass",
        culprit: Culprit::NOTHING,
        leg: None,
    },
    page: Page {
        what: "Packets pass the network, and a capture on the server's own host shows them. Then something on that host drops \
them: a filter, connection tracking that is full or considers them invalid, a checksum, a socket's buffer that is full. TCP \
never acknowledges them, and the client sends them again, as for any loss. A search for loss on the path finds none.",
        real_life: "A firewall's rate limit, `nf_conntrack: table full`, an `INVALID` rule in front of Kubernetes' NodePorts, a \
backlog that overflows under a flood (`TCPBacklogDrop`).",
        sources: &[
            ("nft(8)", "https://www.netfilter.org/projects/nftables/manpage.html"),
            (
                "Kubernetes: kube-proxy subtleties, debugging an intermittent connection reset",
                "https://kubernetes.io/blog/2019/03/29/kube-proxy-subtleties-debugging-an-intermittent-connection-reset/",
            ),
        ],
        made: "A rule of nftables in the server's network namespace, behind the point where captures are taken, drops every 40th segment that has \
bytes for the target, and counts them. In the near miss it only counts.",
        cure: "`nft list ruleset`, `conntrack -S`, `nstat` (TcpExt drops) and `dropwatch` on the receiver; not the network.",
    },
    make,
};

/// Without these bytes a segment is an acknowledgement alone.
const HEADERS_BYTES: u32 = 72;
/// What is sent again comes later than this.
const LEAST_NS: u64 = 3_000_000;

fn make(stage: &mut Stage<'_>, case: &Case<'_>) -> Result<FaultReport, LabError> {
    let every = case.number("every").max(2);
    let verdict = if case.near_miss { "accept" } else { "drop" };
    stage.cable()?;
    stage.filter(
        Side::Server,
        &format!("meta length > {HEADERS_BYTES} numgen inc mod {every} == 0"),
        verdict,
    )?;
    stage.serve(&Serve::stack("rust"))?;
    stage.call(&Tank::stack("rust", case.duration("duration")).rate(case.number("rate")))?;
    stage.wait_for_tank()?;
    let counters = stage.tcp(Side::Client)?;
    let met = stage.filtered(Side::Server)?;
    let calls = stage.end()?;

    let again = counters.get("Tcp.RetransSegs") as f64;
    let mut acted = FaultReport::default();
    acted.at_least("calls", calls.all.len() as f64, 20.0);
    acted.at_most("calls that failed", calls.all.iter().filter(|call| !call.ok).count() as f64, 0.0);
    acted.at_least("segments that the rule met, by its own count", met, 5.0);
    if case.near_miss {
        acted.at_most("segments that the client sent again (RetransSegs)", again, 0.5 * met);
        acted.affected_rule = "no call is affected".into();
        return Ok(acted);
    }
    acted.at_least("segments that the client sent again (RetransSegs)", again, 0.8 * met);
    let median_ns = calls.quantile_ns(0.5);
    let slow = calls.over_ns_but(median_ns + LEAST_NS, stage.pauses());
    // The rule does not record which call a segment belonged to.
    acted.affected = slow.map(|call| Affected { trace_id: call.trace_id.clone(), cost_ns: None }).collect();
    acted.at_least("calls over the median by 3 ms and more", acted.affected.len() as f64, 4.0);
    acted.active = calls.whole();
    acted.affected_rule = "calls that took 3 ms longer than the median, while the rule was there".into();
    Ok(acted)
}
