//! `spangap agent`: the recorder on every host.

use crate::Outcome;
use crate::signals::{ASKED, CaughtSignals};
use crate::values::{Size, wrong_usage};
use anyhow::Context;
use clap::{Args, ValueEnum};
use spangap_agent::{Actuator, Payload, Settings, TlsFiles};
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  spangap agent --meter http://meter.example:4317
      keep this host's latest packets and events in memory; send the meter those of a slow call when it asks
  spangap agent --meter https://meter.example:4317 --token-file /etc/spangap/token --memory 512MiB --cpu 1%
      with a token of the role `capture`; a longer look back, and less CPU
  spangap agent --meter http://127.0.0.1:4317 --health 127.0.0.1:7071
      check on it: curl http://127.0.0.1:7071/healthz

  spangap agent --meter http://meter.example:4317 --allow sockets
      also try remedies when somebody with a `change` token asks: a separate process then changes TCP_NODELAY
      of connections for up to a minute; the audit log has a line for each change and each undo
  spangap agent --meter http://meter.example:4317 --allow sockets,isolate
      it may also move an interface's packets off the application's CPUs for up to a minute

Without --allow the agent changes nothing on the host, whoever asks, and writes nothing to disk. By default it
masks payloads before they leave the host. It needs CAP_NET_RAW for packets, CAP_BPF and CAP_PERFMON for
events, and CAP_SYS_PTRACE to see who owns a socket; it runs without what it may not have, and says so.";

/// Record the latest packets and events of this host, and hand over slices when the meter asks
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct AgentArgs {
    /// The meter's port for OTLP over gRPC
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:4317")]
    meter: String,
    /// File with the token for the meter; reread for each connection
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Authorities to verify the meter's certificate with (PEM), for an `https` URL [default: those that this host
    /// trusts]
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// Certificate to show to the meter (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of --tls-cert (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Memory for the agent and its rings; the oldest is overwritten
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    memory: Size,
    /// CPU for the agent and its probes, as a share of all CPUs; above it, the agent drops instruments
    #[arg(long, value_name = "PERCENT", default_value = "2%")]
    cpu: Percent,
    /// How much of a message's bytes leaves the host
    #[arg(long, value_name = "WHAT", default_value = "headers")]
    payload: PayloadName,
    /// Interface to capture on; may be repeated [default: all]
    #[arg(long, short, value_name = "IF")]
    interface: Vec<String>,
    /// Process whose sockets are followed; may be repeated [default: all that listen or are connected over TCP]
    #[arg(long, value_name = "PID")]
    pid: Vec<u32>,
    /// Stand for the whole node of a cluster: follow the processes of all network namespaces, even where the machine's
    /// first process is in another one than this agent
    #[arg(long)]
    whole_node: bool,
    /// Bytes kept of each packet
    #[arg(long, value_name = "SIZE", default_value = "16KiB")]
    snap: Size,
    /// Address of the health endpoint [default: none]
    #[arg(long, value_name = "ADDR")]
    health: Option<SocketAddr>,
    /// What the agent may change on this host, for a limited time, for experiments; takes a list [default: nothing]
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    allow: Vec<Allowed>,
    /// Log of changes, with --allow: one JSON object per line, never truncated
    #[arg(long, value_name = "FILE", default_value = "/var/log/spangap/audit.jsonl", requires = "allow")]
    audit: PathBuf,
    /// Folder for journals that undo changes, with --allow [default: /run/spangap/actuator-N, N the network namespace]
    #[arg(long, value_name = "DIR", requires = "allow")]
    journal: Option<PathBuf>,
}

/// What may be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Allowed {
    /// TCP_NODELAY of live connections
    Sockets,
    /// CPUs that handle packets: affinity of interrupts, steering
    Isolate,
}

impl Allowed {
    fn name(self) -> &'static str {
        match self {
            Allowed::Sockets => "sockets",
            Allowed::Isolate => "isolate",
        }
    }
}

/// A share, as `2%`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Percent(f64);

impl std::str::FromStr for Percent {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.trim().trim_end_matches('%').trim();
        match number.parse::<f64>() {
            Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(Percent(percent)),
            _ => Err(format!("{text:?} is not a share: expected more than 0% and at most 100%, such as 2%")),
        }
    }
}

/// What leaves the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PayloadName {
    /// Lengths, frame headers, and the header fields that the analysis needs
    Headers,
    /// Everything, as it was on the wire
    Full,
}

/// Less has no room for the agent itself.
const MIN_MEMORY: u64 = 96 << 20;
const MAX_MEMORY: u64 = 64 << 30;
const MIN_SNAP: u64 = 128;
const MAX_SNAP: u64 = 262_144;

/// Records until Ctrl-C.
pub fn run(args: AgentArgs) -> anyhow::Result<Outcome> {
    if !(MIN_MEMORY..=MAX_MEMORY).contains(&args.memory.bytes()) {
        return Err(wrong_usage("--memory: expected 96MiB to 64GiB").into());
    }
    if !(MIN_SNAP..=MAX_SNAP).contains(&args.snap.bytes()) {
        return Err(wrong_usage("--snap: expected 128 to 262144 bytes").into());
    }
    let pids = super::host::processes::of_the_kernel("--pid", &args.pid)?;
    let actuator = actuator(&args)?;
    let settings = Settings {
        meter: args.meter,
        token_file: args.token_file,
        tls: TlsFiles { authorities: args.tls_ca, own: args.tls_cert.zip(args.tls_key) },
        memory_bytes: args.memory.bytes(),
        cpu_share: args.cpu.0 / 100.0,
        payload: match args.payload {
            PayloadName::Headers => Payload::Headers,
            PayloadName::Full => Payload::Full,
        },
        interfaces: args.interface,
        pids,
        whole_node: args.whole_node,
        snap_bytes: args.snap.bytes() as u32,
        health: args.health,
        actuator,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start")?.block_on(async {
        let mut caught = CaughtSignals::new(ASKED)?;
        // A reader that is gone is no reason to stop.
        let say = |line: &str| drop(writeln!(std::io::stderr(), "{line}"));
        match spangap_agent::run(settings, say, caught.first()).await {
            Ok(()) => Ok(Outcome::Done),
            Err(error @ spangap_agent::AgentError::Meter { .. }) => Err(wrong_usage(error).into()),
            Err(error) => Err(error.into()),
        }
    })
}

/// The command that starts the process that may change the host: this program, again.
fn actuator(args: &AgentArgs) -> anyhow::Result<Option<Actuator>> {
    if args.allow.is_empty() {
        return Ok(None);
    }
    let journals = match &args.journal {
        Some(journals) => journals.clone(),
        None => {
            // Agents of several namespaces on one machine do not undo each other's changes.
            let namespace = spangap_sockets::network_namespace(std::process::id()).unwrap_or(0);
            PathBuf::from(format!("/run/spangap/actuator-{namespace}"))
        }
    };
    let absolute = |path: PathBuf| std::path::absolute(&path).with_context(|| path.display().to_string());
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let mut allows: Vec<String> = args.allow.iter().map(|one| one.name().to_owned()).collect();
    allows.sort();
    allows.dedup();
    let mut command = vec![program.into_os_string(), "agent-actuator".into(), "--journal".into()];
    command.push(absolute(journals)?.into());
    command.extend(["--audit".into(), absolute(args.audit.clone())?.into()]);
    command.extend(["--allow".into(), allows.join(",").into()]);
    if args.whole_node {
        command.push("--whole-node".into());
    }
    Ok(Some(Actuator { command, allows }))
}
