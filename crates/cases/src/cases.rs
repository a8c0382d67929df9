//! All cases: opened by triggers and people within a budget, followed until the pair is back to its usual figures,
//! stored within bounds.

use crate::agents::Agents;
use crate::budget::Budget;
use crate::experiment::Experiments;
use crate::folder::{CASE, Folder, free_id};
use crate::memory::Freed;
use crate::nearest::{NEAREST, Nearest, near};
use crate::pursuit::LOOK_BACK_NS;
use crate::report::{
    AgentsReport, CaseReport, CaseRow, CasesReport, EventRow, GapRow, Moment, PairRow, Refused, Sides, State,
    Trigger,
};
use crate::samples::Measure;
use crate::server::now_unix_ms;
use crate::trigger::Figure;
use crate::verdict::{Judge, Program};
use crate::watching::{Event, NoUsual, SLOT_MS, Watched, What};
use crate::whole::Looker;
use spangap_meter::engine::Meter;
use spangap_meter::serve::access::Access;
use spangap_model::PairKey;
use spangap_model::duration::format_ns;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};

/// How much is asked of hosts, and how much is kept.
#[derive(Clone, Debug)]
pub struct Settings {
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

/// The shortest block of an experiment, unless told otherwise: changes at its ends take little of it.
pub const EXPERIMENT_BLOCK: Duration = Duration::from_secs(4);

/// How long a slice may take to come, unless told otherwise.
pub const SLICE_TIME: Duration = Duration::from_secs(20);

/// Between the trigger and the ask: answers of the last slow calls are in the rings by then.
const MARGIN_MS: u64 = 1_000;
/// A pair that is still out, and whose case came to nothing, gets another one after this time, so many times.
const AGAIN_MS: u64 = 60_000;
const AGAIN: u32 = 2;
/// Sooner, if it loses so many times as much as when that one was opened.
const MUCH_WORSE: u64 = 4;
/// Calls of a pair in doubt that are kept in half a minute, with their spans.
pub(crate) const CLOSELY: usize = 4_096;
/// Between a trigger and the ask where every call is kept from the trigger on: spans come five seconds late.
const CLOSELY_MS: u64 = 8_000;
/// The slices of a case: one of each host.
const SLICES: usize = 2;

/// Why no case is opened.
#[derive(Debug, thiserror::Error)]
pub enum NotOpened {
    /// Nobody has seen such calls.
    #[error("no calls of {client} -> {server} were seen; {}", near(.nearest))]
    NoPair {
        /// As it was asked for.
        client: String,
        /// See there.
        server: String,
        /// Pairs with similar names, the most similar first.
        nearest: Vec<PairRow>,
    },
    /// Not by this method.
    #[error("calls of {0} -> {1} were seen, but none of the method {2}; {3}")]
    NoMethod(String, String, String, String),
    /// Enough was asked of the hosts in this minute.
    #[error("{0} slices were requested this minute, the limit of --case-slices-per-minute; try again later")]
    Budget(usize),
    /// Its folder cannot be made.
    #[error("cannot make the folder of the case: {0}")]
    Folder(#[from] io::Error),
}

/// All of them.
#[derive(Debug)]
pub struct Cases {
    pub(crate) meter: Arc<Meter>,
    pub(crate) agents: Arc<Agents>,
    pub(crate) access: Arc<Access>,
    pub(crate) settings: Settings,
    pub(crate) folder: Arc<Folder>,
    pub(crate) judge: Judge,
    pub(crate) looker: Looker,
    /// Plans that were shown, and the one that is carried out.
    pub experiments: Experiments,
    known: Mutex<Known>,
    watched: Mutex<Watched>,
}

#[derive(Debug)]
struct Known {
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
        settings: Settings,
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
            known: Mutex::new(Known {
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

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches the pairs and pursues cases, for ever. Drop it to end it.
    pub async fn run(self: Arc<Self>) {
        let mut second = interval(Duration::from_secs(1));
        second.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut next_slot_ms = now_unix_ms() + SLOT_MS;
        let mut freed = Freed::default();
        loop {
            second.tick().await;
            let now_ms = now_unix_ms();
            if now_ms >= next_slot_ms {
                // A clock that was set back does not stop the slots.
                next_slot_ms = now_ms + SLOT_MS - (now_ms - next_slot_ms).min(SLOT_MS - 1);
                let cases = self.clone();
                let mut freed_before = std::mem::take(&mut freed);
                // A panic in there is a bug; the pairs are watched on.
                let work = tokio::task::spawn_blocking(move || {
                    cases.slot(now_ms);
                    freed_before.give_back_if_grown();
                    freed_before
                });
                freed = work.await.unwrap_or_default();
            } else if next_slot_ms > now_ms + 2 * SLOT_MS {
                next_slot_ms = now_ms + SLOT_MS;
            }
            for id in self.due(now_ms) {
                let pursuit = crate::pursuit::pursue(self.clone(), id.clone());
                tokio::spawn(self.clone().see_through(id, pursuit));
            }
        }
    }

    /// Pursues a case. A panic in there is a bug; a case that stayed open after it would be its pair's last one.
    async fn see_through(self: Arc<Self>, id: String, pursuit: impl Future<Output = ()> + Send + 'static) {
        if tokio::spawn(pursuit).await.is_ok() {
            return;
        }
        self.agents.count(|refused| refused.verdicts += 1);
        let why = "No verdict: the work on this case failed, which is a bug in spangap.";
        self.change(&id, |case| {
            case.time_line.push(moment(now_unix_ms(), why));
            case.lacks.push(why.into());
            case.row.state = State::Unknown;
        });
    }

    fn due(&self, now_ms: u64) -> Vec<String> {
        let mut known = self.known();
        let (due, later) = std::mem::take(&mut known.due).into_iter().partition(|(at, _)| *at <= now_ms);
        known.due = later;
        let due: Vec<(u64, String)> = due;
        due.into_iter().map(|(_, id)| id).collect()
    }

    /// What became of the pairs since the last one. [`Cases::run`] has it every five seconds.
    pub fn slot(&self, now_ms: u64) {
        let events = {
            let mut watched = self.watched();
            let is_tried = self.experiments.is_tried_since(now_ms.saturating_sub(SLOT_MS));
            let events = watched.slot(&self.meter, self.settings.over_ns, is_tried, now_ms);
            let not_watched = watched.not_watched;
            self.agents.count(|refused| refused.pairs_not_watched = not_watched);
            events
        };
        self.follow_all(events, now_ms);
        self.make_room();
    }

    /// Where the budget does not do for all that are out, those go first that have had no case, and of these the ones that lost the most:
    /// which pair the meter happened to see first says nothing.
    fn follow_all(&self, mut events: Vec<Event>, now_ms: u64) {
        {
            let known = self.known();
            events.sort_by_cached_key(|Event { pair, what }| match what {
                What::Out { lost_ns, .. } => {
                    let had = known.of_excursion.get(pair).map_or(0, |(_, times, _)| 1 + times);
                    (1 + had, Reverse(*lost_ns))
                }
                _ => (0, Reverse(0)),
            });
        }
        let mut waiting = Vec::new();
        for event in events {
            waiting.extend(self.follow(event, now_ms));
        }
        self.known().waiting = waiting;
    }

    /// The pair, if it is out and the budget does not allow a case of it now.
    fn follow(&self, Event { pair, what }: Event, now_ms: u64) -> Option<PairRow> {
        match what {
            What::Out { left, is_new, since_unix_ms, lost_ns } => {
                let before = match is_new {
                    true => {
                        self.regressed(&pair, now_ms);
                        None
                    }
                    false => self.known().of_excursion.get(&pair).cloned(),
                };
                let times = match &before {
                    None => 0,
                    Some((id, times, lost_then_ns))
                        if *times < AGAIN
                            && (self.came_to_nothing(id, now_ms)
                                || self.is_much_worse(id, *lost_then_ns, lost_ns)) =>
                    {
                        times + 1
                    }
                    Some(_) => return None,
                };
                let why = format!(
                    "triggered: {} {} instead of {}",
                    left.figure,
                    format_ns(left.now_ns),
                    format_ns(left.usual_ns)
                );
                let first = Moment {
                    unix_ms: since_unix_ms,
                    what: "the first window outside the baseline ended".into(),
                };
                let by = match left.figure {
                    Figure::Gap(_) => Measure::Gap,
                    Figure::Client(_) => Measure::ClientDuration,
                };
                let time_line = vec![first, moment(now_ms, why)];
                let slow = (by, Some(left.level_ns()));
                match self.begin(&pair, Trigger::Baseline, slow, time_line, now_ms) {
                    Ok(id) => drop(self.known().of_excursion.insert(pair, (id, times, lost_ns))),
                    Err(NotOpened::Budget(_)) => return Some(pair_row(&pair)),
                    // That it cannot be written is counted, and tried again.
                    Err(_) => {}
                }
            }
            What::Doubtful => self.watch_closely(&pair, now_ms),
            What::Within => self.watch_no_more(&pair),
            What::Over { calls } => {
                let over = format_ns(self.settings.over_ns.unwrap_or(0));
                let why = format!(
                    "triggered: {calls} calls with gaps over {over} in the last window, three in a minute"
                );
                // One over budget is counted.
                let time_line = vec![moment(now_ms, why)];
                let _ = self.begin(
                    &pair,
                    Trigger::Threshold,
                    (Measure::Gap, self.settings.over_ns),
                    time_line,
                    now_ms,
                );
            }
            What::Back { before, after } => {
                let mut known = self.known();
                known.of_excursion.remove(&pair);
                let of_pair = |case: &&mut CaseReport| {
                    is_of(&pair, case)
                        && case.row.trigger == Trigger::Baseline
                        && matches!(case.row.state, State::Explained | State::Unknown | State::Proven)
                        && case.row.opened_unix_ms >= before.from_unix_ms
                };
                let mut changed = Vec::new();
                for case in known.cases.values_mut().filter(of_pair) {
                    case.row.state = State::Fixed;
                    case.before = Some(before.clone());
                    case.after = Some(after.clone());
                    case.time_line.push(moment(
                        now_ms,
                        "fixed: the pair has been back to its usual figures for a \
                    minute",
                    ));
                    changed.push(case.clone());
                }
                drop(known);
                changed.iter().for_each(|case| self.save(case));
            }
            What::Accustomed { since_unix_ms } => {
                let mut known = self.known();
                let (id, ..) = known.of_excursion.remove(&pair)?;
                let case = known.cases.get_mut(&id)?;
                let minutes = now_ms.saturating_sub(since_unix_ms) / 60_000;
                case.time_line.push(moment(
                    now_ms,
                    format!("not fixed: after {minutes} minutes, these figures are the pair's usual ones"),
                ));
                let case = case.clone();
                drop(known);
                self.save(&case);
            }
        }
        None
    }

    /// Keeps every call of a pair from now on, where no other pair is in doubt already. A sample has few calls of each connection,
    /// and how calls of one connection wait for each other shows in neighbours alone.
    fn watch_closely(&self, pair: &PairKey, now_ms: u64) {
        let mut known = self.known();
        if known.closely.is_none()
            && self.experiments.running().is_none()
            && self.meter.follow(Some((pair, CLOSELY)))
        {
            known.closely = Some((pair.clone(), now_ms));
        }
    }

    fn watch_no_more(&self, pair: &PairKey) {
        let mut known = self.known();
        if known.closely.take_if(|(closely, _)| closely == pair).is_some()
            && self.experiments.running().is_none()
        {
            self.meter.follow(None);
        }
    }

    /// Since when every call of a pair is kept, if it is; it is not kept on.
    pub(crate) fn kept_since(&self, pair: &PairKey) -> Option<u64> {
        let since_ms =
            self.known().closely.as_ref().filter(|(closely, _)| closely == pair).map(|(_, since)| *since);
        self.watch_no_more(pair);
        since_ms
    }

    /// The last case of the pair that was fixed is not.
    fn regressed(&self, pair: &PairKey, now_ms: u64) {
        let mut known = self.known();
        let of_pair = known.cases.values_mut().filter(|case| is_of(pair, case));
        let last = of_pair.max_by_key(|case| case.row.opened_unix_ms);
        let Some(case) = last.filter(|case| case.row.state == State::Fixed) else { return };
        case.row.state = State::Regressed;
        case.time_line.push(moment(now_ms, "regressed: the pair has left its usual figures again"));
        let case = case.clone();
        drop(known);
        self.save(&case);
    }

    /// Whether the meter has seen more calls of the pair lately than it has kept.
    fn is_sampled(&self, pair: &PairKey) -> bool {
        let drawn = self.meter.samples(|key| key == pair);
        drawn.iter().flat_map(|(_, drawn)| drawn).any(|drawn| drawn.calls > drawn.by_call.len() as u64)
    }

    /// Noise may have opened a case just before something happened: what that has to say is not about this.
    fn is_much_worse(&self, id: &str, lost_then_ns: u64, lost_ns: u64) -> bool {
        let is_over = self.known().cases.get(id).is_none_or(|case| case.row.state != State::Open);
        is_over && lost_ns > MUCH_WORSE * lost_then_ns
    }

    fn came_to_nothing(&self, id: &str, now_ms: u64) -> bool {
        let known = self.known();
        known.cases.get(id).is_none_or(|case| {
            case.row.state == State::Unknown && now_ms.saturating_sub(case.row.opened_unix_ms) >= AGAIN_MS
        })
    }

    /// Opens a case because somebody asks, who may know since when calls are slow. One that is open already is not opened again.
    ///
    /// # Errors
    /// When there is no such pair, or no slice left to ask for.
    pub fn ask(
        &self,
        pair: &PairRow,
        method: Option<&str>,
        slow_since_unix_ms: Option<u64>,
    ) -> Result<String, NotOpened> {
        let mut found: Option<(u64, PairKey)> = None;
        let mut nearest = Nearest::to(pair);
        let mut methods = BTreeSet::new();
        let mut from = Some(0);
        while let Some(first) = from {
            from = self.meter.durations(first, 128, |_, key, gap, _| {
                if *key.client != *pair.client || *key.server != *pair.server {
                    return nearest.see(key);
                }
                let is_it =
                    method.is_none_or(|method| key.method.as_deref().is_none_or(|known| known == method));
                if !is_it && methods.len() < NEAREST {
                    methods.extend(key.method.as_deref().map(str::to_owned));
                }
                if is_it && found.as_ref().is_none_or(|(calls, _)| gap.count() > *calls) {
                    found = Some((gap.count(), key.clone()));
                }
            });
        }
        let (client, server) = (pair.client.clone(), pair.server.clone());
        let Some((_, key)) = found else {
            return Err(match method.filter(|_| !methods.is_empty()) {
                Some(method) => {
                    let seen = Vec::from_iter(methods).join(", ");
                    NotOpened::NoMethod(client, server, method.into(), format!("seen were {seen}"))
                }
                None => NotOpened::NoPair { client, server, nearest: nearest.pairs() },
            });
        };
        let now_ms = now_unix_ms();
        // Whoever asks why a pair is slow waits for its servers, too.
        let time_line = vec![moment(now_ms, "asked for by a person")];
        let id = self.begin(&key, Trigger::Person, (Measure::ClientDuration, None), time_line, now_ms)?;
        if slow_since_unix_ms.is_some() {
            self.change(&id, |case| {
                // One that opened by itself knows better.
                if case.row.trigger == Trigger::Person {
                    case.slow_since_unix_ms = slow_since_unix_ms;
                }
            });
        }
        Ok(id)
    }

    fn begin(
        &self,
        pair: &PairKey,
        trigger: Trigger,
        (slow_by, slow_over_ns): (Measure, Option<u64>),
        time_line: Vec<Moment>,
        now_ms: u64,
    ) -> Result<String, NotOpened> {
        let mut known = self.known();
        let (row, method) = (pair_row(pair), pair.method.as_deref().map(str::to_owned));
        let open =
            known.cases.values().filter(|case| is_of(pair, case)).find(|case| case.row.state == State::Open);
        if let Some(open) = open {
            return Ok(open.row.id.clone());
        }
        let most = self.settings.slices_per_minute;
        // A person is not kept waiting by those that opened by themselves.
        let kept = if trigger == Trigger::Person || most < 2 * SLICES { 0 } else { SLICES };
        if !known.budget.take(SLICES, kept, now_ms) {
            drop(known);
            self.agents.count(|refused| refused.over_budget += 1);
            return Err(NotOpened::Budget(self.settings.slices_per_minute));
        }
        let id = free_id(&known.cases, pair, now_ms);
        let case = CaseReport {
            row: CaseRow {
                id: id.clone(),
                pair: row,
                method,
                trigger,
                opened_unix_ms: now_ms,
                ..CaseRow::default()
            },
            time_line,
            slow_by,
            slow_over_ns,
            ..CaseReport::default()
        };
        self.folder.make(&id).inspect_err(|_| self.agents.count(|refused| refused.not_written += 1))?;
        known.cases.insert(id.clone(), case.clone());
        let margin_ms = if known.closely.is_none() && self.is_sampled(pair) { CLOSELY_MS } else { MARGIN_MS };
        known.due.push((now_ms + margin_ms, id.clone()));
        drop(known);
        if margin_ms == CLOSELY_MS {
            self.watch_closely(pair, now_ms);
        }
        self.save(&case);
        Ok(id)
    }

    /// Whether so many more slices may be asked for in this minute; then they are counted.
    pub(crate) fn may_ask(&self, slices: usize) -> bool {
        self.known().budget.take(slices, 0, now_unix_ms())
    }

    /// Changes a case, and writes it down.
    pub(crate) fn change(&self, id: &str, change: impl FnOnce(&mut CaseReport)) {
        let mut known = self.known();
        let Some(case) = known.cases.get_mut(id) else { return };
        change(case);
        case.files = self.folder.files(id);
        let case = case.clone();
        drop(known);
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
    }

    pub(crate) fn unmatched(&self, side: usize) {
        let mut known = self.known();
        match side {
            0 => known.unmatched.client += 1,
            _ => known.unmatched.server += 1,
        }
    }

    /// The pair as it was before the calls of a case, and as it is since.
    pub(crate) fn rows(&self, pair: &PairKey, case: &CaseReport) -> Result<[GapRow; 2], NoUsual> {
        let look_back_ms = case.row.opened_unix_ms.saturating_sub(LOOK_BACK_NS / 1_000_000);
        self.watched().rows(&self.meter, pair, case.slow_since_unix_ms, look_back_ms, now_unix_ms())
    }

    fn make_room(&self) {
        let mut known = self.known();
        let mut cases: Vec<&CaseReport> = known.cases.values().collect();
        cases.sort_by_key(|case| case.row.opened_unix_ms);
        let gone = self.folder.too_many(&cases);
        for id in &gone {
            // One that cannot be removed is still counted as there by the next start.
            let _ = self.folder.remove(id);
            known.cases.remove(id);
        }
        drop(known);
        self.agents.count(|refused| refused.cases_removed += gone.len() as u64);
    }

    /// Rows, newest first.
    pub fn report(&self, state: Option<State>, pair: Option<&PairRow>, limit: usize) -> CasesReport {
        let known = self.known();
        let wanted = |case: &&CaseReport| {
            state.is_none_or(|state| case.row.state == state)
                && pair.is_none_or(|pair| case.row.pair == *pair)
        };
        let mut cases: Vec<CaseRow> =
            known.cases.values().filter(wanted).map(|case| case.row.clone()).collect();
        cases.sort_by(|a, b| (b.opened_unix_ms, &b.id).cmp(&(a.opened_unix_ms, &a.id)));
        cases.truncate(limit);
        let shown = cases.iter().filter_map(|row| known.cases.get(&row.id));
        let mut events: Vec<EventRow> = shown.flat_map(EventRow::of).collect();
        events.sort_by_key(|event| event.unix_ms);
        let waiting = known.waiting.iter().filter(|waiting| pair.is_none_or(|pair| pair == *waiting));
        let waiting_pairs = waiting.clone().count() as u64;
        CasesReport { cases, events, waiting_pairs, waiting: waiting.take(limit).cloned().collect() }
    }

    /// One case, without its verdict in full, which is on disk.
    pub fn case(&self, id: &str) -> Option<CaseReport> {
        self.known().cases.get(id).cloned()
    }

    /// Agents, and what was refused.
    pub fn agents_report(&self) -> AgentsReport {
        let refused = Refused { requests: self.access.denied.load(Relaxed), ..self.agents.refused() };
        AgentsReport { agents: self.agents.rows(now_unix_ms()), unmatched: self.known().unmatched, refused }
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
