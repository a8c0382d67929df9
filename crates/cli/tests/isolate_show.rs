//! `spangap isolate show` on every machine below `fixtures/isolate`, and on this one.

use serde_json::Value;
use spangap_machine::parse_readings;
use spangap_model::Cpus;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Time limit for any condition.
const PATIENCE: Duration = Duration::from_secs(120);
/// Width of the output where it is not a terminal.
const COLUMNS: usize = 100;

fn show(arguments: &[&str]) -> Output {
    let spangap = env!("CARGO_BIN_EXE_spangap");
    Command::new(spangap).args(["isolate", "show"]).args(arguments).output().unwrap()
}

fn done(arguments: &[&str]) -> String {
    let ended = show(arguments);
    assert!(ended.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&ended.stderr));
    String::from_utf8(ended.stdout).unwrap()
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&done(&[arguments, &["--json"]].concat())).unwrap()
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/isolate").join(name).join("machine.txt")
}

fn fixtures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/isolate");
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path().join("machine.txt"));
    let mut all: Vec<PathBuf> = names.filter(|path| path.is_file()).collect();
    all.sort();
    assert!(all.len() >= 6, "{all:?}");
    all
}

/// The CPUs of the map's rows, in order.
fn rows(text: &str) -> Vec<u32> {
    let mut cpus = Vec::new();
    let body = text.lines().skip_while(|line| !line.starts_with("    CPU ")).skip(1);
    for line in body.take_while(|line| !line.is_empty()) {
        let Some(row) = line.strip_prefix("  ").filter(|row| row.starts_with([' ', '┌', '├', '└', '│']))
        else {
            continue;
        };
        let list: String =
            row.chars().skip(2).take_while(|c| c.is_ascii_digit() || ",-/".contains(*c)).collect();
        for part in list.split(',').filter(|part| !part.is_empty()) {
            let (range, step) = part.split_once('/').unwrap_or((part, "1"));
            let all = Cpus::parse_list(range).unwrap_or_else(|| panic!("{list} in {line}"));
            let first = all.iter().next().unwrap();
            let step: u32 = step.parse().unwrap();
            cpus.extend(all.iter().filter(|cpu| (cpu - first).is_multiple_of(step)));
        }
    }
    cpus.sort_unstable();
    cpus
}

/// The CPUs of the drawing, in order.
fn drawn(svg: &str) -> Vec<u32> {
    let numbers = svg.split("data-cpu=\"").skip(1);
    let mut cpus: Vec<u32> = numbers.map(|rest| rest.split('"').next().unwrap().parse().unwrap()).collect();
    cpus.sort_unstable();
    cpus
}

/// The document that a page renders.
fn document(page: &str) -> Value {
    let (_, rest) = page.split_once("<script type=\"application/json\" id=\"data\">").unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

fn numbers(report: &Value) -> Vec<u32> {
    let cpus = report["cpus"].as_array().unwrap();
    cpus.iter().map(|cpu| u32::try_from(cpu["cpu"].as_u64().unwrap()).unwrap()).collect()
}

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// Whether a parser accepts it as XML.
fn is_xml(path: &Path) {
    let parse = "import sys, xml.etree.ElementTree as tree; tree.parse(sys.argv[1])";
    let ended = Command::new("python3").args(["-c", parse]).arg(path).output().unwrap();
    assert!(ended.status.success(), "{}: {}", path.display(), String::from_utf8_lossy(&ended.stderr));
}

#[test]
fn every_cpu_of_every_machine_is_shown_once() {
    let folder = tempfile::tempdir().unwrap();
    let (svg, html) = (folder.path().join("map.svg"), folder.path().join("map.html"));
    let parser = is_there("python3");
    if !parser {
        println!("not run: pictures as XML: there is no python3");
    }
    for path in fixtures() {
        let root = path.to_str().unwrap();
        let report = json(&["--root", root]);
        let pictures = ["--svg", svg.to_str().unwrap(), "--html", html.to_str().unwrap()];
        let text = done(&[&["--root", root], &pictures[..]].concat());
        let all = done(&["--root", root, "--all"]);
        let cpus = numbers(&report);
        assert!(!cpus.is_empty(), "{root}");
        assert_eq!(rows(&text), cpus, "{text}");
        assert_eq!(rows(&all), cpus, "{all}");
        assert_eq!(drawn(&fs::read_to_string(&svg).unwrap()), cpus, "{root}");
        let page = fs::read_to_string(&html).unwrap();
        let document = document(&page);
        assert_eq!(document["kind"], "isolate_show");
        let mut placed = numbers(&document["report"]);
        placed.sort_unstable();
        assert_eq!(placed, cpus, "{root}");
        for cpu in document["report"]["cpus"].as_array().unwrap() {
            let row = cpu["row"].as_array().unwrap();
            assert_eq!((row.len(), &row[0]), (12, &Value::from(cpu["cpu"].to_string())), "its row: {root}");
        }
        for outside in ["src=", "href=\"http", "url(http", "@import"] {
            assert!(!page.contains(outside), "{root} needs {outside}");
        }
        let widest = text.lines().chain(all.lines()).map(|line| line.chars().count()).max();
        assert!(widest.is_some_and(|widest| widest <= COLUMNS), "{text}");
        // As many as fit onto two screens.
        assert!(
            rows(&text).len() < 64 || text.lines().count() < 130,
            "{} lines\n{text}",
            text.lines().count()
        );
        if parser {
            is_xml(&svg);
        }
    }
}

#[test]
fn a_browser_opens_the_page_without_errors() {
    if !is_there("chromium") {
        println!("not run: there is no chromium");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for name in ["article-2x24x2", "big-256"] {
        let html = folder.path().join("map.html");
        let root = fixture(name);
        let report = json(&["--root", root.to_str().unwrap()]);
        done(&["--root", root.to_str().unwrap(), "--html", html.to_str().unwrap()]);
        let profile = format!("--user-data-dir={}", folder.path().join("profile").display());
        let ended = Command::new("chromium")
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"])
            .args([&profile, &format!("file://{}", html.display())])
            .output()
            .unwrap();
        let (dom, said) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
        assert_eq!(drawn(&dom), numbers(&report), "{name}: {said}");
        assert_eq!(
            dom.matches("<tr").count(),
            numbers(&report).len() + 1,
            "a row for each, and a head: {name}"
        );
        assert!(!said.contains("CONSOLE"), "{name}: {said}");
    }
}

#[test]
fn saved_readings_are_shown_identically() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (saved, first, second) = (path("host.txt"), path("first.svg"), path("second.svg"));
    let live = json(&["--for", "150ms", "--save", &saved, "--svg", &first]);
    let again = json(&["--root", &saved, "--svg", &second]);
    assert_eq!(live["since_boot"], false);
    assert!(live["duration_ns"].as_u64().unwrap() > 0);
    assert_eq!(live, again);
    assert_eq!(fs::read(first).unwrap(), fs::read(second).unwrap());
    let (before, _) = parse_readings(&fs::read_to_string(&saved).unwrap()).unwrap();
    assert!(before.is_some(), "both readings are kept");
    // A copy can itself be saved.
    let copy = path("copy.txt");
    let root = fixture("article-2x24x2");
    let of_copy = json(&["--root", root.to_str().unwrap(), "--save", &copy]);
    assert_eq!(of_copy["since_boot"], true);
    let mut kept = json(&["--root", &copy]);
    // Two identical readings span no time, so there is nothing to report about it.
    assert_eq!(kept["since_boot"].take(), false);
    assert_eq!(kept["topology"], of_copy["topology"]);
}

#[test]
fn selected_interfaces_and_planned_cpus_are_shown() {
    let root = fixture("two-nics");
    let root = ["--root", root.to_str().unwrap()];
    let report = json(&[&root[..], &["--interface", "eth1"]].concat());
    let names: Vec<&str> = report["topology"]["interfaces"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["eth1"]);
    for cpu in report["cpus"].as_array().unwrap() {
        assert!(cpu["interrupts"].as_array().unwrap().iter().all(|irq| irq["interface"] == "eth1"), "{cpu}");
    }
    let planned = report["planned"]["net_cpus"].as_str().expect("a plan");
    let outlined: Cpus = report["cpus"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|cpu| cpu["planned"] == true)
        .map(|cpu| u32::try_from(cpu["cpu"].as_u64().unwrap()).unwrap())
        .collect();
    assert_eq!(outlined.to_string(), planned);
    let everything = json(&root);
    assert!(everything["planned"].is_null(), "nobody asked");
}

#[test]
fn applied_plans_are_marked_on_copies() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy");
    fs::create_dir(&copy).unwrap();
    let text = fs::read_to_string(fixture("article-2x24x2")).unwrap();
    parse_readings(&text).unwrap().1.write_below(&copy).unwrap();
    let (root, plan) = (copy.to_str().unwrap(), folder.path().join("plan.json"));
    let spangap = |verb: &[&str]| {
        let ended = Command::new(env!("CARGO_BIN_EXE_spangap")).arg("isolate").args(verb).output().unwrap();
        assert!(ended.status.success(), "{verb:?}: {}", String::from_utf8_lossy(&ended.stderr));
    };
    let plan = plan.to_str().unwrap();
    spangap(&["plan", "--interface", "eth0", "--root", root, "--write", plan]);
    assert!(json(&["--root", root])["net_cpus"].is_null(), "nothing is applied yet");
    spangap(&["apply", plan, "--root", root, "--no-confirm"]);
    let report = json(&["--root", root, "--interface", "eth0"]);
    assert_eq!(report["net_cpus"], "1-2,49-50");
    assert!(report["planned"].is_null(), "one is applied");
    let cpu = &report["cpus"][49];
    assert_eq!((&cpu["net"], &cpu["interrupts"][0]["queue"]), (&true.into(), &1.into()), "{cpu}");
    let text = done(&["--root", root]);
    assert!(text.contains("Applied: CPUs 1-2,49-50 for the network (NET)"), "{text}");
    assert!(text.contains("NET; eth0 q1"), "{text}");
    spangap(&["rollback", "--root", root]);
    let report = json(&["--root", root]);
    assert!(report["net_cpus"].is_null(), "{}", report["net_cpus"]);
}

#[test]
fn a_damaged_journal_is_reported_and_the_rest_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("open.journal"), "nonsense\nand more\n").unwrap();
    let root = fixture("article-2x24x2");
    let report = json(&["--root", root.to_str().unwrap(), "--journal", folder.path().to_str().unwrap()]);
    let unknown = report["unknown"][0].as_str().unwrap();
    assert!(unknown.starts_with("what is applied: ") && unknown.contains("line 1"), "{unknown}");
    assert_eq!(numbers(&report).len(), 96);
}

#[test]
fn ctrl_c_ends_the_wait_and_shows_the_result() {
    let spangap = env!("CARGO_BIN_EXE_spangap");
    let child = Command::new(spangap)
        .args(["isolate", "show", "--for", "1h", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    // Once it catches the signal, it is ready for it.
    let catches = || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap() & (1 << 1) != 0
    };
    let began = Instant::now();
    while !catches() {
        assert!(began.elapsed() < PATIENCE, "it never waits");
        std::thread::park_timeout(std::time::Duration::from_millis(1));
    }
    let killed = Command::new("kill").args(["-INT", &pid.to_string()]).status().unwrap();
    assert!(killed.success());
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.success());
    let report: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!(report["interrupted"], true);
    assert!(!numbers(&report).is_empty());
}

#[test]
fn wrong_usage_and_damaged_files() {
    let folder = tempfile::tempdir().unwrap();
    let root = fixture("no-smt");
    let root = root.to_str().unwrap();
    let said = |ended: &Output| String::from_utf8_lossy(&ended.stderr).into_owned();
    let ended = show(&["--root", root, "--interface", "eth9"]);
    assert_eq!(ended.status.code(), Some(2));
    assert!(said(&ended).contains("enp1s0f0"), "{}", said(&ended));
    let ended = show(&["--root", folder.path().to_str().unwrap()]);
    assert_eq!(ended.status.code(), Some(2));
    assert!(said(&ended).contains("there is no proc inside"), "{}", said(&ended));
    let damaged = folder.path().join("damaged.txt");
    fs::File::create(&damaged).unwrap().write_all(b"=== /proc/stat\ncpu0 x\nno machine\n").unwrap();
    let text = done(&["--root", damaged.to_str().unwrap()]);
    assert!(text.contains("Not known") || text.starts_with("0 CPUs"), "{text}");
    fs::File::create(&damaged).unwrap().write_all(b"no machine\n").unwrap();
    let ended = show(&["--root", damaged.to_str().unwrap()]);
    assert_eq!(ended.status.code(), Some(1));
    assert!(said(&ended).contains("line 1"), "{}", said(&ended));
    let ended = show(&["--root", root, "--svg", "/nowhere/map.svg"]);
    assert_eq!(ended.status.code(), Some(1));
    assert!(said(&ended).contains("cannot write /nowhere/map.svg"), "{}", said(&ended));
}
