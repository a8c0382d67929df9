//! Compiles the eBPF program of every folder of `src/probes`, and sees to it that libelf and zlib, which libbpf needs,
//! become part of the binary where the distribution has them as archives: on a production machine it then needs libc
//! alone.

use libbpf_cargo::SkeletonBuilder;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs, io};

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
    if let Some(folder) = archives(&out) {
        println!("cargo:rustc-link-search=native={}", folder.display());
    }
}

fn build(folder: &Path, source: &Path, out: &Path) {
    let name = folder.file_name().and_then(|name| name.to_str()).expect("a probe's name is text");
    let here = env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    SkeletonBuilder::new()
        .source(source)
        // The kernel shows a program's source by these names; where it was built is not part of them.
        .clang_args([
            "-Ibpf",
            "-Wall",
            "-Werror",
            "-mcpu=v3",
            &format!("-ffile-prefix-map={here}=crates/host"),
        ])
        .build_and_generate(out.join(format!("{name}.skel.rs")))
        .unwrap_or_else(|error| panic!("{}: {error:#}", source.display()));
}

/// A folder with nothing but the archives: searched before the system's own, it makes the linker take them. `None`
/// where they are not there or need more than each other.
fn archives(out: &Path) -> Option<PathBuf> {
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".into());
    let folder = out.join("archives");
    fs::create_dir_all(&folder).ok()?;
    for name in ["libelf.a", "libz.a"] {
        let found = Command::new(&compiler).arg(format!("-print-file-name={name}")).output().ok()?;
        let path = PathBuf::from(String::from_utf8(found.stdout).ok()?.trim());
        let link = folder.join(name);
        match fs::remove_file(&link) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return None,
            _ => std::os::unix::fs::symlink(path.canonicalize().ok()?, link).ok()?,
        }
    }
    let mut linking = Command::new(&compiler)
        .args(["-x", "c", "-", "-o"])
        .arg(out.join("links"))
        .arg("-L")
        .arg(&folder)
        .args(["-lelf", "-lz"])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let program = "char elf_begin(void); int main(void) { return elf_begin(); }";
    linking.stdin.take()?.write_all(program.as_bytes()).ok()?;
    linking.wait().ok()?.success().then_some(folder)
}
