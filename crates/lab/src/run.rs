//! One run, from its start to its folder.

use crate::LabError;
use crate::clocks;
use crate::folder::machine::Before;
use crate::folder::{self, NotRecorded};
use crate::host_clock::HostClock;
use crate::hosts;
use crate::scenario::Case;
pub use crate::stage::RunSettings;
use crate::stage::Stage;
use crate::truth::{FaultReport, Truth};
use crate::undo::{CreatedObject, Undo};
use spangap_machine::Host;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Makes a run. Nothing of it stays on the machine but its folder, which appears complete or not at all.
///
/// # Errors
/// It cannot be made, or is interrupted. A fault that did not act is not an error: the truth says so.
pub fn run(case: &Case<'_>, settings: &RunSettings<'_>) -> Result<Truth, LabError> {
    let Some(drawn) = &settings.drawn else { return alone(case, settings, None) };
    let Some(window) = &drawn.earlier else { return alone(case, settings, None) };
    let earlier = window.run(drawn);
    let name = settings.out.file_name().unwrap_or_default().to_string_lossy();
    let kept = settings.out.with_file_name(format!(".{name}-{}", folder::BEFORE));
    let remove = || match fs::remove_dir_all(&kept) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(LabError::file("remove", &kept)(error)),
        _ => Ok(()),
    };
    // One that a killed run left behind is of no use.
    remove()?;
    (settings.say)("recording the window before it");
    let case_before = earlier.case()?;
    let of_window = RunSettings {
        spangap: settings.spangap.clone(),
        out: kept.clone(),
        state: settings.state.clone(),
        seed: settings.seed,
        clocks: settings.clocks.clone(),
        drawn: Some(earlier),
        retime: settings.retime,
        interrupted: settings.interrupted.clone(),
        say: settings.say,
    };
    let made = alone(&case_before, &of_window, None).and_then(|_| alone(case, settings, Some(&kept)));
    remove().and(made)
}

/// Makes a single run, whose folder gets the evidence of an `earlier` one.
fn alone(case: &Case<'_>, settings: &RunSettings<'_>, earlier: Option<&Path>) -> Result<Truth, LabError> {
    hosts::needs()?;
    let mut undo = Undo::kept(&settings.state, &settings.spangap)?;
    let made = make(case, settings, earlier, &mut undo);
    (settings.say)("undoing what it made of this machine");
    match (made, undo.everything()) {
        (made, Ok(())) => made,
        (Ok(_), Err(left)) => Err(left),
        (Err(LabError::Interrupted), Err(left)) => Err(LabError::FailedAndLeft {
            failed: Box::new(LabError::program("lab run", "interrupted")),
            left: Box::new(left),
        }),
        (Err(failed), Err(left)) => {
            Err(LabError::FailedAndLeft { failed: Box::new(failed), left: Box::new(left) })
        }
    }
}

/// Everything up to the folder. All programs of the run have ended when this returns.
fn make(
    case: &Case<'_>,
    settings: &RunSettings<'_>,
    earlier: Option<&Path>,
    undo: &mut Undo,
) -> Result<Truth, LabError> {
    let work = beside(&settings.out, undo.id());
    undo.about_to_make(CreatedObject::Folder { path: work.clone() })?;
    fs::create_dir_all(&work).map_err(LabError::file("make", &work))?;
    let id = undo.id().to_owned();
    let made = into(&work, case, settings, undo).and_then(|truth| {
        earlier.map_or(Ok(()), |earlier| folder::keep_earlier(earlier, &work)).map(|()| truth)
    });
    let out = &settings.out;
    match made {
        Ok(truth) => fs::rename(&work, out).map_err(LabError::file("make", out)).map(|()| truth),
        Err(failed @ (LabError::Interrupted | LabError::Unavailable { .. } | LabError::Parameter(_))) => {
            Err(failed)
        }
        Err(failed) => Err(match folder::keep_logs(&work, &id) {
            Ok(Some(logs)) => LabError::Failed { failed: Box::new(failed), logs },
            // The original failure matters more than a failure to save its logs.
            Ok(None) | Err(_) => failed,
        }),
    }
}

/// Fills the folder.
fn into(
    work: &Path,
    case: &Case<'_>,
    settings: &RunSettings<'_>,
    undo: &mut Undo,
) -> Result<Truth, LabError> {
    let host = Host::below("/");
    let before = Before::look(&host);
    let mut stage = Stage::new(settings, undo, work.to_owned());
    let mut acted = (case.scenario.make)(&mut stage, case)?;
    let second = stage.second(&mut acted);
    let beside = stage.beside();
    let tank = stage.tank_report()?;
    let (clocks, began_unix_ns, line) = (stage.clocks().to_vec(), stage.began_unix_ns(), stage.line);
    let (recorded, reasons) = (stage.recorded().to_vec(), stage.not_recorded().to_vec());
    let pauses = stage.pauses().to_vec();
    // Remaining programs end here, so that their CPU time counts as the run's.
    drop(stage);
    (settings.say)("writing the folder");
    let not_recorded = NotRecorded::of(|file| work.join(file).exists(), &reasons);
    let recorded = recorded.into_iter().filter(|one| work.join(&one.file).exists()).collect();
    let recorded = clocks::of_recordings(recorded, &clocks, began_unix_ns);
    let machine = before.until_now(&host, &tank, &pauses, recorded, not_recorded);
    clocks::set(work, &clocks, began_unix_ns, settings.retime, &mut acted)?;
    let truth = Truth { line, second, beside, ..truth(case, settings, acted, &clocks) };
    let title = if case.near_miss { case.scenario.near_miss.title } else { case.scenario.title };
    folder::finish(work, &truth, title, &machine)?;
    Ok(truth)
}

/// Named by the id alone: recordings contain the command line that made them, and must not reveal the fault.
fn beside(out: &Path, id: &str) -> PathBuf {
    out.with_file_name(format!(".lab-{id}"))
}

fn truth(case: &Case<'_>, settings: &RunSettings<'_>, acted: FaultReport, clocks: &[HostClock]) -> Truth {
    let scenario = case.scenario;
    let culprit = if case.near_miss { scenario.near_miss.culprit } else { scenario.culprit };
    let leg = if case.near_miss { scenario.near_miss.leg } else { scenario.leg };
    let also_right: &[_] = if case.near_miss { &[] } else { scenario.also_right };
    let parameters = case.parameters();
    let set = parameters.iter().map(|(name, value)| format!(" --set {name}={value}"));
    let set = set.chain(settings.clocks.iter().map(|clock| format!(" --clock {clock}")));
    let command = match &settings.drawn {
        Some(drawn) => drawn.command(),
        None => {
            format!("spangap lab run {}{} --seed {}", case.name(), set.collect::<String>(), settings.seed)
        }
    };
    Truth {
        scenario: scenario.name.into(),
        near_miss: case.near_miss,
        culprit: culprit.cause.name().into(),
        side: culprit.side.map(|side| side.name().into()),
        also_right: also_right.iter().map(|culprit| culprit.to_string()).collect(),
        looks_like: case.near_miss.then(|| scenario.culprit.to_string()),
        leg: leg.map(|leg| leg.to_string()),
        acted: acted.holds(),
        line: None,
        clocks: clocks.to_vec(),
        active: acted.active,
        affected: acted.affected,
        affected_rule: acted.affected_rule,
        proof: acted.claims,
        parameters,
        seed: settings.seed,
        command,
        second: None,
        beside: None,
        drawn: settings.drawn.clone(),
    }
}
