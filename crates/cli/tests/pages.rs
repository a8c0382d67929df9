//! The commands that a page shows are run from the checkout, and say what the page says.
//!
//! A block marked `console` has commands after `$ `, each with its output below. `…` on a line by itself stands for any number
//! of lines; everything else has to be there word by word.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PAGES: [&str; 1] = ["docs/symptoms.md"];
/// The width that the pages are written for.
const COLUMNS: &str = "120";

fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The commands of a page, each with its line and what the page shows of its output.
fn examples(page: &str) -> Vec<(usize, String, Vec<String>)> {
    let mut examples: Vec<(usize, String, Vec<String>)> = Vec::new();
    let mut inside = false;
    for (number, line) in page.lines().enumerate() {
        if line.starts_with("```") {
            inside = line == "```console";
        } else if let (true, Some(command)) = (inside, line.strip_prefix("$ ")) {
            examples.push((number + 1, command.to_owned(), Vec::new()));
        } else if let (true, Some((.., shown))) = (inside, examples.last_mut()) {
            shown.push(line.trim_end().to_owned());
        }
    }
    examples
}

/// The first line that is shown and is not there.
fn missing<'a>(shown: &'a [String], said: &[&str]) -> Option<&'a str> {
    let mut at = 0;
    let mut anywhere = false;
    for line in shown {
        if line == "…" {
            anywhere = true;
            continue;
        }
        let rest = &said[at.min(said.len())..];
        let found = match anywhere {
            true => rest.iter().position(|one| one.trim_end() == line),
            false => rest.first().filter(|one| one.trim_end() == line).map(|_| 0),
        };
        let Some(found) = found else { return Some(line) };
        (at, anywhere) = (at + found + 1, false);
    }
    // Without `…` at the end this is all of it.
    (!anywhere && at < said.len()).then_some("the end of the output")
}

#[test]
fn lines_left_out_are_marked() {
    let said = ["one", "two", "three", "four"];
    let shown = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
    assert_eq!(missing(&shown(&["one", "…", "four"]), &said), None);
    assert_eq!(missing(&shown(&["…", "three", "four"]), &said), None);
    assert_eq!(missing(&shown(&["one", "three", "…"]), &said), Some("three"));
    assert_eq!(missing(&shown(&["one", "two"]), &said), Some("the end of the output"));
    assert_eq!(missing(&shown(&["…", "five", "…"]), &said), Some("five"));
    assert_eq!(missing(&shown(&["…", "two", "…", "one", "…"]), &said), Some("one"));
}

#[test]
fn commands_of_pages_say_what_the_pages_show() {
    let binary = Path::new(env!("CARGO_BIN_EXE_spangap")).parent().expect("a folder").display().to_string();
    let path = format!("{binary}:{}", std::env::var("PATH").unwrap_or_default());
    for page in PAGES {
        let text = std::fs::read_to_string(checkout().join(page)).expect("text");
        let examples = examples(&text);
        assert!(examples.len() >= 5, "{page}: {} commands", examples.len());
        for (line, command, shown) in examples {
            let output = Command::new("sh")
                .args(["-c", &command])
                .current_dir(checkout())
                .env("PATH", &path)
                .env("COLUMNS", COLUMNS)
                .stdin(Stdio::null())
                .output()
                .expect("sh is there");
            let said = [output.stdout, output.stderr]
                .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
                .concat();
            assert!(output.status.success(), "{page}:{line}: {command}: {}: {said}", output.status);
            let lines: Vec<&str> = said.lines().collect();
            if let Some(missing) = missing(&shown, &lines) {
                panic!("{page}:{line}: {command}: the page shows {missing:?}, and it says:\n{said}");
            }
        }
    }
}

/// Links between documents lead somewhere: the file is there, and so is the heading.
#[test]
fn links_of_documents_lead_somewhere() {
    let mut links = 0;
    for folder in ["", "docs", "deploy"] {
        for entry in std::fs::read_dir(checkout().join(folder)).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.extension().is_none_or(|extension| extension != "md") {
                continue;
            }
            let text = std::fs::read_to_string(&path).expect("text");
            for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
                if target.contains("://") || target.contains(char::is_whitespace) {
                    continue;
                }
                links += 1;
                let (file, heading) = target.split_once('#').unwrap_or((target, ""));
                let to =
                    if file.is_empty() { path.clone() } else { path.parent().expect("a folder").join(file) };
                assert!(to.exists(), "{}: there is no {target}", path.display());
                if heading.is_empty() || to.is_dir() {
                    continue;
                }
                let headings = std::fs::read_to_string(&to).expect("text");
                let named = headings.contains(&format!("<a id=\"{heading}\"></a>"));
                let mut lines = headings.lines().filter(|line| line.starts_with('#'));
                let found = named || lines.any(|line| anchor(line) == heading);
                assert!(found, "{}: there is no heading {target}", path.display());
            }
        }
    }
    assert!(links > 50, "{links} links");
}

/// The name by which a heading is linked.
fn anchor(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = words.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}
