//! Orders carried out: sockets and settings found, changed with a journal and a guard, and set back.

use crate::isolate::{self, Planned};
use crate::order::{Action, Meant, Refusal};
use crate::{Out, Settings, asked, causes, is_ours, now_unix_ns, send, write_down};
use serde_json::json;
use spangap_fleet::v1::{self, Stage};
use spangap_sockets::keeper::{self, Audited, Farewell};
use spangap_sockets::{
    Asked, Change, ChangeOutcome, ChangeRequest, Entry, Folder, Journal, Listing, LockedJournal, Plan, apply,
    list, undo,
};
use spangap_undo::guard::{self, Guard, Process};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Orders in a minute: each starts a process.
const MOST_ORDERS: usize = 120;
const MINUTE_NS: i64 = 60_000_000_000;
/// Changes at once.
const MOST_CHANGES: usize = 4;

/// A change that is not undone yet.
struct Pending {
    guard: Process,
    is_isolation: bool,
    /// When somebody has asked for its end, nanoseconds since 1970.
    asked_unix_ns: Option<i64>,
}

/// Changes that are not undone yet, by order.
type Live = Arc<Mutex<BTreeMap<u64, Pending>>>;

/// All changes of this actuator.
pub struct Changes {
    settings: Settings,
    out: Out,
    live: Live,
    waiting: Vec<JoinHandle<()>>,
    taken_ns: VecDeque<i64>,
}

impl Changes {
    pub fn new(settings: Settings, out: Out) -> Changes {
        Changes { settings, out, live: Live::default(), waiting: Vec::new(), taken_ns: VecDeque::new() }
    }

    fn live(&self) -> MutexGuard<'_, BTreeMap<u64, Pending>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what an order says, as far as that goes at once.
    pub fn carry_out(&mut self, order: &v1::Order, meant: &Meant) -> Result<v1::OrderReport, Refusal> {
        let now_ns = now_unix_ns();
        while self.taken_ns.front().is_some_and(|at| now_ns - at >= MINUTE_NS || *at > now_ns) {
            self.taken_ns.pop_front();
        }
        if self.taken_ns.len() >= MOST_ORDERS {
            return Err(Refusal(format!("{MOST_ORDERS} orders came within a minute")));
        }
        self.taken_ns.push_back(now_ns);
        match &meant.action {
            Action::Look => Ok(looked(&plan(&self.settings, meant)?)),
            Action::LookIsolate(interfaces) => {
                Ok(isolate::plan(&self.settings, meant, interfaces)?.report(Stage::Looked))
            }
            Action::Nodelay(connections, time) => {
                let is_meant = |entry: &Entry| connections.contains(&(entry.local, entry.peer));
                let entries: Vec<Entry> =
                    plan(&self.settings, meant)?.change.into_iter().filter(is_meant).collect();
                self.has_room(order)?;
                self.set(order, entries, *time)
            }
            Action::Isolate(interfaces, net_cpus, time) => {
                let planned = isolate::plan(&self.settings, meant, interfaces)?;
                // Whoever shows one plan and orders another one is not followed.
                if planned.net_cpus() != *net_cpus {
                    let now = planned.net_cpus();
                    return Err(Refusal(format!("packets would now go to CPUs {now}, not to {net_cpus:?}")));
                }
                self.has_room(order)?;
                self.isolate(order, &planned, *time)
            }
        }
    }

    fn has_room(&self, order: &v1::Order) -> Result<(), Refusal> {
        if self.live().len() >= MOST_CHANGES {
            return Err(Refusal(format!("there are already {MOST_CHANGES} changes")));
        }
        if self.live().contains_key(&order.id) {
            return Err(Refusal("an order of this number is being carried out".into()));
        }
        Ok(())
    }

    fn isolate(
        &mut self,
        order: &v1::Order,
        planned: &Planned,
        time: Duration,
    ) -> Result<v1::OrderReport, Refusal> {
        // There is one journal of it.
        if self.live().values().any(|pending| pending.is_isolation) {
            return Err(Refusal("another order already keeps packets off CPUs".into()));
        }
        let because = asked(order).to_string();
        let isolate::Made { guard, report } = isolate::make(&self.settings, order, &because, planned, time)?;
        self.live().insert(order.id, Pending { guard, is_isolation: true, asked_unix_ns: None });
        if !report.error.is_empty() {
            self.undo(order.id);
        }
        let until_ns = report.unix_ns.saturating_add(time.as_nanos() as i64);
        let (live, out, settings, order) =
            (self.live.clone(), self.out.clone(), self.settings.clone(), order.clone());
        self.wait_in_a_thread(order.id, move || {
            let waited = guard.wait_for_its_end();
            let (left, is_done_here) = isolate::settle(&settings);
            let pending = live.lock().unwrap_or_else(PoisonError::into_inner).remove(&order.id);
            let asked_ns = pending.and_then(|pending| pending.asked_unix_ns);
            let mut error = left.err().or(waited.err().map(|error| error.to_string())).unwrap_or_default();
            if is_done_here {
                let line = json!({ "because": "the guard ended before its time", "error": error });
                if let Err(failed) = write_down(&settings, "undone", &order, &line) {
                    error += &format!("the audit log: {}", causes(&failed));
                }
            }
            let unix_ns = asked_ns.unwrap_or(until_ns).min(now_unix_ns());
            let report =
                v1::OrderReport { stage: Stage::Undone.into(), unix_ns, error, ..v1::OrderReport::default() };
            send(&out, &v1::OrderReport { order: order.id, ..report });
        });
        Ok(report)
    }

    /// A refusal that whoever asked tells from all others by a value: the connections have closed since they were listed.
    fn gone(&self, order: &v1::Order) -> v1::OrderReport {
        let error = "none of these connections exists with TCP_NODELAY off".to_owned();
        // One that cannot be written is refused all the same.
        let _ = write_down(&self.settings, "refused", order, &json!({ "error": error }));
        v1::OrderReport { stage: Stage::Refused.into(), error, gone: true, ..v1::OrderReport::default() }
    }

    fn set(
        &mut self,
        order: &v1::Order,
        entries: Vec<Entry>,
        time: Duration,
    ) -> Result<v1::OrderReport, Refusal> {
        if entries.is_empty() {
            return Ok(self.gone(order));
        }
        let refused = |what: &'static str| {
            move |error: &dyn std::error::Error| Refusal(format!("{what}: {}", causes(error)))
        };
        let planned: Vec<_> = entries.iter().map(|entry| json!({ "local": entry.local, "peer": entry.peer, "inode": entry.inode, "holders": entry.holders, "from": entry.old, "to": entry.new })).collect();
        // Nothing is changed that is not on record.
        write_down(&self.settings, "ordered", order, &json!({ "sockets": planned }))
            .map_err(|error| refused("the audit log cannot be written")(&error))?;
        let journal = Journal::new(entries, now_unix_ns() as u64, Some(time.as_nanos() as u64))
            .map_err(|error| refused("no journal")(&error))?;
        let held = Folder::new(&self.settings.journals).write(&journal);
        let held = held.map_err(|error| refused("the journal cannot be written")(&error))?;
        let path = held.path().to_owned();
        let until_ns = guard::now_ns().saturating_add(time.as_nanos() as u64);
        let because = asked(order).to_string();
        let audited = Audited { log: &self.settings.audit, order: &because };
        let guard = match keeper::start(&path, until_ns, Some(audited)) {
            Ok(guard) => guard,
            Err(error) => {
                // An unused journal that stays is undone by the next start, which changes nothing.
                let _ = held.remove();
                return Err(refused("no guard")(&error));
            }
        };
        let process = guard.process();
        let mut changes = Vec::new();
        let kept = apply(held, |change| {
            changes.push(change.clone());
            true
        });
        let unix_ns = now_unix_ns();
        let written = write_down(&self.settings, "changed", order, &json!({ "sockets": changes }));
        let mut error = String::new();
        let changed = match kept {
            Ok(kept) => kept.is_some(),
            Err(failed) => {
                error = causes(&failed);
                true
            }
        };
        if let Err(failed) = written {
            error = format!("undone at once, because the audit log cannot be written: {}", causes(&failed));
        }
        if !error.is_empty() || !changed {
            process.ask_to_end();
        }
        self.live().insert(order.id, Pending { guard: process, is_isolation: false, asked_unix_ns: None });
        self.wait_for(order, guard, path);
        let stage = if changed { Stage::Changed } else { Stage::Refused };
        let sockets = changes.iter().map(socket).collect();
        Ok(v1::OrderReport { stage: stage.into(), unix_ns, error, sockets, ..v1::OrderReport::default() })
    }

    /// Tells what the guard did when it has done it. It is always the guard that undoes, whoever asks for it.
    fn wait_for(&mut self, order: &v1::Order, guard: Guard, journal: PathBuf) {
        let (live, out, settings) = (self.live.clone(), self.out.clone(), self.settings.clone());
        let order = order.clone();
        self.wait_in_a_thread(order.id, move || {
            let report = match keeper::farewell(guard) {
                Ok(farewell) => undone(farewell),
                // It was killed: then it is done here.
                Err(why) => {
                    let farewell = undone_here(&journal);
                    let sockets = farewell.undone.as_ref().map(|undone| &undone.sockets);
                    let line =
                        json!({ "because": why.to_string(), "sockets": sockets, "error": farewell.error });
                    let written = write_down(&settings, "undone", &order, &line);
                    let mut report = undone(farewell);
                    if let Err(failed) = written {
                        report.error += &format!("the audit log: {}", causes(&failed));
                    }
                    report
                }
            };
            live.lock().unwrap_or_else(PoisonError::into_inner).remove(&order.id);
            send(&out, &v1::OrderReport { order: order.id, ..report });
        });
    }

    fn wait_in_a_thread(&mut self, number: u64, wait: impl FnOnce() + Send + 'static) {
        self.waiting.retain(|waiting| !waiting.is_finished());
        match thread::Builder::new().name("guard".into()).spawn(wait) {
            Ok(waiting) => self.waiting.push(waiting),
            // The guard undoes it in time; nobody is told.
            Err(_) => drop(self.live().remove(&number)),
        }
    }

    /// Undoes an order now; 0: all.
    pub fn undo(&self, order: u64) {
        for (_, pending) in self.live().iter_mut().filter(|(number, _)| order == 0 || **number == order) {
            pending.asked_unix_ns.get_or_insert_with(now_unix_ns);
            pending.guard.ask_to_end();
        }
    }

    /// Until all is undone.
    pub fn wait(self) {
        for waiting in self.waiting {
            // One that has panicked has no change to wait for.
            let _ = waiting.join();
        }
    }
}

/// What there is to change.
fn plan(settings: &Settings, meant: &Meant) -> Result<Plan, Refusal> {
    let of = Asked { pids: Vec::new(), port: Some(meant.server.port()), listening: false };
    let mut listing: Listing = list(&of).map_err(|error| Refusal(causes(&error)))?;
    listing.sockets.retain(|socket| {
        let accepted = socket.accepted == Some(true);
        let server = if meant.accepted { Some(socket.local) } else { socket.peer };
        accepted == meant.accepted
            && server == Some(meant.server)
            && is_ours(settings, socket.network_namespace)
    });
    Ok(ChangeRequest { of, peer: None, peer_port: None, value: true, half: false }.plan(&listing))
}

fn looked(plan: &Plan) -> v1::OrderReport {
    let sockets = plan.change.iter().map(|entry| {
        let first = entry.holders.first();
        v1::Socket {
            connection: Some(connection(entry.local, entry.peer)),
            pid: first.map_or(0, |holder| holder.pid),
            comm: first.map(|holder| holder.comm.clone()).unwrap_or_default(),
            not_changed: String::new(),
        }
    });
    v1::OrderReport {
        stage: Stage::Looked.into(),
        unix_ns: now_unix_ns(),
        sockets: sockets.collect(),
        already: plan.already,
        not_readable: plan.not_readable,
        not_readable_because: plan.not_readable_because.clone().unwrap_or_default(),
        ..v1::OrderReport::default()
    }
}

fn undone(farewell: Farewell) -> v1::OrderReport {
    let undone = farewell.undone.unwrap_or_default();
    v1::OrderReport {
        stage: Stage::Undone.into(),
        unix_ns: farewell.begun_unix_ns.map_or_else(now_unix_ns, |ns| ns as i64),
        error: farewell.error.unwrap_or_default(),
        sockets: undone.sockets.iter().map(socket).collect(),
        ..v1::OrderReport::default()
    }
}

fn undone_here(journal: &std::path::Path) -> Farewell {
    let begun_unix_ns = Some(now_unix_ns() as u64);
    match LockedJournal::take(journal).and_then(|held| held.map(undo).transpose()) {
        Ok(undone) => Farewell { not_there: undone.is_none(), undone, begun_unix_ns, ..Farewell::default() },
        Err(error) => Farewell { error: Some(causes(&error)), begun_unix_ns, ..Farewell::default() },
    }
}

fn socket(change: &Change) -> v1::Socket {
    v1::Socket {
        connection: Some(connection(change.local, change.peer)),
        pid: change.pid.unwrap_or(0),
        comm: change.comm.clone().unwrap_or_default(),
        not_changed: match &change.became {
            ChangeOutcome::Changed => String::new(),
            ChangeOutcome::Already => "it had the value already".into(),
            ChangeOutcome::Gone(why) | ChangeOutcome::Failed(why) => why.clone(),
        },
    }
}

fn connection(local: SocketAddr, peer: SocketAddr) -> v1::Connection {
    v1::Connection { local: local.to_string(), peer: peer.to_string() }
}
