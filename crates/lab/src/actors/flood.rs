//! `flood --to ADDR:PORT --packets N --apart TIME --on TIME --every TIME`: broadcasts small packets, so many at once each
//! `--apart`, for `--on` in each `--every`. Each stretch in which it does is printed as a line of JSON when it is over. The
//! first begins after a pause.

use super::{life_line, over_within, say, time, value};
use crate::LabError;
use crate::stage::now_unix_ns;
use crate::truth::Active;
use std::net::{SocketAddr, UdpSocket};
use std::time::Instant;

/// Runs until standard input ends.
pub(super) fn act(arguments: &[String]) -> Result<(), LabError> {
    let (on, every) = (time(arguments, "--on")?, time(arguments, "--every")?);
    let (apart, packets) = (time(arguments, "--apart")?, value(arguments, "--packets")?);
    let refused = |flag: &str, what: &str, expected: &str| {
        LabError::Parameter(format!("{flag} {what}: expected {expected}"))
    };
    let packets: u32 = packets.parse().map_err(|_| refused("--packets", packets, "a number"))?;
    let to = value(arguments, "--to")?;
    let to: SocketAddr = to.parse().map_err(|_| refused("--to", to, "ADDRESS:PORT"))?;
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
