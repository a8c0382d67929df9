//! Settings of packet reception differ from their defaults.

use super::super::finding::{FindingDraft, NoVerdict, Severity};
use super::super::look::Inspection;
use super::Trap;
use spangap_model::Cause;

pub const TRAP: Trap =
    Trap { name: "net-settings", causes: &[Cause::SoftirqLate, Cause::CpuSaturated], look };

/// Settings and their defaults. `netdev_budget_usecs` defaults to two ticks, so 2,000 to 20,000.
const DEFAULTS: &[(&str, std::ops::RangeInclusive<i64>)] = &[
    ("net/core/busy_poll", 0..=0),
    ("net/core/busy_read", 0..=0),
    ("net/core/netdev_budget", 300..=i64::MAX),
    ("net/core/netdev_budget_usecs", 2_000..=i64::MAX),
    ("net/core/netdev_max_backlog", 1_000..=i64::MAX),
];

fn look(look: &Inspection) -> Result<FindingDraft, NoVerdict> {
    super::tcp_settings::off_default(
        look,
        DEFAULTS,
        |judged| {
            judged.means(
            "busy_poll and busy_read make threads that wait for a socket spin on the CPU: fast with CPUs to spare, \
             harmful without. Budgets below the default end softirqs early, and packets wait",
        )
        },
        Severity::Low,
    )
}
