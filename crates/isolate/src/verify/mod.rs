//! Whether what was applied holds: by reading it back, and by what it does; what it won, and what it costs.

pub mod order;
pub mod proof;
