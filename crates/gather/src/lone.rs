//! The end of a lone capture whose packets do not tell: that of the program that was recorded beside it.

use crate::GatherError;
use spangap_host::event::What;
use spangap_host::recording::Recording;
use spangap_model::Side;
use spangap_wire::dissect::Dissection;
use std::collections::HashSet;
use std::path::PathBuf;

/// The end of the captured connections at which the recorded programs are; `None` unless it is one of the two. Ports tell: a
/// server's own port is that of the connection's server, whatever network namespace it is in.
///
/// # Errors
/// A file is not a recording.
pub fn end_of_recordings(
    dissection: &Dissection,
    recordings: &[PathBuf],
) -> Result<Option<Side>, GatherError> {
    let ends = dissection.connections.iter().filter_map(|connection| connection.seen_by(0));
    let ports: HashSet<(u16, u16)> = ends.map(|facts| (facts.ends[0].port, facts.ends[1].port)).collect();
    let mut found = [false; 2];
    for file in recordings {
        // What comes before any damage counts; whoever splits legs by the recording reports it.
        let _damaged = Recording::open(file)?.read(&mut |event| {
            if let What::Read { at, .. } | What::Wrote { at, .. } = &event.what {
                found[0] |= ports.contains(&(at.local_port, at.peer_port));
                found[1] |= ports.contains(&(at.peer_port, at.local_port));
            }
        });
    }
    Ok(match found {
        [true, false] => Some(Side::Client),
        [false, true] => Some(Side::Server),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Sources, Wanted, evidence};
    use spangap_host::event::{Event, Transfer};
    use spangap_host::recording::{End, Meta, Writer};
    use spangap_model::evidence::Evidence;
    use std::path::Path;
    use std::sync::atomic::AtomicBool;

    const CAPTURE: &str =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/captures/receiver-drop-request.server.pcapng");

    /// A recording of the program at this end of a connection.
    fn recording(to: &Path, (local_port, peer_port): (u16, u16)) -> PathBuf {
        let mut writer = Writer::new(Vec::new(), &Meta::default()).expect("memory");
        let at = Transfer { local_port, peer_port, peer_tail: 1, seq: 1 };
        writer.event(&Event { time_ns: 9, cpu: 0, what: What::Read { tid: 7, at } }).expect("memory");
        let (file, _) = writer.finish(End { ended_ns: 10, events: 1, lost: 0 }).expect("memory");
        std::fs::write(to, file).expect("a file");
        to.to_owned()
    }

    fn gathered(recordings: Vec<PathBuf>) -> Evidence {
        let sources = Sources { captures: vec![CAPTURE.into()], recordings, ..Sources::default() };
        let nothing = &mut |_| std::ops::ControlFlow::Continue(());
        evidence(&sources, Wanted::FOR_A_HUNT, nothing, &AtomicBool::new(false)).expect("evidence")
    }

    #[test]
    fn a_capture_of_hosts_side_by_side_is_of_the_host_that_was_recorded() {
        let folder = tempfile::tempdir().expect("a folder");
        let alone = gathered(Vec::new());
        // Neither end answers sooner than the other, and so the client's is assumed.
        assert!(alone.calls.iter().all(|call| call.seen_in == [Some(0), None]), "{:#?}", alone.calls[0]);
        let port = |address: &Option<String>| -> u16 {
            let (_, port) =
                address.as_deref().and_then(|address| address.rsplit_once(':')).expect("an address");
            port.parse().expect("a port")
        };
        let (client, server) = (port(&alone.calls[0].client), port(&alone.calls[0].server));
        let at = |name: &str, ports| recording(&folder.path().join(name), ports);
        let of_server = at("server.rec", (server, client));
        let of_client = at("client.rec", (client, server));
        let of_another = at("another.rec", (server + 1, client));
        let ends = |recordings: Vec<&PathBuf>| {
            gathered(recordings.into_iter().cloned().collect()).calls[0].seen_in.map(|one| one.is_some())
        };
        assert_eq!(ends(vec![&of_server]), [false, true]);
        assert_eq!(ends(vec![&of_another, &of_server]), [false, true]);
        for unclear in [vec![&of_client], vec![&of_another], vec![&of_client, &of_server]] {
            assert_eq!(ends(unclear), [true, false]);
        }
    }
}
