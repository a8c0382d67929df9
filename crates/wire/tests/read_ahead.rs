//! Both ends read by a thread each give what they give when they are read by turns: on every fixture, on damaged ones, and
//! when reading is interrupted.

use proptest::prelude::*;
use spangap_wire::dissect::{Dissection, Settings, dissect, every_call};
use spangap_wire::report::{DissectReport, Extras};
use spangap_wire::source::Capture;
use std::io::Read;
use std::ops::ControlFlow;
use std::path::Path;

/// Both ends of every fixture that has two, decompressed.
fn pairs() -> Vec<(String, [Vec<u8>; 2])> {
    let mut pairs = Vec::new();
    for folder in ["captures", "strangers", "proxies"] {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures")).join(folder);
        for entry in std::fs::read_dir(&folder).expect("the fixtures are there") {
            let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
            let Some((name, suffix)) = name.split_once(".client.pcap") else { continue };
            let end = |end: &str| plain(&folder.join(format!("{name}.{end}.pcap{suffix}")));
            if let (Some(client), Some(server)) = (end("client"), end("server")) {
                pairs.push((name.to_owned(), [client, server]));
            }
        }
    }
    pairs.sort();
    pairs
}

fn plain(path: &Path) -> Option<Vec<u8>> {
    let bytes = std::fs::read(path).ok()?;
    if path.extension().is_none_or(|extension| extension != "zst") {
        return Some(bytes);
    }
    let mut plain = Vec::new();
    zstd::stream::read::Decoder::new(&bytes[..]).ok()?.read_to_end(&mut plain).ok()?;
    Some(plain)
}

fn settings(in_turn: bool) -> Settings {
    Settings { slowest: 10_000, in_turn, ..Settings::default() }
}

/// Both captures, unless one of them is none.
fn opened(ends: &[Vec<u8>; 2]) -> Option<Vec<Capture>> {
    let open = |(name, bytes): (&str, &Vec<u8>)| Capture::from_bytes(name.into(), bytes.clone()).ok();
    ["one", "other"].into_iter().zip(ends).map(open).collect()
}

fn whole(dissection: &Dissection, settings: &Settings) -> String {
    let report = DissectReport::new(dissection, settings, &Extras::default());
    serde_json::to_string(&report).expect("a report")
}

/// The report in JSON, and the number of calls.
fn read(ends: &[Vec<u8>; 2], settings: &Settings) -> Option<(String, u64)> {
    let dissection = dissect(opened(ends)?, settings, &mut |_| ControlFlow::Continue(())).expect("read once");
    Some((whole(&dissection, settings), dissection.sums.calls))
}

#[test]
fn threads_do_not_change_a_report() {
    let (mut read_so, mut calls) = (0, 0);
    for (name, ends) in pairs() {
        for same_clock in [false, true] {
            let by = |in_turn| Settings { same_clock, ..settings(in_turn) };
            let both = [true, false].map(|in_turn| read(&ends, &by(in_turn)).expect("captures"));
            assert!(both[0] == both[1], "{name}, one clock: {same_clock}");
            (read_so, calls) = (read_so + 1, calls + both[0].1);
        }
    }
    assert!(read_so > 100 && calls > 5_000, "{read_so} reports of {calls} calls");
}

#[test]
fn threads_do_not_change_what_a_search_for_a_trace_finds() {
    let (_, ends) = pairs().into_iter().find(|(name, _)| name == "go-unary").expect("the fixture is there");
    let all = dissect(opened(&ends).expect("captures"), &settings(true), &mut |_| ControlFlow::Continue(()));
    let calls = all.expect("read once").calls;
    let trace =
        calls.iter().find_map(|call| call.halves.exchanges.iter().flatten().find_map(|half| half.trace));
    let trace_ids = vec![trace.expect("calls with a trace").trace_id];
    let by = |in_turn| read(&ends, &Settings { trace_ids: trace_ids.clone(), ..settings(in_turn) });
    assert!(by(true) == by(false));
}

#[test]
fn threads_do_not_change_the_calls_of_a_second_reading() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (_, ends) =
        pairs().into_iter().find(|(name, _)| name == "many-connections").expect("the fixture is there");
    let paths = ["one", "other"].map(|name| folder.path().join(name));
    paths.iter().zip(&ends).for_each(|(path, bytes)| std::fs::write(path, bytes).expect("written"));
    let by = |in_turn: bool| {
        let settings = Settings { slowest: 1, ..settings(in_turn) };
        let captures = paths.iter().map(|path| Capture::open(path).expect("a capture")).collect();
        let goes_on = &mut |_| ControlFlow::Continue(());
        let mut dissection = dissect(captures, &settings, goes_on).expect("files");
        let mut all = Vec::new();
        let mut each = |some: &mut Dissection| {
            all.extend(some.calls.iter().map(|call| format!("{call:?}")));
            ControlFlow::Continue(())
        };
        let flow = every_call(&mut dissection, &settings, 7, &mut |_| ControlFlow::Continue(()), &mut each);
        assert!(flow.expect("files").is_continue());
        assert_eq!(all.len() as u64, dissection.sums.calls);
        all
    };
    assert!(by(true) == by(false));
}

/// A capture of many packets that are no traffic.
fn noise(packets: u32) -> Vec<u8> {
    let mut file = Vec::from(*b"\xd4\xc3\xb2\xa1\x02\0\x04\0\0\0\0\0\0\0\0\0\xff\xff\0\0\x01\0\0\0");
    for number in 0..packets {
        for word in [1_700_000_000 + number / 1_000_000, number % 1_000_000, 14, 14] {
            file.extend_from_slice(&word.to_le_bytes());
        }
        file.extend_from_slice(&[0; 14]);
    }
    file
}

#[test]
fn an_interruption_ends_reading_and_what_was_read_until_then_counts() {
    const PACKETS: u32 = 300_000;
    let ends = [noise(PACKETS), noise(PACKETS)];
    for in_turn in [true, false] {
        let mut asked = 0;
        let mut stop = |_| {
            asked += 1;
            ControlFlow::Break(())
        };
        let dissection =
            dissect(opened(&ends).expect("captures"), &settings(in_turn), &mut stop).expect("read once");
        assert!(dissection.interrupted);
        // Once while reading, once at its end.
        assert_eq!(asked, 2);
        for capture in &dissection.captures {
            assert!(capture.reading.packets < u64::from(PACKETS), "{}", capture.reading.packets);
            assert_eq!(capture.reading.packets, capture.counts.packets);
        }
    }
}

#[derive(Clone, Debug)]
struct Damage {
    end: usize,
    /// Where, as a share of the file.
    at: f64,
    kind: u8,
    value: u8,
    len: usize,
}

fn damage() -> impl Strategy<Value = Damage> {
    (0..2usize, 0.0..1.0f64, 0..4u8, any::<u8>(), 1..200usize)
        .prop_map(|(end, at, kind, value, len)| Damage { end, at, kind, value, len })
}

fn damaged(mut ends: [Vec<u8>; 2], all: &[Damage]) -> [Vec<u8>; 2] {
    for Damage { end, at, kind, value, len } in all {
        let bytes = &mut ends[*end];
        if bytes.is_empty() {
            continue;
        }
        let at = ((bytes.len() as f64 * at) as usize).min(bytes.len() - 1);
        let to = (at + len).min(bytes.len());
        match kind {
            0 => bytes[at] ^= value | 1,
            1 => drop(bytes.drain(at..to)),
            2 => {
                let piece = bytes[at..to].to_vec();
                bytes.splice(at..at, piece).for_each(drop);
            }
            _ => bytes.truncate(at.max(bytes.len() / 4)),
        }
    }
    ends
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn threads_do_not_change_a_report_of_damaged_captures(
        which in any::<prop::sample::Index>(),
        other in any::<prop::sample::Index>(),
        strangers in prop::bool::weighted(0.1),
        all in prop::collection::vec(damage(), 1..6),
    ) {
        static PAIRS: std::sync::LazyLock<Vec<(String, [Vec<u8>; 2])>> = std::sync::LazyLock::new(pairs);
        let mut ends = which.get(&PAIRS).1.clone();
        if strangers {
            ends[1] = other.get(&PAIRS).1[1].clone();
        }
        let ends = damaged(ends, &all);
        prop_assert!(read(&ends, &settings(true)) == read(&ends, &settings(false)));
    }
}
