//! `flood`: broadcasts bursts of small packets during recurring intervals. Each interval is printed as a line
//! of JSON when it ends. The first begins after a pause.

use super::{life_line, over_within, say};
use crate::LabError;
use crate::host_clock::now_unix_ns;
use crate::truth::Active;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// Arguments of the actor.
#[derive(Clone, Copy, Debug)]
pub struct Flood {
    /// Destination.
    pub to: SocketAddr,
    /// Packets per burst.
    pub packets: u32,
    /// Time between two bursts.
    pub apart: Duration,
    /// Length of an interval.
    pub on: Duration,
    /// Time between the starts of two intervals.
    pub every: Duration,
}

/// Runs until standard input ends.
pub(super) fn act(Flood { to, packets, apart, on, every }: Flood) -> Result<(), LabError> {
    let failed = |error: std::io::Error| LabError::program("flood", format!("{to}: {error}"));
    let socket = UdpSocket::bind("0.0.0.0:0").map_err(failed)?;
    socket.set_broadcast(true).map_err(failed)?;
    let life = life_line();
    println!("ready");
    let begun = Instant::now();
    for number in 1_u32.. {
        let started = begun + every * number - on;
        if over_within(&life, started.saturating_duration_since(Instant::now())) {
            break;
        }
        let from_unix_ns = now_unix_ns();
        let mut over = false;
        for burst in 1_u32.. {
            for _ in 0..packets {
                // Packets that find no room are lost, as in any flood.
                let _ = socket.send_to(&[0; 64], to);
            }
            over = over_within(&life, (started + apart * burst).saturating_duration_since(Instant::now()));
            if over || started.elapsed() >= on {
                break;
            }
        }
        say(&Active { from_unix_ns, to_unix_ns: now_unix_ns() });
        if over {
            break;
        }
    }
    Ok(())
}
