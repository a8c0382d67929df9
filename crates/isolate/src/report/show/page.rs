//! What the page of a machine's CPUs shows: where each CPU stands, how busy it is, what is on it in words, and the lists. The page
//! itself is built from `web/src/report/`; a document of this shape stands in it.

use super::item::{self, Item};
use super::layout::{self, Cache};
use super::picture::{Labels, tooltip};
use super::{CpuReport, ShowReport, groups, lists, text};
use serde::Serialize;
use spangap_report::figures::{counted, rate, whole_percent};

/// Columns of what is shown as text.
const COLUMNS: usize = 100;

/// The page.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ShowPage {
    /// Which machine, over which time.
    pub title: String,
    /// What is applied, and what a plan would choose.
    pub plans: Vec<String>,
    /// What the labels of interrupts mean.
    pub labels: Vec<String>,
    /// The machine's packages.
    pub packages: Vec<PackagePage>,
    /// Every CPU, in the order in which the packages have them.
    pub cpus: Vec<CpuPage>,
    /// Lists below the map: interfaces, groups, who moves things, what was decided at boot, what is not known.
    pub lists: Vec<ListPage>,
}

/// A package.
#[derive(Clone, Debug, Serialize)]
pub struct PackagePage {
    /// `package 0`
    pub name: String,
    /// Its NUMA nodes.
    pub nodes: Vec<NodePage>,
}

/// A NUMA node, or the part of it that is in one package.
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
    /// How many CPUs each core has: the next so many of all.
    pub cores: Vec<usize>,
}

/// A CPU.
#[derive(Clone, Debug, Serialize)]
pub struct CpuPage {
    /// Its number.
    pub cpu: u32,
    /// Share of softirqs, 0 to 1; `None`: not told.
    pub softirq_share: Option<f64>,
    /// Share of tasks.
    pub tasks_share: Option<f64>,
    /// For the network, by the plan that is applied.
    pub net: bool,
    /// A plan would choose it for the network.
    pub planned: bool,
    /// Isolated at boot, or tasks are not balanced onto it.
    pub apart: bool,
    /// What is on it, as short as can be.
    pub label: String,
    /// Everything known of it, one line each.
    pub told: Vec<String>,
    /// Its row of the table.
    pub row: Vec<String>,
}

/// A list, as text in lines.
#[derive(Clone, Debug, Serialize)]
pub struct ListPage {
    /// What it is of.
    pub title: String,
    /// Its lines; deeper ones are indented.
    pub lines: Vec<String>,
}

impl ShowPage {
    /// What is shown of a report.
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

/// A list whose first line is its title, or begins with it.
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
