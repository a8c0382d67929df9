//! A proxy in front of the server lets requests wait.

use crate::LabError;
use crate::scenario::{Case, NearMiss, Page, Parameter, Scenario, Value};
use crate::stage::python::cost;
use crate::stage::{Serve, Stage, Tank};
use crate::truth::FaultReport;
use spangap_model::{Cause, Culprit, Leg, Legs, Side};

pub const PROXY_QUEUE: Scenario = Scenario {
    name: "proxy-queue",
    title: "nginx in front of the server forwards 100 requests a second, one every 10 ms, and makes the others wait",
    culprit: Culprit::of(Cause::Proxy),
    // Without a capture behind it a proxy is a part of the server's end.
    also_right: &[Culprit::at(Cause::ServerQueue, Side::Server)],
    leg: Some(Legs::one(Leg::ServerHostIn)),
    parameters: &[
        Parameter { name: "rate", what: "calls per second", default: Value::Number(80) },
        Parameter { name: "duration", what: "measured time", default: Value::Duration(4_000_000_000) },
        Parameter {
            name: "passes",
            what: "requests a second that the proxy passes on",
            default: Value::Number(100),
        },
    ],
    near_miss: NearMiss {
        title: "the same nginx, which forwards every request at once",
        culprit: Culprit::NOTHING,
        leg: None,
    },
    page: Page {
        what: "Between client and server is a proxy that takes requests and passes them on when it may: it has a limit on their \
rate, on connections to each server, or on its own threads. The client's spans have the wait, the server's have not, and the \
network is quick on both sides of the proxy. On the host of the server it looks like one whose application takes requests late.",
        real_life: "A rate limit with a burst (`limit_req`), an ingress with few connections to its upstream, a sidecar with too \
little CPU, a balancer that queues while a server restarts.",
        sources: &[
            (
                "nginx: ngx_http_limit_req_module",
                "https://nginx.org/en/docs/http/ngx_http_limit_req_module.html",
            ),
            ("nginx: rate limiting", "https://blog.nginx.org/blog/rate-limiting-nginx"),
        ],
        made: "nginx on the server's host, with `limit_req` and a burst that is never exceeded, in front of a server in Python. Calls \
come at random intervals, 80 a second on average, so that some come less than 10 ms after another. For each request, nginx logs \
how long it had it, and how long the server had it. The near miss has no limit.",
        cure: "Raise the limit, or let bursts pass (`nodelay`); more connections to the upstream; a queue that reports its length.",
    },
    make,
};

/// nginx logs milliseconds.
const LEAST_NS: u64 = 2_000_000;

fn make(stage: &mut Stage<'_>, case: &Case<'_>) -> Result<FaultReport, LabError> {
    let passes = Some(case.number("passes").max(1)).filter(|_| !case.near_miss);
    stage.cable()?;
    stage.proxy(passes)?;
    stage.serve(&Serve::python(&["--think", "0.002"]).behind_proxy())?;
    stage.call(&Tank::python(case.duration("duration")).rate(case.number("rate")))?;
    let calls = stage.end()?;
    let waits = stage.proxy_waits()?;

    let (active, affected) = cost(&waits, &calls, LEAST_NS);
    let waited = affected.len() as f64;
    let mut acted = FaultReport { active, affected, ..FaultReport::default() };
    acted.at_least("calls", calls.all.len() as f64, 20.0);
    acted.at_most("calls that failed", calls.all.iter().filter(|call| !call.ok).count() as f64, 0.0);
    let what = "calls that waited in the proxy for 2 ms and more, by its own log";
    if case.near_miss {
        acted.at_most(what, waited, 0.1 * calls.all.len() as f64);
        acted.active = Vec::new();
        acted.affected = Vec::new();
        acted.affected_rule = "no call is affected".into();
        return Ok(acted);
    }
    acted.at_least(what, waited, 5.0);
    let longest = acted.affected.iter().filter_map(|call| call.cost_ns).max().unwrap_or(0);
    acted.at_least("the longest of these waits, ns", longest as f64, 5e6);
    acted.affected_rule =
        "calls that nginx had for 2 ms longer than the server, by how much longer, as it logged it".into();
    Ok(acted)
}
