//! Exit codes of every verb: 0 done, 1 failed, 2 wrong usage, 3 done and found what `--fail-on` asks about.
//! Scripts depend on them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Every verb that users see.
const VERBS: &[&[&str]] = &[
    &["meter"],
    &["agent"],
    &["gaps"],
    &["hunt"],
    &["tank"],
    &["target"],
    &["dissect"],
    &["capture"],
    &["demo"],
    &["bench", "show"],
    &["bench", "compare"],
    &["host", "check"],
    &["host", "offcpu"],
    &["host", "thieves"],
    &["host", "stacks"],
    &["host", "record"],
    &["sockets", "list"],
    &["sockets", "set"],
    &["sockets", "undo"],
    &["isolate", "show"],
    &["isolate", "plan"],
    &["isolate", "apply"],
    &["isolate", "confirm"],
    &["isolate", "verify"],
    &["isolate", "status"],
    &["isolate", "rollback"],
    &["lab", "list"],
    &["lab", "run"],
    &["lab", "grade"],
    &["lab", "judge"],
    &["lab", "page"],
    &["lab", "clean"],
    &["completions"],
];

struct Ended {
    code: Option<i32>,
    said: String,
}

fn spangap(arguments: &[&str]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spangap"));
    let output = command.args(arguments).stdin(Stdio::null()).output().expect("the binary starts");
    let texts = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    Ended { code: output.status.code(), said: texts.concat() }
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures")
}

#[test]
fn help_exits_with_0_and_unknown_flags_with_2() {
    for verb in VERBS {
        for (more, code) in [("--help", 0), ("--no-such-flag", 2)] {
            let ended = spangap(&[verb, &[more][..]].concat());
            assert_eq!(ended.code, Some(code), "{verb:?} {more}: {}", ended.said);
        }
    }
    assert_eq!(spangap(&[]).code, Some(2));
    assert_eq!(spangap(&["no-such-verb"]).code, Some(2));
}

/// A reader of completions may close the pipe early.
#[test]
fn completions_survive_a_closed_pipe() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spangap"));
    let mut printing = command
        .args(["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    drop(printing.stdout.take());
    let ended = printing.wait_with_output().expect("it ends");
    assert_eq!((ended.status.code(), ended.stderr.as_slice()), (Some(0), &b""[..]));
}

#[test]
fn the_table_covers_every_verb() {
    for group in [&[][..], &["host"], &["sockets"], &["isolate"], &["lab"]] {
        let help = spangap(&[group, &["--help"]].concat()).said;
        let commands = help.split("\nCommands:\n").nth(1).expect("a list of verbs");
        let listed = commands.lines().take_while(|line| line.starts_with("  "));
        let names = listed.filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next());
        // Text that is indented further continues a description.
        for name in names.filter(|name| *name != "help" && help.contains(&format!("\n  {name} "))) {
            let verb = [group, &[name]].concat();
            assert!(
                VERBS.iter().any(|known| known.starts_with(&verb)) || name == "man",
                "{verb:?} is in no table"
            );
        }
    }
}

#[test]
fn exit_codes_of_all_verbs() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("a plain path").to_owned();
    let fixture = |name: &str| fixtures().join(name).to_str().expect("a plain path").to_owned();
    let (spans, article) = (fixture("spans/otlp.json"), fixture("isolate/article-2x24x2/machine.txt"));
    let capture = fixture("captures/nagle-client.client.pcapng");
    let (missing, empty, text) = (path("missing"), path("empty"), path("text"));
    std::fs::create_dir(&empty).expect("it is ours");
    std::fs::write(&text, "neither a capture nor spans\n").expect("it is ours");
    let rows: &[(&[&str], i32)] = &[
        (&["gaps", &spans], 0),
        (&["gaps", &missing], 1),
        (&["gaps", &text], 1),
        (&["gaps", &spans, "--by", "moon"], 2),
        (&["gaps"], 2),
        (&["hunt", &missing], 1),
        (&["hunt", &empty], 1),
        (&["hunt", &text], 1),
        (&["hunt"], 2),
        (&["hunt", &capture], 0),
        // An experiment that cannot be tried is reported, and the verdict stands.
        (&["hunt", &capture, "--experiment", "auto"], 0),
        (&["hunt", &capture, "--experiment", "perhaps"], 2),
        (&["hunt", "web->cart", "--meter", "http://127.0.0.1:1", "--experiment", "auto"], 1),
        (&["dissect", &missing], 1),
        (&["dissect", &text], 1),
        (&["dissect"], 2),
        (&["capture", "--interface", "lo"], 2),
        (&["bench", "show", &missing], 1),
        (&["tank"], 2),
        (&["tank", "127.0.0.1:1", "--duration", "moon"], 2),
        (&["target", "--listen", "nowhere"], 2),
        (&["host", "thieves"], 2),
        (&["host", "offcpu", "--pid", "moon"], 2),
        (&["sockets", "list", "--pid", "4194304"], 1),
        (&["sockets", "set", "--pid", "4194304", "nodelay=on"], 1),
        (&["sockets", "set", "--pid", "1", "nodelay=perhaps"], 2),
        (&["sockets", "undo"], 2),
        (&["sockets", "undo", "--all", "--journal", &empty], 0),
        (&["sockets", "undo", "--journal", &text], 1),
        (&["isolate", "plan", "--root", &article, "--interface", "eth0"], 0),
        (&["isolate", "plan", "--root", &article, "--interface", "moon"], 2),
        (&["isolate", "plan", "--root", &article, "--interface", "eth0", "--net-cpus", "96"], 1),
        (&["isolate", "plan", "--root", &article, "--interface", "eth0", "--net-cpus", "moon"], 2),
        (&["isolate", "status", "--journal", &empty], 0),
        (&["isolate", "status", "--journal", &empty, "--fail-on", "drift"], 0),
        (&["isolate", "status", "--journal", &empty, "--fail-on", "moon"], 2),
        // Nothing to verify is no success: scripts depend on it.
        (&["isolate", "verify", "--journal", &empty], 1),
        (&["isolate", "verify", "--journal", &empty, "--fail-on", "never,any"], 2),
        (&["isolate", "confirm", "--journal", &empty], 1),
        (&["isolate", "rollback", "--journal", &empty], 0),
        (&["isolate", "apply", &missing, "--journal", &empty], 1),
        (&["isolate", "apply", &text, "--journal", &empty], 1),
        (&["lab", "list"], 0),
        (&["lab", "clean", "--state", &empty], 0),
        (&["lab", "clean", "--state", &missing], 0),
        (&["completions", "bash"], 0),
        (&["completions", "moon"], 2),
    ];
    for (arguments, code) in rows {
        let ended = spangap(arguments);
        assert_eq!(ended.code, Some(*code), "{arguments:?}: {}", ended.said);
        let error = ended.said.contains("spangap: ") || ended.said.contains("error: ");
        assert!(error || !matches!(code, 1 | 2), "{arguments:?} says why: {}", ended.said);
    }
}

#[test]
fn fail_on_exits_with_3_only_if_found() {
    let hosts = std::fs::read_dir(fixtures().join("hosts")).expect("it is there").flatten();
    let machines = hosts.map(|entry| entry.path().join("machine.txt")).filter(|path| path.exists());
    let mut found = 0;
    for machine in machines {
        let root = machine.to_str().expect("a plain path");
        let check = ["host", "check", "--root", root];
        let plain = spangap(&check);
        assert_eq!(plain.code, Some(0), "{root}: {}", plain.said);
        let asked = spangap(&[&check[..], &["--fail-on", "high"]].concat());
        assert!(matches!(asked.code, Some(0 | 3)), "{root}: {}", asked.said);
        found += u32::from(asked.code == Some(3));
    }
    assert!(found > 0, "some of the machines have a trap");
}
