//! The agent's side of the actuator: forwards the meter's orders to it, and its reports back. The agent
//! itself changes nothing; without `--allow` there is no actuator, and every order is refused.

use crate::AgentError;
use crate::settings::{Actuator, Say};
use spangap_actuator::frames;
use spangap_fleet::v1::{self, Stage, to_actuator::What};
use std::collections::BTreeSet;
use std::io::BufReader;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// First and longest pause before a restart.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(15));

/// The actuator as seen by the stream to the meter.
pub(crate) struct Hands {
    allows: Vec<String>,
    shared: Arc<ActuatorLink>,
    /// Reports for the owner of the stream to the meter.
    pub reports: tokio::sync::Mutex<UnboundedReceiver<v1::OrderReport>>,
    to_stream: UnboundedSender<v1::OrderReport>,
    _life: mpsc::Sender<()>,
}

/// Two locks: waiting for the actuator to accept an order must not block its reports.
#[derive(Default)]
struct ActuatorLink {
    /// Set while it runs and is ready.
    input: Mutex<Option<ChildStdin>>,
    /// Orders without a final report.
    open: Mutex<BTreeSet<u64>>,
}

fn locked<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

fn refused(order: u64, why: &str) -> v1::OrderReport {
    v1::OrderReport { order, stage: Stage::Refused.into(), error: why.into(), ..v1::OrderReport::default() }
}

impl Hands {
    /// Starts the actuator, and restarts it whenever it ends. `None` permits nothing.
    pub fn start(actuator: Option<&Actuator>, say: &Say) -> Result<Hands, AgentError> {
        let (to_stream, reports) = unbounded_channel();
        let (life, alive) = mpsc::channel();
        let hands = Hands {
            allows: actuator.map(|actuator| actuator.allows.clone()).unwrap_or_default(),
            shared: Arc::default(),
            reports: tokio::sync::Mutex::new(reports),
            to_stream,
            _life: life,
        };
        let Some(actuator) = actuator.cloned() else { return Ok(hands) };
        let error = |error| AgentError::Start { what: "start the actuator", error };
        // A failure of the first start is reported at once.
        let first = spawn(&actuator).map_err(error)?;
        let (shared, to_stream, say) = (hands.shared.clone(), hands.to_stream.clone(), say.clone());
        let keep = move || keep(&actuator, first, &shared, &to_stream, &say, &alive);
        thread::Builder::new().name("actuator".into()).spawn(keep).map_err(error)?;
        Ok(hands)
    }

    /// Permitted changes.
    pub fn allows(&self) -> &[String] {
        &self.allows
    }

    /// Forwards an order, which is always answered.
    pub fn order(&self, order: v1::Order) {
        let id = order.id;
        let answer = |why: &str| drop(self.to_stream.send(refused(id, why)));
        if self.allows.is_empty() {
            return answer("this agent changes nothing: it was started without --allow");
        }
        let mut input = locked(&self.shared.input);
        let Some(input) = input.as_mut() else { return answer("the actuator is not ready") };
        locked(&self.shared.open).insert(id);
        let told = frames::write(input, &v1::ToActuator { what: Some(What::Order(order)) });
        if let Err(error) = told
            && locked(&self.shared.open).remove(&id)
        {
            answer(&format!("cannot send to the actuator: {error}"));
        }
    }

    /// Undoes an order now; 0 undoes all, as when the meter is gone.
    pub fn undo(&self, order: u64) {
        if let Some(input) = locked(&self.shared.input).as_mut() {
            let undo = v1::ToActuator { what: Some(What::Undo(v1::Undo { order })) };
            // An actuator that does not read has ended: its guards then undo the changes in time.
            let _ = frames::write(input, &undo);
        }
    }

    /// Closes its input: it undoes everything and ends.
    pub fn stop(&self) {
        drop(locked(&self.shared.input).take());
    }
}

fn spawn(actuator: &Actuator) -> std::io::Result<Child> {
    let mut words = actuator.command.iter();
    let program = words.next().ok_or_else(|| std::io::Error::other("no program"))?;
    Command::new(program).args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
}

fn keep(
    actuator: &Actuator,
    first: Child,
    shared: &ActuatorLink,
    to_stream: &UnboundedSender<v1::OrderReport>,
    say: &Say,
    alive: &mpsc::Receiver<()>,
) {
    let mut child = Some(first);
    let mut pause = PAUSES.0;
    loop {
        let started = child.take().map_or_else(|| spawn(actuator), Ok);
        let why = match started {
            Ok(mut child) => {
                let listened = listen(&mut child, shared, to_stream, &mut || pause = PAUSES.0);
                drop(locked(&shared.input).take());
                for order in std::mem::take(&mut *locked(&shared.open)) {
                    let why = "the actuator has exited: its guard undoes the changes in time";
                    drop(to_stream.send(refused(order, why)));
                }
                let status = child.wait();
                listened.err().map_or_else(
                    || status.map_or_else(|error| error.to_string(), |status| status.to_string()),
                    |error| error.to_string(),
                )
            }
            Err(error) => error.to_string(),
        };
        match alive.recv_timeout(pause) {
            Err(RecvTimeoutError::Timeout) => {}
            _ => return,
        }
        say(&format!("the actuator has exited ({why}); starting it again"));
        pause = (pause * 2).min(PAUSES.1);
    }
}

fn listen(
    child: &mut Child,
    shared: &ActuatorLink,
    to_stream: &UnboundedSender<v1::OrderReport>,
    ready: &mut dyn FnMut(),
) -> std::io::Result<()> {
    let (Some(out), mut input) = (child.stdout.take(), child.stdin.take()) else { return Ok(()) };
    let mut out = BufReader::new(out);
    while let Some(report) = frames::read::<v1::OrderReport>(&mut out)? {
        // The first message means that it is ready: changes of a previous instance are undone.
        if let Some(input) = input.take() {
            *locked(&shared.input) = Some(input);
            ready();
            continue;
        }
        if report.stage() != Stage::Changed {
            locked(&shared.open).remove(&report.order);
        }
        drop(to_stream.send(report));
    }
    Ok(())
}
