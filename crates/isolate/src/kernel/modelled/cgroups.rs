//! Cpusets of both versions.

use super::{Answer, Group, Partition, State, parent};
use rustix::io::Errno;
use spangap_model::Cpus;

const NOT_EXCLUSIVE: &str = "Cpu list in cpuset.cpus not exclusive";
const NO_CPUS: &str = "Invalid cpu list in cpuset.cpus";
const PARENT_LEFT_EMPTY: &str = "Parent unable to distribute cpu downstream";

impl State {
    pub fn mount(&self) -> &'static str {
        if self.flavour.v2 { "/sys/fs/cgroup" } else { "/sys/fs/cgroup/cpuset" }
    }

    /// Folder of a group.
    pub fn at(&self, group: &str) -> String {
        format!("{}{}", self.mount(), group.trim_end_matches('/'))
    }

    /// Group of a folder.
    pub fn group_at(&self, folder: &str) -> Option<String> {
        let group = folder.strip_prefix(self.mount())?;
        let group = if group.is_empty() { "/" } else { group };
        self.groups.contains_key(group).then(|| group.to_owned())
    }

    pub fn in_cgroups(&self, path: &str) -> bool {
        path.strip_prefix(self.mount()).is_some_and(|rest| rest.starts_with('/'))
    }

    fn children(&self, group: &str) -> Vec<String> {
        let below = |other: &&String| *other != "/" && parent(other) == group;
        self.groups.keys().filter(below).cloned().collect()
    }

    fn tasks_in(&self, group: &str) -> bool {
        self.tasks.values().any(|task| task.group == group)
    }

    /// Effective CPUs of a group.
    pub fn effective(&self, group: &str) -> Cpus {
        let own = &self.groups[group];
        if self.flavour.v2 { own.effective.clone() } else { own.cpus.clone() }
    }

    /// Whether a version 2 group has the controller's files.
    fn has_cpuset(&self, group: &str) -> bool {
        !self.flavour.v2 || (group != "/" && self.enabled)
    }

    pub fn read_group_file(&self, path: &str) -> Option<String> {
        let (folder, name) = path.rsplit_once('/')?;
        let group = self.group_at(folder)?;
        let own = &self.groups[&group];
        let flag = |flag: bool| Some(u32::from(flag).to_string());
        if !self.flavour.v2 {
            return match name {
                "cpuset.cpus" | "cpuset.effective_cpus" => Some(own.cpus.to_string()),
                "cpuset.mems" => Some(own.mems.to_string()),
                "cpuset.cpu_exclusive" => flag(own.exclusive),
                "cpuset.sched_load_balance" => flag(own.balanced),
                "tasks" | "cgroup.procs" => Some(self.listing(&group)),
                _ => None,
            };
        }
        match name {
            "cgroup.controllers" if group == "/" => Some("cpuset cpu io memory pids".into()),
            "cgroup.subtree_control" if group == "/" => {
                Some(if self.enabled { "+cpuset" } else { "-cpuset" }.into())
            }
            "cgroup.procs" | "cgroup.threads" => Some(self.listing(&group)),
            "cpuset.cpus.effective" if group == "/" || self.enabled => Some(own.effective.to_string()),
            "cpuset.cpus" if self.has_cpuset(&group) => Some(own.cpus.to_string()),
            "cpuset.mems" if self.has_cpuset(&group) => Some(own.mems.to_string()),
            "cpuset.cpus.partition" if self.has_cpuset(&group) => Some(match &own.partition {
                Partition::Member => "member".into(),
                Partition::Valid(kind) => kind.clone(),
                Partition::Invalid(kind) => format!("{kind} invalid ({})", self.why_invalid(&group)),
            }),
            _ => None,
        }
    }

    fn listing(&self, group: &str) -> String {
        let ids = self.tasks.iter().filter(|(_, task)| task.group == group);
        ids.map(|(tid, _)| tid.to_string()).collect::<Vec<_>>().join("\n")
    }

    pub fn write_group_file(&mut self, path: &str, text: &str) -> Answer {
        let (folder, name) = path.rsplit_once('/').ok_or(Errno::NOENT)?;
        let group = self.group_at(folder).ok_or(Errno::NOENT)?;
        self.read_group_file(path).ok_or(Errno::NOENT)?;
        if self.flavour.v2 { self.write_v2(&group, name, text) } else { self.write_v1(&group, name, text) }
    }

    fn write_v1(&mut self, group: &str, name: &str, text: &str) -> Answer {
        let mut to = self.groups[group].clone();
        match name {
            "cpuset.cpus" | "cpuset.mems" if group == "/" => return Err(Errno::ACCESS),
            "cpuset.cpus" => to.cpus = Cpus::parse_list(text).ok_or(Errno::INVAL)?,
            "cpuset.mems" => to.mems = Cpus::parse_list(text).ok_or(Errno::INVAL)?,
            "cpuset.cpu_exclusive" => to.exclusive = text.trim() == "1",
            "cpuset.sched_load_balance" => to.balanced = text.trim() == "1",
            _ => return Err(Errno::INVAL),
        }
        if !to.cpus.without(&self.online).is_empty() {
            return Err(Errno::INVAL);
        }
        self.validate_v1(group, &to)?;
        let changed = self.groups.insert(group.to_owned(), to.clone()).is_none_or(|old| old.cpus != to.cpus);
        if changed {
            self.spread_group(group);
        }
        Ok(())
    }

    /// `validate_change`.
    fn validate_v1(&self, group: &str, to: &Group) -> Answer {
        let inside = |inner: &Group, outer: &Group| {
            inner.cpus.without(&outer.cpus).is_empty()
                && inner.mems.without(&outer.mems).is_empty()
                && inner.exclusive <= outer.exclusive
        };
        if self.children(group).iter().any(|child| !inside(&self.groups[child], to)) {
            return Err(Errno::BUSY);
        }
        if group == "/" {
            return Ok(());
        }
        if !inside(to, &self.groups[parent(group)]) {
            return Err(Errno::ACCESS);
        }
        let own = &self.groups[group];
        let emptied =
            (!own.cpus.is_empty() && to.cpus.is_empty()) || (!own.mems.is_empty() && to.mems.is_empty());
        if emptied && self.tasks_in(group) {
            return Err(Errno::NOSPC);
        }
        let mut siblings = self.children(parent(group));
        siblings.retain(|sibling| sibling != group);
        let overlap = siblings
            .iter()
            .map(|sibling| &self.groups[sibling])
            .any(|sibling| (sibling.exclusive || to.exclusive) && !sibling.cpus.both(&to.cpus).is_empty());
        if overlap {
            return Err(Errno::INVAL);
        }
        Ok(())
    }

    fn write_v2(&mut self, group: &str, name: &str, text: &str) -> Answer {
        match name {
            "cgroup.subtree_control" => {
                // Only the root's children are ours.
                if text == "-cpuset" {
                    for group in self.groups.values_mut() {
                        (group.cpus, group.partition) = (Cpus::default(), Partition::Member);
                    }
                }
                self.enabled = text == "+cpuset";
            }
            "cpuset.cpus" => {
                let cpus = Cpus::parse_list(text).ok_or(Errno::INVAL)?;
                if !cpus.without(&self.online).is_empty() {
                    return Err(Errno::INVAL);
                }
                self.groups.get_mut(group).ok_or(Errno::NOENT)?.cpus = cpus;
            }
            "cpuset.cpus.partition" => {
                let kind = text.trim();
                if !["member", "root", "isolated"].contains(&kind) {
                    return Err(Errno::INVAL);
                }
                if kind == "isolated" && self.flavour.no_isolated {
                    return Err(Errno::INVAL);
                }
                // The write succeeds; reading shows whether it took effect.
                let partition = match kind {
                    "member" => Partition::Member,
                    kind if self.may_be_partition(group) => Partition::Valid(kind.to_owned()),
                    kind => Partition::Invalid(kind.to_owned()),
                };
                self.groups.get_mut(group).ok_or(Errno::NOENT)?.partition = partition;
            }
            _ => return Err(Errno::INVAL),
        }
        self.compute_v2();
        Ok(())
    }

    fn why_invalid(&self, group: &str) -> &'static str {
        let own = &self.groups[group].cpus;
        let overlap = |sibling: &String| sibling != group && !self.groups[sibling].cpus.both(own).is_empty();
        if own.is_empty() {
            NO_CPUS
        } else if self.children(parent(group)).iter().any(overlap) {
            NOT_EXCLUSIVE
        } else {
            PARENT_LEFT_EMPTY
        }
    }

    fn may_be_partition(&self, group: &str) -> bool {
        let own = &self.groups[group].cpus;
        let overlap = |sibling: &String| sibling != group && !self.groups[sibling].cpus.both(own).is_empty();
        parent(group) == "/"
            && !own.is_empty()
            && !self.online.without(own).is_empty()
            && !self.children("/").iter().any(overlap)
    }

    /// Partitions take CPUs from the root, and the rest is passed down; a former partition holds nothing.
    pub fn compute_v2(&mut self) {
        let names: Vec<String> = self.groups.keys().cloned().collect();
        for name in &names {
            let may = self.may_be_partition(name);
            let recovers = self.flavour.recovers;
            if let Some(group) = self.groups.get_mut(name) {
                group.partition = match std::mem::take(&mut group.partition) {
                    Partition::Valid(kind) if !may => Partition::Invalid(kind),
                    Partition::Invalid(kind) if may && recovers => Partition::Valid(kind),
                    partition => partition,
                };
            }
        }
        let held = self.groups.values().filter(|group| matches!(group.partition, Partition::Valid(_)));
        let held = held.fold(Cpus::default(), |all, group| all.either(&group.cpus));
        // In path order, parents come before their children.
        for name in &names {
            let above = if name == "/" {
                self.online.without(&held)
            } else {
                self.groups[parent(name)].effective.clone()
            };
            let own = &self.groups[name];
            let effective = match &own.partition {
                Partition::Valid(_) => own.cpus.clone(),
                _ => {
                    let both = own.cpus.both(&above);
                    if both.is_empty() { above } else { both }
                }
            };
            if own.effective != effective {
                self.groups.get_mut(name).expect("it is there").effective = effective;
                self.spread_group(name);
            }
        }
    }

    fn spread_group(&mut self, group: &str) {
        let ids: Vec<u32> =
            self.tasks.iter().filter(|(_, task)| task.group == group).map(|(tid, _)| *tid).collect();
        ids.into_iter().for_each(|tid| self.spread(tid));
    }

    pub fn make_group(&mut self, folder: &str) -> Answer {
        let group = folder.strip_prefix(self.mount()).filter(|group| group.len() > 1).ok_or(Errno::NOENT)?;
        let above = self.groups.get(parent(group)).ok_or(Errno::NOENT)?;
        if self.groups.contains_key(group) {
            return Ok(());
        }
        let made = Group { balanced: true, effective: above.effective.clone(), ..Group::default() };
        self.groups.insert(group.to_owned(), made);
        Ok(())
    }

    pub fn remove_group(&mut self, folder: &str) -> Answer {
        let Some(group) = self.group_at(folder) else { return Err(Errno::NOENT) };
        if self.tasks_in(&group) || !self.children(&group).is_empty() {
            return Err(Errno::BUSY);
        }
        self.groups.remove(&group);
        if self.flavour.v2 {
            self.compute_v2();
        }
        Ok(())
    }
}
