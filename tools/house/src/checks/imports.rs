//! Where files, sockets, clocks and the async runtime are allowed; test code is exempt.

use crate::rules;
use crate::source::has_path;
use crate::tree::{Tree, Violation};

/// Source paths outside their confinement.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut findings = Vec::new();
    for (file, rust) in tree.rust_files().filter(|(file, _)| !file.is_test()) {
        let paths = rust.paths();
        for rule in rules::CONFINED {
            let Some(inside) = file.path.strip_prefix(rule.folder) else { continue };
            if is_allowed(inside, rule.allowed) || inside.contains("/examples/") {
                continue;
            }
            for (line, path) in paths.iter().filter(|(line, _)| !rust.is_test_line(*line)) {
                if rule.paths.iter().any(|forbidden| has_path(path, forbidden)) {
                    let text = format!("uses {}, `{path}`, expected {}", rule.what, place(rule));
                    findings.push(Violation::new(file, *line, text));
                }
            }
        }
    }
    findings
}

fn is_allowed(inside: &str, allowed: &[&str]) -> bool {
    allowed.iter().any(|free| if free.ends_with('/') { inside.starts_with(free) } else { inside == *free })
}

fn place(rule: &rules::Confined) -> String {
    match rule.allowed {
        [] => format!("none under {}", rule.folder),
        allowed => format!("that only in {} of {}", allowed.join(", "), rule.folder),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::texts;
    use crate::tree::tree_of;

    #[test]
    fn io_where_it_belongs_passes() {
        let tree = tree_of(&[
            (
                "crates/meter/src/serve/mod.rs",
                "use tokio::net::TcpListener;\nfn f() { std::time::Instant::now(); }",
            ),
            ("crates/meter/src/history/mod.rs", "use rusqlite::Connection;"),
            (
                "crates/meter/src/join.rs",
                "// std::fs is not for us\n#[cfg(test)]\nmod tests { use std::fs; }",
            ),
            ("crates/meter/tests/scrape.rs", "use tokio::net::TcpStream;"),
            ("crates/cli/src/main.rs", "use std::fs;"),
        ]);
        assert_eq!(texts(check(&tree)), [""; 0]);
    }

    #[test]
    fn a_clock_a_file_and_a_runtime_in_the_wrong_place() {
        let tree = tree_of(&[
            ("crates/meter/src/engine.rs", "use std::time::Instant;\n\nfn f() { Instant::now(); }"),
            ("crates/model/src/pair.rs", "use std::{\n    fmt,\n    fs::File,\n};"),
            ("crates/meter/src/export/prometheus.rs", "async fn f() { tokio::spawn(g()).await }"),
            ("crates/bench/src/tank.rs", "fn f() { std::process::exit(1) }"),
        ]);
        assert_eq!(
            texts(check(&tree)),
            [
                "crates/bench/src/tank.rs:1: uses the end of the process, `std::process::exit`, expected none under crates/",
                "crates/meter/src/engine.rs:3: uses a clock, `Instant::now`, expected that only in serve/, history/, spool/, \
                 kafka/, clickhouse/, ingest/file.rs, export/otlp/ of crates/meter/src/",
                "crates/meter/src/export/prometheus.rs:1: uses an async runtime, `tokio::spawn`, expected that only in \
                 serve/, history/, spool/, kafka/, clickhouse/, ingest/file.rs, export/otlp/ of crates/meter/src/",
                "crates/model/src/pair.rs:3: uses a file or socket, `std::fs::File`, expected none under crates/model/src/",
            ]
        );
    }
}
