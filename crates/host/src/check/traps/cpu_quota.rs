//! A cgroup's CPU quota stops all its threads until the next period begins.

use super::super::facts::cgroup::Group;
use super::super::finding::{FindingDraft, NoVerdict, Severity};
use super::super::look::Inspection;
use super::{Trap, percent, severity};
use spangap_machine::facts::cpu_stat::Throttled;
use spangap_machine::facts::mountinfo::Version;
use spangap_model::Cause;
use spangap_model::duration::format_ns;

pub const TRAP: Trap = Trap { name: "cpu-quota", causes: &[Cause::CpuQuota], look };

/// Share of the periods between the readings that end in throttling.
const HIGH: f64 = 0.10;
const MEDIUM: f64 = 0.01;
/// Share of periods since the cgroup was created that is reported even when nothing is throttled now.
const LOW_EVER: f64 = 0.001;

/// Throttling since the first reading, and in total.
struct Throttling<'a> {
    group: &'a Group,
    now: Option<Throttled>,
    ever: Throttled,
}

fn look(look: &Inspection) -> Result<FindingDraft, NoVerdict> {
    if look.whole_machine() {
        return Err(NoVerdict::from("no process is named (--pid)"));
    }
    let (mut seen, mut unknown, mut limits) = (Vec::new(), Vec::new(), 0);
    for process in look.processes() {
        let groups = process.groups.as_ref()?;
        let before = look.process_before(process.pid).and_then(|process| process.groups.as_ref().ok());
        for group in groups {
            limits += usize::from(matches!(group.quota, Ok(Some(_))));
            match &group.throttled {
                Ok(ever) => {
                    let earlier = before
                        .and_then(|groups| groups.iter().find(|earlier| earlier.folder == group.folder));
                    let now = earlier.and_then(|earlier| Some(since(earlier.throttled.as_ref().ok()?, ever)));
                    seen.push(Throttling { group, now, ever: *ever });
                }
                // The controller is enabled only in an ancestor: no limit applies here.
                Err(error) if error.is_absent() => {}
                Err(error) => unknown.push(error),
            }
        }
    }
    if seen.is_empty() && !unknown.is_empty() {
        return Err(NoVerdict::from(unknown.remove(0)));
    }
    seen.dedup_by(|a, b| a.group.folder == b.group.folder);
    let worst = |seen: &Throttling| {
        let now = seen.now.and_then(|now| severity(share(&now), HIGH, MEDIUM, f64::MIN_POSITIVE));
        now.or_else(|| (share(&seen.ever) >= LOW_EVER).then_some(Severity::Low))
    };
    let Some((severity, first)) =
        seen.iter().filter_map(|seen| Some((worst(seen)?, seen))).min_by_key(|found| found.0)
    else {
        let summary =
            if limits == 0 { "no cgroup of it has a quota".to_owned() } else { "not throttled".to_owned() };
        return Ok(unknown.into_iter().fold(FindingDraft::fine(summary), FindingDraft::unknown));
    };
    let mut judged = FindingDraft::trap(severity, sentence(first));
    for seen in seen.iter().filter(|seen| worst(seen).is_some()) {
        judged = evidence(judged, seen);
    }
    judged = judged.means(
        "when the threads of the cgroup have used up the quota, all of them stop until the period ends, even in the \
         middle of a call; many threads use it up early in the period",
    );
    let folder = &first.group.folder;
    judged = match first.group.version {
        Version::V1 => judged.fix(format!("echo -1 > {folder}/cpu.cfs_quota_us  # no limit")),
        Version::V2 => judged.fix(format!("echo max > {folder}/cpu.max  # no limit")),
    };
    judged = judged.fix(
        "# permanently: no CPU limit (Kubernetes: limits.cpu; systemd: CPUQuota=), or one well above the peak",
    );
    let throttled_now = seen.iter().filter_map(|seen| seen.now).any(|now| share(&now) > 0.0);
    let judged = judged.counted(Cause::CpuQuota, throttled_now).of_the_processes();
    Ok(unknown.into_iter().fold(judged, FindingDraft::unknown))
}

fn since(before: &Throttled, after: &Throttled) -> Throttled {
    Throttled {
        periods: after.periods.saturating_sub(before.periods),
        throttled: after.throttled.saturating_sub(before.throttled),
        ns: after.ns.saturating_sub(before.ns),
    }
}

fn share(throttled: &Throttled) -> f64 {
    if throttled.periods == 0 { 0.0 } else { throttled.throttled as f64 / throttled.periods as f64 }
}

fn sentence(seen: &Throttling) -> String {
    // The evidence holds the full figures.
    let name = seen.group.name.rsplit('/').next().unwrap_or_default();
    let name = if name.is_empty() { "the root cgroup" } else { name };
    match seen.now.filter(|now| now.throttled > 0) {
        Some(now) => format!("{name} was stopped in {} of {} periods just now", now.throttled, now.periods),
        None => {
            let ever = seen.ever;
            format!("{name} was stopped before: in {} of {} periods", ever.throttled, ever.periods)
        }
    }
}

fn evidence(judged: FindingDraft, seen: &Throttling) -> FindingDraft {
    let Throttling { group, now, ever } = seen;
    let now = now.map_or(String::new(), |now| {
        format!(
            "nr_periods +{}, nr_throttled +{} ({}), throttled time of all CPUs +{}; ",
            now.periods,
            now.throttled,
            percent(now.throttled as f64, now.periods as f64),
            format_ns(now.ns)
        )
    });
    let total = format!("in total {} of {} periods, {}", ever.throttled, ever.periods, format_ns(ever.ns));
    let judged = judged.evidence(format!("{now}{total}"), format!("{}/cpu.stat", group.folder));
    let file = if group.version == Version::V1 { "cpu.cfs_quota_us" } else { "cpu.max" };
    match &group.quota {
        Ok(Some(quota)) => judged.evidence(
            format!(
                "quota {} us per period of {} us: {:.2} CPUs",
                quota.quota_us,
                quota.period_us,
                quota.quota_us as f64 / quota.period_us.max(1) as f64
            ),
            format!("{}/{file}", group.folder),
        ),
        Ok(None) => judged.evidence("no quota any more", format!("{}/{file}", group.folder)),
        Err(error) => judged.unknown(error),
    }
}
