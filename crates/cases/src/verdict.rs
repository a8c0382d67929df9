//! From the folder of a case to its verdict: the same way as `spangap hunt FOLDER`, one case at a time, within a time limit.

use crate::report::VerdictRow;
use serde_json::Value;
use spangap_diagnose::hunt::{Hunt, Kind, Question, hunt};
use spangap_gather::{GatherError, Sources, Wanted, evidence};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// A verdict that takes longer is given up.
const LIMIT: Duration = Duration::from_secs(60);

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub enum NoVerdict {
    /// The files cannot be read, or are not enough.
    #[error(transparent)]
    Gather(#[from] GatherError),
    /// It took too long.
    #[error("it was not reached within {} s", LIMIT.as_secs())]
    TooLong,
    /// The judge failed: a bug of ours.
    #[error("the analysis failed")]
    Failed,
}

/// Judges one case at a time.
#[derive(Debug)]
pub struct Judge {
    turn: Arc<Semaphore>,
}

impl Default for Judge {
    fn default() -> Judge {
        Judge { turn: Arc::new(Semaphore::new(1)) }
    }
}

impl Judge {
    /// What the files of a folder show.
    ///
    /// # Errors
    /// When they do not show anything, or not in time.
    pub async fn judge(&self, folder: &Path) -> Result<Hunt, NoVerdict> {
        let Ok(turn) = self.turn.clone().acquire_owned().await else { return Err(NoVerdict::Failed) };
        let stop = Arc::new(AtomicBool::new(false));
        let (path, stopped) = (folder.to_owned(), stop.clone());
        let work = tokio::task::spawn_blocking(move || {
            let done = of_folder(&path, &stopped);
            // Held until the work has really ended, whoever waits for it.
            drop(turn);
            done
        });
        match timeout(LIMIT, work).await {
            Ok(Ok(done)) => done,
            Ok(Err(_)) => Err(NoVerdict::Failed),
            Err(_) => {
                stop.store(true, Relaxed);
                Err(NoVerdict::TooLong)
            }
        }
    }
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

/// In short.
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
