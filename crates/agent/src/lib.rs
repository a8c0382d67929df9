//! The per-host recorder: rings in memory, and slices of them on request.
//!
//! [`run`] starts the sensors, each in its own thread, connects to the meter and answers its requests. Nothing here
//! changes the host: permitted changes are made by a separate process (`spangap-actuator`), if the settings allow any.
//! Nothing leaves the host but slices, masked unless the settings say otherwise.

mod actuator;
mod budget;
mod comeback;
mod copies;
mod events;
mod health;
mod inventory;
mod link;
mod machine;
mod masked;
mod openings;
mod packets;
mod reach;
mod sensors;
mod settings;
mod slice;

pub use actuator::Actuator;
pub use settings::{Payload, Settings, TlsFiles};

use actuator::Hands;
use sensors::Sensors;
use std::future::Future;
use std::sync::Arc;
use tokio::sync::watch;

/// The agent cannot start.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// No instrument works.
    #[error("nothing can be recorded here: {}", .0.join("; "))]
    NoInstrument(Vec<String>),
    /// The meter's URL is none.
    #[error("--meter: {url:?} is not a URL of a meter: {reason}; expected http://HOST:PORT")]
    Meter {
        /// What was said.
        url: String,
        /// Why not.
        reason: String,
    },
    /// The health port cannot be had.
    #[error("cannot listen on {address} for questions about health: {error}")]
    Health {
        /// Where.
        address: std::net::SocketAddr,
        /// Why not.
        error: std::io::Error,
    },
    /// A thread cannot be started, or another thing of this process.
    #[error("cannot {what}: {error}")]
    Start {
        /// What was tried.
        what: &'static str,
        /// Why not.
        error: std::io::Error,
    },
    /// What `--interface` or `--pid` names is not there.
    #[error(transparent)]
    Ring(#[from] spangap_wire::source::ring::RingError),
}

/// Records and answers until `stop` is over. `say` gets what its operator should know, a sentence at a time.
///
/// # Errors
/// Only what keeps it from starting: once it runs, it goes on with what it can.
pub async fn run(
    settings: Settings,
    say: impl Fn(&str) + Send + Sync + 'static,
    stop: impl Future<Output = ()>,
) -> Result<(), AgentError> {
    let meter = link::Meter::at(&settings)?;
    let listener = match settings.health {
        None => None,
        Some(address) => Some(health::listen(address).await?),
    };
    let say: settings::Say = Arc::new(say);
    let (told, health) = watch::channel(Arc::default());
    let settings = Arc::new(settings);
    // Before the sensors: it takes nothing of what they open along.
    let hands = Arc::new(Hands::start(settings.actuator.as_ref(), &say)?);
    let sensors = Arc::new(Sensors::start(&settings, &say)?);
    sensors.instruments().into_iter().for_each(|line| say(&line));
    sensors.lacks().iter().for_each(|lack| say(&format!("not known: {lack}")));
    let tasks = async {
        tokio::join!(
            budget::watch(&settings, &sensors, &say, told),
            link::keep(&meter, &settings, &sensors, &hands, &say, health.clone()),
            health::serve(listener, health.clone()),
        )
    };
    tokio::select! {
        _ = tasks => {}
        () = stop => {}
    }
    hands.stop();
    sensors.stop();
    Ok(())
}
