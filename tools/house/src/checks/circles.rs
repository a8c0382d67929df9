//! No two files of a crate use each other: each can be read, and changed, without the other.

use crate::rules;
use crate::tree::{Tree, Violation};
use crate::uses::{Crate, Use};

/// Pairs of files that use each other, except the listed ones, and listed ones that no longer do.
pub fn check(tree: &Tree) -> Vec<Violation> {
    check_except(tree, rules::CIRCLES)
}

fn check_except(tree: &Tree, excepted: &[(&str, &str)]) -> Vec<Violation> {
    let mut findings = Vec::new();
    let mut left: Vec<&(&str, &str)> = excepted.iter().filter(|pair| tree.file(pair.0).is_some()).collect();
    for krate in Crate::all(tree) {
        let uses = krate.uses();
        for (one, line) in uses.iter().filter(|(one, _)| one.from < one.to && !one.is_of_one_module()) {
            let Some(back) = uses.get(&Use { from: one.to, to: one.from }) else { continue };
            let before = left.len();
            left.retain(|pair| **pair != (one.from, one.to));
            if left.len() == before {
                let text = format!(
                    "uses {}, which uses it in line {back}: expected that what both need is in the lower of them",
                    one.to
                );
                findings.push(Violation { path: one.from.to_owned(), line: *line, text });
            }
        }
    }
    let untied = left.into_iter().map(|(one, other)| {
        let text =
            format!("no longer in a circle with {other}, expected it not to be listed in rules::CIRCLES");
        Violation { path: (*one).to_owned(), line: 1, text }
    });
    findings.extend(untied);
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::texts;
    use crate::tree::tree_of;

    const A: &str = "crates/x/src/a.rs";
    const B: &str = "crates/x/src/b/mod.rs";

    #[test]
    fn files_that_use_each_other_are_found_through_faces_and_groups() {
        let tree = tree_of(&[
            ("crates/x/src/lib.rs", "mod a;\npub mod b;\npub use a::Left;\n"),
            (A, "use crate::{\n    b::{Right, deep},\n};\npub struct Left(Right);\n"),
            (B, "mod deep;\npub use deep::Deep;\nuse crate::Left;\npub struct Right(Option<Box<Left>>);\n"),
            ("crates/x/src/b/deep.rs", "pub struct Deep;\n"),
        ]);
        let found = "crates/x/src/a.rs:2: uses crates/x/src/b/mod.rs, which uses it in line 3: expected that what both \
                     need is in the lower of them";
        assert_eq!(texts(check_except(&tree, &[])), [found]);
        assert_eq!(texts(check_except(&tree, &[(A, B)])), [""; 0]);
    }

    #[test]
    fn a_module_and_its_parts_tests_and_names_passed_on_are_no_circle() {
        let tree = tree_of(&[
            ("crates/x/src/lib.rs", "mod a;\nmod b;\nuse a::f;\npub struct Settings;\n"),
            // Of `b` it uses what that merely passes on from `c`.
            (A, "use crate::Settings;\nuse crate::b::Deep;\npub fn f(_: Settings, _: Deep) {}\n"),
            (B, "mod c;\npub use c::Deep;\nuse c::g;\nuse super::a::f;\npub struct Part;\n"),
            ("crates/x/src/b/c.rs", "use super::Part;\npub struct Deep(Part);\npub fn g() {}\n"),
            ("crates/x/src/d.rs", "use crate::e::E;\npub struct D(E);\n"),
            ("crates/x/src/e.rs", "pub struct E;\n#[cfg(test)]\nmod tests { use crate::d::D; }\n"),
            ("crates/y/src/a.rs", "use spangap_x::b::Part;\n"),
        ]);
        assert_eq!(texts(check_except(&tree, &[])), [""; 0]);
    }

    #[test]
    fn an_exception_without_a_circle_has_to_go() {
        let tree =
            tree_of(&[("crates/x/src/lib.rs", "mod a;\nmod b;\n"), (A, ""), (B, "use crate::a::f;\n")]);
        let found = "crates/x/src/a.rs:1: no longer in a circle with crates/x/src/b/mod.rs, expected it not to be listed \
                     in rules::CIRCLES";
        assert_eq!(texts(check_except(&tree, &[(A, B)])), [found]);
    }
}
