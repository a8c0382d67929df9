//! Execution of an experiment: orders changes block by block, assigns calls to arms by connection and time,
//! and records the outcome.

use super::judge::{self, Block, Expected, Judged};
use super::looks::{FIRST, LAST};
use super::plan::Plan;
use super::planning::{ANSWER, SETTLE_MS, TAIL_MS, connections, look};
use super::shapes::{ArmRow, BlockRow, ConnectionRow, EffectRow, ExperimentReport, InForceRow};
use crate::cases::{Cases, moment};
use crate::now_unix_ms;
use crate::report::State;
use crate::samples::{self, Sample};
use spangap_fleet::v1::{OrderReport, Stage};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout, timeout_at};

/// Calls of the pair sampled per half minute.
const CALLS: usize = 4_096;
/// Maximum wait for spans of the last block: exporters send every five seconds.
const LATE: Duration = Duration::from_secs(15);
/// Time by which a change may outlast its block before the guard undoes it.
const GRACE_MS: u64 = 5_000;
/// Interval between collections of calls.
const LOOK: Duration = Duration::from_secs(1);

/// One half of a block, as executed.
struct Half {
    /// Start by the host's clock, Unix nanoseconds.
    from_ns: u64,
    to_ns: u64,
    arms: Arms,
}

/// Assignment of calls to arms.
enum Arms {
    /// By the client's port of the connection.
    Ports { treated: BTreeSet<u64>, control: BTreeSet<u64> },
    /// All calls or none; with the number of connections, if the lever applies per connection.
    All { is_treated: bool, connections: usize },
}

impl Arms {
    /// Number of treated and untreated connections.
    fn connections(&self) -> [usize; 2] {
        match self {
            Arms::Ports { treated, control } => [treated.len(), control.len()],
            Arms::All { is_treated: true, connections } => [*connections, 0],
            Arms::All { is_treated: false, connections } => [0, *connections],
        }
    }
}

/// Why it ended early.
enum Ended {
    Asked,
    /// The first look left no doubt.
    Clear,
    Failed(String),
}

/// A running experiment.
struct Run {
    cases: Arc<Cases>,
    plan: Plan,
    asked_by: String,
    stop: watch::Receiver<bool>,
    /// With the block that each belongs to.
    halves: Vec<(usize, Half)>,
    calls: HashMap<([u8; 16], [u8; 8]), Sample>,
    lacks: Vec<String>,
    /// What the first look said, once it was taken.
    first_look: FirstLook,
    /// The current block, from 1.
    block: u32,
    in_force: Option<InForceRow>,
    undone: bool,
}

/// The first look, which is taken once.
enum FirstLook {
    /// Its blocks are not over, or their spans are not all there.
    ToCome,
    /// The spans of its blocks were there a second ago; the other end's exporter gets one more.
    Due,
    /// It was taken: a judgement that leaves no doubt, or none.
    Taken(Option<Judged>),
}

/// Runs the experiment and records the outcome. It ends by itself, or soon after `stop` is set.
pub async fn perform(cases: Arc<Cases>, plan: Plan, asked_by: String, stop: watch::Receiver<bool>) {
    let id = plan.report.case.clone();
    let mut run = Run {
        cases: cases.clone(),
        plan,
        asked_by,
        stop,
        halves: Vec::new(),
        calls: HashMap::new(),
        lacks: Vec::new(),
        first_look: FirstLook::ToCome,
        block: 0,
        in_force: None,
        undone: true,
    };
    cases.meter.follow(Some((&run.plan.pair, CALLS)));
    let ended = run.blocks().await;
    if ended.is_ok() {
        run.wait_for_spans().await;
    }
    cases.meter.follow(None);
    run.conclude(&id, ended.err());
}

impl Run {
    /// Runs all blocks in sequence.
    async fn blocks(&mut self) -> Result<(), Ended> {
        for block in 0..self.plan.report.blocks as usize {
            self.block = block as u32 + 1;
            if self.plan.halves {
                self.block_of_halves(block).await?;
            } else {
                self.block_of_time(block).await?;
            }
        }
        Ok(())
    }

    /// The plan's connections that still exist.
    async fn there(&self) -> Result<Vec<ConnectionRow>, Ended> {
        let looked = look(&self.cases, &self.plan, &self.asked_by).await;
        let found = connections(&looked.map_err(|error| Ended::Failed(error.to_string()))?);
        let planned = &self.plan.report.connections;
        let is_planned = |one: &ConnectionRow| {
            planned.iter().any(|other| (&other.local, &other.peer) == (&one.local, &one.peer))
        };
        Ok(found.into_iter().filter(is_planned).collect())
    }

    fn ports<'c>(&self, of: impl IntoIterator<Item = &'c ConnectionRow>) -> BTreeSet<u64> {
        of.into_iter().filter_map(|one| self.plan.port_of(one)).collect()
    }

    async fn block_of_halves(&mut self, block: usize) -> Result<(), Ended> {
        let mut there = self.there().await?;
        if there.len() < 2 {
            self.lacks.push(format!("Block {}: fewer than two of the connections are left.", block + 1));
            // No connection is left to wait for.
            return if there.is_empty() {
                Err(Ended::Failed("all connections have ended".into()))
            } else {
                Ok(())
            };
        }
        fastrand::shuffle(&mut there);
        // A coin toss decides which of two groups is treated, so that either sign is equally likely.
        let at = there.len() / 2;
        let (one, other) = there.split_at(at);
        let (treated, control) = if fastrand::bool() { (one, other) } else { (other, one) };
        let (treated, control) = (treated.to_vec(), control.to_vec());
        let changed = self.change(&treated).await?;
        if let Some((from_ns, to_ns, changed)) = changed {
            let arms = Arms::Ports { treated: self.ports(&changed), control: self.ports(&control) };
            self.halves.push((block, Half { from_ns, to_ns, arms }));
        }
        Ok(())
    }

    async fn block_of_time(&mut self, block: usize) -> Result<(), Ended> {
        let first = fastrand::bool();
        for is_treated in [first, !first] {
            // A setting of the host does not depend on its connections.
            let there = match self.plan.lever.is_of_connections() {
                true => self.there().await?,
                false => Vec::new(),
            };
            if there.is_empty() && self.plan.lever.is_of_connections() {
                return Err(Ended::Failed("all connections have ended".into()));
            }
            if is_treated {
                if let Some((from_ns, to_ns, changed)) = self.change(&there).await? {
                    let arms = Arms::All { is_treated, connections: changed.len() };
                    self.halves.push((block, Half { from_ns, to_ns, arms }));
                }
            } else {
                // Measured by the host's own clock, like the change.
                let from_ns = self.host_ns().await?;
                self.pass(self.plan.report.block_ms, None).await?;
                let to_ns = self.host_ns().await?;
                let arms = Arms::All { is_treated, connections: there.len() };
                self.halves.push((block, Half { from_ns, to_ns, arms }));
            }
        }
        Ok(())
    }

    async fn host_ns(&self) -> Result<u64, Ended> {
        let looked = look(&self.cases, &self.plan, &self.asked_by).await;
        let looked = looked.map_err(|error| Ended::Failed(error.to_string()))?;
        Ok(looked.unix_ns.max(0) as u64)
    }

    /// Makes one change for the duration of a block; returns when it was made and undone, and for which
    /// connections.
    async fn change(
        &mut self,
        treated: &[ConnectionRow],
    ) -> Result<Option<(u64, u64, Vec<ConnectionRow>)>, Ended> {
        let failed = |what: &str| Ended::Failed(what.to_owned());
        let told: BTreeSet<(&str, &str)> =
            treated.iter().map(|one| (one.local.as_str(), one.peer.as_str())).collect();
        let change = self.plan.lever.change(&told, (self.plan.report.block_ms + GRACE_MS) as u32);
        let order = self.plan.order(&self.asked_by, change);
        let number = match self.plan.lever.is_of_connections() {
            true => format!("{} connections", told.len()),
            false => format!("{} values", self.plan.report.values.len()),
        };
        self.cases.write_down("ordered", &self.plan.report, &self.asked_by, &number);
        let ordered = self.cases.agents.order(&self.plan.report.agent, order, now_unix_ms());
        let mut ordered = ordered.map_err(|error| Ended::Failed(error.to_string()))?;
        let made = timeout(ANSWER, ordered.reports.recv()).await.ok().flatten();
        let Some(made) = made else {
            self.undone = false;
            return Err(failed("the agent did not answer an order; its guard undoes the changes"));
        };
        match made.stage() {
            Stage::Changed => {}
            Stage::Refused if made.gone => {
                self.lacks.push("The connections of a block closed before they were changed.".into());
                return Ok(None);
            }
            _ => return Err(Ended::Failed(made.error.chars().take(300).collect())),
        }
        let changed: Vec<ConnectionRow> = changed(&made);
        let since_unix_ms = now_unix_ms();
        let until_unix_ms = since_unix_ms + self.plan.report.block_ms;
        self.in_force = Some(InForceRow {
            block: self.block,
            connections: changed.len(),
            since_unix_ms,
            until_unix_ms,
            guard_unix_ms: until_unix_ms + GRACE_MS,
        });
        self.show();
        if !self.plan.lever.is_meant(&made, &changed, &told) {
            ordered.undo();
            match self.undone_by(&mut ordered.reports).await {
                Some(_) => self.in_force = None,
                None => self.undone = false,
            }
            let what = if self.plan.lever.is_of_connections() { "connections" } else { "settings" };
            return Err(failed(&format!("the agent reports that it changed {what} without being told to")));
        }
        for value in made.values.iter().filter(|value| !value.not_changed.is_empty()).take(4) {
            let why: String = value.not_changed.chars().take(200).collect();
            let place: String = value.place.chars().take(200).collect();
            let lack = format!("The host refused {place}: {why}.");
            if !self.lacks.contains(&lack) {
                self.lacks.push(lack);
            }
        }
        let passed = self.pass(self.plan.report.block_ms, Some(&mut ordered.reports)).await;
        let (over, ended) = match passed {
            // It was undone early: by a signal, or because the agent lost the meter.
            Ok(Some(report)) if report.stage() == Stage::Undone => (Some(report), None),
            Ok(other) => {
                ordered.undo();
                let ended = other.map(|report| Ended::Failed(report.error.chars().take(300).collect()));
                (self.undone_by(&mut ordered.reports).await, ended)
            }
            Err(ended) => {
                ordered.undo();
                (self.undone_by(&mut ordered.reports).await, Some(ended))
            }
        };
        let Some(over) = over else {
            self.undone = false;
            return Err(failed(
                "the agent did not confirm the undo of a change; its guard undoes it in time",
            ));
        };
        self.in_force = None;
        self.show();
        if !over.error.is_empty() {
            self.lacks.push(format!("An undo says: {}", over.error.chars().take(300).collect::<String>()));
        }
        self.cases.write_down("undone", &self.plan.report, &self.asked_by, &over.error);
        match ended {
            Some(ended) => Err(ended),
            None => Ok(Some((made.unix_ns.max(0) as u64, over.unix_ns.max(0) as u64, changed))),
        }
    }

    async fn undone_by(&self, reports: &mut mpsc::Receiver<OrderReport>) -> Option<OrderReport> {
        let until = Instant::now() + ANSWER + Duration::from_millis(GRACE_MS);
        while let Some(report) = timeout_at(until, reports.recv()).await.ok().flatten() {
            if report.stage() == Stage::Undone {
                return Some(report);
            }
        }
        None
    }

    /// Waits for a block, collecting calls. A report ends it.
    async fn pass(
        &mut self,
        ms: u64,
        mut reports: Option<&mut mpsc::Receiver<OrderReport>>,
    ) -> Result<Option<OrderReport>, Ended> {
        let until = Instant::now() + Duration::from_millis(ms);
        let mut second = interval(LOOK);
        second.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            if *self.stop.borrow() {
                return Err(Ended::Asked);
            }
            let report = async {
                match reports.as_deref_mut() {
                    Some(reports) => reports.recv().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = tokio::time::sleep_until(until) => return Ok(None),
                // The sender of the stop signal is gone, so nothing can stop the run any more.
                _ = self.stop.changed() => {}
                report = report => match report {
                    Some(report) => return Ok(Some(report)),
                    None => return Err(Ended::Failed("the agent is gone; its guard undoes the changes".into())),
                },
                _ = second.tick() => {
                    self.take();
                    self.show();
                    if self.is_clear() {
                        return Err(Ended::Clear);
                    }
                }
            }
        }
    }

    fn take(&mut self) {
        let since_ns = self.halves.first().map_or(0, |(_, half)| half.from_ns.saturating_sub(1_000_000_000));
        let since = (self.side(), since_ns);
        samples::drawn_by_call(&self.cases.meter, &self.plan.pair, since, &mut self.calls);
    }

    /// Takes the first look as soon as the spans of its blocks are there; whether it leaves no doubt.
    fn is_clear(&mut self) -> bool {
        if matches!(self.first_look, FirstLook::Taken(_)) {
            return false;
        }
        let (blocks, _) = self.sorted();
        let Some(last) = judge::end_of_first_look(&blocks) else { return false };
        if !self.has_all_spans_of(last) {
            return false;
        }
        if matches!(self.first_look, FirstLook::ToCome) {
            self.first_look = FirstLook::Due;
            return false;
        }
        let case = self.cases.case(&self.plan.report.case);
        let judged = judge::early(&blocks, &Expected::of(case.as_ref(), self.plan.share));
        let is_clear = judged.is_some();
        self.first_look = FirstLook::Taken(judged);
        is_clear
    }

    /// Whether every connection of this block that carries calls also has a call that began after it, and so all before it: exporters send
    /// what has ended, in order. Of blocks of time, whether there is any such call.
    fn has_all_spans_of(&self, block: usize) -> bool {
        let halves = || self.halves.iter().filter(|(of, _)| *of == block).map(|(_, half)| half);
        let Some(end_ns) = halves().map(|half| half.to_ns).max() else { return false };
        let ports: BTreeSet<u64> = halves()
            .flat_map(|half| match &half.arms {
                Arms::Ports { treated, control } => treated.union(control).copied().collect(),
                Arms::All { .. } => Vec::new(),
            })
            .collect();
        let (before, after): (Vec<&Sample>, Vec<&Sample>) =
            self.calls.values().partition(|call| self.began_ns(call) <= end_ns);
        let seen = |calls: &[&Sample]| -> BTreeSet<u64> {
            calls.iter().filter_map(|call| call.client_port()).filter(|port| ports.contains(port)).collect()
        };
        !after.is_empty() && seen(&before).is_subset(&seen(&after))
    }

    /// Waits for late spans, until there are calls that began after the last block.
    async fn wait_for_spans(&mut self) {
        let Some(end_ns) = self.halves.last().map(|(_, half)| half.to_ns) else { return };
        let until = Instant::now() + LATE;
        let mut second = interval(LOOK);
        let mut are_there = false;
        while Instant::now() < until && !*self.stop.borrow() {
            second.tick().await;
            self.take();
            self.show();
            if are_there {
                // The other end's exporter has had another second, too.
                break;
            }
            are_there = self.calls.values().any(|call| self.began_ns(call) > end_ns);
        }
    }

    /// Start of a call by the clock of the changed host.
    fn began_ns(&self, call: &Sample) -> u64 {
        call.sides[self.side()].start_unix_ns
    }

    /// The side of the changed host, whose clock determines times.
    fn side(&self) -> usize {
        usize::from(self.plan.accepted)
    }

    /// The calls of each block, and the number of unassigned calls.
    fn sorted(&self) -> (Vec<Block>, u64) {
        let mut blocks = vec![Block::default(); self.plan.report.blocks as usize];
        let mut neither = 0;
        for call in self.calls.values() {
            let began_ns = self.began_ns(call);
            let is_in = |half: &Half| {
                began_ns >= half.from_ns + SETTLE_MS * 1_000_000
                    && began_ns + TAIL_MS * 1_000_000 < half.to_ns
            };
            let found = self.halves.iter().find(|(_, half)| is_in(half));
            let Some((block, half)) = found else {
                neither += 1;
                continue;
            };
            // Blocks of time include all calls, as their connections may be unknown.
            let (treated, control) = match (&half.arms, call.client_port()) {
                (Arms::Ports { treated, control }, Some(port)) => {
                    (treated.contains(&port), control.contains(&port))
                }
                (Arms::Ports { .. }, None) => (false, false),
                (Arms::All { is_treated, .. }, _) => (*is_treated, !is_treated),
            };
            match (treated, control) {
                (true, false) => blocks[*block].treated.push(took_ns(call)),
                (false, true) => blocks[*block].control.push(took_ns(call)),
                _ => neither += 1,
            }
        }
        (blocks, neither)
    }

    /// Updates the progress shown with the case.
    fn show(&self) {
        let (blocks, calls_of_neither) = self.sorted();
        let (rows, treated, control) = (self.rows(&blocks), arm(&blocks, TREATED), arm(&blocks, CONTROL));
        let (in_force, lacks) = (self.in_force, self.lacks.clone());
        let so_far_ns = judge::so_far(&blocks).map(|ns| ns as i64);
        self.cases.change(&self.plan.report.case, |case| {
            let Some(last) = case.experiments.last_mut().filter(|last| last.to_unix_ms.is_none()) else {
                return;
            };
            (last.blocks, last.treated, last.control, last.so_far_ns) = (rows, treated, control, so_far_ns);
            (last.in_force, last.lacks, last.calls_of_neither) = (in_force, lacks, calls_of_neither);
        });
    }

    /// The completed blocks.
    fn rows(&self, blocks: &[Block]) -> Vec<BlockRow> {
        let row = |(at, block): (usize, &Block)| {
            let halves = || self.halves.iter().filter(|(of, _)| *of == at).map(|(_, half)| half);
            BlockRow {
                from_unix_ms: halves().map(|half| half.from_ns).min().unwrap_or(0) / 1_000_000,
                to_unix_ms: halves().map(|half| half.to_ns).max().unwrap_or(0) / 1_000_000,
                treated_connections: halves().map(|half| half.arms.connections()[0]).sum(),
                control_connections: halves().map(|half| half.arms.connections()[1]).sum(),
                treated: ArmRow::of(block.treated.clone()),
                control: ArmRow::of(block.control.clone()),
            }
        };
        blocks.iter().enumerate().map(row).collect()
    }

    fn conclude(mut self, id: &str, ended: Option<Ended>) {
        let is_early = matches!(ended, Some(Ended::Clear));
        if is_early {
            // What began after the look has no part in it.
            let last = judge::end_of_first_look(&self.sorted().0);
            self.halves.retain(|(block, _)| last.is_none_or(|last| *block <= last));
        }
        let (blocks, calls_of_neither) = self.sorted();
        let judged = match std::mem::replace(&mut self.first_look, FirstLook::ToCome) {
            FirstLook::Taken(Some(judged)) if is_early => judged,
            _ => judge::judge(&blocks, &Expected::of(self.cases.case(id).as_ref(), self.plan.share)),
        };
        let (outcome, words) = match &ended {
            None => (judged.outcome.name(), judged.words.clone()),
            Some(Ended::Clear) => (
                judged.outcome.name(),
                format!(
                    "{} It ended at its first look, after {} of {} blocks, since all of the interval is on one side of half the prediction.",
                    judged.words, judged.blocks, self.plan.report.blocks
                ),
            ),
            Some(Ended::Asked) => ("undecided", "Undecided: it was stopped early.".to_owned()),
            Some(Ended::Failed(why)) => ("undecided", format!("Undecided: {why}.")),
        };
        let report = ExperimentReport {
            lever: self.plan.report.lever.clone(),
            asked_by: self.asked_by.clone(),
            from_unix_ms: 0,
            to_unix_ms: Some(now_unix_ms()),
            outcome: outcome.into(),
            words: words.clone(),
            predicted_ns: judged.predicted_ns.map(|ns| ns as i64),
            so_far_ns: None,
            is_early,
            effect_ns: judged.effect.map(|effect| EffectRow {
                low: effect.low as i64,
                mid: effect.mid as i64,
                high: effect.high as i64,
            }),
            probability: judged.effect.map(|effect| effect.probability),
            treated: arm(&blocks, TREATED),
            control: arm(&blocks, CONTROL),
            calls_of_neither,
            blocks: self.rows(&blocks),
            in_force: self.in_force,
            undone: self.undone,
            lacks: self.lacks.clone(),
            plan: self.plan.report.clone(),
        };
        self.cases.write_down("concluded", &self.plan.report, &self.asked_by, &words);
        let now_ms = now_unix_ms();
        self.cases.change(id, |case| {
            if let Some(last) = case.experiments.last_mut() {
                *last = ExperimentReport { from_unix_ms: last.from_unix_ms, ..report };
            }
            case.time_line.push(moment(now_ms, format!("experiment: {words}")));
            if self.undone {
                case.time_line
                    .push(moment(now_ms, "experiment: all changes are undone, as the host reports"));
            }
            match outcome {
                "proven" => case.row.state = State::Proven,
                "refuted" if case.row.state == State::Explained => case.row.state = State::Unknown,
                _ => {}
            }
        });
        // If the host has not confirmed an undo, its guard acts in time.
        self.cases.experiments.ended(self.in_force.map_or(now_ms, |change| change.guard_unix_ms.max(now_ms)));
    }
}

type Arm = fn(&Block) -> &Vec<u64>;
const TREATED: Arm = |block| &block.treated;
const CONTROL: Arm = |block| &block.control;

/// All calls of one arm.
fn arm(blocks: &[Block], of: Arm) -> ArmRow {
    ArmRow::of(blocks.iter().flat_map(of).copied().collect())
}

/// Duration of a call's client span. Waiting caused by a request sent in pieces may also be inside the
/// server's span, and is then not part of the gap.
fn took_ns(call: &Sample) -> u64 {
    call.sides[0].end_unix_ns.saturating_sub(call.sides[0].start_unix_ns)
}

/// The connections that were actually changed.
fn changed(report: &OrderReport) -> Vec<ConnectionRow> {
    let sockets = report.sockets.iter().filter(|socket| socket.not_changed.is_empty()).cloned().collect();
    connections(&OrderReport { sockets, ..OrderReport::default() })
}

const _: () = assert!(FIRST.blocks < LAST.blocks && LAST.blocks <= super::paired::MOST_PAIRS);
