//! Runs the commands that a page shows from the checkout, and compares their output with the page.
//!
//! A block marked `console` has commands after `$ `, each followed by its output. `…` on a line by itself
//! stands for any number of lines; everything else must match word by word. All other commands of all
//! documents are parsed by the program's own options.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PAGES: [&str; 1] = ["docs/symptoms.md"];
/// The width that the pages are written for.
const COLUMNS: &str = "120";

fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The commands of a page, each with its line and the output that the page shows.
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

/// The first line that the page shows and the output lacks.
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
    // Without `…` at the end, the page shows the whole output.
    (!anywhere && at < said.len()).then_some("the end of the output")
}

#[test]
fn omitted_lines_are_marked() {
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
fn documented_output_matches() {
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

/// The commands of a document with their lines: lines of code blocks, and text between backquotes.
fn commands(text: &str) -> Vec<(usize, String)> {
    let mut commands = Vec::new();
    let mut inside = false;
    let mut begun = String::new();
    for (number, line) in text.lines().enumerate() {
        if line.starts_with("```") {
            inside = !inside;
        } else if inside {
            let line = begun.clone() + line.trim().trim_start_matches("$ ").trim_start_matches("sudo ");
            begun = line.strip_suffix('\\').unwrap_or_default().to_owned();
            if begun.is_empty() && line.starts_with("spangap ") {
                // After two spaces comes an explanation.
                commands.push((number + 1, line.split("  ").next().expect("one").to_owned()));
            }
        } else {
            let quoted = line.split('`').skip(1).step_by(2).map(|one| one.trim_start_matches("sudo "));
            commands.extend(
                quoted.filter(|one| one.starts_with("spangap ")).map(|one| (number + 1, one.to_owned())),
            );
        }
    }
    commands
}

/// The arguments that the program itself gets from a command, as far as they can be determined without a
/// shell.
fn words(command: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut quote = None;
    let mut fresh = true;
    for letter in command.chars() {
        match (quote, letter) {
            (None, '|' | ';' | '&' | '>' | '#' | '…' | '(') if fresh => break,
            (None, ';') => break,
            (None, ' ') => fresh = true,
            (None, '\'' | '"') => {
                quote = Some(letter);
                if std::mem::take(&mut fresh) {
                    words.push(String::new());
                }
            }
            (Some(end), letter) if letter == end => quote = None,
            (_, letter) => {
                if std::mem::take(&mut fresh) {
                    words.push(String::new());
                }
                words.last_mut().expect("one").push(letter);
            }
        }
    }
    words.into_iter().skip(1).take_while(|word| word != "--" && word != "2>" && word != "...").collect()
}

#[test]
fn arguments_end_where_shell_syntax_begins() {
    let cases = [
        ("spangap gaps --by method a.json | less", vec!["gaps", "--by", "method", "a.json"]),
        (
            "spangap capture --filter 'tcp port 80' -w x; ls",
            vec!["capture", "--filter", "tcp port 80", "-w", "x"],
        ),
        ("spangap lab run loss -- ls", vec!["lab", "run", "loss"]),
        ("spangap (pid 7)", vec![]),
    ];
    for (command, expected) in cases {
        assert_eq!(words(command), expected, "{command}");
    }
}

/// No document shows a verb, an option or a value that does not exist. `--help` at the end of a command makes
/// the program parse everything before it without running it.
#[test]
fn documented_commands_are_valid() {
    let mut seen = 0;
    for folder in ["", "docs", "deploy"] {
        for entry in std::fs::read_dir(checkout().join(folder)).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.extension().is_none_or(|extension| extension != "md") || path.ends_with("CHANGELOG.md") {
                continue;
            }
            for (line, command) in commands(&std::fs::read_to_string(&path).expect("text")) {
                let mut words = words(&command);
                if words.is_empty() {
                    continue;
                }
                // What the reader has to fill in: a process, a port.
                for at in 0..words.len() {
                    words[at] = words[at].replace(":PORT", ":50051");
                    if at > 0
                        && words[at - 1].ends_with("pid")
                        && words[at].chars().all(|c| c.is_ascii_uppercase())
                    {
                        words[at] = "1".to_owned();
                    }
                }
                let output = Command::new(env!("CARGO_BIN_EXE_spangap"))
                    .args(&words)
                    .arg("--help")
                    .stdin(Stdio::null())
                    .output()
                    .expect("it starts");
                seen += 1;
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                // A name in capitals stands for one of several, and so does `a|b`; an option by itself is
                // only mentioned.
                let value = said.split('\'').nth(1).unwrap_or_default();
                let left_open = said.starts_with("error: invalid value")
                    && (value.contains('|') || value.chars().all(|c| c.is_ascii_uppercase()));
                let spoken_of = said.starts_with("error: a value is required");
                assert!(
                    output.status.success() || left_open || spoken_of,
                    "{}:{line}: {command}: {said}",
                    path.display()
                );
            }
        }
    }
    assert!(seen > 200, "{seen} commands");
}

/// Links between documents are valid: both the file and the heading exist.
#[test]
fn documented_links_are_valid() {
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

/// Terms of ours that mean something else elsewhere, or nothing, with the forms that stand for them.
const TERMS: [(&str, &[&str]); 18] = [
    ("culprit", &["culprit", "culprits"]),
    ("episode", &["episode", "episodes"]),
    ("gap", &["gap", "gaps"]),
    ("hop", &["hop", "hops"]),
    ("ladder", &["ladder", "ladders"]),
    ("lane", &["lane", "lanes"]),
    ("lateness", &["lateness"]),
    ("leg", &["leg", "legs"]),
    ("life-line", &["life line", "life lines"]),
    ("look-alike", &["look-alike", "look-alikes"]),
    ("match-ratio", &["match ratio"]),
    ("mate", &["mate", "mates"]),
    ("near-miss", &["near miss", "near misses"]),
    ("slow-log", &["slow log"]),
    ("taker", &["taker", "takers"]),
    ("tap", &["tap", "taps"]),
    ("thief", &["thief", "thieves"]),
    ("watched-thread", &["watched thread", "watched threads"]),
];

/// The prose of each line: without code, commands, headings, and the targets of links.
fn prose(text: &str) -> Vec<String> {
    let mut inside = false;
    let line = |line: &str| {
        if line.starts_with("```") {
            inside = !inside;
        }
        let other = inside || line.starts_with('#') || line.trim_start().starts_with("spangap ");
        if other {
            return String::new();
        }
        let words: Vec<&str> = line.split('`').step_by(2).collect();
        let words = words.join("`");
        let mut parts = words.split("](");
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |text, part| text + "]" + part.split_once(')').map_or("", |(_, rest)| rest))
    };
    text.lines().map(line).collect()
}

/// Whether a line has a term as a word by itself, outside of the text of a link, which leads to where it is explained.
fn uses(line: &str, forms: &[&str]) -> bool {
    let line = line.to_lowercase();
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '-' || letter == '_';
    forms.iter().any(|form| {
        line.match_indices(form).any(|(at, _)| {
            let (before, after) = (&line[..at], &line[at + form.len()..]);
            let is_link = before.rfind('[').is_some_and(|open| !before[open..].contains(']'));
            !is_link && !before.ends_with(is_part) && !after.starts_with(is_part)
        })
    })
}

/// A reader who meets a term of ours finds its meaning one click away: where a document first uses it, it links it.
#[test]
fn terms_are_linked_where_a_document_first_uses_them() {
    let mut missing = Vec::new();
    let mut used = 0;
    let docs = std::fs::read_dir(checkout().join("docs")).expect("a folder");
    let docs = docs.map(|entry| entry.expect("an entry").path());
    for path in docs.chain([checkout().join("README.md")]) {
        if path.extension().is_none_or(|extension| extension != "md") || path.ends_with("glossary.md") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("text");
        let prose = prose(&text);
        for (id, forms) in TERMS {
            let Some(first) = prose.iter().position(|line| uses(line, forms)) else { continue };
            used += 1;
            let link = format!("glossary.md#{id})");
            if !text.lines().take(first + 1).any(|line| line.contains(&link)) {
                missing.push(format!(
                    "{}:{}: {} without a link to {link}",
                    path.display(),
                    first + 1,
                    forms[0]
                ));
            }
        }
    }
    assert_eq!(missing, [""; 0]);
    assert!(used > 30, "{used} terms in use");
}

#[test]
fn a_term_is_a_word_of_its_own_outside_of_code_and_links() {
    let page = "# The tap\n`tap` [a tap](x.md#tap) tapping pre-tap\n```\ntap\n```\nBoth Taps.\n";
    let prose = prose(page);
    let found: Vec<usize> = (0..prose.len()).filter(|line| uses(&prose[*line], &["tap", "taps"])).collect();
    assert_eq!(found, [5]);
}

/// The anchor of a heading.
fn anchor(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = words.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}
