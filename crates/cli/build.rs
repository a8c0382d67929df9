//! Makes the built page part of the binary, and says what to do when it was not built.

use std::path::Path;

fn main() {
    let dist = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web/dist");
    for name in ["index.html", "csp.txt"] {
        let file = dist.join(name);
        println!("cargo::rerun-if-changed={}", file.display());
        if !file.is_file() {
            println!("cargo::error=web/dist/{name} is missing: run make build");
        }
    }
}
