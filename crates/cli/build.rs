//! Makes the built pages part of the binary, and says what to do when they were not built.

use std::path::Path;

fn main() {
    let dist = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web/dist");
    for name in ["index.html", "csp.txt", "tank.html"] {
        let file = dist.join(name);
        println!("cargo::rerun-if-changed={}", file.display());
        if !file.is_file() {
            println!("cargo::error=web/dist/{name} is missing: run make build");
        }
    }
}
