//! `spangap meter`: the always-on service.

mod clickhouse;
mod grouping;
mod kafka;
mod kept;
mod kubernetes;
mod peers;
mod service;
mod settings;
mod toml_file;

use crate::Outcome;
use crate::values::{Duration, Size};
use crate::web::TraceUrl;
use anyhow::Context;
use clap::Args;
pub use grouping::By;
use serde::Deserialize;
use spangap_meter::serve::Addresses;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;

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
    /// Threads that can join spans at the same time, 1 to 8, for machines with several CPUs; each has statistics of its own for
    /// the current minutes, which takes memory [default: 1]
    #[arg(long, value_name = "N")]
    lanes: Option<usize>,
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
    /// In a pod: name the pod, node, zone and version of spans that do not state them by asking the Kubernetes API, as the service
    /// account in this folder (`token`, `ca.crt`), which may list and watch pods and nodes
    #[arg(long, value_name = "DIR")]
    kubernetes: Option<PathBuf>,
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
    /// Other meters behind the same balancer: addresses of their pages. They tell each other which spans found no mate, so that
    /// calls whose spans went to two of them are counted as such. All addresses of a name count, this meter's own too; may be
    /// repeated
    #[arg(long, value_name = "HOST:PORT", help_heading = SEVERAL)]
    peers: Option<Vec<String>>,
    /// File with the secret that they share, at least 32 characters
    #[arg(long, value_name = "FILE", help_heading = SEVERAL)]
    peers_key: Option<PathBuf>,
    /// With --tls-cert: trust these authorities (PEM) for the certificates of other meters [default: those of this host]
    #[arg(long, value_name = "FILE", help_heading = SEVERAL)]
    peers_ca: Option<PathBuf>,
    /// Share closed minutes with other meters through ClickHouse, with the settings in this TOML file; the page and the API of
    /// each then show the calls of all. Needs --data (see docs/clickhouse.md)
    #[arg(long, value_name = "FILE", help_heading = SEVERAL)]
    clickhouse: Option<PathBuf>,
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
const SEVERAL: &str = "Several meters";
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
            lanes,
            exported_pairs,
            exclude_response_over,
            response_size_attribute,
            by,
            kubernetes,
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
            peers,
            peers_key,
            peers_ca,
            clickhouse,
            token_file,
            http_host,
            tls_cert,
            tls_key,
            tls_client_ca,
            trace_url,
            insecure
        )
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
