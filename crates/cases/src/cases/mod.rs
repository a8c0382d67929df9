//! All cases: opened by triggers and people within a budget, followed until the pair is back to its usual figures,
//! stored within bounds.

mod excursions;
mod opening;

use crate::agents::Agents;
use crate::budget::Budget;
use crate::experiment::underway::Experiments;
use crate::folder::{CASE, Folder};
use crate::now_unix_ms;
use crate::report::{
    AgentsReport, CaseReport, CaseRow, CasesReport, EventRow, GapRow, Moment, PairRow, Refused, Sides, State,
};
use crate::verdict::{Judge, Program};
use crate::watching::{NoUsual, Watched};
use crate::whole::Looker;
pub use opening::NotOpened;
use spangap_meter::engine::Meter;
use spangap_meter::serve::access::Access;
use spangap_model::PairKey;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How much is asked of hosts, and how much is kept.
#[derive(Clone, Debug)]
pub struct CaseSettings {
    /// Folder of the cases.
    pub folder: PathBuf,
    /// Gaps over this make a case, nanoseconds.
    pub over_ns: Option<u64>,
    /// Slices asked for in a minute, of all hosts together.
    pub slices_per_minute: usize,
    /// Bytes of all cases.
    pub most_bytes: u64,
    /// Bytes of a slice, as sent.
    pub slice_bytes: u64,
    /// How long a slice may take to come.
    pub slice_time: Duration,
    /// The shortest block of an experiment.
    pub experiment_block: Duration,
    /// Who judges; without it, this process.
    pub judge: Option<Program>,
}

/// The shortest block of an experiment, unless told otherwise: calls near the changes at its ends, which count for neither half, take a
/// third of it.
pub const EXPERIMENT_BLOCK: Duration = Duration::from_secs(2);

/// How long a slice may take to come, unless told otherwise.
pub const SLICE_TIME: Duration = Duration::from_secs(20);

/// Calls that began this long before a case, by the meter's clock, are another story, nanoseconds.
pub(crate) const LOOK_BACK_NS: u64 = 25_000_000_000;
/// Calls of a pair in doubt that are kept in half a minute, with their spans.
pub(crate) const CLOSELY: usize = 4_096;

/// All of them.
#[derive(Debug)]
pub struct Cases {
    pub(crate) meter: Arc<Meter>,
    pub(crate) agents: Arc<Agents>,
    pub(crate) access: Arc<Access>,
    pub(crate) settings: CaseSettings,
    pub(crate) folder: Arc<Folder>,
    pub(crate) judge: Judge,
    pub(crate) looker: Looker,
    /// Plans that were shown, and the one that is carried out.
    pub experiments: Experiments,
    inner: Mutex<Inner>,
    watched: Mutex<Watched>,
}

#[derive(Debug)]
struct Inner {
    /// By id; verdicts in full are on disk.
    cases: BTreeMap<String, CaseReport>,
    /// Cases that wait for their moment, Unix milliseconds.
    due: Vec<(u64, String)>,
    budget: Budget,
    /// The case of a pair that is out, how many more it has had, and what its calls lost in a window when it was opened, nanoseconds.
    of_excursion: BTreeMap<PairKey, (String, u32, u64)>,
    /// The pair of which every call is kept with its spans, as far as there is room, and since when.
    closely: Option<(PairKey, u64)>,
    unmatched: Sides,
    /// Pairs that are out and have no case, as the budget does not allow it; those that lost the most first.
    waiting: Vec<PairRow>,
}

impl Cases {
    /// Takes up what is in the folder.
    ///
    /// # Errors
    /// When the folder is there and cannot be read.
    pub fn open(
        meter: Arc<Meter>,
        agents: Arc<Agents>,
        access: Arc<Access>,
        settings: CaseSettings,
    ) -> io::Result<Arc<Cases>> {
        let folder = Arc::new(Folder::new(&settings.folder, settings.most_bytes));
        let cases = folder.load()?.into_iter().map(|case| (case.row.id.clone(), case)).collect();
        Ok(Arc::new(Cases {
            meter,
            agents,
            access,
            folder,
            judge: Judge::new(settings.judge.clone()),
            looker: Looker::default(),
            experiments: Experiments::default(),
            inner: Mutex::new(Inner {
                cases,
                due: Vec::new(),
                budget: Budget::new(settings.slices_per_minute),
                of_excursion: BTreeMap::new(),
                closely: None,
                unmatched: Sides::default(),
                waiting: Vec::new(),
            }),
            settings,
            watched: Mutex::default(),
        }))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cases whose moment has come by now, each returned once.
    pub(crate) fn due(&self, now_ms: u64) -> Vec<String> {
        let mut inner = self.inner();
        let (due, later) = std::mem::take(&mut inner.due).into_iter().partition(|(at, _)| *at <= now_ms);
        inner.due = later;
        let due: Vec<(u64, String)> = due;
        due.into_iter().map(|(_, id)| id).collect()
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether so many more slices may be asked for in this minute; then they are counted.
    pub(crate) fn may_ask(&self, slices: usize) -> bool {
        self.inner().budget.take(slices, 0, now_unix_ms())
    }

    /// Changes a case, and writes it down.
    pub(crate) fn change(&self, id: &str, change: impl FnOnce(&mut CaseReport)) {
        let mut inner = self.inner();
        let Some(case) = inner.cases.get_mut(id) else { return };
        change(case);
        case.files = self.folder.files(id);
        let case = case.clone();
        drop(inner);
        self.save(&case);
    }

    /// Says what happened at this moment.
    pub(crate) fn note(&self, id: &str, what: impl Into<String>) {
        self.change(id, |case| case.time_line.push(moment(now_unix_ms(), what)));
    }

    /// A disk that is full does not end a case: what is known of it stays in memory.
    fn save(&self, case: &CaseReport) {
        let written = serde_json::to_vec_pretty(case)
            .map_err(io::Error::other)
            .and_then(|text| self.folder.write(&case.row.id, CASE, &text));
        if written.is_err() {
            self.agents.count(|refused| refused.not_written += 1);
        }
        // A row that names the case has its figures as well. Nobody who saves holds the cases.
        self.meter.set_usual(self.inner().usual(now_unix_ms()));
    }

    pub(crate) fn unmatched(&self, side: usize) {
        let mut inner = self.inner();
        match side {
            0 => inner.unmatched.client += 1,
            _ => inner.unmatched.server += 1,
        }
    }

    /// The pair as it was before the calls of a case, and as it is since.
    pub(crate) fn rows(&self, pair: &PairKey, case: &CaseReport) -> Result<[GapRow; 2], NoUsual> {
        let look_back_ms = case.row.opened_unix_ms.saturating_sub(LOOK_BACK_NS / 1_000_000);
        self.watched().rows(&self.meter, pair, case.slow_since_unix_ms, look_back_ms, now_unix_ms())
    }

    fn make_room(&self) {
        let mut inner = self.inner();
        let mut cases: Vec<&CaseReport> = inner.cases.values().collect();
        cases.sort_by_key(|case| case.row.opened_unix_ms);
        let gone = self.folder.too_many(&cases);
        for id in &gone {
            // One that cannot be removed is still counted as there by the next start.
            let _ = self.folder.remove(id);
            inner.cases.remove(id);
        }
        drop(inner);
        self.agents.count(|refused| refused.cases_removed += gone.len() as u64);
    }

    /// Rows, newest first.
    pub fn report(&self, state: Option<State>, pair: Option<&PairRow>, limit: usize) -> CasesReport {
        let inner = self.inner();
        let wanted = |case: &&CaseReport| {
            state.is_none_or(|state| case.row.state == state)
                && pair.is_none_or(|pair| case.row.pair == *pair)
        };
        let row = |case: &CaseReport| CaseRow {
            usual_until_unix_ms: case.usual.as_ref().map(|usual| usual.to_unix_ms),
            ..case.row.clone()
        };
        let mut cases: Vec<CaseRow> = inner.cases.values().filter(wanted).map(row).collect();
        cases.sort_by(|a, b| (b.opened_unix_ms, &b.id).cmp(&(a.opened_unix_ms, &a.id)));
        cases.truncate(limit);
        let shown = cases.iter().filter_map(|row| inner.cases.get(&row.id));
        let mut events: Vec<EventRow> = shown.flat_map(EventRow::of).collect();
        events.sort_by_key(|event| event.unix_ms);
        let waiting = inner.waiting.iter().filter(|waiting| pair.is_none_or(|pair| pair == *waiting));
        let waiting_pairs = waiting.clone().count() as u64;
        CasesReport { cases, events, waiting_pairs, waiting: waiting.take(limit).cloned().collect() }
    }

    /// One case, without its verdict in full, which is on disk.
    pub fn case(&self, id: &str) -> Option<CaseReport> {
        self.inner().cases.get(id).cloned()
    }

    /// Agents, and what was refused.
    pub fn agents_report(&self) -> AgentsReport {
        let refused = Refused { requests: self.access.denied.load(Relaxed), ..self.agents.refused() };
        AgentsReport { agents: self.agents.rows(now_unix_ms()), unmatched: self.inner().unmatched, refused }
    }
}

/// Something that happens now.
pub(crate) fn moment(unix_ms: u64, what: impl Into<String>) -> Moment {
    Moment { unix_ms, what: what.into() }
}

/// Whether a case is of this pair, and of its method where pairs have one.
fn is_of(pair: &PairKey, case: &CaseReport) -> bool {
    *case.row.pair.client == *pair.client
        && *case.row.pair.server == *pair.server
        && case.row.method.as_deref() == pair.method.as_deref()
}

fn pair_row(pair: &PairKey) -> PairRow {
    PairRow { client: pair.client.to_string(), server: pair.server.to_string() }
}

#[cfg(test)]
mod tests;
