//! Which tasks may run on the network's CPUs.

use super::{EffectInput, EffectVerdict, Judgement, counted, first, percent};
use crate::place::Place;
use crate::plan::Part;
use crate::topology::{Group, Owner, PinnedTask, Version};
use crate::verify::counter_deltas::total_ticks;
use spangap_model::Cpus;
use std::collections::BTreeSet;

/// Application threads that may run on the network's CPUs.
pub fn user_tasks(look: &EffectInput<'_>) -> Judgement {
    let net = look.net();
    let mut evidence = Vec::new();
    for cpu in net.iter() {
        if let Ok(load) = look.since.cpu(cpu) {
            let all = total_ticks(&load);
            if all > 0 {
                let share = percent(load.tasks_ticks, all);
                evidence.push((load.tasks_ticks, format!("CPU {cpu}: tasks had {share} of the time")));
            }
        }
    }
    evidence.sort_by_key(|(ticks, _)| std::cmp::Reverse(*ticks));
    let ran = evidence.iter().any(|(ticks, _)| *ticks > 0);
    let mut evidence = first(evidence.into_iter().map(|(_, words)| words));
    if ran {
        evidence.push("threads of the kernel, such as ksoftirqd, count as tasks there".into());
    }
    let Some(cpusets) = &look.now.cpusets else {
        return match look.cpusets() {
            true => Judgement::cannot_tell("user-tasks", "no cpuset controller is mounted here"),
            false => Judgement::new(
                "user-tasks",
                EffectVerdict::Remark,
                "any thread may run there: the plan has no cpusets",
            ),
        }
        .with(evidence);
    };
    let (mut all, mut named) = (0_u64, Vec::new());
    for group in &cpusets.groups {
        let Some(effective) = &group.effective else { continue };
        if effective.both(net).is_empty() {
            continue;
        }
        let users = u64::from(group.tasks.saturating_sub(group.kernel_tasks));
        let off = users_of(look, group).filter(|task| task.allowed.both(net).is_empty()).count() as u64;
        let allowed = users.saturating_sub(off);
        if allowed > 0 {
            all = all.saturating_add(allowed);
            let on: Vec<String> = users_of(look, group)
                .filter(|task| !task.allowed.both(net).is_empty())
                .take(3)
                .map(|task| format!("{} ({}) pinned to {}", task.comm, task.tid, task.allowed))
                .collect();
            let on = if on.is_empty() { String::new() } else { format!(": {}", on.join(", ")) };
            let ours = if group.owner == Owner::Ours { ", moved there by somebody" } else { "" };
            named.push((allowed, format!("{} in {}{ours}{on}", counted(allowed, "thread"), group.path)));
        }
    }
    named.sort_by_key(|(threads, _)| std::cmp::Reverse(*threads));
    let mut list = first(named.into_iter().map(|(_, words)| words));
    list.append(&mut evidence);
    let unread = cpusets.groups.iter().filter(|group| group.effective.is_none() && group.tasks > 0).count();
    let judgement = match (look.cpusets(), all) {
        (false, 0) => {
            Judgement::new("user-tasks", EffectVerdict::Remark, "no thread of an application may run there")
        }
        (false, _) => {
            let summary = format!("{} may run there: the plan has no cpusets", counted(all, "thread"));
            Judgement::new("user-tasks", EffectVerdict::Remark, summary)
        }
        (true, 0) if unread > 0 => {
            Judgement::cannot_tell("user-tasks", format!("the CPUs of {unread} cgroups are not known"))
        }
        (true, 0) => {
            Judgement::new("user-tasks", EffectVerdict::Holds, "no thread of an application may run there")
        }
        (true, _) => {
            let summary = format!("{} of applications may run on {}", counted(all, "thread"), net.words());
            Judgement::new("user-tasks", EffectVerdict::DoesNotHold, summary)
        }
    };
    judgement.with(list)
}

/// Pinned threads of a group, without kernel threads.
fn users_of<'a>(look: &'a EffectInput<'_>, group: &'a Group) -> impl Iterator<Item = &'a PinnedTask> {
    look.now.pinned.iter().filter(move |task| !task.kernel && task.group == group.path)
}

/// Converts a file in a cgroup's folder to the group's path below the mount.
fn group_of<'a>(mount: &str, path: &'a str) -> Option<&'a str> {
    let below = path.strip_prefix(mount)?.rsplit_once('/')?.0;
    Some(if below.is_empty() { "/" } else { below })
}

/// Groups that the plan changes, below the mount.
fn planned<'a>(look: &'a EffectInput<'_>, mount: &str) -> BTreeSet<&'a str> {
    let of_place = |place: &'a Place| match place {
        Place::File { path } => group_of(mount, path),
        Place::Group { path } => path.strip_prefix(mount),
        _ => None,
    };
    look.plan.changes.iter().filter_map(|change| of_place(&change.place)).collect()
}

/// Whether our group is what it was made for.
pub fn partition(look: &EffectInput<'_>) -> Option<Judgement> {
    if !look.cpusets() {
        return None;
    }
    let what = "partition";
    let Some(cpusets) = &look.now.cpusets else {
        return Some(Judgement::new(
            what,
            EffectVerdict::DoesNotHold,
            "no cpuset controller is mounted any longer",
        ));
    };
    let net = look.net();
    let ours = |group: &&Group| group.owner == Owner::Ours;
    // Version 1 also has a group for applications, without these CPUs.
    let for_net = |group: &&Group| {
        let set = group.cpus.as_ref().filter(|cpus| !cpus.is_empty()).or(group.effective.as_ref());
        group.partition.is_some() || set.is_none_or(|cpus| !cpus.both(net).is_empty())
    };
    let Some(group) = cpusets.groups.iter().filter(ours).find(for_net) else {
        return Some(Judgement::new(
            what,
            EffectVerdict::DoesNotHold,
            "the group of the network's CPUs is gone",
        ));
    };
    let path = &group.path;
    let effective = group.effective.clone().unwrap_or_default();
    let evidence = vec![format!("{path} has {}", effective.words())];
    let judgement = match (&group.partition, cpusets.version) {
        (Some(state), _) if state.contains("invalid") => {
            Judgement::new(what, EffectVerdict::DoesNotHold, format!("{path} is {state}"))
        }
        (Some(state), _) if state == "isolated" || state == "root" => {
            let lacking = net.without(&effective);
            if lacking.is_empty() {
                Judgement::new(
                    what,
                    EffectVerdict::Holds,
                    format!("{path} is {state}, with {}", effective.words()),
                )
            } else {
                let summary = format!("{path} is {state}, but lacks {}", lacking.words());
                Judgement::new(what, EffectVerdict::DoesNotHold, summary)
            }
        }
        (Some(state), _) => {
            Judgement::new(what, EffectVerdict::DoesNotHold, format!("{path} is {state}, not a partition"))
        }
        (None, Version::V2) => Judgement::cannot_tell(what, format!("{path} does not tell its partition")),
        (None, Version::V1) => {
            let lacking = net.without(&effective);
            if lacking.is_empty() {
                let exclusive = if group.exclusive { "exclusive" } else { "not exclusive" };
                let summary = format!("{path} has {}, {exclusive}", effective.words());
                Judgement::new(what, EffectVerdict::Holds, summary)
            } else {
                Judgement::new(what, EffectVerdict::DoesNotHold, format!("{path} lacks {}", lacking.words()))
            }
        }
    };
    Some(judgement.with(evidence))
}

/// Whether other groups have any of the network's CPUs; groups created after the plan are judged separately.
pub fn sets(look: &EffectInput<'_>) -> Vec<Judgement> {
    let (true, Some(cpusets)) = (look.cpusets(), &look.now.cpusets) else { return Vec::new() };
    let net = look.net();
    let planned = planned(look, &cpusets.mount);
    let (mut known, mut new) = (Vec::new(), Vec::new());
    for group in cpusets.groups.iter().filter(|group| group.owner != Owner::Ours) {
        // The root of version 1 always has all CPUs; it is judged by its tasks.
        if group.owner == Owner::Root && cpusets.version == Version::V1 {
            continue;
        }
        let Some(effective) = &group.effective else { continue };
        let both = effective.both(net);
        if both.is_empty() {
            continue;
        }
        let tasks = counted(group.tasks.saturating_sub(group.kernel_tasks), "thread");
        let line = format!("{} has {} ({tasks})", group.path, both.words());
        // In version 2 groups lose CPUs without being changed, so none is in the plan.
        let is_new = cpusets.version == Version::V1 && !planned.contains(group.path.as_str());
        if is_new { new.push(line) } else { known.push(line) }
    }
    let judge = |what, list: Vec<String>, none: String, some: String| match list.is_empty() {
        true => Judgement::new(what, EffectVerdict::Holds, none),
        false => Judgement::new(what, EffectVerdict::DoesNotHold, some).with(first(list.into_iter())),
    };
    let (has, came) = (known.len() as u64, new.len() as u64);
    let mut all = vec![judge(
        "effective-sets",
        known,
        format!("no other cgroup has any of {}", net.words()),
        format!("{} of others, with CPUs of {net}", counted(has, "cgroup")),
    )];
    if cpusets.version == Version::V1 {
        all.push(judge(
            "new-cgroups",
            new,
            "no new one has any of these CPUs".into(),
            format!("{} new, with CPUs of {net}: apply again", counted(came, "cgroup")),
        ));
    }
    all
}

/// Whether the scheduler moves tasks to and from the network's CPUs.
pub fn balancing(look: &EffectInput<'_>) -> Option<Judgement> {
    let wanted = look.plan.changes.iter().any(|change| {
        change.part == Part::Cpusets
            && (change.to == "isolated" || change.place.to_string().ends_with("load_balance"))
    });
    if !wanted {
        return None;
    }
    let net = look.net();
    let what = "balancing";
    let Some(balanced) = &look.now.balanced else {
        return Some(Judgement::cannot_tell(what, "/proc/schedstat does not list the scheduler's domains"));
    };
    let still = balanced.both(net);
    Some(if still.is_empty() {
        Judgement::new(what, EffectVerdict::Holds, format!("{} in no domain of the scheduler", is_are(net)))
    } else {
        let root = "a partition that is `root` only, or version 1 with sched_load_balance left on in the root, is balanced";
        Judgement::new(
            what,
            EffectVerdict::DoesNotHold,
            format!("{} still balanced with others", is_are(&still)),
        )
        .with(vec![root.into()])
    })
}

fn is_are(cpus: &Cpus) -> String {
    format!("{} {}", cpus.words(), if cpus.len() == 1 { "is" } else { "are" })
}

/// Kernel threads that stay there.
pub fn kernel_threads(look: &EffectInput<'_>) -> Option<Judgement> {
    let net = look.net();
    let stays = |task: &&PinnedTask| task.kernel && task.bound && !task.allowed.both(net).is_empty();
    let bound: Vec<&PinnedTask> = look.now.pinned.iter().filter(stays).collect();
    if bound.is_empty() {
        return None;
    }
    let threads = counted(bound.len(), "thread");
    let summary = format!("{threads} of the kernel bound to {}, as expected", net.words());
    let evidence = first(bound.iter().map(|task| format!("{} ({})", task.comm, task.tid)));
    Some(Judgement::new("kernel-threads", EffectVerdict::Remark, summary).with(evidence))
}
