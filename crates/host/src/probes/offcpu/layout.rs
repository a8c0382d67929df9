//! Facts from the kernel's own type information that the program depends on.

use super::PROBE;
use super::cgroups::Hierarchy;
use crate::kernel::{ProbeError, refused};
use libbpf_rs::btf::types::{Enum, FuncProto, Struct, Typedef};
use libbpf_rs::btf::{Btf, ReferencesType as _};
use std::ffi::OsStr;

/// The kernel's types.
pub struct Layout(Btf<'static>);

impl Layout {
    /// Reads the type information.
    ///
    /// # Errors
    /// The kernel has none.
    pub fn of_this_kernel() -> Result<Layout, ProbeError> {
        Btf::from_vmlinux().map(Layout).map_err(|error| refused(PROBE, error))
    }

    /// Whether the tracepoint of switches passes the state in which the thread left: since 5.18, and in some
    /// distributions' 5.15.
    pub fn switch_has_state(&self) -> bool {
        let trace = self.0.type_by_name::<Typedef<'_>>("btf_trace_sched_switch");
        // The type is a pointer to the function, whose first argument is the tracepoint's own data.
        let proto = trace.map(|trace| trace.referenced_type().skip_mods_and_typedefs());
        let proto =
            proto.and_then(|pointer| pointer.next_type()).and_then(|proto| FuncProto::try_from(proto).ok());
        proto.is_some_and(|proto| proto.len() >= 5)
    }

    /// Whether a struct has a field.
    fn has(&self, name: &str, field: &str) -> bool {
        let found = self.0.type_by_name::<Struct<'_>>(name);
        found.is_some_and(|found| found.iter().any(|member| member.name == Some(OsStr::new(field))))
    }

    /// Whether a switch shows that a thread's quota is used up.
    pub fn tells_throttled(&self) -> Throttled {
        if self.has("task_struct", "throttled") {
            Throttled::Exact
        } else if self.has("cfs_rq", "throttle_count") {
            Throttled::WhenItLeaves
        } else {
            Throttled::NoQuota
        }
    }

    /// Checks the features that the program requires.
    ///
    /// # Errors
    /// A feature is missing.
    pub fn suffices(&self) -> Result<(), ProbeError> {
        let needed = [
            ("sched_info", "last_queued", "account of run-queue waits (CONFIG_SCHED_INFO)"),
            ("sched_entity", "cfs_rq", "scheduling of groups (CONFIG_FAIR_GROUP_SCHED)"),
            ("cfs_rq", "rq", "scheduling of groups (CONFIG_FAIR_GROUP_SCHED)"),
        ];
        match needed.into_iter().find(|(name, field, _)| !self.has(name, field)) {
            Some((_, _, what)) => {
                Err(ProbeError::Lacks { what: what.into(), since: "2.6.24, unless it is configured out" })
            }
            None => Ok(()),
        }
    }

    /// Number of a version 1 controller in this kernel.
    ///
    /// # Errors
    /// The kernel has no controller of that name.
    pub fn controller(&self, hierarchy: &Hierarchy) -> Result<u32, ProbeError> {
        let Hierarchy::V1(name) = hierarchy else { return Ok(u32::MAX) };
        // Where a controller's name differs between the versions, the kernel uses that of version 2.
        let kernels = if name == "blkio" { "io" } else { name };
        let wanted = format!("{kernels}_cgrp_id");
        let ids = self.0.type_by_name::<Enum<'_>>("cgroup_subsys_id");
        let value = ids.and_then(|ids| {
            ids.iter().find(|member| member.name == Some(OsStr::new(&wanted))).map(|member| member.value)
        });
        value.and_then(|value| u32::try_from(value).ok()).ok_or_else(|| ProbeError::Lacks {
            what: format!("cgroup controller {name}"),
            since: "its configuration",
        })
    }
}

/// How precisely waits for CPU quota are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Throttled {
    /// Every one is observed: since 6.18.
    Exact,
    /// Observed for threads that leave the CPU because of it; a thread woken while the quota was used up counts
    /// as woken.
    WhenItLeaves,
    /// The kernel has no CPU quotas.
    NoQuota,
}
