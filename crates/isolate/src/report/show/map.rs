//! The CPUs as rows: one per core, or one per group of similar cores.

use super::item::{self, Item};
use super::layout::{self, Cache};
use super::words::{list, list_lines};
use super::{CpuReport, ShowReport};
use spangap_model::Cpus;
use spangap_report::figures::{rate, whole_percent};
use spangap_report::wrap::cell_lines;
use std::fmt::Write;

/// Up to this number of rows nothing is merged.
const SMALL: usize = 24;
/// Above this number of rows, cores are merged that are similar only in kind.
const LONG: usize = 40;
/// Width of the column of CPU numbers.
const CPUS: usize = 16;
/// Width from which on all figures are shown.
const WIDE: usize = 96;

/// Column headings.
const HEADS: [&str; 5] = ["SOFTIRQ%", "IRQ%", "TASKS%", "NET_RX/s", "IRQ/s"];

/// Degree of merging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fold {
    Nothing,
    /// Cores with the same annotations and similar softirq shares.
    Alike,
    /// Cores with annotations of the same kinds, such as queues of one interface.
    Kinds,
    /// The same, and only cores busy with softirqs stay separate.
    Busy,
}

impl Fold {
    /// Boundaries between softirq shares that count as different.
    fn classes(self) -> &'static [f64] {
        match self {
            Fold::Nothing => &[],
            Fold::Alike => &[0.02, 0.10, 0.25, 0.50],
            Fold::Kinds => &[0.10, 0.40],
            Fold::Busy => &[0.25],
        }
    }
}

/// A figure over several CPUs.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Span {
    low: Option<f64>,
    high: Option<f64>,
}

impl Span {
    fn new(value: Option<f64>) -> Span {
        Span { low: value, high: value }
    }

    fn add(&mut self, other: Span) {
        // A CPU without data makes the figure unknown.
        self.low = self.low.zip(other.low).map(|(one, two)| one.min(two));
        self.high = self.high.zip(other.high).map(|(one, two)| one.max(two));
    }

    fn words(self, words: fn(f64) -> String) -> String {
        let (Some(low), Some(high)) = (self.low, self.high) else { return "-".to_owned() };
        let (low, high) = (words(low), words(high));
        if low == high { low } else { format!("{}-{high}", low.trim_start_matches('<')) }
    }
}

#[derive(Clone, Debug)]
struct Row {
    cpus: Cpus,
    figures: [Span; 5],
    items: Vec<Item>,
    /// Softirq share of the first CPU.
    softirqs: f64,
}

impl Row {
    fn new(report: &ShowReport, cpu: &CpuReport) -> Row {
        Row {
            cpus: [cpu.cpu].into_iter().collect(),
            figures: [
                cpu.softirq_share,
                cpu.irq_share,
                cpu.tasks_share,
                cpu.net_rx_per_s,
                cpu.interrupts_per_s,
            ]
            .map(Span::new),
            items: item::items(report, cpu),
            softirqs: cpu.softirq_share.unwrap_or(0.0),
        }
    }

    fn figures(&self) -> [String; 5] {
        std::array::from_fn(|at| self.figures[at].words(if at < 3 { whole_percent } else { rate }))
    }

    fn is_like(&self, other: &Row, fold: Fold) -> bool {
        let items = |like: fn(&Item, &Item) -> bool| {
            self.items.len() == other.items.len()
                && self.items.iter().zip(&other.items).all(|(one, two)| like(one, two))
        };
        let class = |row: &Row| fold.classes().iter().filter(|class| row.softirqs >= **class).count();
        match fold {
            Fold::Nothing => self.items == other.items && self.figures() == other.figures(),
            Fold::Alike => class(self) == class(other) && self.items == other.items,
            Fold::Kinds | Fold::Busy => class(self) == class(other) && items(Item::is_like),
        }
    }

    fn add(&mut self, other: &Row) {
        self.cpus = self.cpus.either(&other.cpus);
        for (span, more) in self.figures.iter_mut().zip(other.figures) {
            span.add(more);
        }
        for (item, more) in self.items.iter_mut().zip(&other.items) {
            item.add(more);
        }
    }
}

/// One core or several merged ones: a row, or one per thread if these differ.
#[derive(Clone, Debug)]
struct Block {
    rows: Vec<Row>,
}

impl Block {
    fn is_like(&self, other: &Block, fold: Fold) -> bool {
        self.rows.len() == other.rows.len()
            && self.rows.iter().zip(&other.rows).all(|(one, two)| one.is_like(two, fold))
    }

    fn add(&mut self, other: &Block) {
        for (row, more) in self.rows.iter_mut().zip(&other.rows) {
            row.add(more);
        }
    }
}

/// Cores below one heading.
struct CoreGroup {
    heading: Option<String>,
    blocks: Vec<Block>,
}

/// The map in lines of at most `width` columns; with `all`, one row per core regardless of their number.
pub(super) fn text(report: &ShowReport, width: usize, all: bool) -> String {
    let folds =
        if all { &[Fold::Nothing][..] } else { &[Fold::Nothing, Fold::Alike, Fold::Kinds, Fold::Busy] };
    let rows = |lots: &[CoreGroup]| {
        lots.iter().flat_map(|lot| &lot.blocks).map(|block| block.rows.len()).sum::<usize>()
    };
    let mut lots = Vec::new();
    for &fold in folds {
        lots = lots_of(report, fold);
        let most = if fold == Fold::Nothing { SMALL } else { LONG };
        if rows(&lots) <= most {
            break;
        }
    }
    table(&lots, width)
}

fn lots_of(report: &ShowReport, fold: Fold) -> Vec<CoreGroup> {
    let mut lots = Vec::new();
    let packages = layout::packages(&report.topology);
    let several = |number: usize| number > 1;
    let nodes_alone = !several(packages.iter().map(|package| package.nodes.len()).sum());
    for package in &packages {
        for node in &package.nodes {
            let mut heading = Vec::new();
            if several(packages.len()) {
                heading.push(layout::called("package", package.number));
            }
            if !nodes_alone {
                heading.push(layout::called("node", node.number));
            }
            let mut caches: Vec<(usize, &Cache, Vec<Block>)> = Vec::new();
            for cache in &node.caches {
                let blocks = blocks(report, cache, fold);
                let same = |other: &[Block]| {
                    other.len() == blocks.len()
                        && other.iter().zip(&blocks).all(|(one, two)| one.is_like(two, fold))
                };
                match caches.last_mut() {
                    Some((number, first, last))
                        if fold != Fold::Nothing && first.cpus() == cache.cpus() && same(last) =>
                    {
                        *number += 1;
                        last.iter_mut().zip(&blocks).for_each(|(one, two)| one.add(two));
                    }
                    _ => caches.push((1, cache, blocks)),
                }
            }
            let divided = several(node.caches.len());
            for (at, (number, cache, blocks)) in caches.into_iter().enumerate() {
                let mut words = if at == 0 { heading.clone() } else { Vec::new() };
                if divided {
                    words.push(match number {
                        1 => format!("a cache of {} CPUs", cache.cpus()),
                        many => format!("{many} caches of {} CPUs each", cache.cpus()),
                    });
                }
                let heading = (!words.is_empty()).then(|| words.join(", "));
                lots.push(CoreGroup { heading, blocks });
            }
        }
    }
    lots
}

fn blocks(report: &ShowReport, cache: &Cache, fold: Fold) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    for core in &cache.cores {
        let mut rows: Vec<Row> = core.iter().map(|at| Row::new(report, &report.cpus[*at])).collect();
        if rows.iter().all(|row| row.is_like(&rows[0], fold)) {
            let rest = rows.split_off(1);
            rest.iter().for_each(|row| rows[0].add(row));
        }
        let block = Block { rows };
        match blocks.iter_mut().find(|other| fold != Fold::Nothing && other.is_like(&block, fold)) {
            Some(other) => other.add(&block),
            None => blocks.push(block),
        }
    }
    blocks
}

fn table(lots: &[CoreGroup], width: usize) -> String {
    let rows = || lots.iter().flat_map(|lot| &lot.blocks).flat_map(|block| &block.rows);
    let shown = if width < WIDE { HEADS.len() - 1 } else { HEADS.len() };
    let widest =
        |at: usize| rows().map(|row| row.figures()[at].len()).max().unwrap_or(0).max(HEADS[at].len());
    let widths: Vec<usize> = (0..shown).map(widest).collect();
    let cpus = rows().map(|row| list(row.cpus.iter()).len()).max().unwrap_or(0).clamp(3, CPUS);
    let figures = |figures: &[String]| {
        let cells = figures.iter().zip(&widths).map(|(figure, width)| format!("{figure:>width$}"));
        cells.collect::<Vec<_>>().join(" ")
    };
    let heads = HEADS.map(str::to_owned);
    let stepped = rows().map(|row| list(row.cpus.iter())).find(|list| list.contains('/'));
    let mut text = format!("    {:<cpus$}  {}\n", "CPU", figures(&heads[..shown]));
    let indent = 4 + cpus + 2 + widths.iter().sum::<usize>() + shown - 1 + 2;
    for lot in lots {
        if let Some(heading) = &lot.heading {
            let _ = writeln!(text, "  {heading}");
        }
        for block in &lot.blocks {
            let last = block.rows.len() - 1;
            for (at, row) in block.rows.iter().enumerate() {
                let bracket = match at {
                    _ if last == 0 => ' ',
                    0 => '┌',
                    _ if at == last => '└',
                    _ => '├',
                };
                let words: Vec<String> = row.items.iter().map(Item::words).collect();
                let words = cell_lines(&words.join("; "), width.saturating_sub(indent));
                let list = list_lines(&row.cpus, cpus);
                let nothing = String::new();
                for at in 0..words.len().max(list.len()) {
                    let (list, words) = (list.get(at).unwrap_or(&nothing), words.get(at).unwrap_or(&nothing));
                    let line = match at {
                        0 => format!(
                            "  {bracket} {list:<cpus$}  {}  {words}",
                            figures(&row.figures()[..shown])
                        ),
                        _ => {
                            let bracket = if bracket == '└' || bracket == ' ' { ' ' } else { '│' };
                            format!("{:<indent$}{words}", format!("  {bracket} {list}"))
                        }
                    };
                    let _ = writeln!(text, "{}", line.trim_end());
                }
            }
        }
    }
    if let Some(list) = stepped {
        let part = list.split(',').find(|part| part.contains('/')).unwrap_or_default();
        let (range, step) = part.split_once('/').unwrap_or_default();
        let _ = writeln!(text, "  ({part}: {range} in steps of {step})");
    }
    text
}
