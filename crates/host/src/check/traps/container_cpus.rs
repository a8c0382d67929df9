//! A container shares its CPUs although it could have them exclusively, or another container claims the same
//! CPUs exclusively.

use super::super::facts::cgroup::Group;
use super::super::facts::kubelet::{self, Pod, Qos};
use super::super::facts::process::Process;
use super::super::finding::{FindingDraft, NoVerdict, Severity};
use super::super::look::Inspection;
use super::super::{Cpus, Known};
use super::Trap;
use spangap_machine::facts::cpu_manager_state::{self, ExclusiveCpus};
use spangap_machine::facts::mountinfo::Version;
use spangap_model::Cause;

pub const TRAP: Trap = Trap { name: "container-cpus", causes: &[Cause::RunQueue, Cause::CpuQuota], look };

fn look(look: &Inspection) -> Result<FindingDraft, NoVerdict> {
    let mut judged: Option<FindingDraft> = None;
    let mut seen_any = false;
    for process in look.processes() {
        let groups = process.groups.as_ref()?;
        let pod = groups.iter().find_map(|group| kubelet::pod(&group.name));
        seen_any = true;
        let one = match pod {
            Some(pod) => of_pod(look, process, groups, &pod),
            None => of_cgroup(look, process, groups)?,
        };
        // One trap stands for all: the processes of one check are usually alike.
        if judged.as_ref().is_none_or(|judged| !judged.is_trap()) {
            judged = Some(one);
        }
    }
    match judged {
        Some(judged) => Ok(judged),
        None if seen_any => Ok(FindingDraft::fine("no container")),
        None => machine(look),
    }
}

/// Without a process: the CPUs that the kubelet has assigned.
fn machine(look: &Inspection) -> Result<FindingDraft, NoVerdict> {
    match &look.kubelet {
        Ok(state) => {
            let taken = together(state.exclusive.iter());
            let summary = format!(
                "CPU manager policy {}; exclusive CPUs of one container: {}",
                state.policy,
                if taken.is_empty() { "none".to_owned() } else { taken.to_string() }
            );
            Ok(FindingDraft::fine(summary).evidence(
                format!("policy {}, shared {}", state.policy, state.shared),
                cpu_manager_state::PATH,
            ))
        }
        Err(error) if error.is_absent() => Ok(FindingDraft::fine("no kubelet here")),
        Err(error) => Err(NoVerdict::from(error)),
    }
}

fn of_pod(look: &Inspection, process: &Process, groups: &[Group], pod: &Pod) -> FindingDraft {
    let cpus = process.cpus();
    let class = match pod.qos {
        Qos::Guaranteed => "Guaranteed",
        Qos::Burstable => "Burstable",
        Qos::BestEffort => "BestEffort",
    };
    let own = &groups[0];
    let is_its = |one: &ExclusiveCpus| one.is_of(&pod.uid, &own.name);
    let state = &look.kubelet;
    let (found, summary) = match state {
        Err(_) => (
            (pod.qos != Qos::Guaranteed).then_some(Severity::Low),
            format!("{class} pod on CPUs {cpus}; whether they are exclusive is unknown"),
        ),
        Ok(state) => {
            let (its, others): (Vec<_>, Vec<_>) = state.exclusive.iter().partition(|one| is_its(one));
            let (alone, others) = (together(its), together(others));
            let clash = others.both(&cpus);
            let shared = cpus.without(&alone);
            if !clash.is_empty() {
                (
                    Some(Severity::High),
                    format!(
                        "{class} pod runs on CPUs {clash}, which the kubelet gave exclusively to another container"
                    ),
                )
            } else if !alone.is_empty() && shared.is_empty() {
                (None, format!("{class} pod has CPUs {cpus} exclusively"))
            } else if state.policy == "none" {
                (
                    Some(Severity::Low),
                    format!("{class} pod on CPUs {cpus}, shared with all pods: CPU manager policy none"),
                )
            } else if pod.qos == Qos::Guaranteed {
                (
                    Some(Severity::Low),
                    format!(
                        "Guaranteed pod on the shared CPUs {cpus}: only whole CPUs (request = limit = 1, 2, ...) \
                         are exclusive"
                    ),
                )
            } else {
                (
                    Some(Severity::Low),
                    format!("{class} pod on the shared CPUs {cpus}: only Guaranteed pods get exclusive CPUs"),
                )
            }
        }
    };
    let mut judged = FindingDraft::when(found, summary).evidence(format!("pod {}, {class}", pod.uid), format!("/proc/{}/cgroup", process.pid)).means(
        "every other pod, and the node's own programs, may run on these CPUs at any time and compete with the \
         threads of this one",
    );
    match state {
        Ok(state) => {
            let whose = |one: &ExclusiveCpus| match (is_its(one), one.pod.as_str()) {
                (true, _) => "this pod".to_owned(),
                (false, "") => "an unnamed pod".to_owned(),
                (false, uid) => uid.to_owned(),
            };
            let taken: Vec<String> = state
                .exclusive
                .iter()
                .map(|one| format!("{} for {} of {}", one.cpus, one.container, whose(one)))
                .collect();
            let taken = if taken.is_empty() { "none".to_owned() } else { taken.join("; ") };
            judged = judged.evidence(
                format!("policy {}, shared: {}, exclusive: {taken}", state.policy, state.shared.words()),
                cpu_manager_state::PATH,
            );
        }
        Err(error) => judged = judged.unknown(error),
    }
    judged = limits(judged, own);
    judged = judged
        .fix("# pod: resources.requests.cpu = limits.cpu = a whole number, memory alike (QoS Guaranteed)");
    if !state.as_ref().is_ok_and(|state| state.policy == "static") {
        judged = judged.fix("# kubelet: cpuManagerPolicy: static, and reservedSystemCPUs; drain the node, remove cpu_manager_state, restart");
    }
    judged
}

fn together<'a>(containers: impl IntoIterator<Item = &'a ExclusiveCpus>) -> Cpus {
    containers.into_iter().fold(Cpus::default(), |all, one| all.either(&one.cpus))
}

/// CPU request and limit of the cgroup.
fn limits(judged: FindingDraft, group: &Group) -> FindingDraft {
    let file = if group.version == Version::V1 { "cpu.shares" } else { "cpu.weight" };
    let judged = match &group.weight {
        Ok(weight) => judged.evidence(format!("{file} {weight}"), format!("{}/{file}", group.folder)),
        Err(error) if error.is_absent() => judged,
        Err(error) => judged.unknown(error),
    };
    match &group.quota {
        Ok(Some(quota)) => judged.evidence(
            format!("limit {:.2} CPUs", quota.quota_us as f64 / quota.period_us.max(1) as f64),
            format!(
                "{}/{}",
                group.folder,
                if group.version == Version::V1 { "cpu.cfs_quota_us" } else { "cpu.max" }
            ),
        ),
        _ => judged,
    }
}

/// Not a pod: a cpuset that excludes CPUs, or a weight below the default.
fn of_cgroup(look: &Inspection, process: &Process, groups: &[Group]) -> Result<FindingDraft, NoVerdict> {
    let own = &groups[0];
    let ordinary = if own.version == Version::V1 { 1024 } else { 100 };
    let light = groups
        .iter()
        .filter(|group| group.weight.as_ref().is_ok_and(|weight| *weight < ordinary && group.name != "/"))
        .collect::<Vec<_>>();
    let few = match look.cpusets.get(&process.pid) {
        Some(Ok(set)) => look
            .online
            .as_ref()
            .ok()
            .filter(|online| !online.without(&set.cpus).is_empty())
            .map(|online| (set, online)),
        _ => None,
    };
    let mut said = Vec::new();
    if let Some((set, online)) = few {
        said.push(format!("its cpuset leaves it CPUs {} of {online}", set.cpus));
    }
    if let Some(group) = light.first() {
        said.push(format!(
            "{} has {} of the ordinary weight",
            group.name,
            super::percent(weight(&group.weight) as f64, ordinary as f64)
        ));
    }
    let found = (!light.is_empty()).then_some(Severity::Low);
    let summary = if said.is_empty() {
        "no pod, no narrower cpuset, ordinary weight".to_owned()
    } else {
        said.join("; ")
    };
    let mut judged = FindingDraft::when(found, summary)
        .means("when CPUs are short, the scheduler gives this cgroup less than its siblings");
    if let Some((set, _)) = few {
        judged = judged.evidence(format!("CPUs {}", set.cpus), set.path.clone());
    }
    if let Some(Err(error)) =
        look.cpusets.get(&process.pid).filter(|set| set.as_ref().is_err_and(|error| !error.is_absent()))
    {
        judged = judged.unknown(error);
    }
    for group in light {
        let file = if group.version == Version::V1 { "cpu.shares" } else { "cpu.weight" };
        judged = judged
            .evidence(
                format!("{file} {}, ordinary is {ordinary}", weight(&group.weight)),
                format!("{}/{file}", group.folder),
            )
            .fix(format!("echo {ordinary} > {}/{file}", group.folder));
    }
    Ok(judged)
}

fn weight(weight: &Known<u64>) -> u64 {
    weight.as_ref().copied().unwrap_or(0)
}
