//! Known traps on this host: one trap, one file. Needs no eBPF, and root only where it says so.
