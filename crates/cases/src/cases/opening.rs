//! Opening a case: by a person who asks, or by a trigger, within the budget of slices.

use super::{Cases, is_of, moment, pair_row};
use crate::folder::free_id;
use crate::nearest::{NEAREST, Nearest, near};
use crate::now_unix_ms;
use crate::report::{CaseReport, CaseRow, Measure, Moment, PairRow, State, Trigger};
use spangap_model::PairKey;
use std::collections::BTreeSet;
use std::io;

/// Between the trigger and the ask: answers of the last slow calls are in the rings by then.
const MARGIN_MS: u64 = 1_000;
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

impl Cases {
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

    pub(super) fn begin(
        &self,
        pair: &PairKey,
        trigger: Trigger,
        (slow_by, slow_over_ns): (Measure, Option<u64>),
        time_line: Vec<Moment>,
        now_ms: u64,
    ) -> Result<String, NotOpened> {
        let mut inner = self.inner();
        let (row, method) = (pair_row(pair), pair.method.as_deref().map(str::to_owned));
        let open =
            inner.cases.values().filter(|case| is_of(pair, case)).find(|case| case.row.state == State::Open);
        if let Some(open) = open {
            return Ok(open.row.id.clone());
        }
        let most = self.settings.slices_per_minute;
        // A person is not kept waiting by those that opened by themselves.
        let kept = if trigger == Trigger::Person || most < 2 * SLICES { 0 } else { SLICES };
        if !inner.budget.take(SLICES, kept, now_ms) {
            drop(inner);
            self.agents.count(|refused| refused.over_budget += 1);
            return Err(NotOpened::Budget(self.settings.slices_per_minute));
        }
        let id = free_id(&inner.cases, pair, now_ms);
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
        inner.cases.insert(id.clone(), case.clone());
        let margin_ms = if inner.closely.is_none() && self.is_sampled(pair) { CLOSELY_MS } else { MARGIN_MS };
        inner.due.push((now_ms + margin_ms, id.clone()));
        drop(inner);
        if margin_ms == CLOSELY_MS {
            self.watch_closely(pair, now_ms);
        }
        self.save(&case);
        Ok(id)
    }

    /// Whether the meter has seen more calls of the pair lately than it has kept.
    fn is_sampled(&self, pair: &PairKey) -> bool {
        let drawn = self.meter.samples(|key| key == pair);
        drawn.iter().flat_map(|(_, drawn)| drawn).any(|drawn| drawn.calls > drawn.by_call.len() as u64)
    }
}
