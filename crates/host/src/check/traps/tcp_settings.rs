//! TCP settings that slow calls down.

use super::super::finding::{FindingDraft, NoVerdict, Severity};
use super::super::look::Inspection;
use super::Trap;
use spangap_model::Cause;
use std::ops::RangeInclusive;

pub const TRAP: Trap =
    Trap { name: "tcp-settings", causes: &[Cause::NetworkDelay, Cause::LargePayload], look };

/// Settings and their harmless values. `tcp_slow_start_after_idle` defaults to 1, which is harmful.
const HARMLESS: &[(&str, RangeInclusive<i64>)] =
    &[("net/ipv4/tcp_slow_start_after_idle", 0..=0), ("net/ipv4/tcp_autocorking", 0..=1)];

fn look(look: &Inspection) -> Result<FindingDraft, NoVerdict> {
    off_default(
        look,
        HARMLESS,
        |judged| {
            judged.means(
            "with tcp_slow_start_after_idle (the default) a connection that was idle for one RTO (200 ms or more) \
             restarts with 10 segments per round trip: messages above about 14 KB need more round trips than before \
             the pause",
        )
        },
        Severity::Low,
    )
}

/// A trap if a setting lies outside its harmless range.
pub fn off_default(
    look: &Inspection,
    ranges: &[(&'static str, RangeInclusive<i64>)],
    means: impl Fn(FindingDraft) -> FindingDraft,
    severity: Severity,
) -> Result<FindingDraft, NoVerdict> {
    let (mut off, mut known, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
    for (name, range) in ranges {
        match look.settings.get(name) {
            Some(Ok(value)) => {
                known.push((*name, *value));
                if !range.contains(value) {
                    off.push((*name, *value, *range.start()));
                }
            }
            Some(Err(error)) => unknown.push(error),
            None => {}
        }
    }
    if let (true, Some(error)) = (known.is_empty(), unknown.first()) {
        return Err(NoVerdict::from(*error));
    }
    let short = |name: &str| name.rsplit('/').next().unwrap_or(name).to_owned();
    let words = |all: &[(&str, i64)]| {
        all.iter().map(|(name, value)| format!("{} {value}", short(name))).collect::<Vec<_>>().join(", ")
    };
    if off.is_empty() {
        return Ok(FindingDraft::fine(words(&known)));
    }
    let values: Vec<(&str, i64)> = off.iter().map(|(name, value, _)| (*name, *value)).collect();
    let mut judged = means(FindingDraft::trap(severity, words(&values)));
    for (name, value, better) in off {
        judged = judged
            .evidence(format!("{} {value}", short(name)), format!("/proc/sys/{name}"))
            .fix(format!("sysctl -w {}={better}", name.replace('/', ".")));
    }
    Ok(unknown.into_iter().filter(|error| !error.is_absent()).fold(judged, FindingDraft::unknown))
}
