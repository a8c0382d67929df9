//! Calls wait for pages of their server's memory, which a limit has taken from it.

use crate::LabError;
use crate::scenario::{Case, NearMiss, Page, Parameter, Scenario, Value};
use crate::stage::python::cost;
use crate::stage::{Serve, Stage, Surroundings, Tank};
use crate::truth::FaultReport;
use spangap_model::{Cause, Culprit, Leg, Legs, Side};

pub const MEMORY: Scenario = Scenario {
    name: "memory",
    title: "the server looks things up in a mapped file that its memory limit has no room for: pages are read from the disk again",
    culprit: Culprit::at(Cause::Memory, Side::Server),
    also_right: &[],
    leg: Some(Legs::one(Leg::ServerApp)),
    parameters: &[
        Parameter { name: "rate", what: "calls per second", default: Value::Number(40) },
        Parameter { name: "duration", what: "measured time", default: Value::Duration(4_000_000_000) },
        Parameter { name: "limit", what: "MiB that the server may have", default: Value::Number(56) },
        Parameter { name: "pages", what: "pages that such a call looks at", default: Value::Number(200) },
        Parameter { name: "every", what: "one call in this many", default: Value::Number(6) },
    ],
    near_miss: NearMiss {
        title: "the same lookups, and no limit: every page is in memory",
        culprit: Culprit::NOTHING,
        leg: None,
    },
    page: Page {
        what: "A control group with a limit on memory counts the pages of files as well. At the limit the kernel takes back what was \
used least, and whoever needs it next waits until the disk has it again (a major fault), or takes back other pages itself first \
(direct reclaim). The thread sleeps in the middle of its own code, without a system call; the process is never killed, and its resident \
size looks well below the limit.",
        real_life: "Databases and search engines over mapped files in a container, a sidecar that grows, a runtime whose code pages \
are evicted, swap.",
        sources: &[
            (
                "Linux: memory resource controller",
                "https://docs.kernel.org/admin-guide/cgroup-v2.html#memory",
            ),
            ("Linux: pressure stall information", "https://docs.kernel.org/accounting/psi.html"),
        ],
        made: "A server in Python maps a file of 128 MiB of its own. Every sixth call looks at 200 of its pages, chosen at random, and \
times that when a quarter of them had to be read (major faults of its thread). The server is in a control group with a limit of 56 MiB; in \
the near miss there is none.",
        cure: "A limit that has room for the pages in use (`memory.stat`, `memory.events`); look at `workingset_refault_file` and \
`/proc/pressure/memory` rather than at the resident size; lock what must not go (mlock).",
    },
    make,
};

/// The mapped file.
const MAPPED_BYTES: u64 = 128 << 20;
/// Shorter waits do not count.
const LEAST_NS: u64 = 2_000_000;

fn make(stage: &mut Stage<'_>, case: &Case<'_>) -> Result<FaultReport, LabError> {
    let [pages, every] = ["pages", "every"].map(|name| case.number(name).max(1).to_string());
    stage.cable()?;
    let around = match case.near_miss {
        true => Surroundings::default(),
        false => stage.memory_limit("server", case.number("limit") << 20)?,
    };
    let mapped = MAPPED_BYTES.to_string();
    let serve = Serve::python(&["--map", &mapped, "--pages", &pages, "--every", &every]).around(around);
    stage.serve(&serve)?;
    stage.call(&Tank::python(case.duration("duration")).rate(case.number("rate")))?;
    let calls = stage.end()?;
    let waits = stage.waits(Side::Server, "")?;

    let (active, affected) = cost(&waits, &calls, LEAST_NS);
    let mut acted = FaultReport { active, affected, ..FaultReport::default() };
    acted.at_least("calls", calls.all.len() as f64, 20.0);
    acted.at_most("calls that failed", calls.all.iter().filter(|call| !call.ok).count() as f64, 0.0);
    let what = "calls that had to wait for a quarter of their pages and more (major faults of their thread)";
    if case.near_miss {
        acted.at_most(what, acted.affected.len() as f64, 1.0);
        (acted.active, acted.affected) = (Vec::new(), Vec::new());
        acted.affected_rule = "no call is affected".into();
        return Ok(acted);
    }
    acted.at_least(what, acted.affected.len() as f64, 5.0);
    acted.affected_rule =
        "calls that had to wait for a quarter of their pages and more, by the time in which the server looked at them".into();
    Ok(acted)
}
