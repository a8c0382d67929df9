//! Metric push by OTLP over gRPC. The figures are cumulative, so the next push makes up for a missed one.

mod convert;
mod retry;

use super::snapshot::Snapshot;
pub use convert::{MAX_POINTS, requests};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use retry::{Retry, retry};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior};
use tonic::Status;
use tonic::transport::{Channel, Endpoint, Uri};

const FIRST_BACKOFF: Duration = Duration::from_millis(500);
const LONGEST_BACKOFF: Duration = Duration::from_secs(30);
/// Timeout of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit of the last push when the meter stops.
const LAST_PUSH: Duration = Duration::from_secs(2);

/// Destination and interval of pushes.
#[derive(Clone, Debug)]
pub struct PushSettings {
    receiver: Uri,
    interval: Duration,
}

/// Why push settings are rejected.
#[derive(Debug, thiserror::Error)]
pub enum PushSettingsError {
    /// Not the address of an OTLP/gRPC receiver.
    #[error("{0:?} is not an address for metrics: expected http://HOST:PORT of an OTLP/gRPC receiver")]
    Url(String),
    /// The interval is zero.
    #[error("an interval of zero between pushes: expected at least 1ms")]
    Interval,
}

impl PushSettings {
    /// Pushes to `http://HOST:PORT`, once per `interval`.
    ///
    /// # Errors
    /// When the address or the interval is invalid.
    pub fn new(url: &str, interval: Duration) -> Result<PushSettings, PushSettingsError> {
        let refused = || PushSettingsError::Url(url.to_owned());
        let receiver: Uri = url.parse().map_err(|_| refused())?;
        let plain = receiver.path() == "/" && receiver.query().is_none();
        if receiver.scheme_str() != Some("http") || receiver.port().is_none() || !plain {
            return Err(refused());
        }
        if interval.is_zero() {
            return Err(PushSettingsError::Interval);
        }
        Ok(PushSettings { receiver, interval })
    }
}

/// The task that pushes until [`Push::stop`].
#[derive(Debug)]
pub struct Push {
    stopping: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Push {
    /// Starts pushing the snapshots of `source`. `notice` receives a message when pushes start to fail and
    /// when they recover, once per streak. Must be called inside a tokio runtime.
    pub fn start(
        settings: PushSettings,
        source: impl Fn() -> Snapshot + Send + Sync + 'static,
        notice: impl Fn(String) + Send + Sync + 'static,
    ) -> Push {
        let (stopping, stopped) = watch::channel(false);
        let url = format!("http://{}", settings.receiver.authority().map_or("", |a| a.as_str()));
        let endpoint = Endpoint::from(settings.receiver).connect_timeout(REQUEST_TIMEOUT);
        let client = MetricsServiceClient::new(endpoint.timeout(REQUEST_TIMEOUT).connect_lazy());
        let interval = settings.interval;
        let pusher = Pusher { client, source: Arc::new(source), notice, url, interval, failing: false };
        Push { stopping, task: tokio::spawn(pusher.run(stopped)) }
    }

    /// Pushes the final figures once, for at most two seconds, and ends.
    pub async fn stop(self) {
        self.stopping.send_replace(true);
        // The task ends by itself; if it panicked, there is nothing left to push.
        let _ = self.task.await;
    }
}

struct Pusher<S, N> {
    client: MetricsServiceClient<Channel>,
    source: Arc<S>,
    notice: N,
    url: String,
    interval: Duration,
    failing: bool,
}

impl<S: Fn() -> Snapshot + Send + Sync + 'static, N: Fn(String)> Pusher<S, N> {
    async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        let mut ticks = tokio::time::interval(self.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let stop = async move {
            // An error means that the sender is gone, which also means stop.
            let _ = stopped.wait_for(|stop| *stop).await;
        };
        tokio::pin!(stop);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = &mut stop => break,
            }
            let deadline = Instant::now() + self.interval;
            tokio::select! {
                () = self.push(deadline) => {}
                () = &mut stop => break,
            }
        }
        let _ = tokio::time::timeout(LAST_PUSH, self.push(Instant::now())).await;
    }

    /// Sends the current figures; repeats retryable requests until `deadline`.
    async fn push(&mut self, deadline: Instant) {
        let source = self.source.clone();
        // Copying the totals takes time and the engine's lock.
        let made = tokio::task::spawn_blocking(move || requests(&source())).await;
        let requests = match made {
            Ok(requests) => requests,
            Err(e) => return self.tell(Some(format!("the figures could not be put together: {e}"))),
        };
        let mut problem = None;
        for request in requests {
            match self.send(request, deadline).await {
                Ok(None) => {}
                Ok(Some(refused)) => problem = Some(refused),
                // The next push sends these figures or newer ones.
                Err(status) => {
                    problem = Some(status);
                    break;
                }
            }
        }
        self.tell(problem);
    }

    /// Returns the receiver's message with `Ok` if it accepted only part.
    async fn send(
        &mut self,
        request: ExportMetricsServiceRequest,
        deadline: Instant,
    ) -> Result<Option<String>, String> {
        let mut backoff = FIRST_BACKOFF;
        loop {
            let status = match self.client.export(request.clone()).await {
                Ok(answer) => {
                    let partial = answer.into_inner().partial_success.unwrap_or_default();
                    let said = partial.rejected_data_points > 0;
                    let text = || {
                        format!(
                            "{} data points refused: {}",
                            partial.rejected_data_points, partial.error_message
                        )
                    };
                    return Ok(said.then(text));
                }
                Err(status) => status,
            };
            let delay = match retry(&status) {
                Retry::No => return Err(in_words(&status)),
                Retry::Yes => backoff,
                Retry::After(delay) => delay,
            };
            if Instant::now() + delay >= deadline {
                return Err(in_words(&status));
            }
            self.tell(Some(in_words(&status)));
            tokio::time::sleep(delay).await;
            backoff = (backoff * 2).min(LONGEST_BACKOFF);
        }
    }

    fn tell(&mut self, problem: Option<String>) {
        match (problem, self.failing) {
            (Some(problem), false) => {
                self.failing = true;
                (self.notice)(format!("cannot push metrics to {}: {problem}; still trying", self.url));
            }
            (None, true) => {
                self.failing = false;
                (self.notice)(format!("pushing metrics to {} works again", self.url));
            }
            _ => {}
        }
    }
}

fn in_words(status: &Status) -> String {
    let told = format!("{:?}: {}", status.code(), status.message());
    // The intermediate layers say only "transport error"; the innermost error is specific.
    let cause = std::iter::successors(std::error::Error::source(status), |error| error.source()).last();
    cause.map_or(told.clone(), |cause| format!("{told}: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_grpc_addresses_are_taken() {
        let new = |url| PushSettings::new(url, Duration::from_secs(10));
        assert!(new("http://127.0.0.1:4317").is_ok());
        assert!(new("http://collector:4317/").is_ok());
        for url in
            ["https://collector:4317", "collector:4317", "http://collector", "http://c:4317/v1/metrics", ""]
        {
            let error = new(url).unwrap_err().to_string();
            assert!(error.contains("http://HOST:PORT") && error.contains(&format!("{url:?}")), "{error}");
        }
        assert!(PushSettings::new("http://c:1", Duration::ZERO).is_err());
    }
}
