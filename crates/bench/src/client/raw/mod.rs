//! The client of the raw stack: the floor, including all accounting.
//!
//! Each channel is a connection of its own, so `distinct` equals `per-worker`. Responses arrive in the order of
//! the requests, so a connection already is a stream of calls, and `stream` equals `unary`. In a closed loop
//! the channels are distributed over the threads; an open loop has one thread, which keeps the time.

mod books;
mod caller;
mod flights;
mod lane;
mod outbox;

use super::Refused;
use super::reporter::report;
use super::session::Session;
use crate::contract::{Channels, ClientSettings, Pace};
use crate::ping::{MAX_PAYLOAD_BYTES, MAX_THINK_NS};
use crate::raw::frame::{Head, Parameters};
use crate::raw::{LIBRARY, connect};
use books::Accounts;
use caller::Caller;
use lane::Lane;
use std::io;
use std::sync::Arc;

/// Maximum number of channels in an open loop, which has as many as calls in flight.
const MOST_OPEN_LOOP_CHANNELS: u32 = 1024;

/// Checks that frames support the settings.
pub fn check(settings: &ClientSettings) -> Result<(), Refused> {
    let ClientSettings { channels, in_flight, request_bytes, .. } = *settings;
    if channels == Channels::LocalPool {
        let why =
            "there is no subchannel pool: every channel has a connection of its own; expected per-worker";
        return Err(Refused::new("channels", channels, why));
    }
    if channels == Channels::PerCall {
        let why = "raw keeps its connections: expected shared, per-worker, distinct or pool:N (per-call needs rust)";
        return Err(Refused::new("channels", channels, why));
    }
    if let Some(file) = &settings.call_file {
        return Err(Refused::new("call-file", file.display(), "raw only makes pings: expected --stack=rust"));
    }
    if settings.attempts > 1 {
        return Err(Refused::new(
            "attempts",
            settings.attempts,
            "raw makes one attempt per call: expected --stack=rust",
        ));
    }
    let dealt = matches!(channels, Channels::Pool(_));
    if settings.pace != Pace::Closed && !dealt && channels.count(in_flight) > MOST_OPEN_LOOP_CHANNELS {
        let why =
            format!("one channel for each call is too many: expected at most {MOST_OPEN_LOOP_CHANNELS}");
        return Err(Refused::new("in-flight", in_flight, why));
    }
    let limits = [
        ("request-bytes", Some(request_bytes), MAX_PAYLOAD_BYTES),
        ("response-bytes", settings.response_bytes, MAX_PAYLOAD_BYTES),
        ("think-ns", settings.think_ns, MAX_THINK_NS),
    ];
    for (flag, value, limit) in limits {
        if let Some(value) = value.filter(|value| *value > limit) {
            return Err(Refused::new(flag, value, format!("too much: expected at most {limit}")));
        }
    }
    Ok(())
}

/// Why there is no run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("cannot connect to {target}")]
    Connect { target: String, source: io::Error },
    #[error("cannot start the threads that call")]
    Threads(#[source] io::Error),
    #[error("the threads that call have failed")]
    Failed(#[source] io::Error),
}

/// Connects, calls, reports.
pub fn run(settings: &ClientSettings, session: &Arc<Session>) -> Result<(), RunError> {
    let threads = if settings.pace == Pace::Closed { settings.threads } else { 1 };
    let channels = settings.channels.count(settings.in_flight);
    let threads = threads.min(channels);
    let mut shares: Vec<(Accounts, Vec<Lane>)> =
        (0..threads).map(|_| (Accounts::new(session.clone(), settings), Vec::new())).collect();
    for channel in 0..channels {
        // Worker i uses channel i mod n.
        let workers = settings.in_flight / channels + u32::from(channel < settings.in_flight % channels);
        let (books, lanes) = &mut shares[(channel % threads) as usize];
        let lane = connect(&settings.target, settings.timeout)
            .and_then(|stream| Lane::new(channel, stream, workers, request(settings), books))
            .map_err(|source| RunError::Connect { target: settings.target.clone(), source })?;
        lanes.push(lane);
    }
    let callers = shares.into_iter().map(|(books, lanes)| Caller::new(books, lanes));
    let callers: Vec<Caller> = callers.collect::<io::Result<_>>().map_err(RunError::Threads)?;
    session.ready(LIBRARY, channels);
    if let Some(start_ns) = session.wait_for_go(report).map_err(RunError::Threads)? {
        std::thread::scope(|scope| {
            let calling = callers.into_iter().map(|caller| scope.spawn(move || caller.run(start_ns)));
            let calling: Vec<_> = calling.collect();
            let panicked = || io::Error::other("a thread has panicked");
            let ends = calling.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(panicked())));
            // Joins all threads, even after one failed.
            ends.collect::<Vec<_>>().into_iter().collect::<io::Result<()>>()
        })
        .map_err(RunError::Failed)?;
    }
    session.finish();
    Ok(())
}

fn request(settings: &ClientSettings) -> Head {
    let ClientSettings { response_bytes, think_ns, .. } = *settings;
    let asks = response_bytes.is_some() || think_ns.is_some();
    let parameters = asks.then_some(Parameters { response_bytes, think_ns });
    Head { parameters, ..Head::ping(settings.request_bytes as u32) }
}
