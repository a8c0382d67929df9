//! Waits for lines in the slow log of a tank.

use anyhow::anyhow;
use serde::Serialize;
use spangap_bench::slow_log::SlowCall;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// What the packets are written for.
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
            _ => Err(format!("{text:?} is no trigger: expected slow-log:FILE")),
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

/// The call that a line tells of.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Slow {
    /// Its trace.
    pub trace_id: String,
    /// When it was sent, by the tank's clock.
    pub sent_unix_ns: u64,
    /// How long it took.
    pub duration_ns: u64,
}

/// Bytes of the log read at once.
const PIECE: u64 = 1 << 20;
/// A line longer than this is none of ours.
const MAX_LINE: usize = 64 << 10;

/// Follows a log from its present end; one that is not there yet, from its beginning.
#[derive(Debug)]
pub struct SlowLogTail {
    path: PathBuf,
    wanted: Option<String>,
    at: u64,
    /// What came after the last end of line.
    rest: Vec<u8>,
    /// Lines that could not be read.
    pub malformed: u64,
}

impl SlowLogTail {
    /// Begins to follow.
    ///
    /// # Errors
    /// When the file is there and cannot be read.
    pub fn open(path: &Path, wanted: Option<String>) -> anyhow::Result<SlowLogTail> {
        let at = match std::fs::metadata(path) {
            Ok(meta) => meta.len(),
            Err(error) if error.kind() == ErrorKind::NotFound => 0,
            Err(error) => return Err(anyhow!("{}: {error}", path.display())),
        };
        Ok(SlowLogTail { path: path.to_owned(), wanted, at, rest: Vec::new(), malformed: 0 })
    }

    /// The next call that is wanted, if its line is there.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn next(&mut self) -> anyhow::Result<Option<Slow>> {
        self.read_more().map_err(|error| anyhow!("{}: {error}", self.path.display()))?;
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            match serde_json::from_slice::<SlowCall>(&line) {
                Ok(call) if self.wanted.as_ref().is_none_or(|wanted| *wanted == call.trace_id) => {
                    let SlowCall { trace_id, sent_unix_ns, duration_ns, .. } = call;
                    return Ok(Some(Slow { trace_id, sent_unix_ns, duration_ns }));
                }
                Ok(_) => {}
                Err(_) if line.trim_ascii().is_empty() => {}
                Err(_) => self.malformed += 1,
            }
        }
        if self.rest.len() > MAX_LINE {
            self.rest.clear();
            self.malformed += 1;
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
        // The tank starts anew.
        std::fs::write(&path, line(&"3".repeat(32)) + "\n").unwrap();
        assert_eq!(tail.next().unwrap().unwrap().trace_id, "3".repeat(32));
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
