//! The list of traps, one file each. A test compares it with the folder.

mod backlog_drops;
mod c_states;
mod clock_source;
mod coalescing;
mod container_cpus;
mod cpu_frequency;
mod cpu_pinning;
mod cpu_pressure;
mod cpu_quota;
mod cpu_saturation;
mod halted;
mod io_pressure;
mod irqbalance;
mod isolated_cpus;
mod listen_overflow;
mod memory_pressure;
mod napi_threads;
mod net_settings;
mod net_softirqs;
mod nic_irqs;
mod nic_queues;
mod numa;
mod packet_steering;
mod receive_buffers;
mod run_queue_wait;
mod smt;
mod steal;
mod tcp_nodelay;
mod tcp_retransmits;
mod tcp_settings;
mod time_squeeze;
mod unsent_data;

use super::finding::{self, FindingDraft, NoVerdict, Severity, TrapFinding};
use super::look::Inspection;
use spangap_model::Cause;
use spangap_report::figures::{self, counted, small_percent};

/// All traps; those of equal severity are shown in this order.
pub const ALL: &[Trap] = &[
    halted::TRAP,
    cpu_quota::TRAP,
    steal::TRAP,
    run_queue_wait::TRAP,
    cpu_saturation::TRAP,
    cpu_pressure::TRAP,
    memory_pressure::TRAP,
    io_pressure::TRAP,
    net_softirqs::TRAP,
    nic_irqs::TRAP,
    packet_steering::TRAP,
    time_squeeze::TRAP,
    backlog_drops::TRAP,
    listen_overflow::TRAP,
    tcp_retransmits::TRAP,
    receive_buffers::TRAP,
    tcp_nodelay::TRAP,
    unsent_data::TRAP,
    c_states::TRAP,
    cpu_frequency::TRAP,
    container_cpus::TRAP,
    cpu_pinning::TRAP,
    isolated_cpus::TRAP,
    numa::TRAP,
    smt::TRAP,
    nic_queues::TRAP,
    irqbalance::TRAP,
    coalescing::TRAP,
    napi_threads::TRAP,
    net_settings::TRAP,
    tcp_settings::TRAP,
    clock_source::TRAP,
];

/// A known trap.
pub struct Trap {
    /// Name: that of its file, with `-` for `_`.
    pub name: &'static str,
    /// Causes of delay that it is known for.
    pub causes: &'static [Cause],
    /// Rule.
    pub look: fn(&Inspection) -> Result<FindingDraft, NoVerdict>,
}

impl Trap {
    /// Applies the rule.
    pub fn finding(&self, look: &Inspection) -> TrapFinding {
        match (self.look)(look) {
            Ok(judged) => judged.of(self.name, self.causes),
            Err(why) => finding::cannot_tell(self.name, self.causes, &why),
        }
    }
}

pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|trap| trap.name)
}

/// Severity of a figure: the highest threshold that it reaches. The last threshold may be absent.
fn severity(figure: f64, high: f64, medium: f64, low: f64) -> Option<Severity> {
    let at_least = [(high, Severity::High), (medium, Severity::Medium), (low, Severity::Low)];
    at_least.into_iter().find_map(|(from, severity)| (figure >= from).then_some(severity))
}

/// A part of a whole as a percentage; 0 if the whole is 0.
fn percent(part: f64, of: f64) -> String {
    small_percent(if of > 0.0 { part / of } else { 0.0 })
}

/// `812/s`, `15.2k/s`.
fn rate(count: u64, seconds: f64) -> String {
    format!("{}/s", figures::rate(count as f64 / seconds))
}

/// `CPU 3: 812/s, CPU 4: 80/s and 5 more`, the busiest first.
fn by_cpu(counts: impl Iterator<Item = (u32, u64)>, seconds: f64) -> String {
    const SHOWN: usize = 4;
    let mut counts: Vec<(u32, u64)> = counts.filter(|(_, count)| *count > 0).collect();
    counts.sort_by_key(|&(cpu, count)| (std::cmp::Reverse(count), cpu));
    let shown: Vec<String> = counts
        .iter()
        .take(SHOWN)
        .map(|&(cpu, count)| format!("CPU {cpu}: {}", rate(count, seconds)))
        .collect();
    match counts.len() {
        0 => "none".to_owned(),
        n if n > SHOWN => format!("{} and {} more CPUs", shown.join(", "), n - SHOWN),
        _ => shown.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    #[test]
    fn the_list_is_the_folder() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/check/traps");
        let files =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let files: BTreeSet<String> = files
            .filter(|file| file != "mod.rs")
            .map(|file| file.trim_end_matches(".rs").replace('_', "-"))
            .collect();
        let listed: BTreeSet<String> = names().map(str::to_owned).collect();
        assert_eq!(listed, files);
        assert_eq!(listed.len(), ALL.len(), "a trap is listed twice");
    }

    #[test]
    fn figures_in_words() {
        assert_eq!(
            [percent(1.0, 8.0), percent(1.0, 30.0), percent(1.0, 5000.0), percent(0.0, 0.0)],
            ["12 %", "3.3 %", "0.02 %", "0 %"]
        );
        assert_eq!(
            [rate(15_200, 1.0), rate(80, 1.0), rate(1, 2.0), rate(0, 1.0)],
            ["15.2k/s", "80/s", "0.5/s", "0/s"]
        );
        let counts = (0..6).map(|cpu| (cpu, u64::from(cpu) * 10));
        assert_eq!(by_cpu(counts, 1.0), "CPU 5: 50/s, CPU 4: 40/s, CPU 3: 30/s, CPU 2: 20/s and 1 more CPUs");
        assert_eq!(severity(5.0, 10.0, 4.0, 1.0), Some(Severity::Medium));
        assert_eq!(severity(0.5, 10.0, 4.0, 1.0), None);
    }
}
