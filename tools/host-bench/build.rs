//! Compiles the empty programs.

use libbpf_cargo::SkeletonBuilder;
use std::env;
use std::path::PathBuf;

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    SkeletonBuilder::new()
        .source("src/floor/empty.bpf.c")
        .obj(out.join("empty.o"))
        .clang_args(["-Wall", "-Werror", "-mcpu=v3"])
        .build()
        .unwrap_or_else(|error| panic!("src/floor/empty.bpf.c: {error:#}"));
    println!("cargo:rerun-if-changed=src/floor/empty.bpf.c");
}
