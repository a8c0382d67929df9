//! The map as nested boxes: a self-contained SVG for light and dark pages.

use super::item::{self, Item};
use super::layout::{self, Cache, Core, Node};
use super::text;
use super::words::list;
use super::{CpuReport, ShowReport};
use spangap_report::cut::keep_start;
use spangap_report::figures::{counted, rate, whole_percent};
use spangap_report::html::escaped;
use spangap_report::svg::{self, Anchor, Picture, Rect};

/// Maximum width, for a machine with many cores, in the picture's units.
const WIDEST: f64 = 1240.0;
/// Minimum width: that of the legend.
const NARROWEST: f64 = 720.0;
/// Width and height of a CPU.
const CPU: (f64, f64) = (76.0, 38.0);
/// Distance between boxes, and padding inside them.
const GAP: f64 = 6.0;
/// Height of a box's title.
const NAME: f64 = 18.0;
/// Maximum length of a CPU's label.
const LABEL: usize = 13;
/// Maximum number of interrupt lines in a tooltip; the rest is counted.
const TOLD: usize = 12;

/// Lower bound of the softirq share for each heat colour of the palette, its legend, and whether text on it
/// uses the page's text colour or the inverse one.
const HEAT: [(f64, &str, bool); 6] = [
    (0.0, "below 1 %", true),
    (0.01, "1 to 5 %", true),
    (0.05, "5 to 15 %", true),
    (0.15, "15 to 35 %", true),
    (0.35, "35 to 60 %", false),
    (0.60, "60 % and more", false),
];

/// Style sheet of texts and CPUs, in the order of the styles below.
const STYLE: &str = "\
.map text{font-family:system-ui,'DejaVu Sans',sans-serif;font-size:11px}\
.map .box{fill:none;stroke:var(--mixed);stroke-opacity:.6}.map .package{fill:var(--panel)}.map .core{fill:var(--line)}\
.map .ink,.map .w1{fill:var(--text)}.map .name{fill:var(--soft)}.map .w0{fill:var(--ground)}\
.map .no{font-weight:600}.map .small{font-size:10px}.map .title{font-size:14px;font-weight:600}\
.map .track{fill:var(--mixed);fill-opacity:.3}.map .tasks{fill:var(--tasks)}.map .tasks.w0{fill:var(--tasks-on-heat)}\
.map .track.w0{fill:var(--ground);fill-opacity:.3}.map .cpu{stroke:var(--mixed);stroke-opacity:.6;stroke-width:.6}\
.map .net{fill:none;stroke:var(--for-network);stroke-width:3}.map .hatch{fill:url(#map-hatch)}.map .line{stroke:var(--for-network)}\
.map .planned{fill:none;stroke:var(--for-network);stroke-width:2.4;stroke-dasharray:5 3}\
.map .apart{fill:none;stroke:var(--apart);stroke-width:1.6;stroke-dasharray:1.5 2}\
.map .none{fill:none;stroke:var(--mixed);stroke-dasharray:2 2}";

const HATCH: &str = "<defs><pattern id=\"map-hatch\" width=\"7\" height=\"7\" patternUnits=\"userSpaceOnUse\" \
    patternTransform=\"rotate(45)\"><line class=\"line\" x1=\"0\" y1=\"0\" x2=\"0\" y2=\"7\" stroke-width=\"1.6\" \
    stroke-opacity=\".45\"/></pattern></defs>\n";

/// The picture as a file.
pub fn svg(report: &ShowReport) -> String {
    let drawing = Drawing::new(report);
    let (width, body, height) = drawing.body();
    let heat = (0..HEAT.len()).map(|at| format!(".map .c{at}{{fill:var(--heat-{at})}}"));
    let style = STYLE.to_owned() + &heat.collect::<String>();
    let picture = Picture { class: "map", width, height, label: &text::title(report) };
    picture.file(&style, &(HATCH.to_owned() + &body))
}

/// Interrupt labels of the CPUs.
pub(super) struct Labels<'a> {
    report: &'a ShowReport,
    /// Interfaces that occur in labels; abbreviated to letters if there are several.
    letters: Vec<String>,
}

impl<'a> Labels<'a> {
    /// Labels for a report.
    pub fn new(report: &'a ShowReport) -> Labels<'a> {
        let seen = |name: &String| {
            report.cpus.iter().any(|cpu| {
                cpu.interrupts.iter().any(|irq| irq.interface == *name)
                    || cpu.steered.iter().any(|steered| steered.interface == *name)
            })
        };
        let names = report.topology.interfaces.iter().map(|interface| interface.name.clone());
        Labels { report, letters: names.filter(seen).collect() }
    }

    /// Shortest description of what is on a CPU.
    pub fn of(&self, cpu: &CpuReport) -> String {
        let letter = |interface: &str| match self.letters.len() {
            0 | 1 => String::new(),
            _ => {
                let at = self.letters.iter().position(|name| name == interface);
                at.map_or("? ".to_owned(), |at| called(at) + " ")
            }
        };
        let mut words = Vec::new();
        for item in item::items(self.report, cpu) {
            match item {
                Item::Interrupts { interface, goes: true, queues, .. } if !queues.is_empty() => {
                    words.push(format!("{}q{}", letter(&interface), list(queues)));
                }
                Item::Interrupts { interface, goes: true, .. } => {
                    words.push(format!("{}ctl", letter(&interface)))
                }
                Item::Steered { interface, .. } => words.push(format!("{}rps", letter(&interface))),
                Item::Exclusive(_) => words.insert(0, "pod".to_owned()),
                _ => {}
            }
        }
        if cpu.boot_isolated {
            words.push("iso".to_owned());
        }
        words.join(" ")
    }

    /// Meaning of the labels, one sentence each.
    pub fn legend(&self) -> Vec<String> {
        match self.letters.as_slice() {
            [] => Vec::new(),
            [one] => {
                let name = keep_start(one, 40);
                vec![format!("q0: interrupt of queue 0 of {name}; ctl: its other interrupts")]
            }
            several => {
                let mut words =
                    vec!["A q0: interrupt of queue 0 of A; A ctl: its other interrupts".to_owned()];
                let each =
                    |(at, name): (usize, &String)| format!("{} = {}", called(at), keep_start(name, 24));
                words.extend(several.iter().enumerate().map(each));
                words
            }
        }
    }
}

/// Drawing state.
struct Drawing<'a> {
    report: &'a ShowReport,
    labels: Labels<'a>,
}

impl<'a> Drawing<'a> {
    fn new(report: &'a ShowReport) -> Drawing<'a> {
        Drawing { report, labels: Labels::new(report) }
    }

    /// Width, content and height.
    fn body(&self) -> (f64, String, f64) {
        let packages = layout::packages(&self.report.topology);
        let inside = WIDEST - 6.0 * GAP;
        let nodes = packages.iter().flat_map(|package| &package.nodes);
        let needed = nodes.map(|node| Grid::new(node, inside).width).fold(0.0, f64::max);
        let width = (needed + 6.0 * GAP).clamp(NARROWEST, WIDEST);
        let mut svg = String::new();
        let mut y = self.legend(&mut svg, width);
        let several_nodes = packages.iter().map(|package| package.nodes.len()).sum::<usize>() > 1;
        for package in &packages {
            let from = y;
            let mut inner = String::new();
            y += NAME + GAP;
            for node in &package.nodes {
                let grid = Grid::new(node, width - 6.0 * GAP);
                let name = match several_nodes {
                    true => NAME,
                    false => 0.0,
                };
                let x = 2.0 * GAP;
                let height = name + grid.height + 2.0 * GAP;
                if several_nodes {
                    inner += &Rect { x, y, width: width - 4.0 * GAP, height }.drawn("box", 4.0);
                    let called = layout::called("node", node.number);
                    inner += &svg::text("name", x + GAP, y + 14.0, Anchor::Start, &called);
                }
                self.node(&mut inner, node, &grid, x + GAP, y + name + GAP);
                y += height + GAP;
            }
            let called = layout::called("package", package.number);
            let frame = Rect { x: GAP, y: from, width: width - 2.0 * GAP, height: y - from };
            svg += &frame.drawn("box package", 6.0);
            svg += &svg::text("name", 2.0 * GAP + 2.0, from + 15.0, Anchor::Start, &called);
            svg += &inner;
            y += GAP;
        }
        (width, svg, y + GAP)
    }

    fn node(&self, svg: &mut String, node: &Node, grid: &Grid, x: f64, y: f64) {
        let (mut right, mut down) = (0.0, 0.0);
        for cache in &node.caches {
            let (width, height) = grid.size(cache);
            if right > 0.0 && right + width > grid.within {
                right = 0.0;
                down += grid.cache_height + GAP;
            }
            let (left, top) = (x + right, y + down);
            if grid.divided {
                let called = format!("a cache of {}", counted(cache.cpus(), "CPU"));
                *svg += &Rect { x: left, y: top, width, height }.drawn("box", 4.0);
                *svg += &svg::text("name small", left + GAP, top + 13.0, Anchor::Start, &called);
            }
            let (pad, name) = grid.around();
            for (at, core) in cache.cores.iter().enumerate() {
                let column = (at % grid.columns) as f64;
                let row = (at / grid.columns) as f64;
                let left = left + pad + column * (CPU.0 + 2.0 * GAP);
                let top = top + name + pad + row * (grid.core_height + GAP);
                self.core(svg, core, left, top);
            }
            right += width + GAP;
        }
    }

    fn core(&self, svg: &mut String, core: &Core, x: f64, y: f64) {
        *svg += &Rect { x, y, width: CPU.0 + GAP, height: core_height(core.len()) }.drawn("core", 4.0);
        for (at, cpu) in core.iter().enumerate() {
            let y = y + GAP / 2.0 + at as f64 * (CPU.1 + GAP / 2.0);
            self.cpu(svg, &self.report.cpus[*cpu], x + GAP / 2.0, y);
        }
    }

    fn cpu(&self, svg: &mut String, cpu: &CpuReport, x: f64, y: f64) {
        let softirqs = cpu.softirq_share.unwrap_or(0.0);
        let colour = HEAT.iter().rposition(|heat| softirqs >= heat.0).unwrap_or(0);
        let writing = format!("w{}", u8::from(HEAT[colour].2));
        let (width, height) = CPU;
        let frame = |class: &str, inset: f64| {
            let (width, height) = (width - 2.0 * inset, height - 2.0 * inset);
            Rect { x: x + inset, y: y + inset, width, height }.drawn(class, 3.0)
        };
        *svg +=
            &format!("<g data-cpu=\"{}\"><title>{}</title>", cpu.cpu, escaped(&tooltip(self.report, cpu)));
        *svg += &frame(&format!("cpu c{colour}"), 0.0);
        if cpu.net {
            *svg += &frame("hatch", 0.0);
        }
        if cpu.boot_isolated || cpu.balanced == Some(false) {
            *svg += &frame("apart", 3.2);
        }
        match (cpu.net, cpu.planned) {
            (true, _) => *svg += &frame("net", 1.0),
            (_, true) => *svg += &frame("planned", 1.0),
            _ => {}
        }
        let number = cpu.cpu.to_string();
        *svg += &svg::text(&format!("no {writing}"), x + 6.0, y + 14.0, Anchor::Start, &number);
        if let Some(share) = cpu.softirq_share.filter(|share| *share >= 0.005) {
            let share = format!("{} %", whole_percent(share));
            *svg += &svg::text(&writing, x + width - 6.0, y + 14.0, Anchor::End, &share);
        }
        let label = keep_start(&self.labels.of(cpu), LABEL);
        if !label.is_empty() {
            *svg += &svg::text(&format!("small {writing}"), x + 6.0, y + 26.0, Anchor::Start, &label);
        }
        let bar = Rect { x: x + 6.0, y: y + height - 8.5, width: width - 12.0, height: 4.0 };
        *svg += &bar.drawn(&format!("track {writing}"), 1.0);
        let tasks = cpu.tasks_share.unwrap_or(0.0).clamp(0.0, 1.0);
        if tasks > 0.0 {
            let part = Rect { width: bar.width * tasks, ..bar };
            *svg += &part.drawn(&format!("tasks {writing}"), 1.0);
        }
        *svg += "</g>\n";
    }

    /// Draws the legend of colours and outlines, and returns its lower edge.
    fn legend(&self, svg: &mut String, width: f64) -> f64 {
        *svg += &svg::text("title ink", 2.0 * GAP, 24.0, Anchor::Start, &text::title(self.report));
        let mut entries: Vec<(String, String)> = HEAT
            .iter()
            .enumerate()
            .map(|(at, (_, words, _))| {
                let words = if at == 0 { format!("softirqs {words}") } else { (*words).to_owned() };
                (format!("cpu c{at}"), words)
            })
            .collect();
        entries.push(("tasks".into(), "share of tasks".into()));
        let cpus = &self.report.cpus;
        for (shown, class, words) in [
            (cpus.iter().any(|cpu| cpu.net), "hatch net", "for the network (NET)"),
            (cpus.iter().any(|cpu| cpu.planned && !cpu.net), "planned", "a plan would take it"),
            (
                cpus.iter().any(|cpu| cpu.boot_isolated || cpu.balanced == Some(false)),
                "apart",
                "isolated at boot, or not balanced",
            ),
        ] {
            if shown {
                entries.push((class.into(), words.into()));
            }
        }
        let (mut x, mut y) = (2.0 * GAP, 44.0);
        let mut entry = |class: &str, words: &str| {
            let wide = if class.is_empty() { 0.0 } else { 22.0 } + words.chars().count() as f64 * 6.4 + 16.0;
            if x + wide > width - GAP && x > 2.0 * GAP {
                (x, y) = (2.0 * GAP, y + 19.0);
            }
            for class in class.split_inclusive("hatch ").map(str::trim).filter(|class| !class.is_empty()) {
                let (top, high) = if class == "tasks" { (y - 6.0, 4.0) } else { (y - 10.0, 12.0) };
                *svg += &Rect { x, y: top, width: 16.0, height: high }.drawn(class, 2.0);
            }
            let text = if class.is_empty() { x } else { x + 22.0 };
            *svg += &svg::text("ink", text, y, Anchor::Start, words);
            x += wide;
        };
        for (class, words) in &entries {
            entry(class, words);
        }
        for words in self.labels.legend() {
            entry("", &words);
        }
        y + 12.0
    }
}

/// Letters for any number of items: A to Z, then A1 to Z1, and so on.
fn called(at: usize) -> String {
    let letter = char::from(b'A' + (at % 26) as u8);
    if at < 26 { letter.to_string() } else { format!("{letter}{}", at / 26) }
}

/// Everything known about a CPU.
pub(super) fn tooltip(report: &ShowReport, cpu: &CpuReport) -> String {
    let share = |share: Option<f64>| {
        share.map_or("not told".to_owned(), |share| format!("{} %", whole_percent(share)))
    };
    let per_s =
        |per_s: Option<f64>| per_s.map_or("not told".to_owned(), |per_s| format!("{}/s", rate(per_s)));
    let mut lines = vec![format!("CPU {}", cpu.cpu)];
    if let Some(known) = report.topology.cpus.iter().find(|known| known.number == cpu.cpu) {
        lines[0] = format!("CPU {}, core of {}", cpu.cpu, known.siblings.words());
    }
    lines.push(format!(
        "softirqs {}, interrupts {}, tasks {}, steal {}, idle {}",
        share(cpu.softirq_share),
        share(cpu.irq_share),
        share(cpu.tasks_share),
        share(cpu.steal_share),
        share(cpu.idle_share)
    ));
    lines.push(format!(
        "NET_RX {}, NET_TX {}, interrupts of devices {}",
        per_s(cpu.net_rx_per_s),
        per_s(cpu.net_tx_per_s),
        per_s(cpu.interrupts_per_s)
    ));
    for irq in cpu.interrupts.iter().take(TOLD) {
        let queue = irq.queue.map_or("other".to_owned(), |queue| format!("queue {queue}"));
        let came = if irq.goes_here { "" } else { ", came here though it goes elsewhere" };
        lines.push(format!("{} {queue}: IRQ {}, {}{came}", irq.interface, irq.irq, per_s(irq.per_s)));
    }
    if cpu.interrupts.len() > TOLD {
        lines.push(format!("and {}", counted(cpu.interrupts.len() - TOLD, "more interrupt")));
    }
    let others = item::items(report, cpu);
    lines.extend(
        others.iter().filter(|item| !matches!(item, Item::Interrupts { .. })).map(|item| item.words()),
    );
    lines.join("\n")
}

/// Arrangement of a node's cores.
struct Grid {
    /// Cores side by side in a cache.
    columns: usize,
    core_height: f64,
    /// Whether caches have boxes of their own.
    divided: bool,
    cache_height: f64,
    width: f64,
    height: f64,
    /// Available width.
    within: f64,
}

impl Grid {
    /// The arrangement with the smallest height.
    fn new(node: &Node, within: f64) -> Grid {
        let most = node.caches.iter().map(|cache| cache.cores.len()).max().unwrap_or(1).max(1);
        let fits = |grid: &Grid| grid.columns == 1 || grid.width <= within;
        let grids = (1..=most).map(|columns| Grid::with(node, within, columns)).filter(fits);
        let least = grids.min_by(|one, two| one.height.total_cmp(&two.height));
        least.unwrap_or_else(|| Grid::with(node, within, 1))
    }

    fn with(node: &Node, within: f64, columns: usize) -> Grid {
        let threads = node.caches.iter().flat_map(|cache| &cache.cores).map(Vec::len).max().unwrap_or(1);
        let mut grid = Grid {
            columns,
            core_height: core_height(threads),
            divided: node.caches.len() > 1,
            cache_height: 0.0,
            width: 0.0,
            height: 0.0,
            within,
        };
        grid.cache_height = node.caches.iter().map(|cache| grid.size(cache).1).fold(0.0, f64::max);
        let (mut right, mut rows) = (0.0, 1.0);
        for cache in &node.caches {
            let (width, _) = grid.size(cache);
            if right > 0.0 && right + width > within {
                (right, rows) = (0.0, rows + 1.0);
            }
            right += width + GAP;
            grid.width = f64::max(grid.width, right - GAP);
        }
        grid.height = rows * (grid.cache_height + GAP) - GAP;
        grid
    }

    /// Space around and above the cores of a cache.
    fn around(&self) -> (f64, f64) {
        if self.divided { (GAP, NAME - GAP / 2.0) } else { (0.0, 0.0) }
    }

    /// Size of a cache's box.
    fn size(&self, cache: &Cache) -> (f64, f64) {
        let (pad, name) = self.around();
        let columns = cache.cores.len().clamp(1, self.columns);
        let rows = cache.cores.len().div_ceil(self.columns);
        let width = columns as f64 * (CPU.0 + 2.0 * GAP) - GAP;
        (width + 2.0 * pad, name + 2.0 * pad + rows as f64 * (self.core_height + GAP) - GAP)
    }
}

fn core_height(threads: usize) -> f64 {
    threads as f64 * (CPU.1 + GAP / 2.0) + GAP / 2.0
}
