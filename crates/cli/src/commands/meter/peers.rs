//! `--peers`: asks the other meters, once a second, which halves found no mate there.

use super::super::hunt::meter::roots;
use super::MeterArgs;
use anyhow::{Context, bail};
use spangap_meter::engine::Meter;
use spangap_meter::peers::{LEAST_SECRET_BYTES, MOST_ANSWER_BYTES, PATH, ROUND_MS};
use spangap_meter::serve::clock::Clock;
use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;
use ureq::tls::TlsConfig;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};
use ureq::{Agent, config::Config, http};

/// Time for an answer.
const ANSWERS: Duration = Duration::from_secs(2);
/// Meters asked at most.
const MOST_PEERS: usize = 256;

impl MeterArgs {
    /// The secret of `--peers-key`, if there are peers.
    pub(super) fn peers_secret(&self) -> anyhow::Result<Option<Vec<u8>>> {
        let path = match (&self.peers, &self.peers_key) {
            (None, None) if self.peers_ca.is_none() => return Ok(None),
            (None, _) => bail!("--peers is missing: the meters that --peers-key and --peers-ca are for"),
            (Some(_), None) => {
                bail!("--peers needs a secret that the meters share: expected --peers-key FILE as well")
            }
            (Some(_), Some(path)) => path,
        };
        if self.kafka.is_some() {
            bail!("--peers is for spans that a balancer distributes: expected no --kafka with it");
        }
        let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let secret = text.trim_ascii();
        if secret.len() < LEAST_SECRET_BYTES {
            bail!("{}: expected a secret of at least {LEAST_SECRET_BYTES} characters", path.display());
        }
        Ok(Some(secret.to_vec()))
    }

    /// Starts asking the peers, for as long as the meter exists.
    pub(super) fn ask_peers(&self, meter: &Arc<Meter>, clock: Clock) -> anyhow::Result<()> {
        let Some(names) = self.peers.clone() else { return Ok(()) };
        for name in &names {
            let port = name.rsplit_once(':').and_then(|(host, port)| (!host.is_empty()).then_some(port));
            if port.is_none_or(|port| port.parse::<u16>().is_err()) {
                bail!("--peers {name}: expected HOST:PORT of a meter's page, such as meters.example:7070");
            }
        }
        let is_tls = self.tls_cert.is_some();
        let roots = if is_tls { Some(roots(self.peers_ca.as_deref()).context("--peers-ca")?) } else { None };
        let tls = roots.map(|roots| TlsConfig::builder().root_certs(roots).build());
        let config = Agent::config_builder()
            .timeout_global(Some(ANSWERS))
            .max_redirects(0)
            .max_idle_connections(0)
            .proxy(None)
            .tls_config(tls.unwrap_or_default())
            .build();
        let Some(token) = meter.peers().map(|peers| peers.token().to_owned()) else { return Ok(()) };
        let scheme = if is_tls { "https" } else { "http" };
        let asking = Asking { names, scheme, token, config, clock };
        let meter = Arc::downgrade(meter);
        thread::Builder::new().name("peers".into()).spawn(move || asking.run(&meter))?;
        Ok(())
    }
}

/// Whom to ask, and how.
struct Asking {
    names: Vec<String>,
    scheme: &'static str,
    token: String,
    config: Config,
    clock: Clock,
}

/// A name stands for all addresses of its meters; a question is for one of them.
#[derive(Debug)]
struct At(SocketAddr);

impl Resolver for At {
    fn resolve(&self, _: &http::Uri, _: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let mut one = self.empty();
        one.push(self.0);
        Ok(one)
    }
}

/// Why nothing was heard, and whether nobody is there.
struct Miss(String, bool);

impl From<ureq::Error> for Miss {
    fn from(error: ureq::Error) -> Miss {
        let refused =
            matches!(&error, ureq::Error::Io(reason) if reason.kind() == ErrorKind::ConnectionRefused);
        Miss(error.to_string(), refused)
    }
}

impl Asking {
    fn run(&self, meter: &Weak<Meter>) {
        // Addresses keep the name by which they were found last: their certificates may be for it.
        let mut names = HashMap::new();
        while let Some(meter) = meter.upgrade() {
            let listed = self.listed(&mut names);
            let listed: Vec<String> = listed.iter().map(SocketAddr::to_string).collect();
            let asked = meter.peers().map(|mut peers| peers.list(&listed, self.clock.now_ms()));
            let asked: Vec<SocketAddr> =
                asked.iter().flatten().filter_map(|text| text.parse().ok()).collect();
            names.retain(|address, _| asked.contains(address));
            thread::scope(|scope| {
                for address in &asked {
                    let (meter, name) = (&meter, names.get(address));
                    scope.spawn(move || self.ask(meter, *address, name));
                }
            });
            drop(meter);
            thread::sleep(Duration::from_millis(ROUND_MS));
        }
    }

    /// The addresses of all names. One that cannot be resolved keeps those that it had.
    fn listed(&self, names: &mut HashMap<SocketAddr, String>) -> Vec<SocketAddr> {
        let mut listed = Vec::new();
        for name in &self.names {
            match name.to_socket_addrs() {
                Ok(found) => listed.extend(found),
                Err(_) => listed
                    .extend(names.iter().filter(|(_, known)| *known == name).map(|(address, _)| *address)),
            }
            listed.truncate(MOST_PEERS);
            listed.iter().for_each(|address| {
                names.entry(*address).or_insert_with(|| name.clone());
            });
        }
        listed
    }

    fn ask(&self, meter: &Meter, address: SocketAddr, name: Option<&String>) {
        let place = name.cloned().unwrap_or_else(|| address.to_string());
        let known = address.to_string();
        let agent = Agent::with_parts(self.config.clone(), DefaultConnector::default(), At(address));
        loop {
            let Some(after) = meter.peers().map(|peers| peers.after(&known)) else { return };
            let asked_ms = self.clock.now_ms();
            let answer = self.answer(&agent, &format!("{}://{place}{PATH}?after={after}", self.scheme));
            let now_ms = self.clock.now_ms();
            let Some(mut peers) = meter.peers() else { return };
            match answer.map(|answer| peers.hear(&known, after, &answer, asked_ms, now_ms)) {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) => return,
                Ok(Err(why)) => return peers.miss(&known, why, false, now_ms),
                Err(Miss(why, is_gone)) => return peers.miss(&known, why, is_gone, now_ms),
            }
        }
    }

    fn answer(&self, agent: &Agent, url: &str) -> Result<Vec<u8>, Miss> {
        let mut answer = agent.get(url).header("authorization", format!("Bearer {}", self.token)).call()?;
        Ok(answer.body_mut().with_config().limit(MOST_ANSWER_BYTES as u64 + 1).read_to_vec()?)
    }
}
