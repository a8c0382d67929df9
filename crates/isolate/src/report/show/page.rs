//! Content of the page of a machine's CPUs: position, load and annotations of each CPU, and the lists. The page
//! itself is built from `web/src/report/`, and embeds a document of this shape.

use super::item::{self, Item};
use super::layout::{self, Cache};
use super::picture::{Labels, tooltip};
use super::{CpuReport, ShowReport, groups, lists, text};
use serde::Serialize;
use spangap_report::figures::{counted, rate, whole_percent};

/// Width of the text parts, in columns.
const COLUMNS: usize = 100;

#[derive(Clone, Debug, Default, Serialize)]
pub struct ShowPage {
    /// Machine and period.
    pub title: String,
    /// The applied plan, and the choice that a plan would make.
    pub plans: Vec<String>,
    /// Meaning of the interrupt labels.
    pub labels: Vec<String>,
    /// The machine's packages.
    pub packages: Vec<PackagePage>,
    /// Every CPU, in package order.
    pub cpus: Vec<CpuPage>,
    /// Lists below the map: interfaces, groups, services that move tasks and interrupts, boot settings,
    /// unknowns.
    pub lists: Vec<ListPage>,
}

#[derive(Clone, Debug, Serialize)]
pub struct PackagePage {
    /// `package 0`
    pub name: String,
    /// NUMA nodes.
    pub nodes: Vec<NodePage>,
}

/// A NUMA node, or its part in one package.
#[derive(Clone, Debug, Serialize)]
pub struct NodePage {
    /// `node 0`, where there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Cores that share a last-level cache.
    pub caches: Vec<CachePage>,
}

/// Cores that share a last-level cache.
#[derive(Clone, Debug, Serialize)]
pub struct CachePage {
    /// `a cache of 8 CPUs`, where a node has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Number of CPUs of each core, taken from the list of all CPUs in order.
    pub cores: Vec<usize>,
}

#[derive(Clone, Debug, Serialize)]
pub struct CpuPage {
    pub cpu: u32,
    /// Softirq share, 0 to 1; `None` if unknown.
    pub softirq_share: Option<f64>,
    pub tasks_share: Option<f64>,
    /// Whether the applied plan gives it to the network.
    pub net: bool,
    /// Whether a plan would choose it for the network.
    pub planned: bool,
    /// Whether it was isolated at boot, or tasks are not balanced onto it.
    pub apart: bool,
    /// Shortest description of what is on it.
    pub label: String,
    /// Everything known about it, one item per line.
    pub told: Vec<String>,
    /// Row of the table.
    pub row: Vec<String>,
}

/// A list as lines of text.
#[derive(Clone, Debug, Serialize)]
pub struct ListPage {
    pub title: String,
    /// Lines, indented by depth.
    pub lines: Vec<String>,
}

impl ShowPage {
    /// Selects what to show of a report.
    pub fn new(report: &ShowReport) -> ShowPage {
        let labels = Labels::new(report);
        let packages = layout::packages(&report.topology);
        let several = packages.iter().map(|package| package.nodes.len()).sum::<usize>() > 1;
        let mut page = ShowPage {
            title: text::title(report),
            plans: lists::net(report, usize::MAX).lines().map(str::to_owned).collect(),
            labels: labels.legend(),
            ..ShowPage::default()
        };
        for package in &packages {
            let mut nodes = Vec::new();
            for node in &package.nodes {
                let divided = node.caches.len() > 1;
                let cache = |cache: &Cache| CachePage {
                    name: divided.then(|| format!("a cache of {}", counted(cache.cpus(), "CPU"))),
                    cores: cache.cores.iter().map(Vec::len).collect(),
                };
                let name = several.then(|| layout::called("node", node.number));
                nodes.push(NodePage { name, caches: node.caches.iter().map(cache).collect() });
                for &at in node.caches.iter().flat_map(|cache| &cache.cores).flatten() {
                    let place = [package.number, node.number];
                    page.cpus.push(cpu(report, &labels, &report.cpus[at], place));
                }
            }
            page.packages.push(PackagePage { name: layout::called("package", package.number), nodes });
        }
        let topology = &report.topology;
        let texts = [
            lists::interfaces(report, COLUMNS),
            groups::text(topology, COLUMNS),
            lists::movers(topology, COLUMNS),
            lists::boot(topology, COLUMNS),
            lists::unknown(report, COLUMNS),
        ];
        page.lists = texts.iter().filter_map(|text| list(text)).collect();
        page
    }
}

/// A list whose first line is, or begins with, its title.
fn list(text: &str) -> Option<ListPage> {
    let (first, rest) = text.split_once('\n')?;
    let (title, begun) = match first.split_once(": ").filter(|(title, _)| !title.starts_with(' ')) {
        Some((title, begun)) => (title, Some(begun.to_owned())),
        None => (first, None),
    };
    let lines = begun.into_iter().chain(rest.lines().map(str::to_owned)).collect();
    Some(ListPage { title: title.to_owned(), lines })
}

fn cpu(
    report: &ShowReport,
    labels: &Labels<'_>,
    cpu: &CpuReport,
    [package, node]: [Option<u32>; 2],
) -> CpuPage {
    let share = |share: Option<f64>| share.map_or("-".to_owned(), whole_percent);
    let per_s = |per_s: Option<f64>| per_s.map_or("-".to_owned(), rate);
    let number = |number: Option<u32>| number.map_or("-".to_owned(), |number| number.to_string());
    let known = report.topology.cpus.iter().find(|known| known.number == cpu.cpu);
    let words: Vec<String> = item::items(report, cpu).iter().map(Item::words).collect();
    CpuPage {
        cpu: cpu.cpu,
        softirq_share: cpu.softirq_share,
        tasks_share: cpu.tasks_share,
        net: cpu.net,
        planned: cpu.planned,
        apart: cpu.boot_isolated || cpu.balanced == Some(false),
        label: labels.of(cpu),
        told: tooltip(report, cpu).lines().map(str::to_owned).collect(),
        row: vec![
            cpu.cpu.to_string(),
            number(package),
            number(node),
            known.map_or("-".to_owned(), |known| known.siblings.to_string()),
            share(cpu.softirq_share),
            share(cpu.irq_share),
            share(cpu.tasks_share),
            share(cpu.steal_share),
            share(cpu.idle_share),
            per_s(cpu.net_rx_per_s),
            per_s(cpu.interrupts_per_s),
            words.join("; "),
        ],
    }
}
