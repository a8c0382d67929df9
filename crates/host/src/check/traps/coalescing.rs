//! The interface or NAPI holds packets back to process several at once.

use super::super::finding::{FindingDraft, NoVerdict, Severity};
use super::super::look::Inspection;
use super::Trap;
use spangap_model::Cause;
use spangap_model::duration::format_ns;

pub const TRAP: Trap = Trap { name: "coalescing", causes: &[Cause::Coalescing, Cause::BatchedArrival], look };

/// Delays up to this are not reported, in nanoseconds.
const LOW_NS: i64 = 20_000;

fn look(look: &Inspection) -> Result<FindingDraft, NoVerdict> {
    let nics: Vec<_> = look.nics.as_ref()?.iter().filter(|nic| nic.driver.is_some() && nic.up).collect();
    if nics.is_empty() {
        return Err(NoVerdict::from(
            "no hardware interface is up here (is this a separate network namespace?)",
        ));
    }
    // `rx-usecs` would take a request to the driver, which this check does not make.
    let ask = format!(
        "no file tells how long {0} waits before it raises an interrupt: ethtool -c {0} does",
        nics[0].name
    );
    let held: Vec<_> =
        nics.iter().filter(|nic| nic.gro_flush_timeout_ns.as_ref().is_ok_and(|ns| *ns >= LOW_NS)).collect();
    let Some(first) = held.first() else {
        return Err(NoVerdict(format!("{ask}; gro_flush_timeout is {}", first_timeout(&nics))));
    };
    let timeout = |nic: &super::super::facts::nic::Nic| {
        nic.gro_flush_timeout_ns.as_ref().map_or(0, |ns| *ns).max(0) as u64
    };
    let mut judged = FindingDraft::trap(
        Severity::Low,
        format!("{} may hold packets back for {}", first.name, format_ns(timeout(first))),
    )
    .means(
        "packets that arrived one by one are handed to TCP together; the first of them waits for the timeout",
    )
    .unknown(ask);
    for nic in held {
        let deferred = nic.defer_hard_irqs.as_ref().map_or(0, |count| *count);
        judged = judged
            .evidence(format!("gro_flush_timeout {} ns, napi_defer_hard_irqs {deferred}", timeout(nic)), format!("/sys/class/net/{}/gro_flush_timeout", nic.name))
            .fix(format!("echo 0 > /sys/class/net/{0}/gro_flush_timeout; echo 0 > /sys/class/net/{0}/napi_defer_hard_irqs", nic.name));
    }
    Ok(judged)
}

fn first_timeout(nics: &[&super::super::facts::nic::Nic]) -> String {
    match &nics[0].gro_flush_timeout_ns {
        Ok(0) => "off".to_owned(),
        Ok(ns) => format_ns((*ns).max(0) as u64),
        Err(_) => "this kernel does not have it".to_owned(),
    }
}
