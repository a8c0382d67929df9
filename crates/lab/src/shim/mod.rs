//! Application faults injected into an unmodified program: a preloaded library (`shim.c`) that spends time on
//! received data, reads late, limits receive buffers, or accepts late. It changes no bytes.

mod log;

use crate::LabError;
use crate::stage::{PORT, Stage, Surroundings};
use crate::truth::Active;
use spangap_model::Side;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The library, as the build compiled it.
pub const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/shim.so"));
const SOURCE: &str = include_str!("shim.c");

/// Environment variables of the library, one per line, as documented in its source.
pub fn settings_in_words() -> String {
    let settings = SOURCE.lines().filter_map(|line| line.strip_prefix("// "));
    let settings: Vec<&str> = settings.filter(|line| line.starts_with("  SPANGAP_SHIM_")).collect();
    settings.join("\n")
}

/// Effects on one program's connections at the target's port. Connections for spans are left alone, and so is
/// `tank`, which only starts the calling program.
#[derive(Clone, Debug)]
pub struct Shim {
    /// The calling program, or the serving one.
    pub side: Side,
    /// Cost of each read, spent asleep.
    pub cost: Option<Cost>,
    /// Late reads: data waits in the kernel meanwhile.
    pub late: Option<LateRead>,
    /// SO_RCVBUF of its connections, in bytes; the kernel doubles it for its overhead.
    pub receive_buffer: Option<u32>,
    /// Backlog of connections waiting to be accepted; the kernel admits one more.
    pub backlog: Option<u32>,
    /// Sleep before each accept of a waiting connection.
    pub accept_pause: Option<Duration>,
}

/// A serial cost of a connection: further reads on it wait. Burns no CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    pub time: Duration,
    /// per this many bytes, in proportion.
    pub bytes: u64,
}

/// Which reads with available data are late, and by how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LateRead {
    /// Delay.
    pub pause: Duration,
    /// Which reads.
    pub every: LateReads,
}

/// Which reads are late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LateReads {
    /// Reads with this number and its multiples.
    Reads(u64),
    /// The first read in each period of this length.
    Period(Duration),
}

impl Shim {
    /// No effect yet, in the program of one side.
    pub fn at(side: Side) -> Shim {
        Shim { side, cost: None, late: None, receive_buffer: None, backlog: None, accept_pause: None }
    }

    /// Preloads it into the program: use the result with [`crate::stage::Tank::around`] at the client, or with
    /// [`crate::stage::Serve::around`] at the server.
    ///
    /// # Errors
    /// The library cannot be written, or cannot be preloaded from its path.
    pub fn apply(&self, stage: &Stage<'_>, mut around: Surroundings) -> Result<Surroundings, LabError> {
        around.environment.extend(self.environment(&stage.file(""), &self.log_file(stage))?);
        Ok(around)
    }

    /// Environment variables that preload it: the library is written into this folder, and it logs to this
    /// file.
    ///
    /// # Errors
    /// The library cannot be written, or cannot be preloaded from its path.
    pub fn environment(&self, folder: &Path, log: &Path) -> Result<Vec<(String, String)>, LabError> {
        let library = folder.join(format!("shim-{}.so", self.side.name()));
        // The dynamic linker takes a list, without quoting.
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

    /// Pauses of the program, by their ends. Call when the program has ended, or has at least done what is
    /// being checked.
    ///
    /// # Errors
    /// [`LabError::Unavailable`] if the library was not loaded at all.
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

    /// In the syntax of `shim.c`.
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
                LateReads::Reads(number) => ("LATE_READS", number.to_string()),
                LateReads::Period(time) => ("LATE_PERIOD_NS", ns(time)),
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
