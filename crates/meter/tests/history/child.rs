//! Tests that need a separate process: this test binary, started again for one test.

use super::rows::{key, minute};
use super::{PLENTY, Recorded, file, open};
use spangap_meter::engine::PairMinute;
use spangap_meter::history::{History, LastRun, UnwrittenMinutes};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// Passes the history file to the child process.
const FILE: &str = "SPANGAP_TEST_HISTORY";
const PAIRS: u64 = 40;

/// All pairs at checkpoint `n`, with `n` calls each.
fn rows(n: u64) -> Vec<PairMinute> {
    (0..PAIRS)
        .map(|pair| minute(600, &key("a", &format!("s{pair}")), &vec![1_000 + pair; n as usize], pair))
        .collect()
}

/// The process to be killed; does nothing in an ordinary test run.
#[test]
fn process_that_writes_until_killed() {
    let Some(path) = std::env::var_os(FILE) else { return };
    let mut history = open(Path::new(&path), PLENTY, 1_000);
    for n in 1.. {
        history.checkpoint(1_000 + n, &[], &rows(n)).unwrap();
        println!("written {n}");
    }
}

fn this_binary(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    command
}

#[test]
fn a_kill_neither_loses_a_finished_checkpoint_nor_leaves_a_partial_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory);
    for run in 0..5u64 {
        let mut writer = this_binary("child::process_that_writes_until_killed");
        let mut writer = writer.env(FILE, &path).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(writer.stdout.take().unwrap()).lines();
        let mut written = 0;
        // It continues to write while the kill is under way: most kills interrupt a checkpoint.
        while written < 10 + 3 * run {
            let line = lines.next().expect("the process writes").unwrap();
            written = line.split("written ").nth(1).map_or(written, |n| n.parse().unwrap());
        }
        writer.kill().unwrap();
        writer.wait().unwrap();
        for line in lines.map_while(Result::ok) {
            written = line.split("written ").nth(1).and_then(|n| n.parse().ok()).unwrap_or(written);
        }

        let history = History::open(Some(&path), PLENTY, 5_000).unwrap();
        let last = history.last_run();
        assert!(matches!(last, LastRun::Killed { .. }), "{last}");
        let history = Recorded::new(history);
        let read = history.all();
        assert_eq!((read.len() as u64, history.reader().damaged_rows()), (PAIRS, 0));
        let calls: BTreeSet<u64> = read.iter().map(|m| m.stats.calls()).collect();
        assert_eq!(calls.len(), 1, "all rows are of one checkpoint");
        let found = *calls.first().unwrap();
        assert!(
            found == written || found == written + 1,
            "{written} were reported written, {found} are there"
        );
        drop(history);
        let database = rusqlite::Connection::open(&path).unwrap();
        let sound: String = database.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(sound, "ok");
        database.execute_batch("DELETE FROM minute; DELETE FROM minute_worst; DELETE FROM bucket").unwrap();
    }
}

/// Runs on a file system of two megabytes; does nothing in an ordinary test run.
#[test]
fn process_on_a_small_disk() {
    let Some(path) = std::env::var_os(FILE) else { return };
    let path = Path::new(&path);
    let mut history = open(path, PLENTY, 0);
    history.checkpoint(1, &rows(1), &[]).unwrap();
    let ballast = path.with_extension("ballast");
    // Fill the rest of the disk.
    let full = std::fs::write(&ballast, vec![7; 4 << 20]).unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);

    // Some checkpoints still fit into the log; then there is no room. Each adds one call to every row.
    let refused = (2..1_000).find_map(|n| Some((n, history.checkpoint(n, &rows(1), &rows(n)).err()?)));
    let (n, error) = refused.expect("the disk is full");
    assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    assert!(error.to_string().contains("full"), "{error}");
    let calls = |history: &Recorded| history.all().iter().map(|m| m.stats.calls()).collect::<BTreeSet<_>>();
    assert_eq!(calls(&history), BTreeSet::from([n - 1]), "the checkpoint before is still there");
    // The unwritten minutes wait, and answers include them.
    assert_eq!(history.waiting.rows(), PAIRS);
    history.checkpoint(n, &rows(1), &[]).unwrap_err();
    let memory = UnwrittenMinutes {
        waiting: history.waiting.batches().into_iter().map(|b| b.minutes).collect(),
        open: Vec::new(),
    };
    let mut answered = BTreeSet::new();
    history
        .view()
        .pairs(0, 5_000, &memory, |_, stats| {
            answered.insert(stats.calls());
        })
        .unwrap();
    assert_eq!(answered, BTreeSet::from([n + 1]));

    std::fs::remove_file(&ballast).unwrap();
    // They are written now, each once, although the engine does not pass them on again.
    history.checkpoint(n + 1, &[], &[]).unwrap();
    assert_eq!(calls(&history), BTreeSet::from([n + 1]));
    assert_eq!((history.waiting.rows(), history.waiting.lost_rows), (0, 0));
    println!("survived a full disk at checkpoint {n}");
}

#[test]
fn a_full_disk_is_reported_and_refused_minutes_are_written_later() {
    let directory = tempfile::tempdir().unwrap();
    let mount = format!(
        "mount -t tmpfs -o size=2m tmpfs '{}' || exit 77; exec \"$0\" \"$@\"",
        directory.path().display()
    );
    let inner = this_binary("child::process_on_a_small_disk");
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &mount]);
    command.arg(inner.get_program()).args(inner.get_args()).env(FILE, file(&directory));
    let output = match command.output() {
        Ok(output) => output,
        Err(e) => return println!("not run: a history on a full disk: unshare cannot be started: {e}"),
    };
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    if !output.status.success() && !said.contains("running 1 test") {
        return println!(
            "not run: a history on a full disk: no small file system can be mounted: {}",
            said.trim()
        );
    }
    assert!(output.status.success() && said.contains("survived a full disk"), "{said}");
}
