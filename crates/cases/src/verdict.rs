//! From the folder of a case to its verdict, as by `spangap hunt FOLDER`: one case at a time, within limits
//! of time and memory.

use crate::report::VerdictRow;
use rustix::process::{Pid, Resource, Rlimit, Signal, getpriority_process, prlimit, setpriority_process};
use serde_json::Value;
use spangap_diagnose::hunt::{Hunt, Kind, Question, hunt};
use spangap_gather::{GatherError, Sources, Wanted, evidence};
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Timeout of a verdict. Far more than its CPU time limit: on a busy host, as most hosts with a case are, a
/// niced process gets an eighth of a CPU.
const LIMIT: Duration = Duration::from_secs(240);

/// Why there is no verdict.
#[derive(Debug, thiserror::Error)]
pub enum NoVerdict {
    /// The files cannot be read, or are insufficient.
    #[error(transparent)]
    Gather(#[from] GatherError),
    /// It took too long.
    #[error("there was none within {} s", LIMIT.as_secs())]
    TooLong,
    /// The judge failed: a bug of ours.
    #[error("the analysis failed")]
    Failed,
    /// The judging program cannot be started.
    #[error("{program} cannot be started: {error}")]
    Start {
        /// Its path.
        program: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// It exceeded its CPU time limit.
    #[error("the analysis took more than {MOST_CPU_S} s of CPU time")]
    TooMuch,
    /// It exceeded its memory limit.
    #[error("the analysis needed more than {} MiB of memory", .0 >> 20)]
    TooLarge(u64),
    /// The judging program failed, with its last message.
    #[error("the analysis failed: {0}")]
    Said(String),
}

/// A program that judges a folder, and its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// `spangap`, called as `hunt FOLDER --json`.
    pub path: PathBuf,
    /// Maximum address space in bytes.
    pub most_bytes: u64,
}

/// CPU time limit of the judging program in seconds, which ends it even if nobody stops it.
const MOST_CPU_S: u64 = 120;
/// Spans, receivers and the page have priority.
const NICE: i32 = 10;
/// Maximum length of the document and of the error output that is read.
const MOST_DOCUMENT: u64 = 64 << 20;
const MOST_COMPLAINT: u64 = 16 << 10;

/// Judges one case at a time.
#[derive(Debug)]
pub struct Judge {
    turn: Arc<Semaphore>,
    program: Option<Program>,
}

impl Judge {
    /// In a separate process, so that input from agents cannot exhaust this one; without a program, in this
    /// process.
    pub fn new(program: Option<Program>) -> Judge {
        Judge { turn: Arc::new(Semaphore::new(1)), program }
    }

    /// The verdict on the files of a folder.
    ///
    /// # Errors
    /// When there is none, or not in time.
    pub async fn judge(&self, folder: &Path) -> Result<Hunt, NoVerdict> {
        let Ok(turn) = self.turn.clone().acquire_owned().await else { return Err(NoVerdict::Failed) };
        let stop = Arc::new(AtomicBool::new(false));
        let (path, stopped) = (folder.to_owned(), stop.clone());
        let child = Arc::new(Mutex::new(None));
        let (program, running) = (self.program.clone(), child.clone());
        let work = tokio::task::spawn_blocking(move || {
            let done = match program {
                Some(program) => apart(&program, &path, &running),
                None => of_folder(&path, &stopped),
            };
            // Held until the work has really ended, even if nobody waits for it.
            drop(turn);
            done
        });
        match timeout(LIMIT, work).await {
            Ok(Ok(done)) => done,
            Ok(Err(_)) => Err(NoVerdict::Failed),
            Err(_) => {
                stop.store(true, Relaxed);
                if let Some(child) = &mut *lock(&child) {
                    // It may have just ended.
                    let _ended = child.kill();
                }
                Err(NoVerdict::TooLong)
            }
        }
    }
}

fn lock(child: &Mutex<Option<Child>>) -> MutexGuard<'_, Option<Child>> {
    child.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Judges in a separate process. `running` contains it meanwhile, so that it can be killed.
fn apart(program: &Program, folder: &Path, running: &Mutex<Option<Child>>) -> Result<Hunt, NoVerdict> {
    let cannot = |error| NoVerdict::Start { program: program.path.clone(), error };
    let mut child = Command::new(&program.path)
        .args(["hunt", "--json"])
        .arg(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(cannot)?;
    let limited = limit(&child, program.most_bytes);
    let (out, err) = (child.stdout.take(), child.stderr.take());
    *lock(running) = Some(child);
    let complaint = thread::spawn(move || last_line(err));
    let mut document = Vec::new();
    let read = out.map_or(Ok(0), |out| out.take(MOST_DOCUMENT).read_to_end(&mut document));
    let mut child = lock(running).take().ok_or(NoVerdict::Failed)?;
    if limited.is_err() || document.len() as u64 >= MOST_DOCUMENT {
        // It may have just ended.
        let _ended = child.kill();
    }
    let status = child.wait().map_err(cannot)?;
    let complaint = complaint.join().unwrap_or_default();
    limited.and(read.map(drop)).map_err(cannot)?;
    // The message of Rust's allocator before it aborts; nothing follows it.
    if complaint.starts_with("memory allocation of") {
        return Err(NoVerdict::TooLarge(program.most_bytes));
    }
    if status.signal() == Some(Signal::XCPU.as_raw()) {
        return Err(NoVerdict::TooMuch);
    }
    if !status.success() {
        let said = if complaint.is_empty() { status.to_string() } else { complaint };
        return Err(NoVerdict::Said(said));
    }
    serde_json::from_slice(&document).map_err(|error| NoVerdict::Said(format!("its document: {error}")))
}

/// Limits the resources of a program that has just started.
fn limit(child: &Child, most_bytes: u64) -> io::Result<()> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let most = |most| Rlimit { current: Some(most), maximum: Some(most) };
    prlimit(pid, Resource::As, most(most_bytes))?;
    // The soft limit's signal identifies the reason; the hard limit ends a program that ignores it.
    prlimit(pid, Resource::Cpu, Rlimit { current: Some(MOST_CPU_S), maximum: Some(MOST_CPU_S + 5) })?;
    prlimit(pid, Resource::Core, most(0))?;
    // A parent that is already nicer has passed its niceness on, and may not be permitted to reduce it: a
    // pod's programs inherit it from their runtime.
    if getpriority_process(None)? < NICE {
        setpriority_process(pid, NICE)?;
    }
    Ok(())
}

/// The last non-empty line. Reads everything, so that the writer never blocks on the pipe.
fn last_line(from: Option<ChildStderr>) -> String {
    let Some(mut from) = from else { return String::new() };
    let mut text = Vec::new();
    // An unreadable message is omitted.
    let _read = from.by_ref().take(MOST_COMPLAINT).read_to_end(&mut text);
    let _rest = io::copy(&mut from, &mut io::sink());
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    line.chars().filter(|letter| !letter.is_control()).take(500).collect()
}

fn of_folder(folder: &Path, stop: &AtomicBool) -> Result<Hunt, NoVerdict> {
    let sources = Sources::of_folder(folder)?;
    let mut on_progress = |_| match stop.load(Relaxed) {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    let evidence = evidence(&sources, Wanted::FOR_A_HUNT, &mut on_progress, stop)?;
    if stop.load(Relaxed) {
        return Err(NoVerdict::TooLong);
    }
    Ok(hunt(&evidence, &Question::default()))
}

/// Summary.
pub fn row(hunt: &Hunt) -> VerdictRow {
    let first = hunt.culprits.first();
    let name = |value: Value| value.as_str().map(str::to_owned);
    VerdictRow {
        verdict: serde_json::to_value(hunt.verdict).ok().and_then(name).unwrap_or_default(),
        words: hunt.words.clone(),
        culprit: first.map(|one| one.culprit.cause.name().to_owned()),
        side: first.and_then(|one| one.culprit.side).map(|side| side.name().to_owned()),
        share: first.and_then(|one| serde_json::to_value(one.share).ok()),
    }
}

/// Whether it names a culprit.
pub fn is_explained(hunt: &Hunt) -> bool {
    matches!(hunt.verdict, Kind::One | Kind::Several) && !hunt.culprits.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The niceness of a limited child of a thread with this niceness.
    fn limited_under(nice: i32) -> (i32, i32) {
        let it = thread::spawn(move || {
            // For this thread alone, as on Linux; the test runner may already be nicer.
            setpriority_process(None, getpriority_process(None).unwrap().max(nice)).unwrap();
            let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
            let limited = limit(&child, 1 << 30);
            let pid = Pid::from_raw(child.id() as i32);
            let nices = (getpriority_process(None).unwrap(), getpriority_process(pid).unwrap());
            drop(child.stdin.take());
            child.wait().unwrap();
            limited.unwrap();
            nices
        });
        it.join().unwrap()
    }

    #[test]
    fn the_judge_is_at_least_as_nice_as_its_meter() {
        for nice in [0, NICE - 1, NICE, NICE + 5] {
            let (own, child) = limited_under(nice);
            assert_eq!(child, own.max(NICE), "under {own}");
        }
    }

    /// What a judge that does this comes to.
    async fn judged_by(script: &str) -> Result<Hunt, NoVerdict> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("judge");
        // A separate process writes it: a child that another test forks at this moment would hold it open,
        // and it could not be executed.
        let made = Command::new("sh")
            .args(["-c", "printf '#!/bin/sh\\n%s' \"$1\" >\"$0\"; chmod 700 \"$0\""])
            .arg(&path)
            .arg(script)
            .status();
        assert!(made.unwrap().success());
        let judge = Judge::new(Some(Program { path, most_bytes: 1 << 30 }));
        judge.judge(folder.path()).await
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_endless_judge_is_ended_by_its_cpu_limit_with_a_reason() {
        let judged = judged_by("while :; do ulimit -S -t 1; done").await;
        assert!(matches!(judged, Err(NoVerdict::TooMuch)), "{judged:?}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_judge_that_is_killed_or_talks_nonsense_has_no_verdict_and_a_reason() {
        for (script, reason) in [
            ("kill -9 $$", "the analysis failed: signal: 9 (SIGKILL)"),
            ("printf '{\"half\":'; kill -9 $$", "the analysis failed: signal: 9 (SIGKILL)"),
            ("echo no >&2; exit 3", "the analysis failed: no"),
            ("echo nonsense", "the analysis failed: its document: expected"),
        ] {
            let judged = judged_by(script).await.map(|_| ()).map_err(|error| error.to_string());
            assert!(judged.as_ref().is_err_and(|said| said.starts_with(reason)), "{script}: {judged:?}");
        }
    }
}
