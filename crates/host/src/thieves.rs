//! Who had the CPUs while the threads of a process wanted them.
