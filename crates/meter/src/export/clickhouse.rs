//! Metrics of the store of all meters' minutes.

use super::family::{Families, MetricKind, Unit, Value};
use super::snapshot::Snapshot;

pub(super) fn of_clickhouse<'a>(snapshot: &'a Snapshot, families: &mut Families<'a>) {
    let Some(shared) = &snapshot.clickhouse else { return };
    let mut gauge = |name, help, value| {
        families.one(MetricKind::Gauge, Unit::None, name, help, Value::Count(value));
    };
    gauge(
        "spangap_clickhouse_unsent_rows",
        "Rows that are still to be sent to ClickHouse.",
        shared.unsent_rows,
    );
    gauge(
        "spangap_clickhouse_failing",
        "1 while ClickHouse takes no rows or answers no questions.",
        shared.problem.is_some().into(),
    );
    let mut count = |name, help, value| families.count(name, help, value);
    count(
        "spangap_clickhouse_sent_rows",
        "Rows sent to ClickHouse, including those sent again.",
        shared.sent_rows,
    );
    count(
        "spangap_clickhouse_lost_rows",
        "Rows that were dropped from the history before they could be sent to ClickHouse.",
        shared.lost_rows,
    );
    count(
        "spangap_clickhouse_failed_requests",
        "Requests to ClickHouse that failed.",
        shared.failed_requests,
    );
}
