//! `spangap meter`: the always-on service.

mod kafka;
mod kept;

use super::target::stop_signal;
use crate::Outcome;
use crate::args::{Duration, Size};
use crate::temporary::Temporary;
use crate::web::{self, TraceUrl};
use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use serde::Deserialize;
use spangap_cases::agents::Agents;
use spangap_cases::cases::{Cases, EXPERIMENT_BLOCK, SLICE_TIME, Settings as CaseSettings};
use spangap_cases::verdict::Program;
use spangap_cases::{api, server};
use spangap_meter::engine::{Meter, Settings};
use spangap_meter::export::otlp::PushSettings;
use spangap_meter::history::{History, Limits};
use spangap_meter::ingest::named::Part;
use spangap_meter::ingest::origins::Limits as OriginLimits;
use spangap_meter::ingest::semconv::RESPONSE_SIZE_ATTRIBUTES;
use spangap_meter::kafka::Kafka;
use spangap_meter::pairs::{Ends, Grouping, PairLimits};
use spangap_meter::serve::access::Access;
use spangap_meter::serve::clock::Clock;
use spangap_meter::serve::places::Deadlines;
use spangap_meter::serve::tls::{Tls, TlsFiles};
use spangap_meter::serve::{Addresses, Guests, Refusals, ServeSettings, serve};
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

const EXAMPLES: &str = "\
Examples:
  spangap meter
      receive on 127.0.0.1:4317 (gRPC) and :4318 (HTTP), page at http://127.0.0.1:7070/
  spangap meter --data /var/lib/spangap --otlp-grpc 0.0.0.0:4317 --tls-cert cert.pem --tls-key key.pem --token-file tokens
      keep the history across restarts; accept spans from other machines that have a token (see docs/security.md)
  OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4317 your-service
      point an OpenTelemetry SDK at it

Metrics for Prometheus are at /metrics, the API under /api/v1/, health at /healthz and /readyz.
The --config file takes every option under the same name, for example: join-ttl = \"30s\"";

/// An address to listen on, and not a name: which of its addresses would be meant?
fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "expected an IP address and a port, such as 127.0.0.1:4317, [::1]:4317, or 0.0.0.0:4317 for all interfaces".into()
    })
}

/// Settings of the meter; the same names on the command line and in the configuration file.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[command(after_help = EXAMPLES)]
pub struct MeterArgs {
    /// Read options from this TOML file; options given here win
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    config: Option<PathBuf>,
    /// Address for OTLP over gRPC [default: 127.0.0.1:4317]
    #[arg(long, value_name = "ADDR", value_parser = address)]
    otlp_grpc: Option<SocketAddr>,
    /// Address for OTLP over HTTP, protobuf and JSON [default: 127.0.0.1:4318]
    #[arg(long, value_name = "ADDR", value_parser = address)]
    otlp_http: Option<SocketAddr>,
    /// Address for the page, the API and /metrics [default: 127.0.0.1:7070]
    #[arg(long, value_name = "ADDR", value_parser = address)]
    http: Option<SocketAddr>,
    /// Directory of the history; without it the history lives in memory and ends with the process
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Keep the history this long [default: 14d]
    #[arg(long, value_name = "DURATION")]
    history_age: Option<Duration>,
    /// Keep the history below this size; finer and older rows are dropped first, and the coverage says how far back each
    /// resolution reaches [default: 1GiB]
    #[arg(long, value_name = "SIZE")]
    history_size: Option<Size>,
    /// How long a span waits for its mate; exporters flush every 5 s [default: 15s]
    #[arg(long, value_name = "DURATION")]
    join_ttl: Option<Duration>,
    /// Memory for waiting spans; when it is full, the oldest are evicted and counted [default: 1GiB]
    #[arg(long, value_name = "SIZE")]
    max_pending_bytes: Option<Size>,
    /// Memory for waiting whole spans, so that worst calls can be shown with both sides [default: 24MiB]
    #[arg(long, value_name = "SIZE")]
    whole_bytes: Option<Size>,
    /// Keep every span on disk for this long, such as 30m, and serve it by trace id
    #[arg(long, value_name = "DURATION", help_heading = KEPT)]
    keep_spans: Option<Duration>,
    /// Keep them below this size; the oldest go first [default: 50GiB]
    #[arg(long, value_name = "SIZE", help_heading = KEPT)]
    keep_bytes: Option<Size>,
    /// Folder for them [default: `spans` in the folder of --data]
    #[arg(long, value_name = "DIR", help_heading = KEPT)]
    keep_dir: Option<PathBuf>,
    /// Memory for names and resources; idle ones make room, oversized ones are cut [default: 64MiB]
    #[arg(long, value_name = "SIZE")]
    max_resource_bytes: Option<Size>,
    /// Memory for whole spans of the worst calls [default: 256MiB]
    #[arg(long, value_name = "SIZE")]
    worst_bytes: Option<Size>,
    /// Memory for whole spans of samples of each pair's calls, which tell what sets slow calls apart [default: 64MiB]
    #[arg(long, value_name = "SIZE")]
    sample_bytes: Option<Size>,
    /// Distinct pairs in total; further ones are counted in the pair `other` [default: 10000]
    #[arg(long, value_name = "N")]
    max_pairs: Option<usize>,
    /// Distinct pairs per client service [default: 500]
    #[arg(long, value_name = "N")]
    max_pairs_per_client: Option<usize>,
    /// Pairs with their own metrics at /metrics and in the push, some 170 series each; later pairs are exported as the
    /// pair `other`; the page and the API have all pairs [default: 2000]
    #[arg(long, value_name = "N")]
    exported_pairs: Option<usize>,
    /// Exclude and count calls with a larger response, or `none` [default: 100KiB]
    #[arg(long, value_name = "SIZE")]
    exclude_response_over: Option<SizeOrNone>,
    /// Attribute with a response's size, besides the message events; may be repeated
    /// [default: the http.response.* and rpc.*.size attributes, and the header content-length]
    #[arg(long, value_name = "NAME")]
    response_size_attribute: Option<Vec<String>>,
    /// What a row of the table represents [default: pair]
    #[arg(long, value_name = "WHAT")]
    by: Option<By>,
    /// Largest OTLP request, compressed or not [default: 16MiB]
    #[arg(long, value_name = "SIZE")]
    max_request_bytes: Option<Size>,
    /// Memory for requests in progress; beyond it senders are told to retry [default: 40MiB]
    #[arg(long, value_name = "SIZE")]
    request_budget: Option<Size>,
    /// Connections open at once on each port; beyond it the oldest idle one is closed [default: 4096]
    #[arg(long, value_name = "N")]
    max_connections: Option<usize>,
    /// How long the head of a request may take [default: 10s]
    #[arg(long, value_name = "DURATION")]
    head_timeout: Option<Duration>,
    /// How long the body of a request may take [default: 60s]
    #[arg(long, value_name = "DURATION")]
    body_timeout: Option<Duration>,
    /// How long a connection may stay without a request [default: 5m]
    #[arg(long, value_name = "DURATION")]
    idle_timeout: Option<Duration>,
    /// When the budget is full, a request that has been arriving for longer than this makes room for others [default:
    /// 1s]
    #[arg(long, value_name = "DURATION")]
    slow_after: Option<Duration>,
    /// Push metrics to this OTLP/gRPC receiver, http://HOST:PORT
    #[arg(long, value_name = "URL")]
    push_otlp: Option<String>,
    /// How often metrics are pushed [default: 30s]
    #[arg(long, value_name = "DURATION")]
    push_interval: Option<Duration>,
    /// Folder of cases [default: `cases` in the folder of --data, else one that ends with the process]
    #[arg(long, value_name = "DIR", help_heading = CASES)]
    cases: Option<PathBuf>,
    /// Open a case when three calls of a pair within a minute have a larger gap, whatever its baseline
    #[arg(long, value_name = "DURATION", help_heading = CASES)]
    case_over: Option<Duration>,
    /// Slices of packets asked of hosts in a minute; a case takes two [default: 6]
    #[arg(long, value_name = "N", help_heading = CASES)]
    case_slices_per_minute: Option<usize>,
    /// Keep all cases below this size; the oldest go first [default: 2GiB]
    #[arg(long, value_name = "SIZE", help_heading = CASES)]
    case_bytes: Option<Size>,
    /// Memory that judging a case may take, in a process of its own [default: 2GiB]
    #[arg(long, value_name = "SIZE", help_heading = CASES)]
    case_memory: Option<Size>,
    /// Take spans from a Kafka topic instead of the OTLP ports, with the settings in this TOML file; needs --data (see
    /// docs/kafka.md)
    #[arg(long, value_name = "FILE", help_heading = KAFKA)]
    kafka: Option<PathBuf>,
    /// Require tokens: a file of lines `ROLE TOKEN`, with the roles ingest (send spans), view (page and API), capture
    /// (agents, opening cases) and change
    #[arg(long, value_name = "FILE", help_heading = ACCESS)]
    token_file: Option<PathBuf>,
    /// Host name under which browsers may open the page, besides addresses and localhost; may be repeated
    #[arg(long, value_name = "NAME", help_heading = ACCESS)]
    http_host: Option<Vec<String>>,
    /// Use TLS on all ports, with this certificate chain (PEM); reread when it changes
    #[arg(long, value_name = "FILE", help_heading = ACCESS)]
    tls_cert: Option<PathBuf>,
    /// Private key of --tls-cert (PEM)
    #[arg(long, value_name = "FILE", help_heading = ACCESS)]
    tls_key: Option<PathBuf>,
    /// Require agents to present a certificate from one of these authorities (PEM); browsers and exporters need none
    #[arg(long, value_name = "FILE", help_heading = ACCESS)]
    tls_client_ca: Option<PathBuf>,
    /// Link calls to your trace UI: an http(s) address with {trace_id} in it, and {span_id} if you like, such as
    /// https://jaeger.example/trace/{trace_id}
    #[arg(long, value_name = "URL")]
    trace_url: Option<TraceUrl>,
    /// Accept other hosts without tokens, or in plain text
    #[arg(long, help_heading = ACCESS, num_args = 0, default_missing_value = "true")]
    insecure: Option<bool>,
}

const KEPT: &str = "Whole traces";
const KAFKA: &str = "Kafka";
const CASES: &str = "Cases";
const ACCESS: &str = "Access";

/// A size, or no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeOrNone(pub Option<Size>);

impl std::str::FromStr for SizeOrNone {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(SizeOrNone(None)),
            size => size.parse().map(|size| SizeOrNone(Some(size))),
        }
    }
}

impl<'de> Deserialize<'de> for SizeOrNone {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// What a row of the table stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// Client service and server service
    Pair,
    /// The same, and the method
    Method,
    /// Both services at their nodes
    Node,
    /// Client service at its node, and server service
    ClientNode,
    /// Client service, and server service at its node
    ServerNode,
    /// Both services at their pods
    Pod,
    /// Client service at its pod, and server service
    ClientPod,
    /// Client service, and server service at its pod
    ServerPod,
    /// Both services at their zones
    Zone,
    /// Client service at its zone, and server service
    ClientZone,
    /// Client service, and server service at its zone
    ServerZone,
    /// Both services at their versions
    Version,
    /// Client service at its version, and server service
    ClientVersion,
    /// Client service, and server service at its version
    ServerVersion,
}

impl From<By> for Grouping {
    fn from(by: By) -> Grouping {
        let (part, ends) = match by {
            By::Pair => return Grouping::Pair,
            By::Method => return Grouping::Method,
            By::Node => (Part::Node, Ends::Both),
            By::ClientNode => (Part::Node, Ends::Client),
            By::ServerNode => (Part::Node, Ends::Server),
            By::Pod => (Part::Pod, Ends::Both),
            By::ClientPod => (Part::Pod, Ends::Client),
            By::ServerPod => (Part::Pod, Ends::Server),
            By::Zone => (Part::Zone, Ends::Both),
            By::ClientZone => (Part::Zone, Ends::Client),
            By::ServerZone => (Part::Zone, Ends::Server),
            By::Version => (Part::Version, Ends::Both),
            By::ClientVersion => (Part::Version, Ends::Client),
            By::ServerVersion => (Part::Version, Ends::Server),
        };
        Grouping::Part(part, ends)
    }
}

impl MeterArgs {
    /// Options of the configuration file where the command line gives none.
    fn with_file(self) -> anyhow::Result<MeterArgs> {
        let Some(path) = &self.config else { return Ok(self) };
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let file: MeterArgs =
            toml::from_str(&text).with_context(|| format!("{} is not valid", path.display()))?;
        Ok(self.or(file))
    }

    fn or(self, file: MeterArgs) -> MeterArgs {
        macro_rules! first_of {
            ($($field:ident),*) => { MeterArgs { $($field: self.$field.or(file.$field)),* } };
        }
        first_of!(
            config,
            otlp_grpc,
            otlp_http,
            http,
            data,
            history_age,
            history_size,
            join_ttl,
            max_pending_bytes,
            whole_bytes,
            keep_spans,
            keep_bytes,
            keep_dir,
            max_resource_bytes,
            worst_bytes,
            sample_bytes,
            max_pairs,
            max_pairs_per_client,
            exported_pairs,
            exclude_response_over,
            response_size_attribute,
            by,
            max_request_bytes,
            request_budget,
            max_connections,
            head_timeout,
            body_timeout,
            idle_timeout,
            slow_after,
            push_otlp,
            push_interval,
            cases,
            case_over,
            case_slices_per_minute,
            case_bytes,
            case_memory,
            kafka,
            token_file,
            http_host,
            tls_cert,
            tls_key,
            tls_client_ca,
            trace_url,
            insecure
        )
    }

    fn engine(&self, clock: Clock) -> anyhow::Result<Settings> {
        let ttl = self.join_ttl.unwrap_or(Duration(15_000_000_000));
        // Arrival times are kept modulo 2^32 ms.
        let Ok(ttl_ms) = u32::try_from(ttl.ns() / 1_000_000) else {
            bail!("--join-ttl is too long: expected at most 24h");
        };
        if !(1..=86_400_000).contains(&ttl_ms) {
            bail!("--join-ttl is out of range: expected 1ms to 24h");
        }
        let bytes = |size: Option<Size>, default: u64| size.map_or(default, Size::bytes);
        Ok(Settings {
            join_ttl_ms: Some(ttl_ms),
            max_pending_bytes: bytes(self.max_pending_bytes, 1 << 30),
            keep_bytes: bytes(self.whole_bytes, 24 << 20),
            worst_bytes: bytes(self.worst_bytes, 256 << 20),
            sample_bytes: bytes(self.sample_bytes, 64 << 20),
            sampled_calls: Settings::default().sampled_calls,
            origin_limits: OriginLimits {
                bytes: bytes(self.max_resource_bytes, 64 << 20),
                ..OriginLimits::default()
            },
            pair_limits: PairLimits {
                total: self.max_pairs.unwrap_or(10_000),
                per_client: self.max_pairs_per_client.unwrap_or(500),
            },
            grouping: self.by.map_or(Grouping::Pair, Grouping::from),
            exclude_response_over: match self.exclude_response_over {
                None => Some(100 << 10),
                Some(SizeOrNone(size)) => size.map(Size::bytes),
            },
            response_size_attributes: match &self.response_size_attribute {
                None => RESPONSE_SIZE_ATTRIBUTES.map(String::from).into(),
                Some(names) => names.clone(),
            },
            epoch_unix_ms: clock.epoch_unix_ms(),
            partitioned: false,
        })
    }

    fn serve(&self) -> anyhow::Result<ServeSettings> {
        let local = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let interval = self.push_interval.map_or(std::time::Duration::from_secs(30), Duration::std);
        let usual = Deadlines::default();
        let deadlines = Deadlines {
            head: self.head_timeout.map_or(usual.head, Duration::std),
            idle: self.idle_timeout.map_or(usual.idle, Duration::std),
            body: self.body_timeout.map_or(usual.body, Duration::std),
            slow_after: self.slow_after.map_or(usual.slow_after, Duration::std),
        };
        let push = self.push_otlp.as_deref().map(|url| PushSettings::new(url, interval)).transpose();
        Ok(ServeSettings {
            otlp_grpc: self.otlp_grpc.unwrap_or(local(4317)),
            otlp_http: self.otlp_http.unwrap_or(local(4318)),
            http: self.http.unwrap_or(local(7070)),
            max_request_bytes: self.max_request_bytes.map_or(16 << 20, Size::bytes),
            request_budget_bytes: self.request_budget.map_or(40 << 20, Size::bytes),
            max_connections: self.max_connections.unwrap_or(4096),
            deadlines,
            exported_pairs: self.exported_pairs.unwrap_or(2_000),
            push: push.context("--push-otlp")?,
            tls: self.tls()?,
            spool: None,
            kafka: None,
        })
    }
}

impl MeterArgs {
    fn tls(&self) -> anyhow::Result<Option<Arc<Tls>>> {
        let (certificate, key) = match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => (certificate.clone(), key.clone()),
            (None, None) if self.tls_client_ca.is_none() => return Ok(None),
            (None, _) => {
                bail!("--tls-cert is missing: the certificate that goes with --tls-key or --tls-client-ca")
            }
            (_, None) => bail!("--tls-key is missing: the private key of --tls-cert"),
        };
        let files = TlsFiles { certificate, key, client_authorities: self.tls_client_ca.clone() };
        Ok(Some(Tls::open(files)?))
    }

    /// Refuses what would let other hosts in unknown, or read what they say to each other.
    fn must_be_meant(&self, settings: &ServeSettings) -> anyhow::Result<()> {
        let ports = [
            ("--otlp-grpc", settings.otlp_grpc),
            ("--otlp-http", settings.otlp_http),
            ("--http", settings.http),
        ];
        let open = ports.iter().find(|(_, address)| !address.ip().to_canonical().is_loopback());
        let lacks = match (settings.tls.is_some(), self.token_file.is_some()) {
            (true, true) => return Ok(()),
            (true, false) => "--token-file",
            (false, true) => "--tls-cert and --tls-key",
            (false, false) => "--tls-cert, --tls-key and --token-file",
        };
        match open {
            Some((option, address)) if self.insecure != Some(true) => bail!(
                "{option} {address} can be reached from other hosts: expected {lacks}, or --insecure to let them in without"
            ),
            _ => Ok(()),
        }
    }

    fn access(&self) -> anyhow::Result<Access> {
        let mut access = Access::new(self.http_host.clone().unwrap_or_default(), self.insecure == Some(true));
        if self.tls_client_ca.is_some() {
            access = access.with_certified_agents();
        }
        let Some(path) = &self.token_file else { return Ok(access) };
        let name = path.display();
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
        access.with_tokens(&text).with_context(|| name.to_string())
    }

    /// Where cases go, and the folder that ends with the process, where they go nowhere.
    fn cases(&self) -> anyhow::Result<(CaseSettings, Option<Temporary>)> {
        let kept = self.cases.clone().or_else(|| Some(self.data.as_ref()?.join("cases")));
        let (folder, ends) = match kept {
            Some(folder) => (folder, None),
            None => {
                let ends = Temporary::new("spangap.cases-").context("cannot make a folder for cases")?;
                (ends.path().to_owned(), Some(ends))
            }
        };
        let settings = CaseSettings {
            folder,
            over_ns: self.case_over.map(Duration::ns),
            slices_per_minute: self.case_slices_per_minute.unwrap_or(6),
            most_bytes: self.case_bytes.map_or(2 << 30, Size::bytes),
            slice_bytes: SLICE_BYTES,
            slice_time: SLICE_TIME,
            experiment_block: EXPERIMENT_BLOCK,
            // Of this very file, whatever is installed meanwhile.
            judge: Some(Program {
                path: "/proc/self/exe".into(),
                most_bytes: self.case_memory.map_or(2 << 30, Size::bytes),
            }),
        };
        Ok((settings, ends))
    }
}

/// Bytes of a slice as sent: some hundred thousand packets without their payload.
const SLICE_BYTES: u64 = 32 << 20;

/// A meter with its history open, not yet listening.
pub struct Service {
    /// The engine.
    pub meter: Arc<Meter>,
    clock: Clock,
    trace_url: Option<TraceUrl>,
    settings: ServeSettings,
    history: History,
    stored: bool,
    access: Arc<Access>,
    agents: Arc<Agents>,
    /// Agents and cases.
    pub cases: Arc<Cases>,
    _ends: Option<Temporary>,
}

impl MeterArgs {
    /// Validates the settings and opens the history.
    pub fn start(self) -> anyhow::Result<Service> {
        let args = self.with_file()?;
        let mut serving = args.serve()?;
        args.must_be_meant(&serving)?;
        serving.spool = args.spool()?;
        let clock = Clock::start();
        let kafka = args.kafka()?;
        let mut engine = args.engine(clock)?;
        if let Some((settings, _)) = &kafka {
            engine.partitioned = true;
            engine.join_ttl_ms =
                engine.join_ttl_ms.map(|ttl_ms| ttl_ms.saturating_add(settings.disorder_ms()));
        }
        let meter = Arc::new(Meter::new(engine));
        let limits = Limits {
            max_age_s: args.history_age.map_or(14 * 86_400, |age| age.ns() / 1_000_000_000),
            max_bytes: args.history_size.map_or(1 << 30, Size::bytes),
        };
        let file = args.data.as_deref().map(|directory| directory.join("history.sqlite"));
        let mut history = History::open(file.as_deref(), limits, clock.unix_s())?;
        if let Some((settings, password)) = kafka {
            let kafka = Kafka::open(settings, password, meter.clone(), &mut history)?;
            serving.kafka = Some(Arc::new(kafka));
        }
        let stored = file.is_some();
        match stored {
            true => eprintln!("spangap: history: {}", history.last_run()),
            false => {
                eprintln!(
                    "spangap: history: in memory only, lost when this process exits; --data DIR keeps it"
                )
            }
        }
        let (settings, ends) = args.cases()?;
        let (access, agents) = (Arc::new(args.access()?), Arc::new(Agents::default()));
        let folder = settings.folder.clone();
        let cases = Cases::open(meter.clone(), agents.clone(), access.clone(), settings);
        let cases = cases.with_context(|| format!("the folder of cases {}", folder.display()))?;
        let trace_url = args.trace_url.clone();
        Ok(Service {
            meter,
            clock,
            trace_url,
            settings: serving,
            history,
            stored,
            access,
            agents,
            cases,
            _ends: ends,
        })
    }
}

/// Ready when somebody asks this process to end.
pub type ShutdownRequest = Pin<Box<dyn Future<Output = ()>>>;

impl Service {
    /// Serves until `stop` is done, which is given what tells when somebody asks this process to end. `on_ready` hears the
    /// addresses once they are listened on.
    pub fn run<S: Future<Output = anyhow::Result<()>>>(
        self,
        on_ready: impl FnOnce(&Addresses),
        stop: impl FnOnce(ShutdownRequest) -> S,
    ) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let mut stopped = Ok(());
        runtime.block_on(async {
            // Before anybody hears that it is ready: who has may ask it to end at once.
            let stop = stop(Box::pin(stop_signal()?));
            let stop = async { stopped = stop.await };
            let watching = tokio::spawn(self.cases.clone().run());
            let refusing = self.agents.clone();
            let guests = Guests {
                refusals: Refusals::of(move || refusing.refused().reasons()),
                page: web::router(self.trace_url.as_ref()).merge(api::router(self.cases.clone())),
                grpc: Some(server::guest(self.agents, self.access.clone(), SLICE_BYTES)),
                access: self.access,
            };
            let served =
                serve(self.meter, self.clock, self.settings, self.history, guests, on_ready, stop).await;
            watching.abort();
            served?;
            anyhow::Ok(())
        })?;
        eprintln!("spangap: stopped{}", if self.stored { "; the history is closed" } else { "" });
        stopped
    }
}

/// Serves until Ctrl-C or SIGTERM.
pub fn run(args: MeterArgs) -> anyhow::Result<Outcome> {
    args.start()?.run(announce, |asked| async {
        asked.await;
        Ok(())
    })?;
    Ok(Outcome::Done)
}

/// The readiness lines, on standard output: scripts wait for `ready`.
pub fn announce(addresses: &Addresses) {
    let mut out = std::io::stdout().lock();
    // Nobody reading standard output is no reason to stop measuring.
    let _ = writeln!(out, "otlp/grpc {}", addresses.otlp_grpc);
    let _ = writeln!(out, "otlp/http {}", addresses.otlp_http);
    let scheme = if addresses.tls { "https" } else { "http" };
    let _ = writeln!(out, "page {scheme}://{}/", addresses.http);
    let _ = writeln!(out, "ready");
    let _ = out.flush();
}
