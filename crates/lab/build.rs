//! Compiles the library that runs preload into programs (`src/shim/shim.c`). It becomes part of the binary.

use std::env;
use std::path::PathBuf;
use std::process::Command;

const SOURCE: &str = "src/shim/shim.c";

fn main() {
    println!("cargo:rerun-if-changed={SOURCE}");
    println!("cargo:rerun-if-env-changed=CC");
    let library = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("shim.so");
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".into());
    let compiled = Command::new(&compiler)
        .args(["-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&library)
        .args([SOURCE, "-ldl"])
        .status()
        .unwrap_or_else(|error| panic!("{compiler}: {error}; a C compiler has to be there"));
    assert!(compiled.success(), "{compiler} does not compile {SOURCE}: {compiled}");
}
