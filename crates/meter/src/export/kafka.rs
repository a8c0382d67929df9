//! Metrics of the topic that spans come from.

use super::family::{Families, MetricKind, Point, Unit, Value};
use super::snapshot::Snapshot;
use crate::report::KafkaPartition;

type Of<'f, 'a> = &'f dyn Fn(&KafkaPartition) -> Option<Value<'a>>;

pub(super) fn of_kafka<'a>(snapshot: &'a Snapshot, families: &mut Families<'a>) {
    let Some(kafka) = &snapshot.kafka else { return };
    let topic = &kafka.coverage;
    let points = |of: Of<'_, 'a>| -> Vec<Point<'a>> {
        let partitions = topic.partitions.iter().zip(&kafka.numbers);
        let point = |(partition, number): (&KafkaPartition, &'a String)| {
            let labels = vec![("topic", topic.topic.as_str()), ("partition", number.as_str())];
            Some(Point { labels, value: of(partition)? })
        };
        partitions.filter_map(point).collect()
    };
    let mut gauge = |name, help, of: Of<'_, 'a>| {
        families.add(MetricKind::Gauge, Unit::None, name, help, points(of));
    };
    gauge("spangap_kafka_lag_messages", "Messages of a partition that are still to read.", &|p| {
        p.lag.map(Value::Count)
    });
    gauge("spangap_kafka_waiting_spans", "Halves of a partition that wait for their mate.", &|p| {
        Some(Value::Count(p.waiting))
    });
    gauge(
        "spangap_kafka_reading_back",
        "1 while messages are read again to find the halves that were waiting.",
        &|p| Some(Value::Count(p.is_reading_back.into())),
    );
    gauge("spangap_kafka_paused", "1 while a partition is not fetched.", &|p| {
        Some(Value::Count(p.paused.into()))
    });
    families.add(
        MetricKind::Gauge,
        Unit::Seconds,
        "spangap_kafka_time_seconds",
        "Latest timestamp of a partition's messages, Unix time: the time by which halves wait.",
        points(&|p| (p.time_unix_ms > 0).then(|| Value::Real(p.time_unix_ms as f64 / 1e3))),
    );
    let mut count = |name, help, value| families.count(name, help, value);
    count("spangap_kafka_messages", "Messages read, including those read again.", topic.messages);
    count("spangap_kafka_message_bytes", "Bytes of messages read, decompressed.", topic.bytes);
    count(
        "spangap_kafka_undecoded_messages",
        "Messages passed over because they cannot be decoded.",
        topic.undecoded,
    );
    count("spangap_kafka_rebalances", "Changes of the partitions assigned to this meter.", topic.rebalances);
    count("spangap_kafka_commits", "Commits of offsets.", topic.commits);
    count(
        "spangap_kafka_failed_commits",
        "Commits that failed; the minutes that came of them were not written then.",
        topic.failed_commits,
    );
    count(
        "spangap_kafka_gone_messages",
        "Messages that the brokers deleted before they were counted.",
        topic.gone_messages,
    );
    count(
        "spangap_kafka_differing_read_backs",
        "Partitions that had other waiting halves after reading back than before.",
        topic.differing_read_backs,
    );
    count(
        "spangap_kafka_late_attempts",
        "Attempts at calls that an earlier run or another meter has counted as calls with one attempt.",
        topic.late_attempts,
    );
    count(
        "spangap_kafka_future_timestamps",
        "Messages whose timestamp is more than a minute in the future.",
        topic.future_timestamps,
    );
    count(
        "spangap_kafka_mates_apart",
        "Sampled calls whose halves lie in different partitions, and cannot join.",
        topic.mates_apart,
    );
    count(
        "spangap_kafka_mates_together",
        "Sampled calls whose halves lie in one partition.",
        topic.mates_together,
    );
}
