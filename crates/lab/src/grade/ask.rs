//! The judge: one of this project, called in this process, or a command that gets a folder and prints a
//! verdict.

use super::conclusion::Conclusion;
use super::verdict::{self, VerdictError};
use rustix::process::{Pid, Signal, kill_process_group};
use spangap_diagnose::{Question, Verdict, hunt};
use spangap_gather::{GatherError, Sources, Wanted};
use spangap_model::evidence::Evidence;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Default time limit of a judge.
pub const LIMIT: Duration = Duration::from_secs(60);
/// Maximum output read from a judge; a verdict is far shorter.
const MOST_BYTES: u64 = 1 << 20;
/// Bytes quoted from the end of a judge's standard error.
const COMPLAINT_BYTES: usize = 400;
/// Polling interval for a judge's end.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Time limit for the output of an exited judge to end.
const PIPE_ENDS_WITHIN: Duration = Duration::from_secs(1);

/// A judge with its time limit.
#[derive(Clone, Debug)]
pub struct Judge {
    /// The judge.
    pub who: JudgeKind,
    /// Time limit.
    pub limit: Duration,
}

/// A judge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JudgeKind {
    /// The verdict of `spangap hunt`.
    Hunt,
    /// A shell command that gets the folder as its last word.
    Command(String),
}

impl JudgeKind {
    /// `hunt`, or else a command.
    pub fn of(text: &str) -> JudgeKind {
        match text {
            "hunt" => JudgeKind::Hunt,
            command => JudgeKind::Command(command.to_owned()),
        }
    }
}

/// Reason for a missing verdict.
#[derive(Debug, thiserror::Error)]
pub enum JudgeError {
    /// It could not be started or waited for.
    #[error("cannot run the judge: {0}")]
    Start(io::Error),
    /// It failed.
    #[error("the judge ended with {status}; expected 0 and a verdict on standard output{said}")]
    Failed {
        /// Exit status.
        status: ExitStatus,
        /// The end of its standard error, if any.
        said: String,
    },
    /// It did not end in time.
    #[error("the judge was still running after {0:?} and was killed")]
    TimedOut(Duration),
    /// It ended, but something that it started keeps its output open.
    #[error("the judge has exited, but something it started still holds its standard output")]
    HeldOpen,
    /// Its output is not a verdict.
    #[error("the judge's verdict: {0}")]
    NoVerdict(#[from] VerdictError),
    /// The evidence cannot be read.
    #[error(transparent)]
    Evidence(#[from] GatherError),
    /// The evidence could not be read when it was gathered.
    #[error("{0}")]
    NotGathered(String),
    /// Ctrl-C.
    #[error("interrupted")]
    Interrupted,
}

impl Judge {
    /// Name in reports.
    pub fn name(&self) -> String {
        match &self.who {
            JudgeKind::Hunt => "spangap hunt".to_owned(),
            JudgeKind::Command(words) => words.clone(),
        }
    }

    /// Asks for a verdict on a folder.
    ///
    /// # Errors
    /// It gives none in time.
    pub fn ask(&self, folder: &Path, interrupted: &AtomicBool) -> Result<Verdict, JudgeError> {
        match &self.who {
            JudgeKind::Hunt => own(folder, self.limit, interrupted),
            JudgeKind::Command(words) => {
                Ok(verdict::parse(&self.ask_command(words, folder, interrupted)?)?)
            }
        }
    }

    /// Gathers the evidence for a judge: that of a run, and that of the window before it, if there is one.
    ///
    /// # Errors
    /// It cannot be read, or not in time.
    pub fn evidence(
        &self,
        folder: &Path,
        interrupted: &AtomicBool,
    ) -> Result<(Evidence, Option<Evidence>), JudgeError> {
        with_before(folder, self.limit, interrupted)
    }

    /// The full conclusion about a folder. Its evidence was gathered before; a command gathers its own.
    ///
    /// # Errors
    /// There is no conclusion in time, or the evidence could not be gathered.
    pub fn conclude(
        &self,
        folder: &Path,
        evidence: Result<&(Evidence, Option<Evidence>), String>,
        interrupted: &AtomicBool,
    ) -> Result<Conclusion, JudgeError> {
        match &self.who {
            JudgeKind::Hunt => {
                let (evidence, before) = evidence.map_err(JudgeError::NotGathered)?;
                let hunt = hunt(evidence, &beside(before.as_ref()));
                let document = serde_json::to_value(hunt).expect("a verdict is plain data");
                Ok(Conclusion::of_document(document)?)
            }
            JudgeKind::Command(words) => {
                Ok(Conclusion::parse(&self.ask_command(words, folder, interrupted)?)?)
            }
        }
    }

    fn ask_command(
        &self,
        words: &str,
        folder: &Path,
        interrupted: &AtomicBool,
    ) -> Result<Vec<u8>, JudgeError> {
        let mut judge = RunningJudge(command(words, folder).spawn().map_err(JudgeError::Start)?);
        let out = output(judge.0.stdout.take().expect("it is piped"));
        let err = output(judge.0.stderr.take().expect("it is piped"));
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = judge.0.try_wait().map_err(JudgeError::Start)? {
                break status;
            }
            if interrupted.load(Relaxed) {
                return Err(JudgeError::Interrupted);
            }
            if begun.elapsed() > self.limit {
                return Err(JudgeError::TimedOut(self.limit));
            }
            std::thread::sleep(LOOK_EVERY);
        };
        if !status.success() {
            let said = err.recv_timeout(PIPE_ENDS_WITHIN).unwrap_or_default();
            return Err(JudgeError::Failed { status, said: complaint(&said) });
        }
        out.recv_timeout(PIPE_ENDS_WITHIN).map_err(|_| JudgeError::HeldOpen)
    }
}

/// The verdict of `spangap hunt` on a folder, in short form.
///
/// # Errors
/// The evidence cannot be read, or not in time.
pub fn own(folder: &Path, limit: Duration, interrupted: &AtomicBool) -> Result<Verdict, JudgeError> {
    let (evidence, before) = with_before(folder, limit, interrupted)?;
    Ok(hunt(&evidence, &beside(before.as_ref())).verdict())
}

fn beside(before: Option<&Evidence>) -> Question<'_> {
    Question { against: before, ..Question::default() }
}

fn with_before(
    folder: &Path,
    limit: Duration,
    interrupted: &AtomicBool,
) -> Result<(Evidence, Option<Evidence>), JudgeError> {
    let evidence = gathered(folder, limit, interrupted)?;
    let before = spangap_gather::before(folder);
    Ok((evidence, before.map(|before| gathered(&before, limit, interrupted)).transpose()?))
}

fn gathered(folder: &Path, limit: Duration, interrupted: &AtomicBool) -> Result<Evidence, JudgeError> {
    let begun = Instant::now();
    let mut on_progress = |_| match interrupted.load(Relaxed) || begun.elapsed() > limit {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    let sources = Sources::of_folder(folder)?;
    let gathered = spangap_gather::evidence(&sources, Wanted::FOR_A_HUNT, &mut on_progress, interrupted);
    if interrupted.load(Relaxed) {
        return Err(JudgeError::Interrupted);
    }
    if begun.elapsed() > limit {
        return Err(JudgeError::TimedOut(limit));
    }
    Ok(gathered?)
}

fn command(words: &str, folder: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{words} \"$1\""), "judge"]).arg(folder);
    // A process group of its own: everything it starts is killed with it, and a Ctrl-C at the terminal does not
    // reach it.
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    command
}

/// Reads in a thread: neither of the two pipes may fill up while the other is read.
fn output(pipe: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (send, receive) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // After an error, the bytes read so far are all there is.
        let _ = pipe.take(MOST_BYTES).read_to_end(&mut bytes);
        // The receiver is gone after the time limit.
        let _ = send.send(bytes);
    });
    receive
}

fn complaint(said: &[u8]) -> String {
    // A truncated letter becomes a replacement character.
    let end = String::from_utf8_lossy(&said[said.len().saturating_sub(COMPLAINT_BYTES)..]);
    let end = end.trim();
    if end.is_empty() { String::new() } else { format!("; it said: {end}") }
}

/// A running judge; dropping it kills it with all that it started.
struct RunningJudge(Child);

impl Drop for RunningJudge {
    fn drop(&mut self) {
        if let Some(group) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            // A group without processes needs no signal.
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spangap_diagnose::Answer;

    fn judge(command: &str, limit: Duration) -> Result<Verdict, JudgeError> {
        let judge = Judge { who: JudgeKind::of(command), limit };
        judge.ask(Path::new("/some where/it's"), &AtomicBool::new(false))
    }

    #[test]
    fn folder_is_the_last_word_of_the_command() {
        let command = r#"printf '{"culprit":"none","why":"%s|%s"}' 'a b'"#;
        let verdict = judge(command, LIMIT).expect("a verdict");
        assert_eq!(verdict.answer, Answer::NOTHING);
        assert_eq!(verdict.why.as_deref(), Some("a b|/some where/it's"));
    }

    #[test]
    fn errors_are_reported() {
        let failed = judge("echo no idea >&2; exit 3; :", LIMIT).expect_err("it fails").to_string();
        assert!(failed.contains("3") && failed.contains("no idea"), "{failed}");
        let garbage = judge("echo", LIMIT).expect_err("no verdict").to_string();
        assert!(garbage.contains("expected one JSON object"), "{garbage}");
    }

    #[test]
    fn one_that_hangs_is_killed_with_all_that_it_started() {
        // The pipe ends once neither the shell nor anything it started holds it.
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 1000 & sleep 1000"]).stdout(writer).process_group(0);
        let running = RunningJudge(command.spawn().expect("a shell"));
        drop(command);
        drop(running);
        assert_eq!(reader.read_to_end(&mut Vec::new()).expect("its end"), 0);
        let error = judge("sleep 1000 & sleep 1000;:", Duration::from_millis(20)).expect_err("it hangs");
        assert!(matches!(error, JudgeError::TimedOut(_)), "{error}");
    }

    #[test]
    fn an_interrupt_ends_it() {
        let judge = Judge { who: JudgeKind::of("sleep 1000;:"), limit: LIMIT };
        let error = judge.ask(Path::new("/"), &AtomicBool::new(true)).expect_err("interrupted");
        assert!(matches!(error, JudgeError::Interrupted), "{error}");
    }

    #[test]
    fn long_complaint_is_quoted_from_its_end() {
        let told = complaint(format!("x{}why", "é".repeat(1000)).as_bytes());
        assert!(told.len() < COMPLAINT_BYTES + 20 && told.ends_with("ééwhy"), "{told}");
        assert_eq!(complaint(b" \n"), "");
    }
}
