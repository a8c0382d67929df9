//! Sends marked rows in the order of their marks. A batch that may not have arrived is sent again.

use super::columns::{date_time, insert_into, pair_id, write_names, write_row};
use super::http::Refusal;
use super::rowbinary::Rows;
use super::{ClickHouse, SCHEMA};
use crate::history::{HistoryError, Step, Unsent};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// Rows of a batch, and bytes above which it is complete.
const BATCH_ROWS: usize = 5_000;
const BATCH_BYTES: usize = 8 << 20;
/// Wait for new rows.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Longest wait before another attempt.
const AGAIN_AT_LAST: Duration = Duration::from_secs(30);

const CALLS: &str = "spangap_calls (start, meter, pair, client, server, method, trace_ids, calls, version)";
const INTERVALS: &str = "spangap_intervals (step_s, start, meter, name)";

/// How far this process has got.
#[derive(Debug, Default)]
pub struct Position {
    /// The history file that is being sent.
    history: u64,
    until: u64,
    has_tables: bool,
}

impl Position {
    /// Somebody may have removed the tables, or put another server in the place of this one.
    pub fn forget_tables(&mut self) {
        self.has_tables = false;
    }
}

/// Sends until `stop` is dropped.
pub fn run(shared: &Arc<ClickHouse>, stop: &Receiver<()>, unix_s: &impl Fn() -> u64, tell: &impl Fn(&str)) {
    let mut again = LOOK_EVERY;
    loop {
        let wait = match shared.send() {
            Ok(more) => {
                again = LOOK_EVERY;
                if shared.state().sending.take().is_some() {
                    tell("ClickHouse: sending works again");
                }
                if more { Duration::ZERO } else { LOOK_EVERY }
            }
            Err(problem) => {
                let problem = problem.to_string();
                let mut state = shared.state();
                let since = state.sending.as_ref().map(|(_, since)| *since);
                state.sending = Some((problem.clone(), since.unwrap_or_else(unix_s)));
                drop(state);
                if since.is_none() {
                    tell(&format!("{problem}; rows wait in the history"));
                }
                let wait = again;
                again = AGAIN_AT_LAST.min(2 * again);
                wait
            }
        };
        if stop.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

/// Rows for each table.
#[derive(Default)]
struct Batch {
    pairs: Rows,
    calls: Rows,
    intervals: Rows,
    rows: u64,
    touched: BTreeSet<(Step, u64)>,
}

impl Batch {
    fn add(&mut self, meter: u64, unsent: &Unsent) {
        write_row(&mut self.pairs, meter, unsent);
        self.rows += 1;
        self.touched.insert((unsent.step, unsent.row.unix_s));
        let Some((trace_ids, calls)) = &unsent.worst else { return };
        let out = &mut self.calls;
        out.u32(date_time(unsent.row.unix_s));
        out.u64(meter);
        out.fixed(&pair_id(&unsent.row.key));
        write_names(out, &unsent.row.key);
        let (ids, _) = trace_ids.as_chunks::<16>();
        out.length(ids.len());
        ids.iter().for_each(|id| out.fixed(id));
        out.string(calls);
        out.u64(unsent.number);
    }

    fn bytes(&self) -> usize {
        self.pairs.bytes().len() + self.calls.bytes().len()
    }
}

/// Sends one batch. Returns whether there may be more.
pub fn send(shared: &ClickHouse, position: &mut Position) -> Result<bool, HistoryError> {
    let mut batch = Batch::default();
    let (history, last, gone) = {
        // Closed before anything is sent: an old snapshot would keep SQLite's log from shrinking.
        let view = shared.reader.view(Arc::default())?;
        let Some(history) = view.replicated_as()? else { return Ok(false) };
        if history != position.history {
            *position = Position { history, until: 0, has_tables: position.has_tables };
        }
        let (last, gone) = view.unsent(position.until, BATCH_ROWS, |unsent| {
            batch.add(history, &unsent);
            batch.bytes() < BATCH_BYTES
        })?;
        for (step, unix_s) in std::mem::take(&mut batch.touched) {
            if !view.is_unsent(step, unix_s, last)? {
                batch.intervals.u32(step.seconds() as u32);
                batch.intervals.u32(date_time(unix_s));
                batch.intervals.u64(history);
                batch.intervals.string(shared.name.as_bytes());
            }
        }
        (history, last, gone)
    };
    let failed = |refusal: Refusal| {
        shared.failed_requests.fetch_add(1, Relaxed);
        HistoryError::from(refusal)
    };
    if !position.has_tables {
        make_tables(shared).map_err(failed)?;
        position.has_tables = true;
    }
    if last == position.until {
        return Ok(false);
    }
    // An interval is announced last: who reads it finds all its rows.
    let tables =
        [(insert_into(), &batch.pairs), (CALLS.into(), &batch.calls), (INTERVALS.into(), &batch.intervals)];
    for (table, rows) in tables {
        if !rows.bytes().is_empty() {
            shared.server.insert(&table, rows.bytes()).map_err(failed)?;
        }
    }
    shared.sent_rows.fetch_add(batch.rows, Relaxed);
    shared.progress.lost(gone);
    shared.progress.sent(history, last);
    position.until = last;
    Ok(true)
}

/// Makes the tables unless they are there: whoever made them before may have chosen other engines, and this user need not be
/// allowed to make any.
fn make_tables(shared: &ClickHouse) -> Result<(), Refusal> {
    if shared.server.select("SELECT 1 FROM spangap_intervals LIMIT 0").is_ok() {
        return Ok(());
    }
    let lines: Vec<&str> = SCHEMA.lines().filter(|line| !line.starts_with("--")).collect();
    for statement in lines.join("\n").split(';').map(str::trim).filter(|statement| !statement.is_empty()) {
        shared.server.execute(statement)?;
    }
    Ok(())
}
