//! The map as one page that needs no other file: the picture, and the same as a table.

use super::item::{self, Item};
use super::{ShowReport, groups, layout, lists, picture, text};
use spangap_report::figures::{rate, whole_percent};
use spangap_report::html::{element, escaped, page};
use std::fmt::Write;

/// Columns of what is shown as text.
const COLUMNS: usize = 120;

const STYLE: &str = "\
svg { display: block; height: auto; min-width: 680px; max-width: 100%; }
h2 { margin-top: 2rem; }
table { font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .15rem .6rem; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { position: sticky; top: 0; background: var(--ground); }
th:last-child, td:last-child { text-align: left; white-space: normal; }
tr.net td { background: var(--for-network-ground); }
";

/// The page.
pub fn html(report: &ShowReport) -> String {
    let topology = &report.topology;
    let mut html = element("h1", "", "Where interrupts and applications are");
    for words in lists::net(report, usize::MAX).lines() {
        html += &element("p", "", words);
    }
    html += &format!("<div class=\"wide\">\n{}</div>\n", picture::svg(report));
    let texts = [
        lists::interfaces(report, COLUMNS),
        groups::text(topology, COLUMNS),
        lists::movers(topology, COLUMNS),
        lists::boot(topology, COLUMNS),
        lists::unknown(report, COLUMNS),
    ];
    let texts: Vec<&str> = texts.iter().map(String::as_str).filter(|text| !text.is_empty()).collect();
    html += "<h2>What else there is</h2>\n";
    html += &element("pre", "", &texts.join("\n"));
    html += &table(report);
    page(&format!("Where interrupts and applications are: {}", text::title(report)), STYLE, &html)
}

fn table(report: &ShowReport) -> String {
    let mut table = "<h2>Every CPU</h2>\n<div class=\"wide\"><table>\n<thead><tr><th scope=\"col\">CPU</th>\
        <th scope=\"col\">package</th><th scope=\"col\">node</th><th scope=\"col\">core of</th>\
        <th scope=\"col\">softirq %</th><th scope=\"col\">IRQ %</th><th scope=\"col\">tasks %</th>\
        <th scope=\"col\">steal %</th><th scope=\"col\">idle %</th><th scope=\"col\">NET_RX/s</th>\
        <th scope=\"col\">IRQ/s</th><th scope=\"col\">what is there</th></tr></thead>\n<tbody>\n"
        .to_owned();
    for package in layout::packages(&report.topology) {
        for node in package.nodes {
            for at in node.caches.into_iter().flat_map(|cache| cache.cores).flatten() {
                let (cpu, known) = (&report.cpus[at], &report.topology.cpus[at]);
                let share = |share: Option<f64>| share.map_or("-".to_owned(), whole_percent);
                let per_s = |per_s: Option<f64>| per_s.map_or("-".to_owned(), rate);
                let number = |number: Option<u32>| number.map_or("-".to_owned(), |number| number.to_string());
                let words: Vec<String> = item::items(report, cpu).iter().map(Item::words).collect();
                let cells = [
                    cpu.cpu.to_string(),
                    number(package.number),
                    number(node.number),
                    known.siblings.to_string(),
                    share(cpu.softirq_share),
                    share(cpu.irq_share),
                    share(cpu.tasks_share),
                    share(cpu.steal_share),
                    share(cpu.idle_share),
                    per_s(cpu.net_rx_per_s),
                    per_s(cpu.interrupts_per_s),
                    words.join("; "),
                ];
                table += if cpu.net { "<tr class=\"net\">" } else { "<tr>" };
                for cell in cells {
                    let _ = write!(table, "<td>{}</td>", escaped(&cell));
                }
                table += "</tr>\n";
            }
        }
    }
    table + "</tbody></table></div>\n"
}
