//! What files of a machine say, as values: one reader for each file that several parts of this program need, so that
//! they cannot disagree. Readers are pure; what cannot be read says where and why.

pub mod cpu_manager_state;
