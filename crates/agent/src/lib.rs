//! The per-host recorder: rings in memory, and slices of them on request.
//!
//! [`run`] starts the sensors, each in its own thread, connects to the meter and answers its requests.
//! Nothing here changes the host: permitted changes are made by a separate process (`spangap-actuator`), if
//! the settings allow any. Only slices leave the host, masked unless the settings say otherwise.

#![warn(missing_docs)]

mod actuator;
mod budget;
mod comeback;
mod copies;
mod events;
mod fit;
mod health;
mod history;
mod inventory;
mod link;
mod machine;
mod masked;
mod openings;
mod packets;
mod reach;
mod sensors;
mod settings;
mod shifts;
mod slice;
mod stream;

pub use settings::{Actuator, Payload, Settings, TlsFiles};

use actuator::Hands;
use sensors::Sensors;
use std::future::Future;
use std::sync::Arc;
use tokio::sync::watch;

/// Why the agent cannot start.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// No instrument works.
    #[error("nothing can be recorded here: {}", .0.join("; "))]
    NoInstrument(Vec<String>),
    /// The meter's URL is invalid.
    #[error("--meter: {url:?} is not a URL of a meter: {reason}; expected http://HOST:PORT")]
    Meter {
        /// The given URL.
        url: String,
        /// The reason.
        reason: String,
    },
    /// The health port is unavailable.
    #[error("cannot listen on {address} for questions about health: {error}")]
    Health {
        /// Its address.
        address: std::net::SocketAddr,
        /// The reason.
        error: std::io::Error,
    },
    /// A thread or another resource of this process cannot be created.
    #[error("cannot {what}: {error}")]
    Start {
        /// The attempted action.
        what: &'static str,
        /// The reason.
        error: std::io::Error,
    },
    /// An interface or a process in `--interface` or `--pid` does not exist.
    #[error(transparent)]
    Ring(#[from] spangap_wire::source::ring::RingError),
}

/// Records and answers requests until `stop` completes. `say` receives messages for the operator, one
/// sentence each.
///
/// # Errors
/// Only failures to start: once it runs, it continues with whatever works.
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
    // Started before the sensors, so that it inherits none of their descriptors.
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
