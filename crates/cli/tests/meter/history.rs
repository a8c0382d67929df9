//! The stored history across all kinds of ends.

use super::grpc::sender;
use super::process::{FREE_PORTS, Meter, Program, until};
use super::spans::{calls, gap_ns, trace_id};
use rusqlite::{Connection, OpenFlags};
use serde_json::Value;
use spangap_meter::report::{CallReport, WorstReport};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The calls that the file contains, in closed and in open minutes.
fn stored_calls(directory: &Path) -> i64 {
    try_stored_calls(directory).expect("it is there, with its schema")
}

fn try_stored_calls(directory: &Path) -> rusqlite::Result<i64> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
    let file = Connection::open_with_flags(directory.join("history.sqlite"), flags)?;
    file.query_row("SELECT coalesce(sum(calls), 0) FROM (SELECT calls FROM minute UNION ALL SELECT calls FROM open_minute)", [], |row| row.get(0))
}

async fn send(meter: &Meter, numbers: std::ops::Range<u64>) {
    let mut sender = sender(meter).await;
    sender.export(calls("web", "cart", numbers)).await.expect("it is accepted");
}

fn note(meter: &Meter) -> String {
    let notes = meter.coverage().notes;
    let note = notes.iter().find(|note| note.contains("last run"));
    note.unwrap_or_else(|| panic!("nothing on the last run in {notes:?}")).clone()
}

/// The call with the largest gap, with both of its spans.
fn worst_call(meter: &Meter, number: u64) -> CallReport {
    let worst = meter.api::<WorstReport>("/api/v1/worst?window=1h&client=web&server=cart&limit=1").calls;
    let worst = &worst[0].call;
    let id: String = trace_id(number).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!((&worst.trace_id, worst.gap_ns, worst.whole), (&id, gap_ns(number), true));
    let path = format!("/api/v1/call?trace_id={id}&client_span_id={}", worst.client_span_id);
    let call: CallReport = meter.api(&path);
    for (span, host) in [(&call.client_span, "web-host"), (&call.server_span, "cart-host")] {
        let text = span.as_ref().map(Value::to_string).expect("the span is whole");
        assert!(text.contains(host) && text.contains(&format!("\"{number}\"")), "{text}");
    }
    call
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_loses_only_what_followed_the_checkpoint() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let data = ["--data", directory.path().to_str().expect("its name is text")];

    let meter = Meter::start(&data);
    send(&meter, 0..500).await;
    let before = meter.pair("web", "cart", 500);
    let call = worst_call(&meter, 499);
    until("a checkpoint with the calls", || (stored_calls(directory.path()) == 500).then_some(()));
    meter.program.signal("KILL");
    assert_eq!(meter.program.wait().code, None);

    let meter = Meter::start(&data);
    let after = meter.pair("web", "cart", 500);
    assert_eq!((&after.gap, after.lost_ns_total), (&before.gap, before.lost_ns_total));
    assert_eq!(after.worst, before.worst);
    assert_eq!(worst_call(&meter, 499), call);
    let note = note(&meter);
    for part in ["ended without closing", "checkpoint of 20", "are lost", "5 s apart"] {
        assert!(note.contains(part), "{part:?}: {note}");
    }
    // A second run adds to the same minutes.
    send(&meter, 500..600).await;
    meter.pair("web", "cart", 600);
    let ended = meter.stop();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.err.iter().any(|line| line.contains("the history is closed")), "{ended:?}");
    assert_eq!(stored_calls(directory.path()), 600, "a stop writes what no checkpoint has");

    let meter = Meter::start(&data);
    assert_eq!(meter.pair("web", "cart", 600).lost_ns_total, (0..600).map(gap_ns).sum::<u64>());
    let note = self::note(&meter);
    assert!(note.contains("closed it at 20") && !note.contains("lost"), "{note}");
    worst_call(&meter, 599);

    // Only one meter may write into a directory.
    let second = Program::start(&[&["meter"], &FREE_PORTS[..], &data].concat()).wait();
    assert_eq!((second.code, second.out.len()), (Some(1), 0), "{second:?}");
    let error = second.err.join("\n");
    assert!(error.contains("in use by another process") && error.contains(data[1]), "{error}");
    assert_eq!(meter.pair("web", "cart", 600).calls, 600, "the first one goes on");
}

#[test]
fn a_file_that_is_not_a_history_is_left_alone() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("history.sqlite");
    std::fs::write(&file, "my diary").expect("it can be written");
    let data = ["--data", directory.path().to_str().expect("its name is text")];
    let ended = Program::start(&[&["meter"], &FREE_PORTS[..], &data].concat()).wait();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.join("\n").contains("history.sqlite"), "{ended:?}");
    assert_eq!(std::fs::read(&file).expect("it is there"), b"my diary");
}

/// A meter whose `--data` is on a small file system of its own, which `fill` has filled before the start.
struct OnFullDisk {
    meter: Meter,
    /// The file system, seen from outside the meter's namespace.
    disk: PathBuf,
}

impl OnFullDisk {
    /// `Err` with the reason if no file system can be mounted here.
    fn start(mount_point: &Path, size: &str, data: &str, fill: &str) -> Result<OnFullDisk, String> {
        let at = mount_point.display();
        let script = format!(
            "mount -t tmpfs -o {size} tmpfs '{at}' && cp -a '{at}.before/.' '{at}' || exit 77; cd '{at}'; {fill} ; cd /; \
             exec \"$0\" \"$@\""
        );
        let mut command = Command::new("unshare");
        command.args([
            "--user",
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            &script,
            env!("CARGO_BIN_EXE_spangap"),
        ]);
        command.arg("meter").args(FREE_PORTS).args(["--data", &format!("{at}/{data}")]);
        let probe = Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "tmpfs", &at.to_string()])
            .output()
            .map_err(|e| format!("unshare cannot be started: {e}"))?;
        if !probe.status.success() {
            return Err(String::from_utf8_lossy(&probe.stderr).trim().into());
        }
        let meter = Meter::ready(Program::spawn(command));
        let disk = format!("/proc/{}/root{at}", meter.program.id()).into();
        Ok(OnFullDisk { meter, disk })
    }

    /// The calls in a copy of the file, because SQLite would follow the link into the other namespace to a
    /// path of this one. `None` while the file is missing, or if it was written during the copy.
    fn stored_calls(&self, data: &str, copy: &Path) -> Option<i64> {
        std::fs::create_dir_all(copy).expect("it can be made");
        for file in ["history.sqlite", "history.sqlite-wal"] {
            std::fs::copy(self.disk.join(data).join(file), copy.join(file)).ok()?;
        }
        let _ = std::fs::remove_file(copy.join("history.sqlite-shm"));
        try_stored_calls(copy).ok()
    }

    fn make_room(&self) {
        for file in
            std::fs::read_dir(&self.disk).expect("it is mounted").map(|file| file.expect("it is listed"))
        {
            if file.file_name().to_string_lossy().starts_with("ballast") {
                std::fs::remove_file(file.path()).expect("it can be removed");
            }
        }
    }
}

/// Fills whatever is left.
const NO_BYTES: &str = "cat /dev/zero > ballast 2>/dev/null";
const NO_FILES: &str = "i=0; while (: > ballast$i) 2>/dev/null; do i=$((i+1)); done";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_initially_full_disk_receives_the_minutes_later() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    // Every existing history contains these calls.
    let old = directory.path().join("old");
    let meter = Meter::start(&["--data", old.to_str().expect("its name is text")]);
    send(&meter, 0..100).await;
    meter.pair("web", "cart", 100);
    assert_eq!(meter.stop().code, Some(0));

    let cases = [
        ("size=1m", "data", NO_BYTES, 0),
        ("size=1m", "", NO_BYTES, 100),
        ("size=1m,nr_inodes=20", "data/of/mine", NO_FILES, 0),
        ("size=1m,nr_inodes=20", "", NO_FILES, 100),
    ];
    for (at, (size, data, fill, before)) in cases.into_iter().enumerate() {
        let case = format!("{fill}, {before} calls from before");
        let mount_point = directory.path().join(format!("disk{at}"));
        std::fs::create_dir(&mount_point).expect("it is new");
        let there = mount_point.with_extension("before");
        std::fs::create_dir(&there).expect("it is new");
        if before > 0 {
            for file in std::fs::read_dir(&old).expect("it is there").map(|file| file.expect("it is listed"))
            {
                std::fs::copy(file.path(), there.join(file.file_name())).expect("it can be copied");
            }
        }
        let full = match OnFullDisk::start(&mount_point, size, data, fill) {
            Ok(full) => full,
            Err(why) => return println!("not run: a disk full at the start: no small file system: {why}"),
        };
        let meter = &full.meter;
        send(meter, 100..600).await;
        meter.pair("web", "cart", 500);
        let history = || meter.coverage().history.expect("a meter has one");
        assert!(history().stored && history().problem.is_some(), "{case}: {:?}", history());
        let ready = String::from_utf8(meter.get("/readyz").body).expect("text");
        assert!(ready.starts_with("ready, degraded: history not written since"), "{case}: {ready}");
        let note = meter.coverage().notes.into_iter().find(|note| note.contains("lack what earlier runs"));
        assert!(note.is_some(), "{case}: {:?}", meter.coverage().notes);

        full.make_room();
        until(&format!("{case}: the file has the calls"), || {
            let stored = full.stored_calls(data, &mount_point.with_extension("copy"));
            (history().problem.is_none() && stored == Some(500 + before as i64)).then_some(())
        });
        meter.pair("web", "cart", 500 + before);
        assert_eq!(history().lost_rows, 0, "{case}");
        assert!(!meter.coverage().notes.iter().any(|note| note.contains("degraded")), "{case}");
        let ended = full.meter.stop();
        assert_eq!(ended.code, Some(0), "{case}: {ended:?}");
        for part in [
            "cannot be opened because the disk is full",
            "writing the history works again",
            "the history \
        is closed",
        ] {
            assert!(ended.err.iter().any(|line| line.contains(part)), "{case}: {part:?}: {ended:?}");
        }
    }
}

#[test]
fn a_disk_that_stays_full_is_reported_as_a_loss() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mount_point = directory.path().join("disk");
    std::fs::create_dir(&mount_point).expect("it is new");
    std::fs::create_dir(mount_point.with_extension("before")).expect("it is new");
    let full = match OnFullDisk::start(&mount_point, "size=1m", "data", NO_BYTES) {
        Ok(full) => full,
        Err(why) => return println!("not run: a disk full to the end: no small file system: {why}"),
    };
    let ended = full.meter.stop();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let error = ended.err.join("\n");
    assert!(error.contains("history") && error.contains("are lost"), "{error}");
    let last = ended.err.last().expect("an error");
    assert_eq!(last.matches("disk is full").count(), 1, "the reason is given once: {last}");
}
