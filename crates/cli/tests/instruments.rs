//! What the verbs save with `--json` reaches the judge's evidence, whichever instrument it comes from.

use spangap_gather::{Sources, Wanted, evidence};
use spangap_model::evidence::Instrument;
use std::net::{TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name)
}

/// Saves the output of a verb.
fn save(folder: &Path, name: &str, args: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_spangap")).args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    std::fs::write(folder.join(name), output.stdout).unwrap();
}

#[test]
fn saved_output_of_each_verb_becomes_evidence() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::copy(fixture("captures/any-device.client.pcapng"), folder.join("client.pcapng")).unwrap();
    let throttled = fixture("hosts/throttled-container/machine.txt");
    let throttled = throttled.to_str().unwrap();
    save(folder, "check.json", &["host", "check", "--pid", "900", "--root", throttled, "--json"]);
    save(folder, "isolate.json", &["isolate", "show", "--root", throttled, "--json"]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let _connection = TcpStream::connect(("127.0.0.1", port)).unwrap();
    save(folder, "sockets.json", &["sockets", "list", "--port", &port.to_string(), "--json"]);

    let sources = Sources::of_folder(folder).unwrap();
    assert_eq!(sources.documents.len(), 3, "{sources:?}");
    let mut on_progress = |_| ControlFlow::Continue(());
    let seen = evidence(&sources, Wanted { calls: 10, sample: 0 }, &mut on_progress, &AtomicBool::new(false))
        .unwrap();
    let quota = seen.findings.iter().find(|finding| finding.culprit.to_string() == "cpu-quota").unwrap();
    assert!(quota.is_shown() && quota.instrument == Instrument::HostCheck, "{quota:?}");
    for instrument in [Instrument::Packets, Instrument::HostCheck, Instrument::Sockets, Instrument::Isolation]
    {
        let looked = seen.coverage.iter().find(|coverage| coverage.instrument == instrument);
        assert!(
            looked.is_some_and(|coverage| coverage.seen > 0 || !coverage.cannot.is_empty()),
            "{instrument}"
        );
    }
}
