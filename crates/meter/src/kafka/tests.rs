//! Meters of a group over a modelled topic: whatever order they read in, wherever they die and whoever goes on, their
//! histories sum to the calls in the topic.

use super::member::{Committed, Group, Member};
use super::settings::Start;
use crate::engine::partitions::{Message, Opening};
use crate::engine::{Meter, Settings};
use crate::history::{History, Limits, UnwrittenMinutes};
use crate::serve::clock::Clock;
use crate::serve::recorder::{Log, Store};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, TracesData};
use proptest::prelude::*;
use prost::Message as _;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

/// How long a half waits, disorder included.
const TTL_MS: u32 = 12_000;
const BASE_MS: u64 = 1_700_000_000_000;
const LIMITS: Limits = Limits { max_age_s: 100 * 365 * 86_400, max_bytes: 1 << 30 };

/// Calls, sum of gaps, of client and of server durations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    calls: u64,
    gap_ns: u128,
    client_ns: u128,
    server_ns: u128,
}

#[derive(Debug, Default)]
struct Topic {
    /// Timestamp and content of each message.
    partitions: Vec<Vec<(u64, Vec<u8>)>>,
    committed: BTreeMap<i32, (i64, String)>,
    next_commit: Fate,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Fate {
    #[default]
    Succeeds,
    Fails,
    /// It takes effect, and the answer is lost.
    SucceedsUnheard,
}

/// One member's connection; of no use once the member is taken for dead.
#[derive(Debug)]
struct Connection {
    topic: Arc<Mutex<Topic>>,
    fenced: Mutex<bool>,
}

impl Group for Connection {
    fn committed(&self, partitions: &[i32]) -> Result<Vec<Committed>, String> {
        let topic = self.topic.lock().unwrap();
        let of = |partition: &i32| {
            topic.committed.get(partition).map_or_else(Committed::default, |(offset, text)| Committed {
                offset: Some(*offset),
                text: text.clone(),
            })
        };
        Ok(partitions.iter().map(of).collect())
    }

    fn commit(&self, offsets: &[(i32, i64, String)]) -> Result<(), String> {
        if *self.fenced.lock().unwrap() {
            return Err("unknown member".into());
        }
        let mut topic = self.topic.lock().unwrap();
        let fate = std::mem::take(&mut topic.next_commit);
        if fate != Fate::Fails {
            for (partition, offset, text) in offsets {
                topic.committed.insert(*partition, (*offset, text.clone()));
            }
        }
        if fate == Fate::Succeeds { Ok(()) } else { Err("no answer".into()) }
    }

    fn offset_at(&self, partition: i32, time_ms: u64) -> Result<Option<i64>, String> {
        let topic = self.topic.lock().unwrap();
        let found = topic.partitions[partition as usize].iter().position(|(ms, _)| *ms >= time_ms);
        Ok(found.map(|at| at as i64))
    }

    fn ends(&self, partition: i32) -> Result<(i64, i64), String> {
        Ok((0, self.topic.lock().unwrap().partitions[partition as usize].len() as i64))
    }
}

/// A meter's process: what a kill takes away.
struct Process {
    meter: Arc<Meter>,
    member: Arc<Member>,
    store: Store,
    history: History,
    clock: Clock,
    connection: Arc<Connection>,
    topic: Arc<Mutex<Topic>>,
    reads: BTreeMap<i32, i64>,
}

fn engine() -> Meter {
    engine_of(3)
}

fn engine_of(lanes: usize) -> Meter {
    Meter::new(Settings {
        lanes,
        join_ttl_ms: Some(TTL_MS),
        max_pending_bytes: 8 << 20,
        keep_bytes: 1 << 16,
        partitioned: true,
        ..Settings::default()
    })
}

impl Process {
    /// Starts, and pays the debts of the last run.
    fn start(topic: &Arc<Mutex<Topic>>, path: &Path, lanes: usize) -> Process {
        let meter = Arc::new(engine_of(lanes));
        let mut history = History::open(Some(path), LIMITS, BASE_MS / 1000).unwrap();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let (name, counted) = history.counted("group/topic", name).unwrap();
        let ids = ("group/topic".to_string(), name);
        let member = Arc::new(Member::new(ids, &counted, Start::Earliest, TTL_MS, meter.clone()));
        let store = Store::new(meter.clone(), &history, Some(member.clone() as Arc<dyn Log>));
        let connection = Arc::new(Connection { topic: topic.clone(), fenced: Mutex::new(false) });
        let topic = topic.clone();
        let reads = BTreeMap::new();
        let mut process =
            Process { meter, member, store, history, clock: Clock::start(), connection, topic, reads };
        process.join();
        process
    }

    fn join(&mut self) {
        self.member.connect(Some(self.connection.clone()));
        for debt in self.member.debts().unwrap() {
            (debt.read_from..debt.until).for_each(|offset| self.message(debt.partition, offset));
            self.meter.partition_ends(debt.partition, debt.until, 0);
            self.store.checkpoint(&mut self.history, &self.clock).unwrap();
            self.meter.close_partition(debt.partition);
        }
    }

    fn message(&self, partition: i32, offset: i64) {
        let (time_ms, request) =
            self.topic.lock().unwrap().partitions[partition as usize][offset as usize].clone();
        let message = Message { partition, offset, time_ms: Some(time_ms), request: Some(&request) };
        self.meter.ingest_message(&message, 0, |_| {}).unwrap();
    }

    /// Takes over partitions; true if it had to join again for what it owes.
    fn assign(&mut self, partitions: &[i32]) -> bool {
        let starts = self.member.assigned(partitions);
        let owed = starts.is_err();
        if owed {
            self.lose();
        }
        let starts = starts.or_else(|_| self.member.assigned(partitions));
        self.reads.extend(starts.unwrap());
        owed
    }

    fn read(&mut self, partition: i32, messages: usize) {
        let end = self.topic.lock().unwrap().partitions[partition as usize].len() as i64;
        for _ in 0..messages {
            let next = self.reads[&partition];
            if next >= end {
                self.meter.partition_ends(partition, end, 0);
                break;
            }
            self.message(partition, next);
            self.reads.insert(partition, next + 1);
        }
        self.member.check_read_back();
        assert!(self.meter.accounting().holds(), "{:?}", self.meter.accounting());
    }

    fn checkpoint(&mut self) -> bool {
        self.store.checkpoint(&mut self.history, &self.clock).is_ok()
    }

    /// Hands partitions over; false if that fails, and all is forgotten.
    fn revoke(&mut self, partitions: &[i32]) -> bool {
        if !self.checkpoint() {
            self.lose();
            return false;
        }
        self.member.revoked(partitions);
        self.reads.retain(|partition, _| !partitions.contains(partition));
        true
    }

    /// The group takes this member for dead; it joins again.
    fn lose(&mut self) {
        *self.connection.fenced.lock().unwrap() = true;
        // What the recorder tries meanwhile must not be written.
        assert!(
            self.meter.partitions().iter().all(|p| p.is_reading_back)
                || !self.checkpoint()
                || self.is_unchanged()
        );
        self.member.connect(None);
        assert!(self.meter.partitions().iter().all(|p| p.is_reading_back) || !self.checkpoint());
        self.store.forget(&mut self.history).unwrap();
        self.reads.clear();
        self.connection = Arc::new(Connection { topic: self.topic.clone(), fenced: Mutex::new(false) });
        self.join();
    }

    /// Whether there was nothing to commit.
    fn is_unchanged(&self) -> bool {
        let topic = self.topic.lock().unwrap();
        let is_committed = |mark: &crate::engine::partitions::PartitionFigures| {
            topic.committed.get(&mark.partition).is_some_and(|(offset, _)| *offset == mark.next_offset)
        };
        self.meter.partitions().iter().filter(|p| !p.is_reading_back).all(is_committed)
    }
}

fn sums(history: &History) -> Sums {
    let mut sums = Sums::default();
    let view = history.reader().view(Default::default()).unwrap();
    view.pairs(0, u64::MAX / 2, &UnwrittenMinutes::default(), |_, stats| {
        sums.calls += stats.gap.count();
        sums.gap_ns += stats.gap.sum_ns();
        sums.client_ns += stats.client.sum_ns();
        sums.server_ns += stats.server.sum_ns();
    })
    .unwrap();
    sums
}

/// A message with one span.
fn request(service: &str, span: Span) -> Vec<u8> {
    let name = Value::StringValue(service.into());
    let attributes = vec![KeyValue {
        key: "service.name".into(),
        value: Some(AnyValue { value: Some(name) }),
        ..KeyValue::default()
    }];
    TracesData {
        resource_spans: vec![ResourceSpans {
            resource: Some(Resource { attributes, ..Resource::default() }),
            scope_spans: vec![ScopeSpans { spans: vec![span], ..ScopeSpans::default() }],
            ..ResourceSpans::default()
        }],
    }
    .encode_to_vec()
}

/// One call: when, how its messages are delayed, and what is missing or repeated.
#[derive(Clone, Copy, Debug)]
struct Call {
    at_ms: u64,
    delays_ms: [u64; 4],
    gap_ns: u64,
    kind: u8,
}

fn call() -> impl Strategy<Value = Call> {
    let delays = [0..2_000u64, 0..2_000, 0..3_000, 0..3_000];
    (0..400_000u64, delays, 0..5_000_000u64, 0..12u8).prop_map(|(at_ms, delays_ms, gap_ns, kind)| Call {
        at_ms,
        delays_ms,
        gap_ns,
        kind,
    })
}

/// The topic of these calls, each in one partition, and their sums.
fn topic(calls: &[Call], partitions: usize) -> (Topic, Sums) {
    let mut logs: Vec<Vec<(u64, u64, Vec<u8>)>> = vec![Vec::new(); partitions];
    let mut sums = Sums::default();
    for (number, call) in (1u64..).zip(calls) {
        let trace_id = u128::from(number).to_be_bytes().to_vec();
        let span = |kind, id: u64, parent: u64, duration_ns: u64| Span {
            trace_id: trace_id.clone(),
            span_id: id.to_be_bytes().to_vec(),
            parent_span_id: if parent == 0 { Vec::new() } else { parent.to_be_bytes().to_vec() },
            kind,
            start_time_unix_nano: 1_000_000_000,
            end_time_unix_nano: 1_000_000_000 + duration_ns,
            ..Span::default()
        };
        let client_ns = 1_000_000 + call.gap_ns;
        let halves = [
            request("web", span(3, number << 8, 0, client_ns)),
            request("db", span(2, number << 8 | 1, number << 8, 1_000_000)),
        ];
        let log = &mut logs[number as usize % partitions];
        let mut write = |half: usize, extra_ms: u64| {
            let time_ms = BASE_MS + call.at_ms + call.delays_ms[half] + extra_ms;
            log.push((time_ms + call.delays_ms[2 + half], time_ms, halves[half].clone()));
        };
        match call.kind {
            0 => write(0, 0),
            1 => write(1, 0),
            // The mate comes long after its time.
            2 => [(0, 0), (1, 60_000)].into_iter().for_each(|(half, extra_ms)| write(half, extra_ms)),
            kind => {
                [0, 1].into_iter().for_each(|half| write(half, 0));
                // A producer that heard no answer writes again.
                if kind == 3 {
                    [0, 1].into_iter().for_each(|half| write(half, 100));
                }
                sums.calls += 1;
                sums.gap_ns += u128::from(call.gap_ns);
                sums.client_ns += u128::from(client_ns);
                sums.server_ns += 1_000_000;
            }
        }
    }
    let in_order = |mut log: Vec<(u64, u64, Vec<u8>)>| {
        log.sort_by_key(|(written_ms, ..)| *written_ms);
        log.into_iter().map(|(_, time_ms, content)| (time_ms, content)).collect()
    };
    (Topic { partitions: logs.into_iter().map(in_order).collect(), ..Topic::default() }, sums)
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Read { partition: i32, messages: usize },
    Checkpoint { process: usize, fate: Fate },
    Kill { process: usize },
    KillInCommit { process: usize },
    Lose { process: usize },
    Move { partition: i32, to: usize, fate: Fate },
    Tick,
}

fn step() -> impl Strategy<Value = Step> {
    let fate =
        || prop_oneof![4 => Just(Fate::Succeeds), 1 => Just(Fate::Fails), 1 => Just(Fate::SucceedsUnheard)];
    prop_oneof![
        8 => (0..3i32, 1..40usize).prop_map(|(partition, messages)| Step::Read { partition, messages }),
        4 => (0..3usize, fate()).prop_map(|(process, fate)| Step::Checkpoint { process, fate }),
        2 => (0..3usize).prop_map(|process| Step::Kill { process }),
        2 => (0..3usize).prop_map(|process| Step::KillInCommit { process }),
        1 => (0..3usize).prop_map(|process| Step::Lose { process }),
        3 => (0..3i32, 0..3usize, fate()).prop_map(|(partition, to, fate)| Step::Move { partition, to, fate }),
        3 => Just(Step::Tick),
    ]
}

/// In memory where that is possible: a killed process loses nothing that was given to the kernel, and hundreds of
/// histories would wait for a disk.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

struct Fleet {
    topic: Arc<Mutex<Topic>>,
    paths: Vec<PathBuf>,
    processes: Vec<Option<Process>>,
    /// Who has each partition.
    owners: BTreeMap<i32, usize>,
}

impl Fleet {
    fn running(&mut self, process: usize) -> &mut Process {
        let (topic, path) = (&self.topic, &self.paths[process]);
        let lanes = [1, 2, 7][process];
        self.processes[process].get_or_insert_with(|| Process::start(topic, path, lanes))
    }

    fn disown(&mut self, process: usize) {
        self.owners.retain(|_, owner| *owner != process);
    }

    fn give(&mut self, partition: i32, to: usize) {
        if self.running(to).assign(&[partition]) {
            self.disown(to);
        }
        self.owners.insert(partition, to);
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Read { partition, messages } => {
                let owner = self.owners.get(&partition).copied().unwrap_or_else(|| {
                    let to = partition as usize;
                    self.give(partition, to);
                    to
                });
                self.running(owner).read(partition, messages);
            }
            Step::Checkpoint { process, fate } => {
                self.topic.lock().unwrap().next_commit = fate;
                self.running(process).checkpoint();
                self.topic.lock().unwrap().next_commit = Fate::Succeeds;
            }
            Step::Kill { process } => {
                self.processes[process] = None;
                self.disown(process);
            }
            Step::KillInCommit { process } => {
                self.take(Step::Checkpoint { process, fate: Fate::SucceedsUnheard });
                self.take(Step::Kill { process });
            }
            Step::Lose { process } => {
                self.running(process).lose();
                self.disown(process);
            }
            Step::Move { partition, to, fate } => {
                if let Some(owner) = self.owners.remove(&partition) {
                    self.topic.lock().unwrap().next_commit = fate;
                    let handed_over = self.running(owner).revoke(&[partition]);
                    self.topic.lock().unwrap().next_commit = Fate::Succeeds;
                    if !handed_over {
                        self.disown(owner);
                    }
                }
                self.give(partition, to);
            }
            Step::Tick => self.processes.iter().flatten().for_each(|process| process.meter.tick(0)),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// Three meters with one lane and with several, three partitions, kills at any moment, also between commit and write, commits that fail or are
    /// not heard, partitions that move, members that are taken for dead: the same sums as one uninterrupted read, which
    /// are those of the calls.
    #[test]
    fn histories_sum_to_the_calls(
        calls in prop::collection::vec(call(), 1..250),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let folder = folder();
        let (topic, truth) = topic(&calls, 3);
        let topic = Arc::new(Mutex::new(topic));
        let paths: Vec<PathBuf> = (0..3).map(|i| folder.path().join(format!("meter{i}.sqlite"))).collect();

        let alone = folder.path().join("alone.sqlite");
        let mut one = Process::start(&Arc::new(Mutex::new(Topic {
            partitions: topic.lock().unwrap().partitions.clone(),
            ..Topic::default()
        })), &alone, 1);
        one.assign(&[0, 1, 2]);
        (0..3).for_each(|partition| one.read(partition, usize::MAX));
        prop_assert!(one.checkpoint());
        drop(one);
        prop_assert_eq!(sums(&History::open(Some(&alone), LIMITS, BASE_MS / 1000).unwrap()), truth);

        let mut fleet = Fleet { topic, paths, processes: vec![None, None, None], owners: BTreeMap::new() };
        steps.iter().for_each(|step| fleet.take(*step));
        // Whoever was killed returns, and the rest is read.
        for process in 0..3 {
            fleet.running(process);
        }
        // A member that joins again for what it owes gives up what it has read and not written: the group gives it to
        // somebody, who reads it.
        let mut rounds = 0;
        while rounds == 0 || fleet.owners.len() < 3 {
            for partition in 0..3 {
                fleet.take(Step::Read { partition, messages: usize::MAX });
            }
            rounds += 1;
            prop_assert!(rounds < 9, "partitions are given up again and again");
        }
        (0..3).for_each(|process| assert!(fleet.running(process).checkpoint()));
        let mut all = Sums::default();
        for process in 0..3 {
            // Others have committed after what it was not heard to commit.
            if fleet.running(process).member.owes().unwrap() {
                fleet.running(process).lose();
            }
            prop_assert!(!fleet.running(process).member.owes().unwrap());
            prop_assert_eq!(fleet.running(process).member.counts.differing.load(Relaxed), 0);
            prop_assert_eq!(fleet.running(process).member.counts.unknown.load(Relaxed), 0);
            fleet.processes[process] = None;
            let part = sums(&History::open(Some(&fleet.paths[process]), LIMITS, BASE_MS / 1000).unwrap());
            all.calls += part.calls;
            all.gap_ns += part.gap_ns;
            all.client_ns += part.client_ns;
            all.server_ns += part.server_ns;
        }
        prop_assert_eq!(all, truth);
    }
}

fn halves() -> [Vec<u8>; 2] {
    let call = Call { at_ms: 0, delays_ms: [0; 4], gap_ns: 5, kind: 9 };
    let (topic, _) = topic(&[call], 1);
    [topic.partitions[0][0].1.clone(), topic.partitions[0][1].1.clone()]
}

const NEW: Opening = Opening { read_from: 0, count_from: 0, time_ms: 0 };

#[test]
fn a_half_waits_by_its_own_partition_alone() {
    let meter = engine();
    let [client, server] = halves();
    let send = |partition, offset, time_ms, request| {
        let message = Message { partition, offset, time_ms: Some(time_ms), request };
        meter.ingest_message(&message, 0, |_| {}).unwrap();
        meter.tick(0);
    };
    meter.open_partition(0, NEW);
    meter.open_partition(1, NEW);
    send(0, 0, BASE_MS, Some(&client));
    // A day passes elsewhere, and none here.
    send(1, 0, BASE_MS + 86_400_000, None);
    send(0, 1, BASE_MS + u64::from(TTL_MS), Some(&server));
    assert_eq!((meter.accounting().joined, meter.accounting().pending), (2, 0));
    // The minute of the call is that of its first half.
    assert_eq!(
        meter.open_minutes().iter().map(|minute| minute.unix_s).collect::<Vec<_>>(),
        [BASE_MS / 60_000 * 60]
    );
}

#[test]
fn at_the_end_of_a_partition_silence_is_time_and_elsewhere_nothing_is() {
    let meter = engine();
    let [client, server] = halves();
    let message = |offset, request| Message { partition: 0, offset, time_ms: Some(BASE_MS), request };
    meter.open_partition(0, NEW);
    meter.ingest_message(&message(0, Some(client.as_slice())), 0, |_| {}).unwrap();
    let ttl_ms = u64::from(TTL_MS);
    meter.partition_ends(0, 1, 2 * ttl_ms);
    assert_eq!(meter.accounting().pending, 1, "the first time to live of silence does not count");
    meter.partition_ends(0, 1, 2 * ttl_ms + 1);
    assert_eq!((meter.accounting().pending, meter.accounting().expired_client_only), (0, 1));
    meter.ingest_message(&message(1, Some(server.as_slice())), 0, |_| {}).unwrap();
    assert_eq!(meter.accounting().joined, 0);
    assert!(meter.accounting().holds());
}

#[test]
fn a_poison_message_is_passed_over_and_the_partition_goes_on() {
    let meter = engine();
    let [client, server] = halves();
    meter.open_partition(0, NEW);
    for (offset, request) in
        (0..).zip([Some(&client[..]), Some(&b"\x0a\xff junk"[..]), None, Some(&server[..])])
    {
        let message = Message { partition: 0, offset, time_ms: Some(BASE_MS), request };
        assert_eq!(meter.ingest_message(&message, 0, |_| {}).is_err(), offset == 1);
    }
    assert_eq!((meter.accounting().joined, meter.partitions()[0].next_offset), (2, 4));
    // A message that was processed before counts once.
    let again = Message { partition: 0, offset: 3, time_ms: Some(BASE_MS), request: Some(&client) };
    meter.ingest_message(&again, 0, |_| {}).unwrap();
    assert_eq!(meter.accounting().received, 2);
}

#[test]
fn an_attempt_at_a_call_of_another_run_is_counted_as_late() {
    let meter = engine();
    let [client, server] = halves();
    let other = {
        let mut data = TracesData::decode(&server[..]).unwrap();
        data.resource_spans[0].scope_spans[0].spans[0].span_id = vec![9; 8];
        data.encode_to_vec()
    };
    // The first two messages are read back: an earlier run has counted the call.
    meter.open_partition(0, Opening { read_from: 0, count_from: 2, time_ms: BASE_MS });
    for (offset, request) in (0..).zip([&client, &server, &other]) {
        let message = Message { partition: 0, offset, time_ms: Some(BASE_MS), request: Some(request) };
        meter.ingest_message(&message, 0, |_| {}).unwrap();
    }
    assert_eq!((meter.late_attempts(), meter.accounting().extra_attempts), (1, 1));
    assert!(meter.totals().is_empty() && meter.accounting().holds());
}

#[test]
fn a_group_that_is_set_back_counts_nothing_twice() {
    let folder = tempfile::tempdir().unwrap();
    let calls: Vec<Call> =
        (0..50).map(|i| Call { at_ms: i * 1_000, delays_ms: [0; 4], gap_ns: i, kind: 9 }).collect();
    let (topic, truth) = topic(&calls, 1);
    let topic = Arc::new(Mutex::new(topic));
    let path = folder.path().join("one.sqlite");
    for round in 0..3 {
        let mut process = Process::start(&topic, &path, 2);
        process.assign(&[0]);
        process.read(0, usize::MAX);
        assert!(process.checkpoint());
        assert_eq!(process.member.counts.set_back.load(Relaxed), u64::from(round > 0));
        drop(process);
        topic.lock().unwrap().committed.insert(0, (0, String::new()));
    }
    assert_eq!(sums(&History::open(Some(&path), LIMITS, BASE_MS / 1000).unwrap()), truth);
}
