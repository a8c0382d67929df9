//! Calls of a case with all that its folder contains about them, read on demand: one request at a time,
//! within a time limit.

use serde::Serialize;
use serde_json::Value;
use spangap_gather::whole::{Selection, WholeCalls, gather};
use spangap_gather::{GatherError, Sources, perfetto};
use std::fs::File;
use std::io::Read;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

/// Time limit of a request, including the wait for its turn.
const LIMIT: Duration = Duration::from_secs(30);
/// Maximum bytes read from a file of spans; those of a case are smaller.
const MOST_SPANS_BYTES: u64 = 64 << 20;

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum NoLook {
    /// The files cannot be read, or are insufficient.
    #[error(transparent)]
    Gather(#[from] GatherError),
    /// The captures do not contain the call.
    #[error("the captures of this case contain no call of trace {0}")]
    NoCall(String),
    /// It took too long, or waited too long for others.
    #[error("not done within {} s: the meter looks at one case at a time; try again", LIMIT.as_secs())]
    TooLong,
    /// A bug of ours.
    #[error("the analysis failed")]
    Failed,
}

/// The calls of one trace.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CallsReport {
    /// The case.
    pub case: String,
    /// The calls: packets, threads and spans on one axis.
    #[serde(flatten)]
    pub whole: WholeCalls,
    /// The complete spans of these calls, as received by the meter: CLIENT spans, then SERVER spans.
    pub spans: [Vec<Value>; 2],
}

/// Processes one case at a time.
#[derive(Debug)]
pub struct Looker {
    turn: Arc<Semaphore>,
}

impl Default for Looker {
    fn default() -> Looker {
        Looker { turn: Arc::new(Semaphore::new(1)) }
    }
}

/// Stops the work when nobody waits for it any more.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

impl Looker {
    async fn look<T: Send + 'static>(
        &self,
        work: impl FnOnce(&AtomicBool) -> Result<T, NoLook> + Send + 'static,
    ) -> Result<T, NoLook> {
        let until = Instant::now() + LIMIT;
        let turn = timeout_at(until, self.turn.clone().acquire_owned()).await.map_err(|_| NoLook::TooLong)?;
        let turn = turn.map_err(|_| NoLook::Failed)?;
        let stop = StopOnDrop(Arc::default());
        let stopped = stop.0.clone();
        let work = tokio::task::spawn_blocking(move || {
            let done = work(&stopped);
            // Held until the work has really ended, even if nobody waits for it.
            drop(turn);
            done
        });
        timeout_at(until, work).await.map_err(|_| NoLook::TooLong)?.unwrap_or(Err(NoLook::Failed))
    }

    /// The calls of a trace.
    ///
    /// # Errors
    /// When the folder does not contain them, or not in time.
    pub async fn calls(&self, case: &str, folder: &Path, trace_id: [u8; 16]) -> Result<CallsReport, NoLook> {
        let (case, folder) = (case.to_owned(), folder.to_owned());
        self.look(move |stop| {
            let sources = Sources::of_folder(&folder)?;
            let mut whole = gather(&sources, &Selection::of_trace(trace_id), &mut until(stop), stop)?.calls();
            // The answer must not reveal the location of the meter's files.
            let path = format!("{}/", folder.display());
            whole.caveats.iter_mut().for_each(|caveat| *caveat = caveat.replace(&path, ""));
            if stop.load(Relaxed) {
                return Err(NoLook::TooLong);
            }
            let id = hex(trace_id);
            if whole.calls.is_empty() {
                return Err(NoLook::NoCall(id));
            }
            let spans =
                ["client", "server"].map(|side| spans(&folder.join(format!("{side}.spans.json")), &id));
            Ok(CallsReport { case, whole, spans })
        })
        .await
    }

    /// A Perfetto trace of the calls of one trace, or of the slowest calls.
    ///
    /// # Errors
    /// When there is nothing to draw, or not in time.
    pub async fn perfetto(&self, folder: &Path, trace_id: Option<[u8; 16]>) -> Result<Vec<u8>, NoLook> {
        let folder = folder.to_owned();
        self.look(move |stop| {
            let sources = Sources::of_folder(&folder)?;
            let selection = trace_id.map_or(Selection::SLOWEST, Selection::of_trace);
            let gathered = gather(&sources, &selection, &mut until(stop), stop)?;
            if stop.load(Relaxed) {
                return Err(NoLook::TooLong);
            }
            let any = || trace_id.map_or("any".into(), hex);
            perfetto::trace(&gathered).ok_or_else(|| NoLook::NoCall(any()))
        })
        .await
    }
}

fn until(stop: &AtomicBool) -> impl FnMut(spangap_gather::Progress) -> ControlFlow<()> {
    move |_| match stop.load(Relaxed) {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    }
}

fn hex(id: [u8; 16]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Parses a trace id in an address; `None` for anything else.
pub fn trace_id(text: &str) -> Option<[u8; 16]> {
    let mut id = [0; 16];
    if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (place, byte) in id.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * place..2 * place + 2], 16).ok()?;
    }
    Some(id)
}

/// Spans of a trace in a file written by [`crate::samples::document`], each with its resource. An unreadable
/// file yields none: the call's times are known nevertheless.
fn spans(path: &Path, trace_id: &str) -> Vec<Value> {
    let mut text = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MOST_SPANS_BYTES).read_to_end(&mut text));
    let document: Value = match read {
        Ok(_) => serde_json::from_slice(&text).unwrap_or_default(),
        Err(_) => return Vec::new(),
    };
    let array = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
    let mut found = Vec::new();
    for resource in array(&document, "resourceSpans") {
        for scope in array(&resource, "scopeSpans") {
            for span in array(&scope, "spans") {
                if span["traceId"].as_str().is_some_and(|id| id.eq_ignore_ascii_case(trace_id)) {
                    found.push(serde_json::json!({ "resource": resource["resource"], "span": span }));
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_32_hex_digits_are_a_trace_id() {
        assert_eq!(trace_id("000102030405060708090a0b0c0d0e0F").unwrap()[15], 15);
        for wrong in [
            "",
            "00",
            "../../../../../../../etc/passwd0",
            "0001020304050607é090a0b0c0d0e0",
            "+0112233445566778899aabbccddeeff",
        ] {
            assert_eq!(trace_id(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn spans_are_found_by_their_trace() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("client.spans.json");
        assert!(spans(&path, "ab").is_empty());
        std::fs::write(&path, r#"{"resourceSpans":[{"resource":{"attributes":[1]},"scopeSpans":[{"spans":[{"traceId":"ab","spanId":"1"},{"traceId":"cd"}]}]}]}"#).unwrap();
        let found = spans(&path, "AB");
        assert_eq!(found.len(), 1);
        assert_eq!(
            (&found[0]["span"]["spanId"], &found[0]["resource"]["attributes"][0]),
            (&"1".into(), &1.into())
        );
    }

    #[tokio::test]
    async fn a_cancelled_request_ends_the_work() {
        let looker = Looker::default();
        let (told, ended) = std::sync::mpsc::channel();
        let (begun, begins) = tokio::sync::oneshot::channel();
        let look = looker.look(move |stop| {
            let _ = begun.send(());
            while !stop.load(Relaxed) {
                std::thread::yield_now();
            }
            let _ = told.send(());
            Ok(())
        });
        tokio::select! {
            _ = look => panic!("nobody ended it"),
            _ = begins => {}
        }
        ended.recv().unwrap();
        assert!(looker.look(|_| Ok(7)).await.is_ok_and(|seven| seven == 7), "the turn is free again");
    }
}
