//! What applications do wrong, done to a program that does not know: a library that is preloaded into it (`shim.c`)
//! takes time over what was read, reads late, keeps little room for what comes, or accepts late. No byte is changed.

mod log;

use crate::LabError;
use crate::stage::{Around, PORT, Stage};
use crate::truth::Active;
use spangap_model::Side;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The library, as the build compiled it.
pub const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/shim.so"));
const SOURCE: &str = include_str!("shim.c");

/// The variables of the environment that the library heeds, a line each, as its source explains them.
pub fn settings_in_words() -> String {
    let settings = SOURCE.lines().filter_map(|line| line.strip_prefix("// "));
    let settings: Vec<&str> = settings.filter(|line| line.starts_with("  SPANGAP_SHIM_")).collect();
    settings.join("\n")
}

/// What one program of a run does to its connections on the port of the target. Spans go elsewhere and are left alone,
/// and so is `tank`, which only starts the program that calls.
#[derive(Clone, Debug)]
pub struct Shim {
    /// The program that calls, or the one that serves.
    pub side: Side,
    /// After each read: time for what was read, spent asleep.
    pub cost: Option<Cost>,
    /// Reads that come late: data waits in the kernel meanwhile.
    pub late: Option<Late>,
    /// SO_RCVBUF of its connections, bytes; the kernel doubles it, for its own overhead.
    pub receive_buffer: Option<u32>,
    /// Most connections that wait to be accepted, one less than the kernel lets in.
    pub backlog: Option<u32>,
    /// Before each connection that waits is accepted: so long asleep.
    pub accept_pause: Option<Duration>,
}

/// A serial cost of a connection: whatever else is read on it waits. Burns no CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// So long
    pub time: Duration,
    /// for so many bytes, in proportion.
    pub bytes: u64,
}

/// When a read for which data is there comes late, and by how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Late {
    /// By so much.
    pub pause: Duration,
    /// Which reads.
    pub every: Every,
}

/// Which reads come late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Every {
    /// Those with this number and its multiples.
    Reads(u64),
    /// The first of each such stretch of time.
    Period(Duration),
}

impl Shim {
    /// Nothing yet, in the program of one side.
    pub fn at(side: Side) -> Shim {
        Shim { side, cost: None, late: None, receive_buffer: None, backlog: None, accept_pause: None }
    }

    /// Surrounds the program with it: for [`crate::stage::Tank::around`] at the client, for
    /// [`crate::stage::Serve::around`] at the server.
    ///
    /// # Errors
    /// When the library cannot be written, or not be preloaded from where it is.
    pub fn apply(&self, stage: &Stage<'_>, mut around: Around) -> Result<Around, LabError> {
        around.environment.extend(self.environment(&stage.file(""), &self.log_file(stage))?);
        Ok(around)
    }

    /// The variables that put it into a program: the library is written into this folder, and what it does into this log.
    ///
    /// # Errors
    /// When the library cannot be written, or not be preloaded from where it is.
    pub fn environment(&self, folder: &Path, log: &Path) -> Result<Vec<(String, String)>, LabError> {
        let library = folder.join(format!("shim-{}.so", self.side.name()));
        // The dynamic linker takes a list, and knows no quotes.
        let name = library.to_str().filter(|name| !name.contains([' ', ':', '\t']));
        let name = name.ok_or_else(|| LabError::Unavailable {
            what: "a program with a preloaded library".into(),
            why: format!("{} has a blank or colon; choose another --out", library.display()),
        })?;
        fs::write(&library, LIBRARY).map_err(LabError::file("write", &library))?;
        let own =
            [("LD_PRELOAD".into(), name.to_owned()), ("SPANGAP_SHIM_LOG".into(), log.display().to_string())];
        let settings = self.settings().into_iter();
        let settings = settings.map(|(name, value)| (format!("SPANGAP_SHIM_{name}"), value));
        Ok(own.into_iter().chain(settings).collect())
    }

    /// When it paused the program, in the order in which the pauses ended. For when the program has ended, or at least
    /// done what it is asked about.
    ///
    /// # Errors
    /// [`LabError::Unavailable`] when it was not in the program at all.
    pub fn log(&self, stage: &Stage<'_>) -> Result<Vec<Active>, LabError> {
        self.read(&self.log_file(stage))
    }

    fn read(&self, path: &Path) -> Result<Vec<Active>, LabError> {
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            read => read.map_err(LabError::file("read", path))?,
        };
        let log = log::parse(&text).map_err(|error| LabError::File {
            what: "understand",
            path: path.to_owned(),
            source: std::io::Error::other(error),
        })?;
        if log.loaded == 0 {
            return Err(LabError::Unavailable {
                what: "a program with a preloaded library".into(),
                why: format!(
                    "no library was preloaded into the {}'s program: it is linked statically, or another C library's",
                    self.side.name()
                ),
            });
        }
        if self.receive_buffer.is_some() && log.buffers.is_empty()
            || self.backlog.is_some() && log.backlogs.is_empty()
        {
            return Err(LabError::program(
                path.display().to_string(),
                "no connection got what was to be set: the program opens them in a way that is not known",
            ));
        }
        if log.full {
            return Err(LabError::program(path.display().to_string(), "more pauses than it has room for"));
        }
        Ok(log.pauses)
    }

    fn log_file(&self, stage: &Stage<'_>) -> PathBuf {
        stage.file(&format!("shim-{}.log", self.side.name()))
    }

    /// As `shim.c` takes them.
    fn settings(&self) -> Vec<(&'static str, String)> {
        let ns = |time: Duration| time.as_nanos().to_string();
        let program = match self.side {
            Side::Client => "client",
            Side::Server => "target",
        };
        let mut settings = vec![("IN", program.to_owned()), ("PORT", PORT.to_string())];
        if let Some(cost) = self.cost {
            settings.extend([("COST_NS", ns(cost.time)), ("COST_BYTES", cost.bytes.to_string())]);
        }
        if let Some(late) = self.late {
            settings.push(("LATE_NS", ns(late.pause)));
            settings.push(match late.every {
                Every::Reads(number) => ("LATE_READS", number.to_string()),
                Every::Period(time) => ("LATE_PERIOD_NS", ns(time)),
            });
        }
        settings.extend(self.receive_buffer.map(|bytes| ("RCVBUF", bytes.to_string())));
        settings.extend(self.backlog.map(|backlog| ("BACKLOG", backlog.to_string())));
        settings.extend(self.accept_pause.map(|time| ("ACCEPT_NS", ns(time))));
        settings
    }
}

#[cfg(test)]
mod tests;
