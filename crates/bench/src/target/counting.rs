//! Accounting of single pings from the moment their headers are read to the moment their response is handed to
//! the transport. Allocates nothing for a call without a span.

use super::calls::{Arrival, Calls, Ends, OpenCall};
use super::workers::{Place, Turn, Workers};
use crate::ping::METHOD;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tonic::Code;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::transport::server::TcpConnectInfo;
use tower::Service;

/// The Ping service with accounting for its method Ping.
#[derive(Clone)]
pub struct CountingService<S> {
    pub service: S,
    pub calls: Arc<Calls>,
    pub workers: Workers,
}

impl<S: NamedService> NamedService for CountingService<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<http::Request<Body>> for CountingService<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>> + Clone + Unpin,
    S::Future: Unpin,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = UnderWay<S>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let arrival = self.calls.arrival();
        if request.uri().path().strip_prefix('/') != Some(METHOD) {
            return UnderWay::Handled { response: self.service.call(request), call: None };
        }
        let mut call = self.calls.come();
        match self.workers.place() {
            Ok(place) => {
                handle(&mut call, place, arrival, &request);
                UnderWay::Handled { response: self.service.call(request), call: Some(call) }
            }
            Err(turn) => {
                let (service, calls) = (self.service.clone(), self.calls.clone());
                UnderWay::Waits(Box::new(Waits { turn, service, calls, request: Some((request, call)) }))
            }
        }
    }
}

/// The call's span starts here.
fn handle(call: &mut OpenCall, place: Place, arrival: Option<Arrival>, request: &http::Request<Body>) {
    let ends = if arrival.is_some() { ends(request.extensions()) } else { Ends::default() };
    call.handle(place, arrival, request.headers(), ends);
}

/// Both addresses of the connection that a request arrived on.
pub fn ends(extensions: &http::Extensions) -> Ends {
    let connection = extensions.get::<TcpConnectInfo>();
    Ends {
        local: connection.and_then(TcpConnectInfo::local_addr),
        peer: connection.and_then(TcpConnectInfo::remote_addr),
    }
}

/// A pending response, and the call that it ends.
pub enum UnderWay<S: Service<http::Request<Body>>> {
    /// The request waits for a free worker.
    Waits(Box<Waits<S>>),
    /// The response is being made.
    Handled { response: S::Future, call: Option<OpenCall> },
}

/// A request in the queue.
pub struct Waits<S> {
    turn: Turn,
    service: S,
    calls: Arc<Calls>,
    /// Present until its turn comes.
    request: Option<(http::Request<Body>, OpenCall)>,
}

impl<S> Future for UnderWay<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>> + Unpin,
    S::Future: Unpin,
{
    type Output = Result<S::Response, S::Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            match &mut *self {
                UnderWay::Waits(waits) => {
                    ready!(waits.service.poll_ready(cx))?;
                    let place = ready!(Pin::new(&mut waits.turn).poll(cx));
                    let (request, mut call) = waits.request.take().expect("its turn comes once");
                    handle(&mut call, place, waits.calls.arrival(), &request);
                    let response = waits.service.call(request);
                    *self = UnderWay::Handled { response, call: Some(call) };
                }
                UnderWay::Handled { response, call } => {
                    let response = ready!(Pin::new(response).poll(cx));
                    if let (Some(call), Ok(response)) = (call.take(), &response) {
                        call.end(status_of(response));
                    }
                    return Poll::Ready(response);
                }
            }
        }
    }
}

/// A failed unary call has its status in the headers; a successful one sends it after the message.
fn status_of(response: &http::Response<Body>) -> Code {
    response.headers().get("grpc-status").map_or(Code::Ok, |status| Code::from_bytes(status.as_bytes()))
}
