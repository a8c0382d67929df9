//! Waits for lines in the slow log of a tank.

use anyhow::anyhow;
use serde::Serialize;
use spangap_bench::slow_log::SlowCall;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// What triggers the writing of packets.
#[derive(Clone, Debug)]
pub enum Trigger {
    /// A line in this file.
    SlowLog(PathBuf),
}

impl Trigger {
    /// The file that is watched.
    pub fn path(&self) -> &Path {
        let Trigger::SlowLog(path) = self;
        path
    }
}

impl FromStr for Trigger {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("slow-log", path)) if !path.is_empty() => Ok(Trigger::SlowLog(path.into())),
            _ => Err(format!("{text:?} is not a trigger: expected slow-log:FILE")),
        }
    }
}

/// A trace id as it is written in the log: lower case, without dashes.
pub fn trace_id(text: &str) -> Result<String, String> {
    let id: String = text.chars().filter(|c| *c != '-').map(|c| c.to_ascii_lowercase()).collect();
    match id.len() == 32 && id.chars().all(|c| c.is_ascii_hexdigit()) {
        true => Ok(id),
        false => Err(format!("--trace-id: {text:?}: expected 32 hexadecimal digits")),
    }
}

/// The call that a line describes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Slow {
    pub trace_id: String,
    /// When it was sent, by the tank's clock.
    pub sent_unix_ns: u64,
    /// How long it took.
    pub duration_ns: u64,
}

/// Bytes of the log read at once.
const PIECE: u64 = 1 << 20;
/// A longer line is not one of ours.
const MAX_LINE: usize = 64 << 10;
/// Maximum number of malformed lines reported individually; if a file is not a slow log at all, the rest is
/// only counted.
const MAX_TOLD: u64 = 20;

/// Follows a log from its current end; if it does not exist yet, from its beginning.
#[derive(Debug)]
pub struct SlowLogTail {
    path: PathBuf,
    wanted: Option<String>,
    at: u64,
    /// Bytes after the last end of line.
    rest: Vec<u8>,
    /// Number of lines before it in the file.
    lines: u64,
    /// Whether it is within a line that is too long, and was reported as malformed.
    too_long: bool,
    /// Lines that could not be parsed.
    pub malformed: u64,
    /// Messages about them, each reported once.
    complaints: Vec<String>,
}

impl SlowLogTail {
    /// Begins to follow the file.
    ///
    /// # Errors
    /// When the file is there and cannot be read.
    pub fn open(path: &Path, wanted: Option<String>) -> anyhow::Result<SlowLogTail> {
        let (at, lines) = match File::open(path).and_then(present_end) {
            Ok(end) => end,
            Err(error) if error.kind() == ErrorKind::NotFound => (0, 0),
            Err(error) => return Err(anyhow!("{}: {error}", path.display())),
        };
        let path = path.to_owned();
        let (rest, complaints) = (Vec::new(), Vec::new());
        Ok(SlowLogTail { path, wanted, at, rest, lines, too_long: false, malformed: 0, complaints })
    }

    /// Messages about lines read since the last call: file, line, what was found.
    pub fn complaints(&mut self) -> Vec<String> {
        std::mem::take(&mut self.complaints)
    }

    fn complain(&mut self, line: u64, found: &str) {
        self.malformed += 1;
        let path = self.path.display();
        match self.malformed {
            ..=MAX_TOLD => self.complaints.push(format!(
                "{path}, line {line}: {found}; expected a JSON object as `spangap tank --slow-log` writes it"
            )),
            n if n == MAX_TOLD + 1 => {
                self.complaints
                    .push(format!("{path}, line {line}: malformed, too; any others are only counted"));
            }
            _ => {}
        }
    }

    /// The next matching call, if its line has been written.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn next(&mut self) -> anyhow::Result<Option<Slow>> {
        self.read_more().map_err(|error| anyhow!("{}: {error}", self.path.display()))?;
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            self.lines += 1;
            if std::mem::take(&mut self.too_long) {
                continue;
            }
            match serde_json::from_slice::<SlowCall>(&line) {
                Ok(call) if self.wanted.as_ref().is_none_or(|wanted| *wanted == call.trace_id) => {
                    let SlowCall { trace_id, sent_unix_ns, duration_ns, .. } = call;
                    return Ok(Some(Slow { trace_id, sent_unix_ns, duration_ns }));
                }
                Ok(_) => {}
                Err(_) if line.trim_ascii().is_empty() => {}
                Err(error) => {
                    // The error gives its place as in a document of one line.
                    let column = error.column();
                    let error = error.to_string();
                    let what = error.split(" at line ").next().unwrap_or_default();
                    self.complain(self.lines, &format!("column {column}: {what}"));
                }
            }
        }
        if self.rest.len() > MAX_LINE {
            self.rest.clear();
            if !std::mem::replace(&mut self.too_long, true) {
                self.complain(self.lines + 1, &format!("more than {MAX_LINE} bytes without an end of line"));
            }
        }
        Ok(None)
    }

    fn read_more(&mut self) -> std::io::Result<()> {
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        let length = file.metadata()?.len();
        if length < self.at {
            // A new run of the tank empties the file.
            self.at = 0;
            self.lines = 0;
            self.too_long = false;
            self.rest.clear();
        }
        if length == self.at {
            return Ok(());
        }
        file.seek(SeekFrom::Start(self.at))?;
        self.at += file.take(PIECE).read_to_end(&mut self.rest)? as u64;
        Ok(())
    }
}

/// The current end of a file, and the number of lines before it.
fn present_end(mut file: File) -> std::io::Result<(u64, u64)> {
    let (mut at, mut lines) = (0, 0);
    let mut piece = vec![0; PIECE as usize];
    loop {
        let length = file.read(&mut piece)?;
        if length == 0 {
            return Ok((at, lines));
        }
        at += length as u64;
        lines += piece[..length].iter().filter(|byte| **byte == b'\n').count() as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn line(trace_id: &str) -> String {
        format!(
            r#"{{"trace_id":"{trace_id}","span_id":"00f067aa0ba902b7","status":"OK","intended_unix_ns":1,"sent_unix_ns":2,"done_unix_ns":9,"duration_ns":7,"local_addr":null,"peer_addr":null}}"#
        )
    }

    #[test]
    fn only_what_is_added_counts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("slow.jsonl");
        std::fs::write(&path, line(&"1".repeat(32)) + "\n").unwrap();
        let mut tail = SlowLogTail::open(&path, None).unwrap();
        assert_eq!(tail.next().unwrap(), None);
        let mut log = File::options().append(true).open(&path).unwrap();
        let text = line(&"2".repeat(32));
        let (first, second) = text.split_at(40);
        log.write_all(first.as_bytes()).unwrap();
        assert_eq!(tail.next().unwrap(), None, "half a line");
        writeln!(log, "{second}\nnonsense\n").unwrap();
        assert_eq!(tail.next().unwrap().unwrap().trace_id, "2".repeat(32));
        assert_eq!(tail.next().unwrap(), None);
        assert_eq!(tail.malformed, 1);
        let said = tail.complaints();
        let place = format!("{}, line 3: column 2: expected ident", path.display());
        assert!(said.len() == 1 && said[0].starts_with(&place), "{said:?}");
        assert_eq!(tail.complaints(), Vec::<String>::new(), "each is said once");
        // The tank starts again.
        std::fs::write(&path, line(&"3".repeat(32)) + "\n").unwrap();
        assert_eq!(tail.next().unwrap().unwrap().trace_id, "3".repeat(32));
    }

    #[test]
    fn a_line_without_end_is_one_line_and_a_file_of_nonsense_is_said_to_be_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("slow.jsonl");
        let mut tail = SlowLogTail::open(&path, None).unwrap();
        let long = "x".repeat(3 * MAX_LINE);
        std::fs::write(&path, &long).unwrap();
        assert_eq!(tail.next().unwrap(), None);
        let mut log = File::options().append(true).open(&path).unwrap();
        write!(log, "{long}\n{}\n", line(&"4".repeat(32))).unwrap();
        assert_eq!(tail.next().unwrap().unwrap().trace_id, "4".repeat(32));
        assert_eq!(tail.malformed, 1);
        write!(log, "{}", "{}\n".repeat(100)).unwrap();
        assert_eq!(tail.next().unwrap(), None);
        let said = tail.complaints();
        assert_eq!((tail.malformed, said.len() as u64), (101, MAX_TOLD + 1));
        assert!(said[1].contains("line 3: column 2: missing field"), "{said:?}");
        assert!(said[MAX_TOLD as usize].ends_with("any others are only counted"), "{said:?}");
    }

    #[test]
    fn a_file_that_comes_later_and_the_trace_that_is_wanted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("slow.jsonl");
        let wanted = trace_id("0AF7651916CD43DD-8448EB211C80319C").unwrap();
        let mut tail = SlowLogTail::open(&path, Some(wanted.clone())).unwrap();
        assert_eq!(tail.next().unwrap(), None);
        std::fs::write(&path, [line(&"1".repeat(32)), line(&wanted), String::new()].join("\n")).unwrap();
        assert_eq!(tail.next().unwrap().unwrap().trace_id, wanted);
        assert!(trace_id("12").is_err());
    }

    #[test]
    fn triggers_by_name() {
        assert!("slow-log:x.jsonl".parse::<Trigger>().is_ok());
        assert!("slow-log:".parse::<Trigger>().unwrap_err().contains("expected slow-log:FILE"));
        assert!("x.jsonl".parse::<Trigger>().is_err());
    }
}
