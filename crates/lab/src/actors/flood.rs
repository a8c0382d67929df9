//! `flood`: broadcasts small packets, many at once, in stretches. Each stretch is printed as a line of JSON when it is over.
//! The first begins after a pause.

use super::{life_line, over_within, say};
use crate::LabError;
use crate::stage::now_unix_ns;
use crate::truth::Active;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// What it is told.
#[derive(Clone, Copy, Debug)]
pub struct Flood {
    /// Where the packets go.
    pub to: SocketAddr,
    /// How many go at once,
    pub packets: u32,
    /// each time this has passed,
    pub apart: Duration,
    /// for so long,
    pub on: Duration,
    /// in each stretch of this length.
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
                // What finds no room on the way is lost, as in any flood.
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
