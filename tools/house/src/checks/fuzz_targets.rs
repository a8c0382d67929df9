//! Every fuzz target is registered, and every registered one exists.

use crate::tree::{Tree, Violation};

const MANIFEST: &str = "fuzz/Cargo.toml";
const FOLDER: &str = "fuzz/fuzz_targets/";

/// Unregistered targets, and registered targets without a file.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let targets: Vec<_> = tree
        .files
        .iter()
        .filter(|file| file.path.starts_with(FOLDER) && file.path.ends_with(".rs"))
        .collect();
    let Some(manifest) = tree.file(MANIFEST) else {
        let orphans = targets.iter();
        return orphans
            .map(|file| Violation::new(file, 1, format!("has no manifest, expected {MANIFEST}")))
            .collect();
    };
    let table: toml::Table = match manifest.text.parse() {
        Ok(table) => table,
        Err(error) => return vec![Violation::new(manifest, 1, format!("is no TOML: {}", error.message()))],
    };
    let bins = table.get("bin").and_then(|bins| bins.as_array());
    let registered: Vec<String> = bins
        .into_iter()
        .flatten()
        .filter_map(|bin| bin.get("path")?.as_str().map(|path| format!("fuzz/{path}")))
        .collect();
    let new = targets.iter().filter(|file| !registered.contains(&file.path));
    let new = new
        .map(|file| Violation::new(file, 1, format!("is not registered, expected a [[bin]] in {MANIFEST}")));
    let gone = registered.iter().filter(|path| tree.file(path).is_none());
    let gone = gone.map(|path| {
        let line = manifest.line_of(path.trim_start_matches("fuzz/"));
        Violation::new(manifest, line, format!("registers {path}, expected it to exist"))
    });
    new.chain(gone).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::texts;
    use crate::tree::tree_of;

    const REGISTERED: &str = "[[bin]]\nname = \"walk\"\npath = \"fuzz_targets/walk.rs\"\n";

    #[test]
    fn registered_targets_pass() {
        assert_eq!(
            texts(check(&tree_of(&[(MANIFEST, REGISTERED), ("fuzz/fuzz_targets/walk.rs", "")]))),
            [""; 0]
        );
        assert_eq!(texts(check(&tree_of(&[]))), [""; 0]);
    }

    #[test]
    fn a_new_target_and_a_gone_one() {
        assert_eq!(
            texts(check(&tree_of(&[(MANIFEST, REGISTERED), ("fuzz/fuzz_targets/json.rs", "")]))),
            [
                "fuzz/fuzz_targets/json.rs:1: is not registered, expected a [[bin]] in fuzz/Cargo.toml",
                "fuzz/Cargo.toml:3: registers fuzz/fuzz_targets/walk.rs, expected it to exist",
            ]
        );
        let orphan = tree_of(&[("fuzz/fuzz_targets/json.rs", "")]);
        assert_eq!(
            texts(check(&orphan)),
            ["fuzz/fuzz_targets/json.rs:1: has no manifest, expected fuzz/Cargo.toml"]
        );
    }
}
