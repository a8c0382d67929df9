//! What the build made of the eBPF programs: generated code.
#![allow(unsafe_code, missing_docs, clippy::all, dead_code, unused_imports)]

pub mod intervals {
    include!(concat!(env!("OUT_DIR"), "/intervals.skel.rs"));
}

pub mod offcpu {
    include!(concat!(env!("OUT_DIR"), "/offcpu.skel.rs"));
}
