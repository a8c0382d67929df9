//! Names that are looked up with a server that does not answer.

use crate::LabError;
use crate::scenario::{Case, NearMiss, Page, Parameter, Scenario, Value};
use crate::stage::python::cost;
use crate::stage::{Serve, Stage, Tank};
use crate::truth::FaultReport;
use spangap_model::{Cause, Culprit, Leg, Legs, Side};

pub const DNS: Scenario = Scenario {
    name: "dns",
    title: "the first name server does not answer: every look-up waits a second for it, then finds the name elsewhere",
    culprit: Culprit::at(Cause::Dns, Side::Client),
    also_right: &[],
    leg: Some(Legs::one(Leg::ClientAppOut)),
    parameters: &[
        Parameter { name: "rate", what: "calls per second", default: Value::Number(40) },
        Parameter { name: "duration", what: "measured time", default: Value::Duration(5_000_000_000) },
        Parameter { name: "calls", what: "calls of a connection", default: Value::Number(6) },
    ],
    near_miss: NearMiss {
        title: "the same connections; names are found at once",
        culprit: Culprit::NOTHING,
        leg: None,
    },
    page: Page {
        what: "A client that opens a connection looks up the name of the server first. A name server that is down says nothing, so \
the resolver waits for its timeout (5 s unless set otherwise, 1 s at least) before it asks the next one. It has no memory: the next \
look-up waits again. Calls on open connections see nothing of it.",
        real_life: "A dead server first in resolv.conf, a firewall that drops one of the two queries for IPv4 and IPv6, a resolver \
of the cluster without room for another connection: calls that take 5.0 s and more.",
        sources: &[
            ("resolv.conf(5)", "https://man7.org/linux/man-pages/man5/resolv.conf.5.html"),
            ("getaddrinfo(3)", "https://man7.org/linux/man-pages/man3/getaddrinfo.3.html"),
        ],
        made: "A client in Python that looks up `server` for each connection and leaves it after six calls. The resolv.conf of its \
host names a server that is not there, with a timeout of 1 s and one attempt; /etc/hosts, which is asked next, has the name. In the \
near miss /etc/hosts is asked first. The client times each look-up.",
        cure: "Remove the dead server; a cache on the host; connections that are kept.",
    },
    make,
};

/// A look-up that takes less has not waited.
const LEAST_NS: u64 = 500_000_000;

fn make(stage: &mut Stage<'_>, case: &Case<'_>) -> Result<FaultReport, LabError> {
    stage.cable()?;
    stage.hosts().look_up(Side::Client, !case.near_miss)?;
    stage.serve(&Serve::python(&[]))?;
    let reconnect = case.number("calls").max(1).to_string();
    let tank = Tank::python(case.duration("duration")).rate(case.number("rate"));
    stage.call(&tank.with(&["--name", "server", "--reconnect", &reconnect]))?;
    let calls = stage.end()?;
    let waits = stage.waits(Side::Client, "dns")?;

    let (active, affected) = cost(&waits, &calls, LEAST_NS);
    let mut acted = FaultReport { active, affected, ..FaultReport::default() };
    acted.at_least("calls", calls.all.len() as f64, 20.0);
    acted.at_least("look-ups", waits.len() as f64, 5.0);
    let waited = "measured calls whose look-up took half a second or more, as the client timed it";
    if case.near_miss {
        acted.at_most(waited, acted.affected.len() as f64, 0.0);
        acted.affected_rule = "no call is affected".into();
        return Ok(acted);
    }
    acted.at_least(waited, acted.affected.len() as f64, 5.0);
    acted.affected_rule = "calls whose look-up took half a second or more, as the client timed it".into();
    Ok(acted)
}
