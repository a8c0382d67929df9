//! From arguments to validated settings of the meter, its ports and its cases.

use super::{MeterArgs, SizeOrNone};
use crate::temporary::Temporary;
use crate::values::{Duration, Size};
use anyhow::{Context, bail};
use spangap_cases::cases::{CaseSettings, EXPERIMENT_BLOCK, SLICE_TIME};
use spangap_cases::verdict::Program;
use spangap_meter::engine::Settings;
use spangap_meter::entry::MOST_LANES;
use spangap_meter::export::otlp::PushSettings;
use spangap_meter::ingest::origins::Limits as OriginLimits;
use spangap_meter::ingest::semconv::RESPONSE_SIZE_ATTRIBUTES;
use spangap_meter::pairs::{Grouping, PairLimits};
use spangap_meter::serve::ServeSettings;
use spangap_meter::serve::access::Access;
use spangap_meter::serve::clock::Clock;
use spangap_meter::serve::places::Deadlines;
use spangap_meter::serve::tls::{Tls, TlsFiles};
use std::net::SocketAddr;
use std::sync::Arc;

/// Bytes of a slice as sent: some hundred thousand packets without their payload.
pub(super) const SLICE_BYTES: u64 = 32 << 20;

impl MeterArgs {
    fn lanes(&self) -> anyhow::Result<usize> {
        let lanes = self.lanes.unwrap_or(1);
        if !(1..=MOST_LANES).contains(&lanes) {
            bail!("--lanes is out of range: expected 1 to {MOST_LANES}");
        }
        Ok(lanes)
    }

    pub(super) fn engine(&self, clock: Clock) -> anyhow::Result<Settings> {
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
            peers_secret: self.peers_secret()?,
            lanes: self.lanes()?,
        })
    }

    pub(super) fn serve(&self) -> anyhow::Result<ServeSettings> {
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
            clickhouse: None,
        })
    }

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
    pub(super) fn must_be_meant(&self, settings: &ServeSettings) -> anyhow::Result<()> {
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

    pub(super) fn access(&self) -> anyhow::Result<Access> {
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
    pub(super) fn cases(&self) -> anyhow::Result<(CaseSettings, Option<Temporary>)> {
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
