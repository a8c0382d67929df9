//! Whether `spangap capture` keeps up with 200,000 packets a second, and what share of a core it takes.

use crate::measure::{MeasureError, Spread};
use crate::overhead::{captured, wrong};
use serde::Serialize;
use std::net::UdpSocket;
use std::path::Path;
use std::time::{Duration, Instant};

/// Packets sent per second.
const RATE_PER_S: u64 = 200_000;
/// Time of sending in each run.
const SENDING: Duration = Duration::from_secs(5);
/// Payload of a packet.
const PAYLOAD: [u8; 100] = [b'x'; 100];

/// Results.
#[derive(Debug, Default, Serialize)]
pub struct Flood {
    /// Packets sent, in all runs.
    pub sent: u64,
    /// Packets that passed the filter, including dropped ones.
    pub received: u64,
    /// Packets dropped for lack of room.
    pub dropped: u64,
    /// Packets sent per second, run by run.
    pub sent_per_s: Vec<f64>,
    /// CPU time of the capturing process as a share of one core, run by run.
    pub core_shares: Vec<f64>,
}

impl Flood {
    /// Packets sent per second, and the share of a core.
    pub fn spreads(&self) -> [Option<Spread>; 2] {
        [&self.sent_per_s, &self.core_shares].map(|values| Spread::of(values.iter().copied()))
    }
}

/// Captures `runs` floods of UDP packets over loopback.
///
/// # Errors
/// [`MeasureError`], also without the privilege to capture.
pub fn flood(spangap: &Path, folder: &Path, runs: u32) -> Result<Flood, MeasureError> {
    let failed = |error: std::io::Error| wrong(format!("expected a socket to send to: {error}"));
    // It is never read: what does not fit into its buffer is dropped behind the tap.
    let receiver = UdpSocket::bind("127.0.0.1:0").map_err(failed)?;
    let address = receiver.local_addr().map_err(failed)?;
    let sender = UdpSocket::bind("127.0.0.1:0").map_err(failed)?;
    sender.connect(address).map_err(failed)?;
    let filter = format!("udp port {}", address.port());
    let mut flood = Flood::default();
    for _ in 0..runs {
        let (sent, capture) = captured(spangap, folder, &filter, || send(&sender).map_err(failed))?;
        let (packets, seconds) = (sent.0, sent.1.as_secs_f64());
        flood.sent += packets;
        flood.received += capture.received;
        flood.dropped += capture.dropped;
        flood.sent_per_s.push(packets as f64 / seconds);
        flood.core_shares.push(capture.cpu_ns as f64 / 1e9 / seconds);
    }
    Ok(flood)
}

/// Sends at the rate, or as fast as it can. Returns the number of packets, and the time that they took.
fn send(socket: &UdpSocket) -> std::io::Result<(u64, Duration)> {
    let begun = Instant::now();
    let mut sent = 0;
    loop {
        let elapsed = begun.elapsed();
        if elapsed >= SENDING {
            return Ok((sent, elapsed));
        }
        let due = elapsed.as_nanos() as u64 * RATE_PER_S / 1_000_000_000;
        while sent < due {
            socket.send(&PAYLOAD)?;
            sent += 1;
        }
    }
}
