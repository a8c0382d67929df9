//! From a verdict to a proof: the culprit's lever is applied on the host, and the same calls are measured
//! with and without it.
//!
//! [`planning`] states the changes before any is made; [`run`] orders changes from the host's agent, block by
//! block, each for a few seconds; [`judge`] compares treated with untreated calls by the exact test of
//! [`paired`], at the [`looks`] that were declared. In every block, a coin toss decides which half of the connections is treated or, if calls
//! cannot be assigned to connections, whether all are.

pub mod judge;
pub mod lever;
pub mod looks;
pub mod paired;
mod plan;
mod planning;
pub mod run;
pub mod shapes;
pub(crate) mod underway;

use crate::agents::NoOrder;
use crate::cases::{Cases, moment};
use crate::now_unix_ms;
use plan::Plan;
use serde_json::json;
use shapes::{ExperimentReport, PlanReport};
use spangap_model::{Cause, advice};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::watch;

/// Validity of a plan.
const PLAN_MS: u64 = 600_000;
/// Maximum number of experiments stored with a case, the most recent.
const MAX_STORED: usize = 16;
/// Maximum number of plans retained, the most recent.
const MAX_PLANS: usize = 64;
/// A host undoes every change within this time, whoever is gone.
const LONGEST_CHANGE_MS: u64 = 60_000;

/// Why an experiment is impossible.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NoExperiment {
    /// The case does not exist.
    #[error("there is no such case")]
    NoCase,
    /// The verdict names no culprit to confirm.
    #[error("the case names no culprit that an experiment could confirm: its verdict is {0}")]
    NotExplained(&'static str),
    /// No lever can be applied while calls run.
    #[error("nothing that spangap can change and undo while calls run would remedy {cause}; what may help: {}", advice::about(*.0, None).next, cause = .0.name())]
    NoLever(Cause),
    /// The verdict does not state the side.
    #[error("the verdict does not say on which side the culprit is")]
    NoSide,
    /// No agent could apply the change.
    #[error("no agent is known on the {0}'s host")]
    NoAgent(String),
    /// The agent cannot be reached, or may not change that.
    #[error(transparent)]
    NoOrder(#[from] NoOrder),
    /// The agent does not answer.
    #[error("the agent did not answer")]
    NoAnswer,
    /// The agent refuses.
    #[error("the agent refuses: {0}")]
    Refused(String),
    /// No span states an address.
    #[error(
        "no call in the last minute names the server's address and port (network.peer.address, network.peer.port)"
    )]
    NoServer,
    /// All connections already have the value, or none can be accessed.
    #[error(
        "there is nothing to change: no connection to {server} has TCP_NODELAY off; {already} have it on, \
         {not_readable} cannot be read {because}"
    )]
    NothingToChange {
        /// The server's address.
        server: SocketAddr,
        /// Connections that already have the value.
        already: u64,
        /// Connections that cannot be accessed.
        not_readable: u64,
        /// The reason.
        because: String,
    },
    /// Another experiment is running.
    #[error("an experiment is already running, for case {0}")]
    Running(String),
    /// The plan is not the latest one of this case, or it is invalid.
    #[error("expected the plan that was last shown for this case, at most ten minutes ago; ask for it again")]
    OtherPlan,
    /// The meter cannot write its audit log.
    #[error("the audit log cannot be written: {0}")]
    Audit(String),
}

impl Cases {
    /// What an experiment of a case would do, without changing anything.
    ///
    /// # Errors
    /// Why it is impossible.
    pub async fn plan_experiment(
        self: &Arc<Self>,
        id: &str,
        asked_by: &str,
    ) -> Result<PlanReport, NoExperiment> {
        let case = self.case(id).ok_or(NoExperiment::NoCase)?;
        let plan = planning::plan(self, &case, asked_by).await?;
        let report = plan.report.clone();
        let mut inner = self.experiments.inner();
        inner.plans.retain(|(_, other)| other.report.case != report.case);
        if inner.plans.len() >= MAX_PLANS {
            inner.plans.remove(0);
        }
        inner.plans.push((now_unix_ms(), plan));
        Ok(report)
    }

    /// Executes a plan that was shown, in the background.
    ///
    /// # Errors
    /// When it is not the latest plan, or another experiment is running.
    pub fn start_experiment(
        self: &Arc<Self>,
        id: &str,
        plan: &str,
        asked_by: &str,
    ) -> Result<(), NoExperiment> {
        let case = self.case(id).ok_or(NoExperiment::NoCase)?;
        let now_ms = now_unix_ms();
        let (stop, stopped) = watch::channel(false);
        let found = {
            let mut inner = self.experiments.inner();
            if let Some((running, _)) = &inner.running {
                return Err(NoExperiment::Running(running.clone()));
            }
            let is_it = |(shown_ms, known): &(u64, Plan)| {
                known.report.case == id
                    && known.report.plan == plan
                    && now_ms.saturating_sub(*shown_ms) < PLAN_MS
            };
            let at = inner.plans.iter().position(is_it).ok_or(NoExperiment::OtherPlan)?;
            let (_, found) = inner.plans.remove(at);
            inner.running = Some((id.to_owned(), stop));
            found
        };
        // The case may have been assigned another host in the meantime.
        if case.hosts.get(&found.report.side).and_then(|host| host.agent.as_ref())
            != Some(&found.report.agent)
        {
            self.experiments.inner().running = None;
            return Err(NoExperiment::OtherPlan);
        }
        if let Err(error) = self.audit("started", &found.report, asked_by, &found.report.words) {
            self.experiments.inner().running = None;
            return Err(NoExperiment::Audit(error));
        }
        self.change(id, |case| {
            case.time_line
                .push(moment(now_ms, format!("experiment, requested by {asked_by}: {}", found.report.words)));
            if case.experiments.len() >= MAX_STORED {
                case.experiments.remove(0);
            }
            case.experiments.push(ExperimentReport {
                plan: found.report.clone(),
                lever: found.report.lever.clone(),
                asked_by: asked_by.to_owned(),
                from_unix_ms: now_ms,
                outcome: "running".into(),
                words: found.report.words.clone(),
                ..ExperimentReport::default()
            });
        });
        let experiment = run::perform(self.clone(), found, asked_by.to_owned(), stopped);
        tokio::spawn(self.clone().see_experiment_through(id.to_owned(), experiment));
        Ok(())
    }

    /// Runs an experiment. A panic in there is a bug; without an end, no other experiment could ever begin.
    async fn see_experiment_through(
        self: Arc<Self>,
        id: String,
        experiment: impl Future<Output = ()> + Send + 'static,
    ) {
        if tokio::spawn(experiment).await.is_ok() {
            return;
        }
        let (now_ms, words) = (now_unix_ms(), "Undecided: the experiment failed, which is a bug in spangap.");
        self.meter.follow(None);
        self.change(&id, |case| {
            if let Some(last) = case.experiments.last_mut().filter(|last| last.to_unix_ms.is_none()) {
                // Nobody is left to hear of an undo: the host's guard acts in time.
                (last.to_unix_ms, last.undone) = (Some(now_ms), false);
                (last.outcome, last.words) = ("undecided".into(), words.into());
            }
            case.time_line.push(moment(now_ms, format!("experiment: {words}")));
        });
        self.experiments.ended(now_ms + LONGEST_CHANGE_MS);
    }

    /// Ends the experiment of a case now and undoes its changes. `false` if none is running.
    pub fn end_experiment(&self, id: &str) -> bool {
        let inner = self.experiments.inner();
        let running = inner.running.as_ref().filter(|(running, _)| running == id);
        // Nobody listens if it has just ended.
        running.is_some_and(|(_, stop)| stop.send(true).is_ok())
    }

    /// Writes a line to the meter's own audit log.
    fn audit(&self, event: &str, plan: &PlanReport, asked_by: &str, words: &str) -> Result<(), String> {
        let line = json!({
            "unix_ms": now_unix_ms(),
            "event": event,
            "case": plan.case,
            "plan": plan.plan,
            "asked_by": asked_by,
            "agent": plan.agent,
            "lever": plan.lever,
            "server": plan.server,
            "words": words,
        });
        let log = self.settings.folder.join(AUDIT);
        spangap_undo::audit::append(&log, &line).map_err(|error| format!("{error}: {}", error.source))
    }

    /// Like [`Cases::audit`], for events that have already happened: a failure to write is counted.
    fn write_down(&self, event: &str, plan: &PlanReport, asked_by: &str, words: &str) {
        if self.audit(event, plan, asked_by, words).is_err() {
            self.agents.count(|refused| refused.not_written += 1);
        }
    }
}

/// The meter's audit log, in the folder of all cases.
pub const AUDIT: &str = "audit.jsonl";
