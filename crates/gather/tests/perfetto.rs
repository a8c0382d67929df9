//! Traces for Perfetto, decoded with Perfetto's own description of its format: `perfetto_trace.binpb` is the
//! descriptor published in its Python package (0.59), reduced to tracks, events and clocks.

use prost_reflect::{DescriptorPool, DynamicMessage, Value};
use spangap_gather::whole::{Gathered, Selection, gather};
use spangap_gather::{Sources, perfetto};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name)
}

fn of(sources: &Sources, selection: &Selection) -> Gathered {
    gather(sources, selection, &mut |_| ControlFlow::Continue(()), &AtomicBool::new(false)).unwrap()
}

fn rust_spans() -> Sources {
    let mut sources = Sources { folder: fixture("captures"), ..Sources::default() };
    for name in ["client.pcapng", "server.pcapng", "client.spans.pb", "server.spans.pb"] {
        let path = fixture(&format!("captures/rust-spans.{name}"));
        match name.ends_with(".pb") {
            true => sources.spans.push(path),
            false => sources.captures.push(path),
        }
    }
    sources
}

/// All fields of a message unknown to Perfetto.
fn unknown(message: &DynamicMessage, path: &str, found: &mut Vec<String>) {
    found.extend(message.unknown_fields().map(|field| format!("{path}: field {}", field.number())));
    for (field, value) in message.fields() {
        let path = format!("{path}.{}", field.name());
        let inner = value.as_list().unwrap_or(std::slice::from_ref(value));
        inner.iter().filter_map(Value::as_message).for_each(|message| unknown(message, &path, found));
    }
}

fn number(message: &DynamicMessage, name: &str) -> Option<u64> {
    let is_there = message.has_field_by_name(name);
    let value = message.get_field_by_name(name).filter(|_| is_there)?;
    value.as_u64().or(value.as_i64().map(|value| value as u64)).or(value.as_u32().map(u64::from))
}

fn text(message: &DynamicMessage, name: &str) -> String {
    message.get_field_by_name(name).and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

fn part(message: &DynamicMessage, name: &str) -> Option<DynamicMessage> {
    let is_there = message.has_field_by_name(name);
    message.get_field_by_name(name).filter(|_| is_there)?.as_message().cloned()
}

/// A slice: its track including all ancestors, its name, start and end, and its values.
#[derive(Clone, Debug)]
struct Slice {
    track: String,
    name: String,
    from_ns: u64,
    to_ns: u64,
    args: BTreeMap<String, String>,
}

/// Everything in the trace, decoded with Perfetto's own description. Panics if a rule of the format is
/// violated.
fn read(bytes: &[u8]) -> Vec<Slice> {
    let pool = DescriptorPool::decode(&include_bytes!("perfetto_trace.binpb")[..]).unwrap();
    let trace = pool.get_message_by_name("perfetto.protos.Trace").unwrap();
    let trace = DynamicMessage::decode(trace, bytes).unwrap();
    let mut found = Vec::new();
    unknown(&trace, "Trace", &mut found);
    assert!(found.is_empty(), "Perfetto does not know {found:?}");
    let packets = trace.get_field_by_name("packet").unwrap();
    let mut tracks: BTreeMap<u64, String> = BTreeMap::new();
    let mut open: BTreeMap<u64, Vec<Slice>> = BTreeMap::new();
    let (mut slices, mut last_ns, mut snapshots) = (Vec::new(), 0, 0);
    for packet in packets.as_list().unwrap().iter().filter_map(Value::as_message) {
        assert_eq!(number(packet, "trusted_packet_sequence_id"), Some(1), "{packet:?}");
        snapshots += usize::from(part(packet, "clock_snapshot").is_some());
        if let Some(track) = part(packet, "track_descriptor") {
            let above = number(&track, "parent_uuid").map_or(String::new(), |parent| {
                format!("{} > ", tracks.get(&parent).expect("a parent comes before its children"))
            });
            let uuid = number(&track, "uuid").unwrap();
            assert!(
                tracks.insert(uuid, format!("{above}{}", text(&track, "name"))).is_none(),
                "{uuid} twice"
            );
        }
        let Some(event) = part(packet, "track_event") else { continue };
        let at_ns = number(packet, "timestamp").unwrap();
        assert!(at_ns >= last_ns, "events come in order of time");
        last_ns = at_ns;
        let uuid = number(&event, "track_uuid").unwrap();
        let kind = event.get_field_by_name("type").unwrap().as_enum_number().unwrap();
        let name = pool.get_enum_by_name("perfetto.protos.TrackEvent.Type").unwrap();
        let kind = name.get_value(kind).unwrap();
        let annotations = event.get_field_by_name("debug_annotations").unwrap();
        let annotations = annotations.as_list().unwrap().iter().filter_map(Value::as_message);
        let args = annotations.map(|one| {
            let value = number(one, "int_value")
                .map_or_else(|| text(one, "string_value"), |n| (n as i64).to_string());
            (text(one, "name"), value)
        });
        let track = tracks.get(&uuid).expect("a track is described before its events").clone();
        let slice =
            Slice { track, name: text(&event, "name"), from_ns: at_ns, to_ns: at_ns, args: args.collect() };
        match kind.name() {
            "TYPE_SLICE_BEGIN" => open.entry(uuid).or_default().push(slice),
            "TYPE_SLICE_END" => {
                let begun = open.get_mut(&uuid).and_then(Vec::pop).expect("what ends has begun");
                assert!(
                    open[&uuid].is_empty(),
                    "slices of one track overlap: {begun:?} in {:?}",
                    open[&uuid]
                );
                slices.push(Slice { to_ns: at_ns, ..begun });
            }
            "TYPE_INSTANT" => slices.push(slice),
            other => panic!("{other}"),
        }
    }
    assert!(open.values().all(Vec::is_empty), "what begins ends");
    assert_eq!(snapshots, 1);
    slices
}

#[test]
fn calls_legs_spans_and_packets_of_both_hosts_share_a_timeline() {
    let gathered = of(&rust_spans(), &Selection { calls: 10, ladders: 5, ..Selection::SLOWEST });
    let slices = read(&perfetto::trace(&gathered).unwrap());
    let of_track =
        |words: &str| slices.iter().filter(|slice| slice.track.ends_with(words)).collect::<Vec<_>>();
    let calls = of_track("> call");
    assert_eq!(calls.len(), 10);
    for report in &gathered.reports {
        let trace_id = report.trace_id.as_ref().unwrap();
        let call = calls.iter().find(|call| call.args["trace_id"] == *trace_id).unwrap();
        assert_eq!(
            (call.from_ns, call.to_ns - call.from_ns),
            (report.start_unix_ns as u64, report.duration_ns)
        );
        let lane = call.track.trim_end_matches("call");
        let within = |slice: &&Slice| slice.from_ns >= call.from_ns && slice.to_ns <= call.to_ns;
        // Every nanosecond of the call belongs to a leg, and each leg states its maximum error.
        let legs: Vec<&Slice> =
            slices.iter().filter(|slice| slice.track == format!("{lane}legs")).filter(within).collect();
        assert_eq!(
            legs.iter().map(|leg| leg.to_ns - leg.from_ns).sum::<u64>(),
            report.duration_ns,
            "{legs:#?}"
        );
        assert!(legs.iter().all(|leg| leg.args.contains_key("bound_ns")));
        let names: Vec<String> =
            report.legs.iter().filter(|leg| leg.ns > 0).map(|leg| leg.legs.to_string()).collect();
        assert_eq!(legs.iter().map(|leg| leg.name.clone()).collect::<Vec<_>>(), names);
        let span = slices.iter().filter(|slice| slice.track == format!("{lane}SERVER span"));
        let bound: Vec<&str> = span.map(|span| span.args["bound_ns"].as_str()).collect();
        assert!(
            !bound.is_empty() && bound.iter().all(|bound| bound.parse::<i64>().unwrap() > 0),
            "{bound:?}"
        );
    }
    for side in ["client", "server"] {
        let packets =
            of_track("> packets at its tap").into_iter().filter(|slice| slice.track.starts_with(side));
        assert!(packets.count() >= 10, "{side}");
    }
    let moved =
        of_track("> packets at its tap").into_iter().filter(|slice| slice.track.starts_with("server"));
    assert!(
        moved.clone().all(|packet| packet.args.contains_key("bound_ns")),
        "{:?}",
        moved.collect::<Vec<_>>()
    );
}
