//! An agent that sends what a test determines.

use super::meter::Served;
use spangap_fleet::slice::{self, CAPTURE};
use spangap_fleet::v1::fleet_client::FleetClient;
use spangap_fleet::v1::{
    Ask, FromAgent, FromMeter, Health, Hello, Inventory, SliceEnd, SlicePiece, from_agent, from_meter,
};
use std::path::PathBuf;
use tokio::sync::mpsc::{self, Sender};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Status, Streaming};

pub struct Agent {
    to: Sender<FromAgent>,
    from: Streaming<FromMeter>,
}

pub fn hello(address: &str, session: u64) -> Hello {
    Hello {
        protocol: spangap_fleet::PROTOCOL,
        spangap: "test".into(),
        host_name: "one-for-both".into(),
        machine_id: "cafe".into(),
        netns: address.bytes().map(u64::from).sum(),
        session,
        inventory: Some(Inventory { addresses: vec![address.into()], containers: Vec::new() }),
        ..Hello::default()
    }
}

impl Agent {
    /// Connects and sends a hello, and is accepted.
    pub async fn attach(meter: &Served, hello: Hello) -> Result<Agent, Status> {
        Agent::attach_with(meter, hello, None).await
    }

    pub async fn attach_with(meter: &Served, hello: Hello, token: Option<&str>) -> Result<Agent, Status> {
        let mut agent = Agent::connect(meter, token).await?;
        agent.say(from_agent::What::Hello(hello)).await;
        match agent.hear().await?.what {
            Some(from_meter::What::Welcome(_)) => Ok(agent),
            other => panic!("expected a welcome: {other:?}"),
        }
    }

    /// Connects without sending anything.
    pub async fn connect(meter: &Served, token: Option<&str>) -> Result<Agent, Status> {
        let url = format!("http://{}", meter.at.otlp_grpc);
        let mut client = FleetClient::connect(url).await.expect("it listens");
        let (to, messages) = mpsc::channel(4);
        let mut request = Request::new(ReceiverStream::new(messages));
        if let Some(token) = token {
            let value = format!("Bearer {token}").parse().expect("text");
            request.metadata_mut().insert("authorization", value);
        }
        Ok(Agent { to, from: client.attach(request).await?.into_inner() })
    }

    pub async fn say(&self, what: from_agent::What) {
        self.to.send(FromAgent { what: Some(what) }).await.expect("the stream is open");
    }

    pub async fn hear(&mut self) -> Result<FromMeter, Status> {
        self.from.message().await.map(|said| said.expect("the stream is open"))
    }

    /// The next message; `None` at the end of the stream.
    pub async fn hear_or_end(&mut self) -> Option<FromMeter> {
        self.from.message().await.ok().flatten()
    }

    /// The next request; meanwhile reports its health, as agents do.
    pub async fn asked(&mut self) -> Ask {
        self.asked_or_end().await.expect("the stream is open")
    }

    /// The next request; `None` when the stream has ended, as it does with the meter.
    async fn asked_or_end(&mut self) -> Option<Ask> {
        let mut second = tokio::time::interval(std::time::Duration::from_secs(1));
        loop {
            tokio::select! {
                said = self.from.message() => match said.ok()??.what {
                    Some(from_meter::What::Ask(ask)) => return Some(ask),
                    // Of a request that was answered badly, or not at all.
                    Some(from_meter::What::Cancel(_)) => {}
                    other => panic!("expected an ask: {other:?}"),
                },
                _ = second.tick() => {
                    self.try_say(from_agent::What::Health(Health::default())).await?;
                }
            }
        }
    }

    /// Answers every request with this capture, or with nothing, until the meter ends: a task of its own outlives
    /// the test, and must not fail after it.
    pub async fn answer_all(mut self, capture: Option<&str>) {
        while let Some(ask) = self.asked_or_end().await {
            for piece in capture.map_or_else(Vec::new, |capture| pieces(ask.id, capture)) {
                if self.try_say(from_agent::What::Piece(piece)).await.is_none() {
                    return;
                }
            }
            let end = SliceEnd { ask: ask.id, ..SliceEnd::default() };
            if self.try_say(from_agent::What::End(end)).await.is_none() {
                return;
            }
        }
    }

    /// Says it; `None` when the stream has ended.
    pub async fn try_say(&self, what: from_agent::What) -> Option<()> {
        self.to.send(FromAgent { what: Some(what) }).await.ok()
    }

    pub async fn send(&self, pieces: impl IntoIterator<Item = SlicePiece>) {
        for piece in pieces {
            self.say(from_agent::What::Piece(piece)).await;
        }
    }

    /// Sends this piece repeatedly until the meter sends a message.
    pub async fn send_until_told(&mut self, piece: SlicePiece) -> FromMeter {
        loop {
            let message = FromAgent { what: Some(from_agent::What::Piece(piece.clone())) };
            tokio::select! {
                said = self.from.message() => return said.expect("it goes on").expect("the stream is open"),
                sent = self.to.send(message) => sent.expect("the stream is open"),
            }
        }
    }

    pub async fn end(&self, ask: u64) {
        self.say(from_agent::What::End(SliceEnd { ask, ..SliceEnd::default() })).await;
    }

    /// Answers the next request with this capture.
    pub async fn replay(&mut self, capture: &str) -> Ask {
        let ask = self.asked().await;
        self.send(pieces(ask.id, capture)).await;
        self.end(ask.id).await;
        ask
    }
}

/// A capture of the fixtures as pieces of a slice.
pub fn pieces(ask: u64, capture: &str) -> Vec<SlicePiece> {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../../fixtures/captures", capture].iter().collect();
    let file = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    slice::pieces(ask, CAPTURE, &file).map(|piece| piece.expect("memory can be compressed")).collect()
}

/// A file of a slice with these bytes.
pub fn file(ask: u64, name: &str, bytes: &[u8]) -> SlicePiece {
    let zstd = zstd::bulk::compress(bytes, 1).expect("memory compresses");
    SlicePiece { ask, file: name.into(), zstd: zstd.into() }
}
