//! Recovery of a head whose first line is damaged. Format 2 has a second copy. Format 1 had a single one, which
//! is mostly the plan, and a rollback can do without the plan.

use super::Head;
use crate::plan::{IrqbalancePolicy, NetCpus, Plan, Policy};
use serde::Deserialize;
use spangap_model::Cpus;
use std::path::PathBuf;

/// Readable part of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadRead {
    /// Everything.
    Whole,
    /// Everything except the plan, which is then empty.
    ButThePlan,
    /// Nothing, not even the machine and the boot it belongs to.
    Lost,
}

/// The fields before the plan.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BeforeThePlan {
    format: String,
    boot_id: String,
    net_namespace: Option<u64>,
    root: Option<PathBuf>,
    time_unix_ns: u64,
    confirm_within_ns: Option<u64>,
}

/// The head as read, or as much of it as the journal's bytes yield.
pub fn head(read: Option<Head>, bytes: &[u8]) -> (Head, HeadRead) {
    match read {
        // Without a checksum, the boot id, which occurs twice, must confirm itself.
        Some(head) if head.format == Head::BEFORE && head.boot_id != head.plan.boot_id => {
            (lost(), HeadRead::Lost)
        }
        Some(head) => (head, HeadRead::Whole),
        None => before_the_plan(bytes).map_or((lost(), HeadRead::Lost), |head| (head, HeadRead::ButThePlan)),
    }
}

fn before_the_plan(bytes: &[u8]) -> Option<Head> {
    let line = bytes.split(|byte| *byte == b'\n').next()?;
    let line = String::from_utf8_lossy(line);
    let (before, plan) = line.split_once(",\"plan\":")?;
    let head: BeforeThePlan = serde_json::from_str(&format!("{before}}}")).ok()?;
    if head.boot_id.is_empty() || !plan.contains(&format!("\"boot_id\":\"{}\"", head.boot_id)) {
        return None;
    }
    let BeforeThePlan { format, boot_id, net_namespace, root, time_unix_ns, confirm_within_ns } = head;
    Some(Head { format, boot_id, net_namespace, root, time_unix_ns, confirm_within_ns, ..lost() })
}

fn lost() -> Head {
    let policy = Policy {
        interfaces: Vec::new(),
        net_cpus: NetCpus::Auto,
        queues: false,
        cpusets: false,
        irqbalance: IrqbalancePolicy::Leave,
    };
    let plan = Plan {
        format: Plan::FORMAT.to_owned(),
        boot_id: String::new(),
        policy,
        net_cpus: Cpus::default(),
        app_cpus: Cpus::default(),
        choice: Vec::new(),
        changes: Vec::new(),
        planned_again_after_queues: false,
        notes: Vec::new(),
        permanent: Vec::new(),
        before: None,
    };
    Head {
        format: Head::FORMAT.to_owned(),
        boot_id: String::new(),
        net_namespace: None,
        root: None,
        time_unix_ns: 0,
        confirm_within_ns: None,
        plan,
    }
}
