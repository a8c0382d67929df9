//! Names of threads, cgroups, interrupts and interfaces, as reports show them.
