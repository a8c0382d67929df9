//! `spangap hunt` on real captures: what it names, what it only places, and what it says where it can do
//! neither.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

const CAPTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/captures");

fn hunt(arguments: &[String]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_spangap")).arg("hunt").args(arguments).output().expect("it starts")
}

/// The captures of both ends, compressed or not.
fn both(name: &str) -> Vec<String> {
    let plain = |end: &str| format!("{CAPTURES}/{name}.{end}.pcapng");
    let stored = |path: String| if Path::new(&path).exists() { path } else { path + ".zst" };
    ["client", "server"].map(|end| stored(plain(end))).to_vec()
}

fn verdict(arguments: Vec<String>) -> Value {
    let output = hunt(&[arguments, vec!["--json".into()]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one document")
}

#[test]
fn a_cause_that_owns_most_of_the_time_is_named_with_its_remedy() {
    for (name, culprit, side) in [
        ("nagle-client", "nagle-delayed-ack", "client"),
        ("receive-window-server", "receive-window", "server"),
        ("flow-control-slow-reader", "flow-control", "client"),
    ] {
        let hunt = verdict(both(name));
        assert_eq!(hunt["verdict"], "one", "{name}: {hunt:#}");
        assert_eq!(
            (&hunt["culprits"][0]["cause"], &hunt["culprits"][0]["side"]),
            (&culprit.into(), &side.into())
        );
        let share = &hunt["culprits"][0]["share"];
        assert!(
            share["low"].as_f64() <= share["mid"].as_f64() && share["mid"].as_f64() <= share["high"].as_f64()
        );
        assert!(hunt["culprits"][0]["remedy"].as_str().is_some_and(|remedy| !remedy.is_empty()));
    }
}

#[test]
fn a_trace_that_does_not_fit_on_the_disk_leaves_no_part_of_itself() {
    let folder = tempfile::tempdir().expect("a folder");
    // As on a full disk, a write fails after the first 512 or 1,024 bytes.
    let script = "trap '' XFSZ; ulimit -f 1; exec \"$@\"";
    let output = Command::new("sh")
        .args(["-c", script, "sh", env!("CARGO_BIN_EXE_spangap"), "hunt"])
        .args(both("nagle-client"))
        .args(["--perfetto", "calls.perfetto-trace"])
        .current_dir(&folder)
        .output()
        .expect("it starts");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("cannot write the trace (calls.perfetto-trace)"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0);
}

#[test]
fn ordinary_calls_have_no_culprit() {
    for name in ["rust-unary", "cpp-callback-one", "go-one", "reordered", "nagle-off-one-write"] {
        let hunt = verdict(both(name));
        assert_eq!(hunt["culprits"].as_array().map(Vec::len), Some(0), "{name}: {hunt:#}");
    }
}

#[test]
fn folders_are_read_whatever_they_contain_but_need_a_capture() {
    let folder = tempfile::tempdir().expect("a folder");
    let empty = hunt(&[folder.path().display().to_string()]);
    assert_eq!(empty.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&empty.stderr).contains("expected captures of one end or both"),
        "{empty:?}"
    );
    let missing = hunt(&["no-such-folder".to_owned()]);
    assert_eq!(missing.status.code(), Some(1));
    assert_eq!(
        String::from_utf8_lossy(&missing.stderr),
        "spangap: no-such-folder: No such file or directory (os error 2)\n"
    );
    for (file, name) in both("nagle-client").iter().zip(["a", "b"]) {
        std::fs::copy(file, folder.path().join(name)).expect("a copy");
    }
    std::fs::write(folder.path().join("notes.txt"), "slow since Monday").expect("a file");
    for n in 0..6 {
        std::fs::write(folder.path().join(format!("part-{n}.txt")), "and since").expect("a file");
    }
    let output = hunt(&[folder.path().display().to_string()]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("One culprit: nagle-delayed-ack (client)\n"), "{text}");
    assert!(text.contains("Seen: 12 of 12 calls") && text.contains("Remedy"), "{text}");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("notes.txt: ignored: not a capture"), "{errors}");
    assert_eq!(errors.matches(": ignored: not a capture").count(), 5, "{errors}");
    assert!(errors.contains("2 more ignored for the same reason"), "{errors}");
}

#[test]
fn the_trace_of_the_slowest_calls_never_overwrites_an_input() {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("calls.perfetto-trace").display().to_string();
    let output = hunt(&[both("nagle-client"), vec!["--perfetto".into(), trace.clone()]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let bytes = std::fs::read(&trace).expect("it was written");
    // Packets of a trace: field 1, with lengths. Their content is checked by the tests of `gather`, with
    // Perfetto's own description.
    assert_eq!(bytes[0], 0x0a);
    let has = |words: &str| bytes.windows(words.len()).any(|window| window == words.as_bytes());
    assert!(has("packets at its tap") && has("nagle-delayed-ack (client)") && has("bound_ns"));
    let read = both("nagle-client");
    let refused = hunt(&[read.clone(), vec!["--perfetto".into(), read[0].clone()]].concat());
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--perfetto"), "{refused:?}");
}

/// The same on a terminal for standard input and standard error, with standard output in a file. Returns the
/// content of that file, and what the terminal showed. `None`, with a printed reason, without the program
/// that provides a terminal.
fn on_terminal(arguments: &[String]) -> Option<(String, String)> {
    let quoted = |text: &String| format!("'{text}'");
    let quoted: Vec<String> = arguments.iter().map(quoted).collect();
    let file = tempfile::NamedTempFile::new().expect("a file");
    let out = file.path().display();
    let command =
        format!("stty cols 200; '{}' hunt {} >'{out}'", env!("CARGO_BIN_EXE_spangap"), quoted.join(" "));
    let script =
        Command::new("script").args(["--quiet", "--return", "--command", &command, "/dev/null"]).output();
    let Ok(shown) = script else {
        println!("not run: the program script is missing");
        return None;
    };
    assert!(shown.status.success(), "{shown:?}");
    let text = std::fs::read_to_string(file.path()).expect("it was written");
    Some((text, String::from_utf8_lossy(&shown.stdout).into_owned()))
}

#[test]
fn a_terminal_shows_suspects_being_crossed_off() {
    let Some((text, shown)) = on_terminal(&both("nagle-client")) else { return };
    let judged = verdict(both("nagle-client"));
    assert!(
        shown.contains("read 2 captures: ") && shown.contains(" packets, ") && shown.contains(", 12 calls"),
        "{shown}"
    );
    let crossed: Vec<&str> = shown.split("  x ").skip(1).collect();
    let cleared = judged["cleared"].as_array().expect("an array");
    assert!(crossed.len() > 5 && cleared.len() >= crossed.len(), "{shown}");
    let mut told = 0;
    for one in cleared {
        let (cause, side) = (one["cause"].as_str().expect("a name"), one["side"].as_str().unwrap_or(""));
        // The line of this cause and side has the document's figures.
        let is_it = |line: &&&str| {
            let name = line.split("  ").next().unwrap_or_default();
            let of_cause = name == cause || name.starts_with(&format!("{cause} ("));
            of_cause && name.contains(side)
        };
        let line = crossed.iter().find(is_it).unwrap_or_else(|| panic!("{cause} {side}: {shown}"));
        let figures = one["seen"].as_str().expect("text").split(" calls did").next().expect("a part");
        assert!(line.contains(figures), "{line}: {one}");
        told += 1;
    }
    assert_eq!(told, cleared.len());
    // A named culprit is not crossed off, and the file contains nothing but the verdict.
    assert!(!crossed.iter().any(|line| line.starts_with("nagle-delayed-ack (client")), "{shown}");
    assert!(
        text.starts_with("One culprit: nagle-delayed-ack (client)\n") && !text.contains("  x "),
        "{text}"
    );
    let (json, quiet) =
        on_terminal(&[both("nagle-client"), vec!["--json".into()]].concat()).expect("it is there");
    assert!(serde_json::from_str::<Value>(&json).is_ok() && quiet.is_empty(), "{quiet}");
}

#[test]
fn a_verdict_fits_a_screen_and_a_healthy_one_a_paragraph() {
    let text = |arguments: &[String]| {
        let output = hunt(arguments);
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    let spans = ["client", "server"].map(|end| format!("{CAPTURES}/rust-spans.{end}.spans.pb"));
    let folder = tempfile::tempdir().expect("a folder");
    for file in both("rust-spans").iter().chain(&spans).map(Path::new) {
        let name = file.file_name().expect("a name");
        std::fs::copy(file, folder.path().join(name)).expect("a copy");
    }
    let same = folder.path().display().to_string();
    let healthy = text(&[same.clone(), "--against".into(), same]);
    assert!(
        healthy.starts_with("Nothing to explain: the median call takes ")
            && healthy.contains("suspects cleared"),
        "{healthy}"
    );
    assert!(healthy.lines().count() <= 6 && !healthy.contains("\n\n"), "{healthy}");
    // Captures alone do not show what the client's program did before it sent anything.
    let packets = text(&both("rust-unary"));
    assert!(
        packets.starts_with("Unknown\nNothing stands out: the median call takes ")
            && packets.contains("no span shows when these calls began")
            && !packets.contains("\n\n\n"),
        "{packets}"
    );
    for (name, ends) in
        [("nagle-client", 2), ("receive-window-server", 2), ("receive-window-server", 1), ("tail-loss", 1)]
    {
        let screen = text(&both(name)[..ends]);
        let longest = screen.lines().map(|line| line.chars().count()).max();
        assert!(longest <= Some(100) && screen.lines().count() <= 40, "{name}: {longest:?}\n{screen}");
        // Legs that cannot be told apart are described as places, and all suspects that need the same
        // instrument share one line.
        assert!(!screen.contains("_wire+") && !screen.contains("+server_"), "{name}: {screen}");
        assert_eq!(
            screen.matches("a capture at the client that includes its DNS traffic").count(),
            1,
            "{name}: {screen}"
        );
        assert!(
            screen.contains(": dns, tls-handshake") || screen.contains("dns,\n    tls-handshake"),
            "{name}: {screen}"
        );
    }
}

#[test]
fn recorded_files_allow_no_experiment_and_hunt_says_what_would() {
    let plain = hunt(&both("nagle-client"));
    let asked = hunt(&[both("nagle-client"), vec!["--experiment".into(), "auto".into()]].concat());
    let (told, said) = (String::from_utf8_lossy(&asked.stdout), String::from_utf8_lossy(&asked.stderr));
    assert!(asked.status.success() && told == String::from_utf8_lossy(&plain.stdout), "{asked:?}");
    let said: Vec<&str> = said.split_whitespace().collect();
    let said = said.join(" ");
    for words in ["recorded files have no calls in flight", "--meter URL --experiment ask"] {
        assert!(said.contains(words), "{said}");
    }
    // A cause without a lever cannot be experimented on, live or not.
    let asked = hunt(&[both("receive-window-server"), vec!["--experiment".into(), "ask".into()]].concat());
    let said = String::from_utf8_lossy(&asked.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(asked.status.success() && said.contains("would remedy receive-window (server)"), "{said}");
    // Without the option, nothing is said about it.
    assert!(plain.stderr.is_empty(), "{plain:?}");
}

/// A verdict from part of a capture says so, and where reading went on.
#[test]
fn what_could_not_be_read_is_said_beside_the_verdict() {
    let folder = tempfile::tempdir().expect("a folder");
    let [client, server] = ["client", "server"].map(|end| format!("{CAPTURES}/rust-spans.{end}.pcapng"));
    std::fs::copy(&server, folder.path().join("server.pcapng")).expect("a copy");
    let mut bytes = std::fs::read(&client).expect("a capture");
    let middle = bytes.len() / 2;
    bytes[middle..middle + 300].fill(0xa5);
    std::fs::write(folder.path().join("client.pcapng"), bytes).expect("a file");
    let folder = folder.path().display().to_string();
    let limits = &verdict(vec![folder.clone()])["coverage"]["limits"];
    let damage = limits.as_array().into_iter().flatten().filter_map(Value::as_str);
    let damage: Vec<&str> = damage.filter(|limit| limit.contains("could not be read")).collect();
    let [damage] = damage[..] else { panic!("one place is damaged: {limits:#}") };
    assert!(damage.contains("client.pcapng: 1 place could not be read, first at offset "), "{damage}");
    let screen = String::from_utf8(hunt(&[folder]).stdout).expect("text");
    assert!(screen.contains("What these figures cannot tell:\n"), "{screen}");
}
