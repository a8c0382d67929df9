//! What files of a machine say, as values: one reader for each file that several parts of this program need, so that
//! they cannot disagree. Readers are pure; what cannot be read says where and why.
//!
//! A reader takes the path for its errors and the text, so that it serves a [`Host`](crate::Host), a file that is kept
//! open, and what another namespace was asked for. `tools/house` lists these files: nobody else names them to read them.

pub mod boot_id;
pub mod cpu_list;
pub mod cpu_manager_state;
pub mod cpu_stat;
pub mod cpu_table;
pub mod cpuinfo;
pub mod descriptors;
pub mod figures;
pub mod mountinfo;
pub mod net_counters;
pub mod net_dev;
pub mod net_tcp;
pub mod process_cgroup;
pub mod process_stat;
pub mod process_status;
pub mod schedstat;
pub mod softnet_stat;
pub mod stat;
#[cfg(test)]
mod tests;
pub mod uptime;
