//! Forbidden words: registry hosts, paths of one machine, unfinished work, sleeping tests.

use crate::rules;
use crate::source::{RustSource, has_path};
use crate::tree::{File, Tree, Violation};

/// Forbidden text in every file.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let own = tree.files.iter().filter(|file| !rules::FOREIGN_TEXT.contains(&file.name()));
    let places = own.flat_map(places);
    let code = tree.rust_files().flat_map(|(file, rust)| unfinished(file, rust).chain(sleeps(file, rust)));
    places.chain(code).collect()
}

fn places(file: &File) -> Vec<Violation> {
    let mut findings = Vec::new();
    for (at, line) in file.text.lines().enumerate() {
        for host in rules::REGISTRY_HOSTS.iter().filter(|host| line.contains(*host)) {
            let text = format!(
                "names the registry host {host}, expected none: which one is used is the machine's setting"
            );
            findings.push(Violation::new(file, at + 1, text));
        }
        for path in rules::MACHINE_PATHS.iter().filter(|path| has_absolute(line, path)) {
            let text = format!("has a path of one machine, {path}…, expected a relative one");
            findings.push(Violation::new(file, at + 1, text));
        }
    }
    findings
}

/// Whether `path` starts in the line, other than in the middle of a longer path.
fn has_absolute(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "._-~}*)$/".contains(c))
    })
}

fn unfinished<'a>(file: &'a File, rust: &'a RustSource) -> impl Iterator<Item = Violation> + 'a {
    rules::UNFINISHED.iter().flat_map(move |marker| {
        let name = marker.trim_end_matches('!');
        let lines = rust.lines_with(name).filter(move |line| {
            let text = rust.code.lines().nth(line - 1).unwrap_or_default();
            text.contains(marker)
        });
        lines.map(move |line| Violation::new(file, line, format!("has `{marker}`, expected finished work")))
    })
}

fn sleeps<'a>(file: &'a File, rust: &'a RustSource) -> impl Iterator<Item = Violation> + 'a {
    let calls = rust.paths().into_iter().filter(|(line, path)| {
        (file.is_test() || rust.is_test_line(*line))
            && rules::SLEEPS.iter().any(|sleep| has_path(path, sleep))
    });
    calls.map(move |(line, path)| {
        Violation::new(file, line, format!("a test sleeps, `{path}`, expected it to wait for a condition"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::texts;
    use crate::tree::tree_of;

    #[test]
    fn clean_text_passes() {
        let tree = tree_of(&[
            ("Cargo.lock", rules::REGISTRY_HOSTS[0]),
            ("README.md", "See ./home/you and a/work/b and the framework/x.\n"),
            ("crates/a/src/lib.rs", "fn f() { std::thread::sleep(d); let s = \"todo!()\"; } // todo!()\n"),
        ]);
        assert_eq!(texts(check(&tree)), [""; 0]);
    }

    #[test]
    fn each_forbidden_text_is_found() {
        let readme = format!(
            "ok\nfetch from https://{}/x\nsee {}me\n",
            rules::REGISTRY_HOSTS[0],
            rules::MACHINE_PATHS[0]
        );
        let tree = tree_of(&[
            ("README.md", &readme),
            (
                "crates/a/src/lib.rs",
                "fn f() {\n    todo!()\n}\n#[cfg(test)]\nmod tests { fn g() { thread::sleep(d) } }\n",
            ),
            ("crates/a/tests/t.rs", "async fn f() { dbg!(tokio::time::sleep(d).await) }\n"),
        ]);
        let found = texts(check(&tree));
        let wanted = [
            "README.md:2: names the registry host",
            "README.md:3: has a path of one machine",
            "crates/a/src/lib.rs:2: has `todo!`",
            "crates/a/src/lib.rs:5: a test sleeps, `thread::sleep`",
            "crates/a/tests/t.rs:1: has `dbg!`",
            "crates/a/tests/t.rs:1: a test sleeps, `tokio::time::sleep`",
        ];
        assert_eq!(found.len(), wanted.len(), "{found:?}");
        for (found, wanted) in found.iter().zip(wanted) {
            assert!(found.starts_with(wanted), "{found:?} is not {wanted:?}");
        }
    }
}
