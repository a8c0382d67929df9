//! What the meter saw, and what it did not: the shapes below `GET /api/v1/coverage`.

use super::{Note, NoteLevel, PeerState, Quantiles};
use serde::{Deserialize, Serialize};
use spangap_model::Accounting;
use spangap_model::accounting::Malformed;

/// What the meter observed and what it did not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Coverage {
    /// Accounting of all spans; adds up to `received`.
    pub spans: SpanCounts,
    /// Share of settled CLIENT and SERVER spans that found their mate.
    pub match_ratio: Option<f64>,
    /// Reasons for malformed spans.
    pub malformed: MalformedCounts,
    /// Time between the arrivals of two mates, over all pairs.
    pub mate_delay: Quantiles,
    /// Match ratios of each service in both roles.
    pub services: Vec<ServiceCoverage>,
    /// Bytes of the store of pending spans.
    pub pending_bytes: u64,
    /// The limit of `pending_bytes`.
    pub pending_bytes_limit: u64,
    /// Bytes of complete spans retained for the worst calls.
    pub whole_bytes: u64,
    /// Age of the oldest complete span available: if the mate is later than this, the first span's attributes
    /// are lost. Null while the ring has not yet been full.
    pub whole_span_horizon_ms: Option<u64>,
    /// Requests refused because the meter was overloaded (the sender was told to retry).
    pub refused_requests: u64,
    /// Requests that could not be decoded.
    pub invalid_requests: u64,
    /// Requests that missed their deadlines (the sender was told).
    pub slow_requests: u64,
    /// Requests dropped while still arriving slowly, because others needed their room (the sender was told to
    /// retry).
    pub displaced_requests: u64,
    /// Answers cut off because their readers were slow while others waited.
    pub displaced_answers: u64,
    /// Bytes of requests in progress, as far as they have arrived.
    pub request_bytes: u64,
    /// The limit of `request_bytes`.
    pub request_bytes_limit: u64,
    /// Connections of each port.
    pub ports: Vec<PortReport>,
    /// Usage of every bounded store.
    pub limits: Vec<LimitReport>,
    /// Calls of pairs past the series limit, counted in the pair `other`.
    pub calls_in_other: u64,
    /// Joined calls whose legs are unknown: no host name, too few calls between the hosts, or clocks that contradict.
    pub calls_without_legs: u64,
    /// Single-attempt calls for which neither span states the response size: these are never excluded because
    /// of it.
    pub calls_without_size: u64,
    /// Calls with a larger response, in bytes, are excluded; null for no limit.
    pub exclude_response_over_bytes: Option<u64>,
    /// Seconds since the meter started.
    pub uptime_s: u64,
    /// Intervals of the stored history in which no meter was recording.
    pub holes: Vec<Hole>,
    /// Notes for readers on the history and the clock, in words.
    pub notes: Vec<String>,
    /// The level of each of `notes`, in the same order.
    #[serde(default)]
    pub note_levels: Vec<NoteLevel>,
    /// Contents of the history, and minutes waiting to be written.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub history: Option<HistoryCoverage>,
    /// The store of complete traces, if enabled: `--keep-spans`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub kept: Option<KeptCoverage>,
    /// The topic from which spans come: `--kafka`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub kafka: Option<KafkaCoverage>,
    /// The store of all meters' minutes: `--clickhouse`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub clickhouse: Option<ClickHouseCoverage>,
    /// The API that names pods, nodes and zones: `--kubernetes`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub kubernetes: Option<KubernetesCoverage>,
    /// Other meters, which are asked for the mates of halves that found none here: `--peers`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub peers: Option<PeersCoverage>,
}

/// Other meters, and what is exchanged with them. What came of it is in [`SpanCounts`]: `apart` and `unresolved`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PeersCoverage {
    /// The other meters, and addresses where none has been heard.
    pub peers: Vec<PeerCoverage>,
    /// Halves past their time to live of which others are asked; they are pending.
    pub held: u64,
    /// Halves remembered that others have told.
    pub halves_of_peers: u64,
    /// The limit of `held`, and of `halves_of_peers`.
    pub halves_limit: u64,
    /// Halves given up for lack of room, since the start; what depends on them is unresolved.
    pub given_up: u64,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerCoverage {
    /// Address of its page.
    pub address: String,
    /// Whether it answers.
    pub state: PeerState,
    /// Time since its last answer, milliseconds; null if it never answered.
    pub heard_before_ms: Option<u64>,
    /// What is wrong with it or its last answer.
    pub problem: Option<String>,
}

/// What the Kubernetes API tells of the spans' origins. Resources are those held at the moment that do not state everything.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KubernetesCoverage {
    /// Pods known, including those that ended within the last ten minutes.
    pub pods: u64,
    /// Nodes known.
    pub nodes: u64,
    /// Pods and nodes past the limits; they name nothing.
    pub refused: u64,
    /// Time since the API was last heard, milliseconds; null if it never was.
    pub silent_ms: Option<u64>,
    /// Why pods or nodes cannot be listed or watched at the moment.
    pub problems: Vec<String>,
    /// Resources whose pod was found by its uid or a container's.
    pub named_by_id: u64,
    /// Resources whose pod was found by an address or a name that it alone has.
    pub named_by_name: u64,
    /// Resources that fit no pod of the API: other clusters, hosts beside the cluster.
    pub unlisted: u64,
    /// Resources that fit several pods, such as an address used again.
    pub several: u64,
    /// Resources that say something else than the pod found by them.
    pub contradicted: u64,
    /// Resources with nothing but an address or a name, while the API has been silent for too long to trust these.
    pub silent: u64,
}

impl KubernetesCoverage {
    /// What readers should know of it.
    pub fn notes(&self) -> Vec<Note> {
        let mut notes: Vec<Note> = self
            .problems
            .iter()
            .map(|problem| {
                Note::wrong(format!("{problem}; what has changed since is not known")).about("Kubernetes API")
            })
            .collect();
        let counts = [
            (self.several, "several pods have, or lately had, its address or name"),
            (self.contradicted, "its resource says something else than the pod that it names"),
            (self.silent, "the API has been silent for too long to go by an address or a name"),
            (self.refused, "there are more pods or nodes than are remembered"),
        ];
        let counts = counts.into_iter().filter(|(count, _)| *count > 0);
        notes.extend(counts.map(|(count, why)| {
            Note::caveat(format!("no pod for {count} of the resources: {why}")).about("Kubernetes API")
        }));
        notes
    }
}

impl Coverage {
    /// The same with these notes.
    pub fn with_notes(self, notes: Vec<Note>) -> Coverage {
        let (note_levels, notes) = notes.into_iter().map(|note| (note.level, note.text)).unzip();
        Coverage { notes, note_levels, ..self }
    }
}

/// A topic of Kafka from which spans come. Counts are since the start of the process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KafkaCoverage {
    /// The topic.
    pub topic: String,
    /// The consumer group.
    pub group: String,
    /// Version of librdkafka.
    pub library: String,
    /// Partitions that this meter counts at the moment.
    pub partitions: Vec<KafkaPartition>,
    /// Messages read, including those read back.
    pub messages: u64,
    /// Their bytes, decompressed.
    pub bytes: u64,
    /// Messages that could not be decoded, and were passed over.
    pub undecoded: u64,
    /// The last of them: topic, partition, offset and reason.
    pub last_undecoded: Option<String>,
    /// Changes of the assignment.
    pub rebalances: u64,
    /// Commits of offsets.
    pub commits: u64,
    /// Commits that failed; the minutes that came of them were not written then.
    pub failed_commits: u64,
    /// Messages deleted by the brokers before they were counted.
    pub gone_messages: u64,
    /// Partitions whose committed offset somebody set back; what this history has is not counted again.
    pub set_back_partitions: u64,
    /// Parts of partitions of which it is unknown whether they were counted.
    pub unknown_parts: u64,
    /// Partitions that had other waiting halves after reading back than before.
    pub differing_read_backs: u64,
    /// Attempts at calls that an earlier run or another meter has counted as calls with one attempt.
    pub late_attempts: u64,
    /// Messages whose timestamp is more than a minute in the future; time does not follow them.
    pub future_timestamps: u64,
    /// Calls whose halves lie in different partitions, among the sampled ones.
    pub mates_apart: u64,
    /// Calls whose halves lie in one partition, among the sampled ones.
    pub mates_together: u64,
    /// Whether reading has stopped until minutes can be written.
    pub held: bool,
    /// Why nothing can be read at the moment, or the last problem.
    pub problem: Option<String>,
}

/// One partition. Counts are since it was assigned.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KafkaPartition {
    /// Its number.
    pub partition: i32,
    /// The next message to read.
    pub next_offset: u64,
    /// Messages that are still to read; null if the brokers have not said.
    pub lag: Option<u64>,
    /// Latest timestamp so far: the time by which halves wait.
    pub time_unix_ms: u64,
    /// Messages counted.
    pub messages: u64,
    /// Messages read again to find the halves that were waiting.
    pub read_back: u64,
    /// Whether that is going on.
    pub is_reading_back: bool,
    /// Whether there was nothing more to read.
    pub at_end: bool,
    /// Whether fetching is paused.
    pub paused: bool,
    /// Halves waiting.
    pub waiting: u64,
    /// Halves that were waiting after reading back.
    pub taken_over: u64,
    /// Halves that found their mate.
    pub joined: u64,
    /// Halves that found no mate in time.
    pub unmatched: u64,
}

/// The store of all meters' minutes. Counts are since the start of the process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClickHouseCoverage {
    /// URL and database.
    pub target: String,
    /// Name of this meter there.
    pub meter: String,
    /// Rows sent, one per pair and interval; a row that changes is sent again.
    pub sent_rows: u64,
    /// Rows that are still to be sent, as of the last checkpoint. They wait in the history, whose limits are theirs.
    pub unsent_rows: u64,
    /// Rows dropped from the history, for age or size, or damaged before they could be sent.
    pub lost_rows: u64,
    /// Requests that failed; what they contained is sent again.
    pub failed_requests: u64,
    /// Why nothing can be sent or read at the moment.
    pub problem: Option<String>,
}

/// All recent spans, on disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeptCoverage {
    /// Spans on disk.
    pub spans: u64,
    /// Bytes on disk, including the index.
    pub bytes: u64,
    /// The limit of `bytes`; the oldest spans are dropped to stay below it.
    pub bytes_limit: u64,
    /// Files.
    pub segments: u64,
    /// Arrival of the oldest span; null if there is none.
    pub from_unix_ms: Option<u64>,
    /// Bytes of requests waiting to be written to disk.
    pub queued_bytes: u64,
    /// The limit of `queued_bytes`; requests beyond it are counted in `not_kept_queue`.
    pub queued_bytes_limit: u64,
    /// Spans not kept because they arrived faster than they could be written. The meter's other figures
    /// include them.
    pub not_kept_queue: u64,
    /// Spans not kept because of a disk error.
    pub not_kept_disk: u64,
    /// Spans not kept because their request exceeds the limit.
    pub not_kept_large: u64,
    /// Spans dropped because of their age, or to make room for newer ones.
    pub forgotten_spans: u64,
    /// Damaged files moved aside.
    pub damaged_segments: u64,
}

/// Contents of the history, as of the last checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HistoryCoverage {
    /// Whether the history outlives the process.
    pub stored: bool,
    /// Its size, including the write-ahead log.
    pub bytes: u64,
    /// Limit of its size: the finest and oldest rows are dropped first.
    pub bytes_limit: u64,
    /// Time range of each step, finest first.
    pub steps: Vec<HistorySteps>,
    /// Rows of closed minutes not yet written; answers include them from memory.
    pub waiting_rows: u64,
    /// Memory of the waiting rows.
    pub waiting_bytes: u64,
    /// Limit of this memory, at which the oldest rows are abandoned.
    pub waiting_bytes_limit: u64,
    /// Rows abandoned.
    pub lost_rows: u64,
    /// Rows skipped in answers because they could not be decoded.
    pub damaged_rows: u64,
    /// Why the last checkpoint failed; null if it succeeded.
    pub problem: Option<String>,
}

/// Contents of the history in one time step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HistorySteps {
    /// Length of a row's interval.
    pub step_s: u64,
    /// Start of the oldest row; null if there is none.
    pub from_unix_s: Option<u64>,
    /// Start of the oldest worst calls stored for this step.
    pub worst_from_unix_s: Option<u64>,
    /// Rows, one per pair and interval.
    pub rows: u64,
    /// Their size, including worst calls.
    pub bytes: u64,
}

/// Connections of one port since the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PortReport {
    /// `otlp_grpc`, `otlp_http` or `http`.
    pub port: String,
    /// Connections open now.
    pub open: u64,
    /// Maximum number of open connections.
    pub limit: u64,
    /// Connections accepted.
    pub accepted: u64,
    /// Closed because no request, or only part of its head, arrived in time.
    pub closed_no_request: u64,
    /// Closed after a long time without a request.
    pub closed_idle: u64,
    /// Closed because the peer did not read its answer.
    pub closed_not_reading: u64,
    /// Closed because all slots were taken and a new connection needed one.
    pub closed_for_room: u64,
    /// Closed because TLS was expected and no handshake completed.
    pub closed_no_tls: u64,
    /// New connections closed at once, because no other could be closed for them.
    pub refused: u64,
    /// Failures of the system to accept a connection, such as for lack of file descriptors.
    pub accept_errors: u64,
}

/// Usage of a bounded store, and the effects of its limit. Counts are since the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LimitReport {
    /// Name of the limited resource. A name that ends in `_bytes` is in bytes, others count items.
    pub name: String,
    /// Current usage.
    pub used: u64,
    /// Maximum usage.
    pub limit: u64,
    /// Items truncated to fit.
    pub cut: u64,
    /// Items removed to make room or because they were idle.
    pub forgotten: u64,
    /// Items rejected for lack of room.
    pub refused: u64,
}

/// Match ratios of one service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServiceCoverage {
    /// `service.name`.
    pub service: String,
    /// CLIENT spans that found their mate.
    pub client_joined: u64,
    /// CLIENT spans that found no mate in time.
    pub client_unmatched: u64,
    /// SERVER spans that found their mate.
    pub server_joined: u64,
    /// SERVER spans that found no mate in time.
    pub server_unmatched: u64,
}

/// An interval without a recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Hole {
    /// Last moment recorded before.
    pub from_unix_s: u64,
    /// First moment recorded after.
    pub to_unix_s: u64,
}

/// [`Accounting`] as JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
// Each key is documented at spangap_model::Accounting
pub struct SpanCounts {
    pub received: u64,
    pub joined: u64,
    pub pending: u64,
    pub expired_client_only: u64,
    pub expired_server_only: u64,
    #[serde(default)]
    pub apart: u64,
    #[serde(default)]
    pub unresolved: u64,
    pub evicted: u64,
    pub duplicate: u64,
    pub extra_attempts: u64,
    pub root: u64,
    pub other_kind: u64,
    pub malformed: u64,
}

impl SpanCounts {
    /// The sum of all classes; equal to `received` at any moment.
    pub fn classified(&self) -> u64 {
        // Destructured in full, so that a class added to the shape cannot be forgotten here.
        let SpanCounts {
            received: _,
            joined,
            pending,
            expired_client_only,
            expired_server_only,
            apart,
            unresolved,
            evicted,
            duplicate,
            extra_attempts,
            root,
            other_kind,
            malformed,
        } = self;
        joined
            + pending
            + expired_client_only
            + expired_server_only
            + apart
            + unresolved
            + evicted
            + duplicate
            + extra_attempts
            + root
            + other_kind
            + malformed
    }
}

impl From<&Accounting> for SpanCounts {
    fn from(a: &Accounting) -> Self {
        SpanCounts {
            received: a.received,
            joined: a.joined,
            pending: a.pending,
            expired_client_only: a.expired_client_only,
            expired_server_only: a.expired_server_only,
            apart: a.apart,
            unresolved: a.unresolved,
            evicted: a.evicted,
            duplicate: a.duplicate,
            extra_attempts: a.extra_attempts,
            root: a.root,
            other_kind: a.other_kind,
            malformed: a.malformed,
        }
    }
}

/// [`Malformed`] as JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
// Each key is documented at spangap_model::accounting::Malformed
pub struct MalformedCounts {
    pub bad_id: u64,
    pub end_before_start: u64,
    pub no_time: u64,
    pub too_long: u64,
}

impl From<&Malformed> for MalformedCounts {
    fn from(m: &Malformed) -> Self {
        MalformedCounts {
            bad_id: m.bad_id,
            end_before_start: m.end_before_start,
            no_time: m.no_time,
            too_long: m.too_long,
        }
    }
}
