//! The running experiment, and plans that wait for a start.

use super::plan::Plan;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Delay of spans of treated calls after the last undo: exporters send every five seconds, and calls last.
const LATE_MS: u64 = 15_000;

/// Plans that were shown, and the running experiment.
#[derive(Debug, Default)]
pub struct Experiments(Mutex<Inner>);

#[derive(Debug, Default)]
pub(super) struct Inner {
    /// Plans that were shown, with the time of that, Unix milliseconds.
    pub(super) plans: Vec<(u64, Plan)>,
    /// The case of the running experiment, and how to stop it.
    pub(super) running: Option<(String, watch::Sender<bool>)>,
    /// Calls may be treated until this time, Unix milliseconds.
    tried_until_ms: u64,
}

impl Experiments {
    pub(super) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the experiment; no change is in force after this time.
    pub(super) fn ended(&self, undone_unix_ms: u64) {
        let mut inner = self.inner();
        inner.running = None;
        inner.tried_until_ms = inner.tried_until_ms.max(undone_unix_ms + LATE_MS);
    }

    /// Whether calls since a time may have been treated.
    pub(crate) fn is_tried_since(&self, unix_ms: u64) -> bool {
        let inner = self.inner();
        inner.running.is_some() || unix_ms < inner.tried_until_ms
    }

    /// The case whose experiment is running.
    pub fn running(&self) -> Option<String> {
        self.inner().running.as_ref().map(|(id, _)| id.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_count_as_treated_until_the_last_is_exported() {
        let experiments = Experiments::default();
        assert!(!experiments.is_tried_since(0), "nothing was tried");
        let (stop, _stopped) = watch::channel(false);
        experiments.inner().running = Some(("one".into(), stop));
        assert!(experiments.is_tried_since(u64::MAX), "as long as it is under way");
        // A host that has not confirmed its undo is assumed changed until its guard acts.
        experiments.ended(80_000);
        assert!(experiments.is_tried_since(94_999) && !experiments.is_tried_since(95_000));
        experiments.ended(60_000);
        assert!(experiments.is_tried_since(94_999), "the later one counts");
    }
}
