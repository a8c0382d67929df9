//! Compiles the eBPF program of every folder of `src/probes`.

use libbpf_cargo::SkeletonBuilder;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for entry in fs::read_dir("src/probes").expect("src/probes") {
        let folder = entry.expect("an entry of src/probes").path();
        let source = folder.join("probe.bpf.c");
        if source.exists() {
            build(&folder, &source, &out);
        }
    }
    println!("cargo:rerun-if-changed=src/probes");
    println!("cargo:rerun-if-changed=bpf");
}

fn build(folder: &Path, source: &Path, out: &Path) {
    let name = folder.file_name().and_then(|name| name.to_str()).expect("a probe's name is text");
    SkeletonBuilder::new()
        .source(source)
        .clang_args(["-Ibpf", "-Wall", "-Werror", "-mcpu=v3"])
        .build_and_generate(out.join(format!("{name}.skel.rs")))
        .unwrap_or_else(|error| panic!("{}: {error:#}", source.display()));
}
