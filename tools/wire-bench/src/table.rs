//! The measurements as text and as JSON.

use crate::bench::{LegCheck, Row};
use crate::flood::Flood;
use crate::measure::Spread;
use crate::overhead::Overhead;
use crate::real::RealRow;
use std::fmt::Write;

const MEGA: f64 = 1e6;
const GIGA: f64 = 1e9;

fn spread(spread: Option<Spread>, unit: f64, digits: usize) -> String {
    match spread {
        Some(Spread { median, min, max }) => {
            format!("{:.digits$} ({:.digits$}..{:.digits$})", median / unit, min / unit, max / unit)
        }
        None => "not run".into(),
    }
}

/// The table.
pub fn text(rows: &[Row], memory: [(u64, u64); 2]) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "median (min..max) of the runs; all rates per second of CPU time, both captures together"
    );
    for row in rows {
        let Row { name, truth, .. } = row;
        let _ = writeln!(
            out,
            "\n{name}: {} calls, {} packets, {:.2} GB",
            truth.calls,
            truth.packets,
            truth.bytes as f64 / GIGA
        );
        let packets = spread(row.packets_per_cpu_s(), MEGA, 2);
        let _ = writeln!(out, "  packets            {packets} M/s");
        let _ = writeln!(out, "  capture            {} GB/s", spread(row.bytes_per_cpu_s(), GIGA, 2));
        let _ = writeln!(
            out,
            "  over reading       {} x the CPU time of adding up the bytes",
            spread(row.over_reading(), 1.0, 1)
        );
        let wall =
            row.over_tshark_wall().map(|ratio| format!("; by wall time {ratio:.0}")).unwrap_or_default();
        let _ = writeln!(
            out,
            "  over tshark        {} x its packets per CPU second{wall}",
            spread(row.over_tshark(), 1.0, 0)
        );
        let wall = Spread::of(row.dissect.iter().map(|cost| cost.wall_s));
        let peak = Spread::of(row.dissect.iter().map(|cost| cost.peak_bytes as f64));
        let _ = writeln!(
            out,
            "  wall time          {} s; peak {} MiB",
            spread(wall, 1.0, 2),
            spread(peak, 1048576.0, 0)
        );
        for leg in &row.legs {
            let LegCheck { leg: name, said_ns, bound_ns, true_ns } = leg;
            let verdict = if leg.holds() { "holds" } else { "WRONG" };
            let _ = writeln!(
                out,
                "  {name}: {:.3} ms +- {:.3}, truly {:.3}: {verdict}",
                *said_ns as f64 / MEGA,
                *bound_ns as f64 / MEGA,
                *true_ns as f64 / MEGA
            );
        }
    }
    let [(bytes, peak), (more_bytes, more_peak)] =
        memory.map(|(bytes, peak)| (bytes as f64 / MEGA, peak as f64 / 1048576.0));
    let _ = writeln!(
        out,
        "\nmemory: {peak:.0} MiB for {bytes:.0} MB of captures, {more_peak:.0} MiB for {more_bytes:.0} MB"
    );
    out
}

/// Dissect on real traffic.
pub fn real(rows: &[RealRow]) -> String {
    let mut out = String::from("real traffic, one capture; median (min..max), per second of CPU time\n");
    for row in rows {
        let per_packet = match row.instructions {
            Some(count) => format!("{:.0} instructions a packet", count as f64 / row.packets.max(1) as f64),
            None => "instructions not counted on this machine".into(),
        };
        let _ = writeln!(
            out,
            "{}: {} calls, {} packets, {:.1} MB: {} M packets/s, {} M calls/s, {} x reading alone, {per_packet}",
            row.name,
            row.calls,
            row.packets,
            row.bytes as f64 / MEGA,
            spread(row.per_cpu_s(row.packets), MEGA, 2),
            spread(row.per_cpu_s(row.calls), MEGA, 2),
            spread(row.over_reading(), 1.0, 1)
        );
    }
    out
}

/// The cost of capturing.
pub fn capture(overheads: &[Overhead], flood: Option<&Flood>) -> String {
    let mut out = String::new();
    for overhead in overheads {
        let Overhead { in_flight, received, dropped, .. } = overhead;
        let [throughput, p50, cpu] = overhead.spreads();
        let _ = writeln!(
            out,
            "capture, raw ping-pong, {in_flight} in flight: throughput with / without {}, p50 {}; {received} packets, {dropped} dropped; its own CPU {} ns a packet",
            spread(throughput, 1.0, 2),
            spread(p50, 1.0, 2),
            spread(cpu, 1.0, 0)
        );
    }
    if let Some(flood) = flood {
        let [per_s, share] = flood.spreads();
        let _ = writeln!(
            out,
            "capture, UDP flood of {} thousand packets a second: {} sent, {} passed the filter, {} of them dropped; its own CPU {} % of a core",
            spread(per_s, 1e3, 0),
            flood.sent,
            flood.received,
            flood.dropped,
            spread(share, 0.01, 1)
        );
    }
    out
}

/// The same as JSON.
pub fn json(
    rows: &[Row],
    real: &[RealRow],
    memory: [(u64, u64); 2],
    overheads: &[Overhead],
    flood: Option<&Flood>,
) -> String {
    let memory = memory.map(|(bytes, peak)| serde_json::json!({"capture_bytes": bytes, "peak_bytes": peak}));
    let summaries: Vec<_> = rows
        .iter()
        .map(|row| {
            serde_json::json!({
                "row": row,
                "packets_per_cpu_s": row.packets_per_cpu_s(),
                "bytes_per_cpu_s": row.bytes_per_cpu_s(),
                "over_reading": row.over_reading(),
                "over_tshark": row.over_tshark(),
            })
        })
        .collect();
    serde_json::json!({"rows": summaries, "real": real, "memory": memory, "capture": overheads, "flood": flood}).to_string()
}
