//! The client and server addresses of a capture's calls. They determine whose capture it is if nothing else
//! does.

use crate::GatherError;
use spangap_model::Side;
use spangap_wire::exchange::Exchange;
use spangap_wire::source::Capture;
use spangap_wire::tap::{Harvest, Tap};
use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Packets between two checks for finished calls and for cancellation.
const AT_ONCE: u32 = 1_024;

/// Number of captured calls of some traces, by address of the client and of the server.
///
/// A call that passes a proxy appears twice: from its client to the proxy, and onward from the proxy.
pub type Ends = [BTreeMap<IpAddr, u64>; 2];

/// Searches a capture for the calls of these traces. Calls without trace context (TLS without keys) are not
/// found. `stop` ends the search early, with the results so far.
///
/// # Errors
/// When the capture cannot be read.
pub fn ends_of(capture: &Path, traces: &HashSet<[u8; 16]>, stop: &AtomicBool) -> Result<Ends, GatherError> {
    let mut capture = Capture::open(capture)?;
    capture.read_openings();
    let mut tap = Tap::default();
    capture.openings().iter().for_each(|opening| tap.opening(opening));
    let mut ends = Ends::default();
    let mut harvest = Harvest::default();
    let mut count = |tap: &mut Tap| {
        tap.harvest(&mut harvest);
        for exchange in std::mem::take(&mut harvest).exchanges {
            let Exchange { trace: Some(context), connection, .. } = exchange else { continue };
            if !traces.contains(&context.trace_id) {
                continue;
            }
            let Some(facts) = tap.connection(connection) else { continue };
            for side in [Side::Client, Side::Server] {
                let at = side.index();
                *ends[at].entry(facts.ends[at].ip()).or_default() += 1;
            }
        }
    };
    let mut packets = 0;
    while let Some(packet) = capture.next() {
        tap.packet(&packet);
        packets += 1;
        if packets % AT_ONCE == 0 {
            count(&mut tap);
            if stop.load(Relaxed) {
                return Ok(ends);
            }
        }
    }
    tap.finish();
    count(&mut tap);
    Ok(ends)
}
