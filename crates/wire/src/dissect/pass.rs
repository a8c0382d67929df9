//! Reads all sections in step, links their calls across proxies, and merges the results.

use super::by_time::{Ids, Place, Untracked};
use super::caveats::{CaveatFacts, caveats};
use super::rereading::Rereading;
use super::result::{drift, places, put_together, renumber};
use super::run::{Closed, Concluded, Keeper, Run};
use super::sections::{self, Section};
use super::unsettled::{Settled, UnsettledCall};
use super::{CaptureTotals, Dissection, OnProgress, Progress, Settings};
use crate::align::Clock;
use crate::call::Call;
use crate::exchange::TextId;
use crate::hops::linker::{Linker, Tree};
use crate::hops::path::AllClocks;
use crate::hops::proxy;
use crate::hops::rules::{AtTap, Facts};
use crate::hops::sums::{Linked, PathSums};
use crate::hops::{HopTotals, LinkedBy};
use crate::legs::Moments;
use crate::source::{Capture, SourceError};
use rustc_hash::FxHashMap;
use spangap_model::Side;
use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::rc::Rc;

/// Steps between two progress reports.
const PROGRESS_STEPS: u64 = 1 << 10;
/// Steps of a section before calls are linked and the other sections may get their turn.
const TURN: usize = 8;
/// With one or two captures, calls are held back for linking until this many have shown no sign of a proxy.
const SIGNS_WITHIN: usize = 4096;
/// Maximum number of remembered calls that proxies made for no known call, which may explain what a proxy
/// waited for.
const MAX_ERRANDS: usize = 1024;

/// A call in the linker: its section, and what the section needs to count it.
type LinkerCall = (usize, Concluded);

/// A call that a host made for no known call: the host, and the times by the clock of its capture.
struct Errand {
    client: [u8; 16],
    capture: usize,
    from_ns: i64,
    to_ns: i64,
}

/// Everything between captures and a [`Dissection`].
pub(super) struct Pass<'a> {
    settings: &'a Settings,
    runs: Vec<Run<'a>>,
    /// Offset of each section's clock to that of the first, as far as links have shown it.
    ahead_ns: Vec<Option<i64>>,
    linker: Option<Linker<LinkerCall>>,
    sums: PathSums,
    errands: VecDeque<Errand>,
    trees: Vec<Tree<LinkerCall>>,
    captures: usize,
    /// See [`sections::Sections::between`].
    between: u64,
    interrupted: bool,
    /// Steps of all sections so far.
    steps: u64,
    /// Spans matched by time on an earlier pass.
    by_time: Rc<FxHashMap<Place, Ids>>,
}

/// Text of method numbers, by capture and section.
pub(super) type Methods = BTreeMap<(u8, usize, TextId), String>;

/// A call as one that a host made for no known call.
fn errand(facts: &Facts) -> Option<Errand> {
    let (_, at) = facts.at_proxy(false)?;
    let AtTap { capture, from_ns, to_ns, .. } = at;
    Some(Errand { client: facts.client.address, capture, from_ns, to_ns })
}

/// Remembers a call that is not a hop of another, in case a proxy made it for one.
fn remember(errands: &mut VecDeque<Errand>, facts: &Facts) {
    if errands.len() >= MAX_ERRANDS {
        errands.pop_front();
    }
    errands.extend(errand(facts));
}

/// Groups captures that share a clock.
fn clock_groups(captures: usize, settings: &Settings) -> Vec<usize> {
    let name = |capture: usize| settings.names.get(capture).and_then(Option::as_ref);
    let group = |capture: usize| {
        if settings.same_clock {
            return 0;
        }
        (0..capture).find(|other| name(capture).is_some() && name(*other) == name(capture)).unwrap_or(capture)
    };
    (0..captures).map(group).collect()
}

/// Whether each capture is read by a thread of its own: both ends, and no pipe, which may have nothing for now.
fn reads_ahead(captures: &[Capture], settings: &Settings) -> bool {
    let is_file = |capture: &Capture| capture.reading().stored_total_bytes.is_some();
    captures.len() == 2 && captures.iter().all(is_file) && !settings.in_turn
}

impl<'a> Pass<'a> {
    pub fn new(
        captures: Vec<Capture>,
        settings: &'a Settings,
        on_progress: &mut OnProgress<'_>,
    ) -> Result<Pass<'a>, SourceError> {
        Pass::with_spans(captures, settings, Rc::default(), on_progress)
    }

    /// With spans that were matched by time.
    pub fn with_spans(
        captures: Vec<Capture>,
        settings: &'a Settings,
        by_time: Rc<FxHashMap<Place, Ids>>,
        on_progress: &mut OnProgress<'_>,
    ) -> Result<Pass<'a>, SourceError> {
        let count = captures.len();
        let mut pass = Pass { by_time, ..Pass::over(count, settings) };
        if count <= 2 {
            let parts = (0..count).map(|capture| (capture, None)).collect();
            let ahead = reads_ahead(&captures, settings);
            pass.add(Run::new(0, captures, parts, settings, ahead));
            pass.link_from_now_on();
            return Ok(pass);
        }
        let again = |capture: usize| captures[capture].bookmarks().reopen_at(1);
        let survey = (0..count).map(again).collect::<Result<Vec<Capture>, SourceError>>()?;
        let ends: Vec<Option<Side>> = (0..count).map(|capture| settings.end_of(capture)).collect();
        let mut interrupted = false;
        let found = sections::find(survey, &ends, &mut || {
            interrupted |= on_progress(Progress::default()).is_break();
            interrupted
        });
        (pass.between, pass.interrupted) = (found.between, interrupted);
        for (place, Section { parts }) in found.all.into_iter().enumerate() {
            let opened =
                parts.iter().map(|part| again(part.0)).collect::<Result<Vec<Capture>, SourceError>>()?;
            pass.add(Run::new(place, opened, parts, settings, false));
        }
        pass.link_from_now_on();
        Ok(pass)
    }

    /// For captures that were read before, reopened.
    pub fn second(
        first: &Rereading,
        captures: &[CaptureTotals],
        settings: &'a Settings,
    ) -> Result<Pass<'a>, SourceError> {
        let mut pass = Pass { by_time: Rc::clone(&first.by_time), ..Pass::over(captures.len(), settings) };
        for (place, section) in first.sections.iter().enumerate() {
            let bookmarks = section.parts.iter().filter_map(|part| captures.get(part.0)?.bookmarks.as_ref());
            let opened =
                bookmarks.map(|bookmarks| bookmarks.reopen_at(1)).collect::<Result<Vec<Capture>, _>>()?;
            let ahead = first.sections.len() == 1 && reads_ahead(&opened, settings);
            pass.add(Run::second(place, opened, section, settings, ahead));
        }
        pass.link_from_now_on();
        Ok(pass)
    }

    fn over(captures: usize, settings: &'a Settings) -> Pass<'a> {
        Pass {
            settings,
            runs: Vec::new(),
            ahead_ns: Vec::new(),
            linker: None,
            sums: PathSums::default(),
            errands: VecDeque::new(),
            trees: Vec::new(),
            captures,
            between: 0,
            interrupted: false,
            steps: 0,
            by_time: Rc::default(),
        }
    }

    /// The calls without a trace context.
    pub fn take_untracked(&mut self) -> Untracked {
        let mut all = Untracked::default();
        self.runs.iter_mut().for_each(|run| all.append(std::mem::take(&mut run.untracked)));
        all
    }

    fn add(&mut self, mut run: Run<'a>) {
        run.by_time = Rc::clone(&self.by_time);
        self.ahead_ns.push(self.runs.is_empty().then_some(0));
        self.runs.push(run);
    }

    fn link_from_now_on(&mut self) {
        self.linker = Some(Linker::new(clock_groups(self.captures, self.settings)));
        for run in &mut self.runs {
            run.concluded.get_or_insert_default();
        }
    }

    /// Concluded calls that need not be linked as long as nothing looks like a proxy: no links would be
    /// found.
    fn is_unsuspicious(&self) -> bool {
        matches!(&self.runs[..], [run] if !run.has_proxy())
            && self.linker.as_ref().is_some_and(|linker| linker.offered == 0)
    }

    /// None of enough calls has shown a sign of a proxy, so later ones need not be held back.
    fn wait_for_signs(&mut self) {
        let waiting = self.runs.iter().filter_map(|run| run.concluded.as_ref()).map(Vec::len).sum::<usize>();
        if waiting >= SIGNS_WITHIN {
            self.link_no_more();
        }
    }

    /// Nothing looks like a proxy.
    fn link_no_more(&mut self) {
        self.linker = None;
        self.count_unlinked();
        for run in &mut self.runs {
            run.concluded = None;
        }
    }

    /// Counts calls that are neither hops nor have any. The latest are remembered, in case a proxy appears
    /// later.
    fn count_unlinked(&mut self) {
        for run in &mut self.runs {
            let calls = run.concluded.as_mut().map(std::mem::take).unwrap_or_default();
            let remembered = calls.len().saturating_sub(MAX_ERRANDS);
            for (place, call) in calls.into_iter().enumerate() {
                if place >= remembered
                    && let Some(facts) = run.facts_of(&call)
                {
                    remember(&mut self.errands, &facts);
                }
                run.count_later(call, Vec::new());
            }
        }
    }

    /// Reads all captures to their ends.
    pub fn read(&mut self, on_progress: &mut OnProgress<'_>) -> ControlFlow<()> {
        let mut flow = if self.interrupted { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        while flow.is_continue()
            && let Some(section) = self.next()
        {
            flow = self.turn(section, on_progress);
        }
        self.end();
        let _ = on_progress(self.progress());
        flow
    }

    /// Reads the captures of `first` again. Passes the matching calls to `each`, each once and complete.
    pub fn read_again(
        &mut self,
        first: &Rereading,
        on_progress: &mut OnProgress<'_>,
        each: &mut dyn FnMut(Call, Methods) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        while self.steps < first.steps
            && let Some(section) = self.next()
        {
            self.turn(section, on_progress)?;
            self.hand_out(first, each)?;
        }
        self.end();
        self.hand_out(first, each)
    }

    fn hand_out(
        &mut self,
        first: &Rereading,
        each: &mut dyn FnMut(Call, Methods) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        for section in 0..self.runs.len() {
            for call in self.runs[section].take_every() {
                let call = first.call(call);
                let mut methods = Methods::default();
                self.methods(&call, &first.sections, &mut methods);
                each(call, methods)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Reads some packets of a section, and links their calls.
    fn turn(&mut self, section: usize, on_progress: &mut OnProgress<'_>) -> ControlFlow<()> {
        let mut flow = ControlFlow::Continue(());
        for _ in 0..TURN {
            if !self.runs[section].step() {
                break;
            }
            self.steps += 1;
            if self.steps.is_multiple_of(PROGRESS_STEPS) {
                flow = on_progress(self.progress());
            }
            if self.linker.is_some() && self.is_unsuspicious() {
                self.wait_for_signs();
            }
        }
        match &self.linker {
            Some(_) if self.is_unsuspicious() => {}
            Some(_) => self.link(),
            None if self.runs[section].has_proxy() => self.link_from_now_on(),
            None => {}
        }
        flow
    }

    /// No more will be read.
    fn end(&mut self) {
        for section in 0..self.runs.len() {
            self.steps += self.runs[section].end();
        }
        if self.is_unsuspicious() {
            return self.count_unlinked();
        }
        if self.linker.is_some() {
            self.link();
        }
        if let Some(linker) = &mut self.linker {
            linker.finish(&mut self.trees);
        }
        self.count();
    }

    /// The section that is behind; `None` when all are finished.
    fn next(&self) -> Option<usize> {
        let open = (0..self.runs.len()).filter(|section| !self.runs[*section].is_over());
        open.min_by_key(|section| self.now_ns(*section))
    }

    /// How far a section has been read, by the clock of the first one.
    fn now_ns(&self, section: usize) -> Option<i64> {
        Some(self.runs[section].now_ns()? - self.ahead_ns[section].unwrap_or(0))
    }

    fn progress(&self) -> Progress {
        let mut progress = Progress { total_bytes: Some(0), ..Progress::default() };
        for run in &self.runs {
            let part = run.progress();
            progress.bytes += part.bytes;
            progress.packets += part.packets;
            progress.calls += part.calls;
            progress.total_bytes = progress.total_bytes.zip(part.total_bytes).map(|(a, b)| a + b);
        }
        progress
    }

    /// Concluded calls go to the linker, and return with their hops.
    fn link(&mut self) {
        // All sections have been read at least this far, where the relation of their times is known.
        let open: Vec<usize> =
            (0..self.runs.len()).filter(|section| !self.runs[*section].is_over()).collect();
        let known = self.ahead_ns.iter().all(Option::is_some);
        let now_ns = open.iter().map(|section| self.now_ns(*section)).min().flatten();
        let Some(linker) = &mut self.linker else { return };
        for (section, run) in self.runs.iter_mut().enumerate() {
            for call in run.concluded.as_mut().map(std::mem::take).unwrap_or_default() {
                match run.facts_of(&call) {
                    Some(facts) => linker.offer(facts, (section, call), now_ns.unwrap_or(i64::MIN)),
                    None => run.count_later(call, Vec::new()),
                }
            }
        }
        linker.looks = self.runs.len() > 1 || self.runs.iter().any(Run::has_proxy);
        linker.advance(now_ns.filter(|_| known), &mut self.trees);
        if let Some([outer, inner]) = linker.latest.take() {
            self.compare(outer, inner);
        }
        self.count();
    }

    /// A link shows approximately how the times of two sections compare.
    fn compare(&mut self, outer: (usize, usize, i64), inner: (usize, usize, i64)) {
        let at =
            |(section, capture, at_ns): (usize, usize, i64)| self.runs[section].by_first_ns(capture, at_ns);
        let apart_ns = at(inner) - at(outer);
        match (self.ahead_ns[outer.0], self.ahead_ns[inner.0]) {
            (Some(ahead), _) if inner.0 != 0 => self.ahead_ns[inner.0] = Some(ahead + apart_ns),
            (_, Some(ahead)) => self.ahead_ns[outer.0] = Some(ahead - apart_ns),
            _ => {}
        }
    }

    fn count(&mut self) {
        let trees = std::mem::take(&mut self.trees);
        for tree in trees.iter().filter(|tree| tree.hops.is_empty()) {
            remember(&mut self.errands, &tree.facts);
        }
        for tree in trees {
            let (section, _) = tree.payload;
            if tree.hops.is_empty() {
                self.runs[section].count_later(tree.payload.1, Vec::new());
                continue;
            }
            let mut tree = tree;
            self.settle(&mut tree);
            let groups = clock_groups(self.captures, self.settings);
            let linked = linked(&tree, &self.runs);
            self.sums.add(&linked, |a, b| a == b || groups.get(a) == groups.get(b));
            let Tree { payload: (section, call), hops, .. } = tree;
            let hops = self.hops(hops);
            self.runs[section].count_later(call, hops);
        }
    }

    fn hops(&mut self, hops: Vec<(LinkedBy, Tree<LinkerCall>)>) -> Vec<(LinkedBy, UnsettledCall)> {
        let followed = hops.into_iter().map(|(by, Tree { payload: (section, call), hops, .. })| {
            let hops = self.hops(hops);
            (by, self.runs[section].count_hop(call, hops))
        });
        followed.collect()
    }

    /// What its hops say about a call: spans that belong to a hop are not its own, and whatever delayed a hop
    /// delayed it.
    fn settle(&self, tree: &mut Tree<LinkerCall>) {
        for (by, hop) in &mut tree.hops {
            if *by == LinkedBy::TraceContext {
                // If both have the same ids, the SERVER span belongs to the last host, the CLIENT span to the
                // first.
                let (outer, inner) = (&mut tree.payload.1, &mut hop.payload.1);
                for (call, client) in [(outer, false), (inner, true)] {
                    if let Some(spans) = &mut call.halves.spans {
                        if client {
                            spans.client = None
                        } else {
                            spans.server = None
                        }
                        call.moments = Moments::of(&call.halves).closed();
                        let ends = call.moments.ends();
                        call.duration_ns = ends.map_or(0, |(first, last)| (last.0 - first.0).max(0) as u64);
                    }
                }
            }
            self.settle(hop);
        }
        let unanswered = tree.hops.iter().any(|(_, hop)| hop.payload.1.moments.1.is_some());
        proxy::explained_by_hops(&mut tree.payload.1.findings, unanswered);
        let mut found = Vec::new();
        let numbers = |tree: &Tree<LinkerCall>| &self.runs[tree.payload.0].numbers[..];
        let outer = &tree.payload.1;
        let outer = proxy::Outer {
            halves: &outer.halves,
            moments: &outer.moments,
            duration_ns: outer.duration_ns,
            findings: &outer.findings,
            captures: numbers(tree),
        };
        let inner = tree.hops.iter().map(|(_, hop)| proxy::Inner {
            halves: &hop.payload.1.halves,
            duration_ns: hop.payload.1.duration_ns,
            findings: &hop.payload.1.findings,
            captures: numbers(hop),
            handshake: self.runs[hop.payload.0].handshake_of(&hop.payload.1),
        });
        let inner: Vec<proxy::Inner<'_>> = inner.collect();
        let waited = |stay: (i64, i64), cost_ns| self.waited_elsewhere(tree, stay, cost_ns);
        proxy::findings(&outer, &inner, waited, &mut found);
        tree.payload.1.findings.extend(found);
    }

    /// Whether the proxy made a call of its own while it had this one, long enough to explain the time, or
    /// tried to connect. `stay` is by the clock of its capture of the outer call.
    fn waited_elsewhere(&self, tree: &Tree<LinkerCall>, stay: (i64, i64), cost_ns: u64) -> bool {
        let [.., (_, hop)] = &tree.hops[..] else { return false };
        let (Some((_, outer)), Some((_, inner))) = (tree.facts.at_proxy(true), hop.facts.at_proxy(false))
        else {
            return false;
        };
        let groups = clock_groups(self.captures, self.settings);
        let one = |a: usize, b: usize| a == b || groups.get(a) == groups.get(b);
        // By the other clock, it was at about the time of the hop.
        let length_ns = stay.1 - stay.0;
        let within = match one(outer.capture, inner.capture) {
            true => stay,
            false => (inner.from_ns - length_ns, inner.to_ns + length_ns),
        };
        let client = hop.facts.client.address;
        let explains = |errand: &Errand| {
            errand.client == client
                && one(errand.capture, inner.capture)
                && 2 * (errand.to_ns.min(within.1) - errand.from_ns.max(within.0)).max(0) as u64 >= cost_ns
        };
        let waiting = self.linker.as_ref().is_some_and(|linker| {
            linker.unlinked().any(|facts| errand(facts).is_some_and(|errand| explains(&errand)))
        });
        waiting
            || self.errands.iter().any(explains)
            || self.runs.iter().any(|run| run.tried_to_connect(inner.capture, client, within))
    }

    /// The result.
    pub fn finish(mut self) -> Dissection {
        let numbers: Vec<Vec<usize>> = self.runs.iter().map(|run| run.numbers.clone()).collect();
        let mut closed: Vec<Closed> = self.runs.iter_mut().map(Run::close_all).collect();
        let mut linked = rustc_hash::FxHashMap::default();
        let resolution_ns = closed.iter().map(|section| section.resolution_ns).max().unwrap_or(1);
        let linker = self.linker.take();
        if let Some(linker) = &linker {
            for (captures, bounds) in &linker.bounds {
                linked.extend(Clock::fit(bounds, resolution_ns).map(|clock| (*captures, clock)));
            }
        }
        let drifts = closed.iter().map(|section| drift(section.clock.as_ref())).collect();
        let groups = clock_groups(self.captures, self.settings);
        let clocks = AllClocks { groups, linked, drifts, resolution_ns };
        renumber(&mut closed, &numbers);
        let mut kept = Keeper::new(self.settings.slowest, self.settings.sample);
        for run in &mut self.runs {
            kept.add(run.take_kept());
        }
        let (slowest, sample) = kept.take();
        let drawn = sample.len();
        let settle = |(run, closed): (&mut Run<'_>, &mut Closed)| run.settled(closed);
        let sections = self.runs.iter_mut().zip(&mut closed).map(settle).collect();
        let rereading = Rereading { sections, clocks, steps: self.steps, by_time: Rc::clone(&self.by_time) };
        let kept = slowest.into_iter().chain(sample);
        let calls: Vec<Call> = kept.map(|kept| rereading.call(kept.call)).collect();
        let shown = |linker: &Linker<LinkerCall>| {
            let signs = self.runs.iter().any(Run::has_proxy) || linker.counts.links != [0; 4];
            signs || self.captures > 2
        };
        let hops = linker.filter(shown).map(|linker| {
            let mut totals = HopTotals { links: linker.counts.links, ..HopTotals::default() };
            totals.ambiguous = linker.counts.ambiguous;
            (totals.unknown_outer, totals.unknown_inner) = linker.counts.unknown();
            let of_sections: Vec<Option<Clock>> =
                closed.iter().map(|section| section.clock.clone()).collect();
            std::mem::take(&mut self.sums).finish(&of_sections, &rereading.clocks, &mut totals);
            totals
        });
        let mut dissection = Dissection { hops, ..Dissection::default() };
        for (run, closed) in self.runs.iter_mut().zip(closed) {
            put_together(&mut dissection, run, closed, self.captures);
        }
        dissection.between = self.between;
        for call in &calls {
            self.methods(call, &rereading.sections, &mut dissection.methods);
        }
        dissection.calls = calls;
        dissection.drawn = drawn;
        dissection.rereading = rereading;
        places(&mut dissection);
        dissection.warnings = super::strangers::warnings(&dissection);
        dissection.caveats = self.caveats(&dissection);
        dissection
    }

    fn caveats(&self, dissection: &Dissection) -> Vec<String> {
        let known = CaveatFacts {
            same_clock: self.settings.same_clock,
            pairs_left_out: dissection.pairs_left_out,
            no_calls: dissection.sums.calls == 0,
        };
        caveats(dissection, &known)
    }

    /// Adds the methods of a call and its hops.
    fn methods(&self, call: &Call, sections: &[Settled], methods: &mut Methods) {
        for hop in &call.hops {
            self.methods(&hop.call, sections, methods);
        }
        for (half, capture) in call.halves.exchanges.iter().zip(call.halves.captures) {
            let Some(half) = half else { continue };
            let method = (capture, call.section, half.method);
            if !methods.contains_key(&method)
                && let Some(local) = sections[call.section].local(capture)
                && let Some(text) = self.runs[call.section].method(local, half.method)
            {
                methods.insert(method, text);
            }
        }
    }
}

/// A call with its hops, for the sums.
fn linked<'t>(tree: &'t Tree<LinkerCall>, runs: &'t [Run<'_>]) -> Linked<'t> {
    let (section, call) = &tree.payload;
    Linked {
        section: *section,
        halves: &call.halves,
        moments: &call.moments,
        duration_ns: call.duration_ns,
        captures: &runs[*section].numbers,
        hops: tree.hops.iter().map(|(_, hop)| linked(hop, runs)).collect(),
    }
}
