//! Nothing is wrong.

use crate::LabError;
use crate::scenario::{Case, NearMiss, Page, Parameter, Scenario, Value};
use crate::stage::{Serve, Stage, Tank};
use crate::truth::FaultReport;
use spangap_model::Culprit;

pub const HEALTHY: Scenario = Scenario {
    name: "healthy",
    title: "nothing is wrong: a call now and then, each answered at once",
    culprit: Culprit::NOTHING,
    also_right: &[],
    leg: None,
    parameters: &[
        Parameter { name: "rate", what: "calls per second", default: Value::Number(100) },
        Parameter { name: "duration", what: "measured time", default: Value::Duration(3_000_000_000) },
    ],
    near_miss: NearMiss {
        title: "a call every 50 ms: CPUs fall asleep in between, and each call is a little slower",
        culprit: Culprit::NOTHING,
        leg: None,
    },
    page: Page {
        what: "Calls come at an even pace, far below what either end can do, over one connection, and each is answered as \
soon as it is read. What a call takes is what both stacks need for it, and the time to wake the thread that waits: at the server \
for the request, at the client for the response. Single calls nevertheless take longer, on any machine that now and then does something else.\n\n\
Its near miss has a fifth of the calls. CPUs that find nothing to do fall asleep, deeper the longer it lasts, and every call \
has to wake them: calls become slower as there are fewer of them, which looks like a fault but is not one.",
        real_life: "Every service on a good day, and every canary with little traffic: its latency is worse than that of the \
service that it represents, since its CPUs sleep in between.",
        sources: &[
            (
                "Linux kernel: CPU Idle Time Management",
                "https://github.com/torvalds/linux/blob/master/Documentation/admin-guide/pm/cpuidle.rst",
            ),
            (
                "cpuidle: C-states, their exit latencies and the governors",
                "https://kernel-internals.org/power/cpuidle",
            ),
        ],
        made: "A client and a server of one stack on two hosts with a cable between them, at 100 calls per second; the near \
miss at 20. Nothing is done to either.",
        cure: "There is nothing to cure. Where the time to wake a CPU counts, keep it from sleeping deeply (the kernel's \
PM QoS, `cpu_dma_latency`) or give it something to do.",
    },
    make,
};

/// A median that no fault of the lab leaves that low.
const FAST_NS: u64 = 5_000_000;

fn make(stage: &mut Stage<'_>, case: &Case<'_>) -> Result<FaultReport, LabError> {
    let rate = if case.near_miss { 20 } else { case.number("rate") };
    stage.cable()?;
    stage.serve(&Serve::stack("rust"))?;
    stage.call(&Tank::stack("rust", case.duration("duration")).rate(rate))?;
    let calls = stage.end()?;
    let mut acted = FaultReport { affected_rule: "no call is affected".into(), ..FaultReport::default() };
    let expected = (rate as f64 * case.duration("duration").as_secs_f64()).floor();
    acted.at_least("calls", calls.all.len() as f64, expected * 0.9);
    acted.at_most("median of the calls, ns", calls.quantile_ns(0.5) as f64, FAST_NS as f64);
    acted.at_most("calls that failed", calls.all.iter().filter(|call| !call.ok).count() as f64, 0.0);
    Ok(acted)
}
