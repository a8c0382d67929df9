//! Tasks: their affinity, and what a change of their group does to it.

use super::{Answer, State};
use rustix::io::Errno;
use spangap_model::Cpus;

impl State {
    /// Moves a task into a group.
    pub fn attach(&mut self, tid: u32, group: &str) -> Answer {
        let task = self.tasks.get(&tid).ok_or(Errno::SRCH)?;
        if task.bound {
            return Err(Errno::INVAL);
        }
        let to = &self.groups[group];
        if group != "/" && !self.flavour.v2 && (to.cpus.is_empty() || to.mems.is_empty()) {
            return Err(Errno::NOSPC);
        }
        if let Some(task) = self.tasks.get_mut(&tid) {
            task.group = group.to_owned();
        }
        self.spread(tid);
        Ok(())
    }

    /// Updates a task after the CPUs of its group changed.
    pub fn spread(&mut self, tid: u32) {
        let Some(group) = self.tasks.get(&tid).map(|task| task.group.clone()) else { return };
        let effective = self.effective(&group);
        let Some(task) = self.tasks.get_mut(&tid) else { return };
        if task.bound {
            return;
        }
        // The kernel never remembers what its own threads were bound to.
        let keeps = self.flavour.keeps_pinned && !task.kernel;
        let asked = task.asked.as_ref().filter(|_| keeps).map(|asked| asked.both(&effective));
        task.allowed = asked.filter(|cpus| !cpus.is_empty()).unwrap_or(effective);
    }

    /// `sched_setaffinity`.
    pub fn pin(&mut self, tid: u32, list: &str) -> Answer {
        let cpus = Cpus::parse_list(list).ok_or(Errno::INVAL)?;
        let task = self.tasks.get(&tid).ok_or(Errno::SRCH)?;
        let allowed = cpus.both(&self.effective(&task.group));
        if task.bound || allowed.is_empty() {
            return Err(Errno::INVAL);
        }
        if let Some(task) = self.tasks.get_mut(&tid) {
            task.allowed = allowed;
            task.asked = Some(cpus);
        }
        Ok(())
    }
}
