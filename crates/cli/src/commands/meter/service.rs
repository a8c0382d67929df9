//! The meter as a service: opened with its history, then serving until it is asked to end.

use super::super::target::stop_signal;
use super::MeterArgs;
use super::clickhouse::share;
use super::kubernetes;
use super::settings::SLICE_BYTES;
use crate::temporary::Temporary;
use crate::values::Size;
use crate::web::{self, TraceUrl};
use anyhow::Context;
use spangap_cases::agents::Agents;
use spangap_cases::cases::Cases;
use spangap_cases::{api, server};
use spangap_meter::engine::Meter;
use spangap_meter::history::{History, Limits};
use spangap_meter::kafka::Kafka;
use spangap_meter::serve::access::Access;
use spangap_meter::serve::clock::Clock;
use spangap_meter::serve::{Addresses, Guests, Refusals, ServeSettings, serve};
use std::pin::Pin;
use std::sync::Arc;

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
        let clickhouse = args.clickhouse()?;
        let mut engine = args.engine(clock)?;
        if let Some((settings, _)) = &kafka {
            engine.partitioned = true;
            engine.join_ttl_ms =
                engine.join_ttl_ms.map(|ttl_ms| ttl_ms.saturating_add(settings.disorder_ms()));
        }
        let meter = Arc::new(Meter::new(engine));
        if let Some(account) = &args.kubernetes {
            kubernetes::follow(&meter, account).context("--kubernetes")?;
        }
        args.ask_peers(&meter, clock)?;
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
        serving.clickhouse = share(clickhouse.as_ref(), &mut history)?.map(Arc::new);
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
