//! Makes the built pages part of the binary, and says what to do when they were not built.

use std::path::Path;

fn main() {
    // Of the checkout that is built now: where this program was compiled may be another one, with the same target folder.
    let package = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    let dist = Path::new(&package).join("../../web/dist");
    for name in ["index.html", "csp.txt", "report.html", "tank.html"] {
        let file = dist.join(name);
        println!("cargo::rerun-if-changed={}", file.display());
        if !file.is_file() {
            println!("cargo::error=web/dist/{name} is missing: run make build");
        }
    }
}
