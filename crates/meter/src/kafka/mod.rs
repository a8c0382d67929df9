//! `spangap meter --kafka`: spans from the partitions of a Kafka topic, divided among the meters of a consumer group.
//!
//! A message goes from `source` (which polls [`library::Consumer`]) into the engine's partition
//! ([`crate::engine::partitions`]). The recorder's checkpoint takes the minutes and the offsets at one moment, has
//! [`member::Member`] commit the offsets to the group, and writes both in one transaction ([`crate::history`]).
//! [`custody`] says which part of a partition each meter has counted. docs/kafka.md states what is exact.

pub mod apart;
pub mod custody;
pub mod library;
pub mod member;
pub mod settings;
pub mod source;
#[cfg(test)]
mod tests;

use crate::engine::Meter;
use crate::history::{History, HistoryError};
use crate::report::KafkaCoverage;
use crate::serve::clock::Clock;
use crate::serve::notice::tell;
use crate::serve::recorder::{Log, Requests};
use library::{Library, LibraryError};
use member::Member;
use settings::KafkaSettings;
use source::Source;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Why Kafka cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum KafkaError {
    /// The library is missing or too old.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// The history does not tell what was counted.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// The history lives in memory, or cannot be opened yet.
    #[error("kafka: offsets are stored in the history, {0}")]
    NotStored(String),
}

/// A topic to read.
#[derive(Debug)]
pub struct Kafka {
    settings: KafkaSettings,
    password: Option<String>,
    library: Library,
    meter: Arc<Meter>,
    member: Arc<Member>,
    figures: Mutex<KafkaCoverage>,
    stop: Arc<AtomicBool>,
}

impl Kafka {
    /// Loads the library, and finds in the history what was counted already. `password` is the content of the
    /// password file.
    ///
    /// # Errors
    /// When the library is missing, refuses a setting, or the history is not on disk.
    pub fn open(
        settings: KafkaSettings,
        password: Option<String>,
        meter: Arc<Meter>,
        history: &mut History,
    ) -> Result<Kafka, KafkaError> {
        if let Some(problem) = history.unopened() {
            return Err(KafkaError::NotStored(problem.into()));
        }
        if !history.is_stored() {
            return Err(KafkaError::NotStored("which needs a directory: expected --data DIR".into()));
        }
        let library = Library::load()?;
        library.check(&settings.properties(password.as_deref()))?;
        if settings.is_scram() && library.has_old_scram() {
            tell(&format!(
                "kafka: brokers from Kafka 4 on refuse SCRAM by librdkafka {}: expected 2.6.1 or newer",
                library.version()
            ));
        }
        let log = format!("{}/{}", settings.group.0, settings.topic.0);
        let (name, counted) = history.counted(&log, &format!("{:08x}", fastrand::u32(..)))?;
        let ttl_ms = meter.settings().join_ttl_ms.unwrap_or(u32::MAX);
        let member = Member::new((log, name), &counted, settings.start, ttl_ms, meter.clone());
        let figures = KafkaCoverage {
            topic: settings.topic.0.clone(),
            group: settings.group.0.clone(),
            library: library.version(),
            ..KafkaCoverage::default()
        };
        Ok(Kafka {
            settings,
            password,
            library,
            meter,
            member: Arc::new(member),
            figures: Mutex::new(figures),
            stop: Arc::default(),
        })
    }

    /// What the recorder has to tell.
    pub fn log(&self) -> Arc<dyn Log> {
        self.member.clone()
    }

    /// Figures as of a moment ago.
    pub fn figures(&self) -> KafkaCoverage {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Starts the thread that reads.
    pub fn start(self: &Arc<Kafka>, requests: Requests, clock: Clock) -> JoinHandle<()> {
        let mut source = Source::new(self.clone(), requests, clock);
        std::thread::spawn(move || source.run())
    }

    /// Asks the thread to end, with all written that it has counted.
    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    fn is_stopping(&self) -> bool {
        self.stop.load(Relaxed)
    }
}
