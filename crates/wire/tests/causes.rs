//! For every capture of `fixtures/captures`: the cause that it was made to show is found, and no cause that it
//! must not show; with both ends, and with each end alone.

use serde_json::Value;
use spangap_model::Cause;
use spangap_model::evidence::Certainty;
use spangap_wire::call::{Call, CallFinding};
use spangap_wire::dissect::{Dissection, Settings, dissect};
use spangap_wire::source::Capture;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/captures"))
}

/// A fixture: its captures at both ends, and its known facts.
struct Fixture {
    name: String,
    ends: [PathBuf; 2],
    keys: Vec<u8>,
    about: Value,
}

fn fixtures() -> Vec<Fixture> {
    let mut names: Vec<String> = std::fs::read_dir(folder())
        .expect("the fixtures are there")
        .filter_map(|entry| Some(entry.ok()?.file_name().to_str()?.strip_suffix(".json")?.to_owned()))
        .collect();
    names.sort();
    names.into_iter().map(fixture).collect()
}

fn fixture(name: String) -> Fixture {
    let end = |side: &str| {
        let stored = ["pcapng", "pcapng.zst"].map(|suffix| folder().join(format!("{name}.{side}.{suffix}")));
        stored
            .into_iter()
            .find(|path| path.exists())
            .unwrap_or_else(|| panic!("{name}: the {side}'s capture"))
    };
    let text = std::fs::read_to_string(folder().join(format!("{name}.json"))).expect("what is known of it");
    Fixture {
        ends: [end("client"), end("server")],
        keys: std::fs::read(folder().join(format!("{name}.keys"))).unwrap_or_default(),
        about: serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}.json: {error}")),
        name,
    }
}

impl Fixture {
    fn dissect(&self, ends: &[&Path]) -> Dissection {
        let open = |path: &&Path| Capture::open(path).expect("a capture");
        let settings = Settings { slowest: 100_000, key_log: self.keys.clone(), ..Settings::default() };
        let dissected =
            dissect(ends.iter().map(open).collect(), &settings, &mut |_| ControlFlow::Continue(()));
        dissected.expect("files can be read twice")
    }

    fn expected(&self) -> (Vec<&str>, Option<&str>, u64, bool) {
        let expected = &self.about["expected"];
        let causes = expected["cause"].as_str().map(|text| text.split('|').collect()).unwrap_or_default();
        let least = expected["at_least_calls"].as_u64().unwrap_or(0);
        (causes, expected["side"].as_str(), least, expected["certainty"] == "possible")
    }

    fn must_not(&self) -> Vec<&str> {
        self.about["must_not"].as_array().expect("causes").iter().filter_map(Value::as_str).collect()
    }
}

fn is_shown(finding: &CallFinding) -> bool {
    finding.certainty == Certainty::Shown
}

fn calls_with(dissection: &Dissection, which: impl Fn(&CallFinding) -> bool) -> Vec<&Call> {
    dissection.calls.iter().filter(|call| call.findings.iter().any(&which)).collect()
}

/// `cause calls+possible`, most frequent first.
fn found(dissection: &Dissection) -> String {
    let mut counts: BTreeMap<&str, (u64, u64, u64)> = BTreeMap::new();
    for finding in dissection.calls.iter().flat_map(|call| &call.findings) {
        let (shown, possible, cost) = counts.entry(finding.cause.name()).or_default();
        *(if is_shown(finding) { shown } else { possible }) += 1;
        *cost += finding.cost_ns.unwrap_or(0);
    }
    let mut words: Vec<_> = counts.into_iter().collect();
    words.sort_by_key(|(_, (shown, possible, _))| std::cmp::Reverse((*shown, *possible)));
    words
        .into_iter()
        .map(|(cause, (shown, possible, cost))| {
            format!("{cause} {shown}+{possible} ({} ms)", cost / 1_000_000)
        })
        .collect::<Vec<_>>()
        .join(", ")
}

/// Checks invariants of every dissection.
fn contradictions(dissection: &Dissection) -> Vec<String> {
    let mut out = Vec::new();
    for call in &dissection.calls {
        // Shown before possible, then by descending cost.
        let order = |finding: &CallFinding| (is_shown(finding), finding.cost_ns);
        if !call.findings.is_sorted_by(|a, b| order(a) >= order(b)) {
            out.push(format!("findings out of order: {:?}", call.findings));
        }
        if let Some(most) =
            call.findings.iter().find(|f| f.cost_ns.is_some_and(|cost| cost > call.duration_ns))
        {
            out.push(format!("more than the call of {} ns: {most:?}", call.duration_ns));
        }
        // Time explained by a shown finding is not counted again in a possible one.
        let taken: u64 = call.findings.iter().filter_map(|finding| finding.cost_ns).sum();
        if call.findings.iter().any(is_shown)
            && call.findings.iter().any(|finding| !is_shown(finding))
            && taken > call.duration_ns
        {
            out.push(format!("{taken} of {} ns are charged: {:#?}", call.duration_ns, call.findings));
        }
    }
    // Sums match the calls.
    for sum in &dissection.sums.causes {
        let of = |shown: bool| {
            let same = |finding: &&CallFinding| {
                finding.cause == sum.cause && finding.side == sum.side && is_shown(finding) == shown
            };
            dissection.calls.iter().flat_map(|call| &call.findings).filter(same).count() as u64
        };
        if dissection.matching == dissection.sums.calls && (of(true), of(false)) != (sum.calls, sum.possible)
        {
            out.push(format!("{sum:?} of {} shown and {} possible", of(true), of(false)));
        }
    }
    out
}

/// The expectations that a fixture does not meet.
fn misses(fixture: &Fixture, both: &Dissection, alone: &[Dissection; 2]) -> Vec<String> {
    let mut misses = contradictions(both);
    let (causes, side, least, possible) = fixture.expected();
    let is_it = |finding: &CallFinding| {
        causes.contains(&finding.cause.name())
            && side.is_none_or(|side| finding.side.is_some_and(|of| of.name() == side))
            && (possible || is_shown(finding))
    };
    let count = calls_with(both, is_it).len() as u64;
    if !causes.is_empty() && count < least {
        misses.push(format!("{causes:?} of {side:?}: {count} calls of at least {least}"));
    }
    if !causes.is_empty() && least == 0 {
        let said = both.connections.iter().any(|connection| {
            connection.sums.causes.iter().any(|sum| causes.contains(&sum.cause.name()) && sum.calls > 0)
        });
        if !said {
            misses.push(format!("{causes:?} is said of no connection"));
        }
    }
    // Where nothing was made slow, only the applications' own actions are shown.
    let delayed = fixture.about["how"].as_str().is_some_and(|how| how.contains("--delay"));
    let blameless = |finding: &CallFinding| match finding.cause {
        _ if finding.cost_ns.is_some_and(|cost| cost < 1_000_000) => false,
        Cause::ServerApp | Cause::ServerHostOrApp | Cause::ConnectionPerCall | Cause::ClientApp => false,
        // The delay line was configured to.
        Cause::NetworkDelay => !delayed,
        _ => true,
    };
    for (seen, dissection) in
        [("both ends", both), ("the client's end", &alone[0]), ("the server's end", &alone[1])]
    {
        for cause in fixture.must_not() {
            // One end knows less: it may consider more causes possible.
            let says = |finding: &CallFinding| is_shown(finding) || seen == "both ends";
            let blamed = calls_with(dissection, |finding| finding.cause.name() == cause && says(finding));
            if let Some(call) = blamed.first() {
                misses.push(format!("{cause} by {seen} for {} calls: {:?}", blamed.len(), call.findings));
            }
        }
        if causes.is_empty() {
            let blamed = calls_with(dissection, |finding| is_shown(finding) && blameless(finding));
            if let Some(call) = blamed.first() {
                misses.push(format!(
                    "nothing is wrong, and {} calls by {seen}: {:?}",
                    blamed.len(),
                    call.findings
                ));
            }
        }
        if seen != "both ends" {
            misses.extend(contradictions(dissection));
        }
    }
    misses
}

#[test]
fn every_capture_shows_its_intended_cause() {
    let mut failed = Vec::new();
    for fixture in fixtures() {
        let [client, server] = fixture.ends.each_ref().map(PathBuf::as_path);
        let both = fixture.dissect(&[client, server]);
        let alone = [fixture.dissect(&[client]), fixture.dissect(&[server])];
        println!("{}: {}, {} calls", fixture.name, fixture.about["expected"], both.calls.len());
        println!("    both:   {}", found(&both));
        println!("    client: {}", found(&alone[0]));
        println!("    server: {}", found(&alone[1]));
        let misses = misses(&fixture, &both, &alone).join("\n    ");
        match (fixture.about["known_miss"].as_str(), misses.is_empty()) {
            (None, true) => {}
            (None, false) => failed.push(format!("{}: {misses}", fixture.name)),
            (Some(why), false) => println!("    known miss: {misses}: {why}"),
            (Some(_), true) => failed.push(format!("{}: is a known miss no more", fixture.name)),
        }
    }
    assert!(failed.is_empty(), "{} of the fixtures:\n{}", failed.len(), failed.join("\n"));
}

/// Causes that few captures have: no other capture may show one, whatever else it shows.
#[test]
fn no_capture_shows_a_cause_of_other_captures() {
    for fixture in fixtures() {
        let [client, server] = fixture.ends.each_ref().map(PathBuf::as_path);
        let (expected, ..) = fixture.expected();
        for ends in [&[client, server][..], &[client], &[server]] {
            let dissection = fixture.dissect(ends);
            for cause in [Cause::PathMtu, Cause::Dns, Cause::TlsHandshake, Cause::PoolWait] {
                let found = calls_with(&dissection, |finding| finding.cause == cause).len();
                assert!(found == 0 || expected.contains(&cause.name()), "{}: {cause} {found}", fixture.name);
            }
        }
    }
}

#[test]
fn a_connection_that_opened_late_has_a_note() {
    for name in ["syn-loss", "syn-ack-loss"] {
        let fixture = fixture(name.into());
        let [client, server] = fixture.ends.each_ref().map(PathBuf::as_path);
        let both = fixture.dissect(&[client, server]);
        let said = |note: &String| note.starts_with("It opened 1.0") && note.contains(" s late (syn-loss");
        let notes: Vec<_> = both.connections.iter().map(|connection| &connection.notes).collect();
        assert_eq!(notes.iter().filter(|notes| notes.iter().any(said)).count(), 1, "{name}: {notes:?}");
        // The first call has the finding, whose cost is not on the wire.
        let lost = |finding: &CallFinding| finding.cause == Cause::SynLoss;
        let calls = calls_with(&both, lost);
        let first = both.calls.iter().map(|call| call.start_ns).min();
        assert_eq!(calls.iter().map(|call| Some(call.start_ns)).collect::<Vec<_>>(), [first], "{name}");
        let finding = calls[0].findings.iter().find(|finding| lost(finding)).expect("it has it");
        assert_eq!(finding.cost_ns, None);
        assert!(
            finding.note.to_string().starts_with("before the first byte of the call was on the wire, 1.0"),
            "{finding:?}"
        );
    }
}

#[test]
fn the_time_of_the_path_needs_no_clock() {
    // 5 ms in each direction, and 8 there with 2 back: the same sum, whatever the clocks.
    for name in ["network-delay", "network-asymmetric"] {
        let fixture = fixture(name.into());
        let [client, server] = fixture.ends.each_ref().map(PathBuf::as_path);
        for ends in [[client, server], [server, client]] {
            let both = fixture.dissect(&ends);
            let costs: Vec<u64> = both
                .calls
                .iter()
                .flat_map(|call| &call.findings)
                .filter(|finding| finding.cause == Cause::NetworkDelay)
                .filter_map(|finding| finding.cost_ns)
                .collect();
            assert!(costs.len() >= 30, "{name}: {}", costs.len());
            assert!(costs.iter().all(|cost| *cost >= 10_000_000), "{name}: {costs:?}");
        }
    }
}

#[test]
fn drops_in_the_receiving_host_are_not_path_loss() {
    let path = [Cause::Rto, Cause::TailLoss, Cause::FastRetransmit];
    for name in ["receiver-drop-request", "receiver-drop-response", "receiver-drop-alone"] {
        let fixture = fixture(name.into());
        let [client, server] = fixture.ends.each_ref().map(PathBuf::as_path);
        for ends in [[client, server], [server, client]] {
            let both = fixture.dissect(&ends);
            let blamed = calls_with(&both, |finding| path.contains(&finding.cause));
            assert_eq!(blamed.len(), 0, "{name}: {:?}", blamed[0].findings);
        }
    }
}

/// Retransmissions that the taps call unnecessary are those for which the kernels got a DSACK.
#[test]
fn a_filled_hole_is_acknowledged_immediately_and_was_a_loss() {
    for name in ["receiver-drop-request", "receiver-drop-response", "receiver-drop-alone", "receiver-had-it"]
    {
        let fixture = fixture(name.into());
        let counters = &fixture.about["counters"];
        let dsacks: u64 =
            ["client", "server"].iter().filter_map(|end| counters[*end]["TCPDSACKRecv"].as_u64()).sum();
        for end in &fixture.ends {
            let alone = fixture.dissect(&[end]);
            let notes = alone.connections.iter().flat_map(|connection| &connection.notes);
            let needless = notes.filter(|note| note.contains("already had (DSACK"));
            let said: u64 =
                needless.filter_map(|note| note.split(' ').find_map(|word| word.parse::<u64>().ok())).sum();
            // An acknowledgement that the sender's host dropped is at both taps, but need not lead to a DSACK.
            let had_it = if name == "receiver-had-it" { 1 } else { 0 };
            assert!(said <= dsacks + had_it, "{name}: {said} needless, {dsacks} DSACKs at {}", end.display());
        }
    }
}
