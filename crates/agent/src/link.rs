//! The stream to the meter, reconnected whenever it breaks.

use crate::AgentError;
use crate::actuator::Hands;
use crate::health::Health;
use crate::inventory::Scope;
use crate::sensors::Sensors;
use crate::settings::{Say, Settings, TlsFiles};
use crate::slice;
use spangap_fleet::PROTOCOL;
use spangap_fleet::v1::fleet_client::FleetClient;
use spangap_fleet::v1::{self, from_agent, from_meter};
use spangap_machine::facts::{boot_id, system_name};
use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::timeout;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A silent meter is pinged after this time, and must answer within the same time.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// First and longest pause between attempts, doubled each time, with jitter.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(15));
/// Messages queued for the meter, which bounds the cost of a slow meter.
const WAITING: usize = 4;
/// Slices queued behind the current one.
const SLICES_WAITING: usize = 16;

/// Address of the meter.
pub(crate) struct Meter {
    endpoint: Endpoint,
    url: String,
}

impl Meter {
    pub fn at(settings: &Settings) -> Result<Meter, AgentError> {
        let url = settings.meter.clone();
        let wrong = |reason: String| AgentError::Meter { url: url.clone(), reason };
        let endpoint = Endpoint::from_shared(url.clone()).map_err(|error| wrong(error.to_string()))?;
        let uri = endpoint.uri();
        if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none() {
            return Err(wrong("it begins with neither http:// nor https://".into()));
        }
        let endpoint = endpoint
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE)
            .keep_alive_while_idle(true)
            .tcp_nodelay(true);
        Ok(Meter { endpoint, url })
    }

    fn is_tls(&self) -> bool {
        self.endpoint.uri().scheme_str() == Some("https")
    }

    fn is_here(&self) -> bool {
        let host = self.endpoint.uri().host().unwrap_or_default();
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
        address.map_or(host == "localhost", |address| address.is_loopback())
    }

    /// Connects. The TLS files are read for every connection, since certificates are renewed while the agent
    /// runs.
    async fn connect(&self, files: &TlsFiles) -> Result<Channel, String> {
        let mut endpoint = self.endpoint.clone();
        if self.is_tls() {
            endpoint = endpoint.tls_config(tls(files)?).map_err(|error| causes(&error))?;
        }
        endpoint.connect().await.map_err(|error| causes(&error))
    }
}

fn tls(files: &TlsFiles) -> Result<ClientTlsConfig, String> {
    let read = |path: &PathBuf| fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
    let config = match &files.authorities {
        Some(path) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(path)?)),
        None => ClientTlsConfig::new().with_native_roots(),
    };
    Ok(match &files.own {
        Some((certificate, key)) => config.identity(Identity::from_pem(read(certificate)?, read(key)?)),
        None => config,
    })
}

/// Attaches, and reattaches for ever.
pub(crate) async fn keep(
    meter: &Meter,
    settings: &Arc<Settings>,
    sensors: &Arc<Sensors>,
    hands: &Hands,
    say: &Say,
    health: watch::Receiver<Arc<Health>>,
) {
    let session = fastrand::u64(..);
    if settings.token_file.is_some() && !meter.is_tls() && !meter.is_here() {
        say(&format!(
            "the token goes to {} in plain text: use https:// where others can read the network",
            meter.url
        ));
    }
    let mut pause = PAUSES.0;
    let mut told = String::new();
    let state = health.borrow().meter.clone();
    let state = || state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    loop {
        let mut welcome = false;
        let why = attach(meter, settings, sensors, hands, health.clone(), session, &mut |news| match news {
            News::Welcome => {
                welcome = true;
                let mut state = state();
                state.attached = true;
                state.times += 1;
                state.why_not = None;
                say(&format!("attached to {}", meter.url));
            }
            News::Ordered(order) => {
                say(&format!("received an order, from {}: {}", plain(&order.asked_by), plain(&order.case)))
            }
            News::Asked(ask) => {
                state().slices += 1;
                say(&format!(
                    "a slice of {} ms is asked for: {}",
                    (ask.to_unix_ns.saturating_sub(ask.from_unix_ns)) / 1_000_000,
                    plain(&ask.reason)
                ));
            }
        })
        .await;
        if welcome {
            pause = PAUSES.0;
            told.clear();
        }
        {
            let mut state = state();
            state.attached = false;
            state.why_not = Some(why.clone());
        }
        if why != told {
            say(&format!("not connected to {}: {why}; retrying until it works", meter.url));
            told = why;
        }
        // Agents that lost the same meter must not return at the same moment.
        let jittered = pause.mul_f64(0.5 + fastrand::f64());
        pause = (pause * 2).min(PAUSES.1);
        tokio::time::sleep(jittered).await;
    }
}

/// Events of a stream.
enum News<'a> {
    Welcome,
    Asked(&'a v1::Ask),
    Ordered(&'a v1::Order),
}

/// Runs one stream from start to end. Returns why it ended.
async fn attach(
    meter: &Meter,
    settings: &Arc<Settings>,
    sensors: &Arc<Sensors>,
    hands: &Hands,
    mut health: watch::Receiver<Arc<Health>>,
    session: u64,
    on: &mut (dyn FnMut(News<'_>) + Send),
) -> String {
    let channel = match meter.connect(&settings.tls).await {
        Ok(channel) => channel,
        Err(error) => return error,
    };
    let (to, from) = mpsc::channel::<v1::FromAgent>(WAITING);
    let message = |what| v1::FromAgent { what: Some(what) };
    let mut inventory = sensors.inventory();
    let allows = hands.allows().to_vec();
    let hello = hello(settings, sensors, allows, session, inventory.clone());
    // The first message always fits.
    let _first = to.try_send(message(from_agent::What::Hello(hello)));
    let mut request = tonic::Request::new(ReceiverStream::new(from));
    match token(settings) {
        Ok(Some(token)) => drop(request.metadata_mut().insert("authorization", token)),
        Ok(None) => {}
        Err(error) => return error,
    }
    let attached = timeout(2 * KEEP_ALIVE, FleetClient::new(channel).attach(request)).await;
    let mut stream = match attached {
        Ok(Ok(stream)) => stream.into_inner(),
        Ok(Err(status)) => return format!("the meter says: {}", plain(status.message())),
        Err(_) => return "the meter does not answer".into(),
    };
    let one_at_a_time = Arc::new(Semaphore::new(1));
    let mut slices: HashMap<u64, Arc<AtomicBool>> = HashMap::new();
    let (done, mut over) = mpsc::channel::<u64>(SLICES_WAITING + 1);
    let mut reports = hands.reports.lock().await;
    // Discards messages to a meter that is gone.
    while reports.try_recv().is_ok() {}
    let ended = loop {
        tokio::select! {
            Some(report) = reports.recv() => {
                if to.send(message(from_agent::What::Report(report))).await.is_err() {
                    break "the stream is gone".to_owned();
                }
            }
            message_in = stream.next() => match message_in {
                None => break "the meter ended the stream".to_owned(),
                Some(Err(status)) => break format!("the meter says: {}", plain(status.message())),
                Some(Ok(message_in)) => match message_in.what {
                    Some(from_meter::What::Welcome(welcome)) if welcome.protocol != PROTOCOL => {
                        break format!("the meter speaks version {} of the protocol, this agent {PROTOCOL}", welcome.protocol);
                    }
                    Some(from_meter::What::Welcome(_)) => on(News::Welcome),
                    Some(from_meter::What::Ask(ask)) => {
                        on(News::Asked(&ask));
                        if slices.len() >= SLICES_WAITING || slices.contains_key(&ask.id) {
                            let error = format!("{} slices are asked for already, or this one is", slices.len());
                            let end = v1::SliceEnd { ask: ask.id, error, ..v1::SliceEnd::default() };
                            if to.send(message(from_agent::What::End(end))).await.is_err() {
                                break "the stream is gone".to_owned();
                            }
                            continue;
                        }
                        let cancelled = Arc::new(AtomicBool::new(false));
                        slices.insert(ask.id, cancelled.clone());
                        let (settings, sensors, to, done) = (settings.clone(), sensors.clone(), to.clone(), done.clone());
                        let turn = one_at_a_time.clone();
                        tokio::spawn(async move {
                            let id = ask.id;
                            // Never closed.
                            let _turn = turn.acquire().await;
                            slice::answer(ask, settings, sensors, to, cancelled).await;
                            // Its stream may have ended.
                            let _gone = done.send(id).await;
                        });
                    }
                    Some(from_meter::What::Cancel(cancel)) => {
                        if let Some(cancelled) = slices.get(&cancel.id) {
                            cancelled.store(true, Relaxed);
                        }
                    }
                    Some(from_meter::What::Order(order)) => {
                        on(News::Ordered(&order));
                        hands.order(order);
                    }
                    Some(from_meter::What::Undo(undo)) => hands.undo(undo.order),
                    // A message of a newer meter.
                    None => {}
                },
            },
            Some(id) = over.recv() => drop(slices.remove(&id)),
            changed = health.changed() => {
                if changed.is_err() {
                    break "the agent ends".to_owned();
                }
                let told = health.borrow_and_update().told.clone();
                // A health message that does not fit may be dropped: a slice may fill the stream.
                let full = |sent: Result<(), mpsc::error::TrySendError<v1::FromAgent>>| matches!(sent, Err(mpsc::error::TrySendError::Closed(_)));
                if full(to.try_send(message(from_agent::What::Health(told)))) {
                    break "the stream is gone".to_owned();
                }
                let now = sensors.inventory();
                if now != inventory && to.try_send(message(from_agent::What::Inventory(now.clone()))).is_ok() {
                    inventory = now;
                }
            }
        }
    };
    // The meter that ordered changes can no longer end them.
    hands.undo(0);
    // Nobody waits for the current slices.
    slices.values().for_each(|cancelled| cancelled.store(true, Relaxed));
    ended
}

fn hello(
    settings: &Settings,
    sensors: &Sensors,
    allows: Vec<String>,
    session: u64,
    inventory: v1::Inventory,
) -> v1::Hello {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let machine_id = ["/etc/machine-id", "/var/lib/dbus/machine-id"].map(read);
    let own = spangap_sockets::network_namespace(std::process::id());
    let mut lacks = sensors.lacks().to_vec();
    if let Scope::Own(_) = Scope::here(settings.whole_node) {
        lacks.push("other network namespaces of this machine: it runs in one of its own".into());
    }
    v1::Hello {
        protocol: PROTOCOL,
        spangap: env!("CARGO_PKG_VERSION").into(),
        host_name: system_name::host_here(),
        machine_id: machine_id.into_iter().find(|id| !id.is_empty()).unwrap_or_default(),
        boot_id: boot_id::here().unwrap_or_default(),
        kernel: system_name::kernel_here(),
        netns: own.unwrap_or(0),
        session,
        payload: v1::Payload::from(settings.payload).into(),
        instruments: sensors.names(),
        lacks,
        inventory: Some(inventory),
        allows,
    }
}

/// The token as the meter expects it, which must never be logged.
fn token(
    settings: &Settings,
) -> Result<Option<tonic::metadata::MetadataValue<tonic::metadata::Ascii>>, String> {
    let Some(path) = &settings.token_file else { return Ok(None) };
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let value = format!("Bearer {}", text.trim()).parse();
    let mut value: tonic::metadata::MetadataValue<_> =
        value.map_err(|_| format!("{}: expected one line of printable characters", path.display()))?;
    value.set_sensitive(true);
    Ok(Some(value))
}

/// An error with its sources.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = error.source();
    }
    text
}

/// Text from others, made safe for a terminal.
fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(200).collect()
}
