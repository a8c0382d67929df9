//! Facts about a run that are known by construction, to compare conclusions with.

use super::standing::{Fault, Known};
use crate::LabError;
use crate::calls::Calls;
use crate::folder;
use crate::grade::folders::ExistingRun;
use crate::truth::Affected;
use spangap_model::{Cause, Culprit, Legs, Side};
use std::collections::BTreeMap;
use std::io::{Error, ErrorKind};

/// The machine's own noise counts if it could explain this share of the slow calls' excess over the median.
const NOISE: f64 = 0.5;
/// Faults that themselves keep threads off their CPUs: their effect shows in the same counters.
const OF_THE_CPU: [Cause; 5] =
    [Cause::RunQueue, Cause::CpuQuota, Cause::Stopped, Cause::SoftirqOnCpu, Cause::SoftirqLate];

/// Known facts about a run.
///
/// # Errors
/// Its truth contains unknown names, or its spans cannot be read.
pub fn known(kept: &ExistingRun) -> Result<Known, LabError> {
    let (truth, judged) = (&kept.truth, kept.judged(None)?);
    let calls = calls(kept)?;
    let earlier = truth.drawn.as_ref().and_then(|drawn| drawn.earlier.as_ref());
    let mut known = Known {
        noise: noise(kept, &calls, judged.truth.cause),
        unchanged: truth.near_miss && earlier.is_some_and(|window| window.same),
        calls,
        ..Known::default()
    };
    match judged.truth.cause {
        Cause::None => known.harmless = judged.also_right,
        _ => known.faults.push(Fault {
            culprit: judged.truth,
            also_right: judged.also_right,
            legs: judged.leg,
            affected: by_id(&truth.affected),
        }),
    }
    if let Some(second) = &truth.second {
        let strange = |what: &str| {
            let why = format!("\"second\": {what}, expected a cause, its side and its leg");
            let path = kept.folder.join(folder::TRUTH);
            LabError::file("understand", &path)(Error::new(ErrorKind::InvalidData, why))
        };
        let cause = Cause::of_name(&second.culprit).ok_or_else(|| strange(&second.culprit))?;
        let side = Side::of_name(&second.side).ok_or_else(|| strange(&second.side))?;
        let legs: Legs = second.leg.parse().map_err(|_| strange(&second.leg))?;
        known.faults.push(Fault {
            culprit: Culprit::at(cause, side),
            also_right: Vec::new(),
            legs: Some(legs),
            affected: by_id(&second.affected),
        });
    }
    Ok(known)
}

fn by_id(affected: &[Affected]) -> BTreeMap<String, Option<u64>> {
    affected.iter().map(|call| (call.trace_id.clone(), call.cost_ns)).collect()
}

/// Calls of the measured phase; none without spans.
fn calls(kept: &ExistingRun) -> Result<Vec<(String, u64)>, LabError> {
    let [client, server] = Side::ALL.map(|side| kept.folder.join(folder::spans(side)));
    if !client.exists() || !server.exists() {
        return Ok(Vec::new());
    }
    let tank: serde_json::Value = folder::read_json(&kept.folder.join(folder::TANK)).unwrap_or_default();
    let from = tank["runs"][0]["start_unix_ns"].as_u64().unwrap_or(0);
    let calls = Calls::read(&client, &server, from)?.all;
    Ok(calls.into_iter().map(|call| (call.trace_id.clone(), call.duration_ns())).collect())
}

/// Run-queue waits and machine pauses, relative to the slow calls' excess over the median.
fn noise(kept: &ExistingRun, calls: &[(String, u64)], fault: Cause) -> Vec<Culprit> {
    let Some(beside) = kept.truth.beside.filter(|_| !OF_THE_CPU.contains(&fault)) else { return Vec::new() };
    let mut took: Vec<u64> = calls.iter().map(|(_, ns)| *ns).collect();
    took.sort_unstable();
    let median = took.get(took.len() / 2).copied().unwrap_or(0);
    let beyond: f64 = took.iter().map(|ns| ns.saturating_sub(median) as f64).sum();
    // A waiting thread delays all calls in flight: this many on average.
    let under_way = match beside.measured_ns {
        0 => 1.0,
        ns => (took.iter().sum::<u64>() as f64 / ns as f64).max(1.0),
    };
    let enough = |ns: u64| ns > 0 && ns as f64 * under_way >= NOISE * beyond;
    let mut noise = Vec::new();
    for (side, waited_ns) in Side::ALL.into_iter().zip([beside.client_waited_ns, beside.server_waited_ns]) {
        if enough(waited_ns) {
            noise.push(Culprit::at(Cause::RunQueue, side));
        }
    }
    if enough(beside.client_waited_ns + beside.server_waited_ns) {
        noise.push(Culprit::of(Cause::CpuSaturated));
    }
    if enough(beside.line_waited_ns.unwrap_or(0)) {
        noise.extend([Cause::NetworkJitter, Cause::NetworkDelay].map(Culprit::of));
    }
    if enough(beside.paused_ns) {
        noise.push(Culprit::of(Cause::Steal));
    }
    noise
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn kept(more: &serde_json::Value) -> ExistingRun {
        let mut truth = serde_json::json!({ "scenario": "rto", "near_miss": false, "culprit": "rto", "active": [],
            "affected": [{ "trace_id": "a", "cost_ns": 5 }], "affected_rule": "", "acted": true, "proof": [],
            "parameters": {}, "seed": 1, "command": "" });
        truth.as_object_mut().expect("it is one").extend(more.as_object().expect("one").clone());
        let truth = serde_json::from_value(truth).expect("a truth");
        ExistingRun { folder: Path::new("/none").into(), truth }
    }

    #[test]
    fn both_faults_of_a_run_are_known() {
        let second = serde_json::json!({ "second": { "culprit": "stopped", "side": "client", "leg": "client_app_in",
            "active": [], "affected": [{ "trace_id": "b" }] } });
        let known = known(&kept(&second)).expect("known");
        let names: Vec<String> = known.faults.iter().map(|fault| fault.culprit.to_string()).collect();
        assert_eq!(names, ["rto", "stopped (client)"]);
        assert_eq!((known.faults[0].affected["a"], known.faults[1].affected["b"]), (Some(5), None));
        let strange = serde_json::json!({ "second": { "culprit": "stopped", "side": "middle", "leg": "server_app",
            "active": [], "affected": [] } });
        let error = super::known(&kept(&strange)).expect_err("no side").to_string();
        assert!(error.contains("middle") && error.contains("truth.json"), "{error}");
    }

    #[test]
    fn noise_is_what_the_kernel_counted_and_enough_of_it() {
        let calls: Vec<(String, u64)> =
            (0..10).map(|n| (n.to_string(), if n == 0 { 1_010 } else { 10 })).collect();
        let with_in = |measured_ns: u64, client: u64, server: u64, fault| {
            let beside = serde_json::json!({ "beside": { "client_waited_ns": client, "server_waited_ns": server,
                "paused_ns": 0, "measured_ns": measured_ns } });
            noise(&kept(&beside), &calls, fault).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let with = |client, server, fault| with_in(2_000, client, server, fault);
        assert_eq!(with(499, 0, Cause::Rto), [""; 0]);
        // The calls take 1,100 in total: over 550, two of them are in flight at any time, and both wait.
        assert_eq!(with_in(550, 250, 0, Cause::Rto), ["run-queue (client)", "cpu-saturated"]);
        assert_eq!(with_in(550, 249, 0, Cause::Rto), [""; 0]);
        assert_eq!(with(600, 0, Cause::Rto), ["run-queue (client)", "cpu-saturated"]);
        assert_eq!(with(600, 600, Cause::CpuQuota), [""; 0], "there it is the fault that they show");
    }
}
