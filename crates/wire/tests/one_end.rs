//! Losses in real traffic, as the capture of one end alone shows them: what that leaves open is not said to be shown.

use spangap_model::Cause;
use spangap_model::evidence::{Certainty, Missing};
use spangap_wire::dissect::{Settings, dissect};
use spangap_wire::source::Capture;
use std::ops::ControlFlow;
use std::path::PathBuf;

/// The losses that the calls of one capture show, with what is open about each.
fn losses(name: &str, end: &str) -> Vec<(Cause, Option<Missing>)> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/captures"));
    let plain = folder.join(format!("{name}.{end}.pcapng"));
    let path = if plain.exists() { plain } else { folder.join(format!("{name}.{end}.pcapng.zst")) };
    let capture = Capture::open(&path).expect("the fixture is there");
    let settings = Settings { slowest: 10_000, ..Settings::default() };
    let found = dissect(vec![capture], &settings, &mut |_| ControlFlow::Continue(())).expect("it is whole");
    let is_loss = |cause: Cause| {
        matches!(cause, Cause::Rto | Cause::TailLoss | Cause::FastRetransmit | Cause::ReceiverDrop)
    };
    let findings = found.calls.iter().flat_map(|call| &call.findings);
    findings
        .filter(|finding| is_loss(finding.cause))
        .map(|finding| (finding.cause, finding.certainty.missing()))
        .collect()
}

#[test]
fn the_senders_end_alone_does_not_tell_a_lossy_path_from_a_host_that_drops() {
    for (name, end, open) in [
        // The server's host drops requests, the client's drops responses, and a path loses either.
        ("receiver-drop-request", "client", Missing::DroppedByServer),
        ("rto-request", "client", Missing::DroppedByServer),
        ("receiver-drop-response", "server", Missing::DroppedByClient),
        ("receiver-drop-alone", "server", Missing::DroppedByClient),
        ("tail-loss", "server", Missing::DroppedByClient),
        ("fast-retransmit", "server", Missing::DroppedByClient),
    ] {
        let losses = losses(name, end);
        assert!(losses.iter().any(|(_, missing)| *missing == Some(open)), "{name}: {losses:?}");
        assert!(losses.iter().all(|(_, missing)| missing.is_some()), "{name}: {losses:?}");
    }
}

#[test]
fn certainty_says_which_capture_would_tell() {
    let open = Certainty::Possible(Missing::DroppedByServer);
    let need = open.missing().map(Missing::need);
    assert_eq!(need, Some(spangap_model::evidence::Need::Capture(spangap_model::Side::Server)));
}
