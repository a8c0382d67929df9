//! The whole on one machine: calls between two hosts with an agent each, a fault, a case that opens by itself, its verdict, and
//! the remedy in an experiment.

use super::fault::Fault;
use super::sign::Sign;
use super::stage::Stage;
use crate::commands::hunt::experiment;
use crate::input_line;
use anyhow::{Context, bail};
use spangap_cases::cases::Cases;
use spangap_cases::report::{CaseReport, PairRow, State};
use spangap_machine::Host;
use spangap_machine::facts::uptime;
use spangap_meter::engine::Meter;
use spangap_meter::serve::Addresses;
use spangap_model::duration::format_ns;
use spangap_model::histogram::Histogram;
use spangap_model::{Culprit, Side};
use spangap_report::figures::counted;
use spangap_report::wrap::wrapped;
use std::cell::RefCell;
use std::collections::HashSet;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant, UNIX_EPOCH};
use tokio::runtime::Handle;

/// Calls as they should be: six windows are the shortest baseline, and spans come some seconds late.
const QUIET: Duration = Duration::from_secs(45);
/// A case that does not open within this time does not open by itself: the pair was as slow before, as it is on a machine that
/// has much else to do.
const OPENS: Duration = Duration::from_secs(45);
const VERDICT: Duration = Duration::from_secs(300);
/// Beyond the time that an experiment announces: spans come late, and a busy machine is slow.
const REMEDY: Duration = Duration::from_secs(60);
/// How often a condition is looked at. Not in step with faults that come and go twice a second: looks would miss them.
pub(super) const LOOK: Duration = Duration::from_millis(215);
/// How often figures are printed while nothing else happens.
const SAY: Duration = Duration::from_secs(10);
const NO_CALL: &str = "no call has both spans yet";

/// What is shown.
pub struct Whole {
    pub addresses: Addresses,
    pub meter: Arc<Meter>,
    pub cases: Arc<Cases>,
    /// Where the meter runs.
    pub runtime: Handle,
    pub fault: Fault,
    /// Nobody presses Enter.
    pub auto: bool,
    pub interrupted: Arc<AtomicBool>,
    pub stopped: Receiver<()>,
    /// What the fault is known by, once calls are made.
    pub sign: RefCell<Option<Sign>>,
}

/// Ctrl-C, or the meter's end.
#[derive(Debug)]
struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// A condition did not come.
#[derive(Debug)]
struct NotInTime(String);

impl std::fmt::Display for NotInTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotInTime {}

impl Whole {
    /// Shows it, and undoes it however it ends.
    pub fn show(self) -> anyhow::Result<()> {
        say(&format!(
            "What comes, in some two minutes: a client calls a server on another host; after {} quiet seconds \
             something goes wrong; spangap notices that calls are slow, collects the evidence of both hosts, and says \
             who is to blame. The truth stands beside it.",
            QUIET.as_secs()
        ));
        say("Two hosts on this machine: network namespaces joined by a cable, removed when this ends.");
        let mut stage = Stage::make(self.addresses.otlp_grpc, self.fault, self.interrupted.clone())?;
        let shown = self.on(&mut stage);
        say("Undoing everything: the fault, the programs, the hosts.");
        let undone = stage.end();
        if undone.is_ok() {
            say("All is undone.");
        }
        match shown {
            Err(error) if error.is::<Interrupted>() => undone,
            shown => shown.and(undone),
        }
    }

    fn on(&self, stage: &mut Stage) -> anyhow::Result<()> {
        stage.agents()?;
        self.wait(stage, "both agents to connect", Duration::from_secs(30), || {
            let agents = self.cases.agents_report().agents;
            (agents.iter().filter(|agent| agent.connected).count() == 2).then_some(())
        })?;
        say("An agent on each keeps the latest packets and events in memory; both are connected.");
        let (scene, seconds) = (self.fault.scene(), QUIET.as_secs());
        stage.calls(&scene)?;
        say(&format!("{}. First {seconds} quiet seconds, to learn what is usual.", scene.words()));
        say(&format!("The page: http://{}/", self.addresses.http));
        *self.sign.borrow_mut() = Some(Sign::start(self.fault, stage, &self.meter));
        self.pass(stage, QUIET)?;
        say(&format!("FAULT: {}.", self.fault.words()));
        let began_ms = now_unix_ms();
        if let Some(sign) = &mut *self.sign.borrow_mut() {
            sign.fault_begins(stage, &self.meter);
        }
        self.fault.begin(stage)?;
        let case = self.follow(stage, began_ms)?;
        let acts = self.does_it_act(stage);
        let is_right = self.conclude(&case, began_ms);
        let is_proven = self.remedy(stage, &case)?;
        if self.auto && !is_right && is_proven != Some(true) {
            if !acts {
                bail!("the fault hardly acts on this machine: whether a verdict would name it is not shown");
            }
            bail!("the verdict does not name the truth");
        }
        if !self.auto {
            say("Ctrl-C ends it.");
            self.pass(stage, Duration::MAX)?;
        }
        Ok(())
    }

    /// What happens in the case that opens, moment by moment, until there is a verdict.
    fn follow(&self, stage: &mut Stage, began_ms: u64) -> anyhow::Result<CaseReport> {
        let pair = PairRow { client: "tank".into(), server: "target".into() };
        let newest = || {
            let cases = self.cases.report(None, Some(&pair), 10).cases;
            cases.into_iter().find(|case| case.opened_unix_ms >= began_ms)
        };
        let id = match self.wait(stage, "a case to open by itself", OPENS, newest) {
            Ok(case) => {
                say(&format!("CASE {} opens by itself.", case.id));
                case.id
            }
            Err(error) if error.is::<NotInTime>() => {
                let load = Host::below("/").parsed(uptime::LOADAVG, uptime::load);
                let load =
                    load.map_or_else(|_| "unknown".to_owned(), |load| format!("{:.1}", load.averages[0]));
                let id = self.cases.ask(&pair, None, Some(began_ms)).context("a case that is asked for")?;
                say(&format!(
                    "No case opened by itself within {} s: calls take hardly longer than before the fault, or have \
                     not for long enough (load of this machine {load}). CASE {id} is opened on request.",
                    OPENS.as_secs()
                ));
                id
            }
            Err(error) => return Err(error),
        };
        let (mut told, mut latest_ms) = (HashSet::new(), 0);
        self.wait(stage, "the verdict", VERDICT, || {
            let case = self.cases.case(&id)?;
            for moment in &case.time_line {
                if told.insert((moment.unix_ms, moment.what.clone())) {
                    let after_s = (moment.unix_ms as f64 - began_ms as f64) / 1e3;
                    // Spans tell of some moments seconds later.
                    let known = if moment.unix_ms < latest_ms { "(known only now) " } else { "" };
                    latest_ms = latest_ms.max(moment.unix_ms);
                    let what = format!("{known}{}", moment.what);
                    print(&format!("    {after_s:+6.1} s  {}", wrapped(&what, 86, 14)));
                }
            }
            (case.row.state != State::Open).then_some(case)
        })
    }

    /// Whether the fault acts, by what the kernel or the meter counts.
    fn does_it_act(&self, stage: &Stage) -> bool {
        let sign = self.sign.borrow();
        let Some((sign, rates)) =
            sign.as_ref().and_then(|sign| Some((sign, sign.rates(stage, &self.meter)?)))
        else {
            return true;
        };
        say(&format!("{}.", sign.words(rates)));
        sign.acts(rates)
    }

    /// Verdict against truth.
    fn conclude(&self, case: &CaseReport, began_ms: u64) -> bool {
        let truth = self.fault.truth();
        let verdict = case.row.verdict.clone().unwrap_or_default();
        let found = verdict.culprit.clone().unwrap_or_else(|| "nobody".into());
        let side = verdict.side.clone().map(|side| format!(" ({side})")).unwrap_or_default();
        case.lacks.iter().for_each(|lack| print(&wrapped(&format!("    missing: {lack}"), 100, 13)));
        say(&format!("VERDICT: {found}{side}. {}", verdict.words));
        let is_right = is_it(&truth, &verdict.culprit, &verdict.side);
        let names_place = self.fault.place().is_some_and(|place| verdict.words.contains(place));
        let how = match (is_right, &verdict.culprit) {
            (true, _) => "The verdict is right.",
            (false, None) if names_place => "The verdict names the right place, but not the cause.",
            (false, None) => "The verdict does not name it.",
            (false, Some(_)) => "The verdict is WRONG.",
        };
        say(&format!("TRUTH:   {truth}. {how}"));
        let last = case.time_line.iter().map(|moment| moment.unix_ms).max().unwrap_or(began_ms);
        say(&format!(
            "From the fault's beginning to the verdict: {:.1} s.",
            last.saturating_sub(began_ms) as f64 / 1e3
        ));
        is_right
    }

    /// The experiment that the verdict calls for: calls with the remedy beside calls without. Whether it is proven; `None`: there
    /// is none.
    fn remedy(&self, stage: &mut Stage, case: &CaseReport) -> anyhow::Result<Option<bool>> {
        const WHO: &str = "the demonstration";
        let id = &case.row.id;
        let planned = || {
            let plan = self.runtime.block_on(self.cases.plan_experiment(id, WHO));
            plan.inspect_err(|why| say(&format!("REMEDY: not tried: {why}"))).ok()
        };
        let Some(mut plan) = planned() else { return Ok(None) };
        say(&format!("REMEDY: {}", plan.words));
        if !self.auto {
            say("Enter applies it.");
            let entered = input_line::line()?;
            let line = self.wait(stage, "Enter", Duration::MAX, || match entered.try_recv() {
                Err(mpsc::TryRecvError::Empty) => None,
                line => Some(line.ok().flatten()),
            })?;
            if line.is_none() {
                say(
                    "Standard input has ended, so nobody can press Enter: it is applied now, on these two hosts alone.",
                );
            }
            // Who looked at the page meanwhile may have tried it there, and a plan is good for ten minutes.
            let Some(now) = planned() else { return Ok(None) };
            if now.words != plan.words {
                say(&format!("REMEDY, as it is now: {}", now.words));
            }
            plan = now;
        }
        let begun_ms = now_unix_ms();
        {
            let _entered = self.runtime.enter();
            self.cases.start_experiment(id, &plan.plan, WHO)?;
        }
        let patience = Duration::from_millis(2 * plan.takes_ms) + REMEDY;
        let tried = self.wait(stage, "the experiment", patience, || {
            let case = self.cases.case(id)?;
            case.experiments.last().filter(|one| one.to_unix_ms.is_some()).cloned()
        })?;
        for number in 0..experiment::over(&tried) {
            print(&format!("    {}", wrapped(&experiment::block(&tried, number), 96, 8)));
        }
        if let Some(usual) = &case.usual {
            let mean = format_ns(usual.client_duration.mean_ns);
            print(&format!("Before the fault:   mean {mean} in {} calls", usual.calls));
        }
        experiment::outcome(&tried).iter().for_each(|line| print(&wrapped(line, 100, 0)));
        let seconds = now_unix_ms().saturating_sub(begun_ms) as f64 / 1e3;
        let state = self.cases.case(id).map_or("gone", |case| case.row.state.name());
        say(&format!("Done after {seconds:.1} s; the case is {state}."));
        let truth = self.fault.truth();
        let is_right = tried.plan.suspect == truth.cause.name();
        let is_proven = tried.outcome == "proven";
        // Whatever the truth is, a proof of something else is wrong, and a change that stays is worse.
        if self.auto && (is_proven != is_right || !tried.undone) {
            bail!("the experiment is {}, the truth is {truth}; undone: {}", tried.outcome, tried.undone);
        }
        Ok(Some(is_proven))
    }

    /// Lets time pass, with figures at once and then every now and then.
    fn pass(&self, stage: &mut Stage, time: Duration) -> anyhow::Result<()> {
        let begun = Instant::now();
        let mut said: Option<Instant> = None;
        loop {
            let left = time.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Ok(());
            }
            self.look(stage, left.min(LOOK))?;
            let figures = match said {
                Some(said) if said.elapsed() < SAY => None,
                None if begun.elapsed() < SAY => self.figures(),
                _ => Some(self.figures().unwrap_or_else(|| NO_CALL.to_owned())),
            };
            if let Some(figures) = figures {
                said = Some(Instant::now());
                print(&format!("    {figures}"));
            }
        }
    }

    fn wait<T>(
        &self,
        stage: &mut Stage,
        what: &str,
        patience: Duration,
        mut ask: impl FnMut() -> Option<T>,
    ) -> anyhow::Result<T> {
        let begun = Instant::now();
        let mut said = begun;
        loop {
            if let Some(answer) = ask() {
                return Ok(answer);
            }
            if begun.elapsed() > patience {
                return Err(NotInTime(format!("waited {patience:?} for {what}, in vain")).into());
            }
            self.look(stage, LOOK)?;
            if said.elapsed() >= SAY {
                said = Instant::now();
                let figures = self.figures();
                print(&format!("    waiting for {what}: {}", figures.as_deref().unwrap_or(NO_CALL)));
            }
        }
    }

    fn look(&self, stage: &mut Stage, time: Duration) -> anyhow::Result<()> {
        if self.interrupted.load(Relaxed) || self.stopped.recv_timeout(time) != Err(RecvTimeoutError::Timeout)
        {
            return Err(Interrupted.into());
        }
        if let Some(sign) = &mut *self.sign.borrow_mut() {
            sign.look(stage);
        }
        stage.ended().map_or(Ok(()), |why| bail!(why))
    }

    /// The pair in the minutes that are open; `None` while no call of it has both spans.
    fn figures(&self) -> Option<String> {
        let minutes = self.meter.open_minutes_of(|key| &*key.client == "tank" && &*key.server == "target");
        let last = minutes.last()?;
        // All three: a fault may hide within a server's span, and then the gap says nothing of it.
        let of = |name: &str, values: &Histogram| {
            let quantile = |q| values.quantile(q).map_or("-".to_owned(), |q| format_ns(q.value_ns));
            format!("{name} {} / {}", quantile(0.5), quantile(0.99))
        };
        Some(format!(
            "{} this minute, p50 / p99: {}, {}, {}",
            counted(last.stats.calls(), "call"),
            of("client", &last.stats.client),
            of("server", &last.stats.server),
            of("gap", &last.stats.gap)
        ))
    }
}

fn is_it(truth: &Culprit, culprit: &Option<String>, side: &Option<String>) -> bool {
    culprit.as_deref() == Some(truth.cause.name()) && side.as_deref() == truth.side.map(Side::name)
}

fn now_unix_ms() -> u64 {
    UNIX_EPOCH.elapsed().unwrap_or_default().as_millis() as u64
}

fn say(what: &str) {
    print(&format!("\n{}", wrapped(what, 100, 0)));
}

/// Nobody reading is no reason to stop.
fn print(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}
