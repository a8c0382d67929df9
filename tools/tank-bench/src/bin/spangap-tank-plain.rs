//! The plainest closed loops over one connection that call as the stack `rust` does: over tonic, and over the HTTP/2 library
//! that tonic itself uses. What `rust` costs beside the first is tank's; what the first costs beside the second is tonic's.

use bytes::Bytes;
use h2::client::SendRequest;
use http::uri::PathAndQuery;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::runtime;
use tokio::task::JoinSet;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

const USAGE: &str = "usage: spangap-tank-plain tonic|h2 HOST:PORT IN_FLIGHT WARMUP_S SECONDS";

const METHOD: &str = "/spangap.ping.v1.Ping/Ping";
/// An empty message: not compressed, of no bytes.
const EMPTY_MESSAGE: Bytes = Bytes::from_static(&[0; 5]);

type Failed = Box<dyn Error + Send + Sync>;

struct Arguments {
    library: String,
    target: String,
    in_flight: usize,
    warmup: Duration,
    measured: Duration,
}

impl Arguments {
    fn read() -> Option<Arguments> {
        let words: Vec<String> = std::env::args().skip(1).collect();
        let [library, target, in_flight, warmup_s, measured_s] = &words[..] else { return None };
        Some(Arguments {
            library: library.clone(),
            target: target.clone(),
            in_flight: in_flight.parse().ok()?,
            warmup: Duration::try_from_secs_f64(warmup_s.parse().ok()?).ok()?,
            measured: Duration::try_from_secs_f64(measured_s.parse().ok()?).ok()?,
        })
    }
}

fn main() -> Result<(), Failed> {
    let arguments = Arguments::read().ok_or(USAGE)?;
    let calls = Arc::new(AtomicU64::new(0));
    let counted = calls.clone();
    let (warmup, measured) = (arguments.warmup, arguments.measured);
    thread::spawn(move || measure_and_exit(&counted, warmup, measured));
    runtime::Builder::new_current_thread().enable_all().build()?.block_on(call(&arguments, &calls))
}

/// Calls until a call fails.
async fn call(arguments: &Arguments, calls: &Arc<AtomicU64>) -> Result<(), Failed> {
    let mut loops = JoinSet::new();
    match arguments.library.as_str() {
        "tonic" => {
            let channel = Endpoint::from_shared(format!("http://{}", arguments.target))?.connect().await?;
            for _ in 0..arguments.in_flight {
                loops.spawn(over_tonic(Grpc::new(channel.clone()), calls.clone()));
            }
        }
        "h2" => {
            let socket = TcpStream::connect(&arguments.target).await?;
            socket.set_nodelay(true)?;
            let (client, connection) = h2::client::handshake(socket).await?;
            loops.spawn(async move { Ok(connection.await?) });
            let uri = format!("http://{}{METHOD}", arguments.target);
            for _ in 0..arguments.in_flight {
                loops.spawn(over_h2(client.clone(), uri.clone(), calls.clone()));
            }
        }
        _ => return Err(USAGE.into()),
    }
    while let Some(ended) = loops.join_next().await {
        ended??;
    }
    Ok(())
}

/// As a generated client calls. Both messages are read and written as if they had no fields.
async fn over_tonic(mut client: Grpc<Channel>, calls: Arc<AtomicU64>) -> Result<(), Failed> {
    loop {
        client.ready().await?;
        let path = PathAndQuery::from_static(METHOD);
        client.unary(tonic::Request::new(()), path, ProstCodec::<(), ()>::default()).await?;
        calls.fetch_add(1, Relaxed);
    }
}

async fn over_h2(mut client: SendRequest<Bytes>, uri: String, calls: Arc<AtomicU64>) -> Result<(), Failed> {
    let request =
        http::Request::post(uri).header("te", "trailers").header("content-type", "application/grpc");
    let request = request.body(())?;
    loop {
        client = client.ready().await?;
        let (response, mut sending) = client.send_request(request.clone(), false)?;
        sending.send_data(EMPTY_MESSAGE, true)?;
        let mut body = response.await?.into_body();
        while let Some(data) = body.data().await {
            body.flow_control().release_capacity(data?.len())?;
        }
        let trailers = body.trailers().await?.unwrap_or_default();
        if trailers.get("grpc-status").is_none_or(|status| status != "0") {
            return Err(format!("expected grpc-status 0, got {trailers:?}").into());
        }
        calls.fetch_add(1, Relaxed);
    }
}

/// Prints what was done between the warm-up and the end, and ends the process.
fn measure_and_exit(calls: &AtomicU64, warmup: Duration, measured: Duration) {
    thread::sleep(warmup);
    let (from, calls_before, cpu_before_s) = (Instant::now(), calls.load(Relaxed), cpu_s());
    thread::sleep(measured);
    let (calls, seconds) = (calls.load(Relaxed) - calls_before, from.elapsed().as_secs_f64());
    println!(r#"{{"calls":{calls},"seconds":{seconds:.6},"cpu_s":{:.6}}}"#, cpu_s() - cpu_before_s);
    std::process::exit(0);
}

/// CPU time of this process.
fn cpu_s() -> f64 {
    // Fails only for an unknown `who`.
    getrusage(UsageWho::RUSAGE_SELF)
        .map_or(0.0, |usage| (usage.user_time() + usage.system_time()).num_microseconds() as f64 / 1e6)
}
