//! Compiles the Ping service without an installed protobuf compiler.

use prost::Message;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    // Comments stay in, so that reflection can show them.
    let descriptors = protox::compile(["spangap/ping/v1/ping.proto"], ["proto"])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("ping_descriptor_set.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure().bytes(".").compile_fds(descriptors)?;
    let lock = "../../Cargo.lock";
    println!("cargo:rerun-if-changed={lock}");
    let version = version_of("tonic", &std::fs::read_to_string(lock)?).ok_or("Cargo.lock has no tonic")?;
    println!("cargo:rustc-env=TONIC_VERSION={version}");
    Ok(())
}

/// The version that a lock file has of a package. The library itself does not tell.
fn version_of(package: &str, lock: &str) -> Option<String> {
    let (_, entry) = lock.split_once(&format!("name = \"{package}\"\nversion = \""))?;
    entry.split('"').next().map(String::from)
}
