//! The process that changes a host for an agent. The agent records and never changes anything; what it is ordered to change it
//! hands on to this one, which trusts neither the agent nor the meter behind it.
//!
//! An order is checked ([`order`]), written to the audit log, carried out ([`changes`]) and answered. Old values are on disk
//! before the first change, and a third process, the guard, sets them back when the time of the order is over. Whoever goes
//! away first, the change is undone: the end of this process's input ends all changes, the end of this process leaves them to
//! the guard, and if the guard is killed too, the next start undoes what is left on disk.

#![warn(missing_docs)]

mod changes;
pub mod frames;
mod isolate;
mod order;

use changes::Changes;
use order::{Meant, Refusal};
use serde::Serialize;
use serde_json::{Value, json};
use spangap_fleet::v1::{self, Stage, to_actuator::What};
use spangap_sockets::{Folder, JournalError, LockedJournal, network_namespace, undo};
use spangap_undo::{FileError, audit};
use std::fs::{File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::UNIX_EPOCH;

/// Where what is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Folder of the journals, this actuator's own.
    pub journals: PathBuf,
    /// The audit log.
    pub audit: PathBuf,
    /// What may be changed: `sockets`, `isolate`. Whoever sends the orders is not believed to have looked.
    pub allows: Vec<String>,
    /// Whether connections of every network namespace may be meant, wherever the machine's first process is.
    pub whole_node: bool,
}

/// The actuator cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ActuatorError {
    /// A file cannot be written or locked.
    #[error(transparent)]
    File(#[from] FileError),
    /// What an earlier one left cannot be undone.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Another one works here.
    #[error("another actuator works with the journals in {0}")]
    Another(PathBuf),
    /// The agent cannot be heard.
    #[error("cannot hear the agent: {0}")]
    Hear(#[from] io::Error),
}

/// Reports to the agent, one at a time.
type Out = Arc<Mutex<Box<dyn Write + Send>>>;

/// Undoes what an earlier one left, then takes orders until there are no more, and undoes them.
///
/// # Errors
/// Only what keeps it from starting, and input that makes no sense; all changes are undone then, too.
pub fn serve(
    settings: &Settings,
    mut from: impl Read,
    to: impl Write + Send + 'static,
) -> Result<(), ActuatorError> {
    spangap_undo::file::make_folder(&settings.journals)?;
    let _alone = alone(&settings.journals)?;
    recover(settings)?;
    let out: Out = Arc::new(Mutex::new(Box::new(to)));
    let ready = v1::OrderReport { unix_ns: now_unix_ns(), ..v1::OrderReport::default() };
    send(&out, &ready);
    let mut changes = Changes::new(settings.clone(), out.clone());
    let ended = loop {
        let message: v1::ToActuator = match frames::read(&mut from) {
            Ok(Some(message)) => message,
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        };
        match message.what {
            Some(What::Order(order)) => take(settings, &mut changes, &out, &order),
            Some(What::Undo(undo)) => changes.undo(undo.order),
            None => {}
        }
    };
    changes.undo(0);
    changes.wait();
    Ok(ended?)
}

fn take(settings: &Settings, changes: &mut Changes, out: &Out, order: &v1::Order) {
    let carried_out = Meant::of(order).and_then(|meant| {
        let needs = meant.action.needs();
        match settings.allows.iter().any(|allowed| allowed == needs) {
            true => changes.carry_out(order, &meant),
            false => Err(Refusal(format!("this agent was started without --allow {needs}"))),
        }
    });
    let report = match carried_out {
        Ok(report) => report,
        Err(Refusal(why)) => {
            // One that cannot be written is refused all the same.
            let _ = write_down(settings, "refused", order, &json!({ "error": why }));
            v1::OrderReport { stage: Stage::Refused.into(), error: why, ..v1::OrderReport::default() }
        }
    };
    send(out, &v1::OrderReport { order: order.id, unix_ns: report.unix_ns.max(1), ..report });
}

/// Whoever no longer listens has gone, and everything is undone.
fn send(out: &Out, report: &v1::OrderReport) {
    let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = frames::write(&mut *out, report);
}

/// A line of the audit log.
fn write_down(settings: &Settings, event: &str, order: &v1::Order, more: &Value) -> Result<(), FileError> {
    let mut line = json!({
        "unix_ms": now_unix_ns() / 1_000_000,
        "event": event,
        "by": format!("actuator {}", std::process::id()),
        "order": asked(order),
    });
    if let (Some(line), Some(more)) = (line.as_object_mut(), more.as_object()) {
        line.extend(more.clone());
    }
    audit::append(&settings.audit, &line)
}

/// Who asked for what, as it stands in each line about it.
fn asked(order: &v1::Order) -> Value {
    let text = |text: &str| text.chars().take(200).collect::<String>();
    let what = match &order.what {
        Some(v1::order::What::Look(_)) => json!("look"),
        Some(v1::order::What::Nodelay(set)) => {
            json!({ "option": "TCP_NODELAY", "to": true, "connections": set.connections.len(), "for_ms": set.for_ms })
        }
        Some(v1::order::What::LookIsolate(_)) => json!("look_isolate"),
        Some(v1::order::What::Isolate(isolate)) => {
            let interfaces: Vec<String> = isolate.interfaces.iter().take(64).map(|one| text(one)).collect();
            json!({ "option": "isolate", "interfaces": interfaces, "net_cpus": text(&isolate.net_cpus), "for_ms": isolate.for_ms })
        }
        None => Value::Null,
    };
    let server = order.server.as_ref().map(|server| format!("{} port {}", server.address, server.port));
    json!({ "id": order.id, "case": text(&order.case), "asked_by": text(&order.asked_by), "server": server, "what": what })
}

/// One that was killed may have left changes; its guard may still wait for their time.
fn recover(settings: &Settings) -> Result<(), ActuatorError> {
    #[derive(Serialize)]
    struct Line<'a> {
        unix_ms: i64,
        event: &'static str,
        by: String,
        journal: &'a Path,
        sockets: &'a [spangap_sockets::Change],
        error: Option<String>,
    }
    if isolate::folder(settings).exists() {
        let (left, is_done_here) = isolate::settle(settings);
        if is_done_here {
            let line = json!({
                "unix_ms": now_unix_ns() / 1_000_000,
                "event": "undone",
                "by": format!("actuator {}, at its start", std::process::id()),
                "journal": isolate::folder(settings),
                "error": left.err(),
            });
            audit::append(&settings.audit, &line)?;
        }
    }
    for journal in Folder::new(&settings.journals).journals()? {
        let unix_ms = now_unix_ns() / 1_000_000;
        let undone = LockedJournal::take(&journal).and_then(|held| held.map(undo).transpose());
        let (sockets, error) = match undone {
            Ok(undone) => (undone.map(|undone| undone.sockets).unwrap_or_default(), None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        let by = format!("actuator {}, at its start", std::process::id());
        let line = Line { unix_ms, event: "undone", by, journal: &journal, sockets: &sockets, error };
        audit::append(&settings.audit, &line)?;
    }
    Ok(())
}

/// Two of them would undo each other's changes.
fn alone(folder: &Path) -> Result<File, ActuatorError> {
    let path = folder.join("actuator.lock");
    let file = File::create(&path).map_err(FileError::of("make", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(ActuatorError::Another(folder.to_owned())),
        Err(TryLockError::Error(error)) => Err(FileError::of("lock", &path)(error).into()),
    }
}

fn now_unix_ns() -> i64 {
    UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos() as i64
}

/// The sockets of some namespaces: those of the whole machine if this process is where its first one is or stands for a node, else its own.
fn is_ours(settings: &Settings, namespace: Option<u64>) -> bool {
    match (network_namespace(std::process::id()), network_namespace(1)) {
        (Some(own), first) if first != Some(own) && !settings.whole_node => namespace == Some(own),
        _ => true,
    }
}

/// An error with what lies beneath it.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}
