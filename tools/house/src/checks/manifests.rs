//! Manifests: permitted dependencies, and the workspace's lints in every package.

use crate::rules;
use crate::tree::{File, Tree, Violation};

/// Violations in the manifests of the packages.
pub fn check(tree: &Tree) -> Vec<Violation> {
    tree.manifests().flat_map(check_one).collect()
}

fn check_one(file: &File) -> Vec<Violation> {
    let manifest: toml::Table = match file.text.parse() {
        Ok(manifest) => manifest,
        Err(error) => return vec![Violation::new(file, 1, format!("is no TOML: {}", error.message()))],
    };
    let mut findings = Vec::new();
    let name =
        manifest.get("package").and_then(|p| p.get("name")).and_then(|n| n.as_str()).unwrap_or_default();
    let allowed = rules::MAY_IMPORT.iter().find(|(package, _)| *package == name).map(|(_, allowed)| *allowed);
    if allowed.is_none() {
        let text =
            format!("package {name:?} is not in tools/house/src/rules.rs, expected a line in MAY_IMPORT");
        findings.push(Violation::new(file, file.line_of("name"), text));
    }
    for dependency in dependencies(&manifest) {
        let line = file.line_of(&dependency);
        let ours = dependency == "spangap" || dependency.starts_with("spangap-");
        if let Some(allowed) = allowed
            && ours
            && !allowed.contains(&dependency.as_str())
        {
            let text = format!("{name} depends on {dependency}, expected {}", one_of(allowed));
            findings.push(Violation::new(file, line, text));
        }
        for (reserved, packages) in rules::RESERVED_DEPENDENCIES {
            if dependency == *reserved && !packages.contains(&name) {
                let text =
                    format!("{name} depends on {reserved}, expected it in {} only", packages.join(", "));
                findings.push(Violation::new(file, line, text));
            }
        }
    }
    let lints = manifest.get("lints").and_then(|l| l.get("workspace")).and_then(|w| w.as_bool());
    if lints != Some(true) {
        findings.push(Violation::new(
            file,
            1,
            "has not the workspace's lints, expected `lints.workspace = true`".into(),
        ));
    }
    findings
}

fn one_of(allowed: &[&str]) -> String {
    if allowed.is_empty() {
        "no package of this workspace".into()
    } else {
        format!("only {}", allowed.join(", "))
    }
}

/// Package names of all kinds of dependencies, including platform-specific ones.
fn dependencies(manifest: &toml::Table) -> Vec<String> {
    const KINDS: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];
    let platforms = manifest.get("target").and_then(|t| t.as_table()).into_iter().flat_map(|t| t.values());
    let tables = platforms.filter_map(|t| t.as_table()).chain([manifest]);
    let of_table = |table: &toml::Table| {
        let kinds = KINDS.iter().filter_map(|kind| table.get(*kind)?.as_table().cloned());
        kinds.flatten().map(|(name, spec)| renamed(&spec).unwrap_or(name)).collect::<Vec<_>>()
    };
    tables.flat_map(of_table).collect()
}

fn renamed(spec: &toml::Value) -> Option<String> {
    Some(spec.get("package")?.as_str()?.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::texts;
    use crate::tree::tree_of;

    const LINTS: &str = "[lints]\nworkspace = true\n";

    #[test]
    fn the_allowed_direction_passes() {
        let manifest = format!(
            "[package]\nname = \"spangap-meter\"\n[dependencies]\nspangap-model.workspace = true\nbytes = \"1\"\n{LINTS}"
        );
        assert_eq!(texts(check(&tree_of(&[("crates/meter/Cargo.toml", &manifest)]))), [""; 0]);
    }

    #[test]
    fn a_sibling_is_found_in_every_kind_of_dependency() {
        for table in
            ["dependencies", "dev-dependencies", "build-dependencies", "target.'cfg(unix)'.dependencies"]
        {
            let manifest = format!(
                "[package]\nname = \"spangap-wire\"\n{LINTS}[{table}]\nspangap-meter = {{ path = \"x\" }}\n"
            );
            assert_eq!(
                texts(check(&tree_of(&[("crates/wire/Cargo.toml", &manifest)]))),
                [
                    "crates/wire/Cargo.toml:6: spangap-wire depends on spangap-meter, expected only spangap-model, spangap-report"
                ]
            );
        }
    }

    #[test]
    fn a_renamed_sibling_is_found() {
        let manifest = format!(
            "[package]\nname = \"spangap-model\"\n{LINTS}[dependencies]\nm = {{ package = \"spangap-meter\" }}\n"
        );
        assert_eq!(
            texts(check(&tree_of(&[("crates/model/Cargo.toml", &manifest)]))),
            [
                "crates/model/Cargo.toml:6: spangap-model depends on spangap-meter, expected no package of this workspace"
            ]
        );
    }

    #[test]
    fn an_unknown_package_without_lints_that_takes_a_reserved_dependency() {
        let manifest = "[package]\nname = \"spangap-new\"\n[dependencies]\nanyhow = \"1\"\n";
        let found = texts(check(&tree_of(&[("crates/new/Cargo.toml", manifest)])));
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].starts_with("crates/new/Cargo.toml:2: package \"spangap-new\" is not in"));
        assert_eq!(
            found[1],
            "crates/new/Cargo.toml:4: spangap-new depends on anyhow, expected it in spangap only"
        );
        assert!(found[2].contains("lints.workspace = true"));
    }
}
