//! Versions of API content: entity tags for unchanged answers, and waiting for the next version.

use super::answer::Coding;
use super::api::{Answer, Api, For, json};
use super::parameters::{self, Ask};
use crate::report::Changes;
use axum::http::header::{CACHE_CONTROL, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// How often a version is checked while a client waits for another one.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Maximum and default waiting time.
const WAIT_AT_MOST: Duration = Duration::from_secs(60);
const WAIT: Duration = Duration::from_secs(20);

impl Api {
    /// Changes whenever an answer may: with every span, and with every minute, since ranges move with the clock.
    fn version(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        let accounting = self.meter.accounting();
        format!("{accounting:?}").hash(&mut hasher);
        // Other meters send their minutes without telling this one.
        let changes_within_s = if self.clickhouse.is_some() { 5 } else { 60 };
        (self.clock.unix_s() / changes_within_s).hash(&mut hasher);
        // Ranges are read from the history, which is also pruned.
        self.store.figures().bytes.hash(&mut hasher);
        self.started_unix_ms.hash(&mut hasher);
        hasher.finish()
    }

    /// The entity tag of an answer to this request as of now.
    pub(super) fn tag(&self, uri: &Uri) -> String {
        let mut hasher = DefaultHasher::new();
        (uri.path_and_query().map(|asked| asked.as_str()), self.version()).hash(&mut hasher);
        format!("W/\"{:016x}\"", hasher.finish())
    }
}

/// Whether the client has the answer of this tag.
pub(super) fn has(headers: &HeaderMap, tag: &str) -> bool {
    let given = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let weak = |tag: &str| tag.trim().trim_start_matches("W/").to_string();
    given.flat_map(|list| list.split(',')).any(|one| one.trim() == "*" || weak(one) == weak(tag))
}

/// The response to a client that already has this version.
pub(super) fn not_modified(tag: &str) -> Response {
    with_tag(StatusCode::NOT_MODIFIED.into_response(), tag)
}

/// Puts the tag on an answer; the browser asks each time whether it still holds.
pub(super) fn with_tag(mut response: Response, tag: &str) -> Response {
    if let Ok(tag) = HeaderValue::from_str(tag) {
        response.headers_mut().insert(ETAG, tag);
    }
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// What the client knows, and how long it waits for more.
#[derive(Debug, Deserialize)]
pub(super) struct Waiting {
    since: Option<String>,
    wait: Option<String>,
}

/// Answers when there is something new, or when the wait is over.
pub(super) async fn changes(For(api): For, headers: HeaderMap, Ask((asked,)): Ask<(Waiting,)>) -> Answer {
    let wait = match asked.wait.as_deref() {
        None => WAIT,
        Some(text) => Duration::from_nanos(parameters::duration_ns("wait", text)?).min(WAIT_AT_MOST),
    };
    let until = Instant::now() + wait;
    let mut look = interval(LOOK_EVERY);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut stopping = api.stopping.clone();
    let version = loop {
        let version = format!("{:016x}", api.version());
        if asked.since.as_deref() != Some(&version) || Instant::now() >= until {
            break version;
        }
        tokio::select! {
            _ = look.tick() => {}
            // A waiting client must not delay the end of the service.
            _ = stopping.changed() => break version,
        }
    };
    // Short, and so many may wait that it takes nobody's turn.
    Ok(Arc::new(json(Coding::of(&headers), &Changes { version })?).send(None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_found_in_a_list_whether_weak_or_not() {
        let with = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(IF_NONE_MATCH, HeaderValue::from_static(value));
            headers
        };
        for held in ["W/\"1\"", "\"1\"", "\"0\", W/\"1\"", "*"] {
            assert!(has(&with(held), "W/\"1\""), "{held}");
        }
        assert!(!has(&with("\"2\""), "W/\"1\""));
        assert!(!has(&HeaderMap::new(), "W/\"1\""));
    }
}
