//! Calls wait until what they have written is on the disk.

use crate::LabError;
use crate::scenario::{Case, NearMiss, Page, Parameter, Scenario, Value};
use crate::stage::python::cost;
use crate::stage::{Serve, Stage, Tank};
use crate::truth::FaultReport;
use spangap_model::{Cause, Culprit, Leg, Legs, Side};

pub const DISK: Scenario = Scenario {
    name: "disk",
    title: "one call in eight writes ten records and waits until the disk has each (fsync)",
    culprit: Culprit::at(Cause::Disk, Side::Server),
    also_right: &[],
    leg: Some(Legs::one(Leg::ServerApp)),
    parameters: &[
        Parameter { name: "rate", what: "calls per second", default: Value::Number(40) },
        Parameter { name: "duration", what: "measured time", default: Value::Duration(4_000_000_000) },
        Parameter {
            name: "records",
            what: "records of 64 kB that such a call writes",
            default: Value::Number(10),
        },
        Parameter { name: "every", what: "one call in this many", default: Value::Number(8) },
    ],
    near_miss: NearMiss {
        title: "the same calls write as much, and wait for nothing",
        culprit: Culprit::NOTHING,
        leg: None,
    },
    page: Page {
        what: "A write returns when the kernel has the bytes. fsync returns when the disk has them: it waits for what was \
written before by anybody else, too, and for the journal of the file system. The thread sleeps, uninterruptible, and no counter of \
CPU shows it.",
        real_life: "Logs that are synced at each line, a database on a volume that is shared, a disk in the cloud that has used up \
its budget of operations.",
        sources: &[
            ("fsync(2)", "https://man7.org/linux/man-pages/man2/fsync.2.html"),
            ("LWN: ext4 and data loss", "https://lwn.net/Articles/322823/"),
        ],
        made: "A server in Python. Every eighth call writes ten records of 64 kB to a file of the run's folder and calls fsync after \
each, and times all of it. In the near miss it only writes.",
        cure: "Sync many writes at once, and off the path of calls; a separate volume for what has to be synced.",
    },
    make,
};

/// Anything shorter is not a wait for a disk.
const LEAST_NS: u64 = 2_000_000;

fn make(stage: &mut Stage<'_>, case: &Case<'_>) -> Result<FaultReport, LabError> {
    let [records, every] = ["records", "every"].map(|name| case.number(name).max(1).to_string());
    let serve = Serve::python(&["--write", "64000", "--times", &records, "--every", &every]);
    stage.cable()?;
    stage.serve(&if case.near_miss { serve } else { serve.with(&["--fsync"]) })?;
    stage.call(&Tank::python(case.duration("duration")).rate(case.number("rate")))?;
    let calls = stage.end()?;
    let waits = stage.waits(Side::Server, "")?;

    let (active, affected) = cost(&waits, &calls, LEAST_NS);
    let mut costs: Vec<u64> = waits.iter().map(|wait| wait.to_unix_ns - wait.from_unix_ns).collect();
    costs.sort_unstable();
    let median = costs.get(costs.len() / 2).copied().unwrap_or(0) as f64;
    let mut acted = FaultReport { active, affected, ..FaultReport::default() };
    acted.at_least("calls", calls.all.len() as f64, 20.0);
    acted.at_most("calls that failed", calls.all.iter().filter(|call| !call.ok).count() as f64, 0.0);
    acted.at_least("calls that wrote", costs.len() as f64, 5.0);
    let what = "median of the writes, as the server timed them, ns";
    if case.near_miss {
        acted.at_most(what, median, 4e6);
        acted.affected = Vec::new();
        acted.active = Vec::new();
        acted.affected_rule = "no call is affected".into();
        return Ok(acted);
    }
    acted.at_least(what, median, LEAST_NS as f64);
    acted.at_least("calls that waited for 2 ms and more", acted.affected.len() as f64, 5.0);
    acted.affected_rule = "calls that wrote and synced for 2 ms and more, as the server timed it".into();
    Ok(acted)
}
