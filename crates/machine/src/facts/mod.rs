//! Contents of a machine's files as values: one reader for each file that several parts of this program need,
//! so that they cannot disagree. Readers are pure; an error says where and why.
//!
//! A reader takes the text, and the path for its errors, so that it works for a [`Host`](crate::Host), for a
//! file kept open, and for a response from another namespace. `tools/house` lists these files: no other code
//! may name them to read them.

pub mod boot_id;
pub mod cpu_list;
pub mod cpu_manager_state;
pub mod cpu_stat;
pub mod cpu_table;
pub mod cpuinfo;
pub mod descriptors;
pub mod figures;
pub mod meminfo;
pub mod mountinfo;
pub mod net_counters;
pub mod net_dev;
pub mod net_tcp;
pub mod process_cgroup;
pub mod process_namespace;
pub mod process_stat;
pub mod process_status;
pub mod schedstat;
pub mod softnet_stat;
pub mod stat;
pub mod system_name;
#[cfg(test)]
mod tests;
pub mod uptime;
