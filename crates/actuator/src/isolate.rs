//! Keeps packets off the CPUs of the application for a while: planned here, made and undone by `spangap
//! isolate`, with its journal, its guard and its lock.

use crate::order::{Meant, Refusal};
use crate::{Settings, causes, is_ours, now_unix_ns, write_down};
use serde::Deserialize;
use serde_json::json;
use spangap_fleet::v1::{self, Stage};
use spangap_isolate::journal::Folder;
use spangap_isolate::kernel::Live;
use spangap_isolate::plan::{IrqbalancePolicy, NetCpus, Plan, Policy};
use spangap_isolate::topology::{Interface, Topology};
use spangap_machine::facts::process_status::{self, ProcessStatus};
use spangap_model::Cpus;
use spangap_sockets::{Asked, list};
use spangap_undo::file::make_folder;
use spangap_undo::guard::Process;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// The journal of isolation started by hand.
const BY_HAND: &str = "/var/lib/spangap/isolate";

/// A plan that has not been executed.
pub struct Planned {
    plan: Plan,
    app: Cpus,
}

/// Plans for the processes that hold the ordered connections. Read-only.
pub fn plan(settings: &Settings, meant: &Meant, interfaces: &[String]) -> Result<Planned, Refusal> {
    let topology = Live::new().topology();
    let app = app_cpus(settings, meant)?;
    let net = topology.online().without(&app);
    if net.is_empty() {
        return Err(Refusal(format!(
            "the processes with connections of {} may run on all CPUs ({app}), which leaves no CPU for packets; \
             this can be tried if they have their own CPUs (taskset, a cpuset)",
            meant.server
        )));
    }
    let interfaces = match interfaces.is_empty() {
        true => topology.interfaces.iter().filter(|one| hands_to(&topology, one, &app)).collect(),
        false => interfaces.iter().map(|name| named(&topology, name)).collect::<Result<Vec<_>, _>>()?,
    };
    if interfaces.is_empty() {
        return Err(Refusal(format!("no interface currently hands its packets to {}", app.words())));
    }
    let policy = Policy {
        interfaces: interfaces.iter().map(|one| one.name.clone()).collect(),
        net_cpus: NetCpus::List(net),
        queues: false,
        cpusets: false,
        irqbalance: IrqbalancePolicy::Ban,
    };
    let plan = Plan::new(&topology, &policy).map_err(|refusals| {
        let whys: Vec<&str> = refusals.iter().map(|refusal| refusal.why.as_str()).collect();
        Refusal(whys.join("; "))
    })?;
    if plan.changes.is_empty() {
        let names = policy.interfaces.join(", ");
        return Err(Refusal(format!("the packets of {names} are already kept off {}", app.words())));
    }
    Ok(Planned { plan, app })
}

/// The CPUs that the processes with these connections may run on.
fn app_cpus(settings: &Settings, meant: &Meant) -> Result<Cpus, Refusal> {
    let asked = Asked { pids: Vec::new(), port: Some(meant.server.port()), listening: false };
    let listing = list(&asked).map_err(|error| Refusal(causes(&error)))?;
    let of_these = listing.sockets.iter().filter(|socket| {
        let server = if meant.accepted { Some(socket.local) } else { socket.peer };
        socket.accepted == Some(meant.accepted)
            && server == Some(meant.server)
            && is_ours(settings, socket.network_namespace)
    });
    let mut app = Cpus::default();
    for owner in of_these.flat_map(|socket| &socket.owners) {
        // Threads that end meanwhile run nowhere.
        let tasks = fs::read_dir(format!("/proc/{}/task", owner.pid)).into_iter().flatten().flatten();
        for task in tasks {
            let path = task.path().join(process_status::NAME);
            let Ok(text) = fs::read_to_string(&path) else { continue };
            let allowed = ProcessStatus::new(&path.to_string_lossy(), &text).allowed();
            app = app.either(&allowed.map_err(|error| Refusal(causes(&error)))?);
        }
    }
    if app.is_empty() {
        let end = if meant.accepted { "of" } else { "with" };
        return Err(Refusal(format!("no process here has a connection {end} {}", meant.server)));
    }
    Ok(app)
}

fn named<'t>(topology: &'t Topology, name: &str) -> Result<&'t Interface, Refusal> {
    topology.interface(name).ok_or_else(|| {
        let names: Vec<&str> = topology.interfaces.iter().map(|one| one.name.as_str()).collect();
        Refusal(format!("/sys here has no interface {name}; it has {}", names.join(", ")))
    })
}

/// Whether the current settings allow packets of an interface to be handled on one of these CPUs.
fn hands_to(topology: &Topology, interface: &Interface, cpus: &Cpus) -> bool {
    let meets = |set: &Option<Cpus>| set.as_ref().is_some_and(|set| !set.both(cpus).is_empty());
    let steered = interface.rx.iter().any(|rx| meets(&rx.rps_cpus));
    let interrupts = interface.irqs.iter().filter(|irq| irq.queue.is_some());
    let mut irqs = interrupts.filter_map(|one| topology.irqs.iter().find(|irq| irq.number == one.irq));
    interface.up && (steered || irqs.any(|irq| meets(&irq.effective) || meets(&irq.affinity)))
}

impl Planned {
    /// The CPUs that packets would be moved to, as a list.
    pub fn net_cpus(&self) -> String {
        self.plan.net_cpus.to_string()
    }

    /// The plan as reported to the meter.
    pub fn report(&self, stage: Stage) -> v1::OrderReport {
        let values = self.plan.changes.iter().map(|change| v1::Value {
            place: change.place.to_string(),
            from: change.from.clone().unwrap_or_default(),
            to: change.to.clone(),
            not_changed: String::new(),
        });
        v1::OrderReport {
            stage: stage.into(),
            unix_ns: now_unix_ns(),
            values: values.collect(),
            net_cpus: self.net_cpus(),
            app_cpus: self.app.to_string(),
            interfaces: self.plan.policy.interfaces.clone(),
            ..v1::OrderReport::default()
        }
    }
}

/// The required part of `isolate apply --json`.
#[derive(Deserialize)]
struct Applied {
    applied: bool,
    changed: u64,
    guard_pid: Option<u32>,
    error: Option<String>,
    refused: Vec<Refused>,
}

#[derive(Deserialize)]
struct Refused {
    place: serde_json::Value,
    why: String,
}

/// Result of a change.
pub struct Made {
    /// The guard that undoes it in time.
    pub guard: Process,
    /// The report for the meter.
    pub report: v1::OrderReport,
}

/// Folder of the isolation journals: separate from those of sockets, which have another format.
pub fn folder(settings: &Settings) -> PathBuf {
    settings.journals.join("isolate")
}

/// Makes the change for a time. The old values are on disk and the guard is ready before the first one is
/// written.
pub fn make(
    settings: &Settings,
    order: &v1::Order,
    because: &str,
    planned: &Planned,
    time: Duration,
) -> Result<Made, Refusal> {
    if !matches!(Folder::new(BY_HAND).open(), Ok(None)) {
        let help = "`spangap isolate status` tells what, `spangap isolate rollback` undoes it";
        return Err(Refusal(format!("this host was isolated by hand: {help}")));
    }
    let report = planned.report(Stage::Changed);
    let values: Vec<_> = report
        .values
        .iter()
        .map(|value| json!({ "place": value.place, "from": value.from, "to": value.to }))
        .collect();
    write_down(settings, "ordered", order, &json!({ "values": values }))
        .map_err(|error| Refusal(format!("the audit log cannot be written: {}", causes(&error))))?;
    let folder = folder(settings);
    let refused = |what: &str, error: &dyn std::error::Error| Refusal(format!("{what}: {}", causes(error)));
    make_folder(&folder).map_err(|error| refused("no journal", &error))?;
    let file = folder.join("plan.json");
    let text = serde_json::to_vec(&planned.plan).map_err(|error| refused("no plan", &error))?;
    fs::write(&file, text).map_err(|error| refused("the plan cannot be written", &error))?;
    let within = format!("{}ms", time.as_millis());
    let mut command = isolate("apply", &folder);
    command.arg(&file).args(["--confirm-within", &within, "--audit"]).arg(&settings.audit);
    let output = command.args(["--order", because]).output();
    let output = output.map_err(|error| refused("isolation cannot be started", &error))?;
    let said = complaint(&output);
    let applied: Option<Applied> = serde_json::from_slice(&output.stdout).ok();
    let Some(Applied { applied: true, changed, guard_pid: Some(pid), error, refused, .. }) = applied else {
        // Changes made before the error are already undone.
        return Err(Refusal(applied.and_then(|applied| applied.error).unwrap_or(said)));
    };
    let guard = Process::of(pid).ok().flatten();
    let guard =
        guard.ok_or_else(|| Refusal("the process that undoes it has ended before its time".into()))?;
    let mut report = v1::OrderReport { unix_ns: now_unix_ns(), error: error.unwrap_or_default(), ..report };
    for value in &mut report.values {
        let why = refused.iter().find(|one| one.place["path"] == value.place.as_str());
        value.not_changed = why.map(|one| one.why.clone()).unwrap_or_default();
    }
    let told = json!({ "values": values, "changed": changed });
    if changed == 0 {
        report.error = "the host took none of the values".into();
    } else if let Err(error) = write_down(settings, "changed", order, &told) {
        report.error = format!("undone at once, because the audit log cannot be written: {}", causes(&error));
    }
    Ok(Made { guard, report })
}

/// Undoes what is left after the guard has ended; a guard that was killed is replaced here. The second value
/// says whether something was undone here that the audit log does not contain yet.
pub fn settle(settings: &Settings) -> (Result<(), String>, bool) {
    let folder = folder(settings);
    let open = || Folder::new(&folder).open().map_err(|error| causes(&error));
    match open() {
        Ok(None) => (Ok(()), false),
        Err(error) => (Err(error), false),
        Ok(Some(_)) => {
            let output = isolate("rollback", &folder).output();
            let said = output.map_or_else(|error| error.to_string(), |output| complaint(&output));
            let done = match open() {
                Ok(None) => Ok(()),
                Ok(Some(_)) => Err(said),
                Err(error) => Err(error),
            };
            (done, true)
        }
    }
}

fn isolate(verb: &str, folder: &Path) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("spangap").args(["isolate", verb, "--json", "--journal"]).arg(folder).stdin(Stdio::null());
    command
}

fn complaint(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.trim().trim_start_matches("spangap: ");
    if said.is_empty() { output.status.to_string() } else { said.chars().take(500).collect() }
}
